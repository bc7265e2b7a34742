"""Smoothness over time of a time table that is sharded by time."""

from __future__ import annotations

import torch
from torch import Tensor

from recollect.graph.facts import Facts
from recollect.models.regularizers import TimeSmoothness
from recollect.models.tensor_model import TensorModel
from recollect.models.time_knots import untouched_knots
from recollect.training.distributed.placements import TimeSharded


class ShardSmoothness(TimeSmoothness):
    """The smoothness of the knots that a process owns; their neighbours are held by it too."""

    def __init__(self, model: TensorModel, facts: Facts, weight: float, placement: TimeSharded, table: Tensor) -> None:
        """`table` holds the rows `placement.held` of the time table."""
        super().__init__(model, facts, weight)
        self.placement, self.table = placement, table

    def _knots(self, ids: Tensor | int) -> Tensor:
        return self.table[self.placement.place[ids]]

    def _shares(self, times: Tensor) -> Tensor:
        """Return the share of each owned knot's training facts that the batch has; 0 for the knots of others."""
        return super()._shares(times) * (self.placement.owner == self.placement.processes.rank)

    @torch.no_grad()
    def interpolate_(self) -> None:
        if not self.weight:
            return
        with_facts = self.facts_per_time.nonzero()[:, 0]
        times, spacings = len(self.facts_per_time), self.model.config.time_levels
        idle, before, after, share = untouched_knots(with_facts, times, spacings)
        if not len(idle):
            return
        held_by, rank = self.placement.held_by[:, idle], self.placement.processes.rank
        needs = [torch.cat([before[held], after[held]]).unique() for held in held_by]
        rows = self.placement.fetch(self.table.detach(), needs)
        low, high = (torch.searchsorted(needs[rank], ends[held_by[rank]]) for ends in (before, after))
        held = self.placement.local(idle[held_by[rank]])
        for place, one, other, weight in zip(held, low, high, share[held_by[rank]].tolist(), strict=True):
            self.table[place] = torch.lerp(rows[one], rows[other], weight)
