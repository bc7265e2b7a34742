"""Rank validation facts by several processes: each ranks its share, and all get all ranks."""

from __future__ import annotations

import torch
from torch import Tensor

from recollect.evaluation.metrics import summarise
from recollect.evaluation.ranking import Ranking, rank
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import Facts
from recollect.models.tensor_model import TensorModel
from recollect.training.distributed.placements import TimeSharded
from recollect.training.distributed.trainer import DistributedTrainer

SLOTS = "so"  # whose ranks are validated


class SharedValidation:
    """The validation facts that this process ranks, those of its times or a part of all, and what is known of them."""

    def __init__(self, facts: Facts, known: FactIndex, trainer: DistributedTrainer) -> None:
        self.trainer, self.count = trainer, len(facts)
        time = trainer.placements.get("time")
        self.time = time if isinstance(time, TimeSharded) else None
        rank_, count = trainer.processes.rank, trainer.processes.count
        if self.time is None:
            self.own = facts.t.argsort(stable=True).tensor_split(count)[rank_]
            self.facts, self.known = facts[self.own], known
            return
        first, last = self.time.times[rank_]
        self.own = self.time.shares(facts.t)[rank_]
        self.facts = _shift(facts[self.own], first)
        of_times = known.facts[self.time.shares(known.facts.t)[rank_]]
        self.known = FactIndex(_shift(of_times, first), {**known.sizes, "time": max(1, last - first)})

    def mrr(self) -> float:
        """Return the filtered MRR of all validation facts."""
        rankings = [self._rank(slot) for slot in SLOTS]
        return summarise(rankings)["mrr"]

    def _rank(self, slot: str) -> Ranking:
        counts = torch.zeros(self.count, 3, dtype=torch.int64)
        if len(self.own):
            found = rank(self._model(), self.facts, slot, known=self.known)["filtered"]
            counts[self.own] = torch.stack([found.greater, found.ties, found.others], dim=1)
        (total,) = self.trainer.processes.sum_([counts], ["ranks"])
        return Ranking(*total.unbind(dim=1))

    def _model(self) -> TensorModel:
        """Return the model of the times of this process, renumbered from 0."""
        model = self.trainer.model
        if self.time is None:
            return model
        first, last = self.time.times[self.trainer.processes.rank]
        times, table = torch.arange(first, last), self.trainer.tables["time"].detach()
        if model.knots is None:
            return model.with_rows({"time": table[self.time.local(times)]})
        return model.with_rows({"time": table}, model.knots.restrict(times, self.time.held))


def _shift(facts: Facts, first: int) -> Facts:
    """Return facts with times counted from `first`."""
    times: Tensor = facts.t - first
    return facts.with_slot("t", times)
