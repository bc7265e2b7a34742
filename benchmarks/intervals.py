"""Seconds and peak memory of a graph of intervals: read, learn, ask, each step after the other in one new process.

The table is invented: people hold posts in organisations, from a day of 200 years on, for five years on average.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import psutil

ROOT = Path(__file__).parents[1]
YEARS, FIRST_YEAR, DAYS_A_YEAR = 200, 1820, 365.25
MEAN_DAYS = 5 * 365
PREDICATES = 20
ASKED = 20  # questions of each kind

Step = dict[str, Any]


def measure_intervals(intervals: int) -> list[Step]:
    """Return the steps from a CSV file, then the one from a table in memory, each source in a process of its own."""
    steps: list[Step] = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "posts.csv"
        invented_posts(intervals).write_csv(file)
        for source in ("csv", "frame"):
            command = [sys.executable, "-m", "benchmarks.intervals", source, str(file)]
            output = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
            steps += json.loads(output)
    return steps


def invented_posts(intervals: int) -> pl.DataFrame:
    """Return rows of subject, predicate, object, start and end (days), the same for the same number."""
    rng = np.random.default_rng(0)
    people, places = max(2, intervals // 3), max(2, intervals // 30)
    days = int(YEARS * DAYS_A_YEAR)
    first = rng.integers(0, days - 1, intervals)
    last = np.minimum(days - 1, first + 1 + rng.exponential(MEAN_DAYS, intervals).astype(np.int64))
    origin = np.datetime64(f"{FIRST_YEAR}-01-01")
    return pl.DataFrame(
        {
            "subject": np.char.add("person ", rng.integers(people, size=intervals).astype(str)),
            "predicate": np.char.add("post ", rng.integers(PREDICATES, size=intervals).astype(str)),
            "object": np.char.add("place ", rng.integers(places, size=intervals).astype(str)),
            "start": (origin + first).astype(str),
            "end": (origin + last).astype(str),
        }
    )


def run_steps(source: str, file: Path) -> list[Step]:
    """Return the seconds of every step, and the peak memory of the process up to its end."""
    import recollect
    from recollect.graph.runs import stored

    steps: list[Step] = []

    def step(name: str, work: Callable[[], Any]) -> Any:
        start = time.monotonic()
        result = work()
        seconds = round(time.monotonic() - start, 2)
        steps.append({"step": f"{source}: {name}", "seconds": seconds, "peak_mb": peak_bytes() // 2**20})
        return result

    if source == "frame":
        frame = pl.read_csv(file, infer_schema=False)
        step("read", lambda: recollect.read(frame))
        return steps
    graph = step("read", lambda: recollect.read(file))
    memory = step("learn", lambda: recollect.Memory.learn(graph, model="history"))
    runs = stored(graph, "train")
    facts = graph.table(runs.first[:: len(runs) // ASKED][:ASKED])  # type: ignore[union-attr]
    step("first know, all", lambda: memory.know(as_of="1900-06-01"))
    step("know, all", lambda: memory.know(as_of="1950-06-01"))
    step(f"know, {ASKED} subjects", lambda: [memory.know(subject=s, as_of="1950-06-01") for s in facts["subject"]])
    for slot in facts.columns:
        asked = partial(_recall_each, memory, facts.drop(slot).to_dicts())
        step(f"recall, {ASKED} × {slot}", asked)
    folder = file.with_name("posts.memory")
    step("save", lambda: memory.save(folder))
    step("load", lambda: recollect.Memory.load(folder))  # next to the first memory
    return steps


def _recall_each(memory: Any, questions: list[dict[str, str]]) -> None:
    for question in questions:
        memory.recall(**question)


def peak_bytes() -> int:
    """Return the largest resident memory that this process has had."""
    if sys.platform == "win32":
        return int(psutil.Process().memory_info().peak_wset)
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else peak * 1024)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run_steps(sys.argv[1], Path(sys.argv[2]))))
