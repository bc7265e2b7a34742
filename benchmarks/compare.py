"""Compare the speed of two checkouts of recollect: the same work in turns, as ratios of CPU and wall time.

Each checkout runs in a process of its own that stays alive. A round is a fraction of a second of the same work on
either side, one after the other, and the side that begins alternates. The ratio of a round is new / old. A case reports
the median over its rounds, so that a burst of other load on the machine spoils a few rounds and not the result.
"""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.shapes import GDELT, ICEWS14, Shape, skewed_facts
from recollect import MODELS, UserError

WORKER = Path(__file__).with_name("compare_worker.py")
SIDES = ("old", "new")
CLOCKS = ("wall", "cpu")
DIM = 40
SAMPLED_DIMS = (  # the models and dims of a GDELT epoch
    ("distmult", 40),
    ("distmult", 150),
    ("hole", 60),
    ("complex", 60),
    ("tree", 40),
    ("cont", 40),
    ("cont", 60),
    ("tucker", 40),
    ("rescal", 40),
)
ONE_VS_ALL_DIMS = (("complex", 100), ("cont", 40))
AVX2 = {  # settings under which a CPU with AVX-512 computes like one without
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "NUMBA_CPU_NAME": "haswell",
}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One workload: a task of a model at one dim, on facts of one shape."""

    name: str
    shape: Shape
    model: str
    dim: int
    task: str  # train or evaluate
    loss: str = "logistic"
    slot: str = ""  # of an evaluation

    def request(self, facts: Path) -> dict[str, Any]:
        """Return the worker's description of this case."""
        return {
            "task": self.task,
            "model": self.model,
            "dim": self.dim,
            "form": "semantic" if MODELS[self.model].episodic is None else "episodic",
            "loss": self.loss,
            "slot": self.slot,
            "batch_size": self.shape.batch_size,
            "facts": str(facts),
        }


def all_cases(*, quick: bool = False) -> list[Case]:
    """Return every case; with `quick` at tiny sizes, which measure nothing."""
    gdelt, icews14 = (GDELT.tiny(), ICEWS14.tiny()) if quick else (GDELT, ICEWS14)
    cases = []
    for model, dim in SAMPLED_DIMS:
        cases.append(Case(name=f"train/{model}/{dim}", shape=gdelt, model=model, dim=dim, task="train"))
    for model, dim in ONE_VS_ALL_DIMS:
        name = f"one-vs-all/{model}/{dim}"
        cases.append(Case(name=name, shape=icews14, model=model, dim=dim, task="train", loss="one-vs-all"))
    for model, kind in MODELS.items():
        for slot in "spot" if kind.episodic is not None else "spo":
            name = f"evaluate/{model}/{slot}"
            cases.append(Case(name=name, shape=icews14, model=model, dim=DIM, task="evaluate", slot=slot))
    return cases


def select_cases(cases: Sequence[Case], only: Sequence[str]) -> list[Case]:
    """Return the cases whose name starts with one of `only`, compared folder by folder; all if `only` is empty."""
    for prefix in only:
        if not any(_is_below(case.name, prefix) for case in cases):
            raise UserError(f"no case is named {prefix!r}; choose among {', '.join(case.name for case in cases)}")
    return [case for case in cases if not only or any(_is_below(case.name, prefix) for prefix in only)]


def _is_below(name: str, prefix: str) -> bool:
    return f"{name}/".startswith(f"{prefix.rstrip('/')}/")


