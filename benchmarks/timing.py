"""Time work that may be too long to run whole: a part is timed and scaled."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from recollect import EpisodicGraph, ModelConfig, Recipe, TrainingRun
from recollect.training.trainer import Epoch

ENDLESS = 10**9  # epochs: training goes on as long as it is iterated


def seconds(run: Callable[[], object]) -> float:
    """Return the wall seconds of a call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


class ScaledTimer:
    """Return the seconds of `run(total)` at each call; measured with fewer items if all would take over `limit` s."""

    def __init__(self, run: Callable[[int], object], total: int, limit: float) -> None:
        self.run, self.total = run, total
        count = 1
        run(count)  # not timed: loads, compiles and indexes at first use
        took = seconds(partial(run, count))
        while took < limit / 8 and count < total:
            count = min(total, 4 * count)
            took = seconds(partial(run, count))
        self.count = max(1, min(total, int(count * limit / max(took, 1e-9))))

    def __call__(self) -> float:
        took = seconds(lambda: self.run(self.count))
        if self.count == self.total:
            return took
        if self.count == 1:
            return took * self.total
        fixed = seconds(lambda: self.run(1))  # the cost of a call is not scaled
        return fixed + max(0.0, took - fixed) * (self.total - 1) / (self.count - 1)

    def note(self, name: str, unit: str) -> str | None:
        """Return the remark that a part was measured; None if all was."""
        return None if self.count == self.total else f"{name}: {self.count:,} of {self.total:,} {unit}, scaled"


class EpochTimer:
    """Return the seconds of an epoch of our training at each call; after `limit` s the rest is extrapolated."""

    def __init__(self, graph: EpisodicGraph, config: ModelConfig, recipe: Recipe, limit: float) -> None:
        train = graph.split("train")
        self.facts, self.limit, self.is_whole = len(train), limit, True
        self._seen = 0  # facts of the running epoch that are trained on
        recipe = replace(recipe, epochs=ENDLESS)
        few = graph.with_splits({"train": train[: 4 * recipe.batch_size]})
        for record in TrainingRun(few, config, recipe=recipe):  # not timed: compiles at first use
            if isinstance(record, Epoch):
                break
        self._records = iter(TrainingRun(graph.with_splits({"train": train}), config, recipe=recipe))

    def __call__(self) -> float:
        first, start = self._seen, time.perf_counter()
        for record in self._records:
            if isinstance(record, Epoch):
                self._seen = 0
                return (time.perf_counter() - start) * self.facts / (self.facts - first)
            self._seen = record.seen
            if time.perf_counter() - start > self.limit and self._seen < self.facts:
                break
        self.is_whole = False
        return (time.perf_counter() - start) * self.facts / (self._seen - first)
