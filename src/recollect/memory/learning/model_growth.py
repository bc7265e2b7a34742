"""Rows of models for ids that came after training, and without what they learned from facts that are forgotten.

Both are solved with the tables as they were trained, which are kept in main memory: see `models.new_rows`. The facts of
an erased entity are forgotten, and its own row is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import EpisodicGraph, Facts, encode
from recollect.graph.growing import GrownGraph
from recollect.graph.runs import Runs
from recollect.models.new_rows import Grown, RowSolver
from recollect.models.tensor_model import TensorModel


@dataclass(frozen=True, eq=False)
class TrainedModels:
    """The models of a memory before it grew, what they have lost since, and what they are now.

    Ids are those of training, and new ones follow: erased entities keep theirs here, and times count from the first
    trained one.
    """

    solvers: tuple[RowSolver, ...]  # with the models as they were trained
    facts: FactIndex  # that they were trained on
    kept: Tensor  # (n,): the trained entities that are not erased; the first n of the grown graph are these
    earlier: int = 0  # times that are now before the first trained one
    forgotten: Facts = field(default_factory=lambda: Facts.of([]))  # trained facts that are not stored now
    grown: tuple[Grown, ...] = ()  # with rows for erased entities too
    models: tuple[TensorModel, ...] = ()  # of now

    @classmethod
    def of(cls, models: tuple[TensorModel, ...], facts: Facts) -> TrainedModels:
        """Return models that have not grown, and the facts that they were trained on."""
        sizes = models[0].sizes
        solvers = tuple(RowSolver(model, facts) for model in models)
        return cls(solvers, FactIndex(facts, sizes), torch.arange(sizes["entity"]), models=models)

    def times(self, sizes: Mapping[str, int]) -> tuple[int, int] | None:
        """Return the first and the last time that the models were trained on; None if these are all."""
        count = self.sizes["time"]
        return None if count == sizes["time"] else (self.earlier, self.earlier + count - 1)

    @property
    def sizes(self) -> Mapping[str, int]:
        """The numbers of trained entities, predicates and times."""
        return self.facts.sizes

    def entity_ids(self, count: int) -> Tensor:
        """Return the id here of each of `count` entities of the grown graph: (count,)."""
        return torch.cat([self.kept, self.sizes["entity"] + torch.arange(count - len(self.kept))])

    def without(self, ids: Tensor) -> TrainedModels:
        """Return the same with some entities erased: `ids` (E,) are the new ids of those of the graph, −1 if erased."""
        is_kept = ids[: len(self.kept)] >= 0
        erased, facts = self.kept[~is_kept], self.facts.facts
        lost = facts[torch.isin(facts.s, erased) | torch.isin(facts.o, erased)]
        forgotten = Facts(Facts.concat([self.forgotten, lost]).ids.unique(dim=0))
        return replace(self, kept=self.kept[is_kept], forgotten=forgotten, grown=())  # all rows are solved again

    def changed(self, added: Facts, removed: Facts) -> TrainedModels:
        """Return the same after facts, in the ids of here, were stored and removed."""
        added, removed = (_with_ids_below(each, self.sizes) for each in (added, removed))
        lost = Facts.concat([self.forgotten, removed[self.facts.contains(removed)]])
        return replace(self, forgotten=lost[~torch.isin(encode(lost, self.sizes), encode(added, self.sizes))])

    def unlearned(self, model: TensorModel, current: Facts) -> Facts:
        """Return the trained facts that a model has to forget, given those that are stored; at times of now.

        A semantic model, which knows no times, does not forget a triple that is stored at another time.
        """
        lost = self.forgotten.with_slot("t", self.forgotten.t + self.earlier)
        if "t" in model.slots:
            return lost
        still = _with_ids_below(current.with_slot("t", 0), self.sizes)
        codes = (encode(each, self.sizes, "spo") for each in (lost, still))
        return lost[~torch.isin(*codes)]


def grow_models(
    models: tuple[TensorModel, ...], trained: TrainedModels | None, before: EpisodicGraph, grown: GrownGraph
) -> tuple[tuple[TensorModel, ...], TrainedModels | None]:
    """Return the models of a grown graph, and the trained ones for the next time."""
    if not models:
        return (), None
    if trained is None or trained.models != models:
        trained = TrainedModels.of(models, before.split("train").true())
    if grown.entity_ids is not None:
        trained = trained.without(grown.entity_ids)
    if grown.is_extended:  # facts of times that are new, of which `replaced` says nothing
        trained = replace(trained, grown=())
    trained = replace(trained, earlier=trained.earlier + grown.earlier)
    sizes = grown.graph.sizes
    ids = trained.entity_ids(sizes["entity"])
    facts, added, removed = (_renumber(each, ids) for each in (grown.graph.split("train"), *_difference(grown)))
    shift = trained.earlier
    trained = trained.changed(added.with_slot("t", added.t - shift), removed.with_slot("t", removed.t - shift))
    larger = {**sizes, "entity": trained.sizes["entity"] + sizes["entity"] - len(trained.kept)}
    changed = Facts.concat([added, removed])
    solved = []
    for number, solver in enumerate(trained.solvers):
        known = trained.grown[number] if trained.grown else None
        lost = trained.unlearned(models[number], facts)
        solved.append(
            solver.solve(
                larger, facts, earlier=shift, forgotten=lost, before=known, changed=None if known is None else changed
            )
        )
    models = tuple(each.model for each in solved)
    if larger != sizes:
        models = tuple(model.with_rows({"entity": model.entity.detach()[ids]}) for model in models)
    return models, replace(trained, grown=tuple(solved), models=models)


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
