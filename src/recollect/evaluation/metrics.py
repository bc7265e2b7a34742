"""Summarise rankings (MRR, Hits@n, mean rank) and the precision and recall of scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import polars as pl
import torch
from torch import Tensor

from recollect.errors import UserError
from recollect.evaluation.ranking import TIES, Ranking, Scorer, rank
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import SLOT_NAMES, Facts

HITS = (1, 3, 10)
INTERPOLATION, SINGLE_STEP = "interpolation", "single step"

Metrics = dict[str, Any]  # metric -> value, and "optimistic" and "pessimistic" -> metrics of that tie policy


@dataclass(frozen=True, repr=False)
class Evaluation:
    """The metrics of one split, by slot: "subject", "predicate", "object", "time", and "entity" for s and o together.

    Examples:
        >>> metrics = {"mrr": 0.5, "hits@10": 0.75}
        >>> found = Evaluation("test", 40, {"entity": metrics}, {"entity": metrics}, {})
        >>> found
        Evaluation(test, 40 facts, filtered entity MRR 0.500, Hits@10 0.750)
        >>> found.to_frame().row(0)
        ('test', 'entity', 'filtered', 'mrr', 0.5)
    """

    split: str
    facts: int  # number of facts that were ranked
    filtered: Mapping[str, Metrics]  # slot -> metrics of realistic ties; other policies under their names
    raw: Mapping[str, Metrics]
    calibration: Mapping[str, Mapping[str, Metrics]]  # slot -> reliability "before" (σ(x)) and "after" calibration
    protocol: str = INTERPOLATION  # or SINGLE_STEP: everything before the asked time is stored
    intervals: Mapping[str, float] = field(default_factory=dict)  # aeIOU, gIOU and TAC of a split with intervals

    def __repr__(self) -> str:
        slot = "entity" if "entity" in self.filtered else next(iter(self.filtered))
        mrr, hits = self.filtered[slot]["mrr"], self.filtered[slot]["hits@10"]
        return f"Evaluation({self.split}, {self.facts:,} facts, filtered {slot} MRR {mrr:.3f}, Hits@10 {hits:.3f})"

    def to_dict(self) -> dict[str, Any]:
        """Return nested dictionaries of plain numbers: the JSON of `recollect evaluate --json`."""
        return asdict(self)

    def to_frame(self) -> pl.DataFrame:
        """Return one row per number: split, slot, filter, metric, value.

        Metrics of other tie policies end in `_optimistic` and `_pessimistic`. Those of probabilities (`brier`,
        `log_loss`, `expected_error`, `likely_error`) have no filter; without calibration they end in `_uncalibrated`.
        Those of intervals have no filter either.
        """
        labels = dict.fromkeys(("split", "slot", "filter", "metric"), pl.String)
        rows = [(self.split, *row) for row in self._rows()]
        return pl.DataFrame(rows, schema=labels | {"value": pl.Float64}, orient="row")

    def _rows(self) -> Iterator[tuple[str, str | None, str, float]]:
        """Yield (slot, filter, metric, value)."""
        for setting, slots in (("filtered", self.filtered), ("raw", self.raw)):
            for slot, metrics in slots.items():
                for name, value in metrics.items():
                    if isinstance(value, Mapping):  # another tie policy
                        yield from ((slot, setting, f"{metric}_{name}", number) for metric, number in value.items())
                    else:
                        yield slot, setting, name, value
        for slot, reports in self.calibration.items():
            for stage, suffix in (("before", "_uncalibrated"), ("after", "")):
                for name, value in reports[stage].items():
                    if name != "bins":
                        yield slot, None, name + suffix, value
        for name, value in self.intervals.items():
            yield "time", None, name, value


def evaluate(scorer: Scorer, facts: Facts, *, known: FactIndex, slots: str = "spot") -> dict[str, dict[str, Metrics]]:
    """Return "filtered" and "raw" metrics of every slot in `slots`; "entity" is subject and object together."""
    facts = facts.true()
    rankings = {slot: rank(scorer, facts, slot, known=known) for slot in slots}
    report: dict[str, dict[str, Metrics]] = {}
    for setting in ("filtered", "raw"):
        groups = {SLOT_NAMES[slot]: [ranking[setting]] for slot, ranking in rankings.items()}
        if "s" in slots and "o" in slots:
            groups["entity"] = [rankings["s"][setting], rankings["o"][setting]]
        report[setting] = {name: _all_policies(group) for name, group in groups.items()}
    return report


def _all_policies(rankings: Sequence[Ranking]) -> Metrics:
    """Return the metrics of realistic ties, and those of the other tie policies under their names."""
    others = {policy: summarise(rankings, policy) for policy in TIES if policy != "realistic"}
    return {**summarise(rankings), **others}


def summarise(rankings: Sequence[Ranking], policy: str = "realistic") -> dict[str, float]:
    """Return MRR, Hits@n, mean rank and adjusted mean rank index over the facts of all `rankings`.

    The adjusted mean rank index is 1 − (mean rank − 1) / (its expectation under random scores − 1):
    1 is perfect, 0 is chance.
    """
    ranks = torch.cat([ranking.ranks(policy) for ranking in rankings])
    others = torch.cat([ranking.others for ranking in rankings]).double()
    expected = others.mean() / 2  # of rank − 1 under random scores
    report = {"mrr": ranks.reciprocal().mean().item()}
    report |= {f"hits@{n}": (ranks <= n).double().mean().item() for n in HITS}
    report["mean_rank"] = ranks.mean().item()
    report["adjusted_mean_rank_index"] = (1 - (ranks.mean() - 1) / expected).item() if expected > 0 else 0.0
    return report


def precision_recall(scores: Tensor, truth: Tensor) -> dict[str, float]:
    """Return the area under the precision-recall curve of scores (n,), and the recall at as many as are true.

    `auprc` is the average precision Σ_k (R_k − R_{k−1}) P_k over the distinct scores from the highest. `recall` is the
    share of the true ones among the n₊ highest scores, n₊ being the number of true ones, at random among equal scores.
    """
    truth = truth.double()
    if not bool(truth.any()):
        raise UserError("precision and recall need at least one true fact; none was given")
    if bool(scores.isnan().any()):
        raise UserError("some scores are NaN, so nothing can be measured; train again with a lower learning rate")
    _, ascending = scores.unique(return_inverse=True)
    level = int(ascending.max()) - ascending  # 0 for the highest score
    levels = int(level.max()) + 1
    count = torch.zeros(levels, dtype=torch.float64).index_add_(0, level, torch.ones_like(truth))
    true = torch.zeros(levels, dtype=torch.float64).index_add_(0, level, truth)
    count_so_far, true_so_far, total = count.cumsum(0), true.cumsum(0), truth.sum()
    last = int((count_so_far < total).sum())  # the level in which the n₊-th highest score lies
    above = count_so_far[last] - count[last]
    share = (total - above) / count[last]  # of that level, taken at random
    recall = (true_so_far[last] - true[last] + true[last] * share) / total
    auprc = ((true / total) * (true_so_far / count_so_far)).sum()
    return {"auprc": auprc.item(), "recall": recall.item()}
