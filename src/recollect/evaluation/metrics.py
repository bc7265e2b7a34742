"""What rankings and probabilities amount to: MRR, Hits@n, mean rank, calibration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from recollect.errors import UserError
from recollect.evaluation.ranking import BYTES, TIES, Ranking, Scorer, rank
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import SLOT_NAMES, Facts

HITS = (1, 3, 10)
FACTS = 4096  # are enough to fit or to judge two numbers
ALL_OF = 1024  # a slot with at most so many ids is not sampled


def summarise(rankings: Sequence[Ranking], policy: str = "realistic") -> dict[str, float]:
    """MRR, Hits@n, mean rank and its chance-adjusted form of all facts in `rankings` together.

    The adjusted mean rank index is 1 − (mean rank − 1) / (its expectation under random scores − 1):
    1 is perfect, 0 is chance.
    """
    ranks = torch.cat([ranking.ranks(policy) for ranking in rankings])
    others = torch.cat([ranking.others for ranking in rankings]).double()
    expected = others.mean() / 2  # of rank − 1
    report = {"mrr": ranks.reciprocal().mean().item()}
    report |= {f"hits@{n}": (ranks <= n).double().mean().item() for n in HITS}
    report["mean_rank"] = ranks.mean().item()
    report["adjusted_mean_rank_index"] = (1 - (ranks.mean() - 1) / expected).item() if expected > 0 else 0.0
    return report


def precision_recall(scores: Tensor, truth: Tensor) -> dict[str, float]:
    """How well scores tell true from false: the area under the precision-recall curve, and recall.

    `auprc` is the average precision Σ_k (R_k − R_{k−1}) P_k over the distinct scores from the highest; `recall` is
    the share of the true ones found when as many are taken for true as are true, at random among equal scores.
    """
    truth = truth.double()
    if not bool(truth.any()):
        raise UserError("precision and recall need at least one true fact; none was given")
    if bool(scores.isnan().any()):
        raise UserError("some scores are NaN, so nothing can be told from them; train again with a lower learning rate")
    _, level = scores.unique(return_inverse=True)  # ascending
    level = int(level.max()) - level
    count, found = (torch.zeros(int(level.max()) + 1, dtype=torch.float64) for _ in range(2))
    count.index_add_(0, level, torch.ones_like(truth))
    found.index_add_(0, level, truth)
    taken, right, total = count.cumsum(0), found.cumsum(0), truth.sum()
    last = int((taken < total).sum())  # the level in which as many are taken as are true
    before = taken[last] - count[last]
    recall = (right[last] - found[last] + found[last] * (total - before) / count[last]) / total
    return {"auprc": ((found / total) * (right / taken)).sum().item(), "recall": recall.item()}


def evaluate(
    scorer: Scorer, facts: Facts, *, known: FactIndex, slots: str = "spot", budget: int = BYTES
) -> dict[str, dict[str, dict[str, Any]]]:
    """Filtered and raw figures of every slot in `slots`; "entity" takes subject and object together.

    Each slot's figures are those of realistic ties; the other two policies stand beside them.
    """
    facts = facts.true()
    rankings = {slot: rank(scorer, facts, slot, known=known, budget=budget) for slot in slots}
    report: dict[str, dict[str, dict[str, Any]]] = {}
    for setting in ("filtered", "raw"):
        groups = {SLOT_NAMES[slot]: [ranking[setting]] for slot, ranking in rankings.items()}
        if "s" in slots and "o" in slots:
            groups["entity"] = [rankings["s"][setting], rankings["o"][setting]]
        report[setting] = {
            name: summarise(group) | {policy: summarise(group, policy) for policy in TIES if policy != "realistic"}
            for name, group in groups.items()
        }
    return report


@dataclass(frozen=True)
class Calibration:
    """p = σ(a θ + b) for each slot: how likely a candidate with logit θ completes a true fact.

    With a = 1, b = 0 it is the paper's σ(θ). Stored and predicted candidates are taken together; among
    those that are not stored, fewer are true than the probability says.
    """

    fits: Mapping[str, tuple[float, float]]  # slot -> (a, b)

    def probability(self, scores: Tensor, slot: str) -> Tensor:
        a, b = self.fits.get(slot, (1.0, 0.0))
        return torch.sigmoid(a * scores.double() + b)


UNCALIBRATED = Calibration({})


@dataclass(frozen=True)
class Sample:
    """Scored candidates of recall questions: logit, whether it is the answer, how many candidates it stands for."""

    score: Tensor  # (m,)
    truth: Tensor  # (m,) bool
    weight: Tensor  # (m,)


@torch.no_grad()
def sample_candidates(
    scorer: Scorer, facts: Facts, slot: str, *, known: FactIndex, generator: torch.Generator, count: int = 64
) -> Sample:
    """The answers of at most FACTS facts and their unknown candidates: all of them where they are few, else a
    random `count` of each fact, weighted to stand for all.

    A fact stands for every known answer of its question: a fact that holds for forty months is forty true cells
    beside the false ones, of which a split happens to hold a few.
    """
    facts = facts.true()
    facts = facts[torch.randperm(len(facts), generator=generator)[:FACTS]]
    own, n = facts.column(slot)[:, None], known.size(slot)
    rows, ids = known.find(facts, slot)
    answers = torch.bincount(rows, minlength=len(facts)).clamp(min=1).double()
    if n <= ALL_OF:
        score = scorer.score_against(facts, slot).cpu().double()
        weight = torch.ones_like(score)
        weight[rows, ids] = 0  # known to be true, so no false candidate
        truth = torch.zeros_like(score, dtype=torch.bool).scatter_(1, own, True)
    else:
        drawn = known.draw_unknown(facts, slot, count, generator)
        score = scorer.score_against(facts, slot, torch.cat([own, drawn], dim=1)).cpu().double()
        weight = ((n - answers) / count)[:, None].expand_as(score).clone()
        truth = torch.zeros_like(score, dtype=torch.bool)
        truth[:, 0] = True
    weight[truth] = answers
    told = weight > 0
    return Sample(score[told], truth[told], weight[told])


def platt(sample: Sample, *, steps: int = 100) -> tuple[float, float]:
    """(a, b) of the σ(a θ + b) that fits `sample` best, by Newton's method; a ≥ 0 keeps the order.

    Targets are Platt's (n₊ + 1)/(n₊ + 2) and 1/(n₋ + 2), which keeps a finite when the scores separate.
    """
    if bool(sample.truth.all()):
        return 1.0, 0.0  # every candidate is true: nothing to tell apart
    mass = torch.where(sample.truth, sample.weight, 0).sum(), torch.where(sample.truth, 0, sample.weight).sum()
    target = torch.where(sample.truth, (mass[0] + 1) / (mass[0] + 2), 1 / (mass[1] + 2))
    spread = sample.score.std(correction=0).clamp(min=1e-12)
    x = torch.stack([(sample.score - sample.score.mean()) / spread, torch.ones_like(sample.score)], dim=1)
    w = sample.weight / sample.weight.sum()

    def loss(theta: Tensor) -> Tensor:
        return (w * torch.nn.functional.binary_cross_entropy_with_logits(x @ theta, target, reduction="none")).sum()

    prior = (w * target).sum()
    theta = torch.stack([torch.zeros_like(prior), torch.logit(prior)])
    for _ in range(steps):
        p = torch.sigmoid(x @ theta)
        gradient = x.T @ (w * (p - target))
        hessian = (x * (w * p * (1 - p))[:, None]).T @ x + 1e-12 * torch.eye(2, dtype=x.dtype)
        direction = torch.linalg.solve(hessian, gradient)
        # where scores are almost two values, a longer step leads where every p is 0 or 1 and curvature is lost
        direction *= (4 / (x @ direction).abs().max().clamp(min=1e-12)).clamp(max=1)
        step = 1.0
        while step > 1e-6 and loss(theta - step * direction) > loss(theta):
            step /= 2
        if step <= 1e-6:
            break
        theta = theta - step * direction
        if direction.abs().max() < 1e-9:
            break
    if theta[0] <= 0:
        return 0.0, torch.logit(prior).item()
    scale = (theta[0] / spread).item()
    return scale, (theta[1] - scale * sample.score.mean()).item()


def calibrate(scorer: Scorer, facts: Facts, *, known: FactIndex, slots: str, generator: torch.Generator) -> Calibration:
    """Fit σ(a θ + b) for every slot that has more than one id, on facts that were not trained on."""
    return Calibration(
        {
            slot: platt(sample_candidates(scorer, facts, slot, known=known, generator=generator))
            for slot in slots
            if known.size(slot) > 1
        }
    )


def reliability(probability: Tensor, sample: Sample, *, bins: int = 10) -> dict[str, Any]:
    """How far probabilities are from frequencies: Brier score, log loss, expected error, and a table by bin."""
    p, y, w = probability, sample.truth.double(), sample.weight / sample.weight.sum()
    safe = p.clamp(1e-12, 1 - 1e-12)
    bin_of = (p * bins).long().clamp(max=bins - 1)
    mass, mean_p, mean_y = (torch.zeros(bins, dtype=p.dtype).index_add_(0, bin_of, v) for v in (w, w * p, w * y))
    rows = [
        {
            "from": i / bins,
            "predicted": (mean_p[i] / mass[i]).item(),
            "observed": (mean_y[i] / mass[i]).item(),
            "candidates": int((bin_of == i).sum()),
        }
        for i in range(bins)
        if mass[i] > 0
    ]
    return {
        "brier": (w * (p - y) ** 2).sum().item(),
        "log_loss": -(w * (y * safe.log() + (1 - y) * (1 - safe).log())).sum().item(),
        "expected_error": (mean_p - mean_y).abs().sum().item(),
        "bins": rows,
    }


def reliability_report(
    scorer: Scorer, facts: Facts, calibration: Calibration, *, known: FactIndex, slots: str, generator: torch.Generator
) -> dict[str, dict[str, Any]]:
    """Per slot, the reliability of σ(θ) and of the calibrated probability on the same candidates."""
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
