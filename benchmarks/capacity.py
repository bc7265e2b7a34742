"""Measure the constants of `recollect plan`: raw rows and multiply-adds per second of CPU time."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.events import SAMPLE, write_part
from recollect import EpisodicGraph, Facts, ModelConfig, TimeAxis, UserError, Vocabulary, read_events
from recollect.training.capacity import epoch_flops
from recollect.training.recipe import RECIPES
from recollect.training.run import TrainingRun

CONFIGS: dict[str, dict[str, Any]] = {"complex": {"dim": 100}, "cont": {"dim": 60, "predicate_dim": 10}}


def synthetic_graph(entities: int, predicates: int, times: int, facts: int) -> EpisodicGraph:
    """Return a graph of distinct random facts."""
    generator = torch.Generator().manual_seed(0)
    columns = [torch.randint(size, (facts,), generator=generator) for size in (entities, predicates, entities, times)]
    ids = torch.stack(columns, dim=1).unique(dim=0)
    names = {kind: [f"{kind}{i:09d}" for i in range(size)] for kind, size in (("e", entities), ("p", predicates))}
    return EpisodicGraph(
        Vocabulary.of("entity", names["e"]),
        Vocabulary.of("predicate", names["p"]),
        TimeAxis("day", 0, times),
        {"train": Facts(ids)},
    )


def measure(*, quick: bool = False) -> list[dict[str, Any]]:
    """Return one row per constant: what, its value and its unit."""
    graph = synthetic_graph(200, 5, 20, 3000) if quick else synthetic_graph(10_000, 100, 365, 50_000)
    rows = [_training(graph, name, quick) for name in CONFIGS]
    sample = Path(os.environ.get("RECOLLECT_DATA", ".")) / SAMPLE
    if sample.is_file():
        rows.append(_reading(sample, 2_000 if quick else 500_000))
    return rows


def _training(graph: EpisodicGraph, name: str, quick: bool) -> dict[str, Any]:
    """Return the multiply-adds per CPU second of an epoch, after a first one that compiles."""
    recipe = RECIPES["modern"].for_model(name)
    config = ModelConfig(model=name, static=True, reciprocal=True, **CONFIGS[name])
    run = TrainingRun(graph, config, recipe=recipe)
    seconds: list[float] = []
    start = time.process_time()
    for record in run:
        if type(record).__name__ == "Epoch":
            seconds.append(time.process_time() - start)
            start = time.process_time()
            if len(seconds) == (2 if quick else 3):
                break
    if len(seconds) < 2:
        raise UserError("the run ended before two epochs; give a recipe with more")
    fastest = min(seconds[1:])
    facts = graph.counts["train"]
    return {
        "what": f"training {name} {CONFIGS[name]}",
        "value": epoch_flops(config, graph.sizes, facts, recipe) / fastest,
        "unit": "multiply-adds/CPU-s",
        "facts_per_cpu_second": facts / fastest,
    }


def _reading(sample: Path, rows: int) -> dict[str, Any]:
    """Return the raw rows that DuckDB reads per CPU second."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.CSV"
        write_part(sample, file, 10**9, rows)
        read_events([file])  # fills the page cache
        start = time.process_time()
        graph = read_events([file])
        seconds = time.process_time() - start
    return {
        "what": f"reading {rows:,} raw rows",
        "value": rows / seconds,
        "unit": "rows/CPU-s",
        "facts_per_cpu_second": graph.counts["train"] / seconds,
    }
