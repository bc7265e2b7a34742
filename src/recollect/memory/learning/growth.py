"""Grow what was learned by a change of the store: no training; only the rows that the change concerns are solved.

The store is changed exactly, and history reads it: kernels, weights of popularity and those of scores stay as fitted.
Models get rows for new ids; rows of entities that lost facts are solved again; all other weights stay bit for bit. So
the result depends on what was learned and on the facts that are stored now, and not on the steps between. Rows are
solved when a question first needs them, so that to grow takes milliseconds.

Calibration stays valid: it says how often answers *that are not stored* are true, given their score and the number of
stored answers. It was fitted to held-out facts, which neither the store nor the models had: this is the position of any
fact that a grown memory was not given. What is remembered leaves the predicted answers and is stored, with probability
1; what is forgotten comes back among them. The scores of all others come from the same kernels and tables, over a store
that is larger by a fact: more facts of a triple are evidence that the fit has seen with other triples. It drifts as the
kind of facts drifts, and with models more: rows of new times know less than trained ones, and probabilities of likely
entities there were off by 0.03 instead of 0.01 on ICEWS14. A consolidation fits it anew.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from recollect.engine import one_thread
from recollect.errors import check_process
from recollect.graph.facts import EpisodicGraph
from recollect.graph.growing import GrownGraph, Run, grow_graph
from recollect.graph.runs import stored
from recollect.history.history import History
from recollect.memory.answering.scorer import MemoryScorer
from recollect.memory.journal.changes import ADDED, REMOVED, Delta
from recollect.memory.learning.learn import Learned
from recollect.memory.learning.model_growth import grow_models


@dataclass(frozen=True, eq=False)
class Growth:
    """What was learned, after a change, and how the store changed."""

    learned: Learned
    graph: GrownGraph


def grow(learned: Learned, delta: Delta) -> Learned:
    """Return what was learned with the change of a delta: see `Delta` for the order of its parts."""
    return trace_growth(learned, delta).learned


def trace_growth(learned: Learned, delta: Delta) -> Growth:
    """Return what `grow` returns, with what its indexes need to be corrected rather than built anew."""
    check_process()
    with one_thread():  # small steps, each too short for several threads
        grown = _grow_graph(learned.graph, delta)
        return Growth(_grow_learned(learned, grown), grown)


def _grow_graph(graph: EpisodicGraph, delta: Delta) -> GrownGraph:
    rows: dict[str, list[Run]] = {ADDED: [], REMOVED: []}
    for change, *run in delta.frame.iter_rows():
        rows[change].append(tuple(run))
    return grow_graph(
        graph, removed=rows[REMOVED], added=rows[ADDED], erased=delta.erased, entities=delta.entities,
        predicates=delta.predicates, reach=delta.reach,
    )  # fmt: skip


def _grow_learned(learned: Learned, grown: GrownGraph) -> Learned:
    """Return what was learned, over a grown graph."""
    old = learned.scorer
    history = None if old.history is None else _grow_history(old.history, grown)
    cells = None if old.cells is None or history is None else old.cells.with_history(history)
    grown_models = grow_models(old.trained, learned.models, learned.graph, grown)
    forecaster = learned.forecaster
    if forecaster is not None and history is not None:
        forecaster = forecaster.with_history(history)
    times = None if grown_models is None else grown_models.times
    if old.trained_times is not None:  # until their weights are fitted again
        times = old.trained_times[0] + grown.earlier, old.trained_times[1] + grown.earlier
    solve = None if grown_models is None else grown_models.solved_models
    scorer = MemoryScorer(old.trained, history, old.weights, cells, times, solve)
    return replace(learned, scorer=scorer, graph=grown.graph, forecaster=forecaster, models=grown_models)


def _grow_history(history: History, grown: GrownGraph) -> History:
    """Return the history of a grown store."""
    facts, sizes = stored(grown.graph, "train"), grown.graph.sizes
    if sizes["predicate"] > history.sizes["predicate"]:
        return history.with_predicates(facts, sizes)
    return history.changed(facts, sizes, grown.replaced) if grown.keeps_ids else history.with_facts(facts, sizes)
