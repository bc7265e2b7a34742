"""Hold out some facts of a graph that has no validation split: they choose epochs, weights and calibration.

The memory then learns all facts. What is held out are whole runs, all consecutive times of a triple: a fact whose
neighbouring times stay stored is easier to predict than one that is really missing.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from recollect.graph.facts import EpisodicGraph, Facts, encode
from recollect.graph.runs import has_runs, split_runs, with_runs
from recollect.graph.seeds import seeded

SHARE = 0.1  # of the runs, that are held out at a time
MOST = 4096  # runs that are held out at a time: enough for the few numbers that are fitted to them
ENOUGH = 400  # runs held out in all folds together; small graphs are held out fold by fold


def has_validation(graph: EpisodicGraph) -> bool:
    """Return whether a graph has facts of its own to choose epochs, weights and calibration by."""
    return graph.counts.get("valid", 0) > 0


def held_out_folds(graph: EpisodicGraph, seed: int) -> Iterator[EpisodicGraph]:
    """Yield graphs of the train split with some runs of true facts, in each graph others, as the valid split.

    There is one from ENOUGH / SHARE runs on, at most 1 / SHARE for fewer, and none for a single run.
    """
    every = split_runs(graph)["train"]
    true = every.first.truth.nonzero()[:, 0]
    run = torch.arange(len(true)) if has_runs(graph) else _run_of_each(every.first[true], graph)
    count = int(run.max()) + 1 if len(run) else 0
    place = torch.randperm(count, generator=seeded(seed))  # of each run in a random order
    size = min(MOST, max(1, int(SHARE * count)))
    folds = min(count // size, -(-ENOUGH // size)) if count > 1 else 0
    for number in range(folds):
        is_held = torch.zeros(len(every), dtype=torch.bool)
        is_held[true] = place[run] // size == number
        yield with_runs(graph, {"train": every[~is_held], "valid": every[is_held]})


def _run_of_each(facts: Facts, graph: EpisodicGraph) -> Tensor:
    """Return the number of the run that each fact belongs to: (n,)."""
    triple = encode(facts, graph.sizes, "spo")
    order = facts.t.argsort(stable=True)
    order = order[triple[order].argsort(stable=True)]
    triple, time = triple[order], facts.t[order]
    begins = torch.ones(len(order), dtype=torch.int64)
    begins[1:] = ((triple[1:] != triple[:-1]) | (time[1:] > time[:-1] + 1)).long()
    run = torch.empty_like(begins)
    run[order] = begins.cumsum(0) - 1
    return run
