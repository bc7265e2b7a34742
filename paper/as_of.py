"""What held at every past time: semantic memory as of each time from prefix sums, beside simpler memories."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from paper.lab import Lab
from paper.pages import file_name, markdown_table, number
from paper.plots import Line, lines
from recollect.errors import UserError
from recollect.evaluation.metrics import precision_recall
from recollect.graph.episodes import ends, starts
from recollect.graph.facts import EpisodicGraph, Facts, distinct, encode
from recollect.memory.projection import project, scores_over_time
from recollect.training.recipe import Recipe

NAMES = {
    "start-end": "starts − ends, as of then",
    "start": "starts only, as of then",
    "episodic": "episodic, asked for then",
    "static": "static model, no times",
}


@dataclass(frozen=True, kw_only=True)
class Record:
    """A graph, its model, and how many facts must hold at a time for it to be judged."""

    data: str
    dim: int
    recipe: Recipe
    model: str = "cont"
    static: str = "rescal"
    least: int = 20
    seed: int = 0


RECORDS = (
    Record(data="icews-countries", dim=40, recipe=Recipe(epochs=20)),
    Record(data="wikidata12k", dim=20, recipe=Recipe(epochs=10, batch_size=4096), least=100),
)
QUICK = (Record(data="world", dim=12, recipe=Recipe(epochs=3)),)


def run(lab: Lab) -> dict[str, Any]:
    """The AUPRC of each memory at each time of each record."""
    records = QUICK if lab.quick else RECORDS
    if lab.data or lab.dims:
        first = records[0]
        dim = lab.dims[-1] if lab.dims else first.dim
        records = (replace(first, data=lab.data or first.data, dim=dim),)
    lab.expected = len(records)
    return {"records": [_record(lab, record) for record in records]}


def _record(lab: Lab, record: Record) -> dict[str, Any]:
    graph = lab.graph(record.data)
    graph = graph.with_splits({"train": graph.facts})
    found = lab.once(record.data, asdict(record), partial(_curves, lab, record, graph))
    return {"settings": asdict(record), "sizes": graph.sizes, **found}


def _curves(lab: Lab, record: Record, graph: EpisodicGraph) -> dict[str, Any]:
    learning = lab.train(graph, model=record.model, dim=record.dim, recipe=record.recipe, seed=record.seed)
    static = lab.train(
        graph, model=record.static, dim=record.dim, recipe=record.recipe, seed=record.seed, form="semantic"
    )
    began, ended = starts(graph), ends(graph)
    triples = distinct(began.with_slot("t", 0), graph.sizes)
    projection = project(learning.model, began, ended)
    with torch.no_grad():
        scores = {
            "start-end": projection.scores(triples),
            "start": replace(projection, ends=None).scores(triples),
            "episodic": scores_over_time(learning.model, learning.model.time.detach(), triples),
            "static": static.model.score(static.model.as_modelled(triples))[:, None].expand(-1, len(graph.times)),
        }
    truth = states(graph.facts, triples, graph.sizes)
    times = (truth.sum(0) >= record.least).nonzero()[:, 0].tolist()
    if not times:
        raise UserError(f"at no time of {record.data} do {record.least} facts hold, so there is nothing to judge")
    curves = {
        name: [precision_recall(score[:, t], truth[:, t])["auprc"] for t in times] for name, score in scores.items()
    }
    labels = [graph.times.label(t) for t in times]
    return {"triples": len(triples), "times": labels, "true": truth.sum(0)[times].tolist(), "auprc": curves}


def states(facts: Facts, triples: Facts, sizes: dict[str, int]) -> Tensor:
    """Whether each triple holds at each time: (n, times) bool; the triples sorted by their numbers."""
    truth = torch.zeros(len(triples), sizes["time"], dtype=torch.bool)
    facts = facts.true()
    truth[torch.searchsorted(encode(triples, sizes, "spo"), encode(facts, sizes, "spo")), facts.t] = True
    return truth


def page(found: dict[str, Any], folder: Path) -> str:
    """A curve for each memory over time, and the means."""
    parts = [
        "What held at a past time, told from memory: every triple of the record is scored as of every time, and the "
        "area under the precision-recall curve is taken against what really held then. Starts and ends are solved for "
        "in closed form with the entities and predicates of the trained model; any time is one row of prefix sums. "
        "Everything was learned from the whole record, so this is recollection, not prediction."
    ]
    for record in found["records"]:
        settings, sizes = record["settings"], record["sizes"]
        file = f"as-of-{file_name(settings['data'])}.png"
        x = list(range(len(record["times"])))
        shown: dict[float, str] = {i: record["times"][i] for i in x[:: max(1, len(x) // 5)]}
        curves = [Line(NAMES[name], x, record["auprc"][name]) for name in NAMES]
        lines({settings["data"]: curves}, folder / file, xlabel="as of", ylabel="AUPRC", ticks=shown)
        rows = [
            [
                NAMES[name],
                *(number(pick(record["auprc"][name])) for pick in (fmean, min)),
                number(record["auprc"][name][-1]),
            ]
            for name in NAMES
        ]
        true = record["true"]
        parts += [
            f"## {settings['data']}",
            f"{record['triples']:,} triples of {sizes['entity']:,} entities × {sizes['predicate']} predicates, "
            f"{len(record['times'])} times at which {min(true):,} to {max(true):,} of them hold; "
            f"{settings['model']} at dim {settings['dim']}, {settings['recipe']['epochs']} epochs; the static model "
            f"is {settings['static']} at the same dim.",
            f"![AUPRC of what held, over time]({file})",
            markdown_table(["", "mean AUPRC", "lowest", "last time"], rows),
        ]
    return "\n\n".join(parts)
