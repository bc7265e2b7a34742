"""Evaluate a memory on a split: ranks, reliability, intervals; or forecasts, where the split is by time."""

from __future__ import annotations

from typing import Any

from recollect.engine import one_thread
from recollect.errors import UserError
from recollect.evaluation.calibration import Calibration
from recollect.evaluation.intervals import IntervalPredictor
from recollect.evaluation.metrics import INTERPOLATION, SINGLE_STEP, Evaluation, evaluate
from recollect.evaluation.reliability import reliability_report
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import EpisodicGraph, Facts
from recollect.graph.run_index import RunIndex
from recollect.graph.runs import Runs, sampled, stored_in
from recollect.graph.seeds import seeded
from recollect.history.history import History
from recollect.memory.answering.forecasts import Forecaster
from recollect.memory.answering.intervals import evaluate_intervals
from recollect.memory.answering.scorer import MemoryScorer


def evaluate_memory(
    scorer: MemoryScorer,
    calibration: Calibration,
    graph: EpisodicGraph,
    *,
    known: FactIndex,
    stored: FactIndex,
    split: str,
    slots: str,
    intervals: IntervalPredictor | None,
) -> Evaluation:
    """Rank the facts of a split with the train split stored."""
    facts = _facts(graph, split)
    with one_thread():
        known = _around(known, facts, slots)
        metrics = evaluate(scorer.ranked, facts, known=known, slots=slots)
        reliability = _reliability(scorer, calibration, facts, known=known, stored=stored, slots=slots)
        found = {}
        if intervals is not None and "t" in slots:
            found = evaluate_intervals(intervals, scorer, graph, stored, split)
    return Evaluation(split, len(facts), metrics["filtered"], metrics["raw"], reliability, INTERPOLATION, found)


def memory_reliability(
    scorer: MemoryScorer,
    calibration: Calibration,
    graph: EpisodicGraph,
    *,
    known: FactIndex,
    stored: FactIndex,
    split: str,
    slots: str,
) -> dict[str, dict[str, Any]]:
    """Return, by slot, how reliable probabilities are on a sample of the facts of a split, without ranking them."""
    facts = _facts(graph, split)
    with one_thread():
        known = _around(known, facts, slots)
        return _reliability(scorer, calibration, facts, known=known, stored=stored, slots=slots)


def _reliability(
    scorer: MemoryScorer, calibration: Calibration, facts: Facts, *, known: FactIndex, stored: FactIndex, slots: str
) -> dict[str, dict[str, Any]]:
    return reliability_report(
        scorer,
        scorer.normalize(facts),
        calibration,
        known=scorer.normalize_index(known),
        stored=stored,
        slots=slots,
        generator=seeded(0),
    )


def is_forecast(forecaster: Forecaster | None, graph: EpisodicGraph, split: str) -> bool:
    """Return whether a memory answers about a split by forecasts: all its times are after the last stored one."""
    graph.check_split(split)
    facts = stored_in(graph, split)
    times = facts.first.t if isinstance(facts, Runs) else facts.t
    return forecaster is not None and len(times) > 0 and int(times.min()) > forecaster.last


def evaluate_forecasts(
    forecaster: Forecaster, graph: EpisodicGraph, *, known: FactIndex, split: str, slots: str | None
) -> Evaluation:
    """Rank the facts of a split, each with the facts of all splits before its time stored.

    Kernels that read the past only see what a store that grows with time would hold.
    """
    if slots is not None and "t" in slots:
        raise UserError(f"the {split} split is after all stored times, so times are given; evaluate slots s, p and o")
    slots, facts = slots or "spo", _facts(graph, split)
    reading = forecaster.history.with_facts(stored_in(graph, *graph.splits))
    with one_thread():
        known = _around(known, facts, slots)
        metrics = evaluate(reading, facts, known=known, slots=slots)
        reliability = _forecast_reliability(forecaster, reading, facts, known, slots)
    return Evaluation(split, len(facts), metrics["filtered"], metrics["raw"], reliability, SINGLE_STEP)


def forecast_reliability(
    forecaster: Forecaster, graph: EpisodicGraph, *, known: FactIndex, split: str
) -> dict[str, dict[str, Any]]:
    """Return, by slot, how reliable forecasts are on a sample of the facts of a split, without ranking them."""
    slots, facts = "spo", _facts(graph, split)
    reading = forecaster.history.with_facts(stored_in(graph, *graph.splits))
    with one_thread():
        return _forecast_reliability(forecaster, reading, facts, _around(known, facts, slots), slots)


def _forecast_reliability(
    forecaster: Forecaster, reading: History, facts: Facts, known: FactIndex, slots: str
) -> dict[str, dict[str, Any]]:
    return reliability_report(
        reading,
        facts,
        forecaster.calibration_at(forecaster.last + 1),
        known=known,
        slots=slots,
        generator=seeded(0),
        stored=FactIndex(Facts.of([]), known.sizes),
    )


def _facts(graph: EpisodicGraph, split: str) -> Facts:
    """Return the facts of a split; of a graph of intervals, one fact of each run."""
    graph.check_split(split)
    facts = sampled(graph, split, seeded(0)).true()
    if not len(facts):
        raise UserError(f"the {split} split of {graph.name} has no facts; choose another")
    return facts


def _around(known: FactIndex, facts: Facts, slots: str) -> FactIndex:
    """Return an index of single facts that answers the questions about some slots of these facts."""
    return known.around(facts, slots) if isinstance(known, RunIndex) else known
