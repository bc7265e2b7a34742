"""Summary statistics of a graph: sizes, density, most frequent labels, facts over time, lengths of runs."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from recollect.graph.episodes import current, ends, runs
from recollect.graph.facts import EpisodicGraph, Vocabulary, distinct, encode

BUSIEST = 5  # labels listed per kind


def describe(graph: EpisodicGraph) -> dict[str, Any]:
    """Return summary statistics as plain numbers, ready for JSON.

    All but `rows`, `facts`, `duplicates` and `dropped` are of distinct true facts. `density` is their share of the
    cells of the (s, p, o, t) tensor, `seen_once` the share of facts whose triple occurs at no other time. A run is a
    maximal block of consecutive times of one triple; `run_lengths` counts the runs of length 1, 2, ….
    """
    facts = distinct(graph.facts.true(), graph.sizes)
    times = len(graph.times)
    cells = graph.sizes["entity"] ** 2 * graph.sizes["predicate"] * times
    _, occurrences = encode(facts, graph.sizes, "spo").unique(return_counts=True)
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
        "triples": len(occurrences),
        "seen_once": int((occurrences == 1).sum()) / max(1, len(facts)),
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
    """Return the most frequent labels of ids (n,) with their counts, ties in label order."""
    counts = torch.bincount(ids, minlength=len(vocabulary))
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
