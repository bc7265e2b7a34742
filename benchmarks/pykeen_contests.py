"""Contests with PyKEEN, which runs in a process of its own because recollect does not depend on it."""

from __future__ import annotations

import importlib.util
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.bounds import bare_products, product_shape, training_work
from benchmarks.contests import Contest, Subject, fact_index, sampled_recipe
from benchmarks.timing import EpochTimer, ScaledTimer, seconds
from recollect import EpisodicGraph, Facts, UserError
from recollect.evaluation.ranking import rank

WORKER = Path(__file__).with_name("pykeen_worker.py")
Ask = Callable[[str], float]  # a task like "epoch" or "evaluate 500" -> its seconds


@contextmanager
def pykeen_contest(subject: Subject, task: str, python: str) -> Iterator[Contest]:
    """An epoch, or the filtered evaluation of subjects and objects, compared with PyKEEN."""
    with tempfile.TemporaryDirectory() as folder:
        triples = Path(folder) / "triples.npz"
        _write_triples(subject.graph(), triples)
        with _pykeen_worker(python, triples, subject) as (release, ask):
            contest = _epoch_contest(subject, ask) if task == "epoch" else _evaluation_contest(subject, ask)
            yield replace(contest, about={**contest.about, "reference": f"PyKEEN {release}"})


def _epoch_contest(subject: Subject, ask: Ask) -> Contest:
    """Return the contest of an epoch: the same loss, negatives, batches and optimizer, without a penalty."""
    facts, size = subject.train(), subject.shape.batch_size
    recipe = replace(sampled_recipe(size), l2=0.0)
    ask("epoch")  # not timed
    steps = math.ceil(len(facts) / size)
    work = training_work(subject.config, facts, subject.graph().sizes, recipe.negatives, steps)
    return Contest(
        ours=EpochTimer(subject.graph(), subject.config, recipe, subject.effort.ours_seconds),
        reference=lambda: ask("epoch"),
        bound=subject.bound(work),
        work=len(facts),
        unit="facts",
        about=subject.about([]),
    )


def _evaluation_contest(subject: Subject, ask: Ask) -> Contest:
    """Return the contest of ranking the test facts, filtered by all splits; PyKEEN ranks as many as there is time."""
    test, model, known = subject.test(), subject.build(), fact_index(subject.shape)

    def rank_entities() -> None:
        for slot in "so":
            rank(model, test, slot, known=known)

    rank_entities()  # not timed
    reference = ScaledTimer(lambda count: ask(f"evaluate {count}"), len(test), subject.effort.ours_seconds)
    inner, columns = product_shape(subject.config, "o", subject.graph().sizes)
    return Contest(
        ours=partial(seconds, rank_entities),
        reference=reference,
        bound=partial(bare_products, 2 * len(test), inner, columns),
        work=2 * len(test),
        unit="queries",
        about=subject.about([reference.note("PyKEEN", "test facts")]),
    )


def _write_triples(graph: EpisodicGraph, path: Path) -> None:
    """Write the triples (n, 3) of every split, and the numbers of entities and predicates."""
    arrays: dict[str, Any] = {}
    for split in ("train", "valid", "test"):
        arrays[split] = graph.splits.get(split, Facts.of([])).true().ids[:, :3].numpy()
    np.savez(path, **arrays, entities=len(graph.entities), predicates=len(graph.predicates))


@contextmanager
def _pykeen_worker(python: str, triples: Path, subject: Subject) -> Iterator[tuple[str, Ask]]:
    """Start the worker; yield PyKEEN's version and a function that runs a task there and returns its seconds."""
    options = {
        "model": subject.model,
        "dim": subject.dim,
        "batch-size": subject.shape.batch_size,
        "threads": torch.get_num_threads(),
    }
    worker = subprocess.Popen(
        [python, str(WORKER), str(triples), *(f"--{name}={value}" for name, value in options.items())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert worker.stdin is not None
    assert worker.stdout is not None
    requests, replies = worker.stdin, worker.stdout

    def read(key: str) -> Any:
        line = replies.readline()
        if not line:
            raise UserError(f"PyKEEN stopped; try it alone: {python} {WORKER}")
        return json.loads(line)[key]

    def ask(task: str) -> float:
        requests.write(task + "\n")
        requests.flush()
        return float(read("seconds"))

    try:
        yield read("ready"), ask
    finally:
        with worker:  # closing its input ends it; leaving the block waits for that
            requests.close()


def find_pykeen(python: str | None) -> str | None:
    """Return an interpreter that has PyKEEN: the given one, which must have it, or this one; None if there is none."""
    if python is None:
        return sys.executable if importlib.util.find_spec("pykeen") else None
    try:
        done = subprocess.run([python, "-c", "import pykeen"], capture_output=True, check=False)
    except OSError as error:
        raise UserError(f"{python}: not a Python that can be run ({error.strerror})") from error
    if done.returncode:
        raise UserError(f"{python} has no PyKEEN; install it there with: {python} -m pip install pykeen")
    return python