class Worker:
    """A process that runs workloads with the recollect of one source tree."""

    def __init__(self, tree: Path, *, threads: int, settings: Mapping[str, str]) -> None:
        source = tree / "src"
        if not (source / "recollect").is_dir():
            raise UserError(f"{tree}: no checkout of recollect; wanted a folder that has src/recollect")
        environment = {**os.environ, **settings, "PYTHONPATH": str(source.resolve())}
        if threads:
            environment |= {"OMP_NUM_THREADS": str(threads), "NUMBA_NUM_THREADS": str(threads)}
        self.tree = tree
        self.process = subprocess.Popen(
            [sys.executable, str(WORKER), str(tree), str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        self.description: dict[str, Any] = self._read()

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the reply to one request."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return self._read()

    def close(self) -> None:
        """End the process: it stops when its input closes."""
        with self.process:
            assert self.process.stdin is not None
            self.process.stdin.close()

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise UserError(f"the process that measures {self.tree} stopped; its last lines above say why")
        return json.loads(line)


@contextmanager
def open_workers(old: Path, new: Path, *, threads: int, settings: Mapping[str, str]) -> Iterator[dict[str, Worker]]:
    """Start a worker for either tree, and end both."""
    with ExitStack() as stack:
        workers = {}
        for side, tree in zip(SIDES, (old, new), strict=True):
            workers[side] = Worker(tree, threads=threads, settings=settings)
            stack.callback(workers[side].close)
        yield workers


def machine(workers: Mapping[str, Worker], settings: Mapping[str, str]) -> dict[str, Any]:
    """Return the CPU, its vector extensions, and the settings of both workers."""
    model, flags = platform.processor(), []
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        fields = dict(line.split(":", 1) for line in cpuinfo.read_text().splitlines() if ":" in line)
        named = {name.strip(): value.strip() for name, value in fields.items()}
        model = named.get("model name", model)
        flags = [flag for flag in named.get("flags", "").split() if flag.startswith(("avx", "fma"))]
    described = {side: worker.description for side, worker in workers.items()}
    return {"processor": model, "flags": flags, "cores": os.cpu_count(), "settings": dict(settings), **described}


def compare(
    old: Path,
    new: Path,
    cases: Sequence[Case],
    *,
    repeats: int,
    seconds: float,
    threads: int = 0,
    settings: Mapping[str, str] | None = None,
    whole: bool = False,
) -> Iterator[dict[str, Any]]:
    """Yield a description of the machine, then one record per case.

    A round lasts about `seconds` on the slower side, or with `whole` an epoch or an evaluation.
    """
    settings = settings or {}
    with tempfile.TemporaryDirectory() as folder, open_workers(old, new, threads=threads, settings=settings) as workers:
        yield machine(workers, settings)
        for case in cases:
            facts = _facts_file(case.shape, Path(folder))
            totals = {side: worker.ask({"setup": case.request(facts)})["total"] for side, worker in workers.items()}
            _round(workers, 1)  # not timed: compiles
            count = totals["new"] if whole else _units_per_round(workers, seconds)
            rounds = [_round(workers, count, swap=bool(number % 2)) for number in range(repeats)]
            yield summarise(case.name, count, totals["new"], rounds)


def _facts_file(shape: Shape, folder: Path) -> Path:
    """Return a file with the ids of random facts of that shape, written at first use."""
    path = folder / f"{shape.name}.npz"
    if not path.is_file():
        ids = skewed_facts(shape, shape.facts + shape.test).ids.numpy()
        sizes = np.array([shape.entities, shape.predicates, shape.times])
        np.savez(path, train=ids[: shape.facts], test=ids[shape.facts :], sizes=sizes)
    return path


def _round(workers: Mapping[str, Worker], count: int, *, swap: bool = False) -> dict[str, dict[str, float]]:
    """Return the times of either side for `count` units; with `swap` the new side runs first."""
    order = reversed(SIDES) if swap else SIDES
    return {side: workers[side].ask({"run": count}) for side in order}


def _units_per_round(workers: Mapping[str, Worker], seconds: float) -> int:
    """Return how many units take the slower side about `seconds`; at least one."""
    count = 1
    while True:
        wall = max(times["wall"] for times in _round(workers, count).values())
        if wall > seconds / 2:
            return max(1, round(count * seconds / wall))
        count *= 4


def summarise(name: str, count: int, total: int, rounds: Sequence[Mapping[str, Mapping[str, float]]]) -> dict[str, Any]:
    """Return medians of the rounds: milliseconds of a unit per side, and the quartiles of new / old per clock."""
    record: dict[str, Any] = {"case": name, "rounds": len(rounds), "units": count, "of": total}
    for clock in CLOCKS:
        for side in SIDES:
            times = [1e3 * each[side][clock] / count for each in rounds]
            record[f"{side}_{clock}_ms"] = statistics.median(times)
        ratios = [each["new"][clock] / max(each["old"][clock], 1e-9) for each in rounds]
        record[f"{clock}_ratio"] = statistics.median(ratios)
        record[f"{clock}_quartiles"] = [float(value) for value in np.quantile(ratios, (0.25, 0.75))]
    return record


def geometric_means(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the geometric mean and the largest of the ratios of each group of cases.

    >>> rows = [{"case": "train/a/1", "wall_ratio": 1.0, "cpu_ratio": 1.0},
    ...         {"case": "train/b/1", "wall_ratio": 4.0, "cpu_ratio": 1.0}]
    >>> geometric_means(rows)[0]["wall_mean"], geometric_means(rows)[0]["wall_max"]
    (2.0, 4.0)
    """
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        groups.setdefault(record["case"].split("/")[0], []).append(record)
    rows = []
    for group, members in groups.items():
        row: dict[str, Any] = {"group": group, "cases": len(members)}
        for clock in CLOCKS:
            ratios = [member[f"{clock}_ratio"] for member in members]
            row[f"{clock}_mean"] = math.exp(statistics.fmean(map(math.log, ratios)))
            row[f"{clock}_max"] = max(ratios)
        rows.append(row)
    return rows


def format_record(record: Mapping[str, Any]) -> str:
    """Return one line of the report."""
    parts = [f"{record['case']:<22}"]
    for clock in CLOCKS:
        low, high = record[f"{clock}_quartiles"]
        old, new = record[f"old_{clock}_ms"], record[f"new_{clock}_ms"]
        ratio = record[f"{clock}_ratio"]
        parts.append(f"{clock} {old:8.3f} -> {new:8.3f} ms  x{ratio:5.2f} [{low:.2f}-{high:.2f}]")
    return "  ".join(parts)


def format_mean(row: Mapping[str, Any]) -> str:
    """Return the line of a group's geometric mean."""
    ratios = "  ".join(f"{clock} x{row[f'{clock}_mean']:.2f} (max {row[f'{clock}_max']:.2f})" for clock in CLOCKS)
    return f"{row['group']}: geometric mean over {row['cases']} cases  {ratios}"
