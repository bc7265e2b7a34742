"""When facts held, as intervals: the stored runs of a triple, then one that is predicted.

The predicted interval grows from the likeliest time that is not stored, as `evaluation.intervals` says. Its probability
is the mean over its times that the fact held.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl
import torch
from torch import Tensor

from recollect.evaluation.calibration import Calibration
from recollect.evaluation.intervals import IntervalPredictor, fit_intervals, interval_metrics
from recollect.evaluation.ranking import Scorer
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import EpisodicGraph, Facts
from recollect.graph.run_index import RunIndex
from recollect.graph.runs import Runs, maximal_runs, merge_runs, stored
from recollect.graph.seeds import seeded

INTERVALS = "intervals"  # the key of the thresholds in a bundle
MAX_RUNS = 2048  # validation runs that thresholds are fitted to
SCORE_BYTES = 2**28  # of scores of all times
INSTANTS = IntervalPredictor({}, 0.0)  # predicts the likeliest time alone


def interval_runs(graph: EpisodicGraph, split: str) -> Runs | None:
    """Return the runs of a split's true facts if at least half of its facts are in runs of two times or more.

    Facts that are split one by one leave pieces of runs, which are no intervals.
    """
    if split not in graph.splits:
        return None
    facts = stored(graph, split)
    found = merge_runs(facts.true(), graph.sizes) if isinstance(facts, Runs) else maximal_runs(facts, graph.sizes)
    in_long = int(found.lengths[found.lengths > 1].sum())
    return found if found.count and 2 * in_long >= found.count else None


def fit_predictor(scorer: Scorer, graph: EpisodicGraph, stored: FactIndex, *, seed: int) -> IntervalPredictor | None:
    """Return the thresholds that suit the intervals of the validation split best; None if it has none."""
    runs = interval_runs(graph, "valid")
    if runs is None:
        return None
    most = max(1, min(MAX_RUNS, SCORE_BYTES // (8 * len(graph.times))))
    chosen = runs[torch.randperm(len(runs), generator=seeded(seed))[:most]]
    return fit_intervals(_scores(scorer, stored, chosen.first), chosen.first.p, _bounds(chosen))


def evaluate_intervals(
    predictor: IntervalPredictor, scorer: Scorer, graph: EpisodicGraph, stored: FactIndex, split: str
) -> dict[str, float]:
    """Return aeIOU, gIOU and TAC of the predicted intervals of a split, and their number; {} if it has none."""
    runs = interval_runs(graph, split)
    if runs is None:
        return {}
    rows = max(1, SCORE_BYTES // (8 * len(graph.times)))
    predicted = [_predict(predictor, scorer, stored, part) for part in runs.first.split(rows)]
    return {"intervals": len(runs), **interval_metrics(_bounds(runs), torch.cat(predicted))}


def when_table(
    predictor: IntervalPredictor,
    scorer: Scorer,
    calibration: Calibration,
    graph: EpisodicGraph,
    stored: FactIndex,
    triple: Facts,
) -> pl.DataFrame:
    """Return start, end, probability and status of a triple's stored runs, the newest first, and of a predicted one.

    A stored run without an end has none in the table either.
    """
    held = _stored_runs(stored, triple)
    rows = [(*bounds, 1.0, "stored") for bounds in reversed(_bounds(held).tolist())]
    if held.count < len(graph.times):
        first, last = _predict(predictor, scorer, stored, triple)[0].tolist()
        scores = scorer.score_against(triple, "t").cpu().double()
        probabilities = calibration.answer_probabilities(scores, stored.mask(triple, "t"), "t")
        rows.append((first, last, probabilities[0, first : last + 1].mean().item(), "predicted"))
    labels = [(graph.times.label(first), graph.times.label(last), *others) for first, last, *others in rows]
    if held.has_ongoing:
        labels[0] = (labels[0][0], None, *labels[0][2:])
    schema = {"start": pl.String, "end": pl.String, "probability": pl.Float64, "status": pl.String}
    return pl.DataFrame(labels, schema=schema, orient="row")


def _stored_runs(stored: FactIndex, triple: Facts) -> Runs:
    """Return the stored runs of one triple, in the order of time."""
    if isinstance(stored, RunIndex):
        return stored.runs[(stored.runs.first.ids[:, :3] == triple.ids[:, :3]).all(dim=1)]
    _, times = stored.find(triple, "t")
    return maximal_runs(Facts(triple.ids.expand(len(times), -1)).with_slot("t", times), stored.sizes)


def _predict(predictor: IntervalPredictor, scorer: Scorer, stored: FactIndex, facts: Facts) -> Tensor:
    """Return the predicted interval of each fact, which ends where it would reach a stored time: (B, 2)."""
    scores, is_stored = _scores(scorer, stored, facts), stored.mask(facts, "t")
    first, last = predictor.predict(scores, facts.p).T
    times, likeliest = torch.arange(scores.shape[1]), scores.argmax(dim=1, keepdim=True)
    before = times.where(is_stored & (times < likeliest), -1).amax(dim=1)
    after = times.where(is_stored & (times > likeliest), scores.shape[1]).amin(dim=1)
    return torch.stack([torch.maximum(first, before + 1), torch.minimum(last, after - 1)], dim=1)


def to_dict(predictor: IntervalPredictor) -> dict[str, Any]:
    """Return the thresholds as JSON-compatible values."""
    return {"default": predictor.default, "thresholds": {str(p): mass for p, mass in predictor.thresholds.items()}}


def from_dict(stored: Mapping[str, Any]) -> IntervalPredictor:
    """Return the predictor that `to_dict` described; raise ValueError and its like if there is none like it."""
    thresholds = {int(predicate): float(mass) for predicate, mass in stored["thresholds"].items()}
    default = float(stored["default"])
    if not all(0 <= mass <= 2 for mass in (default, *thresholds.values())):  # NaN is refused too
        raise ValueError("its thresholds of intervals are no probabilities")
    return IntervalPredictor(thresholds, default)


@torch.no_grad()
def _scores(scorer: Scorer, stored: FactIndex, facts: Facts) -> Tensor:
    """Return the scores of all times, −∞ for stored ones, but not where all are stored: (B, T)."""
    scores = scorer.score_against(facts, "t").cpu().double()
    masked = scores.masked_fill(stored.mask(facts, "t"), -torch.inf)
    return torch.where(masked.isinf().all(dim=1, keepdim=True), scores, masked)


def _bounds(runs: Runs) -> Tensor:
    """Return the first and last time of each run: (n, 2)."""
    return torch.stack([runs.first.t, runs.last], dim=1)
