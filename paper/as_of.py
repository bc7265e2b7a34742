"""What held at every past time: semantic memory as of each time from prefix sums, next to simpler memories."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from paper.markdown import file_name, markdown_table, number
from paper.plots import Line, lines
from paper.triples import triple_codes
from paper.workspace import Workspace
from recollect import RECIPES, EpisodicGraph, Facts, ModelConfig, Recipe, UserError, ends, starts
from recollect.evaluation.metrics import precision_recall
from recollect.graph.facts import distinct
from recollect.memory.answering.projection import project, scores_over_time

MEMORIES = {
    "start-end": "starts − ends, as of then",
    "start": "starts only, as of then",
    "episodic": "episodic, asked for then",
    "static": "static model, no times",
}


@dataclass(frozen=True, kw_only=True)
class Record:
    """A graph, its models, and how many facts must hold at a time for that time to be evaluated."""

    data: str
    dim: int
    recipe: Recipe
    model: str = "cont"
    static: str = "rescal"
    least: int = 20
    seed: int = 0


RECORDS = (
    Record(data="icews-countries", dim=40, recipe=replace(RECIPES["paper"], epochs=20)),
    Record(data="wikidata12k", dim=20, recipe=replace(RECIPES["paper"], epochs=10, batch_size=4096), least=100),
)
QUICK = (Record(data="world", dim=12, recipe=replace(RECIPES["paper"], epochs=3)),)


def run(workspace: Workspace) -> dict[str, Any]:
    """Compute the AUPRC of each memory at each time of each record."""
    records = QUICK if workspace.quick else RECORDS
    if workspace.data or workspace.dims:
        first = records[0]
        dim = workspace.dims[-1] if workspace.dims else first.dim
        records = (replace(first, data=workspace.data or first.data, dim=dim),)
    workspace.expected = len(records)
    return {"records": [_run_record(workspace, record) for record in records]}


def _run_record(workspace: Workspace, record: Record) -> dict[str, Any]:
    graph = workspace.graph(record.data)
    graph = graph.with_splits({"train": graph.facts})
    found = workspace.cached(record.data, asdict(record), partial(compute_curves, workspace, record, graph))
    return {"settings": asdict(record), "sizes": graph.sizes, **found}


def compute_curves(workspace: Workspace, record: Record, graph: EpisodicGraph) -> dict[str, Any]:
    """Train the models and return the AUPRC of every memory at every time with enough facts."""
    config = ModelConfig(model=record.model, dim=record.dim)
    static_config = ModelConfig(model=record.static, dim=record.dim, form="semantic")
    model = workspace.train(graph, config, record.recipe, seed=record.seed).model
    static = workspace.train(graph, static_config, record.recipe, seed=record.seed).model
    triples = distinct(starts(graph).with_slot("t", 0), graph.sizes)
    projection = project(model, starts(graph), ends(graph))
    with torch.no_grad():
        scores = {
            "start-end": projection.scores(triples),
            "start": replace(projection, ends=None).scores(triples),
            "episodic": scores_over_time(model, model.time.detach(), triples),
            "static": static.score(static.normalize(triples))[:, None].expand(-1, len(graph.times)),
        }
    truth = holds_at(graph.facts, triples, graph.sizes)
    times = (truth.sum(0) >= record.least).nonzero()[:, 0].tolist()
    if not times:
        raise UserError(f"at no time of {record.data} do {record.least} facts hold, so there is nothing to evaluate")
    curves = {
        name: [precision_recall(score[:, t], truth[:, t])["auprc"] for t in times] for name, score in scores.items()
    }
    labels = [graph.times.label(t) for t in times]
    return {"triples": len(triples), "times": labels, "true": truth.sum(0)[times].tolist(), "auprc": curves}


def holds_at(facts: Facts, triples: Facts, sizes: dict[str, int]) -> Tensor:
    """Return whether each triple holds at each time: (n, times) bool; the triples are sorted and distinct."""
    truth = torch.zeros(len(triples), sizes["time"], dtype=torch.bool)
    facts = facts.true()
    rows = torch.searchsorted(triple_codes(triples, sizes), triple_codes(facts, sizes))
    truth[rows, facts.t] = True
    return truth


def page(found: dict[str, Any], folder: Path) -> str:
    """Return the page and draw a curve over time for each memory."""
    intro = (
        "What held at a past time, computed from memory: every triple of the record is scored as of every time, and "
        "the area under the precision-recall curve is taken against what really held then. The rows of starts and ends "
        "are solved in closed form with the entities and predicates of the trained model; any time is one row of "
        "prefix sums. Everything was learned from the whole record, so this is recollection, not prediction."
    )
    return "\n\n".join([intro, *(_section(record, folder) for record in found["records"])])


def _section(record: dict[str, Any], folder: Path) -> str:
    """Return the section of one record and draw its figure."""
    settings, sizes, true = record["settings"], record["sizes"], record["true"]
    file = f"as-of-{file_name(settings['data'])}.png"
    x = list(range(len(record["times"])))
    ticks: dict[float, str] = {i: record["times"][i] for i in x[:: max(1, len(x) // 5)]}
    curves = [Line(title, x, record["auprc"][name]) for name, title in MEMORIES.items()]
    lines({settings["data"]: curves}, folder / file, xlabel="as of", ylabel="AUPRC", ticks=ticks)
    rows = []
    for name, title in MEMORIES.items():
        auprc = record["auprc"][name]
        rows.append([title, number(fmean(auprc)), number(min(auprc)), number(auprc[-1])])
    return "\n\n".join(
        [
            f"## {settings['data']}",
            f"{record['triples']:,} triples of {sizes['entity']:,} entities × {sizes['predicate']} predicates, "
            f"{len(record['times'])} times at which {min(true):,} to {max(true):,} of them hold; "
            f"{settings['model']} at dim {settings['dim']}, {settings['recipe']['epochs']} epochs; the static model "
            f"is {settings['static']} at the same dim.",
            f"![AUPRC of what held, over time]({file})",
            markdown_table(["", "mean AUPRC", "lowest", "last time"], rows),
        ]
    )
