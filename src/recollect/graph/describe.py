"""Summary statistics of a graph: sizes, density, most frequent labels, facts over time, lengths of runs."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from recollect.graph.episodes import current, ends, runs
from recollect.graph.facts import EpisodicGraph, encode
from recollect.graph.runs import covered
from recollect.graph.vocabulary import Vocabulary

BUSIEST = 5  # labels listed per kind


def describe(graph: EpisodicGraph) -> dict[str, Any]:
    """Return summary statistics as plain numbers, ready for JSON.

    All but `rows`, `facts`, `duplicates` and `dropped` are of distinct true facts. `density` is their share of the
    cells of the (s, p, o, t) tensor, `seen_once` the share of facts whose triple occurs at no other time. A run is a
    maximal block of consecutive times of one triple; `run_lengths` counts the runs of length 1, 2, ….
    """
    found, times = runs(graph), len(graph.times)
    lengths, count = found.lengths, found.count
    cells = graph.sizes["entity"] ** 2 * graph.sizes["predicate"] * times
    triples, inverse = encode(found.first, graph.sizes, "spo").unique(return_inverse=True)
    occurrences = torch.zeros_like(triples).index_add_(0, inverse, lengths)
    return {
        "name": graph.name,
        "entities": graph.sizes["entity"],
        "predicates": graph.sizes["predicate"],
        "times": times,
        "rows": dict(graph.rows) or graph.counts,
        "facts": graph.counts,
        "true": count,
        "duplicates": graph.duplicates,
        "dropped": dict(graph.dropped),
        "grain": graph.times.grain,
        "from": graph.times.label(0),
        "to": graph.times.label(times - 1),
        "density": count / cells,
        "triples": len(triples),
        "seen_once": int((occurrences == 1).sum()) / max(1, count),
        "starts": len(found),
        "ends": len(ends(graph)),
        "current": len(current(graph).true()),
        "run_length": {
            "mean": lengths.double().mean().item() if len(lengths) else 0.0,
            "median": int(lengths.median()) if len(lengths) else 0,
            "longest": int(lengths.max()) if len(lengths) else 0,
        },
        "run_lengths": torch.bincount(lengths).tolist()[1:] if len(lengths) else [],
        "busiest_entities": _busiest(graph.entities, torch.cat([found.first.s, found.first.o]), lengths.repeat(2)),
        "busiest_predicates": _busiest(graph.predicates, found.first.p, lengths),
        "over_time": covered(found, times).tolist(),
    }


def _busiest(vocabulary: Vocabulary, ids: Tensor, numbers: Tensor) -> dict[str, int]:
    """Return the labels of ids (n,) with the largest sums of numbers (n,), ties in label order."""
    counts = torch.bincount(ids, numbers.double(), minlength=len(vocabulary)).long()
    top = counts.argsort(descending=True, stable=True)[:BUSIEST]
    return dict(zip(vocabulary.take(top), counts[top].tolist(), strict=True))


def sparkline(counts: list[int], width: int = 60) -> str:
    """Return a bar chart of one line and at most `width` characters; more counts than that are averaged.

    >>> sparkline([0, 1, 2, 4])
    '·▂▄█'
    """
    bars = min(width, len(counts))
    edges = [i * len(counts) // bars for i in range(bars + 1)]
    means = [sum(counts[start:stop]) / (stop - start) for start, stop in pairwise(edges)]
    highest = max(means, default=0) or 1
    return "".join("·▁▂▃▄▅▆▇█"[round(8 * mean / highest)] for mean in means)
