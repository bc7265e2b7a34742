"""Hold out some facts of a graph that has no validation split: they choose epochs, weights and calibration.

The memory then learns all facts. What is held out are whole facts, or whole runs of a graph of intervals: a run whose
neighbouring times stay stored would be easier to predict than any fact that is really missing.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from recollect.graph.facts import EpisodicGraph
from recollect.graph.runs import split_runs, with_runs
from recollect.graph.seeds import seeded

SHARE = 0.1  # of the facts, that are held out at a time
MOST = 4096  # facts that are held out at a time: enough for the few numbers that are fitted to them
ENOUGH = 400  # facts held out in all folds together; small graphs are held out fold by fold


def has_validation(graph: EpisodicGraph) -> bool:
    """Return whether a graph has facts of its own to choose epochs, weights and calibration by."""
    return graph.counts.get("valid", 0) > 0


def held_out_folds(graph: EpisodicGraph, seed: int) -> Iterator[EpisodicGraph]:
    """Yield graphs of the train split with some of its facts, in each graph others, as the valid split.

    There is one from ENOUGH / SHARE facts on, at most 1 / SHARE for fewer, and none for a single fact.
    """
    every = split_runs(graph)["train"]
    order = torch.randperm(len(every), generator=seeded(seed))
    size = min(MOST, max(1, int(SHARE * len(every))))
    folds = min(len(every) // size, -(-ENOUGH // size)) if len(every) > 1 else 0
    for number in range(folds):
        is_held = torch.zeros(len(every), dtype=torch.bool)
        is_held[order[number * size : (number + 1) * size]] = True
        yield with_runs(graph, {"train": every[~is_held], "valid": every[is_held]})
