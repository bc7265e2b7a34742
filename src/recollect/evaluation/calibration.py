"""Turn scores into probabilities by Platt scaling, and measure how reliable they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from recollect.evaluation.ranking import Scorer
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import SLOT_NAMES, Facts

MAX_FACTS = 4096  # facts that a fit or a report is computed from; enough for two numbers per slot
MAX_ALL_CANDIDATES = 1024  # slots with more ids are sampled


@dataclass(frozen=True)
class Calibration:
    """p = σ(a θ + b) for each slot: the probability that a candidate with logit θ completes a true fact.

    With a = 1, b = 0 it is the paper's σ(θ). It is fitted to stored and predicted candidates together; among those
    that are not stored, fewer are true than the probability says.
    """

    fits: Mapping[str, tuple[float, float]]  # slot -> (a, b)

    def probability(self, scores: Tensor, slot: str) -> Tensor:
        """Return σ(a θ + b) of logits of any shape, in float64."""
        a, b = self.fits.get(slot, (1.0, 0.0))
        return torch.sigmoid(a * scores.double() + b)


UNCALIBRATED = Calibration({})


@dataclass(frozen=True)
class Sample:
    """Scored candidates of queries: (m,) each."""

    score: Tensor  # logit
    truth: Tensor  # bool: whether the candidate is the answer
    weight: Tensor  # number of candidates that it represents


@torch.no_grad()
def sample_candidates(
    scorer: Scorer, facts: Facts, slot: str, *, known: FactIndex, generator: torch.Generator, count: int = 64
) -> Sample:
    """Return the answers of at most MAX_FACTS facts and the candidates of their queries that are not known answers.

    A slot with at most MAX_ALL_CANDIDATES ids contributes all candidates, a larger one `count` random ones per fact,
    weighted to represent all. A fact is weighted by the number of known answers to its query: a fact that holds for
    forty months is forty true cells, of which a split holds only a few.
    """
    facts = facts.true()
    facts = facts[torch.randperm(len(facts), generator=generator)[:MAX_FACTS]]
    own, size = facts.column(slot)[:, None], known.size(slot)
    rows, ids = known.find(facts, slot)
    answers = torch.bincount(rows, minlength=len(facts)).clamp(min=1).double()
    if size <= MAX_ALL_CANDIDATES:
        score = scorer.score_against(facts, slot).cpu().double()
        weight = torch.ones_like(score)
        weight[rows, ids] = 0  # other true answers are no negatives
        truth = torch.zeros_like(score, dtype=torch.bool).scatter_(1, own, True)
    else:
        negatives = known.draw_unknown(facts, slot, count, generator)
        score = scorer.score_against(facts, slot, torch.cat([own, negatives], dim=1)).cpu().double()
        weight = ((size - answers) / count)[:, None].expand_as(score).clone()
        truth = torch.zeros_like(score, dtype=torch.bool)
        truth[:, 0] = True
    weight = torch.where(truth, answers[:, None], weight)
    used = weight > 0
    return Sample(score[used], truth[used], weight[used])


def fit_platt(sample: Sample, *, steps: int = 100) -> tuple[float, float]:
    """Return the (a, b) that minimise the log loss of σ(a θ + b) on a sample, by Newton's method.

    a ≥ 0 keeps the order of scores. Targets are Platt's (n₊ + 1)/(n₊ + 2) and 1/(n₋ + 2), which keep a finite when
    the scores separate true from false.
    """
    if bool(sample.truth.all()):
        return 1.0, 0.0  # no negatives: nothing to fit
    positive = torch.where(sample.truth, sample.weight, 0).sum()
    negative = torch.where(sample.truth, 0, sample.weight).sum()
    target = torch.where(sample.truth, (positive + 1) / (positive + 2), 1 / (negative + 2))
    weight = sample.weight / sample.weight.sum()
    mean = sample.score.mean()
    scale = sample.score.std(correction=0).clamp(min=1e-12)
    features = torch.stack([(sample.score - mean) / scale, torch.ones_like(sample.score)], dim=1)
    prior = torch.logit((weight * target).sum())
    theta = _newton(features, target, weight, torch.stack([torch.zeros_like(prior), prior]), steps)
    if theta[0] <= 0:
        return 0.0, prior.item()
    slope = (theta[0] / scale).item()
    return slope, (theta[1] - slope * mean).item()


def _newton(features: Tensor, target: Tensor, weight: Tensor, theta: Tensor, steps: int) -> Tensor:
    """Return the weights of a logistic regression, from `theta` on, with step halving: (n, 2), (n,), (n,) -> (2,)."""

    def loss(theta: Tensor) -> Tensor:
        return (weight * binary_cross_entropy_with_logits(features @ theta, target, reduction="none")).sum()

    for _ in range(steps):
        p = torch.sigmoid(features @ theta)
        gradient = features.T @ (weight * (p - target))
        curvature = (weight * p * (1 - p))[:, None]
        hessian = (features * curvature).T @ features + 1e-12 * torch.eye(2, dtype=features.dtype)
        direction = torch.linalg.solve(hessian, gradient)
        # a step of more than 4 in a logit may saturate every p when scores take few values: the curvature vanishes
        direction *= (4 / (features @ direction).abs().max().clamp(min=1e-12)).clamp(max=1)
        step = 1.0
        while step > 1e-6 and loss(theta - step * direction) > loss(theta):
            step /= 2
        if step <= 1e-6:
            break
        theta = theta - step * direction
        if direction.abs().max() < 1e-9:
            break
    return theta


def calibrate(scorer: Scorer, facts: Facts, *, known: FactIndex, slots: str, generator: torch.Generator) -> Calibration:
    """Fit σ(a θ + b) for every slot with more than one id, on facts that were not trained on."""
    fits = {}
    for slot in slots:
        if known.size(slot) > 1:
            fits[slot] = fit_platt(sample_candidates(scorer, facts, slot, known=known, generator=generator))
    return Calibration(fits)


def reliability(probability: Tensor, sample: Sample, *, bins: int = 10) -> dict[str, Any]:
    """Return Brier score, log loss, expected calibration error and a table by bin of probabilities (m,)."""
    truth, weight = sample.truth.double(), sample.weight / sample.weight.sum()
    safe = probability.clamp(1e-12, 1 - 1e-12)
    log_likelihood = truth * safe.log() + (1 - truth) * (1 - safe).log()
    bin_of = (probability * bins).long().clamp(max=bins - 1)

    def total(values: Tensor) -> Tensor:
        return torch.zeros(bins, dtype=probability.dtype).index_add_(0, bin_of, values)

    mass, predicted, observed = total(weight), total(weight * probability), total(weight * truth)
    rows = [
        {
            "from": i / bins,
            "predicted": (predicted[i] / mass[i]).item(),
            "observed": (observed[i] / mass[i]).item(),
            "candidates": int((bin_of == i).sum()),
        }
        for i in range(bins)
        if mass[i] > 0
    ]
    return {
        "brier": (weight * (probability - truth) ** 2).sum().item(),
        "log_loss": -(weight * log_likelihood).sum().item(),
        "expected_error": (predicted - observed).abs().sum().item(),
        "bins": rows,
    }


def reliability_report(
    scorer: Scorer, facts: Facts, calibration: Calibration, *, known: FactIndex, slots: str, generator: torch.Generator
) -> dict[str, dict[str, Any]]:
    """Return, by slot, the reliability of σ(θ) ("before") and of calibrated probabilities ("after")."""
    report = {}
    for slot in slots:
        if known.size(slot) < 2:
            continue
        sample = sample_candidates(scorer, facts, slot, known=known, generator=generator)
        report[SLOT_NAMES[slot]] = {
            "before": reliability(UNCALIBRATED.probability(sample.score, slot), sample),
            "after": reliability(calibration.probability(sample.score, slot), sample),
        }
    return report
