"""Milliseconds of `remember` on a memory on disk: one fact with a new entity, and many facts at once.

The memory is ICEWS14's, or the invented world's where that is not there, learned by history and by ComplEx. While the
batch is remembered, a thread asks; every answer must be from before it or after it.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import recollect
from recollect import Memory, UserError
from recollect.memory.snapshot import Snapshot

Row = dict[str, Any]


def measure_remember(
    *, facts: int = 200, batch: int = 100_000, model: str = "history", quick: bool = False
) -> list[Row]:
    """Return one row for each of: remember a fact, ask for it, remember a batch."""
    graph = recollect.dataset("world", countries=6, years=2) if quick else recollect.dataset("icews14")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "m"
        options: dict[str, Any] = (
            {} if model == "history" else {"dim": 4 if quick else 100, "recipe": recollect.Recipe(epochs=1)}
        )
        Memory.learn(graph, model=model, **options).save(place)
        memory = recollect.load(place)
        rows = _one_by_one(memory, facts, f"{model}, {graph.counts['train']:,} facts")
        return [*rows, *_batch(memory, batch, f"{model}, {graph.counts['train']:,} facts")]


def _one_by_one(memory: Memory, facts: int, subject: str) -> list[Row]:
    """Remember facts with a new entity each, and ask for each."""
    rng = np.random.default_rng(0)
    stored = memory.graph.table(memory.graph.split("train"))
    remembered, asked = [], []
    for number in range(facts + 10):
        _, predicate, object_, day = stored.row(int(rng.integers(stored.height)))
        fact = {"subject": f"new {number}", "predicate": predicate, "time": day}
        start = time.perf_counter()
        memory.remember(**fact, object=object_)
        middle = time.perf_counter()
        found = memory.recall(**fact, include="stored")
        end = time.perf_counter()
        assert found["object"].to_list() == [object_]
        if number >= 10:  # the first ones compile and fill caches
            remembered.append(middle - start)
            asked.append(end - middle)
    return [
        _percentiles(subject, "remember a fact with a new entity", remembered),
        _percentiles(subject, "recall it", asked),
    ]


def _percentiles(subject: str, what: str, seconds: list[float]) -> Row:
    p50, p95, worst = np.percentile(seconds, [50, 95, 100]) * 1000
    return {"memory": subject, "what": what, "count": len(seconds), "p50_ms": p50, "p95_ms": p95, "max_ms": worst}


def _batch(memory: Memory, count: int, subject: str) -> list[Row]:
    """Remember many new facts at once, while a thread asks."""
    rng = np.random.default_rng(1)
    graph = memory.graph
    names = np.array([*graph.entities.labels, *(f"newcomer {i}" for i in range(count // 50))])
    table = pl.DataFrame(
        {
            "subject": names[rng.integers(len(names), size=count)],
            "predicate": np.array(graph.predicates.labels)[rng.integers(len(graph.predicates), size=count)],
            "object": names[rng.integers(len(names), size=count)],
            "time": np.array(graph.times.labels)[rng.integers(len(graph.times), size=count)],
        }
    )
    probes = pl.concat(
        [table.head(1), table.tail(1), graph.table(graph.split("train")[:1])]
    )  # two new facts, an old one
    answers: list[tuple[str, ...]] = []
    is_done = threading.Event()

    def ask() -> None:
        while not is_done.is_set():
            snapshot = memory.snapshot()
            answers.append(tuple(_status(snapshot, probe) for probe in probes.iter_rows(named=True)))

    thread = threading.Thread(target=ask)
    thread.start()
    start = time.perf_counter()
    added = memory.remember(table)
    seconds = time.perf_counter() - start
    is_done.set()
    thread.join()
    before, after = ("not stored", "not stored", "stored"), ("stored", "stored", "stored")
    if not set(answers) <= {before, after} or sorted(answers) != answers:
        raise AssertionError(
            "an answer was neither from before the change nor from after it, or they were not in order"
        )
    start = time.perf_counter()
    recollect.load(memory._timeline.path or "")
    loading = time.perf_counter() - start
    return [
        {"memory": subject, "what": "remember a batch", "count": count, "seconds": seconds, "runs_added": added.height},
        {"memory": subject, "what": "questions meanwhile", "count": len(answers)},
        {"memory": subject, "what": "load with the journal", "count": count, "seconds": loading},
    ]


def _status(snapshot: Snapshot, fact: Mapping[str, Any]) -> str:
    """Return whether a fact is stored; labels may be unknown."""
    given = {name: label for name, label in fact.items() if name != "object"}
    try:
        found = snapshot.recall(**given, include="stored", top=10_000)["object"].to_list()
    except UserError:
        found = []
    return "stored" if fact["object"] in found else "not stored"
