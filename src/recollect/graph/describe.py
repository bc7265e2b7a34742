"""What a graph looks like: sizes, density, who and what is busiest, facts over time, how long facts last."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from recollect.graph.episodes import current, ends, runs
from recollect.graph.facts import EpisodicGraph, Vocabulary, distinct, number

BUSIEST = 5


def describe(graph: EpisodicGraph) -> dict[str, Any]:
    """Figures of a graph as plain numbers, ready for JSON.

    All figures but the first are of true facts. Density is the share of all cells that are. A fact is seen once
    if no other time has its triple. A run is a block of consecutive times of one triple; `run_lengths` tells how
    many are of length 1, 2, ….
    """
    facts = distinct(graph.facts.true(), graph.sizes)
    times = len(graph.times)
    cells = graph.sizes["entity"] ** 2 * graph.sizes["predicate"] * times
    _, seen = number(facts, graph.sizes, "spo").unique(return_counts=True)
    found = runs(graph)
    lengths = found.last - found.first.t + 1
    return {
        "name": graph.name,
        "entities": graph.sizes["entity"],
        "predicates": graph.sizes["predicate"],
        "times": times,
        "rows": dict(graph.rows) or {name: len(part) for name, part in graph.splits.items()},
        "facts": {name: len(part) for name, part in graph.splits.items()},
        "true": len(facts),
        "duplicates": graph.duplicates,
        "dropped": dict(graph.dropped),
        "grain": graph.times.grain,
        "from": graph.times.label(0),
        "to": graph.times.label(times - 1),
        "density": len(facts) / cells,
        "triples": len(seen),
        "seen_once": int((seen == 1).sum()) / max(1, len(facts)),
        "starts": len(found.first),
        "ends": len(ends(graph)),
        "current": len(current(graph).true()),
        "run_length": {
            "mean": lengths.double().mean().item() if len(lengths) else 0.0,
            "median": int(lengths.median()) if len(lengths) else 0,
            "longest": int(lengths.max()) if len(lengths) else 0,
        },
        "run_lengths": torch.bincount(lengths).tolist()[1:] if len(lengths) else [],
        "busiest_entities": _busiest(graph.entities, torch.cat([facts.s, facts.o])),
        "busiest_predicates": _busiest(graph.predicates, facts.p),
        "over_time": torch.bincount(facts.t, minlength=times).tolist(),
    }


def _busiest(vocabulary: Vocabulary, ids: Tensor) -> dict[str, int]:
    """The labels with the most facts, ties in label order."""
    counts = torch.bincount(ids, minlength=len(vocabulary))
    first = counts.argsort(descending=True, stable=True)[:BUSIEST]
    return dict(zip(vocabulary.take(first), counts[first].tolist(), strict=True))


def sparkline(counts: list[int], width: int = 60) -> str:
    """Counts as a row of small bars, neighbours averaged where there are more than `width`.

    >>> sparkline([0, 1, 2, 4])
    '·▂▄█'
    """
    pieces = min(width, len(counts))
    edges = [i * len(counts) // pieces for i in range(pieces + 1)]
    means = [sum(counts[a:b]) / (b - a) for a, b in pairwise(edges)]
    top = max(means, default=0) or 1
    return "".join("·▁▂▃▄▅▆▇█"[round(8 * mean / top)] for mean in means)
