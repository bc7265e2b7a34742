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
from functools import cached_property

import torch
from torch import Tensor

from recollect.engine import one_thread
from recollect.graph.facts import KINDS, Facts
from recollect.models.new_rows.background import Background
from recollect.models.new_rows.likelihood import minimise
from recollect.models.new_rows.open_facts import OpenFacts
from recollect.models.new_rows.problem import assemble, questions_of
from recollect.models.new_rows.tables import Layout, RowKey, extended, read_row, with_solved_rows
from recollect.models.tensor_model import TensorModel

RIDGE = 1 / 6  # in units of 1 / variance of a table's elements: independent of the scale of the embeddings
FACTS = 256  # of one id, at most: more are represented by every n-th

Rows = Mapping[RowKey, Tensor]


@dataclass(frozen=True, eq=False)
class Grown:
    """A model with rows for all ids, and what is needed to solve again only some of them."""

    model: TensorModel
    first: Rows = field(repr=False)  # of the first pass
    second: Rows = field(repr=False)  # of the second pass: those of the model


class RowSolver:
    """Solves rows for the ids that a trained model has not seen; what all of them need is prepared once."""

    def __init__(self, trained: TensorModel, facts: Facts) -> None:
        """`facts` are those the model was trained on."""
        self.trained, self.facts = trained, trained.normalize(facts.true())

    @torch.no_grad()
    def solve(
        self,
        sizes: Mapping[str, int],
        facts: Facts,
        *,
        earlier: int = 0,
        again: Mapping[str, Tensor] | None = None,
        before: Grown | None = None,
        changed: Facts | None = None,
    ) -> Grown:
        """Return the model with rows for all ids of `sizes`; every other row stays as it is, bit for bit.

        `facts` are the current ones; of them only those with a new id matter. New entities and predicates have the ids
        after the trained ones; so have new times, but `earlier` of them come first. Rows of the trained ids in `again`
        (by kind) are solved as if they were new. With `before`, an earlier result, and the facts that have `changed`
        since, added or removed, only the rows that these can change are solved again.
        """
        layout = Layout(self.trained.sizes, sizes, earlier)
        blank = extended(self.trained, layout)
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
        return Grown(with_solved_rows(blank, final, layout), rows, final)

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
        """Return the row of a key by the losses of its questions; `model` has the rows of all other ids.

        The prior if there are no facts, or if θ is not linear in the row: Tree has a time twice.
        """
        slots, row = model.equation.slots, current.layout.id(key)
        facts = current.of(key)
        is_linear = all(len(equation.occurrences("t")) < 2 for equation in model.equations.values())
        if not len(facts) or (key.kind == "time" and not is_linear):
            return prior
        sample = facts[:: -(-len(facts) // FACTS)]
        questions = []
        for about, slot in current.questions(key, sample):
            questions += questions_of(row, key.kind, about, slot, slots)
        if not questions:
            return prior
        background = self._background.of(questions, model.sizes["predicate"]) if key.kind == "entity" else []
        entities, weight = self.trained.sizes["entity"], len(facts) / len(sample)
        design, likelihood = assemble(model, questions, entities, weight=weight, background=background)
        return minimise(design, likelihood, prior=prior, ridge=RIDGE / self._variance[key.kind], start=start)

    # -- what all rows need -----------------------------------------------------------------------------------------

    def _prior(self, model: TensorModel, current: OpenFacts, key: RowKey) -> Tensor:
        """Return the row that a key has without facts, and to which the ridge pulls it: (d,)."""
        if key.kind == "time":
            last = self.trained.sizes["time"] - 1
            nearest = min(max(key.number, 0), last)
            if nearest == key.number:  # a trained time that is solved again: the one before it
                nearest = key.number - 1 if key.number else min(1, last)
            return read_row(model, RowKey("time", nearest), current.layout)
        if key.kind == "predicate":
            return self._predicate_means[int(key.inverse)]
        mean, by_role = self._role_means
        facts = current.of(key)
        facts = facts[facts.p < self.trained.sizes["predicate"]]
        as_subject, as_object = facts.p[facts.s == key.number], facts.p[facts.o == key.number]
        roles = torch.cat([as_subject, as_object + self.trained.sizes["predicate"]])
        return (by_role[roles].sum(0) + mean) / (len(roles) + 1)

    @cached_property
    def _role_means(self) -> tuple[Tensor, Tensor]:
        """The mean row of entities (d,), and of the subjects, then of the objects, of every predicate: (2 P, d)."""
        rows, count = self.trained.entity.detach().flatten(1), self.trained.sizes["predicate"]
        entities = torch.cat([self.facts.s, self.facts.o])
        roles = torch.cat([self.facts.p, self.facts.p + count])
        mean = rows[entities].mean(0) if len(entities) else rows.mean(0)
        sums = mean.repeat(2 * count, 1).index_add_(0, roles, rows[entities])
        return mean, sums / (1 + roles.bincount(minlength=2 * count)[:, None])

    @cached_property
    def _predicate_means(self) -> tuple[Tensor, Tensor]:
        """The mean row of trained predicates, and that of their inverses: (d,) each."""
        rows, count = _joined(self.trained, "predicate"), self.trained.sizes["predicate"]
        return rows[:count].mean(0), rows[-count:].mean(0)

    @cached_property
    def _background(self) -> Background:
        return Background(self.trained, self.facts)

    @cached_property
    def _variance(self) -> dict[str, float]:
        """The mean square of the elements of trained rows around the mean row, by kind."""
        kinds = {KINDS[slot] for slot in self.trained.slots}
        joined = {kind: _joined(self.trained, kind) for kind in kinds}
        return {kind: max((rows - rows.mean(0)).square().mean().item(), 1e-12) for kind, rows in joined.items()}


def _prior_of_second_pass(key: RowKey, priors: Rows, first: Rows) -> Tensor:
    """Return the prior: of a time, the row of the first pass of the time next to it, towards the trained ones."""
    if key.kind != "time":
        return priors[key]
    return first.get(RowKey("time", key.number + (1 if key.number < 0 else -1)), priors[key])


def _joined(model: TensorModel, kind: str) -> Tensor:
    """Return the rows of all tables of a kind, one table after the other: (N, d)."""
    return torch.cat([getattr(model, name).detach().flatten(1) for name in model.table_names(kind)], dim=1)
