"""Public benchmarks: every model with the modern recipe, settings committed, three seeds, the test looked at once."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

from paper.lab import Lab
from paper.pages import markdown_table, mean_and_spread, number
from paper.paper import SHOWN
from recollect.evaluation.baselines import DECAYS, Baseline
from recollect.evaluation.metrics import evaluate
from recollect.graph.episodes import split_randomly
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import EpisodicGraph, Facts
from recollect.models.tensor_model import Dims
from recollect.training.recipe import RECIPES, Recipe, parse_recipe

FIGURES = ("mrr", "hits@1", "hits@3", "hits@10")
CHOSEN = {
    "test": "Settings were chosen on the validation split, and the test split was looked at once a row.",
    "valid": "These figures are what settings are chosen by; the test split is not looked at.",
}


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One line of a leaderboard: a model, how it is built and how it learns."""

    model: str
    dim: Dims
    recipe: Recipe
    form: str = "episodic"
    note: str = ""  # what others call it, or what is special about it
    seeds: tuple[int, ...] = (0, 1, 2)


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A dataset, who takes part, and what others have published on it."""

    data: str
    entries: tuple[Entry, ...]
    published: tuple[tuple[str, float], ...] = ()  # test MRR, filtered by time
    split: str = "test"  # that is told: where entries are compared in order to choose, not the test split
    slots: str = "spot"  # that are recalled


def _entry(model: str, dim: int, predicate: int | None = None, time: int | None = None, **told: Any) -> Entry:
    """An entry with the modern recipe as it suits the model, or another, and what is told to be otherwise."""
    own = {name: told.pop(name) for name in ("form", "note", "seeds") if name in told}
    recipe = replace(told.pop("recipe", parse_recipe("modern", model)), **told)
    return Entry(model=model, dim=Dims.of(dim, predicate=predicate, time=time), recipe=recipe, **own)


def _both_recipes(paper: Recipe, **told: Any) -> tuple[Entry, ...]:
    """Every episodic model at the paper's dims, with its recipe and with ours."""
    dims = dict.fromkeys(("distmult", "hole", "complex"), 100) | dict.fromkeys(("tree", "tucker", "cont"), 40)
    return tuple(
        entry
        for model, dim in dims.items()
        for entry in (
            _entry(model, dim, recipe=paper, note="paper"),
            _entry(model, dim, note="modern", predict=ALL, **told),
        )
    )


# where times are predicted too
TIMES = {"s": 1.0, "o": 1.0, "t": 0.1}
ALL = {**RECIPES["modern"].predict, "t": 0.1}
# who takes part in more than one way
CONT = partial(_entry, "cont", 100, 12, form="both", candidates=0, epochs=16, patience=9)
TUCKER = partial(_entry, "tucker", form="both", candidates=0, epochs=12, patience=9)
TREE = partial(_entry, "tree", 100, 80, 30, form="both", epochs=12, patience=9)
TNT = partial(_entry, "complex", form="both", note="TNTComplEx", epochs=24, patience=9)
HOLE = partial(_entry, "hole", 200, form="both", epochs=16, patience=9)
DISTMULT = partial(_entry, "distmult", 200, form="both", epochs=16, patience=9)
LONG = partial(_entry, levels=(1, 5, 25, 125), validate_every=2)
ABLATED = partial(_entry, "cont", 100, 12, epochs=12, patience=9, seeds=(0,))

