"""Turn scores into probabilities by Platt scaling, and measure how reliable they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from recollect.evaluation.ranking import Scorer
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import SLOT_NAMES, Facts

MAX_FACTS = 4096  # facts that a fit or a report is computed from; enough for two numbers per slot
MAX_PREDICTED, PREDICTED_ROWS = 2048, 256  # facts whose predicted candidates are sampled, and facts scored at a time
BEST_CANDIDATES, OTHER_CANDIDATES = 64, 16  # candidates per query: the likeliest, and random ones for all others
MAX_ALL_CANDIDATES = 1024  # slots with more ids are sampled


@dataclass(frozen=True)
class Calibration:
    """p = σ(a x + b) for each slot: the probability that a candidate completes a true fact.

    x is the score θ, or with `among_predicted` the logit of its softmax among the candidates that are not stored. With
    a = 1, b = 0 the former is the paper's σ(θ); it is fitted to stored and predicted candidates together, so that fewer
    predicted ones are true than it says. The latter is fitted to predicted candidates alone.
    """

    fits: Mapping[str, tuple[float, float]]  # slot -> (a, b)
    among_predicted: bool = False
    highest: Mapping[str, float] = field(default_factory=dict)  # slot -> the highest probability that it says

    def probability(self, logits: Tensor, slot: str) -> Tensor:
        """Return σ(a x + b) of logits x of any shape, in float64, and no more than the highest of the slot."""
        a, b = self.fits.get(slot, (1.0, 0.0))
        return torch.sigmoid(a * logits.double() + b).clamp(max=self.highest.get(slot, 1.0))

    def answer_probabilities(self, scores: Tensor, stored: Tensor, slot: str) -> Tensor:
        """Return the probability of every candidate of a query, 1 for stored ones: (B, N), (B, N) bool -> (B, N)."""
        logits = predicted_logits(scores, stored) if self.among_predicted else scores
        return self.probability(logits, slot).masked_fill(stored, 1.0)


UNCALIBRATED = Calibration({})


def highest_probability(answers: int) -> float:
    """Return the highest probability that some held-out answers support, (n + 1) / (n + 3): 1/3 without any."""
    return (answers + 1) / (answers + 3)


def predicted_logits(scores: Tensor, stored: Tensor) -> Tensor:
    """Return log q − log(1 − q), q being the softmax of scores (B, N) over the candidates that are not stored."""
    log_share = scores.double().masked_fill(stored, -torch.inf).log_softmax(dim=1)
    rest = -torch.expm1(log_share.clamp(max=-1e-12))
    return log_share - rest.log()


@dataclass(frozen=True)
class Sample:
    """Scored candidates of queries: (m,) each."""

    score: Tensor  # logit
    truth: Tensor  # bool: whether the candidate is the answer
    weight: Tensor  # number of candidates that it represents

    @classmethod
    def concat(cls, samples: Sequence[Sample]) -> Sample:
        """Return the candidates of all samples."""
        return cls(*(torch.cat([getattr(each, name) for each in samples]) for name in ("score", "truth", "weight")))


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


@torch.no_grad()
def sample_predicted(
    scorer: Scorer, facts: Facts, slot: str, *, stored: FactIndex, known: FactIndex, generator: torch.Generator
) -> Sample:
    """Return the logits among predicted candidates of at most MAX_PREDICTED facts' queries, and whether they are true.

    True are the answers in `facts`; other known answers that are not stored are left out.
    """
    answers = FactIndex(facts, stored.sizes)
    facts = facts.true()
    chosen = facts[torch.randperm(len(facts), generator=generator)[:MAX_PREDICTED]]
    scored = ((part, scorer.score_against(part, slot).cpu()) for part in chosen.split(PREDICTED_ROWS))
    return sample_scored(scored, slot, answers=answers, stored=stored, known=known, generator=generator)


def sample_scored(
    scored: Iterable[tuple[Facts, Tensor]],
    slot: str,
    *,
    answers: FactIndex,
    stored: FactIndex,
    known: FactIndex,
    generator: torch.Generator,
) -> Sample:
    """Return the same of facts whose candidates are scored already: n facts, (n, N).

    Each query contributes its BEST_CANDIDATES candidates and OTHER_CANDIDATES random ones, which are weighted to
    represent all others.
    """
    parts: list[tuple[Tensor, Tensor, Tensor]] = []
    for part, scores in scored:
        is_stored, is_known, truth = (index.mask(part, slot) for index in (stored, known, answers))
        logits = predicted_logits(scores, is_stored)
        usable = ~is_stored & (truth | ~is_known)
        ids, weight = _choose_candidates(logits.masked_fill(~usable, -torch.inf), generator)
        kept = usable.gather(1, ids) & (weight > 0)
        parts.append((logits.gather(1, ids)[kept], truth.gather(1, ids)[kept], weight[kept]))
    return Sample(*(torch.cat(columns) for columns in zip(*parts, strict=True)))


def _choose_candidates(logits: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return the likeliest ids of logits (B, N) and random other ones, and the number of ids that each represents."""
    rows, size = logits.shape
    if size <= BEST_CANDIDATES + OTHER_CANDIDATES:
        return torch.arange(size).expand(rows, size), torch.ones(rows, size, dtype=torch.float64)
    best = logits.topk(BEST_CANDIDATES, dim=1).indices
    others = torch.randint(size, (rows, OTHER_CANDIDATES), generator=generator)
    is_other = ~(others[:, :, None] == best[:, None, :]).any(dim=2)
    represented = is_other.double() * (size / OTHER_CANDIDATES)
    return torch.cat([best, others], dim=1), torch.cat([torch.ones(best.shape).double(), represented], dim=1)


