"""An index of known runs: which ids complete a fact that holds at a time, without listing the times of any run."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from recollect.graph.fact_index import FactIndex, expand_ranges
from recollect.graph.facts import KINDS, Facts, encode
from recollect.graph.runs import Runs, merge_runs


class AnswerIndex(Protocol):
    """What questions need of an index of known facts."""

    @property
    def sizes(self) -> Mapping[str, int]:
        """The number of entities, predicates and times, by kind."""

    def size(self, slot: str) -> int:
        """Return the number of candidate ids of a slot."""

    def find(self, facts: Facts, slot: str) -> tuple[Tensor, Tensor]:
        """Return (row, id) pairs, (k,) each: fact `row` with `slot` set to `id` is known. Sorted by row, then id."""

    def mask(self, facts: Facts, slot: str) -> Tensor:
        """Return whether each id of a slot completes a known fact: (B, N) bool."""

    def contains(self, facts: Facts) -> Tensor:
        """Return whether each fact is known: (B,) bool."""


class RunIndex:
    """Finds the ids of a slot that complete a true fact, given all other slots: runs by their slots other than time.

    A question visits the runs of its key: (s, p), (p, o) or (s, o) where an entity or predicate is asked for.

    >>> runs = Runs(Facts.of([(0, 0, 1, 2), (0, 0, 2, 4)]), torch.tensor([4, 6]))
    >>> known = RunIndex(runs, {"entity": 3, "predicate": 1, "time": 9})
    >>> known.find(Facts.of([(0, 0, 0, 4)]), "o")[1].tolist(), known.find(Facts.of([(0, 0, 1, 0)]), "t")[1].tolist()
    ([1, 2], [2, 3, 4])
    """

    def __init__(self, runs: Runs, sizes: Mapping[str, int]) -> None:
        self.sizes = sizes
        true = runs.true()
        self.runs = merge_runs(Runs(Facts(true.first.ids), true.last), sizes)
        self._indexes: dict[str, tuple[Tensor, Tensor]] = {}  # slot -> sorted keys (n,), the run of each (n,)

    def size(self, slot: str) -> int:
        """Return the number of candidate ids of a slot."""
        return self.sizes[KINDS[slot]]

    def find(self, facts: Facts, slot: str) -> tuple[Tensor, Tensor]:
        """Return (row, id) pairs, (k,) each: fact `row` with `slot` set to `id` is known. Sorted by row, then id."""
        if slot not in self._indexes:
            others = "spo".replace(slot, "")
            keys = encode(self.runs.first, self.sizes, others + slot.replace("t", ""))
            size = 1 if slot == "t" else self.size(slot)
            order = keys.argsort(stable=True)
            self._indexes[slot] = keys[order] // size, order
        keys, order = self._indexes[slot]
        wanted = encode(facts, self.sizes, "spo".replace(slot, ""))
        row, position = expand_ranges(torch.searchsorted(keys, wanted), torch.searchsorted(keys, wanted, right=True))
        run = order[position]
        if slot == "t":
            nth, time = expand_ranges(self.runs.first.t[run], self.runs.last[run] + 1)
            return row[nth], time
        time = facts.t[row]
        holds = (self.runs.first.t[run] <= time) & (self.runs.last[run] >= time)
        return row[holds], self.runs.first.column(slot)[run[holds]]

    def mask(self, facts: Facts, slot: str) -> Tensor:
        """Return whether each id of a slot completes a known fact: (B, N) bool."""
        found = torch.zeros(len(facts), self.size(slot), dtype=torch.bool)
        found[self.find(facts, slot)] = True
        return found

    def contains(self, facts: Facts) -> Tensor:
        """Return whether each fact is known: (B,) bool."""
        if not len(self.runs):
            return torch.zeros(len(facts), dtype=torch.bool)
        run = torch.searchsorted(self._starts, encode(facts, self.sizes), right=True) - 1
        found = self.runs[run.clamp(min=0)]
        is_same = (found.first.ids[:, :3] == facts.ids[:, :3]).all(dim=1)
        return is_same & (found.first.t <= facts.t) & (facts.t <= found.last)

    @cached_property
    def _starts(self) -> Tensor:
        """The first fact of each run, encoded: (n,) sorted."""
        return encode(self.runs.first, self.sizes)

    def around(self, facts: Facts, slots: str) -> FactIndex:
        """Return an index of single facts that answers questions for some slots of these facts as this one does."""
        known = [Facts.of([])]
        for slot in slots:
            row, ids = self.find(facts, slot)
            known.append(Facts(facts.ids[row]).with_slot(slot, ids))
        return FactIndex(Facts.concat(known), self.sizes)


def answer_index(known: Facts | Runs, sizes: Mapping[str, int]) -> FactIndex | RunIndex:
    """Return the index of known facts or runs."""
    return RunIndex(known, sizes) if isinstance(known, Runs) else FactIndex(known, sizes)
