"""What any model must beat: the answer given most often before, or most often near the time asked for.

    score(n) = Σ (1 + |t − τ|)^−decay    over the facts (s, p, n, τ) that were learned,

and where that leaves ties, the same answers' frequency with the predicate, then at all.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from recollect.graph.fact_index import expand_ranges
from recollect.graph.facts import KINDS, SLOTS, Facts, encode

DECAYS = {"frequency": 0.0, "recency": 1.0}
SECOND, THIRD = 1e-5, 1e-10  # far below the least that one fact can say before


class Baseline:
    """Answers by counting; a scorer like a model, for the slots s p o t.

    >>> facts = Facts.of([(0, 0, 1, 0), (0, 0, 1, 5), (0, 0, 2, 9)])
    >>> sizes = {"entity": 3, "predicate": 1, "time": 10}
    >>> [Baseline(facts, sizes, decay=d).score_against(facts[2:], "o").argmax().item() for d in (0, 1)]
    [1, 2]
    """

    def __init__(self, facts: Facts, sizes: Mapping[str, int], *, decay: float = 0.0) -> None:
        self.facts, self.sizes, self.decay = facts.true(), sizes, decay
        self._sorted: dict[str, tuple[Tensor, Facts]] = {}

    def score_against(self, facts: Facts, slot: str, candidates: Tensor | None = None) -> Tensor:
        """Entry (b, n) is the score of fact b with `slot` replaced by id n: (B, N)."""
        rows, found = self._same(facts, slot)
        size = self.sizes[KINDS[slot]]
        scores = torch.zeros(len(facts), size, dtype=torch.float64)
        if slot == "t":
            scores.index_put_((rows, found.t), torch.ones(len(rows), dtype=torch.float64), accumulate=True)
            scores = scores @ self._near(torch.arange(size)[:, None] - torch.arange(size))
        else:
            near = self._near(facts.t[rows] - found.t)
            scores.index_put_((rows, found.column(slot)), near, accumulate=True)
        usual = self._counts(slot)
        if slot != "p":
            scores += SECOND * self._counts(slot, "p")[facts.p]
        scores += THIRD * usual
        if candidates is None:
            return scores
        return scores[:, candidates] if candidates.dim() == 1 else scores.gather(1, candidates)

    def _near(self, apart: Tensor) -> Tensor:
        return (1 + apart.abs().double()) ** -self.decay

    def _same(self, facts: Facts, slot: str) -> tuple[Tensor, Facts]:
        """Learned facts that agree with each fact in all but the slot and time, and which fact that is."""
        others = SLOTS.replace(slot, "").replace("t", "")
        if slot not in self._sorted:
            keys, order = encode(self.facts, self.sizes, others).sort(stable=True)
            self._sorted[slot] = keys, self.facts[order]
        keys, learned = self._sorted[slot]
        wanted = encode(facts, self.sizes, others)
        rows, places = expand_ranges(torch.searchsorted(keys, wanted), torch.searchsorted(keys, wanted, right=True))
        return rows, learned[places]

    def _counts(self, slot: str, by: str = "") -> Tensor:
        """The share of all facts that have each id of a slot, by another slot if told."""
        size = self.sizes[KINDS[slot]]
        rows = self.sizes[KINDS[by]] if by else 1
        codes = self.facts.column(slot) + (size * self.facts.column(by) if by else 0)
        counts = torch.bincount(codes, minlength=rows * size).double() / (len(self.facts) + 1)
        return counts.view(rows, size) if by else counts
