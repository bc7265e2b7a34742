"""Train one table for a while and print what it took: `python -m benchmarks.tables_worker '{"entities": 1000, …}'`."""

from __future__ import annotations

import json
import mmap
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import torch
from torch import Tensor

from recollect.graph.facts import EpisodicGraph, Facts
from recollect.graph.times import TimeAxis
from recollect.graph.vocabulary import Vocabulary
from recollect.models.config import ModelConfig
from recollect.training.recipe import RECIPES
from recollect.training.run import TrainingRun
from recollect.training.trainer import Step

PREDICATES, TIMES = 10, 100
SCATTER = 2_654_435_761  # a prime: ids times it, modulo their number, puts frequent entities on pages of their own


def draw_entities(count: int, n: int, distribution: str, generator: torch.Generator) -> Tensor:
    """Return n of `count` ids: uniform, or with frequencies proportional to 1 / rank (zipf)."""
    chance = torch.rand(n, dtype=torch.float64, generator=generator)
    if distribution == "uniform":
        return (chance * count).long()
    ranks = (count**chance - 1).long().clamp_(max=count - 1)
    return ranks * SCATTER % count


class NumberedLabels(Sequence[str]):
    """The labels e0, e1, …, which take no memory."""

    def __init__(self, count: int) -> None:
        self.numbers = range(count)

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: Any) -> Any:
        found = self.numbers[index]
        return f"e{found}" if isinstance(found, int) else [f"e{number}" for number in found]


def draw_graph(entities: int, facts: int, distribution: str) -> EpisodicGraph:
    """Return a graph of random facts."""
    generator = torch.Generator().manual_seed(0)
    s, o = (draw_entities(entities, facts, distribution, generator) for _ in range(2))
    p = torch.randint(PREDICATES, (facts,), generator=generator)
    t = torch.randint(TIMES, (facts,), generator=generator)
    labels: Any = NumberedLabels(entities)
    predicates = Vocabulary("predicate", tuple(f"p{number}" for number in range(PREDICATES)))
    axis = TimeAxis("day", 0, TIMES, 1)
    return EpisodicGraph(Vocabulary("entity", labels), predicates, axis, {"train": Facts.from_columns(s, p, o, t)})


def train(
    *,
    entities: int,
    dim: int,
    facts: int,
    distribution: str,
    batch_size: int,
    seconds: float,
    tables: str | None,
) -> dict[str, Any]:
    """Return the facts per second of the second half of a training of some seconds, and what it started with."""
    graph = draw_graph(entities, facts, distribution)
    recipe = replace(RECIPES["modern"], epochs=1000, batch_size=batch_size, average=False)
    config = ModelConfig(model="distmult", dim=dim, reciprocal=True, time_levels=(1, 5, 25))
    start = time.monotonic()
    run = TrainingRun(graph, config, recipe=recipe, tables=None if tables is None else Path(tables))
    ready = time.monotonic()
    counted, counted_from, loss = 0, 0.0, float("nan")
    before = resource.getrusage(resource.RUSAGE_SELF)
    now = ready
    for record in run:
        now = time.monotonic()
        if isinstance(record, Step):
            loss = record.loss
            if counted_from:
                counted += batch_size
            elif now - ready >= seconds / 2:
                counted_from = now
                before = resource.getrusage(resource.RUSAGE_SELF)
        if counted and now - ready >= seconds:
            break
    after = resource.getrusage(resource.RUSAGE_SELF)
    tensors = [*run.model.parameters(), *run.trainer.optimizer.state().values()]
    return {
        "start_seconds": ready - start,
        "cpu_seconds": after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime,
        "blocks_read": (after.ru_inblock - before.ru_inblock) * 512 / mmap.PAGESIZE,
        "counted_facts": counted,
        "facts_per_second": counted / (now - counted_from),
        "loss": loss,
        "table_bytes": sum(tensor.nbytes for tensor in tensors),
        "anonymous_bytes": _anonymous_bytes(),
    }


def _anonymous_bytes() -> int:
    """Return the resident memory that is not part of a file."""
    memory = psutil.Process().memory_info()
    return int(memory.rss - getattr(memory, "shared", 0))


def main(request: str) -> None:
    """Print the figures of one training as JSON."""
    sys.stdout.write(json.dumps(train(**json.loads(request))) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
