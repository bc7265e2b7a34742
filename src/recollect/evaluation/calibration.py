"""Turn scores into probabilities by Platt scaling, fitted to facts that were not trained on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from recollect.evaluation.ranking import Scorer
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import Facts

CELL = "cell"  # the key of a calibration of cells, next to those of slots
MAX_PREDICTED, PREDICTED_ROWS = 2048, 256  # facts whose predicted candidates are sampled, and facts scored at a time
BEST_CANDIDATES, OTHER_CANDIDATES = 64, 16  # candidates per query: the likeliest, and random ones for all others
HOPELESS = -5.0  # logit of a share of 0.7 %
MOST_COUNTED = 0.5  # share of true candidates up to which unseen ones are counted
ROUNDING = 1e-6  # deviation of scores that says nothing
MAX_LOGIT = 40.0  # of a fit that has diverged
CONTEXT_PENALTY = 1.0  # of c and d, in candidates: weak where a few are true


@dataclass(frozen=True)
class Calibration:
    """p = σ((a + d z) x + b + c z) for each slot: the probability that a predicted candidate completes a true fact.

    With `among_predicted`, x is the logit of the candidate's softmax among all that are not stored, and
    z = log(1 + number of stored answers to the question): a triple that held at many stored times held at more of the
    others too. Without, x is the score θ and z = 0, which with a = 1, b = 0 is the paper's σ(θ); so it is for cells.
    """

    fits: Mapping[str, tuple[float, ...]]  # slot or CELL -> (a, b) or (a, b, c, d)
    among_predicted: bool = False
    highest: Mapping[str, float] = field(default_factory=dict)  # slot -> the highest probability that it says

    def probability(self, logits: Tensor, slot: str, context: Tensor | None = None) -> Tensor:
        """Return the probability of logits x of any shape, in float64; the context z, by default 0, broadcasts."""
        a, b, c, d = (*self.fits.get(slot, (1.0, 0.0)), 0.0, 0.0)[:4]
        z = torch.zeros((), dtype=torch.float64) if context is None else context
        found = torch.sigmoid((a + d * z).clamp(min=0) * logits.double() + b + c * z)
        return found.clamp(max=self.highest.get(slot, 1.0))

    def answer_probabilities(self, scores: Tensor, stored: Tensor, slot: str) -> Tensor:
        """Return the probability of every candidate of a query, 1 for stored ones: (B, N), (B, N) bool -> (B, N)."""
        if not self.among_predicted:
            return self.probability(scores, slot).masked_fill(stored, 1.0)
        logits = predicted_logits(scores, stored)
        return self.probability(logits, slot, stored_context(stored)).masked_fill(stored, 1.0)

    def at(self, context: float) -> Calibration:
        """Return the calibration of one context: pairs (a + d z, b + c z)."""
        full = {slot: (*fit, 0.0, 0.0)[:4] for slot, fit in self.fits.items()}
        pairs = {slot: (max(0.0, a + d * context), b + c * context) for slot, (a, b, c, d) in full.items()}
        return Calibration(pairs, self.among_predicted, self.highest)


UNCALIBRATED = Calibration({})


def highest_probability(answers: int) -> float:
    """Return the highest probability that some held-out answers support, (n + 1) / (n + 3): 1/3 without any."""
    return (answers + 1) / (answers + 3)


def predicted_logits(scores: Tensor, stored: Tensor) -> Tensor:
    """Return log q − log(1 − q), q being the softmax of scores (B, N) over the candidates that are not stored."""
    log_share = scores.double().masked_fill(stored, -torch.inf).log_softmax(dim=1)
    rest = -torch.expm1(log_share.clamp(max=-1e-12))
    return log_share - rest.log()


def stored_context(stored: Tensor) -> Tensor:
    """Return z = log(1 + number of stored answers) of each query: (B, N) bool -> (B, 1) float64."""
    return stored.sum(dim=1, keepdim=True).double().log1p()


@dataclass(frozen=True)
class Sample:
    """Scored candidates of queries: (m,) each."""

    score: Tensor  # logit
    truth: Tensor  # bool: whether the candidate is the answer
    weight: Tensor  # number of candidates that it represents
    context: Tensor | None = None  # z of `Calibration`
    count: Tensor | None = None  # facts that a true candidate stands for, where some are withheld unseen

    @classmethod
    def concat(cls, parts: Iterable[Sample]) -> Sample:
        """Concatenate samples, of which all or none have a context and counts."""
        parts = list(parts)
        context = [part.context for part in parts if part.context is not None]
        count = [part.count for part in parts if part.count is not None]
        score, truth, weight = (
            torch.cat([getattr(part, name) for part in parts]) for name in ("score", "truth", "weight")
        )
        return cls(score, truth, weight, torch.cat(context) if context else None, torch.cat(count) if count else None)

    def weighted(self, weight: float) -> Sample:
        """Return the same candidates, each representing `weight` times as many."""
        return replace(self, weight=self.weight * weight)

    def __getitem__(self, rows: Tensor) -> Sample:
        """Return the candidates that a mask (m,) selects."""
        context, count = (None if each is None else each[rows] for each in (self.context, self.count))
        return Sample(self.score[rows], self.truth[rows], self.weight[rows], context, count)


@torch.no_grad()
def sample_predicted(
    scorer: Scorer,
    facts: Facts,
    slot: str,
    *,
    stored: FactIndex,
    known: FactIndex,
    generator: torch.Generator,
    among_predicted: bool = True,
) -> Sample:
    """Return predicted candidates of at most MAX_PREDICTED facts' queries, and whether they are true.

    True is all that is known and not stored. Without `among_predicted`, their x is the score θ.
    """
    facts = facts.true()
    chosen = facts[torch.randperm(len(facts), generator=generator)[:MAX_PREDICTED]]
    scored = ((part, scorer.score_against(part, slot).cpu()) for part in chosen.split(PREDICTED_ROWS))
    return sample_scored(
        scored, slot, answers=known, stored=stored, known=known, generator=generator, among_predicted=among_predicted
    )


def sample_scored(
    scored: Iterable[tuple[Facts, Tensor]],
    slot: str,
    *,
    answers: FactIndex,
    stored: FactIndex,
    known: FactIndex,
    generator: torch.Generator,
    unseen: float = 0.0,
    present: Tensor | None = None,
    among_predicted: bool = True,
) -> Sample:
    """Return the same of facts whose candidates are scored already: n facts, (n, N).

    True are the `answers`; other known ones that are not stored are left out. If a graph withholds more facts than the
    answers show, `unseen` times as many, these are among the false candidates: every answer but the fact that is asked
    for then counts 1 + unseen times, so that the loss of the fit is that of a full view in expectation.
    Each query contributes its BEST_CANDIDATES candidates and OTHER_CANDIDATES random ones, which are weighted to
    represent all others. Only ids that are `present`, (N,) bool, are candidates; by default all.
    """
    parts: list[Sample] = []
    for part, scores in scored:
        is_stored, is_known, truth = (index.mask(part, slot) for index in (stored, known, answers))
        logits = predicted_logits(scores, is_stored) if among_predicted else scores.double()
        usable = ~is_stored & (truth | ~is_known)
        if present is not None:
            usable &= present
        ids, weight = _choose_candidates(logits.masked_fill(~usable, -torch.inf), generator)
        kept = usable.gather(1, ids) & (weight > 0)
        context = stored_context(is_stored).expand(ids.shape)
        count = torch.where(ids == part.column(slot)[:, None], 1.0, 1.0 + unseen).double()
        found = Sample(logits.gather(1, ids), truth.gather(1, ids), weight, context, count)
        parts.append(found[kept])
    return Sample.concat(parts)


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


def fit_platt(sample: Sample, *, steps: int = 100, strength: float = 0.0, hopeful: bool = True) -> tuple[float, ...]:
    """Return the (a, b), or with a context (a, b, c, d), that minimise the log loss on a sample, by Newton's method.

    A slope of at least 0 keeps the order of scores. Targets are Platt's (n₊ + 1)/(n₊ + 2) and 1/(n₋ + 2), which keep a
    finite when the scores separate true from false. With a context, a small penalty keeps c and d near 0 where few
    candidates are true, and hopeless candidates are left out: they would bend the fit where nobody looks. If the scores
    of the `hopeful` ones do not tell true from false, those of all are fitted. `strength` is that of a prior
    a ~ N(1, 1 / strength): it matters to a few true candidates, whose scores may separate by chance.
    """
    whole = sample
    if sample.context is not None and hopeful:
        sample = _hopeful(sample)
    if bool(sample.truth.all()):
        return 1.0, 0.0  # no negatives: nothing to fit
    positive = torch.where(sample.truth, sample.weight, 0).sum()
    negative = torch.where(sample.truth, 0, sample.weight).sum()
    target = torch.where(sample.truth, (positive + 1) / (positive + 2), 1 / (negative + 2))
    weight = sample.weight / sample.weight.sum()
    if sample.count is not None:
        counted = torch.where(sample.truth, target * sample.count, target)
        if (weight * counted).sum() < MOST_COUNTED:  # else so many are true that few can be unseen
            target = counted
    x, z = sample.score, sample.context
    columns = torch.stack([x] if z is None else [x, z, x * z], dim=1)
    mean, scale = columns.mean(dim=0), columns.std(dim=0, correction=0).clamp(min=ROUNDING)
    features = torch.cat([(columns - mean) / scale, torch.ones_like(x)[:, None]], dim=1)
    penalty = torch.full((features.shape[1],), CONTEXT_PENALTY / sample.weight.sum().item(), dtype=torch.float64)
    penalty[[0, -1]] = 1e-12
    penalty[0] += strength / (sample.weight.sum() * scale[0] ** 2)
    centre = torch.zeros_like(penalty)
    centre[0] = scale[0] if strength else 0.0  # a slope of 1
    prior = torch.logit((weight * target).sum())
    start = torch.zeros_like(penalty)
    start[-1] = prior
    theta = _newton(features, target, weight, penalty, centre, start, steps)
    slopes = theta[:-1] / scale
    b = (theta[-1] - (slopes * mean).sum()).item()
    if sample.count is not None and not bool((features @ theta).abs().max() < MAX_LOGIT):
        return fit_platt(replace(sample, count=None), steps=steps)  # counts above 1 have no minimum in separable data
    if z is None:
        return (slopes[0].item(), b) if slopes[0] > 0 else (0.0, prior.item())
    a, c, d = slopes.tolist()
    if a + d * z.mean().item() > 0:
        return a, b, c, d
    if len(sample.score) < len(whole.score):
        return fit_platt(whole, steps=steps, strength=strength, hopeful=False)
    return 0.0, prior.item(), 0.0, 0.0


def _hopeful(sample: Sample) -> Sample:
    """Return the candidates with a logit above HOPELESS; all if the true ones or the false ones would be lost."""
    kept = sample.score > HOPELESS
    if not bool((sample.truth & kept).any()) or not bool((~sample.truth & kept).any()):
        return sample
    return sample[kept]


def _newton(
    features: Tensor, target: Tensor, weight: Tensor, penalty: Tensor, centre: Tensor, theta: Tensor, steps: int
) -> Tensor:
    """Return the weights θ of a logistic regression with ½ Σ penalty (θ − centre)², from `theta` on: (n, k) -> (k,)."""

    def loss(theta: Tensor) -> Tensor:
        fit = (weight * binary_cross_entropy_with_logits(features @ theta, target, reduction="none")).sum()
        return fit + (penalty * (theta - centre) ** 2).sum() / 2

    for _ in range(steps):
        p = torch.sigmoid(features @ theta)
        gradient = features.T @ (weight * (p - target)) + penalty * (theta - centre)
        curvature = (weight * p * (1 - p))[:, None]
        hessian = (features * curvature).T @ features + torch.diag(penalty)
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
