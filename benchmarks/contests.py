"""Contests: our time, a reference's time for the same work, and a bound of what the machine allows.

A contest is opened, its contenders are called in turn several times, and each call returns the seconds of the whole
work.
"""

from __future__ import annotations

import gc
import math
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks import textbook
from benchmarks.bounds import Machine, Work, bare_products, one_vs_all_work, product_shape, training_work
from benchmarks.shapes import Shape, graph_of
from benchmarks.timing import EpochTimer, ScaledTimer, seconds
from recollect import MODELS, RECIPES, EpisodicGraph, Facts, Memory, ModelConfig, Recipe, TrainingRun, load
from recollect.evaluation.ranking import rank
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import KINDS, SLOT_NAMES, SLOTS
from recollect.models.parameters import parameter_shapes
from recollect.models.tensor_model import TensorModel
from recollect.models.zoo import build_model

TEXTBOOK = "textbook PyTorch"
TEXTBOOK_BYTES = 2**28  # a textbook batch is halved until its gathered rows and intermediate tensors fit
FLOAT_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How long to measure."""

    ours_seconds: float = 20.0  # an epoch or an evaluation that takes longer is timed in part
    reference_seconds: float = 5.0
    recalls: int = 200  # questions per round
    matrix_size: int = 1024  # rows of the square matrices that measure the machine's flops
    copied_bytes: int = 64 * 2**20  # of the copy that measures its memory bandwidth


QUICK = Effort(ours_seconds=0.03, reference_seconds=0.01, recalls=4, matrix_size=64, copied_bytes=2**16)


@dataclass(frozen=True, kw_only=True)
class Contest:
    """The contenders; each call returns the seconds of all the work."""

    ours: Callable[[], float] | None
    work: int  # number of units
    unit: str
    reference: Callable[[], float] | None = None
    bound: Callable[[], float] | None = None
    about: Mapping[str, Any] = field(default_factory=dict)  # further fields of the record


@dataclass(frozen=True, kw_only=True)
class Subject:
    """The model, sizes and effort of a contest."""

    shape: Shape
    model: str
    dim: int
    effort: Effort
    time_dim: int | None = None

    @property
    def config(self) -> ModelConfig:
        """Return the config; semantic for data without times and for models that have no episodic form."""
        is_semantic = self.shape.times == 1 or MODELS[self.model].episodic is None
        form = "semantic" if is_semantic else "episodic"
        return ModelConfig(model=self.model, dim=self.dim, time_dim=self.time_dim, form=form)

    def graph(self) -> EpisodicGraph:
        return graph_of(self.shape)

    def train(self) -> Facts:
        return self.graph().split("train")

    def test(self) -> Facts:
        return self.graph().split("test").true()

    def build(self) -> TensorModel:
        return build_model(self.config, self.graph().sizes, generator=torch.Generator().manual_seed(0))

    def build_textbook(self) -> textbook.Textbook:
        torch.manual_seed(0)
        return textbook.build(self.model, self.graph().sizes, self.dim, self.time_dim)

    def bound(self, work: Work) -> Callable[[], float]:
        """Return a function that measures the machine and returns the least seconds that the work takes on it."""
        return lambda: Machine.measure(self.effort.matrix_size, self.effort.copied_bytes).seconds(work)

    def about(self, notes: Sequence[str | None]) -> dict[str, Any]:
        """Return the fields that every record has apart from seconds."""
        note = "; ".join(note for note in notes if note)
        return {"data": self.graph().name, "reference": TEXTBOOK, "note": note or None}


def sampled_recipe(batch_size: int) -> Recipe:
    """Return the paper's recipe: logistic loss, one negative subject and one negative object per fact."""
    return replace(RECIPES["paper"], batch_size=batch_size)


def one_vs_all_recipe(batch_size: int) -> Recipe:
    """Return a recipe with the cross entropy of subjects and objects among all entities."""
    return replace(RECIPES["paper"], loss="one-vs-all", batch_size=batch_size)


