"""Known facts, found by binary search: the filter of every ranking and the fence of every corruption."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from recollect.graph.facts import KINDS, ORDER, Facts, number, runs


@dataclass(frozen=True)
class _Index:
    """For one open slot: every known fact as one sorted number, the other slots first, the slot's id last."""

    codes: Tensor  # (m,) sorted: key(other slots) * n + id
    gaps: Tensor  # (m,) sorted: the same with id - j for the j-th known id of its key


class FactIndex:
    """Which ids of a slot complete a true fact, keyed on all other slots.

    >>> facts = Facts.of([(0, 0, 1, 0), (0, 0, 2, 0), (1, 0, 2, 0)])
    >>> known = FactIndex(facts, {"entity": 3, "predicate": 1, "time": 1})
    >>> [column.tolist() for column in known.find(facts, "o")]
    [[0, 0, 1, 1, 2], [1, 2, 1, 2, 2]]
    """

    def __init__(self, facts: Facts, sizes: Mapping[str, int]) -> None:
        self.facts = facts.true()
        self.sizes = sizes
        self._indexes: dict[str, _Index] = {}

    def size(self, slot: str) -> int:
        return self.sizes[KINDS[slot]]

    def keys(self, facts: Facts, slot: str) -> Tensor:
        """One number for the other three slots, times the number of candidates: (B,)."""
        return number(facts, self.sizes, ORDER.replace(slot, "")) * self.size(slot)

    def _index(self, slot: str) -> _Index:
        if slot not in self._indexes:
            codes = torch.unique(number(self.facts, self.sizes, ORDER.replace(slot, "") + slot))
            _, counts = torch.unique_consecutive(codes // self.size(slot), return_counts=True)
            starts = torch.repeat_interleave(counts.cumsum(0) - counts, counts)
            self._indexes[slot] = _Index(codes, codes - (torch.arange(len(codes)) - starts))
        return self._indexes[slot]

    def _span(self, facts: Facts, slot: str) -> tuple[Tensor, Tensor, Tensor]:
        """The keys of `facts` and where their known ids begin and end among the sorted codes."""
        keys, codes = self.keys(facts, slot), self._index(slot).codes
        return keys, torch.searchsorted(codes, keys), torch.searchsorted(codes, keys + self.size(slot))

    def codes(self, slot: str) -> Tensor:
        """Every known fact as the key of its other slots plus the slot's id, sorted: (m,)."""
        return self._index(slot).codes

    def find(self, facts: Facts, slot: str) -> tuple[Tensor, Tensor]:
        """Coordinates (row, id) of every known completion: fact `row` with `slot` set to `id` is true."""
        _, start, stop = self._span(facts, slot)
        rows, places = members(start, stop)
        return rows, self._index(slot).codes[places] % self.size(slot)

    def contains(self, facts: Facts) -> Tensor:
        """Whether each fact is known: (B,) bool."""
        codes = self._index("o").codes
        wanted = number(facts, self.sizes, ORDER)
        # found where one more code lies at or below the wanted one than strictly below it
        return torch.searchsorted(codes, wanted, right=True) > torch.searchsorted(codes, wanted)

    def draw_unknown(self, facts: Facts, slot: str, count: int, generator: torch.Generator) -> Tensor:
        """Ids that complete no known fact, uniformly and without rejection: (B, count).

        The r-th id outside a sorted list k_0 < k_1 < … is r + #{j : k_j − j ≤ r}. A fact that every id
        completes has no such id and gets any other than its own.
        """
        keys, start, stop = self._span(facts, slot)
        free = self.size(slot) - (stop - start)
        fraction = torch.rand(len(facts), count, dtype=torch.float64, generator=generator)
        nth = (fraction * free[:, None]).long()
        skipped = torch.searchsorted(self._index(slot).gaps, keys[:, None] + nth, right=True) - start[:, None]
        full = (free == 0)[:, None]
        return torch.where(full, draw_other(facts, slot, self.size(slot), fraction), nth + skipped)


def members(start: Tensor, stop: Tensor) -> tuple[Tensor, Tensor]:
    """Every place of spans [start, stop), and the span that each lies in: (n,) -> (m,), (m,)."""
    counts = stop - start
    rows = torch.repeat_interleave(torch.arange(len(start)), counts)
    return rows, runs(start, counts)


def draw_other(facts: Facts, slot: str, size: int, fraction: Tensor) -> Tensor:
    """The id at `fraction` of all ids but the fact's own: (B, count) in [0, 1) -> (B, count)."""
    drawn = (fraction * (size - 1)).long()
    return drawn + (drawn >= facts.column(slot)[:, None])
