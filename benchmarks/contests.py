"""One measurement: what we do, what the reference does for the same work, and what the machine allows at best.

Every contest is opened, its contenders are called in turn, several times, and each call tells the seconds that the
whole work takes; where all of it would take too long, a fixed part is timed and scaled, and the contest says so.
"""

from __future__ import annotations

import gc
import importlib.util
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.bounds import (
    Machine,
    Work,
    bare_products,
    one_vs_all_work,
    product_shape,
    seconds,
    training_work,
)
from benchmarks.shapes import Shape, graph_of
from recollect.errors import UserError
from recollect.evaluation.calibration import UNCALIBRATED
from recollect.evaluation.ranking import rank
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import KINDS, SLOT_NAMES, SLOTS, EpisodicGraph, Facts
from recollect.graph.seeds import seeded
from recollect.memory.memory import Memory, load
from recollect.models.tensor_model import MODELS, Dims, TensorModel
from recollect.training.recipe import Recipe
from recollect.training.trainer import Epoch, Trainer

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"  # of a checkout; an installed package has none
TEXTBOOK = "textbook PyTorch"
ENDLESS = 10**9  # epochs: as many as are asked for
AT_ONCE = 2**28  # bytes of what one score of a textbook batch gathers and makes


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How long to measure."""

    ours_seconds: float = 20.0  # an epoch or an evaluation that takes longer is timed in part
    reference_seconds: float = 5.0
    recalls: int = 200  # questions a round
    product: int = 1024  # rows of the square matrices that measure the machine
    copied: int = 64 * 2**20  # bytes, likewise


QUICK = Effort(ours_seconds=0.03, reference_seconds=0.01, recalls=4, product=64, copied=2**16)


@dataclass(frozen=True, kw_only=True)
class Contest:
    """The contenders; each tells the seconds of all the work."""

    ours: Callable[[], float] | None
    work: int
    unit: str
    reference: Callable[[], float] | None = None
    bound: Callable[[], float] | None = None
    about: Mapping[str, Any] = field(default_factory=dict)  # what else the record tells


@dataclass(frozen=True, kw_only=True)
class Subject:
    """Which model is measured at which sizes."""

    shape: Shape
    model: str
    dim: int
    effort: Effort
    time_dim: int | None = None

    @property
    def form(self) -> str:
        """Without times for the datasets and the models that have none."""
        return "semantic" if self.shape.times == 1 or MODELS[self.model].episodic is None else "episodic"

    @property
    def dims(self) -> Dims:
        return Dims.of(self.dim, time=self.time_dim)

    def graph(self) -> EpisodicGraph:
        return graph_of(self.shape)

    def train(self) -> Facts:
        return self.graph().split("train")

    def test(self) -> Facts:
        return self.graph().split("test").true()

    def build(self) -> TensorModel:
        return MODELS[self.model](self.graph().sizes, self.dims, form=self.form, generator=seeded(0))

    def build_textbook(self) -> Any:
        torch.manual_seed(0)
        return load_textbook().MODELS[self.model](*self.graph().sizes.values(), self.dim, self.time_dim)

    def at_best(self, work: Work) -> Callable[[], float]:
        """The bound at the rates that the machine has when it is asked."""
        return lambda: Machine.measure(self.effort.product, self.effort.copied).seconds(work)


class Paced:
    """Does all of `total` items, or as many as take `limit` seconds; tells the seconds of all."""

    def __init__(self, run: Callable[[int], object], total: int, limit: float) -> None:
        self.run, self.total = run, total
        count = 1
        run(count)  # not timed: what is loaded, compiled or indexed at first use
        while (took := seconds(partial(run, count))) < limit / 8 and count < total:
            count = min(total, 4 * count)
        self.count = max(1, min(total, int(count * limit / max(took, 1e-9))))

    def __call__(self) -> float:
        took = seconds(lambda: self.run(self.count))
        if self.count == self.total:
            return took
        if self.count == 1:
            return took * self.total
        once = seconds(lambda: self.run(1))  # what is paid once a call is not scaled
        return once + max(0.0, took - once) * (self.total - 1) / (self.count - 1)

    def note(self, who: str, what: str) -> str | None:
        """What the record says of a part that stands for the whole."""
        return None if self.count == self.total else f"{who}: {self.count:,} of {self.total:,} {what}, scaled"


class Epochs:
    """Our training: an epoch a call, or as much of one as takes `limit` seconds, scaled; the next call goes on."""

    def __init__(self, model: TensorModel, facts: Facts, recipe: Recipe, limit: float) -> None:
        few = facts[: 4 * recipe.batch_size]
        for record in Trainer(model, few, recipe, generator=seeded(0)):  # not timed: what is compiled at first use
            if isinstance(record, Epoch):
                break
        self.records = iter(Trainer(model, facts, recipe, generator=seeded(0)))
        self.facts, self.limit, self.seen, self.whole = len(facts), limit, 0, True

    def __call__(self) -> float:
        first, began = self.seen, time.perf_counter()
        for record in self.records:
            if isinstance(record, Epoch):
                self.seen = 0
                return (time.perf_counter() - began) * self.facts / (self.facts - first)
            self.seen = record.seen
            if time.perf_counter() - began > self.limit and self.seen < self.facts:
                break
        self.whole = False
        return (time.perf_counter() - began) * self.facts / (self.seen - first)


@lru_cache(maxsize=1)
def load_textbook() -> Any:
    """The textbook models of a checkout's benchmarks; None where there are none."""
    path = BENCHMARKS / "textbook.py"
    if not path.is_file():
        return None
    spec = importlib.util.spec_from_file_location("recollect_textbook", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def two_negatives_recipe(batch_size: int) -> Recipe:
    """The paper's: logistic loss, one corrupted subject and one corrupted object."""
    return Recipe(batch_size=batch_size, epochs=ENDLESS)


def one_vs_all_recipe(batch_size: int) -> Recipe | None:
    """Cross entropy of subjects and objects among all entities; None where this version has no such loss."""
    try:
        return Recipe(loss="one-vs-all", batch_size=batch_size, epochs=ENDLESS)
    except UserError:
        return None


@contextmanager
def train_contest(subject: Subject, loss: str = "two-negatives", beside: str | None = None) -> Iterator[Contest]:
    """An epoch of the training facts, beside the textbook's or beside ours of another model."""
    shape, facts = subject.shape, subject.train()
    recipe = two_negatives_recipe(shape.batch_size) if loss == "two-negatives" else one_vs_all_recipe(shape.batch_size)
    if recipe is None:
        raise UserError("this version has no one-vs-all loss")
    ours = Epochs(subject.build(), facts, recipe, subject.effort.ours_seconds)
    reference: Callable[[], float] | None
    if beside is None:
        reference, notes = _textbook_epochs(subject, facts, loss, recipe)
        told = about(subject, notes)
    else:
        other = replace(subject, model=beside)
        reference = Epochs(other.build(), facts, recipe, other.effort.ours_seconds)
        told = about(subject, []) | {"reference": f"our {beside}"}
    sizes = subject.graph().sizes
    if loss == "two-negatives":
        steps = math.ceil(len(facts) / shape.batch_size)
        work = training_work(subject.model, facts, sizes, subject.dims, subject.form, recipe.negatives, steps)
    else:
        work = one_vs_all_work(subject.model, facts, sizes, subject.dims, subject.form)
    yield Contest(
        ours=ours,
        reference=reference,
        bound=subject.at_best(work),
        work=len(facts),
        unit="facts",
        about=told,
    )


def _textbook_epochs(
    subject: Subject, facts: Facts, loss: str, recipe: Recipe
) -> tuple[Callable[[], float] | None, list[str]]:
    """The textbook's epoch, and what is to be said of it."""
    textbook = load_textbook()
    if textbook is None:
        return None, []
    model = subject.build_textbook()
    size = _fitting_batch(subject, model, recipe.batch_size, loss)
    notes = [] if size == recipe.batch_size else [f"{TEXTBOOK}: batches of {size:,}, which suit it better"]
    step = partial(
        textbook.train_step if loss == "two-negatives" else textbook.one_vs_all_step,
        model,
        textbook.optimizer_of(model, recipe.learning_rate, 2 * recipe.l2 / len(facts)),
    )
    run = partial(steps_of, step, facts.ids[torch.randperm(len(facts))], size)
    paced = Paced(run, math.ceil(len(facts) / size), subject.effort.reference_seconds)
    scaled = paced.note(TEXTBOOK, "steps")
    return paced, [*notes, *([scaled] if scaled else [])]


def steps_of(step: Callable[[Tensor], float], ids: Tensor, size: int, count: int) -> None:
    """So many steps over batches of facts that are in random order."""
    for batch in ids[: count * size].split(size):
        step(batch)


def _fitting_batch(subject: Subject, model: Any, size: int, loss: str) -> int:
    """The batch size, halved until what a textbook score gathers, and makes of a core, fits in AT_ONCE.

    Larger arrays only slow it down.
    """
    numbers = sum(model.embedding(slot).embedding_dim for slot in SLOTS)
    numbers += max((core[0].numel() for core in model.core), default=0)
    numbers += subject.shape.entities if loss == "one-vs-all" else 0
    while size > 1 and 4 * numbers * size > AT_ONCE:
        size //= 2
    return size


@contextmanager
def evaluate_contest(subject: Subject, slot: str) -> Iterator[Contest]:
    """The filtered dims of the test facts' own ids of a slot."""
    test, model, known = subject.test(), subject.build(), known_of(subject.shape)
    ours = Paced(lambda count: rank(model, test[:count], slot, known=known), len(test), subject.effort.ours_seconds)
    textbook, reference, notes = load_textbook(), None, [ours.note("ours", "queries")]
    if textbook is not None:
        their_model, filters = subject.build_textbook(), filter_of(subject.shape, slot)
        reference = Paced(
            lambda count: textbook.evaluate(their_model, test.ids[:count], slot, filters),
            len(test),
            subject.effort.reference_seconds,
        )
        notes.append(reference.note(TEXTBOOK, "queries"))
    inner, columns = product_shape(subject.model, slot, subject.graph().sizes, subject.dims, subject.form)
    yield Contest(
        ours=ours,
        reference=reference,
        bound=lambda: bare_products(len(test), inner, columns),
        work=len(test),
        unit="queries",
        about=about(subject, notes),
    )


@lru_cache(maxsize=1)
def known_of(shape: Shape) -> FactIndex:
    graph = graph_of(shape)
    return FactIndex(graph.facts, graph.sizes)


@lru_cache(maxsize=1)
def filter_of(shape: Shape, slot: str) -> Any:
    found = load_textbook().filter_of(graph_of(shape).facts.ids, slot)
    gc.freeze()  # or every collection would walk through millions of lists, at the cost of whoever runs just then
    return found


@contextmanager
def recall_contest(subject: Subject, share: float) -> Iterator[Contest]:
    """The latency of one question with one slot open, every slot in its turn: the quantile at `share`."""
    graph, model = subject.graph(), subject.build()
    memory = Memory(model, graph, UNCALIBRATED, {})
    asked = subject.test()[: subject.effort.recalls]
    slots = [model.indicator.slots[i % len(model.indicator.slots)] for i in range(len(asked))]
    questions = [_question(graph, model, asked[i : i + 1], slot) for i, slot in enumerate(slots)]
    ours = [partial(memory.recall, **question) for question in questions]
    textbook, reference = load_textbook(), None
    if textbook is not None:
        their_model = subject.build_textbook()
        labels = {slot: list(graph.axis(slot).labels) for slot in SLOTS}
        theirs = [
            partial(textbook.recall, their_model, asked.ids[i : i + 1], slot, labels[slot])
            for i, slot in enumerate(slots)
        ]
        reference = partial(_latency, theirs, share)
    _latency(ours, share)  # the first time counts for nobody
    tables = [math.prod(model.shapes(graph.sizes, subject.dims, subject.form)[KINDS[slot]]) for slot in slots]
    yield Contest(
        ours=partial(_latency, ours, share),
        reference=reference,
        bound=subject.at_best(Work(flops=0, bytes=4 * statistics.mean(tables))),  # a query reads its table once
        work=1,
        unit="question",
        about=about(subject, []),
    )


def _question(graph: EpisodicGraph, model: TensorModel, fact: Facts, open_slot: str) -> dict[str, Any]:
    labels = graph.table(fact).row(0, named=True)
    return {SLOT_NAMES[slot]: labels[SLOT_NAMES[slot]] for slot in model.indicator.slots if slot != open_slot}


def _latency(questions: Sequence[Callable[[], object]], share: float) -> float:
    return float(np.quantile([seconds(question) for question in questions], share))


@contextmanager
def load_contest(subject: Subject) -> Iterator[Contest]:
    """From a saved memory to one that can be asked."""
    graph, model, textbook = subject.graph(), subject.build(), load_textbook()
    with tempfile.TemporaryDirectory() as folder:
        place, file = Path(folder) / "measured.memory", Path(folder) / "textbook.pt"
        Memory(model, graph, UNCALIBRATED, {}).save(place)
        reference = None
        if textbook is not None:
            their_model = subject.build_textbook()
            labels = {KINDS[slot]: list(graph.axis(slot).labels) for slot in SLOTS}
            textbook.save(their_model, labels, graph.facts.ids, file)
            reference = partial(seconds, partial(textbook.load_, their_model, file))
        load(place)  # the first time counts for nobody
        size = sum(path.stat().st_size for path in place.iterdir())
        yield Contest(
            ours=partial(seconds, partial(load, place)),
            reference=reference,
            bound=subject.at_best(Work(flops=0, bytes=size)),
            work=size,
            unit="bytes",
            about=about(subject, []),
        )


def about(subject: Subject, notes: Sequence[str | None]) -> dict[str, Any]:
    """What every record tells beside seconds."""
    said = "; ".join(note for note in notes if note)
    reference = TEXTBOOK if load_textbook() is not None else None
    return {"data": subject.graph().name, "reference": reference, "note": said or None}
