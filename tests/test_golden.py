"""Golden runs: short trainings and rankings end where version 0.1 ended, so that no change of results passes unseen.

`python tests/test_golden.py` rewrites golden/runs.json; do so only when a change is meant to alter results.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import net

GOLDEN = Path(__file__).parent / "golden" / "runs.json"
FORMS = {
    "distmult": ("episodic", "semantic", "both"),
    "hole": ("episodic", "semantic", "both"),
    "complex": ("episodic", "semantic", "both"),
    "rescal": ("semantic",),
    "tucker": ("episodic", "semantic", "both"),
    "tree": ("episodic", "semantic", "both"),
    "cont": ("episodic", "semantic", "both"),
}
MODELS_AND_FORMS = [(model, form) for model, forms in FORMS.items() for form in forms]

SHORT = {"epochs": 4, "validate_every": 4, "batch_size": 128}
LONG = {"epochs": 12, "validate_every": 12, "batch_size": 128, "learning_rate": 0.01}
ONE_VS_ALL = {"loss": "one-vs-all", "optimizer": "adagrad", "learning_rate": 0.1, "l2": 0.0}

Case = dict[str, Any]  # arguments of `net.train`; "graph" holds those of `net.random_graph`, absent: the small world


def world_cases() -> dict[str, Case]:
    """Every model and form with either recipe on the small world; float32 with the paper's recipe only."""
    cases: dict[str, Case] = {}
    for model, form in MODELS_AND_FORMS:
        settings = {"model": model, "form": form, "dim": 6}
        paper = {"recipe": "paper", "options": SHORT | {"learning_rate": 0.05}}
        modern = {"recipe": "modern", "options": SHORT}
        float32 = {"dim": 8, "recipe": "paper", "options": LONG, "dtype": "float32"}
        cases[f"paper {model} {form}"] = settings | paper
        cases[f"modern {model} {form}"] = settings | modern
        cases[f"float32 {model} {form}"] = settings | float32
    return cases


def graph(entities: int, predicates: int, times: int, facts: int, **extra: bool) -> dict[str, Any]:
    return {"entities": entities, "predicates": predicates, "times": times, "facts": facts, **extra}


FEW = graph(40, 6, 30, 400)
MANY_ENTITIES = graph(5000, 600, 40, 300)
MANY_TIMES = graph(60, 6, 300, 700)
BUSY_TIMES = graph(60, 6, 200, 2500)


def case(of: dict[str, Any], model: str, form: str, dim: int, recipe: str, /, **options: Any) -> Case:
    """Return a case of three epochs on a random graph; options named *_dim are the model's, the others the recipe's."""
    dims = {name: options.pop(name) for name in ("predicate_dim", "time_dim") if name in options}
    base: dict[str, Any] = {"epochs": 3, "validate_every": 3, "batch_size": 128}
    if recipe == "paper":
        base["learning_rate"] = 0.05
    settings = {"graph": of, "model": model, "form": form, "dim": dim, "recipe": recipe} | dims
    return settings | {"options": base | options}