BENCHMARKS = {
    "icews14": Benchmark(
        data="icews14",
        entries=(
            _entry("cont", 150, 20, form="both", candidates=0, dropout=0.3, epochs=16, patience=9),
            CONT(),
            CONT(note="times predicted too", predict=ALL),
            TUCKER(100, 12, 120),
            TUCKER(60, 12, 60),  # to predict times too would take hours at the other dim
            TUCKER(60, 12, 60, note="times predicted too", predict=ALL),
            TREE(),
            TREE(note="times predicted too", predict=ALL),
            TNT(1000, epochs=20),
            TNT(156),
            TNT(156, note="TNTComplEx, times predicted too", predict=TIMES),
            TNT(156, note="TComplEx", form="episodic"),
            HOLE(),
            HOLE(note="times predicted too", predict=TIMES),
            DISTMULT(),
            DISTMULT(note="times predicted too", predict=TIMES),
            _entry("rescal", 100, form="semantic", epochs=16, patience=9),
            _entry("complex", 156, form="semantic", epochs=16, patience=9),
        ),
        published=(
            ("ConT, as copied since 2019", 0.185),
            ("TNTComplEx, dim 156", 0.56),
            ("TuckERTNT", 0.604),
            ("TNTComplEx, dim 1560", 0.62),
            ("best of any method", 0.651),
        ),
    ),
    "ablation-icews14": Benchmark(
        data="icews14",
        split="valid",
        entries=(
            ABLATED(form="both", note="all of it"),
            ABLATED(form="both", note="all candidates", candidates=0),
            ABLATED(form="both", note="times predicted too", predict=ALL),
            ABLATED(form="both", note="predicates not predicted", predict={"s": 1.0, "o": 1.0}),
            ABLATED(note="no static part"),
            ABLATED(form="both", note="last weights, no mean", average=False),
            ABLATED(form="both", note="no coarse levels", levels=(1,)),
            ABLATED(form="both", note="no smoothness", smoothness=0.0),
            ABLATED(form="both", note="neither levels nor smoothness", levels=(1,), smoothness=0.0),
            ABLATED(form="both", note="no dropout", dropout=0.0),
            ABLATED(form="both", note="no label smoothing", label_smoothing=0.0),
            ABLATED(form="both", note="no penalty", penalty=0.0),
            ABLATED(form="both", note="no inverse predicates", reciprocal=False),
            ABLATED(form="both", note="times learn like the rest", time_rate=1.0),
            ABLATED(form="both", note="Adam at 0.003", optimizer="adam", learning_rate=3e-3, time_rate=1.0),
            ABLATED(form="semantic", note="no times at all"),
        ),
    ),
    "icews-countries": Benchmark(
        data="icews-countries",
        entries=_both_recipes(
            Recipe(epochs=200, validate_every=4, patience=8), epochs=24, validate_every=2, patience=2
        ),
    ),
    "gdelt2012-countries": Benchmark(
        data="gdelt2012-countries",
        entries=_both_recipes(
            Recipe(batch_size=4096, epochs=40, validate_every=2, patience=4),
            batch_size=4096,
            epochs=4,
            validate_every=1,
            patience=2,
        ),
    ),
    # 4,017 days of cores: ranking them all takes minutes more
    "icews05-15": Benchmark(
        data="icews05-15",
        slots="spo",
        entries=(
            LONG("cont", 100, 12, form="both", candidates=0, penalty=3e-3, epochs=12),
            LONG("complex", 128, form="both", note="TNTComplEx", penalty=5e-3, epochs=20),
        ),
        published=(
            ("ConT, as copied since 2019", 0.163),
            ("TNTComplEx", 0.60),
            ("TNTComplEx, ten times the dim", 0.67),
            ("best of any method", 0.698),
        ),
    ),
}


def run(which: str, lab: Lab) -> dict[str, Any]:
    """Train every entry with every seed, and test it once."""
    benchmark = BENCHMARKS[which]
    data = lab.data or ("world" if lab.quick else benchmark.data)
    entries = [_small(entry) if lab.quick else entry for entry in benchmark.entries]
    if lab.dims:
        entries = [replace(entry, dim=Dims.of(dim)) for entry in entries for dim in lab.dims]
    graph = lab.graph(data)
    graph = graph if "valid" in graph.splits else split_randomly(graph)
    split = benchmark.split
    asked = graph.split(split)
    known = FactIndex(graph.filter_facts(split), graph.sizes)
    lab.expected = sum(len(entry.seeds) for entry in entries)
    rows = []
    for entry in entries:
        rows += [_row(lab, data, graph, known, benchmark, entry, seed) for seed in entry.seeds]
        lab.clear()
    counted = {
        kind: _figures(Baseline(graph.split("train"), graph.sizes, decay=decay), asked, known, benchmark.slots)
        for kind, decay in DECAYS.items()
    }
    splits = {split: len(facts) for split, facts in graph.splits.items()}
    settings = [{**asdict(entry), "recipe": entry.recipe.told()} for entry in entries]
    return {
        "settings": {"data": data, "entries": settings},
        "split": split,
        "published": benchmark.published,
        "sizes": graph.sizes,
        "splits": splits,
        "baselines": counted,
        "rows": rows,
    }


