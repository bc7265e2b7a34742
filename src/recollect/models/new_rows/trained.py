"""What the rows of all new ids need from a trained model: means, scales, and samples of the facts it was trained on."""

from __future__ import annotations

import math
from functools import cached_property

import torch
from torch import Tensor

from recollect.graph.facts import Facts
from recollect.models.new_rows.background import Background
from recollect.models.new_rows.likelihood import Design, Likelihood
from recollect.models.new_rows.open_facts import OpenFacts
from recollect.models.new_rows.problem import TrainedEntities, assemble, questions_of
from recollect.models.new_rows.tables import Layout, RowKey
from recollect.models.tensor_model import TensorModel

RIDGE = 1 / 6  # in units of 1 / variance of a kind's rows: independent of the scale of the embeddings
TIME_RIDGE = 0.03  # the same of new times, which have many facts and a close prior; 0.01 and 0.1 are worse on ICEWS14
FACTS = 256  # of one id, at most: more are represented by every n-th


class Trained:
    """A trained model and the facts it was trained on; everything else is computed when it is first needed."""

    def __init__(self, model: TensorModel, facts: Facts) -> None:
        self.model, self.facts = model, model.normalize(facts.true())
        self._variances: dict[str, float] = {}

    def problem(
        self,
        model: TensorModel,
        current: OpenFacts,
        key: RowKey,
        facts: Facts,
        *,
        most: int = FACTS,
        background: bool = True,
    ) -> tuple[Design, Likelihood] | None:
        """Return the problem of a key by some of its facts; `model` has the rows of all other ids.

        At most `most` facts are read; more are represented by every n-th. An entity also has questions to which it is
        no answer, unless `background` is False. None if there are no facts, or if θ is not linear in the row: Tree has
        a time twice.
        """
        is_linear = all(len(equation.occurrences("t")) < 2 for equation in model.equations.values())
        if not len(facts) or (key.kind == "time" and not is_linear):
            return None
        sample = facts[:: -(-len(facts) // most)]
        row = current.layout.id(key)
        questions = questions_of(row, key.kind, current.questions(key, sample), model.equation.slots)
        if not questions:
            return None
        others = []
        if background and key.kind == "entity":
            others = self.background.of(questions, model.sizes["predicate"])
        weight = len(facts) / len(sample)
        return assemble(model, questions, self.entities, weight=weight, background=others)

    def ridge(self, kind: str) -> float:
        """Return the weight of ‖x − prior‖² for rows of a kind."""
        return RIDGE / self.variance(kind)

    @cached_property
    def time_ridge(self) -> float:
        """The weight of ‖x − prior‖² for the row of a new time."""
        return TIME_RIDGE / _variance(self.model.rows("t").detach().flatten(1))

    def deviation(self, kind: str) -> float:
        """Return the standard deviation of the elements of a kind's rows."""
        return math.sqrt(self.variance(kind))

    @cached_property
    def index(self) -> OpenFacts:
        """The trained facts by their ids."""
        sizes = self.model.sizes
        every = {kind: torch.arange(size) for kind, size in sizes.items()}
        return OpenFacts(self.model, Layout(sizes, sizes), self.facts, every)

    @cached_property
    def role_means(self) -> tuple[Tensor, Tensor]:
        """The mean row of entities (d,), and of the subjects, then of the objects, of every predicate: (2 P, d)."""
        rows, count = self.model.entity.detach().flatten(1), self.model.sizes["predicate"]
        entities = torch.cat([self.facts.s, self.facts.o])
        roles = torch.cat([self.facts.p, self.facts.p + count])
        mean = rows[entities].mean(0) if len(entities) else rows.mean(0)
        sums = mean.repeat(2 * count, 1).index_add_(0, roles, rows[entities])
        return mean, sums / (1 + roles.bincount(minlength=2 * count)[:, None])

    @cached_property
    def predicate_means(self) -> tuple[Tensor, Tensor]:
        """The mean row of trained predicates, and that of their inverses: (d,) each."""
        rows, count = _joined(self.model, "predicate"), self.model.sizes["predicate"]
        return rows[:count].mean(0), rows[-count:].mean(0)

    @cached_property
    def background(self) -> Background:
        return Background(self.model, self.entities, self.facts)

    @cached_property
    def entities(self) -> TrainedEntities:
        return TrainedEntities(self.model)

    def variance(self, kind: str) -> float:
        """Return that of the rows of a kind's tables."""
        if kind not in self._variances:
            self._variances[kind] = _variance(_joined(self.model, kind))
        return self._variances[kind]


def _joined(model: TensorModel, kind: str) -> Tensor:
    """Return the rows of all tables of a kind, one table after the other: (N, d)."""
    return torch.cat([getattr(model, name).detach().flatten(1) for name in model.table_names(kind)], dim=1)


def _variance(rows: Tensor) -> float:
    """Return the mean square of the elements of rows (N, d) around the mean row."""
    return max((rows - rows.mean(0)).square().mean().item(), 1e-12)
