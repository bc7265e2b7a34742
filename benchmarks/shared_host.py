"""Latencies and epochs next to busy processes, compared with a quiet machine, in turns.

`python -m benchmarks.shared_host` is the worker: it reads the number of rounds and prints a record per case.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from recollect.cli.threads import SLEEP

BUSY = 2  # processes that compute all the time
TARGET = 2.5  # times the quiet figure at most; two busy processes on two cores make 2 unavoidable
QUESTIONS = 50  # per round
SETTINGS: dict[str, dict[str, str]] = {"command": SLEEP, "library": {}}  # how commands run, and a program of yours


def measure(repeats: int, *, quick: bool = False) -> list[dict[str, Any]]:
    """Return a record for every setting and case: quiet and busy seconds, medians of rounds, and their ratio."""
    records = []
    for setting, variables in SETTINGS.items():
        environment = {name: value for name, value in os.environ.items() if name not in SLEEP} | variables
        command = [sys.executable, "-m", "benchmarks.shared_host", str(repeats), str(int(quick))]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        records += [{"threads of a": setting, **record} for record in json.loads(done.stdout)]
    return records


@contextmanager
def busy_processes(count: int = BUSY) -> Iterator[None]:
    """Run processes that compute all the time."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def cases(quick: bool) -> dict[str, Callable[[], float]]:
    """Return what is measured, by name: each call returns seconds."""
    from benchmarks.timing import EpochTimer, seconds
    from recollect import RECIPES, Memory, ModelConfig, Recipe, dataset

    graph = dataset("world", countries=6, years=2) if quick else dataset("world")
    dim = 4 if quick else 40
    short = Recipe(epochs=1, validate_every=1)
    memory = Memory.learn(graph, model="cont", dim=dim, recipe=short)
    alone = Memory.learn(graph, model="cont", dim=dim, predicate_dim=4, recipe=short, history=False)
    facts = graph.table(graph.split("train")[: 5 if quick else QUESTIONS]).to_dicts()

    def recall() -> float:
        given = [{name: fact[name] for name in ("subject", "predicate", "time")} for fact in facts]
        return statistics.median(seconds(partial(memory.recall, **each)) for each in given)

    def know() -> float:
        return statistics.median(seconds(partial(memory.know, as_of=fact["time"])) for fact in facts)

    def project() -> float:
        fresh = Memory(alone.scorer, alone.graph, alone.calibration, alone.about)  # nothing is solved yet
        return seconds(fresh.project)

    config = ModelConfig(model="cont", dim=dim, static=True, reciprocal=True)
    epoch = EpochTimer(graph, config, RECIPES["modern"].for_model("cont"), limit=60.0)
    for warm in (recall, know, project):
        warm()  # compiles and indexes at first use
    return {"recall": recall, "know": know, "know of a model alone (projection)": project, "epoch of ConT": epoch}


def worker(repeats: int, quick: bool) -> list[dict[str, Any]]:
    """Measure every case quietly and next to busy processes, round by round."""
    measured = cases(quick)
    quiet: dict[str, list[float]] = {name: [] for name in measured}
    busy: dict[str, list[float]] = {name: [] for name in measured}
    for _ in range(repeats):
        for name, run in measured.items():
            quiet[name].append(run())
        with busy_processes():
            for name, run in measured.items():
                busy[name].append(run())
    records = []
    for name in measured:
        before, after = statistics.median(quiet[name]), statistics.median(busy[name])
        records.append({"case": name, "quiet_s": before, "busy_s": after, "ratio": after / before, "target": TARGET})
    return records


if __name__ == "__main__":
    sys.stdout.write(json.dumps(worker(int(sys.argv[1]), sys.argv[2] == "1")) + "\n")
