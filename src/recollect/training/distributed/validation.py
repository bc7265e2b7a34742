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
from recollect.training.distributed.streamed import StreamedRanking
from recollect.training.distributed.trainer import DistributedTrainer
from recollect.training.validation import Validation

SLOTS = "so"  # whose ranks are validated


class SharedValidation:
    """The validation facts that this process ranks, those of its times or a part of all, and what is known of them."""

    def __init__(self, validation: Validation, facts: Facts, trainer: DistributedTrainer) -> None:
        """`validation` is that of one process, with entities renumbered if it ranks a sample; `facts` are its facts."""
        self.trainer, self.count, self.entities = trainer, len(facts), validation.entities
        time = trainer.placements.get("time")
        self.time = time if isinstance(time, TimeSharded) else None
        self.streamed: StreamedRanking | None = None
        rank_, count = trainer.processes.rank, trainer.processes.count
        if self.time is None:
            chosen = list(facts.t.argsort(stable=True).tensor_split(count))
        else:
            chosen = self.time.shares(facts.t)
        self.own, self.known = chosen[rank_], validation.known
        self.facts = validation.facts[self.own]
        if "entity" in trainer.sharded:
            self.streamed = StreamedRanking(facts, chosen, validation, trainer)
        elif self.time is not None:
            first, last = self.time.times[rank_]
            self.facts = _shift(self.facts, first)
            of_times = self.known.facts[self.time.shares(self.known.facts.t)[rank_]]
            self.known = FactIndex(_shift(of_times, first), {**self.known.sizes, "time": max(1, last - first)})

    def mrr(self) -> float:
        """Return the filtered MRR of all validation facts."""
        found = self._rank_own() if self.streamed is None else self.streamed.counts()
        counts = torch.zeros(len(found), self.count, 3, dtype=torch.int64)
        for slot, own in zip(counts, found.values(), strict=True):
            slot[self.own] = own
        (total,) = self.trainer.processes.sum_([counts], ["ranks"])
        return summarise([Ranking(*slot.unbind(dim=1)) for slot in total])["mrr"]

    def _rank_own(self) -> dict[str, Tensor]:
        """Return greater, ties and others of each fact of this process, filtered: (n, 3) by slot."""
        if not len(self.own):
            return {slot: torch.zeros(0, 3, dtype=torch.int64) for slot in SLOTS}
        model, found = self._model(), {}
        for slot in SLOTS:
            ranking = rank(model, self.facts, slot, known=self.known)["filtered"]
            found[slot] = torch.stack([ranking.greater, ranking.ties, ranking.others], dim=1)
        return found

    def _model(self) -> TensorModel:
        """Return the model of the times of this process, renumbered from 0, and of the entities that are ranked."""
        model, tables, knots = self.trainer.model, {}, None
        if self.entities is not None:
            tables["entity"] = model.entity.detach().index_select(0, self.entities.to(model.device))
        if self.time is not None:
            first, last = self.time.times[self.trainer.processes.rank]
            times, held = torch.arange(first, last), self.trainer.local["time"].detach()
            tables["time"] = held if model.knots is not None else held[self.time.local(times)]
            knots = None if model.knots is None else model.knots.restrict(times, self.time.held)
        return model.with_rows(tables, knots) if tables else model


def _shift(facts: Facts, first: int) -> Facts:
    """Return facts with times counted from `first`."""
    times: Tensor = facts.t - first
    return facts.with_slot("t", times)
