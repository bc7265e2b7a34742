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
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import SLOT_NAMES, Facts, check_ids, stable_sort

TIES = {"realistic": 0.5, "optimistic": 0.0, "pessimistic": 1.0}  # the share of ties that count as greater
BYTES = 8 * 2**20  # of scores at a time: they stay in a processor's cache until they are counted


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
def rank(scorer: Scorer, facts: Facts, slot: str, *, known: FactIndex, budget: int = BYTES) -> dict[str, Ranking]:
    """The "raw" and "filtered" ranking of each fact's own id of `slot` among all ids.

    The filtered one leaves out every other id that completes a known fact. `budget` bounds the bytes
    of scores that a thread holds at a time, where they are not made a few rows at a time in one pass with their
    counting; a model bounds each thread's own work beside them.
    """
    # facts of one time and predicate together: a model may then do once what they share, and known ones lie in order
    _, order = stable_sort(known.keys(facts, slot))
    own = facts.column(slot)[order]
    check_ids(slot, own, known.size(slot))
    facts = facts[order]
    found = torch.empty(len(facts), 6, dtype=torch.int64)
    rows = max(1, budget // (8 * known.size(slot)))  # of at most 8 bytes a number
    for first in range(0, len(facts), rows):
        block = slice(first, first + rows)
        found[order[block]] = _compare(scorer.score_against(facts[block], slot), facts[block], slot, known)
    return {"raw": Ranking(*found.T[:3]), "filtered": Ranking(*found.T[3:])}


def _compare(scores: Tensor, facts: Facts, slot: str, known: FactIndex) -> Tensor:
    """How many others beat each fact's own id, tie with it, and are there; then the same of unknown ones: (B, 6).

    As the compiled `count_better`, in plain PyTorch, on any device.
    """
    if scores.isnan().any():
        raise _not_a_number(slot)
    target = scores.gather(1, facts.column(slot)[:, None].to(scores.device))  # (B, 1)
    greater, equal = (x.sum(dim=1).cpu() for x in (scores > target, scores == target))
    rows, ids = known.find(facts, slot)
    other = ids != facts.column(slot)[rows]
    rows, ids = rows[other], ids[other]
    found, own = scores[rows.to(scores.device), ids.to(scores.device)], target[rows.to(scores.device), 0]

    def count(which: Tensor) -> Tensor:
        return torch.bincount(rows[which.cpu()], minlength=len(facts))

    raw = torch.stack([greater, equal - 1, torch.full_like(greater, scores.shape[1] - 1)], dim=1)
    hidden = torch.stack([count(found > own), count(found == own), torch.bincount(rows, minlength=len(facts))], dim=1)
    return torch.cat([raw, raw - hidden], dim=1)


def _not_a_number(slot: str) -> UserError:
    return UserError(
        f"the model scores some {SLOT_NAMES[slot]} as NaN, so nothing can be ranked; "
        "train again with a lower learning rate"
    )