def fit_platt(sample: Sample, *, steps: int = 100, strength: float = 0.0) -> tuple[float, float]:
    """Return the (a, b) that minimise the log loss of σ(a θ + b) on a sample, by Newton's method.

    a ≥ 0 keeps the order of scores. Targets are Platt's (n₊ + 1)/(n₊ + 2) and 1/(n₋ + 2), which keep a finite when
    the scores separate true from false. `strength` is that of a prior a ~ N(1, 1 / strength): it matters to samples of
    a few true candidates, whose scores may separate by chance.
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
    start = torch.stack([torch.zeros_like(prior), prior])
    theta = _newton(features, target, weight, start, steps, strength / sample.weight.sum(), 1 / scale)
    if theta[0] <= 0:
        return 0.0, prior.item()
    slope = (theta[0] / scale).item()
    return slope, (theta[1] - slope * mean).item()


def _newton(
    features: Tensor, target: Tensor, weight: Tensor, theta: Tensor, steps: int, ridge: Tensor, unit: Tensor
) -> Tensor:
    """Return the weights of a logistic regression, from `theta` on, with step halving: (n, 2), (n,), (n,) -> (2,).

    `ridge` is the strength with which unit · theta[0] is drawn to 1.
    """

    def loss(theta: Tensor) -> Tensor:
        losses = binary_cross_entropy_with_logits(features @ theta, target, reduction="none")
        return (weight * losses).sum() + ridge / 2 * (unit * theta[0] - 1) ** 2

    for _ in range(steps):
        p = torch.sigmoid(features @ theta)
        gradient = features.T @ (weight * (p - target))
        gradient[0] += ridge * unit * (unit * theta[0] - 1)
        curvature = (weight * p * (1 - p))[:, None]
        hessian = (features * curvature).T @ features + 1e-12 * torch.eye(2, dtype=features.dtype)
        hessian[0, 0] += ridge * unit**2
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
    scorer: Scorer,
    facts: Facts,
    calibration: Calibration,
    *,
    known: FactIndex,
    slots: str,
    generator: torch.Generator,
    stored: FactIndex | None = None,
) -> dict[str, dict[str, Any]]:
    """Return, by slot, the reliability of σ(x) ("before") and of calibrated probabilities ("after").

    With `stored`, of predicted answers alone, x being their logit among these; else of all, x being the score.
    """
    report = {}
    for slot in slots:
        if known.size(slot) < 2:
            continue
        if stored is None:
            sample = sample_candidates(scorer, facts, slot, known=known, generator=generator)
        else:
            sample = sample_predicted(scorer, facts, slot, stored=stored, known=known, generator=generator)
        report[SLOT_NAMES[slot]] = {
            "before": reliability(UNCALIBRATED.probability(sample.score, slot), sample),
            "after": reliability(calibration.probability(sample.score, slot), sample),
        }
    return report
