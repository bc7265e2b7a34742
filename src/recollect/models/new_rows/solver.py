"""Rows for entities, predicates and times that a trained model has not seen, each solved for with all others fixed.

The row of an id is the minimum of the one-vs-all losses of its own facts, with a ridge towards a prior. For an entity,
some candidates are sampled, and it has a sample of the trained facts to which it is no answer (`likelihood.py`). For
predicates and times, all trained entities are candidates (`one_vs_all.py`). The prior of an entity is the mean row of
the trained entities that have facts of the same predicates in the same slots; of a predicate, the mean of all. That of
a time is the mean of the row of the time before it and of the prior of that; so trained times count less and less.

Rows depend on the trained tables and on the current facts only, never on the order in which these came. Times come
first, one after another, by their facts of trained entities and predicates. In a first pass of entities and predicates
all others have their priors, in a second one the rows of the first pass. So a change of facts concerns the ids in them,
those within two steps, and later times, and only these are solved again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from recollect.engine import one_thread
from recollect.graph.facts import Facts
from recollect.models.new_rows.forgetting import rows_without
from recollect.models.new_rows.likelihood import minimise
from recollect.models.new_rows.one_vs_all import fit_row, most_facts
from recollect.models.new_rows.open_facts import OpenFacts
from recollect.models.new_rows.tables import Layout, RowKey, extended, read_row, set_rows_, with_rows_of
from recollect.models.new_rows.trained import Trained
from recollect.models.tensor_model import TensorModel

Rows = Mapping[RowKey, Tensor]


@dataclass(frozen=True, eq=False)
class Grown:
    """A model with rows for all ids, and what is needed to solve again only some of them."""

    model: TensorModel
    first: Rows = field(repr=False)  # of the first pass
    second: Rows = field(repr=False)  # of the second pass, and of times: those of the model
    kept: Rows = field(repr=False)  # of trained ids that have lost facts


class RowSolver:
    """Solves rows for the ids that a trained model has not seen; what all of them need is prepared once."""

    def __init__(self, trained: TensorModel, facts: Facts) -> None:
        """`facts` are those the model was trained on."""
        self.trained = Trained(trained, facts)

    @torch.no_grad()
    def solve(
        self,
        sizes: Mapping[str, int],
        facts: Facts,
        *,
        earlier: int = 0,
        forgotten: Facts | None = None,
        before: Grown | None = None,
        changed: Facts | None = None,
    ) -> Grown:
        """Return the model with rows for all ids of `sizes`; every other row stays as it is, bit for bit.

        `facts` are the current ones; of them only those with a new id matter. New entities and predicates have the ids
        after the trained ones; so have new times, but `earlier` of them come first. `forgotten` are facts that the
        model was trained on and that are not stored any more: what trained rows learned from them is taken out. With
        `before`, an earlier result, and the facts that have `changed` since, added or removed, only the rows that these
        can change are solved again.
        """
        layout, model, current, keys = self._open(sizes, facts, earlier)
        first, second = set(keys), set(keys)
        known_first: Rows = {}
        known_second: Rows = {}
        if before is not None and changed is not None:
            known_first, known_second = before.first, before.second
            first, second = current.affected(model.normalize(changed), keys)
        with one_thread():
            priors = {key: self._prior(model, current, key) for key in keys}
            set_rows_(model, priors, layout)
            times = self._times(model, current, priors, second, known_second)
            set_rows_(model, times, layout)
            rows = self._first_pass(model, current, priors, first, known_first)
            set_rows_(model, rows, layout)
            final = self._second_pass(model, current, priors, rows, second, known_second)
            set_rows_(model, final, layout)
            kept = self._kept(forgotten, earlier, before, changed)
        return Grown(with_rows_of(model, kept, layout), rows, {**times, **final}, kept)

    def _open(
        self, sizes: Mapping[str, int], facts: Facts, earlier: int
    ) -> tuple[Layout, TensorModel, OpenFacts, list[RowKey]]:
        """Return the layout of more ids, a model with tables of these sizes, the facts of new ids, and their keys."""
        layout = Layout(self.trained.model.sizes, sizes, earlier)
        model = extended(self.trained.model, layout)
        new = {kind: layout.new_ids(kind) for kind in sizes}
        keys = [key for kind, ids in new.items() for key in layout.keys(model, kind, ids)]
        return layout, model, OpenFacts(model, layout, model.normalize(facts.true()), new), keys

    def _kept(self, forgotten: Facts | None, earlier: int, before: Grown | None, changed: Facts | None) -> Rows:
        """Return the rows of trained ids that have lost facts."""
        if forgotten is None or not len(forgotten):
            return {}
        lost = self.trained.model.normalize(forgotten.with_slot("t", forgotten.t - earlier))
        if before is None or changed is None:
            return rows_without(self.trained, lost)
        changed = self.trained.model.normalize(changed.with_slot("t", changed.t - earlier))
        return rows_without(self.trained, lost, known=before.kept, changed=changed)

    @torch.no_grad()
    def priors(self, sizes: Mapping[str, int], facts: Facts, *, earlier: int = 0) -> TensorModel:
        """Return the model with rows for all ids of `sizes`, new ones at their priors: where a training may start."""
        layout, model, current, keys = self._open(sizes, facts, earlier)
        set_rows_(model, {key: self._prior(model, current, key) for key in keys}, layout)
        return model

    def _first_pass(
        self, model: TensorModel, current: OpenFacts, priors: Rows, affected: Collection[RowKey], known: Rows
    ) -> Rows:
        """Return the rows of entities and predicates: known ones, solved again where they are affected."""
        rows = {}
        for key, prior in priors.items():
            if key.kind != "time":
                is_known = key in known and key not in affected
                rows[key] = known[key] if is_known else self._solve(model, current, key, prior, prior)
        return rows

    def _times(
        self, model: TensorModel, current: OpenFacts, priors: Rows, affected: Collection[RowKey], known: Rows
    ) -> Rows:
        """Return the rows of times after the trained ones, then of those before, in the order of their distance."""
        rows: dict[RowKey, Tensor] = {}
        keys = sorted((key for key in priors if key.kind == "time"), key=lambda key: key.number)
        sides = [key for key in keys if key.number > 0], [key for key in reversed(keys) if key.number < 0]
        for side in sides:
            prior = priors[side[0]] if side else None
            for key in side:
                assert prior is not None
                is_known = key in known and key not in affected
                rows[key] = known[key] if is_known else self._solve(model, current, key, prior, prior)
                prior = (prior + rows[key]) / 2
        return rows

    def _second_pass(
        self,
        model: TensorModel,
        current: OpenFacts,
        priors: Rows,
        first: Rows,
        affected: Collection[RowKey],
        known: Rows,
    ) -> Rows:
        """Return the rows of entities and predicates, with those of all other new ids."""
        rows = {}
        for key, row in first.items():
            if key in known and key not in affected:
                rows[key] = known[key]
            else:
                rows[key] = self._solve(model, current, key, priors[key], row) if current.has_others(key) else row
        return rows

    def _solve(self, model: TensorModel, current: OpenFacts, key: RowKey, prior: Tensor, start: Tensor) -> Tensor:
        """Return the row of a key by the losses of its questions; its prior if it has none."""
        facts = current.of(key)
        if key.kind == "time":
            facts = current.among_trained(facts)
        if not len(facts):
            return prior
        ridge = self.trained.time_ridge if key.kind == "time" else self.trained.ridge(key.kind)
        if key.kind == "entity":
            problem = self.trained.problem(model, current, key, facts)
            return prior if problem is None else minimise(*problem, prior=prior, ridge=ridge, start=start)
        entities = self.trained.model.sizes["entity"]
        sample = facts[:: -(-len(facts) // most_facts(entities))]
        slot, weight = key.kind[0], len(facts) / len(sample)
        return fit_row(
            model, current.questions(key, sample), slot, entities=entities, prior=prior, ridge=ridge, weight=weight
        )

    def _prior(self, model: TensorModel, current: OpenFacts, key: RowKey) -> Tensor:
        """Return the row that a key has without facts, and to which the ridge pulls it: (d,)."""
        if key.kind == "time":
            nearest = 0 if key.number < 0 else self.trained.model.sizes["time"] - 1
            return read_row(model, RowKey("time", nearest), current.layout)
        if key.kind == "predicate":
            return self.trained.predicate_means[int(key.inverse)]
        mean, by_role = self.trained.role_means
        facts = current.of(key)
        facts = facts[facts.p < self.trained.model.sizes["predicate"]]
        as_subject, as_object = facts.p[facts.s == key.number], facts.p[facts.o == key.number]
        roles = torch.cat([as_subject, as_object + self.trained.model.sizes["predicate"]])
        return (by_role[roles].sum(0) + mean) / (len(roles) + 1)
