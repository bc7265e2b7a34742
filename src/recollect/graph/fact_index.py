"""An index of known facts by binary search: it filters rankings and keeps negatives away from known facts."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from recollect.graph.facts import KINDS, ORDER, Facts, concat_ranges, encode


class FactIndex:
    """Finds the ids of a slot that complete a true fact, given all other slots.

    >>> facts = Facts.of([(0, 0, 1, 0), (0, 0, 2, 0), (1, 0, 2, 0)])
    >>> known = FactIndex(facts, {"entity": 3, "predicate": 1, "time": 1})
    >>> [column.tolist() for column in known.find(facts, "o")]
    [[0, 0, 1, 1, 2], [1, 2, 1, 2, 2]]
    """

    def __init__(self, facts: Facts, sizes: Mapping[str, int]) -> None:
        self._facts, self.sizes = facts.true(), sizes
        self._codes: dict[str, Tensor] = {}  # slot -> key · size + id of each fact, sorted: (m,); built at first use
        self._gaps: dict[str, Tensor] = {}

    @property
    def facts(self) -> Facts:
        """The known facts."""
        return self._facts

    def count_at(self, time: int) -> int:
        """Return the number of known facts of a time."""
        return int((self.facts.t == time).sum())

    def size(self, slot: str) -> int:
        """Return the number of candidate ids of a slot."""
        return self.sizes[KINDS[slot]]

    def keys(self, facts: Facts, slot: str) -> Tensor:
        """Return key · size(slot) of each fact, key encoding its other three slots: (B,); adding an id gives a code."""
        return encode(facts, self.sizes, ORDER.replace(slot, "")) * self.size(slot)

    def codes(self, slot: str) -> Tensor:
        """Return the codes of the m distinct known facts, `keys` plus the id of the slot, sorted: (m,)."""
        if slot not in self._codes:
            self._codes[slot] = torch.unique(encode(self.facts, self.sizes, _order(slot)))
        return self._codes[slot]

    def ids(self, slot: str) -> Tensor:
        """Return the id of the slot in each of the m distinct known facts, in the order of `codes`: (m,)."""
        return self.codes(slot) % self.size(slot)

    def ranges(self, keys: Tensor, slot: str) -> tuple[Tensor, Tensor]:
        """Return start and stop, (B,) each: ids(slot)[start[b]:stop[b]] complete known facts with keys[b]."""
        codes = self.codes(slot)
        return torch.searchsorted(codes, keys), torch.searchsorted(codes, keys + self.size(slot))

    def find(self, facts: Facts, slot: str) -> tuple[Tensor, Tensor]:
        """Return (row, id) pairs, (k,) each: fact `row` with `slot` set to `id` is known. Sorted by row, then id."""
        rows, positions = expand_ranges(*self.ranges(self.keys(facts, slot), slot))
        return rows, self.codes(slot)[positions] % self.size(slot)

    def mask(self, facts: Facts, slot: str) -> Tensor:
        """Return whether each id of a slot completes a known fact: (B, N) bool."""
        found = torch.zeros(len(facts), self.size(slot), dtype=torch.bool)
        found[self.find(facts, slot)] = True
        return found

    def contains(self, facts: Facts) -> Tensor:
        """Return whether each fact is known: (B,) bool."""
        codes, queries = self.codes("o"), encode(facts, self.sizes, ORDER)
        return torch.searchsorted(codes, queries, right=True) > torch.searchsorted(codes, queries)

    def draw_unknown(self, facts: Facts, slot: str, count: int, generator: torch.Generator) -> Tensor:
        """Sample ids that complete no known fact, uniformly and without rejection: (B, count).

        The r-th id outside a sorted list k_0 < k_1 < … is r + #{j : k_j − j ≤ r}. Where every id completes a known
        fact, sample among all ids but the fact's own.
        """
        keys = self.keys(facts, slot)
        start, stop = self.ranges(keys, slot)
        free = self.size(slot) - (stop - start)
        fraction = torch.rand(len(facts), count, dtype=torch.float64, generator=generator)
        nth = (fraction * free[:, None]).long()
        skipped = torch.searchsorted(self._gaps_of(slot), keys[:, None] + nth, right=True) - start[:, None]
        is_full = (free == 0)[:, None]
        return torch.where(is_full, draw_other(facts, slot, self.size(slot), fraction), nth + skipped)

    def _gaps_of(self, slot: str) -> Tensor:
        """Return codes[i] − j of each known fact, i being the j-th of its key, sorted: (m,)."""
        if slot not in self._gaps:
            codes = self.codes(slot)
            _, counts = torch.unique_consecutive(codes // self.size(slot), return_counts=True)
            starts = torch.repeat_interleave(counts.cumsum(0) - counts, counts)
            self._gaps[slot] = codes - (torch.arange(len(codes)) - starts)
        return self._gaps[slot]

    def changed(self, facts: Facts, sizes: Mapping[str, int], before: Facts, after: Facts) -> FactIndex:
        """Return the index of facts that differ from these by `after` in the place of `before`.

        There may be more ids, but each has the number that it had. What is built stays so: codes are corrected.
        """
        other = FactIndex(facts, sizes)
        for slot, codes in self._codes.copy().items():  # questions in other threads may add to them meanwhile
            order = _order(slot)
            codes = codes if sizes == self.sizes else _recode(codes, self.sizes, sizes, order)
            old, new = (encode(part.true(), sizes, order).unique() for part in (before, after))
            gone, added = old[~torch.isin(old, new)].numpy(), new[~torch.isin(new, old)].numpy()
            kept = np.delete(codes.numpy(), np.searchsorted(codes.numpy(), gone))
            other._codes[slot] = torch.from_numpy(np.insert(kept, np.searchsorted(kept, added), added))
        return other


def _order(slot: str) -> str:
    """Return the slots of a code, the asked one last."""
    return ORDER.replace(slot, "") + slot


def _recode(codes: Tensor, old: Mapping[str, int], new: Mapping[str, int], order: str) -> Tensor:
    """Return the codes (m,) of the same facts among other numbers of ids."""
    rest, radix = codes.numpy(), 1
    recoded = np.zeros_like(rest)
    for slot in reversed(order):
        rest, digit = np.divmod(rest, old[KINDS[slot]])
        recoded += digit * radix
        radix *= new[KINDS[slot]]
    return torch.from_numpy(recoded)


def expand_ranges(start: Tensor, stop: Tensor) -> tuple[Tensor, Tensor]:
    """List the integers of each range [start, stop): return the index of the range and the integer, (m,) each."""
    lengths = stop - start
    rows = torch.repeat_interleave(torch.arange(len(start)), lengths)
    return rows, concat_ranges(start, lengths)


def draw_other(facts: Facts, slot: str, size: int, fraction: Tensor) -> Tensor:
    """Map fractions in [0, 1) to ids in [0, size) other than the fact's own: (B, count) -> (B, count)."""
    ids = (fraction * (size - 1)).long()
    return ids + (ids >= facts.column(slot)[:, None])
