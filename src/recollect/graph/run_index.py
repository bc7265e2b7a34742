"""An index of known runs: which ids complete a fact that holds at a time, without listing the times of any run."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import torch
from torch import Tensor

from recollect.graph.fact_index import FactIndex, expand_ranges
from recollect.graph.facts import Facts, encode
from recollect.graph.runs import Runs, merge_runs


class RunIndex(FactIndex):
    """An index of facts that is built from runs: `find`, `mask` and `contains` list no times of any run.

    Runs without an end cover the times after the axis too.

    A question visits the runs of its key: (s, p), (p, o) or (s, o) where an entity or predicate is asked for. Other
    methods expand all runs, if memory is enough.

    >>> runs = Runs(Facts.of([(0, 0, 1, 2), (0, 0, 2, 4)]), torch.tensor([4, 6]))
    >>> known = RunIndex(runs, {"entity": 3, "predicate": 1, "time": 9})
    >>> known.find(Facts.of([(0, 0, 0, 4)]), "o")[1].tolist(), known.find(Facts.of([(0, 0, 1, 0)]), "t")[1].tolist()
    ([1, 2], [2, 3, 4])
    """

    def __init__(self, runs: Runs, sizes: Mapping[str, int]) -> None:
        super().__init__(Facts.of([]), sizes)
        self.runs = merge_runs(runs.plain(), sizes)
        self._reach = self.runs.reach
        self._keys: dict[str, tuple[Tensor, Tensor]] = {}  # slot -> sorted keys (n,), the run of each (n,)

    @cached_property
    def facts(self) -> Facts:
        """The facts of all runs, expanded when they are first read."""
        return self.runs.expand("what is known")

    def count_at(self, time: int) -> int:
        """Return the number of runs that cover a time."""
        return int(self.runs.holds(time).sum())

    def find(self, facts: Facts, slot: str) -> tuple[Tensor, Tensor]:
        """Return (row, id) pairs, (k,) each: fact `row` with `slot` set to `id` is known. Sorted by row, then id."""
        if slot not in self._keys:
            others = "spo".replace(slot, "")
            keys = encode(self.runs.first, self.sizes, others + slot.replace("t", ""))
            size = 1 if slot == "t" else self.size(slot)
            order = keys.argsort(stable=True)
            self._keys[slot] = keys[order] // size, order
        keys, order = self._keys[slot]
        wanted = encode(facts, self.sizes, "spo".replace(slot, ""))
        row, position = expand_ranges(torch.searchsorted(keys, wanted), torch.searchsorted(keys, wanted, right=True))
        run = order[position]
        if slot == "t":
            nth, time = expand_ranges(self.runs.first.t[run], self.runs.last[run] + 1)
            return row[nth], time
        time = facts.t[row]
        holds = (self.runs.first.t[run] <= time) & (self._reach[run] >= time)
        return row[holds], self.runs.first.column(slot)[run[holds]]

    def contains(self, facts: Facts) -> Tensor:
        """Return whether each fact is known: (B,) bool."""
        if not len(self.runs):
            return torch.zeros(len(facts), dtype=torch.bool)
        on_axis = facts.with_slot("t", facts.t.clamp(max=self.sizes["time"] - 1))
        run = (torch.searchsorted(self._starts, encode(on_axis, self.sizes), right=True) - 1).clamp(min=0)
        first = self.runs.first[run]
        is_same = (first.ids[:, :3] == facts.ids[:, :3]).all(dim=1)
        return is_same & (first.t <= facts.t) & (facts.t <= self._reach[run])

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


def index_of(known: Facts | Runs, sizes: Mapping[str, int]) -> FactIndex:
    """Return the index of known facts or runs."""
    return RunIndex(known, sizes) if isinstance(known, Runs) else FactIndex(known, sizes)
