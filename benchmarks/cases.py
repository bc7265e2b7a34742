"""All cases of `python -m benchmarks contests`: every model and shape, with how its contest is opened."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from benchmarks.contests import (
    QUICK,
    Contest,
    Effort,
    Subject,
    evaluate_contest,
    load_contest,
    recall_contest,
    train_contest,
)
from benchmarks.peak_memory import memory_contest
from benchmarks.pykeen_contests import pykeen_contest
from benchmarks.shapes import FB15K_237, GDELT, GROWTH, ICEWS14, Shape
from paper.printed import RUNTIME
from recollect import MODELS, UserError
from recollect.graph.facts import SLOTS

PARTS = ("train", "one-vs-all", "evaluate", "recall", "load", "memory", "pykeen", "growth")
DIM = 40
QUICK_DIM = 4
PYKEEN_DIMS = {"distmult": 100, "complex": 100, "tucker": 50, "rescal": 50}
GROWTH_FACTORS = (1, 2, 4, 8)
GROWTH_DIMS = (20, 40, 80, 160)
GROWTH_TIME_DIM = 20  # of Tucker, whose core would not fit in memory at dim 160
QUANTILES = {"p50": 0.5, "p99": 0.99}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One line of the report."""

    name: str
    model: str
    dim: int
    open: Callable[[], AbstractContextManager[Contest]]
    fields: Mapping[str, Any] = field(default_factory=dict)  # further fields of its record

    @property
    def label(self) -> str:
        return f"{self.name}/{self.model}/{self.dim}"


@dataclass(frozen=True)
class Scale:
    """Real sizes, or tiny ones that try the code."""

    quick: bool

    def subject(self, shape: Shape, model: str, dim: int = DIM) -> Subject:
        """Return a model on a shape, both tiny if quick."""
        if self.quick:
            return Subject(shape=shape.tiny(), model=model, dim=QUICK_DIM, effort=QUICK)
        return Subject(shape=shape, model=model, dim=dim, effort=Effort())


def all_cases(*, quick: bool = False, pykeen: str | None = None) -> list[Case]:
    """Return every case, part by part; quick ones are the same at tiny sizes. `pykeen` is a Python that has PyKEEN."""
    scale = Scale(quick)
    cases = [*_train(scale), *_one_vs_all(scale), *_evaluate(scale, GDELT)]
    if not quick:
        cases += _evaluate(scale, ICEWS14)  # at tiny sizes the same as above
    cases += [*_recall(scale), *_load(scale), *_memory(scale)]
    if pykeen is not None:
        cases += _pykeen(scale, pykeen)
    return [*cases, *_growth(scale)]


def select_cases(cases: Sequence[Case], only: Sequence[str]) -> list[Case]:
    """Return the cases whose label starts with one of `only`, compared folder by folder; all if `only` is empty."""
    for name in only:
        # a part that cannot be measured here is no mistake
        if name not in PARTS and not any(_is_below(case.label, name) for case in cases):
            raise UserError(f"unknown part {name!r}; choose among {', '.join(PARTS)}, or below as in train/gdelt/cont")
    return [case for case in cases if not only or any(_is_below(case.label, name) for name in only)]


def _is_below(label: str, prefix: str) -> bool:
    return f"{label}/".startswith(f"{prefix.rstrip('/')}/")


def _case(name: str, subject: Subject, contest: Callable[..., Any], *options: Any, **fields: Any) -> Case:
    opened = partial(contest, subject, *options)
    return Case(name=name, model=subject.model, dim=subject.dim, open=opened, fields=fields)


def _train(scale: Scale) -> Iterator[Case]:
    """Yield epochs with two negatives: those of the paper's runtime table, and every model on ICEWS14."""
    for model, seconds in RUNTIME.items():
        for dim in [DIM] if scale.quick else seconds:
            yield _case("train/gdelt", scale.subject(GDELT, model, dim), train_contest, paper_s=seconds[dim])
    yield _case("train/gdelt", scale.subject(GDELT, "rescal"), train_contest)
    yield _case("train/against-distmult", scale.subject(GDELT, "cont"), train_contest, "sampled", "distmult")
    for model in MODELS:
        yield _case("train/icews14", scale.subject(ICEWS14, model), train_contest)


def _one_vs_all(scale: Scale) -> Iterator[Case]:
    for model, dim in [*((model, DIM) for model in MODELS), ("complex", 100)]:
        yield _case("one-vs-all/icews14", scale.subject(ICEWS14, model, dim), train_contest, "one-vs-all")


def _evaluate(scale: Scale, shape: Shape) -> Iterator[Case]:
    """Yield every slot of every model; slot by slot, because the reference's filter of a slot serves all models."""
    for slot in SLOTS:
        for model, kind in MODELS.items():
            if slot != "t" or kind.episodic is not None:
                yield _case(f"evaluate/{shape.name}/{slot}", scale.subject(shape, model), evaluate_contest, slot)


def _recall(scale: Scale) -> Iterator[Case]:
    for model in MODELS:
        for name, quantile in QUANTILES.items():
            yield _case(f"recall/icews14/{name}", scale.subject(ICEWS14, model), recall_contest, quantile)


def _load(scale: Scale) -> Iterator[Case]:
    for model in MODELS:
        yield _case("load/icews14", scale.subject(ICEWS14, model), load_contest)


def _memory(scale: Scale) -> Iterator[Case]:
    """Yield peak memory of training; a quick run tries one process only."""
    for model in ["distmult"] if scale.quick else MODELS:
        yield _case("memory/gdelt", scale.subject(GDELT, model), memory_contest, not scale.quick)
    if not scale.quick:
        yield _case("memory/icews14", scale.subject(ICEWS14, "cont", 100), memory_contest)


def _pykeen(scale: Scale, python: str) -> Iterator[Case]:
    for model, dim in PYKEEN_DIMS.items():
        for task in ("epoch", "evaluate"):
            yield _case(f"pykeen/{task}", scale.subject(FB15K_237, model, dim), pykeen_contest, task, python)


def _growth(scale: Scale) -> Iterator[Case]:
    """Yield training and evaluation while facts, entities or the dim grow, and peak memory at the largest size."""
    for model in ("distmult", "cont") if scale.quick else RUNTIME:
        for axis in ("facts", "entities", "dim"):
            subjects = [_grown(scale, model, axis, step) for step in range(2 if scale.quick else len(GROWTH_FACTORS))]
            for size, subject in subjects:
                fields = {"axis": axis, "size": size}
                yield _case(f"growth/train/{axis}", subject, train_contest, **fields)
                yield _case(f"growth/evaluate/{axis}", subject, evaluate_contest, "o", **fields)
            if not scale.quick:
                size, subject = subjects[-1]
                yield _case(f"growth/memory/{axis}", subject, memory_contest, False, axis=axis, size=size)


def _grown(scale: Scale, model: str, axis: str, step: int) -> tuple[int, Subject]:
    """Return the size of an axis after `step` steps of growth, and the model at that size."""
    base = scale.subject(GROWTH, model)
    shape, dim, factor = base.shape, base.dim, GROWTH_FACTORS[step]
    if axis == "facts":
        shape = replace(shape, facts=factor * shape.facts, test=factor * shape.test)
        size = shape.facts
    elif axis == "entities":
        size = factor * shape.entities
        shape = replace(shape, entities=size)
    else:
        size = dim = 2 * (step + 1) if scale.quick else GROWTH_DIMS[step]
    time_dim = min(dim, GROWTH_TIME_DIM) if model == "tucker" else None
    return size, replace(base, shape=shape, dim=dim, time_dim=time_dim)
