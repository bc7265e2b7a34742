"""Rows for entities, predicates and times that a trained model has not seen, each solved for with all others fixed.

The row of an id is the minimum of the one-vs-all losses of its own facts, and of a sample of the trained facts to which
it is no answer, with a ridge towards a prior (`likelihood.py`). Candidates are the trained entities. The prior of an
entity is the mean row of the trained entities that have facts of the same predicates in the same slots; of a predicate,
the mean of all; of a time, the nearest trained time.

Rows depend on the trained tables and on the current facts only, never on the order in which these came. In a first pass
all other new ids have their priors, in a second one the rows of the first pass. So a change of facts concerns the ids
in them and those within two steps, and only these are solved again.
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
from recollect.models.new_rows.open_facts import OpenFacts
from recollect.models.new_rows.tables import Layout, RowKey, extended, read_row, with_solved_rows
from recollect.models.new_rows.trained import Trained
from recollect.models.tensor_model import TensorModel

Rows = Mapping[RowKey, Tensor]


@dataclass(frozen=True, eq=False)
class Grown:
    """A model with rows for all ids, and what is needed to solve again only some of them."""

    model: TensorModel
    first: Rows = field(repr=False)  # of the first pass
    second: Rows = field(repr=False)  # of the second pass: those of the model
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
        again: Mapping[str, Tensor] | None = None,
        forgotten: Facts | None = None,
        before: Grown | None = None,
        changed: Facts | None = None,
    ) -> Grown:
        """Return the model with rows for all ids of `sizes`; every other row stays as it is, bit for bit.

        `facts` are the current ones; of them only those with a new id matter. New entities and predicates have the ids
        after the trained ones; so have new times, but `earlier` of them come first. Rows of the trained ids in `again`
        (by kind) are solved as if they were new. `forgotten` are facts that the model was trained on and that are not
        stored any more: what trained rows learned from them is taken out. With `before`, an earlier result, and the
        facts that have `changed` since, added or removed, only the rows that these can change are solved again.
        """
        layout = Layout(self.trained.model.sizes, sizes, earlier)
        blank = extended(self.trained.model, layout)
        open_ids = {kind: layout.new_ids(kind) for kind in sizes}
        for kind, ids in (again or {}).items():
            open_ids[kind] = torch.cat([open_ids[kind], ids]).unique()
        keys = [key for kind, ids in open_ids.items() for key in layout.keys(blank, kind, ids)]
        current = OpenFacts(blank, layout, blank.normalize(facts.true()), open_ids)
        first, second = set(keys), set(keys)
        known_first: Rows = {}
        known_second: Rows = {}
        if before is not None and changed is not None:
            known_first, known_second = before.first, before.second
            first, second = current.affected(blank.normalize(changed), keys)
        with one_thread():
            priors = {key: self._prior(blank, current, key) for key in keys}
            rows = self._pass(with_solved_rows(blank, priors, layout), current, keys, first, priors, known_first)
            model = with_solved_rows(blank, rows, layout)
            final = self._pass(model, current, keys, second, priors, known_second, rows)
            kept = self._kept(forgotten, earlier, before, changed)
        return Grown(with_solved_rows(blank, {**kept, **final}, layout), rows, final, kept)

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
        layout = Layout(self.trained.model.sizes, sizes, earlier)
        blank = extended(self.trained.model, layout)
        open_ids = {kind: layout.new_ids(kind) for kind in sizes}
        current = OpenFacts(blank, layout, blank.normalize(facts.true()), open_ids)
        keys = [key for kind, ids in open_ids.items() for key in layout.keys(blank, kind, ids)]
        return with_solved_rows(blank, {key: self._prior(blank, current, key) for key in keys}, layout)

    def _pass(
        self,
        model: TensorModel,
        current: OpenFacts,
        keys: Collection[RowKey],
        affected: Collection[RowKey],
        priors: Rows,
        known: Rows,
        first: Rows | None = None,
    ) -> Rows:
        """Return the rows of all keys: known ones, solved again where they are affected; `first` in the second pass."""
        rows = {}
        for key in keys:
            if key in known and key not in affected:
                rows[key] = known[key]
            elif first is None:
                rows[key] = self._solve(model, current, key, priors[key], priors[key])
            else:
                prior = _prior_of_second_pass(key, priors, first)
                is_same = prior is priors[key] and not current.has_others(key)
                rows[key] = first[key] if is_same else self._solve(model, current, key, prior, first[key])
        return rows

    def _solve(self, model: TensorModel, current: OpenFacts, key: RowKey, prior: Tensor, start: Tensor) -> Tensor:
        """Return the row of a key by the losses of its questions; its prior if it has none."""
        problem = self.trained.problem(model, current, key, current.of(key))
        if problem is None:
            return prior
        return minimise(*problem, prior=prior, ridge=self.trained.ridge(key.kind), start=start)

    def _prior(self, model: TensorModel, current: OpenFacts, key: RowKey) -> Tensor:
        """Return the row that a key has without facts, and to which the ridge pulls it: (d,)."""
        if key.kind == "time":
            last = self.trained.model.sizes["time"] - 1
            nearest = min(max(key.number, 0), last)
            if nearest == key.number:  # a trained time that is solved again: the one before it
                nearest = key.number - 1 if key.number else min(1, last)
            return read_row(model, RowKey("time", nearest), current.layout)
        if key.kind == "predicate":
            return self.trained.predicate_means[int(key.inverse)]
        mean, by_role = self.trained.role_means
        facts = current.of(key)
        facts = facts[facts.p < self.trained.model.sizes["predicate"]]
        as_subject, as_object = facts.p[facts.s == key.number], facts.p[facts.o == key.number]
        roles = torch.cat([as_subject, as_object + self.trained.model.sizes["predicate"]])
        return (by_role[roles].sum(0) + mean) / (len(roles) + 1)


def _prior_of_second_pass(key: RowKey, priors: Rows, first: Rows) -> Tensor:
    """Return the prior: of a time, the row of the first pass of the time next to it, towards the trained ones."""
    if key.kind != "time":
        return priors[key]
    return first.get(RowKey("time", key.number + (1 if key.number < 0 else -1)), priors[key])
