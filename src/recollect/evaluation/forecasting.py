"""Evaluate forecasts one step ahead: questions about a time are answered from the facts before it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from recollect.evaluation.ranking import Scorer
from recollect.graph.facts import Facts


class SingleStep:
    """A scorer whose store grows: `before(facts)` returns the scorer that knows the facts before the asked time.

    >>> class LastObject:
    ...     def __init__(self, facts):
    ...         self.facts = facts
    ...     def score_against(self, facts, slot, candidates=None):
    ...         return torch.eye(3)[self.facts.o[-1:]].expand(len(facts), -1)
    >>> facts = Facts.of([(0, 0, 1, 0), (0, 0, 2, 1), (0, 0, 0, 2)])
    >>> SingleStep(LastObject, facts).score_against(facts[1:], "o").argmax(dim=1).tolist()
    [1, 2]
    """

    def __init__(self, before: Callable[[Facts], Scorer], facts: Facts) -> None:
        self.before, self.facts = before, facts
        self._latest: tuple[int, Scorer] | None = None  # time, and the scorer for it: questions come sorted by time

    def score(self, facts: Facts) -> Tensor:
        """Return the score of each fact's object: (B,)."""
        return self.score_against(facts, "o", facts.o[:, None])[:, 0]

    def score_against(self, facts: Facts, slot: str, candidates: Tensor | None = None) -> Tensor:
        """Return the score of fact b with `slot` replaced by candidate n: (B, N)."""
        if slot == "t":
            raise ValueError("a forecast is asked for a time; there is none to predict")
        parts, order = [], []
        for time in facts.t.unique().tolist():
            rows = (facts.t == time).nonzero()[:, 0]
            chosen = candidates[rows] if candidates is not None and candidates.dim() == 2 else candidates
            parts.append(self._at(time).score_against(facts[rows], slot, chosen))
            order.append(rows)
        return torch.cat(parts)[torch.cat(order).argsort()]

    def _at(self, time: int) -> Scorer:
        if self._latest is None or self._latest[0] != time:
            self._latest = time, self.before(self.facts[self.facts.t < time])
        return self._latest[1]
