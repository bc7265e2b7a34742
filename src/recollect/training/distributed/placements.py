"""Where the rows of embedding tables are, and how a step reads and updates them.

A table is replicated, or each of its rows belongs to one process, its owner, with the state of the optimizer. Which
facts a process computes is known to all, so every process knows what the others need: no ids are exchanged.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from recollect.graph.facts import Facts
from recollect.models.tensor_model import TensorModel
from recollect.models.time_knots import TimeKnots, neighbours
from recollect.training.distributed.processes import Processes
from recollect.training.objectives import TrainingBatch
from recollect.training.rows import RowSelection, touched_rows


@dataclass(frozen=True)
class SharedBatch:
    """A batch and the share of every process."""

    whole: TrainingBatch
    shares: Sequence[TrainingBatch]
    rank: int

    @property
    def own(self) -> TrainingBatch:
        return self.shares[self.rank]


class Placement(ABC):
    """The rows of one kind of tables (entity, predicate, time)."""

    is_whole = False  # whether every process holds all rows

    @property
    @abstractmethod
    def held(self) -> Tensor:
        """Return the sorted ids of the rows that this process holds: (H,). Row h of its table is row held[h]."""

    @abstractmethod
    def owned_by(self, rank: int) -> Tensor:
        """Return the sorted ids of the rows that a process owns: every row has one owner."""

    @abstractmethod
    def local(self, ids: Tensor) -> Tensor:
        """Return the places of some held rows in the table of this process."""

    @abstractmethod
    def select(self, batch: SharedBatch) -> Tensor | None:
        """Return the sorted rows (R,) that this process computes with; None = the whole table."""

    @abstractmethod
    def gather(self, table: Tensor, rows: Tensor) -> Tensor:
        """Return the selected rows (R, …) of a table, of which `table` are the held ones."""

    @abstractmethod
    def summed_part(self, rows: Tensor | None, grad: Tensor) -> Tensor:
        """Return the part of the gradient (R, …) of the selected rows that is to be summed over all processes."""

    @abstractmethod
    def update(self, rows: Tensor | None, grad: Tensor, total: Tensor) -> tuple[Tensor | None, Tensor]:
        """Return what the optimizer updates: rows of the held table, None = all, and their gradient.

        `total` is the sum of all `summed_part`.
        """


class Replicated(Placement):
    """Every process holds all rows and updates them by the summed gradient."""

    is_whole = True

    def __init__(self, kind: str, selection: RowSelection, processes: Processes) -> None:
        self.kind, self.selection, self.processes = kind, selection, processes

    @property
    def held(self) -> Tensor:
        return torch.arange(len(getattr(self.selection.model, self.kind)))

    def owned_by(self, rank: int) -> Tensor:
        return self.held if rank == 0 else self.held[:0]

    def local(self, ids: Tensor) -> Tensor:
        return ids

    def select(self, batch: SharedBatch) -> Tensor | None:
        return self.selection.select_kind(self.kind, batch.whole) if self.kind in self.selection.kinds else None

    def gather(self, table: Tensor, rows: Tensor) -> Tensor:
        return table.index_select(0, rows.to(table.device))

    def summed_part(self, rows: Tensor | None, grad: Tensor) -> Tensor:
        return grad

    def update(self, rows: Tensor | None, grad: Tensor, total: Tensor) -> tuple[Tensor | None, Tensor]:
        return rows, total


class RowSharded(Placement):
    """Process r % N owns row r. The rows of a batch are fetched from their owners, and their gradients sent back."""

    def __init__(self, kind: str, selection: RowSelection, processes: Processes) -> None:
        self.kind, self.selection, self.processes = kind, selection, processes
        self.wanted: list[Tensor] = []  # rows of the table of this process that each process needs for this batch
        self.touched = torch.arange(0)  # all of these, sorted
        self.order = torch.arange(0)  # the selected rows by owner
        self.counts: list[int] = []  # selected rows of each owner

    @property
    def held(self) -> Tensor:
        return self.owned_by(self.processes.rank)

    def owned_by(self, rank: int) -> Tensor:
        return torch.arange(rank, len(getattr(self.selection.model, self.kind)), self.processes.count)

    def local(self, ids: Tensor) -> Tensor:
        return ids // self.processes.count

    def select(self, batch: SharedBatch) -> Tensor:
        needs = [self.selection.select_kind(self.kind, share) for share in batch.shares]
        rank, count = self.processes.rank, self.processes.count
        self.wanted = [self.local(rows[rows % count == rank]) for rows in needs]
        self.touched = torch.cat(self.wanted).unique()
        owners = needs[rank] % count
        self.order = owners.argsort(stable=True)
        self.counts = owners.bincount(minlength=count).tolist()
        return needs[rank]

    def gather(self, table: Tensor, rows: Tensor) -> Tensor:
        parts = [table.index_select(0, wanted) for wanted in self.wanted]
        received = self.processes.exchange(parts, self.counts, f"{self.kind} rows")
        found = table.new_empty(len(rows), *table.shape[1:])
        found[self.order] = torch.cat(received)
        return found

    def summed_part(self, rows: Tensor | None, grad: Tensor) -> Tensor:
        return grad[:0]

    def update(self, rows: Tensor | None, grad: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
        parts = grad[self.order].split(self.counts)
        received = self.processes.exchange(parts, [len(wanted) for wanted in self.wanted], f"{self.kind} gradients")
        summed = grad.new_zeros(len(self.touched), *grad.shape[1:])
        for wanted, part in zip(self.wanted, received, strict=True):  # in the order of ranks: always the same sum
            summed[torch.searchsorted(self.touched, wanted)] += part
        return self.touched, summed


class TimeSharded(Placement):
    """Consecutive times belong to one process, which computes all their facts: rows of times do not travel.

    Knots that times of several processes are interpolated from are replicated, and so are those that the smoothness
    over time compares across owners; of these the gradients are summed.
    """

    def __init__(self, selection: RowSelection, facts: Facts, processes: Processes, *, is_smooth: bool) -> None:
        """`facts` are all training facts; each process gets consecutive times with about as many of them."""
        model = selection.model
        self.selection, self.processes = selection, processes
        self.times = balanced_ranges(facts.t.bincount(minlength=model.sizes["time"]), processes.count)
        knots = model.knots or TimeKnots.of(model.sizes["time"], (1,))
        users = torch.zeros(processes.count, knots.count, dtype=torch.bool)
        for rank, (first, last) in enumerate(self.times):
            users[rank, knots.knot[first:last].reshape(-1)] = True
        self.owner = users.int().argmax(dim=0)  # (knots,): the first process that uses it
        self.shared = users.sum(dim=0) > 1  # (knots,)
        if is_smooth:
            for near in neighbours(model.sizes["time"], model.config.time_levels):
                self.shared |= (near >= 0) & (self.owner[near] != self.owner)
        ranks = torch.arange(processes.count)[:, None]
        self.held_by = users | self.shared | (self.owner == ranks)  # (N, knots)
        self._held = self.held_by[processes.rank].nonzero()[:, 0]
        self.place = torch.full((knots.count,), -1)  # (knots,): the row of the held table; −1 = not held
        self.place[self._held] = torch.arange(len(self._held))

    @property
    def held(self) -> Tensor:
        return self._held

    def owned_by(self, rank: int) -> Tensor:
        return (self.owner == rank).nonzero()[:, 0]

    def local(self, ids: Tensor) -> Tensor:
        return self.place[ids]

    def shares(self, times: Tensor) -> list[Tensor]:
        """Return which facts of some times (B,) each process computes."""
        return [((first <= times) & (times < last)).nonzero()[:, 0] for first, last in self.times]

    @property
    def is_lazy(self) -> bool:
        return "time" in self.selection.kinds

    def select(self, batch: SharedBatch) -> Tensor:
        if not self.is_lazy:
            return self.held
        model = self.selection.model
        chosen = torch.zeros(len(self.place), dtype=torch.bool)
        chosen[touched_rows(model, "time", batch.whole.facts, {})] = True
        chosen &= self.shared
        chosen[touched_rows(model, "time", batch.own.facts, {})] = True
        return chosen.nonzero()[:, 0]

    def gather(self, table: Tensor, rows: Tensor) -> Tensor:
        return table.index_select(0, self.place[rows])

    def fetch(self, table: Tensor, needs: Sequence[Tensor]) -> Tensor:
        """Return the rows needs[rank] of the time table; process j needs the sorted rows needs[j]."""
        rank = self.processes.rank
        missing = [need[~self.held_by[j, need]] for j, need in enumerate(needs)]
        parts = [table[self.place[ids[self.owner[ids] == rank]]] for ids in missing]
        owners = self.owner[missing[rank]]
        counts = owners.bincount(minlength=self.processes.count).tolist()
        received = torch.cat(self.processes.exchange(parts, counts, "time rows of gaps"))
        found = table.new_empty(len(needs[rank]), *table.shape[1:])
        is_held = self.held_by[rank, needs[rank]]
        found[is_held] = table[self.place[needs[rank][is_held]]]
        found[(~is_held).nonzero()[:, 0][owners.argsort(stable=True)]] = received
        return found

    def summed_part(self, rows: Tensor | None, grad: Tensor) -> Tensor:
        assert rows is not None
        return grad[self.shared[rows]]

    def update(self, rows: Tensor | None, grad: Tensor, total: Tensor) -> tuple[Tensor | None, Tensor]:
        assert rows is not None
        grad[self.shared[rows]] = total
        return (self.place[rows] if self.is_lazy else None), grad


def balanced_ranges(counts: Tensor, parts: int) -> list[tuple[int, int]]:
    """Cut indices into consecutive ranges [first, last) with about equal sums of their counts (n,).

    >>> balanced_ranges(torch.tensor([5, 1, 1, 1, 4]), 2)
    [(0, 2), (2, 5)]
    """
    before = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    goals = before[-1].double() * torch.arange(1, parts) / parts
    cuts = [int((before.double() - goal).abs().argmin()) for goal in goals]
    bounds = [0, *cuts, len(counts)]
    return list(pairwise(bounds))


def shardable_by_time(model: TensorModel, slots: str, processes: Processes) -> bool:
    """Return whether the rows of times are matrices or larger and facts need no other time than their own."""
    wide = "t" in model.slots and model.equation.order("t") > 1
    return wide and "t" not in slots and model.sizes["time"] >= processes.count
