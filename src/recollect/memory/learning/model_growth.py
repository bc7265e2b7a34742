"""Rows of models for ids that came after training, and without what they learned from facts that are forgotten.

Both are solved with the tables as they were trained, which are kept in main memory: see `models.new_rows`. The facts of
an erased entity are forgotten, and its own row is left out. Rows are solved when the models are first read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from recollect.engine import one_thread
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import EpisodicGraph, Facts, encode
from recollect.graph.growing import GrownGraph
from recollect.graph.runs import Runs
from recollect.models.new_rows import Grown, RowSolver
from recollect.models.tensor_model import TensorModel

_NO_FACTS = Facts.of([])


class TrainedModels:
    """Models as they were trained, and the facts that they were trained on; what is read from them is computed once."""

    def __init__(self, models: tuple[TensorModel, ...], graph: EpisodicGraph) -> None:
        self.models, self._graph = models, graph

    @property
    def sizes(self) -> Mapping[str, int]:
        """The numbers of trained entities, predicates and times."""
        return self._graph.sizes

    @cached_property
    def facts(self) -> FactIndex:
        """The facts that they were trained on."""
        return FactIndex(self._graph.split("train").true(), self.sizes)

    @cached_property
    def solvers(self) -> tuple[RowSolver, ...]:
        """What solves rows for each model."""
        return tuple(RowSolver(model, self.facts.facts) for model in self.models)


@dataclass(frozen=True, eq=False)
class GrownModels:
    """The models of a graph that has grown since they were trained.

    Ids are those of training, and new ones follow: erased entities keep theirs here. Times of facts count from the
    first trained one. What has `changed` since an earlier result was `known` says which rows are solved again.
    """

    trained: TrainedModels
    graph: EpisodicGraph  # of now
    kept: Tensor  # (n,): the trained entities that are not erased; the first n of the grown graph are these
    earlier: int = 0  # times that are now before the first trained one
    forgotten: Facts = _NO_FACTS  # trained facts that are not stored now
    known: tuple[Grown, ...] = field(default=(), repr=False)  # none: all rows are solved
    changed: Facts = field(default=_NO_FACTS, repr=False)

    @property
    def times(self) -> tuple[int, int] | None:
        """The first and the last time that the models were trained on; None if these are all."""
        count = self.trained.sizes["time"]
        return None if count == self.graph.sizes["time"] else (self.earlier, self.earlier + count - 1)

    def solved_models(self) -> tuple[TensorModel, ...]:
        """Return the models with rows for all entities, predicates and times of the graph."""
        models = tuple(each.model for each in self.solved)
        if len(self.kept) == self.trained.sizes["entity"]:
            return models
        return tuple(model.with_rows({"entity": model.entity.detach()[self.entity_ids]}) for model in models)

    @cached_property
    def solved(self) -> tuple[Grown, ...]:
        """The models with rows for erased entities too, and what is needed to solve only some rows again."""
        sizes = self.graph.sizes
        larger = {**sizes, "entity": self.trained.sizes["entity"] + sizes["entity"] - len(self.kept)}
        facts = _renumber(self.graph.split("train"), self.entity_ids)
        changed = _shifted(self.changed, self.earlier) if self.known else None
        found = []
        with one_thread():  # small steps, each too short for several threads
            for number, solver in enumerate(self.trained.solvers):
                lost = self._unlearned(self.trained.models[number], facts)
                before = self.known[number] if self.known else None
                found.append(
                    solver.solve(larger, facts, earlier=self.earlier, forgotten=lost, before=before, changed=changed)
                )
        return tuple(found)

    @property
    def entity_ids(self) -> Tensor:
        """The id here of each entity of the grown graph: (E,)."""
        return torch.cat([self.kept, self.trained.sizes["entity"] + torch.arange(self._count - len(self.kept))])

    @property
    def _count(self) -> int:
        return self.graph.sizes["entity"]

    def grown(self, grown: GrownGraph) -> GrownModels:
        """Return the models of the graph after a change."""
        known, changed = (self.solved, _NO_FACTS) if "solved" in self.__dict__ else (self.known, self.changed)
        after = replace(self, graph=grown.graph, earlier=self.earlier + grown.earlier, known=known, changed=changed)
        if grown.entity_ids is not None:
            after = after._without(grown.entity_ids)
        if grown.is_extended:  # facts of times that are new, of which `replaced` says nothing
            after = replace(after, known=())
        ids, shift = after.entity_ids, after.earlier
        added, removed = (_shifted(_renumber(each, ids), -shift) for each in _difference(grown))
        return after._changed(added, removed)

    def _without(self, ids: Tensor) -> GrownModels:
        """Return the same with some entities erased: `ids` (E,) are the new ids of those of the graph, −1 if erased."""
        is_kept = ids[: len(self.kept)] >= 0
        erased, facts = self.kept[~is_kept], self.trained.facts.facts
        lost = facts[torch.isin(facts.s, erased) | torch.isin(facts.o, erased)]
        forgotten = Facts(Facts.concat([self.forgotten, lost]).ids.unique(dim=0))
        return replace(self, kept=self.kept[is_kept], forgotten=forgotten, known=())

    def _changed(self, added: Facts, removed: Facts) -> GrownModels:
        """Return the same after facts were stored and removed."""
        sizes, forgotten = self.trained.sizes, self.forgotten
        if len(removed) or len(forgotten):
            back, gone = (_with_ids_below(each, sizes) for each in (added, removed))
            if len(gone):
                forgotten = Facts.concat([forgotten, gone[self.trained.facts.contains(gone)]])
            forgotten = forgotten[~torch.isin(encode(forgotten, sizes), encode(back, sizes))]
        changed = Facts.concat([self.changed, added, removed]) if self.known else _NO_FACTS
        return replace(self, forgotten=forgotten, changed=changed)

    def _unlearned(self, model: TensorModel, current: Facts) -> Facts:
        """Return the trained facts that a model has to forget, given those that are stored; at times of now.

        A semantic model, which knows no times, does not forget a triple that is stored at another time.
        """
        lost = _shifted(self.forgotten, self.earlier)
        if "t" in model.slots or not len(lost):
            return lost
        still = _with_ids_below(current.with_slot("t", 0), self.trained.sizes)
        codes = (encode(each, self.trained.sizes, "spo") for each in (lost, still))
        return lost[~torch.isin(*codes)]


def grow_models(
    models: tuple[TensorModel, ...], before: GrownModels | None, graph: EpisodicGraph, grown: GrownGraph
) -> GrownModels | None:
    """Return trained models over a grown graph, given what they were `before` over `graph`, if they grew already."""
    if not models:
        return None
    if before is None or before.trained.models != models:
        before = GrownModels(TrainedModels(models, graph), graph, torch.arange(graph.sizes["entity"]))
    return before.grown(grown)


def _shifted(facts: Facts, times: int) -> Facts:
    return facts.with_slot("t", facts.t + times) if times else facts


def _renumber(facts: Facts, ids: Tensor) -> Facts:
    """Return facts in other ids of entities."""
    return facts.with_slot("s", ids[facts.s]).with_slot("o", ids[facts.o])


def _difference(grown: GrownGraph) -> tuple[Facts, Facts]:
    """Return the facts that the train split gained and those that it lost."""
    before, after = (_expanded(each) for each in (grown.replaced.before, grown.replaced.after))
    sizes = grown.graph.sizes
    old, new = encode(before, sizes), encode(after, sizes)
    return after[~torch.isin(new, old)], before[~torch.isin(old, new)]


def _expanded(store: Facts | Runs) -> Facts:
    true = store.true()
    return Facts((true.expand("what has changed") if isinstance(true, Runs) else true).ids)


def _with_ids_below(facts: Facts, sizes: Mapping[str, int]) -> Facts:
    """Return the facts with ids of training in every slot."""
    limits = torch.tensor([sizes[kind] for kind in ("entity", "predicate", "entity", "time")])
    return facts[((facts.ids >= 0) & (facts.ids < limits)).all(dim=1)]
