"""Ranks of true facts among all candidates of a slot, raw and filtered, in bounded memory.

rank = 1 + #greater + ½ #ties among the others. The true score is read from the same matrix as the
candidates'; the filter subtracts what it removes, found as coordinates, so no query is looped over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from recollect.errors import UserError
from recollect.facts import SLOT_NAMES, Facts
from recollect.known import Known

TIES = {"realistic": 0.5, "optimistic": 0.0, "pessimistic": 1.0}  # the share of ties that count as greater
BYTES = 32 * 2**20  # of scores and their comparisons at a time: about a processor's cache


class Scorer(Protocol):
    """All that judging knows of a model."""

    def score_against(self, facts: Facts, slot: str, candidates: Tensor | None = None) -> Tensor: ...


@dataclass(frozen=True)
class Ranking:
    """How many others beat each fact, how many tie with it, and how many there are: (n,) each."""

    greater: Tensor
    ties: Tensor
    others: Tensor

    def ranks(self, policy: str = "realistic") -> Tensor:
        """The rank of each fact from 1: (n,) float64."""
        return 1 + self.greater.double() + TIES[policy] * self.ties.double()


@torch.no_grad()
def rank(scorer: Scorer, facts: Facts, slot: str, *, known: Known, budget: int = BYTES) -> dict[str, Ranking]:
    """The "raw" and "filtered" ranking of each fact's own id of `slot` among all ids.

    The filtered one leaves out every other id that completes a known fact. `budget` bounds the bytes
    of scores held at a time; a model bounds its own work beside it.
    """
    n = known.size(slot)
    raw = [torch.zeros(3, 0, dtype=torch.int64)]
    known_others = [torch.zeros(3, 0, dtype=torch.int64)]
    work = None  # the comparison's buffer, kept between chunks
    for chunk in facts.split(max(1, budget // (16 * n))):  # two numbers a candidate, of at most 8 bytes
        scores = scorer.score_against(chunk, slot)  # (B, n)
        target = scores.gather(1, chunk.column(slot)[:, None].to(scores.device))  # (B, 1)
        _refuse_nan(scores, slot)
        if work is None or work.shape != scores.shape:
            work = torch.empty_like(scores)
        raw.append(_compare(scores, target, work))
        known_others.append(_compare_known(scores, target, chunk, slot, known))
    everything, hidden = torch.cat(raw, dim=1), torch.cat(known_others, dim=1)
    return {"raw": Ranking(*everything), "filtered": Ranking(*(everything - hidden))}


def _compare(scores: Tensor, target: Tensor, work: Tensor) -> Tensor:
    """How many other candidates beat each target, tie with it, and are there: (3, B)."""
    # ones and zeros in the scores' own type, summed: several times faster than counting booleans
    greater = torch.gt(scores, target, out=work).sum(dim=1).long().cpu()
    equal = torch.eq(scores, target, out=work).sum(dim=1).long().cpu()
    return torch.stack([greater, equal - 1, torch.full_like(greater, scores.shape[1] - 1)])


def _compare_known(scores: Tensor, target: Tensor, facts: Facts, slot: str, known: Known) -> Tensor:
    """The same counts among the known completions other than the fact itself, which the filter takes away: (3, B)."""
    rows, ids = known.find(facts, slot)
    other = ids != facts.column(slot)[rows]
    rows, ids = rows[other], ids[other]
    found = scores[rows.to(scores.device), ids.to(scores.device)]
    own = target[rows.to(scores.device), 0]

    def count(which: Tensor) -> Tensor:
        return torch.bincount(rows[which.cpu()], minlength=len(facts))

    return torch.stack([count(found > own), count(found == own), torch.bincount(rows, minlength=len(facts))])


def _refuse_nan(scores: Tensor, slot: str) -> None:
    # a sum is one cheap pass and is NaN whenever a score is
    if scores.sum().isnan() and scores.isnan().any():
        raise UserError(
            f"the model scores some {SLOT_NAMES[slot]} as NaN, so nothing can be ranked; "
            "train again with a lower learning rate"
        )
