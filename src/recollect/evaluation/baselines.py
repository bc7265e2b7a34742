"""Score answers by counting: frequency and recency, the baselines that any model must beat.

    score(n) = Σ (1 + |t − τ|)^−decay    over the training facts (s, p, n, τ).

Ties are broken by the frequency of n with the predicate, then by its frequency in all facts.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from recollect.graph.fact_index import expand_ranges
from recollect.graph.facts import KINDS, SLOTS, Facts, encode

DECAYS = {"frequency": 0.0, "recency": 1.0}
# weights of the two tie-breakers, which are shares up to 1: each is far below the least that one fact adds before it
BY_PREDICATE, OVERALL = 1e-5, 1e-10


class Baseline:
    """A scorer for the slots s p o t that counts training facts.

    >>> facts = Facts.of([(0, 0, 1, 0), (0, 0, 1, 5), (0, 0, 2, 9)])
    >>> sizes = {"entity": 3, "predicate": 1, "time": 10}
    >>> [Baseline(facts, sizes, decay=d).score_against(facts[2:], "o").argmax().item() for d in (0, 1)]
    [1, 2]
    """

    def __init__(self, facts: Facts, sizes: Mapping[str, int], *, decay: float = 0.0) -> None:
        self.facts, self.sizes, self.decay = facts.true(), sizes, decay
        self._sorted: dict[str, tuple[Tensor, Facts]] = {}  # slot -> sorted keys (n,) and the facts in that order
        self._shares: dict[str, tuple[Tensor, Tensor]] = {}  # slot -> tie-breakers (predicates, N) and (N,)

    def score(self, facts: Facts) -> Tensor:
        """Return the score of each fact's object: (B,)."""
        return self.score_against(facts, "o", facts.o[:, None])[:, 0]

    def score_against(self, facts: Facts, slot: str, candidates: Tensor | None = None) -> Tensor:
        """Return the score of fact b with `slot` replaced by candidate n: (B, N)."""
        rows, found = self._matches(facts, slot)
        size = self.sizes[KINDS[slot]]
        scores = torch.zeros(len(facts), size, dtype=torch.float64)
        if slot == "t":
            scores.index_put_((rows, found.t), torch.ones(len(rows), dtype=torch.float64), accumulate=True)
            scores = scores @ self._recency(torch.arange(size)[:, None] - torch.arange(size))
        else:
            recency = self._recency(facts.t[rows] - found.t)
            scores.index_put_((rows, found.column(slot)), recency, accumulate=True)
        by_predicate, overall = self._tie_breakers(slot)
        if slot != "p":
            scores += by_predicate[facts.p]
        scores += overall
        if candidates is None:
            return scores
        return scores[:, candidates] if candidates.dim() == 1 else scores.gather(1, candidates)

    def _recency(self, distance: Tensor) -> Tensor:
        """Return (1 + |distance|)^−decay."""
        return (1 + distance.abs().double()) ** -self.decay

    def _matches(self, facts: Facts, slot: str) -> tuple[Tensor, Facts]:
        """Return (rows, training facts): fact rows[m] and training fact m agree in all slots but `slot` and time."""
        others = SLOTS.replace(slot, "").replace("t", "")
        if slot not in self._sorted:
            keys, order = encode(self.facts, self.sizes, others).sort(stable=True)
            self._sorted[slot] = keys, self.facts[order]
        keys, training = self._sorted[slot]
        wanted = encode(facts, self.sizes, others)
        rows, places = expand_ranges(torch.searchsorted(keys, wanted), torch.searchsorted(keys, wanted, right=True))
        return rows, training[places]

    def _tie_breakers(self, slot: str) -> tuple[Tensor, Tensor]:
        """Return the weighted shares of training facts with each id of a slot, by predicate (M, N) and overall (N,)."""
        if slot not in self._shares:
            size, predicates = self.sizes[KINDS[slot]], self.sizes["predicate"]
            codes = encode(self.facts, self.sizes, "p" + slot)
            counts = torch.bincount(codes, minlength=predicates * size).view(predicates, size).double()
            total = len(self.facts) + 1
            self._shares[slot] = BY_PREDICATE * (counts / total), OVERALL * (counts.sum(0) / total)
        return self._shares[slot]
