"""Recollection of rare facts: how well models remember training facts that occur seldom, or for the first time."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from paper.markdown import by_model, markdown_table, number, percent
from paper.plots import Line, lines
from paper.printed import RARE, SHOWN
from paper.workspace import Workspace
from recollect import RECIPES, EpisodicGraph, ModelConfig, Recipe, rare
from recollect.evaluation.metrics import evaluate
from recollect.graph.fact_index import FactIndex

METRICS = ("mrr", "hits@3")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The dims and the recipe of every model."""

    data: str
    dims: dict[str, tuple[int, ...]]
    recipes: dict[str, Recipe]
    seed: int = 0


# time queries are evaluated, so times get a negative too
_RECIPE = replace(RECIPES["paper"], negatives={"s": 1, "o": 1, "t": 1}, epochs=60)
_LONGER = replace(_RECIPE, epochs=100)
FULL = Plan(
    data="icews-countries",
    dims=dict.fromkeys(("distmult", "hole", "complex"), (5, 10, 20, 40, 100, 200))
    | dict.fromkeys(("tree", "tucker", "cont"), (5, 10, 20, 30, 40)),
    recipes=dict.fromkeys(("distmult", "hole", "complex", "tree"), _LONGER)
    | dict.fromkeys(("tucker", "cont"), _RECIPE),
)
QUICK = Plan(
    data="world",
    dims=dict.fromkeys(RARE, (4, 8)),
    recipes=dict.fromkeys(RARE, replace(_RECIPE, epochs=3)),
)


def run_table(workspace: Workspace) -> dict[str, Any]:
    """Train every model at its last dim, by default the paper's."""
    plan = _plan(workspace)
    return _run(workspace, replace(plan, dims={model: dims[-1:] for model, dims in plan.dims.items()}))


def run_figure(workspace: Workspace) -> dict[str, Any]:
    """Train every model at all its dims."""
    return _run(workspace, _plan(workspace))


def _plan(workspace: Workspace) -> Plan:
    plan = QUICK if workspace.quick else FULL
    plan = replace(plan, data=workspace.data or plan.data)
    return replace(plan, dims=dict.fromkeys(plan.dims, workspace.dims)) if workspace.dims else plan


def _run(workspace: Workspace, plan: Plan) -> dict[str, Any]:
    graph = workspace.graph(plan.data)
    graph = graph.with_splits({"train": rare(graph)})
    workspace.expected = sum(_cost(model, dim) for model, dims in plan.dims.items() for dim in dims)
    rows = []
    for model, dims in plan.dims.items():
        for dim in dims:
            settings = {"model": model, "dim": dim, "data": plan.data, "seed": plan.seed, **asdict(plan.recipes[model])}
            work = partial(_recollect, workspace, plan, graph, model, dim)
            found = workspace.cached(f"{model} dim {dim}", settings, work, cost=_cost(model, dim))
            rows.append({"model": model, "dim": dim, **found})
    return {"settings": asdict(plan), "sizes": graph.sizes, "facts": len(graph.facts), "rows": rows}


def _cost(model: str, dim: int) -> float:
    """Return the relative cost of a training run, for the progress bar."""
    return 1 + dim / 20 if model in ("distmult", "hole", "complex") else 1 + dim / 3


def _recollect(workspace: Workspace, plan: Plan, graph: EpisodicGraph, model: str, dim: int) -> dict[str, Any]:
    """Train a model on the rare facts and evaluate it on the same facts."""
    checkpoint = workspace.checkpoint(model, {"dim": dim, **asdict(plan)})
    config = ModelConfig(model=model, dim=dim)
    run = workspace.train(graph, config, plan.recipes[model], seed=plan.seed, checkpoint=checkpoint)
    report = evaluate(run.model, graph.split("train"), known=FactIndex(graph.facts, graph.sizes))["filtered"]
    checkpoint.unlink()
    return {slot: {metric: report[slot][metric] for metric in METRICS} for slot in ("time", "entity", "predicate")}


def page_table(found: dict[str, Any], _folder: Path) -> str:
    """Return the page of the table: the paper's figures next to ours."""
    rows = []
    for row in found["rows"]:
        paper = RARE[row["model"]]
        cells = [SHOWN[row["model"]], row["dim"], found["settings"]["recipes"][row["model"]]["epochs"]]
        for slot in ("time", "entity"):
            paper_mrr, paper_hits = paper[slot]
            cells.append(f"{number(paper_mrr)} / **{number(row[slot]['mrr'])}**")
            cells.append(f"{number(paper_hits, 1)} / **{percent(row[slot]['hits@3'])}**")
        rows.append([*cells, number(row["predicate"]["mrr"])])
    return "\n\n".join(
        [
            _description(found),
            markdown_table(["", "dim", "epochs", "time MRR", "@3", "entity MRR", "@3", "predicate MRR"], rows),
            "Each cell has the paper's figure / **ours**; Hits@3 in percent. The paper reports no predicates.",
        ]
    )


def page_figure(found: dict[str, Any], folder: Path) -> str:
    """Return the page of the figure and draw it: MRR against dim."""
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
            _description(found),
            "![filtered MRR of entities and times against dim](figure-rare.png)",
            markdown_table(["", "dim", "entity MRR", "time MRR", "predicate MRR"], rows),
        ]
    )


def _description(found: dict[str, Any]) -> str:
    sizes, recipe = found["sizes"], found["settings"]["recipes"]["cont"]
    return (
        f"Recollection of the {found['facts']:,} rare facts of `{found['settings']['data']}` ({sizes['entity']} × "
        f"{sizes['predicate']} × {sizes['time']}): models are trained on them and evaluated on the same facts, "
        "filtered. Rare are the facts of triples that occur fewer than three times, and the starts of all runs. "
        "Logistic loss, one negative subject, object and time per fact, "
        f"Adam at {recipe['learning_rate']:g}, λ = {recipe['l2']:g}. Only the number of epochs was chosen by these "
        "figures: training stops when the tensor models have learned the facts."
    )
