"""Reads and writes on a served memory for minutes: no request may fail, and resident memory must stay as it is.

Facts are remembered and forgotten again, so that the store is as large at the end as after the first minute. Some of
them have entities that are new; these come from a fixed list, since the labels of forgotten facts are kept.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Any
from urllib.parse import quote, urlencode

import numpy as np
import psutil

from benchmarks.serving import Connection, questions, served
from recollect import EpisodicGraph, Memory, dataset
from recollect.memory.journal.database import journal_path

READERS = 2  # connections that ask, each its next question when the last one is answered
WRITES_PER_SECOND = 10
STORED = 50  # facts that are stored before the oldest is forgotten
VISITORS = 100  # new entities
SAMPLE_SECONDS = 1.0
TARGETS = 2_000  # different questions


@dataclass
class Mixed:
    """What was counted and measured."""

    requests: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)
    milliseconds: list[float] = field(default_factory=list)
    resident: list[tuple[float, int]] = field(default_factory=list)  # (seconds since the start, bytes)

    def mean_resident(self, since: float, until: float) -> float:
        """Return the mean of resident memory between two moments, in bytes."""
        return float(np.mean([size for at, size in self.resident if since <= at <= until]))


def mixed_targets(graph: EpisodicGraph, seed: int = 0) -> list[str]:
    """Return request targets of every kind of question, in random order."""
    targets = questions(graph, "recall", TARGETS // 2, seed) + questions(graph, "know", TARGETS // 4, seed + 1)
    dice = random.Random(seed)
    for row in graph.table(graph.facts[:: max(1, len(graph.facts) // (TARGETS // 4))]).iter_rows(named=True):
        triple = {name: row[name] for name in ("subject", "predicate", "object")}
        kind, given = dice.choice(
            [
                ("timeline", triple),
                ("why", row),
                ("graph", {"entity": row["subject"], "as_of": row["time"], "ended": "20"}),
                ("labels", {"text": row["subject"][:3]}),
                ("changes", {"since": row["time"], "top": "20"}),
                (f"entity/{quote(row['subject'], safe='')}", {"as_of": row["time"]}),
                ("journal", {"top": "20"}),
            ]
        )
        targets.append(f"/v1/{kind}?{urlencode(given, quote_via=quote)}")
    dice.shuffle(targets)
    return targets


def _read(port: int, targets: list[str], first: int, found: Mixed, stop: Event) -> None:
    """Ask one question after another."""
    with Connection(port) as connection:
        for place in range(first, 1 << 62, READERS):
            if stop.is_set():
                return
            target, sent = targets[place % len(targets)], time.perf_counter()
            status, body = connection.send("GET", target)
            found.milliseconds.append(1e3 * (time.perf_counter() - sent))
            found.requests[target[4:].partition("?")[0].partition("/")[0]] += 1
            if status != 200:
                found.errors.append(f"{status} {target} {body[:200]!r}")


def _write(port: int, facts: Iterator[dict[str, str]], found: Mixed, stop: Event) -> None:
    """Remember facts, and forget each when as many more were remembered; then forget the rest."""
    stored: deque[dict[str, str]] = deque()
    with Connection(port) as connection:

        def change(method: str, target: str, body: bytes = b"") -> list[Any]:
            status, answer = connection.send(method, target, body)
            found.requests["remember" if body else "forget"] += 1
            if status != 200:
                found.errors.append(f"{status} {method} {answer[:200]!r}")
                return []
            return list(json.loads(answer)["changes"])

        while not stop.wait(1 / WRITES_PER_SECOND) or stored:
            if len(stored) < STORED and not stop.is_set():
                fact = next(facts)
                if change("POST", "/v1/facts", json.dumps({"facts": [fact]}).encode()):  # else it was stored before
                    stored.append(fact)
            else:
                fact = stored.popleft()
                if not change("DELETE", f"/v1/facts?{urlencode(fact, quote_via=quote)}"):
                    found.errors.append(f"{fact} was acknowledged and is not stored")


def _new_facts(graph: EpisodicGraph, seed: int = 0) -> Iterator[dict[str, str]]:
    """Yield random facts without end; every second one has a subject from a list of new entities."""
    dice = random.Random(seed)
    entities, predicates, times = graph.entities.labels, graph.predicates.labels, graph.times.labels
    while True:
        for subject in (f"Visitor {dice.randrange(VISITORS)}", dice.choice(entities)):
            predicate, object_ = dice.choice(predicates), dice.choice(entities)
            yield {"subject": subject, "predicate": predicate, "object": object_, "time": dice.choice(times)}


def measure_mixed(memory: Path | None, dataset_name: str, seconds: float, workers: int = 1) -> dict[str, Any]:
    """Return the number of requests and errors, and resident memory after a tenth of the time and at the end."""
    with TemporaryDirectory() as folder:
        copy = Path(folder) / "served.memory"
        learned = Memory.learn(dataset(dataset_name), model="history") if memory is None else Memory.load(memory)
        learned.save(copy)
        graph = learned.graph
        del learned
        with served(copy, "--workers", str(workers)) as (port, process):
            found = _run(port, process, graph, seconds)
        journal = sum(file.stat().st_size for file in copy.parent.glob(f"{journal_path(copy).name}*"))
    warm, end = found.mean_resident(0.1 * seconds, 0.2 * seconds), found.mean_resident(0.9 * seconds, seconds)
    p50, p99 = np.percentile(found.milliseconds, [50, 99])
    return {
        "seconds": round(seconds),
        "workers": workers,
        "requests": dict(sorted(found.requests.items())),
        "errors": len(found.errors),
        "first_errors": found.errors[:3],
        "read_p50_ms": round(float(p50), 2),
        "read_p99_ms": round(float(p99), 2),
        "resident_warm_mb": round(warm / 2**20, 1),
        "resident_end_mb": round(end / 2**20, 1),
        "resident_peak_mb": round(max(size for _, size in found.resident) / 2**20, 1),
        "growth": f"{end / warm - 1:+.1%}",
        "journal_mb": round(journal / 2**20, 2),
    }


def _run(port: int, process: psutil.Process, graph: EpisodicGraph, seconds: float) -> Mixed:
    """Read and write for some seconds, and sample the resident memory of the server meanwhile."""
    found, stop, targets = Mixed(), Event(), mixed_targets(graph)
    threads = [Thread(target=_read, args=(port, targets, number, found, stop)) for number in range(READERS)]
    threads.append(Thread(target=_write, args=(port, _new_facts(graph), found, stop)))
    started = time.monotonic()
    for thread in threads:
        thread.start()
    while (elapsed := time.monotonic() - started) < seconds:
        every = (process, *process.children(recursive=True))
        found.resident.append((elapsed, sum(each.memory_info().rss for each in every)))
        time.sleep(SAMPLE_SECONDS if seconds > 10 * SAMPLE_SECONDS else seconds / 50)
    stop.set()
    for thread in threads:
        thread.join()
    return found
