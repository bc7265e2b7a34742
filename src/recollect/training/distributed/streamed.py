"""Rank facts among all entities where no process holds all entities: their rows pass by in blocks."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from recollect.graph.facts import Facts
from recollect.models.tensor_model import TensorModel
from recollect.training.distributed.placements import SharedBatch
from recollect.training.distributed.trainer import DistributedTrainer
from recollect.training.objectives import TrainingBatch
from recollect.training.validation import Validation

BLOCK_BYTES = 2**22  # of the rows that every process sends at a time
SCORE_BYTES = 2**24  # of the scores that are compared at a time


class StreamedRanking:
    """The share of some facts that this process ranks among candidates that pass by."""

    def __init__(self, facts: Facts, chosen: list[Tensor], validation: Validation, trainer: DistributedTrainer) -> None:
        """`chosen` are the facts of each process; `validation` says which entities are ranked, and what is known."""
        rank, model = trainer.processes.rank, trainer.model
        self.trainer, self.facts, self.entities = trainer, facts[chosen[rank]], validation.entities
        self.answers = {}  # slot -> (fact, id) of known answers
        for slot in "so":
            fact, answer = validation.known.find(validation.facts[chosen[rank]], slot)
            self.answers[slot] = fact, answer if self.entities is None else self.entities[answer]
        every = Facts.concat([facts, model.inverse(facts)]) if model.config.reciprocal else facts
        whole = TrainingBatch(model.normalize(every), len(facts))
        self.batch = SharedBatch(whole, [whole.share(each) for each in chosen], trainer.processes.rank)

    @torch.no_grad()
    def counts(self) -> dict[str, Tensor]:
        """Return greater, ties and others of each fact of this process, filtered: (n, 3) for the slots s and o."""
        _, part, own = self.trainer.restrict(self.batch)
        queries = {slot: self._query(part, own, slot) for slot in "so"}
        found = {slot: torch.zeros(len(self.facts), 3, dtype=torch.int64) for slot in "so"}
        for ids, rows in self._blocks():
            block = self.trainer.model.with_rows({"entity": rows})
            for slot, (query, true) in queries.items():
                candidates = block.candidates(slot)
                assert candidates is not None
                step = max(1, SCORE_BYTES // (candidates.itemsize * len(ids)))
                for first in range(0, len(query), step):
                    part_of = slice(first, first + step)
                    scores = query[part_of] @ candidates.T
                    found[slot][part_of] += self._compare(scores, true[part_of], first, ids, slot)
        return found

    def _query(self, part: TensorModel, own: TrainingBatch, slot: str) -> tuple[Tensor, Tensor]:
        """Return the queries of a slot (n, d), and the scores of the true answers (n,)."""
        facts = own.facts[: own.count]
        if part.config.reciprocal and slot == "s":
            facts, slot = own.facts[own.count :], "o"
        if not len(facts):
            return torch.empty(0, 1), torch.empty(0)
        queries, answers = part.batch(facts).query(slot), part.candidates(slot, facts.column(slot))
        assert answers is not None
        return queries, (queries * answers).sum(dim=1)

    def _blocks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (ids, rows) of all entities that are ranked: each process sends the next of its rows to all."""
        processes, placement = self.trainer.processes, self.trainer.placements["entity"]
        table = self.trainer.local["entity"].detach()
        owned = [placement.owned_by(rank) for rank in range(processes.count)]
        if self.entities is not None:
            owned = [each[torch.isin(each, self.entities)] for each in owned]
        step = max(1, BLOCK_BYTES // table[:1].nbytes)
        for first in range(0, max(map(len, owned)), step):
            ids = [each[first : first + step] for each in owned]
            rows = table[placement.local(ids[processes.rank])]
            received = processes.exchange([rows] * processes.count, [len(each) for each in ids], "entity rows to rank")
            yield torch.cat(ids), torch.cat(received)

    def _compare(self, scores: Tensor, true: Tensor, first: int, ids: Tensor, slot: str) -> Tensor:
        """Return greater, ties and others among candidates with some ids (m,), of facts from `first` on: (n, 3).

        Known answers, the fact's own among them, are left out.
        """
        fact, answer = self.answers[slot]
        order = ids.argsort()
        place = order[torch.searchsorted(ids[order], answer).clamp(max=len(ids) - 1)]
        has = (ids[place] == answer) & (first <= fact) & (fact < first + len(scores))
        counted = torch.ones(scores.shape, dtype=torch.bool)
        counted[fact[has] - first, place[has]] = False
        own = self.facts.column(slot)[first : first + len(scores)]
        counted &= ids != own[:, None]
        greater = (scores > true[:, None]) & counted
        ties = (scores == true[:, None]) & counted
        return torch.stack([greater.sum(dim=1), ties.sum(dim=1), counted.sum(dim=1)], dim=1)
