"""Recollection of rare facts: what the models remember of what happened seldom, or for the first time."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from paper.lab import Lab
from paper.pages import by_model, markdown_table, number
from paper.paper import RARE, SHOWN
from paper.plots import Line, lines
from recollect.evaluation.metrics import evaluate
from recollect.graph.episodes import rare
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import EpisodicGraph
from recollect.training.recipe import Recipe

FIGURES = ("mrr", "hits@3")


@dataclass(frozen=True, kw_only=True)
class Recollection:
    """The dims of every model, and how it learns."""

    data: str
    dims: dict[str, tuple[int, ...]]
    recipes: dict[str, Recipe]
    seed: int = 0


# times are asked for, so times are corrupted too
_RECIPE = Recipe(negatives={"s": 1, "o": 1, "t": 1}, epochs=60)
_LONGER = replace(_RECIPE, epochs=100)
FULL = Recollection(
    data="icews-countries",
    dims=dict.fromkeys(("distmult", "hole", "complex"), (5, 10, 20, 40, 100, 200))
    | dict.fromkeys(("tree", "tucker", "cont"), (5, 10, 20, 30, 40)),
    recipes=dict.fromkeys(("distmult", "hole", "complex", "tree"), _LONGER)
    | dict.fromkeys(("tucker", "cont"), _RECIPE),
)
QUICK = Recollection(
    data="world",
    dims=dict.fromkeys(RARE, (4, 8)),
    recipes=dict.fromkeys(RARE, replace(_RECIPE, epochs=3)),
)


def run_table(lab: Lab) -> dict[str, Any]:
    """Every model at its last dim, by default the paper's."""
    plan = _plan(lab)
    return _run(lab, replace(plan, dims={model: dims[-1:] for model, dims in plan.dims.items()}))


def run_figure(lab: Lab) -> dict[str, Any]:
    """Every model at all its dims."""
    return _run(lab, _plan(lab))


def _plan(lab: Lab) -> Recollection:
    plan = QUICK if lab.quick else FULL
    plan = replace(plan, data=lab.data or plan.data)
    return replace(plan, dims=dict.fromkeys(plan.dims, lab.dims)) if lab.dims else plan


def _run(lab: Lab, plan: Recollection) -> dict[str, Any]:
    graph = lab.graph(plan.data)
    graph = graph.with_splits({"train": rare(graph)})
    lab.expected = sum(_cost(model, dim) for model, dims in plan.dims.items() for dim in dims)
    rows = []
    for model, dims in plan.dims.items():
        for dim in dims:
            told = {"model": model, "dim": dim, "data": plan.data, "seed": plan.seed, **asdict(plan.recipes[model])}
            work = partial(_recollect, lab, plan, graph, model, dim)
            found = lab.once(f"{model} dim {dim}", told, work, cost=_cost(model, dim))
            rows.append({"model": model, "dim": dim, **found})
    return {"settings": asdict(plan), "sizes": graph.sizes, "facts": len(graph.facts), "rows": rows}


def _cost(model: str, dim: int) -> float:
    return 1 + dim / 20 if model in ("distmult", "hole", "complex") else 1 + dim / 3


def _recollect(lab: Lab, plan: Recollection, graph: EpisodicGraph, model: str, dim: int) -> dict[str, Any]:
    place = lab.place(model, {"dim": dim, **asdict(plan)})
    learning = lab.train(graph, model=model, dim=dim, recipe=plan.recipes[model], seed=plan.seed, place=place)
    report = evaluate(learning.model, graph.split("train"), known=FactIndex(graph.facts, graph.sizes))["filtered"]
    place.unlink()
    return {slot: {key: report[slot][key] for key in FIGURES} for slot in ("time", "entity", "predicate")}


def page_table(found: dict[str, Any], _folder: Path) -> str:
    rows = []
    for row in found["rows"]:
        paper = RARE[row["model"]]
        cells = [SHOWN[row["model"]], row["dim"], found["settings"]["recipes"][row["model"]]["epochs"]]
        for slot in ("time", "entity"):
            theirs, ours = paper[slot], row[slot]
            cells.append(f"{number(theirs[0])} / **{number(ours['mrr'])}**")
            cells.append(f"{number(theirs[1], 1)} / **{number(100 * ours['hits@3'], 1)}**")
        rows.append([*cells, number(row["predicate"]["mrr"])])
    return "\n\n".join(
        [
            _about(found),
            markdown_table(["", "dim", "epochs", "time MRR", "@3", "entity MRR", "@3", "predicate MRR"], rows),
            "In each cell the paper's figure / **ours**; Hits@3 in percent. The predicate is ours alone.",
        ]
    )


def page_figure(found: dict[str, Any], folder: Path) -> str:
    panels = {}
    for slot, title in (("entity", "entities"), ("time", "times")):
        panels[title] = [
            Line(SHOWN[model], [row["dim"] for row in rows], [row[slot]["mrr"] for row in rows])
            for model, rows in by_model(found["rows"]).items()
        ]
    lines(panels, folder / "figure-rare.png", xlabel="dim", ylabel="filtered MRR", log_x=True)
    rows = [
        [SHOWN[row["model"]], row["dim"], *(number(row[slot]["mrr"]) for slot in ("entity", "time", "predicate"))]
        for row in found["rows"]
    ]
    return "\n\n".join(
        [
            _about(found),
            "![filtered MRR against dim, of entities and of times](figure-rare.png)",
            markdown_table(["", "dim", "entity MRR", "time MRR", "predicate MRR"], rows),
        ]
    )


def _about(found: dict[str, Any]) -> str:
    sizes, recipe = found["sizes"], found["settings"]["recipes"]["cont"]
    return (
        f"Recollection of the {found['facts']:,} rare facts of `{found['settings']['data']}` ({sizes['entity']} × "
        f"{sizes['predicate']} × {sizes['time']}) that were learned: facts of triples that occur fewer than three "
        "times, and the starts of all runs. Filtered. Logistic loss, one corrupted subject, object and time a fact, "
        f"Adam at {recipe['learning_rate']:g}, λ = {recipe['l2']:g}; nothing is chosen by these figures but the length "
        "of the training, which stops when the tensor models have learned the facts."
    )
