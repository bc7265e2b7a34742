"""Recollection of rare facts: what the models remember of what happened seldom, or for the first time."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from recollect.episodes import rare
from recollect.experiments.lab import Lab
from recollect.experiments.pages import by_model, markdown_table, number
from recollect.experiments.paper import RARE, SHOWN
from recollect.facts import EpisodicGraph
from recollect.known import Known
from recollect.metrics import evaluate
from recollect.plots import Line, lines
from recollect.recipes import Recipe

FIGURES = ("mrr", "hits@3")


@dataclass(frozen=True, kw_only=True)
class Recollection:
    """The ranks of every model, and how it learns."""

    data: str
    ranks: dict[str, tuple[int, ...]]
    recipes: dict[str, Recipe]
    seed: int = 0


# times are asked for, so times are corrupted too
_RECIPE = Recipe(negatives={"s": 1, "o": 1, "t": 1}, epochs=60)
_LONGER = replace(_RECIPE, epochs=100)
FULL = Recollection(
    data="icews-countries",
    ranks=dict.fromkeys(("distmult", "hole", "complex"), (5, 10, 20, 40, 100, 200))
    | dict.fromkeys(("tree", "tucker", "cont"), (5, 10, 20, 30, 40)),
    recipes=dict.fromkeys(("distmult", "hole", "complex", "tree"), _LONGER)
    | dict.fromkeys(("tucker", "cont"), _RECIPE),
)
QUICK = Recollection(
    data="world",
    ranks=dict.fromkeys(RARE, (4, 8)),
    recipes=dict.fromkeys(RARE, replace(_RECIPE, epochs=3)),
)


def run_table(lab: Lab) -> dict[str, Any]:
    """Every model at its last rank, by default the paper's."""
    plan = _plan(lab)
    return _run(lab, replace(plan, ranks={model: ranks[-1:] for model, ranks in plan.ranks.items()}))


def run_figure(lab: Lab) -> dict[str, Any]:
    """Every model at all its ranks."""
    return _run(lab, _plan(lab))


def _plan(lab: Lab) -> Recollection:
    plan = QUICK if lab.quick else FULL
    plan = replace(plan, data=lab.data or plan.data)
    return replace(plan, ranks=dict.fromkeys(plan.ranks, lab.ranks)) if lab.ranks else plan


def _run(lab: Lab, plan: Recollection) -> dict[str, Any]:
    graph = lab.graph(plan.data)
    graph = graph.with_splits({"train": rare(graph)})
    lab.expected = sum(_cost(model, rank) for model, ranks in plan.ranks.items() for rank in ranks)
    rows = []
    for model, ranks in plan.ranks.items():
        for rank in ranks:
            told = {"model": model, "rank": rank, "data": plan.data, "seed": plan.seed, **asdict(plan.recipes[model])}
            work = partial(_recollect, lab, plan, graph, model, rank)
            found = lab.once(f"{model} rank {rank}", told, work, cost=_cost(model, rank))
            rows.append({"model": model, "rank": rank, **found})
    return {"settings": asdict(plan), "sizes": graph.sizes, "facts": len(graph.facts), "rows": rows}


def _cost(model: str, rank: int) -> float:
    return 1 + rank / 20 if model in ("distmult", "hole", "complex") else 1 + rank / 3


def _recollect(lab: Lab, plan: Recollection, graph: EpisodicGraph, model: str, rank: int) -> dict[str, Any]:
    place = lab.place(model, {"rank": rank, **asdict(plan)})
    learning = lab.train(graph, model=model, rank=rank, recipe=plan.recipes[model], seed=plan.seed, place=place)
    report = evaluate(learning.model, graph.split("train"), known=Known(graph.facts, graph.sizes))["filtered"]
    place.unlink()
    return {slot: {key: report[slot][key] for key in FIGURES} for slot in ("time", "entity", "predicate")}


def page_table(found: dict[str, Any], _folder: Path) -> str:
    rows = []
    for row in found["rows"]:
        paper = RARE[row["model"]]
        cells = [SHOWN[row["model"]], row["rank"], found["settings"]["recipes"][row["model"]]["epochs"]]
        for slot in ("time", "entity"):
            theirs, ours = paper[slot], row[slot]
            cells.append(f"{number(theirs[0])} / **{number(ours['mrr'])}**")
            cells.append(f"{number(theirs[1], 1)} / **{number(100 * ours['hits@3'], 1)}**")
        rows.append([*cells, number(row["predicate"]["mrr"])])
    return "\n\n".join(
        [
            _about(found),
            markdown_table(["", "rank", "epochs", "time MRR", "@3", "entity MRR", "@3", "predicate MRR"], rows),
            "In each cell the paper's figure / **ours**; Hits@3 in percent. The predicate is ours alone.",
        ]
    )


def page_figure(found: dict[str, Any], folder: Path) -> str:
    panels = {}
    for slot, title in (("entity", "entities"), ("time", "times")):
        panels[title] = [
            Line(SHOWN[model], [row["rank"] for row in rows], [row[slot]["mrr"] for row in rows])
            for model, rows in by_model(found["rows"]).items()
        ]
    lines(panels, folder / "figure-rare.png", xlabel="rank", ylabel="filtered MRR", log_x=True)
    rows = [
        [SHOWN[row["model"]], row["rank"], *(number(row[slot]["mrr"]) for slot in ("entity", "time", "predicate"))]
        for row in found["rows"]
    ]
    return "\n\n".join(
        [
            _about(found),
            "![filtered MRR against rank, of entities and of times](figure-rare.png)",
            markdown_table(["", "rank", "entity MRR", "time MRR", "predicate MRR"], rows),
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
