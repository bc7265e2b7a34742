"""Contests that need a process of their own: PyKEEN, which recollect does not depend on, and peak memory."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch

from benchmarks.bounds import NUMBER, bare_products, product_shape, seconds, training_work
from benchmarks.contests import (
    BENCHMARKS,
    TEXTBOOK,
    Contest,
    Epochs,
    Paced,
    Subject,
    about,
    known_of,
    load_textbook,
    steps_of,
    two_negatives_recipe,
)
from recollect.errors import UserError
from recollect.evaluation.ranking import rank
from recollect.graph.facts import SPLITS, EpisodicGraph, Facts
from recollect.graph.seeds import seeded
from recollect.models.tensor_model import MODELS, Dims
from recollect.training.trainer import Trainer

ROOM = 0.8  # of the free memory may be taken by what is measured


@contextmanager
def pykeen_contest(subject: Subject, task: str, python: str) -> Iterator[Contest]:
    """An epoch, or the filtered evaluation of subjects and objects, beside PyKEEN in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        triples = Path(folder) / "triples.npz"
        _write_triples(subject.graph(), triples)
        with pykeen_worker(python, triples, subject) as (release, ask):
            contest = _epoch_contest(subject, ask) if task == "epoch" else _ranks_contest(subject, ask)
            yield replace(contest, about={**contest.about, "reference": f"PyKEEN {release}"})


def _epoch_contest(subject: Subject, ask: Callable[[str], float]) -> Contest:
    """The same loss, negatives, batches and optimizer, and neither side has a penalty."""
    train, size = subject.train(), subject.shape.batch_size
    recipe = replace(two_negatives_recipe(size), l2=0.0)
    ask("epoch")  # the first time counts for nobody
    steps = math.ceil(len(train) / size)
    work = training_work(
        subject.model, train, subject.graph().sizes, subject.dims, subject.form, recipe.negatives, steps
    )
    return Contest(
        ours=Epochs(subject.build(), train, recipe, subject.effort.ours_seconds),
        reference=lambda: ask("epoch"),
        bound=subject.at_best(work),
        work=len(train),
        unit="facts",
        about=about(subject, []),
    )


def _ranks_contest(subject: Subject, ask: Callable[[str], float]) -> Contest:
    """Subjects and objects of the test facts, filtered by all splits; PyKEEN's of as many as there is time for."""
    test, model, known = subject.test(), subject.build(), known_of(subject.shape)

    def ranks() -> None:
        for slot in "so":
            rank(model, test, slot, known=known)

    ranks()  # the first time counts for nobody
    reference = Paced(lambda count: ask(f"evaluate {count}"), len(test), subject.effort.ours_seconds)
    inner, columns = product_shape(subject.model, "o", subject.graph().sizes, subject.dims, subject.form)
    return Contest(
        ours=partial(seconds, ranks),
        reference=reference,
        bound=partial(bare_products, 2 * len(test), inner, columns),
        work=2 * len(test),
        unit="queries",
        about=about(subject, [reference.note("PyKEEN", "test facts")]),
    )


def _write_triples(graph: EpisodicGraph, path: Path) -> None:
    arrays: dict[str, Any] = {
        split: graph.splits.get(split, Facts.of([])).true().ids[:, : len("spo")].numpy() for split in SPLITS
    }
    np.savez(path, **arrays, entities=len(graph.entities), predicates=len(graph.predicates))


