"""Latencies and epochs next to busy processes, compared with a quiet machine, in turns.

`python -m benchmarks.shared_host` is the worker: it is given the number of rounds and the cases, and prints a record of
each.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from recollect.cli.threads import SLEEP

if TYPE_CHECKING:
    from recollect import EpisodicGraph

BUSY = 2  # processes that compute all the time
TARGET = 2.5  # times the quiet figure at most; two busy processes on two cores make 2 unavoidable
QUESTIONS = 200  # per round: many more than a processor runs before it turns to another process
RECALL, KNOW, PROJECTION, EPOCH = "recall", "know", "projection", "epoch of ConT"
CASES = {"command": (RECALL, KNOW, PROJECTION, EPOCH), "library": (EPOCH,)}
SETTINGS: dict[str, dict[str, str]] = {"command": SLEEP, "library": {}}  # how commands run, and a program of yours


def measure(repeats: int, *, quick: bool = False) -> list[dict[str, Any]]:
    """Return a record of every case: quiet and busy seconds, medians of rounds, and their ratio."""
    records = []
    for setting, variables in SETTINGS.items():
        environment = {name: value for name, value in os.environ.items() if name not in SLEEP} | variables
        command = [sys.executable, "-m", "benchmarks.shared_host", str(repeats), str(int(quick)), *CASES[setting]]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        records += [{"threads of a": setting, **record} for record in json.loads(done.stdout)]
    return records


@contextmanager
def busy_processes(count: int = BUSY) -> Iterator[None]:
    """Run processes that compute all the time."""
    command = [sys.executable, "-c", "print(flush=True)\nwhile True: pass"]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(count)]
    try:
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()  # from now on it computes
        yield
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def questions(quick: bool) -> dict[str, Callable[[], float]]:
    """Return what asks a memory, by name: each call returns the mean seconds of a question."""
    from benchmarks.timing import seconds
    from recollect import Memory, Recipe

    graph, dim = sizes(quick)
    short = Recipe(epochs=1, validate_every=1)
    memory = Memory.learn(graph, model="cont", dim=dim, recipe=short)
    alone = Memory.learn(graph, model="cont", dim=dim, predicate_dim=4, recipe=short, history=False)
    facts = graph.table(graph.split("train")[: 5 if quick else QUESTIONS]).to_dicts()

    def recall() -> float:
        given = [{name: fact[name] for name in ("subject", "predicate", "time")} for fact in facts]
        return statistics.mean(seconds(partial(memory.recall, **each)) for each in given)

    def know() -> float:
        return statistics.mean(seconds(partial(memory.know, as_of=fact["time"])) for fact in facts)

    def project() -> float:
        fresh = Memory(alone.scorer, alone.graph, alone.calibration, alone.about)  # nothing is solved yet
        return seconds(fresh.project)

    for warm in (recall, know, project):
        warm()  # compiles and indexes at first use
    return {RECALL: recall, KNOW: know, PROJECTION: project}


def sizes(quick: bool) -> tuple[EpisodicGraph, int]:
    """Return a graph and the dim of its models."""
    from recollect import dataset

    return (dataset("world", countries=6, years=2), 4) if quick else (dataset("world"), 40)


def epoch(quick: bool) -> Callable[[], float]:
    """Return what trains an epoch and returns its seconds."""
    from benchmarks.timing import EpochTimer
    from recollect import RECIPES, ModelConfig

    graph, dim = sizes(quick)
    config = ModelConfig(model="cont", dim=dim, static=True, reciprocal=True)
    return EpochTimer(graph, config, RECIPES["modern"].for_model("cont"), limit=60.0)


def worker(repeats: int, quick: bool, cases: Sequence[str]) -> list[dict[str, Any]]:
    """Measure every case quietly and next to busy processes, round by round."""
    measured = {} if set(cases) == {EPOCH} else questions(quick)
    measured[EPOCH] = epoch(quick)
    quiet: dict[str, list[float]] = {name: [] for name in cases}
    busy: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(repeats):
        for name in cases:
            quiet[name].append(measured[name]())
            with busy_processes():
                busy[name].append(measured[name]())
    records = []
    for name in cases:
        before, after = statistics.median(quiet[name]), statistics.median(busy[name])
        records.append({"case": name, "quiet_s": before, "busy_s": after, "ratio": after / before, "target": TARGET})
    return records


if __name__ == "__main__":
    sys.stdout.write(json.dumps(worker(int(sys.argv[1]), sys.argv[2] == "1", sys.argv[3:])) + "\n")
