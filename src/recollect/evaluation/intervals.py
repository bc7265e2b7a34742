"""Predict intervals of times, and compare them with true ones: aeIOU, gIOU and TAC.

Intervals are (n, 2) int64: the ids of the first and the last time, both included, so an instant has length 1. With the
hull the shortest interval that covers both and |·| the number of times,

    aeIOU = max(1, |true ∩ predicted|) / |hull|
    gIOU  = ½ (1 + |true ∩ predicted| / |true ∪ predicted| − |hull without true ∪ predicted| / |hull|)
    TAC   = ½ (1 / (1 + |difference of starts|) + 1 / (1 + |difference of ends|))

aeIOU, and gIOU scaled to [0, 1], are those of Jain et al. 2020, "Temporal Knowledge Base Completion: New Algorithms and
Evaluation Protocols" (TIMEPLEX); TAC is from earlier work that they cite.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

QUANTILES = 24  # thresholds that are tried
PRIOR_FACTS = 20.0  # facts that the threshold of all predicates counts as in the choice for one predicate


def aeiou(true: Tensor, predicted: Tensor) -> Tensor:
    """Return max(1, |∩|) / |hull|: (n, 2), (n, 2) -> (n,) float64. It tells near misses from far ones."""
    return _overlap(true, predicted).clamp(min=1).double() / _hull(true, predicted)


def giou(true: Tensor, predicted: Tensor) -> Tensor:
    """Return ½ (1 + IOU − |gap| / |hull|), the gap between disjoint intervals: (n, 2), (n, 2) -> (n,) float64."""
    overlap, hull = _overlap(true, predicted), _hull(true, predicted)
    gap = (-overlap).clamp(min=0)
    return (1 + overlap.clamp(min=0) / (hull - gap) - gap / hull) / 2


def tac(true: Tensor, predicted: Tensor) -> Tensor:
    """Return the mean of 1 / (1 + error) over start and end: (n, 2), (n, 2) -> (n,) float64."""
    return (1 / (1 + (true - predicted).abs().double())).mean(dim=1)


METRICS = {"aeiou": aeiou, "giou": giou, "tac": tac}


def interval_metrics(true: Tensor, predicted: Tensor) -> dict[str, float]:
    """Return the mean of every metric over n intervals: (n, 2), (n, 2)."""
    return {name: metric(true, predicted).mean().item() for name, metric in METRICS.items()}


def _overlap(a: Tensor, b: Tensor) -> Tensor:
    """Return the number of times in both, or minus the number of times between them: (n,)."""
    return torch.minimum(a[:, 1], b[:, 1]) - torch.maximum(a[:, 0], b[:, 0]) + 1


def _hull(a: Tensor, b: Tensor) -> Tensor:
    """Return the length of the shortest interval that covers both: (n,)."""
    return torch.maximum(a[:, 1], b[:, 1]) - torch.minimum(a[:, 0], b[:, 0]) + 1


def coalesce(probability: Tensor, threshold: Tensor) -> Tensor:
    """Grow an interval from the most probable time while its mass is below the threshold: (B, T), (B,) -> (B, 2).

    The more probable of the two neighbours is added, the later one of equals.
    """
    times = probability.shape[1]
    end_probability = torch.full((len(probability), 1), -1.0, dtype=probability.dtype)  # never the more probable
    padded = torch.cat([end_probability, probability, end_probability], dim=1)
    mass, first = probability.max(dim=1)
    last = first.clone()
    for _ in range(times - 1):
        open_rows = ((mass < threshold) & (last - first < times - 1)).nonzero()[:, 0]
        if not len(open_rows):
            break
        before, after = padded[open_rows, first[open_rows]], padded[open_rows, last[open_rows] + 2]
        earlier = before > after
        mass[open_rows] += torch.where(earlier, before, after)
        first[open_rows] -= earlier.long()
        last[open_rows] += (~earlier).long()
    return torch.stack([first, last], dim=1)


@dataclass(frozen=True)
class IntervalPredictor:
    """Predicts the interval of a fact from log scores of all times: softmax, then `coalesce`."""

    thresholds: Mapping[int, float]  # predicate -> probability mass
    default: float  # of predicates without one

    def predict(self, scores: Tensor, predicates: Tensor) -> Tensor:
        """Return the interval of each fact: scores (B, T), predicates (B,) -> (B, 2)."""
        chosen = [self.thresholds.get(predicate, self.default) for predicate in predicates.tolist()]
        return coalesce(torch.softmax(scores.double(), dim=1), torch.tensor(chosen, dtype=torch.float64))


def fit_intervals(scores: Tensor, predicates: Tensor, true: Tensor) -> IntervalPredictor:
    """Choose the threshold of every predicate by aeIOU on validation facts: (B, T), (B,), (B, 2).

    Thresholds are tried at quantiles of the mass of the true intervals. The mean aeIOU of a predicate is shrunk
    towards that of all facts, so that rare predicates take the common threshold.
    """
    probability = torch.softmax(scores.double(), dim=1)
    below = torch.cat([torch.zeros(len(scores), 1, dtype=torch.float64), probability.cumsum(dim=1)], dim=1)
    mass = (below.gather(1, true[:, 1:] + 1) - below.gather(1, true[:, :1]))[:, 0]
    tried = torch.quantile(mass, torch.linspace(0, 1, QUANTILES, dtype=torch.float64)).unique()
    quality = torch.stack([aeiou(true, coalesce(probability, level.expand(len(true)))) for level in tried], dim=1)
    overall = quality.mean(dim=0)
    thresholds = {}
    for predicate in predicates.unique().tolist():
        own = quality[predicates == predicate]
        shrunk = (own.sum(dim=0) + PRIOR_FACTS * overall) / (len(own) + PRIOR_FACTS)
        thresholds[predicate] = tried[shrunk.argmax()].item()
    return IntervalPredictor(thresholds, tried[overall.argmax()].item())