@contextmanager
def pykeen_worker(python: str, triples: Path, subject: Subject) -> Iterator[tuple[str, Callable[[str], float]]]:
    """PyKEEN's version, and a way to ask it for the seconds of `epoch`, or of `evaluate 500`."""
    script = BENCHMARKS / "pykeen_reference.py"
    told = {
        "model": subject.model,
        "dim": subject.dim,
        "batch-size": subject.shape.batch_size,
        "threads": torch.get_num_threads(),
    }
    words = [f"--{name}={value}" for name, value in told.items()]
    worker = subprocess.Popen(
        [python, str(script), str(triples), *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert worker.stdin is not None
    assert worker.stdout is not None
    questions, answers = worker.stdin, worker.stdout

    def answer(key: str) -> Any:
        line = answers.readline()
        if not line:
            raise UserError(f"PyKEEN stopped; try it alone: {python} {script}")
        return json.loads(line)[key]

    def ask(task: str) -> float:
        questions.write(task + "\n")
        questions.flush()
        return float(answer("seconds"))

    try:
        yield answer("ready"), ask
    finally:
        with worker:  # closes its pipes, which ends it, and waits
            questions.close()


def find_pykeen(told: str | None) -> str | None:
    """The interpreter that has PyKEEN: the one told, or this one; None if neither has."""
    if not (BENCHMARKS / "pykeen_reference.py").is_file():
        return None
    if told is None:
        return sys.executable if importlib.util.find_spec("pykeen") else None
    try:
        done = subprocess.run([told, "-c", "import pykeen"], capture_output=True)
    except OSError as error:
        raise UserError(f"{told}: not a Python that can be run ({error.strerror})") from error
    if done.returncode:
        raise UserError(f"{told} has no PyKEEN; install it there with: {told} -m pip install pykeen")
    return told


@contextmanager
def memory_contest(subject: Subject, beside: bool = True) -> Iterator[Contest]:
    """Nothing is timed: the peak resident memory of training, ours and `beside` it the reference's.

    Each trains in a process of its own.
    """
    graph = subject.graph()
    contenders = {"peak_bytes": "ours"}
    if beside and load_textbook() is not None:
        contenders["reference_peak_bytes"] = TEXTBOOK
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "train.npy"
        np.save(file, graph.split("train").ids.numpy())
        found = {key: _peak(subject, graph.sizes, file, who) for key, who in contenders.items()}
    notes = [f"{who}: more than what is free" for key, who in contenders.items() if found[key] is None]
    weights = MODELS[subject.model].parameter_count(graph.sizes, subject.dims, subject.form)
    yield Contest(
        ours=None,
        work=len(graph.split("train")),
        unit="facts",
        about=about(subject, notes) | found | {"weight_bytes": NUMBER * weights},
    )


def _peak(subject: Subject, sizes: Mapping[str, int], facts: Path, who: str) -> int | None:
    """The peak bytes of one contender; None where it ran out of memory."""
    told = {
        "who": who,
        "model": subject.model,
        "dim": subject.dim,
        "ranks": vars(subject.dims),
        "form": subject.form,
        "sizes": dict(sizes),
        "facts": str(facts),
        "batch_size": subject.shape.batch_size,
        "seconds": subject.effort.reference_seconds,
        "threads": torch.get_num_threads(),
    }
    paths = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-c", "from benchmarks.workers import train_alone; train_alone()", json.dumps(told)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
    )
    if done.returncode == 0:
        return int(done.stdout)
    if "allocate" in done.stderr or "MemoryError" in done.stderr:
        return None
    raise UserError(f"training {subject.model} in a process of its own failed: {done.stderr.strip()[-300:]}")


def train_alone() -> None:
    """Train for some seconds as the last argument tells and write the peak resident bytes of this process."""
    told = json.loads(sys.argv[-1])
    torch.set_num_threads(told["threads"])
    _refuse_more_than_free()
    facts, sizes = Facts(torch.from_numpy(np.load(told["facts"]))), told["sizes"]
    if told["who"] == TEXTBOOK:
        textbook = load_textbook()
        their_model = textbook.MODELS[told["model"]](*sizes.values(), told["dim"])
        step = partial(textbook.train_step, their_model, textbook.optimizer_of(their_model))
        steps = math.ceil(len(facts) / told["batch_size"])
        Paced(partial(steps_of, step, facts.ids, told["batch_size"]), steps, told["seconds"])
    else:
        model = MODELS[told["model"]](sizes, Dims(**told["ranks"]), form=told["form"], generator=seeded(0))
        began = time.perf_counter()
        for _ in Trainer(model, facts, two_negatives_recipe(told["batch_size"]), generator=seeded(0)):
            if time.perf_counter() - began > told["seconds"]:
                break
    sys.stdout.write(str(peak_bytes()))


def _refuse_more_than_free() -> None:
    """Let an allocation fail that the machine has no room for, rather than have the system end some process."""
    if sys.platform != "win32":
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (int(ROOM * psutil.virtual_memory().available), most))


def peak_bytes() -> int:
    """The highest resident memory of this process so far; where the system does not tell, the present one."""
    try:  # what getrusage tells includes the process that started this one
        status = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))
    except OSError:
        return psutil.Process().memory_info().rss