@contextmanager
def train_contest(subject: Subject, loss: str = "sampled", against: str | None = None) -> Iterator[Contest]:
    """An epoch, compared with the textbook's or, with `against`, with ours of another model."""
    shape, facts, sizes = subject.shape, subject.train(), subject.graph().sizes
    recipe = sampled_recipe(shape.batch_size) if loss == "sampled" else one_vs_all_recipe(shape.batch_size)
    if loss == "sampled":
        steps = math.ceil(len(facts) / shape.batch_size)
        work = training_work(subject.config, facts, sizes, recipe.negatives, steps)
    else:
        work = one_vs_all_work(subject.config, facts, sizes)
    if against is None:
        reference, notes = _textbook_epoch(subject, facts, loss, recipe)
        about = subject.about(notes)
    else:
        other = replace(subject, model=against)
        reference = EpochTimer(other.graph(), other.config, recipe, other.effort.ours_seconds)
        about = subject.about([]) | {"reference": f"our {against}"}
    yield Contest(
        ours=EpochTimer(subject.graph(), subject.config, recipe, subject.effort.ours_seconds),
        reference=reference,
        bound=subject.bound(work),
        work=len(facts),
        unit="facts",
        about=about,
    )


def _textbook_epoch(
    subject: Subject, facts: Facts, loss: str, recipe: Recipe
) -> tuple[Callable[[], float], list[str | None]]:
    """Return the timer of a textbook epoch, and notes about it."""
    model = subject.build_textbook()
    size = _fitting_batch(subject, model, recipe.batch_size, loss)
    note = None if size == recipe.batch_size else f"{TEXTBOOK}: batches of {size:,}, which suit it better"
    learning_rate = recipe.learning_rate
    assert learning_rate is not None
    optimizer = textbook.optimizer_of(model, learning_rate, 2 * recipe.l2 / len(facts))
    step = textbook.train_step if loss == "sampled" else textbook.one_vs_all_step
    run = partial(run_steps, partial(step, model, optimizer), facts.ids[torch.randperm(len(facts))], size)
    timer = ScaledTimer(run, math.ceil(len(facts) / size), subject.effort.reference_seconds)
    return timer, [note, timer.note(TEXTBOOK, "steps")]


def run_steps(step: Callable[[Tensor], float], ids: Tensor, size: int, count: int) -> None:
    """Run `count` steps over consecutive batches of facts that are in random order."""
    for batch in ids[: count * size].split(size):
        step(batch)


def _fitting_batch(subject: Subject, model: textbook.Textbook, size: int, loss: str) -> int:
    """Return the batch size, halved until the tensors of a textbook score fit; larger ones only slow it down."""
    elements = sum(model.embedding(slot).embedding_dim for slot in SLOTS)
    elements += max((core[0].numel() for core in model.core), default=0)
    if loss == "one-vs-all":
        elements += subject.shape.entities
    while size > 1 and FLOAT_BYTES * elements * size > TEXTBOOK_BYTES:
        size //= 2
    return size


@contextmanager
def evaluate_contest(subject: Subject, slot: str) -> Iterator[Contest]:
    """The filtered ranks of the test facts' own ids of a slot."""
    test, model, known = subject.test(), subject.build(), fact_index(subject.shape)
    ours = ScaledTimer(
        lambda count: rank(model, test[:count], slot, known=known), len(test), subject.effort.ours_seconds
    )
    their_model, filters = subject.build_textbook(), textbook_filter(subject.shape, slot)
    reference = ScaledTimer(
        lambda count: textbook.evaluate(their_model, test.ids[:count], slot, filters),
        len(test),
        subject.effort.reference_seconds,
    )
    inner, columns = product_shape(subject.config, slot, subject.graph().sizes)
    yield Contest(
        ours=ours,
        reference=reference,
        bound=lambda: bare_products(len(test), inner, columns),
        work=len(test),
        unit="queries",
        about=subject.about([ours.note("ours", "queries"), reference.note(TEXTBOOK, "queries")]),
    )