BRANCHES: dict[str, Case] = {
    # order of the facts
    "blocks cont": case(FEW, "cont", "episodic", 4, "paper", order="blocks"),
    "blocks tucker both": case(FEW, "tucker", "both", 4, "paper", order="blocks"),
    "blocks distmult modern": case(FEW, "distmult", "episodic", 4, "modern", order="blocks"),
    "auto order gives blocks": case(BUSY_TIMES, "cont", "episodic", 20, "paper", batch_size=256),
    "auto order gives blocks, modern": case(BUSY_TIMES, "cont", "both", 20, "modern", batch_size=256, levels=(1,)),
    "random order": case(MANY_TIMES, "cont", "episodic", 12, "paper", order="random", batch_size=300),
    # rows that a batch touches
    "lazy distmult": case(MANY_ENTITIES, "distmult", "episodic", 6, "paper", batch_size=32),
    "lazy complex both": case(MANY_ENTITIES, "complex", "both", 6, "paper", batch_size=32, l2=0.1),
    "lazy hole semantic": case(MANY_ENTITIES, "hole", "semantic", 6, "paper", batch_size=32),
    "lazy rescal": case(MANY_ENTITIES, "rescal", "semantic", 6, "paper", batch_size=64),
    "lazy tucker": case(MANY_ENTITIES, "tucker", "episodic", 5, "paper", batch_size=80),
    "lazy tree adagrad": case(MANY_ENTITIES, "tree", "both", 4, "paper", batch_size=32, optimizer="adagrad", l2=0.1),
    "lazy cont times": case(MANY_TIMES, "cont", "episodic", 6, "paper", batch_size=40, order="random"),
    # candidates drawn for a batch
    "sampled complex": case(MANY_ENTITIES, "complex", "both", 6, "modern", candidates=100),
    "sampled cont": case(MANY_ENTITIES, "cont", "episodic", 5, "modern", candidates=50),
    "sampled tree not reciprocal": case(
        MANY_ENTITIES, "tree", "episodic", 4, "modern", candidates=50, reciprocal=False
    ),
    # times made of knots
    "knots cont": case(MANY_TIMES, "cont", "episodic", 5, "modern", levels=(1, 5, 25)),
    "knots cont, few times in a batch": case(MANY_TIMES, "cont", "both", 5, "modern", levels=(1, 4), batch_size=16),
    "knots distmult": case(MANY_TIMES, "distmult", "episodic", 6, "modern", levels=(1, 5, 25), smoothness=2.0),
    "knots logistic": case(
        MANY_TIMES, "tucker", "episodic", 4, "paper", levels=(1, 7), smoothness=1.0, negatives={"s": 1, "t": 2}
    ),
    # large matrices and cores
    "large cont": case(graph(60, 4, 6, 400), "cont", "episodic", 28, "paper", batch_size=400),
    "large cont, several negatives": case(
        graph(60, 4, 6, 400), "cont", "episodic", 28, "paper", batch_size=400, negatives={"s": 2, "o": 2}
    ),
    "large cont modern": case(graph(60, 4, 12, 400), "cont", "both", 28, "modern", batch_size=400),
    "large rescal": case(graph(60, 3, 6, 400), "rescal", "semantic", 136, "paper", batch_size=400),
    "large tucker": case(graph(60, 6, 20, 300), "tucker", "episodic", 34, "paper", batch_size=300),
    "large tucker modern": case(graph(60, 6, 20, 300), "tucker", "episodic", 34, "modern", batch_size=300),
    "large tree": case(graph(60, 6, 20, 300), "tree", "episodic", 104, "paper", batch_size=300),
    "large tree, few entities": case(graph(20, 6, 200, 300), "tree", "episodic", 104, "paper", batch_size=300),
    "large tucker semantic": case(graph(60, 6, 20, 300), "tucker", "semantic", 104, "paper", batch_size=300),
    # losses and negatives
    "weighted facts": case(FEW | {"weighted": True}, "complex", "episodic", 5, "paper"),
    "weighted facts modern": case(FEW | {"weighted": True}, "cont", "episodic", 4, "modern", candidates=0),
    "false facts": case(FEW | {"some_false": True, "weighted": True}, "tucker", "both", 4, "paper"),
    "negatives of all slots": case(FEW, "distmult", "episodic", 5, "paper", negatives={"s": 2, "p": 1, "o": 3, "t": 2}),
    "negatives of all slots, cont": case(
        FEW, "cont", "both", 4, "paper", negatives={"s": 1, "p": 1, "o": 1, "t": 2}, avoid_known=True
    ),
    "negatives of predicates, rescal": case(FEW, "rescal", "semantic", 5, "paper", negatives={"p": 2, "o": 1}),
    "avoid known": case(graph(12, 2, 5, 600), "hole", "semantic", 6, "paper", avoid_known=True),
    "ranking": case(FEW, "complex", "episodic", 5, "paper", loss="ranking", margin=0.5),
    "ranking without sigmoid": case(FEW, "tree", "episodic", 4, "paper", loss="ranking", sigmoid=False),
    "predict all slots, cont": case(
        FEW, "cont", "episodic", 4, "modern", predict={"s": 1.0, "p": 0.5, "o": 1.0, "t": 0.1}, candidates=0
    ),
    "predict all slots, complex": case(
        FEW,
        *("complex", "both", 5, "modern"),
        predict={"s": 1.0, "p": 0.5, "o": 1.0, "t": 0.1},
        dropout=0.1,
        label_smoothing=0.05,
    ),
    "predict objects, plain one-vs-all": case(FEW, "tree", "semantic", 4, "paper", **ONE_VS_ALL, predict={"o": 1.0}),
    "mean of weights, logistic": case(FEW, "distmult", "both", 5, "paper", average=True),
    # lengths that differ by kind
    "three dims tucker": case(FEW, "tucker", "episodic", 6, "paper", predicate_dim=3, time_dim=4),
    "three dims cont": case(FEW, "cont", "episodic", 6, "modern", predicate_dim=3),
    "three dims tree": case(FEW, "tree", "episodic", 6, "paper", predicate_dim=3, time_dim=4),
}
CASES = world_cases() | BRANCHES

