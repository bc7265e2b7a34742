"""Small memories with random parameters, random changes of their stores, and sets of facts to compare with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import polars as pl
from hypothesis import strategies as st

from recollect import EpisodicGraph, TimeAxis, Vocabulary
from recollect.evaluation.calibration import Calibration
from recollect.graph.facts import Facts
from recollect.graph.runs import RunSplits, maximal_runs, stored
from recollect.history.bins import SIDE
from recollect.history.cells import CellRates
from recollect.history.edges import predicate_classes
from recollect.history.history import History
from recollect.history.state import kernel_shape, weights_shape
from recollect.memory.answering.forecasts import Forecaster
from recollect.memory.answering.knowledge import CELL
from recollect.memory.answering.scorer import MemoryScorer
from recollect.memory.journal.changes import Delta
from recollect.memory.journal.database import Journal
from recollect.memory.learning.learn import Learned
from recollect.memory.snapshot import Snapshot
from recollect.models.tensor_model import TensorModel

FIRST, TIMES = 100, 8  # the bins of the axis
ENTITIES, PREDICATES = ("e0", "e1", "e2", "e3", "e4"), ("r0", "r1")
Cell = tuple[str, str, str, int]  # a fact by label, with its bin


def small_graph(*, as_runs: bool = False, seed: int = 0) -> EpisodicGraph:
    """Return a graph of some forty random facts, with a validation split."""
    rng = np.random.default_rng(seed)
    sizes = {"entity": len(ENTITIES), "predicate": len(PREDICATES), "time": TIMES}
    drawn = [Facts.of(np.unique(rng.integers(0, (5, 2, 5, TIMES), (count, 4)), axis=0).tolist()) for count in (40, 10)]
    splits = dict(zip(("train", "valid"), drawn, strict=True))
    runs = RunSplits({name: maximal_runs(part, sizes) for name, part in splits.items()}, "day")
    axis = TimeAxis("day", FIRST, TIMES)
    vocabularies = Vocabulary("entity", ENTITIES), Vocabulary("predicate", PREDICATES)
    return EpisodicGraph(*vocabularies, axis, runs if as_runs else splits)


def small_memory(graph: EpisodicGraph, models: Iterable[TensorModel] = (), *, history: bool = True) -> Learned:
    """Return a memory whose kernels, weights and calibration are random."""
    rng, models = np.random.default_rng(1), tuple(models)
    fits = dict.fromkeys(("s", "p", "o", "t", CELL), (1.1, -0.2))
    calibration = Calibration(fits, among_predicted=True)
    slots = models[0].slots if models else "spot"
    parts = len(models) + history
    weights = {slot: tuple(rng.uniform(0.5, 1.5, parts).tolist()) for slot in slots} if parts > 1 else {}
    if not history:
        return Learned(MemoryScorer(models, None, weights), graph, calibration, {})
    train = stored(graph, "train")
    classes = predicate_classes(train, len(graph.predicates))
    count = int(classes.max()) + 1

    def kernel(slot: str) -> np.ndarray:
        return rng.uniform(0.01, 1, kernel_shape(slot, count)).astype(np.float32)

    def past_only(array: np.ndarray) -> np.ndarray:
        only = np.zeros_like(array)
        only[:, :, 1 : 1 + SIDE] = array[:, :, 1 : 1 + SIDE]
        return only

    kernels = {slot: kernel(slot) for slot in "opt"}
    shares = {slot: rng.uniform(0.1, 1, weights_shape(slot, count)).astype(np.float32) for slot in "opt"}
    fitted = History(train, graph.sizes, classes, kernels, shares)
    past = {slot: past_only(kernel(slot)) for slot in "op"}
    ahead = dict.fromkeys(("s", "p", "o", CELL), (1.0, -0.3, -0.1, -0.1))
    forecaster = Forecaster(
        fitted, past, {slot: shares[slot] for slot in "op"}, past_only(kernel("p")), past_only(kernel("p")),
        Calibration(ahead, among_predicted=True),
    )  # fmt: skip
    scorer = MemoryScorer(models, fitted, weights, CellRates(fitted, kernel("p")))
    return Learned(scorer, graph, calibration, {}, forecaster)


def from_scratch(learned: Learned) -> Snapshot:
    """Return a snapshot of the same graph and parameters, with every index and edge built anew."""
    old, train, sizes = learned.scorer, stored(learned.graph, "train"), learned.graph.sizes
    if old.history is None:
        return Snapshot(replace(learned))
    history = History(train, sizes, old.history.classes, old.history.kernels, old.history.weights, old.history.fitted)
    scorer = replace(old, history=history, cells=CellRates(history, old.cells.kernel))
    return Snapshot(replace(learned, scorer=scorer, forecaster=replace(learned.forecaster, stored=history)))


# -- what a list of facts says ----------------------------------------------------------------------------------------


def cells_of(graph: EpisodicGraph, split: str = "train") -> set[Cell]:
    """Return the true facts of a split by label."""
    facts, axis = graph.splits[split].true(), graph.times
    table = graph.table(facts).drop("time")
    return {(*labels, axis.first + t * axis.step) for labels, t in zip(table.rows(), facts.t.tolist(), strict=True)}


def answers(snapshot: Snapshot, labels: Iterable[str] = ENTITIES) -> list[pl.DataFrame]:
    """Return the answers to questions of every kind."""
    axis, (one, two, *_) = snapshot.graph.times, labels
    days = [axis.label(0), axis.label(len(axis) // 2), axis.label(len(axis) - 1)]
    found = [snapshot.when(one, "r0", two), snapshot.probabilities(two, "r1", one)]
    found += [snapshot.recall(subject=one, predicate="r0", time=day, top=99, explain=2) for day in days]
    found += [snapshot.recall(predicate="r1", object=two, time=day, top=99) for day in days]
    found += [snapshot.recall(subject=two, object=one, time=day, top=99, explain=1) for day in days]
    found += [snapshot.recall(subject=one, predicate="r1", time=f"{days[0]}..{days[1]}", top=99)]
    found += [snapshot.recall(subject=one, predicate="r1", object=two, top=99)]
    if snapshot.scorer.history is not None:
        found += [snapshot.know(top=50), snapshot.know(subject=two, as_of=days[1]), snapshot.forecast(horizon=3)]
        found += [snapshot.forecast(object=one, explain=2)]
    return found


def effective(state: set[Cell], removed: set[Cell], added: set[Cell], graph: EpisodicGraph) -> Delta:
    """Return the delta of what a change really does to a store of single facts, as a journal records it."""
    gone, new = sorted(removed & state), sorted(added - state)
    axis = graph.times
    bins = [cell[3] for cell in new]
    known = {*graph.entities.labels}, {*graph.predicates.labels}
    entities = tuple(dict.fromkeys(label for cell in new for label in (cell[0], cell[2]) if label not in known[0]))
    predicates = tuple(dict.fromkeys(cell[1] for cell in new if cell[1] not in known[1]))
    return Delta.of(
        [(*cell, cell[3]) for cell in new], [(*cell, cell[3]) for cell in gone], entities=entities,
        predicates=predicates, reach=(min(bins), max(bins)) if bins else None, step=axis.step,
    )  # fmt: skip


LABEL = st.sampled_from([*ENTITIES, "new", "newer"])
SOME_CELLS = st.sets(
    st.tuples(LABEL, st.sampled_from([*PREDICATES, "fresh"]), LABEL, st.integers(FIRST - 2, FIRST + TIMES + 2)),
    max_size=4,
)
OLD_CELLS = st.sets(
    st.tuples(LABEL, st.sampled_from(PREDICATES), LABEL, st.integers(FIRST, FIRST + TIMES - 1)), max_size=4
)


def together(deltas: Iterable[Delta], axis: TimeAxis | None = None) -> Delta:
    """Return the effect of several deltas, as the events of a journal."""
    journal = Journal.in_main_memory(axis or TimeAxis("day", FIRST, TIMES))
    with journal.writing() as transaction:
        for delta in deltas:
            transaction.append(delta)
    return journal.between(0, journal.last(), 1)