@lru_cache(maxsize=1)
def fact_index(shape: Shape) -> FactIndex:
    """Return the index of all facts of a shape's graph."""
    graph = graph_of(shape)
    return FactIndex(graph.facts, graph.sizes)


@lru_cache(maxsize=1)
def textbook_filter(shape: Shape, slot: str) -> textbook.Filter:
    """Return the textbook's filter of a slot."""
    found = textbook.filter_of(graph_of(shape).facts.ids, slot)
    gc.freeze()  # otherwise every collection walks through millions of lists, during anybody's turn
    return found


@contextmanager
def recall_contest(subject: Subject, quantile: float) -> Iterator[Contest]:
    """The latency of a question with one open slot, each slot in turn: a quantile."""
    graph, model = subject.graph(), subject.build()
    facts = subject.test()[: subject.effort.recalls]
    slots = [model.slots[i % len(model.slots)] for i in range(len(facts))]
    memory = untrained_memory(subject)
    labels = {slot: list(graph.axis(slot).labels) for slot in SLOTS}
    their_model = subject.build_textbook()
    ours: list[Callable[[], object]] = []
    theirs: list[Callable[[], object]] = []
    for i, slot in enumerate(slots):
        fact = facts[i : i + 1]
        ours.append(partial(memory.recall, **_question(graph, model, fact, slot)))
        theirs.append(partial(textbook.recall, their_model, fact.ids, slot, labels[slot]))
    _latency(ours, quantile)  # not timed: compiles at first use
    shapes = parameter_shapes(MODELS[subject.model], subject.config, graph.sizes)
    table_sizes = [math.prod(shapes[KINDS[slot]]) for slot in slots]
    yield Contest(
        ours=partial(_latency, ours, quantile),
        reference=partial(_latency, theirs, quantile),
        bound=subject.bound(Work(flops=0, bytes=FLOAT_BYTES * statistics.mean(table_sizes))),  # reads a table once
        work=1,
        unit="question",
        about=subject.about([]),
    )


def untrained_memory(subject: Subject) -> Memory:
    """Return a memory whose model has its initial weights; it has no validation split, so nothing is calibrated."""
    graph = subject.graph()
    graph = graph.with_splits({name: facts for name, facts in graph.splits.items() if name != "valid"})
    return Memory.from_run(TrainingRun(graph, subject.config, recipe="paper"))


def _question(graph: EpisodicGraph, model: TensorModel, fact: Facts, open_slot: str) -> dict[str, Any]:
    """Return the labels of a fact by slot name, without the open slot."""
    labels = graph.table(fact).row(0, named=True)
    return {SLOT_NAMES[slot]: labels[SLOT_NAMES[slot]] for slot in model.slots if slot != open_slot}


def _latency(questions: Sequence[Callable[[], object]], quantile: float) -> float:
    return float(np.quantile([seconds(question) for question in questions], quantile))


@contextmanager
def load_contest(subject: Subject) -> Iterator[Contest]:
    """Reading a saved memory until it can answer."""
    graph = subject.graph()
    with tempfile.TemporaryDirectory() as folder:
        bundle, file = Path(folder) / "measured.memory", Path(folder) / "textbook.pt"
        untrained_memory(subject).save(bundle)
        their_model = subject.build_textbook()
        labels = {KINDS[slot]: list(graph.axis(slot).labels) for slot in SLOTS}
        textbook.save(their_model, labels, graph.facts.ids, file)
        load(bundle)  # not timed
        size = sum(path.stat().st_size for path in bundle.iterdir())
        yield Contest(
            ours=partial(seconds, partial(load, bundle)),
            reference=partial(seconds, partial(textbook.load_, their_model, file)),
            bound=subject.bound(Work(flops=0, bytes=size)),
            work=size,
            unit="bytes",
            about=subject.about([]),
        )