def _small(entry: Entry) -> Entry:
    recipe = replace(entry.recipe, epochs=2, validate_every=1)
    dim = Dims.of(max(2, entry.dim.entity // 25))
    return replace(entry, dim=dim, recipe=recipe, seeds=entry.seeds[:1])


def _row(
    lab: Lab, data: str, graph: EpisodicGraph, known: FactIndex, benchmark: Benchmark, entry: Entry, seed: int
) -> dict[str, Any]:
    """An entry with one seed: trained, and ranked once."""
    split, slots = benchmark.split, benchmark.slots
    learned = {key: value for key, value in asdict(entry).items() if key not in ("note", "seeds")}
    told = {"data": data, "entry": learned, "seed": seed, "split": split, "slots": slots}
    name = f"{entry.model} {entry.form} {entry.dim.entity} seed {seed}"

    def work() -> dict[str, Any]:
        learning = lab.train(
            graph,
            model=entry.model,
            dim=entry.dim,
            recipe=entry.recipe,
            seed=seed,
            form=entry.form,
            place=lab.place(name, told),
        )
        training = learning.training
        training.finish_()
        return {
            "dim": vars(entry.dim),
            "parameters": sum(parameter.numel() for parameter in learning.model.parameters()),
            "epochs": training.epoch,
            "best_epoch": training.best_epoch,
            "valid_mrr": training.best_mrr,
            "figures": _figures(learning.model, graph.split(split), known, slots),
        }

    return {
        "model": entry.model,
        "form": entry.form,
        "note": entry.note,
        "seed": seed,
        **lab.once(name, told, work),
    }


def _figures(scorer: Any, facts: Facts, known: FactIndex, slots: str) -> dict[str, dict[str, float]]:
    """The filtered figures of these slots; a semantic model has no time to recall."""
    slots = "".join(slot for slot in slots if slot != "t" or getattr(scorer, "form", "") != "semantic")
    report = evaluate(scorer, facts, known=known, slots=slots)["filtered"]
    return {slot: {key: figures[key] for key in FIGURES} for slot, figures in report.items()}


def page(found: dict[str, Any], _folder: Path) -> str:
    sizes, splits = found["sizes"], found["splits"]
    lines, left = [], iter(found["rows"])
    for entry in found["settings"]["entries"]:
        rows = list(islice(left, len(entry["seeds"])))
        first = rows[0]
        name = SHOWN[first["model"]] + {"both": " + static", "semantic": ", static"}.get(first["form"], "")
        tests = [row["figures"]["entity"] for row in rows]
        lines.append(
            [
                f"{name} ({first['note']})" if first["note"] else name,
                _ranks(first["dim"]),
                f"{first['parameters']:,}",
                f"**{mean_and_spread([test['mrr'] for test in tests])}**",
                *(number(100 * fmean([test[key] for test in tests]), 1) for key in FIGURES[1:]),
                number(fmean([row["valid_mrr"] for row in rows])),
                *(
                    number(fmean([row["figures"][slot]["mrr"] for row in rows]) if slot in first["figures"] else None)
                    for slot in ("predicate", "time")
                ),
                f"{fmean([row['best_epoch'] for row in rows]):.0f}",
                f"{fmean([row['seconds'] for row in rows]) / 60:.0f}",
                len(rows),
            ]
        )
    for kind, report in found["baselines"].items():
        entity = report["entity"]
        shares = (number(100 * entity[key], 1) for key in FIGURES[1:])
        more = (number(report[slot]["mrr"] if slot in report else None) for slot in ("predicate", "time"))
        lines.append([f"*{kind}, no model*", *"––", number(entity["mrr"]), *shares, "–", *more, *"–––"])
    head = ["", "dim", "parameters", "MRR", "@1", "@3", "@10", "valid", "predicate", "time", "epoch", "min", "seeds"]
    return "\n\n".join(
        [
            f"Filtered figures of the {found['split']} split of `{found['settings']['data']}` "
            f"({sizes['entity']:,} entities × "
            f"{sizes['predicate']} predicates × {sizes['time']:,} times; {splits['train']:,} facts to learn, "
            f"{splits['valid']:,} to choose by, {splits.get('test', 0):,} to test), subjects and objects together; "
            "the filter knows all facts of the same time, and ties count half. Means of the seeds ± their standard "
            "deviation; Hits@n in percent; *min* is minutes of one run with its test. *predicate* and *time* are "
            "the MRR of the other slots. " + CHOSEN[found["split"]],
            markdown_table(head, lines),
            *([_published(found["published"])] if found["published"] else []),
        ]
    )


def _published(figures: list[tuple[str, float]]) -> str:
    return "Published test MRR: " + ", ".join(f"{name} {number(mrr)}" for name, mrr in figures) + "."


def _ranks(dim: dict[str, int]) -> str:
    own = [dim["entity"], *(dim[kind] for kind in ("predicate", "time"))]
    return str(own[0]) if len(set(own)) == 1 else " / ".join(map(str, own))
