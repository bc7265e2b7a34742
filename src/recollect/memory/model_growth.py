"""Rows of models for ids that came after training, and again for entities whose facts were removed.

Rows are solved with the tables as they were trained: see `models.new_rows`. What rows learned from a fact that is
forgotten is taken out of them. An entity that had facts with an erased one, whose row is gone, is solved again from the
facts that it has left, if it has few: the solver reads all facts of an entity up to FACTS, and one of more hardly moves
its row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import EpisodicGraph, Facts, encode
from recollect.graph.growing import GrownGraph
from recollect.graph.runs import Runs
from recollect.models.new_rows import Grown, RowSolver
from recollect.models.new_rows.trained import FACTS
from recollect.models.tensor_model import TensorModel

NONE = torch.empty(0, dtype=torch.int64)


@dataclass(frozen=True, eq=False)
class TrainedModels:
    """The models of a memory before it grew, and what they have lost since. Ids are those of now, but for times."""

    models: tuple[TensorModel, ...]  # as they were trained
    facts: Facts  # that they were trained on; times count from the first trained one, here and below
    earlier: int = 0  # times that are now before the first trained one
    forgotten: Facts = field(default_factory=lambda: Facts.of([]))  # trained facts that are not stored now
    bereft: Tensor = field(default_factory=lambda: NONE)  # trained entities that had facts with an erased one
    grown: tuple[Grown, ...] = ()  # the models of now

    def times(self, sizes: Mapping[str, int]) -> tuple[int, int] | None:
        """Return the first and the last time that the models were trained on; None if these are all."""
        count = self.models[0].sizes["time"]
        return None if count == sizes["time"] else (self.earlier, self.earlier + count - 1)

    @cached_property
    def solvers(self) -> tuple[RowSolver, ...]:
        """What solves rows of each model."""
        return tuple(RowSolver(model, self.facts) for model in self.models)

    @cached_property
    def index(self) -> FactIndex:
        """The index of the facts that the models were trained on."""
        return FactIndex(self.facts, self.models[0].sizes)

    def without_entities(self, ids: Tensor) -> TrainedModels:
        """Return the same without the erased entities; `ids` (E,) is the new id of each of now, −1 if it is erased."""
        count = self.models[0].sizes["entity"]
        kept, is_gone = ids[:count], ids < 0
        models = tuple(
            model.with_rows({name: getattr(model, name).detach()[kept >= 0] for name in model.table_names("entity")})
            for model in self.models
        )
        lost = self.facts[is_gone[self.facts.s] | is_gone[self.facts.o]]
        bereft = ids[torch.cat([self.bereft, lost.s, lost.o])].unique()
        facts, forgotten = (_renumbered(each, ids) for each in (self.facts, self.forgotten))
        return TrainedModels(models, facts, self.earlier, forgotten, bereft[bereft >= 0])

    def again(self, current: Facts, entities: int) -> dict[str, Tensor]:
        """Return the trained entities that had facts with an erased one and have few left: they are solved again."""
        if not len(self.bereft):
            return {}
        degree = torch.bincount(torch.cat([current.s, current.o]), minlength=entities)
        return {"entity": self.bereft[degree[self.bereft] <= FACTS]}


def grow_models(
    models: tuple[TensorModel, ...], trained: TrainedModels | None, before: EpisodicGraph, grown: GrownGraph
) -> tuple[tuple[TensorModel, ...], TrainedModels | None]:
    """Return the models of a grown graph, and the trained ones for the next time."""
    if not models:
        return (), None
    if trained is None or tuple(each.model for each in trained.grown) != models:
        trained = TrainedModels(models, before.split("train").true())
    is_solved = grown.entity_ids is None  # else rows of before have other ids
    if grown.entity_ids is not None:
        trained = trained.without_entities(grown.entity_ids)
    added, removed = _difference(grown)
    sizes = grown.graph.sizes
    trained = replace(
        trained, earlier=trained.earlier + grown.earlier, forgotten=_forgotten(trained, added, removed, grown)
    )
    current = grown.graph.split("train")
    again = trained.again(current, sizes["entity"])
    forgotten = trained.forgotten.with_slot("t", trained.forgotten.t + trained.earlier)
    solved = []
    for number, solver in enumerate(trained.solvers):
        known = trained.grown[number] if is_solved and trained.grown else None
        changed = Facts.concat([added, removed]) if known is not None else None
        found = solver.solve(
            sizes,
            current,
            earlier=trained.earlier,
            forgotten=forgotten,
            again=again,
            before=known,
            changed=changed,
        )
        solved.append(found)
    trained = _same_solvers(trained, replace(trained, grown=tuple(solved)))
    return tuple(each.model for each in solved), trained


def _same_solvers(trained: TrainedModels, other: TrainedModels) -> TrainedModels:
    """Return `other` with what was computed for the same trained models."""
    other.__dict__.update({name: trained.__dict__[name] for name in ("solvers", "index") if name in trained.__dict__})
    return other


def _renumbered(facts: Facts, ids: Tensor) -> Facts:
    """Return facts in other entity ids, without those of erased entities."""
    facts = facts.with_slot("s", ids[facts.s]).with_slot("o", ids[facts.o])
    return facts[(facts.s >= 0) & (facts.o >= 0)]


def _difference(grown: GrownGraph) -> tuple[Facts, Facts]:
    """Return the facts that the train split gained and those that it lost."""
    before, after = (_expanded(each) for each in (grown.replaced.before, grown.replaced.after))
    sizes = grown.graph.sizes
    old, new = encode(before, sizes), encode(after, sizes)
    return after[~torch.isin(new, old)], before[~torch.isin(old, new)]


def _expanded(store: Facts | Runs) -> Facts:
    true = store.true()
    return Facts((true.expand("what has changed") if isinstance(true, Runs) else true).ids)


def _forgotten(trained: TrainedModels, added: Facts, removed: Facts, grown: GrownGraph) -> Facts:
    """Return the trained facts that are not stored after a change."""
    earlier = trained.earlier + grown.earlier
    sizes = trained.models[0].sizes
    lost, found = (_trained_only(each.with_slot("t", each.t - earlier), sizes) for each in (removed, added))
    lost = Facts.concat([trained.forgotten, lost[trained.index.contains(lost)]])
    return lost[~torch.isin(encode(lost, sizes), encode(found, sizes))]


def _trained_only(facts: Facts, sizes: Mapping[str, int]) -> Facts:
    """Return the facts whose ids all were there in training."""
    limits = torch.tensor([sizes[kind] for kind in ("entity", "predicate", "entity", "time")])
    return facts[((facts.ids >= 0) & (facts.ids < limits)).all(dim=1)]