RANKED = graph(300, 12, 40, 600)
RANKS: dict[str, Case] = {
    f"{model} {form}": {"model": model, "form": form, "dim": 6, "graph": RANKED} for model, form in MODELS_AND_FORMS
} | {
    "cont both, reciprocal, knots": {
        **{"model": "cont", "form": "both", "dim": 6, "graph": RANKED},
        **{"reciprocal": True, "levels": (1, 5)},
    },
    "complex both, reciprocal, knots": {
        **{"model": "complex", "form": "both", "dim": 5, "graph": RANKED},
        **{"reciprocal": True, "levels": (1, 5)},
    },
    "large cont": {"model": "cont", "form": "episodic", "dim": 28, "graph": graph(60, 4, 6, 600)},
    "large tucker": {"model": "tucker", "form": "episodic", "dim": 34, "graph": graph(60, 4, 20, 300)},
    "large tree": {"model": "tree", "form": "episodic", "dim": 104, "graph": graph(60, 4, 20, 200)},
    "tree in pieces": {"model": "tree", "form": "episodic", "dim": 104, "graph": graph(60, 4, 500, 1300)},
}


def run(settings: Case) -> dict[str, Any]:
    """Return the loss, validation MRR and weight checksums of a case."""
    others = {name: value for name, value in settings.items() if name != "graph"}
    data = net.random_graph(**settings["graph"]) if "graph" in settings else net.small_world()
    return net.train(data, **others)


def ranks(settings: Case) -> dict[str, Any]:
    """Return the rank checksums of a case."""
    return net.rank_checksums(**settings | {"graph": net.random_graph(**settings["graph"])})


def flat(value: Any, path: str = "") -> dict[str, Any]:
    """Return the leaves of nested dictionaries and lists, by their path."""
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    else:
        return {path: value}
    return {key: leaf for name, each in items for key, leaf in flat(each, f"{path}/{name}").items()}


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    return json.loads(GOLDEN.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", CASES)
def test_a_run_ends_where_it_always_has(name, golden):
    tolerance = 5e-3 if name.startswith("float32") else 1e-5
    assert flat(run(CASES[name])) == pytest.approx(flat(golden["runs"][name]), rel=tolerance)


@pytest.mark.parametrize("name", RANKS)
def test_ranks_are_what_they_always_were(name, golden):
    assert flat(ranks(RANKS[name])) == pytest.approx(flat(golden["ranks"][name]), rel=1e-5)


def test_every_golden_case_is_run(golden):
    assert golden["runs"].keys() == CASES.keys()
    assert golden["ranks"].keys() == RANKS.keys()


def write() -> None:
    """Rewrite the golden file from the library as it is."""
    net.use_one_thread()
    found = {
        "runs": {name: run(settings) for name, settings in CASES.items()},
        "ranks": {name: ranks(settings) for name, settings in RANKS.items()},
    }
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
