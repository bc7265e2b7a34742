"""Facts that a memory does not store: its weights and its calibration are fitted to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from recollect.evaluation.calibration import Sample, sample_scored
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import EpisodicGraph, Facts
from recollect.graph.run_index import RunIndex, index_of
from recollect.graph.runs import Runs, maximal_runs, sampled, stored_in
from recollect.graph.seeds import seeded
from recollect.memory.answering.scorer import MemoryScorer

FIT_TIMES = 32  # times whose cells a calibration is fitted to


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Facts that are not stored, and what is stored."""

    facts: Facts
    answers: FactIndex  # the same facts, or all times of their runs
    stored: FactIndex
    known: FactIndex  # both
    unseen: float = 0.0  # facts that are withheld besides, the test split, for each held-out fact
    present: Mapping[str, Tensor] = field(default_factory=dict)  # slot -> which ids can be answers, if not all: (N,)
    last: int = -1  # the last stored time

    @classmethod
    def of(cls, graph: EpisodicGraph, *, is_fold: bool = False) -> HeldOut:
        """Return the validation split as held-out facts of the train split; of runs, one time each.

        In a fold of a graph that is learned whole, labels without a stored fact are no answers: a memory has none.
        """
        valid = sampled(graph, "valid", seeded(0)).true()
        answers, stored, known = (
            index_of(stored_in(graph, *splits), graph.sizes) for splits in (["valid"], ["train"], ["train", "valid"])
        )
        found = cls(valid, answers, stored, known, present=_present(graph) if is_fold else {}, last=_last_time(graph))
        if found.is_later:
            return found
        return replace(found, unseen=graph.counts.get("test", 0) / max(1, graph.counts.get("valid", 0)))

    def normalized(self, scorer: MemoryScorer) -> HeldOut:
        """Return the same facts as a scorer tells them apart: semantic ones without their times."""
        answers, stored, known = map(scorer.normalize_index, (self.answers, self.stored, self.known))
        return replace(self, facts=scorer.normalize(self.facts), answers=answers, stored=stored, known=known)

    @property
    def run_count(self) -> int:
        """The number of runs of the facts: how often something was held out that is not known from its neighbours."""
        if isinstance(self.answers, RunIndex):
            return len(self.answers.runs)
        return len(maximal_runs(self.facts, self.answers.sizes))

    @property
    def is_later(self) -> bool:
        """Whether all facts are after the last stored time, or there are none."""
        return not len(self.facts) or int(self.facts.t.min()) > self.last

    def times(self, generator: torch.Generator, most: int = FIT_TIMES) -> list[tuple[int, float]]:
        """Return random times and their weights: at most `most` with held-out facts, as many without.

        A weight is the number of times that one represents, in units of that of the times with held-out facts.
        """
        asked = self.facts.t.unique()
        is_other = torch.ones(max(self.last, int(asked.max())) + 1, dtype=torch.bool)
        is_other[asked] = False
        others = is_other.nonzero()[:, 0]
        chosen, rest = (times[torch.randperm(len(times), generator=generator)[:most]] for times in (asked, others))
        weight = len(others) / max(1, len(rest)) / (len(asked) / len(chosen))
        return [*((time, 1.0) for time in chosen.tolist()), *((time, weight) for time in rest.tolist())]

    def sample(self, scored: Iterable[tuple[Facts, Tensor]], slot: str, generator: torch.Generator) -> Sample:
        """Return predicted candidates of scored questions, facts and their (B, N) scores, and which are answers."""
        return sample_scored(
            scored, slot, answers=self.answers, stored=self.stored, known=self.known, generator=generator,
            unseen=self.unseen, present=self.present.get(slot),
        )  # fmt: skip


def _present(graph: EpisodicGraph) -> dict[str, Tensor]:
    """Return which entities and predicates have facts in the train split: (N,) bool by slot."""
    train = stored_in(graph, "train")
    facts = train.first if isinstance(train, Runs) else train
    entities = torch.zeros(graph.sizes["entity"], dtype=torch.bool)
    entities[torch.cat([facts.s, facts.o])] = True
    predicates = torch.zeros(graph.sizes["predicate"], dtype=torch.bool)
    predicates[facts.p] = True
    return {"s": entities, "p": predicates, "o": entities}


def _last_time(graph: EpisodicGraph) -> int:
    """Return the last time of the train split; −1 if it is empty."""
    found = stored_in(graph, "train")
    times = found.last if isinstance(found, Runs) else found.t
    return int(times.max()) if len(times) else -1
