"""A model as a PyTorch module: embedding tables, core tensors, and scores derived from its equation.

The factors of a fact are rows of three tables (entity, predicate, time); subject and object share one. `score`
contracts all factors. `score_against` contracts all but those of the open slot into a query and multiplies it with the
candidates, so both follow from one equation.

With `static`, θ is the sum of the episodic and the semantic equation. A `reciprocal` model has every predicate twice,
p and p⁻¹, and answers (?, p, o, t) as (o, p⁻¹, ?, t).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from recollect.engine import Zeros
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import Facts
from recollect.graph.run_index import RunIndex
from recollect.models import scoring
from recollect.models.batch import Batch, real_candidates
from recollect.models.config import ModelConfig
from recollect.models.equation import Equation
from recollect.models.parameters import STATIC, equations_of, initial_parameter, parameter_shapes, table_name
from recollect.models.time_knots import TimeKnots


class TensorModel(nn.Module):
    """θ by an equation over rows of the embedding tables and shared core tensors."""

    episodic: ClassVar[Equation | None] = None
    semantic: ClassVar[Equation | None] = None
    components: ClassVar[int] = 1  # 2: tables hold real and imaginary parts
    norm: ClassVar[int] = 2  # exponent of the embedding regularizer
    semantic_counterpart: ClassVar[type[TensorModel] | None] = None  # class of the model at a fixed time; None = own

    entity: nn.Parameter
    predicate: nn.Parameter
    time: nn.Parameter
    core0: nn.Parameter

    def __init__(
        self,
        sizes: Mapping[str, int],
        config: ModelConfig,
        *,
        device: torch.device | str | None = None,
        generator: torch.Generator | None = None,
        zeros: Zeros = torch.zeros,
    ) -> None:
        """Draw Xavier-uniform weights; `sizes` counts entities, predicates and times; `zeros` allocates tables."""
        super().__init__()
        knots = TimeKnots.of(sizes["time"], config.time_levels) if config.time_levels != (1,) else None
        self._set_structure(sizes, config, knots)
        for name, shape in parameter_shapes(type(self), config, sizes).items():
            self.register_parameter(name, initial_parameter(shape, config.torch_dtype, device, generator, zeros))

    def _set_structure(self, sizes: Mapping[str, int], config: ModelConfig, knots: TimeKnots | None) -> None:
        self.sizes, self.config, self.knots = dict(sizes), config, knots
        self.equations = equations_of(type(self), config)
        self.equation = self.equations[""]
        self.slots = self.equation.slots

    @classmethod
    def has_form(cls, form: str) -> bool:
        """Return whether the class defines an equation of the form, episodic or semantic."""
        return getattr(cls, form) is not None

    def with_rows(self, tables: Mapping[str, Tensor], knots: TimeKnots | None = None) -> Self:
        """Return the same model with other rows in some tables; all its parameters are new leaves."""
        model = type(self).__new__(type(self))
        nn.Module.__init__(model)
        sizes = self.sizes | {kind: len(table) for kind, table in tables.items() if kind in self.sizes}
        if knots is not None:
            sizes["time"] = knots.times
        model._set_structure(sizes, self.config, knots or self.knots)
        for name, parameter in self.named_parameters():
            model.register_parameter(name, nn.Parameter(tables.get(name, parameter.detach())))
        return model

    # -- embeddings -------------------------------------------------------------------------------------------------

    def lift(self, slot: str, rows: Tensor) -> Tensor:
        """Return table rows (…, shape) as factors of the equation (…, axes); the identity unless overridden."""
        return rows

    def lower(self, factors: Tensor) -> Tensor:
        """Return the predicate rows whose lifts are these factors; the inverse of `lift("p", rows)`."""
        return factors

    @property
    def is_lifted(self) -> bool:
        """Return whether factors differ from table rows."""
        return type(self).lift is not TensorModel.lift

    def table(self, slot: str, prefix: str = "") -> Tensor:
        """Return the embedding table that an equation reads a slot from."""
        table: Tensor = getattr(self, table_name(self.equations, prefix, slot))
        return table

    def table_names(self, kind: str) -> list[str]:
        """Return the names of the embedding tables of a kind."""
        parameters = dict(self.named_parameters())
        return [name for name in (kind, STATIC + kind) if name in parameters]

    def rows(self, slot: str, prefix: str = "", ids: Tensor | slice | None = None) -> Tensor:
        """Return the table rows of some ids of a slot, by default of all candidates: (N, shape); of times, no slice."""
        table = self.table(slot, prefix)
        if isinstance(ids, slice):
            return table[ids]
        if slot == "t" and self.knots is not None:
            return self.knots.rows(table, torch.arange(self.knots.times) if ids is None else ids)
        if ids is not None:
            return table.index_select(0, ids.to(self.device))
        return table[: self.sizes["predicate"]] if slot == "p" and self.config.reciprocal else table

    def id_count(self, slot: str) -> int:
        """Return the number of valid ids of a slot, inverse predicates included."""
        if slot == "t" and self.knots is not None:
            return self.knots.times
        return len(self.table(slot))

    def row_size(self, slot: str) -> int:
        """Return the number of elements of a table row."""
        return self.table(slot)[:1].numel()

    def has_matrix_rows(self, slot: str) -> bool:
        """Return whether a factor of the slot has two axes or more, such as the core of a time in ConT."""
        return len(self.equation.axes(slot)) > 1

    @property
    def dtype(self) -> torch.dtype:
        return self.entity.dtype

    @property
    def device(self) -> torch.device:
        return self.entity.device

    # -- facts as the model sees them -------------------------------------------------------------------------------

    def normalize(self, facts: Facts) -> Facts:
        """Return facts with time 0 if the model has no time slot; facts that differ only in time become equal."""
        return facts if "t" in self.slots else facts.with_slot("t", 0)

    def normalize_index(self, known: FactIndex) -> FactIndex:
        """Return the index of the normalized facts; the same index if the model has a time slot."""
        if "t" in self.slots:
            return known
        facts = known.runs.first if isinstance(known, RunIndex) else known.facts  # one fact tells of a whole run
        return FactIndex(self.normalize(facts), known.sizes)

    def inverse(self, facts: Facts) -> Facts:
        """Return (o, p⁻¹, s, t) of each fact (s, p, o, t); for reciprocal models."""
        ids = Facts.from_columns(facts.o, facts.p + self.sizes["predicate"], facts.s, facts.t).ids
        return replace(facts, ids=ids)

    def as_query(self, facts: Facts, slot: str) -> tuple[Facts, str]:
        """Return the facts and the slot to predict: a reciprocal model predicts s as o of the inverse facts."""
        return (self.inverse(facts), "o") if self.config.reciprocal and slot == "s" else (facts, slot)

    # -- scores -----------------------------------------------------------------------------------------------------

    def batch(self, facts: Facts, counts: Mapping[str, int] | None = None, open: str = "") -> Batch:
        """Return the facts bound to this model; `open` slots, if given, are never contracted.

        `counts` holds the number of distinct combinations of each set of slots; counted here if None.
        """
        return Batch(self, facts, counts, open)

    score = scoring.score
    score_against = scoring.score_against
    score_with_negatives = scoring.score_with_negatives
    queries = scoring.queries

    def candidates(self, slot: str, ids: Tensor | slice | None = None) -> Tensor | None:
        """Return the candidates of a slot as real rows (N, d); None if their factors are matrices or larger."""
        if slot not in self.slots or self.has_matrix_rows(slot):
            return None
        slot = "o" if self.config.reciprocal and slot == "s" else slot
        prefixes = {
            table_name(self.equations, prefix, slot): prefix
            for prefix, equation in self.equations.items()
            if slot in equation.slots
        }
        parts = [real_candidates(self.lift(slot, self.rows(slot, prefix, ids))) for prefix in prefixes.values()]
        if any(slot not in equation.slots for equation in self.equations.values()):
            parts.append(parts[0].new_ones(len(parts[0]), 1))  # a constant column for equations without the slot
        return torch.cat(parts, dim=1) if len(parts) > 1 else parts[0]
