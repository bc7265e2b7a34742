"""Features of a table row: θ of a fact is φ · x + offset, x being the row of the id in one of its slots."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from recollect.graph.facts import KINDS, Facts
from recollect.models.batch import real, real_candidates, real_rows
from recollect.models.parameters import table_name
from recollect.models.tensor_model import TensorModel
from recollect.models.time_knots import TimeKnots


@torch.no_grad()
def row_features(model: TensorModel, facts: Facts, slot: str) -> tuple[Tensor, Tensor]:
    """Return φ (n, d) and offset (n,) with θ = φ · x + offset, x being the table row of each fact's id in `slot`.

    Where a kind has two tables, x is their rows one after the other, in the order of `model.table_names`.
    """
    queries: dict[str, list[Tensor]] = {}
    offset = torch.zeros(len(facts), dtype=model.dtype)
    batch = model.batch(facts, open=slot)
    for prefix, contraction in batch.contractions.items():
        if slot in contraction.ids:
            name = table_name(model.equations, prefix, slot)
            queries.setdefault(name, []).append(real_rows(contraction.query(slot).flatten(1)))
        else:
            offset = offset + real(contraction.score())
    parts = []
    for name in model.table_names(KINDS[slot]):
        shape = getattr(model, name).shape[1:]
        parts.append(_lowered(model, slot, shape, reduce(torch.add, queries[name])))
    return torch.cat(parts, dim=1) if len(parts) > 1 else parts[0], offset


def _lowered(model: TensorModel, slot: str, shape: torch.Size, query: Tensor) -> Tensor:
    """Return the gradient of query · lift(x) by table rows x of some shape: (n, D) -> (n, d)."""
    if not model.is_lifted:
        return query
    with torch.enable_grad():
        rows = torch.zeros(len(query), *shape, dtype=model.dtype, requires_grad=True)
        total = (real_candidates(model.lift(slot, rows).flatten(1)) * query).sum()
        (gradient,) = torch.autograd.grad(total, rows)
    return gradient.flatten(1)


@dataclass(frozen=True, eq=False)
class Implicit:
    """Features that are too many to store: Φ x by the model's own equation, Φᵀ w by its gradient."""

    model: TensorModel  # its tables of the kind have one row
    facts: Facts  # n facts with the id 0 in the slot
    names: tuple[str, ...]  # of these tables
    offset: Tensor  # (n,)

    @classmethod
    def of(cls, model: TensorModel, facts: Facts, slot: str) -> Implicit:
        """Return the features of facts by the row of their id in a slot; they all have the same id there."""
        names = tuple(model.table_names(KINDS[slot]))
        zeros = {name: torch.zeros_like(getattr(model, name).detach()[:1]) for name in names}
        knots = TimeKnots.of(1, (1,)) if slot == "t" and model.knots is not None else None
        single = model.with_rows(zeros, knots)
        facts = facts.with_slot(slot, 0)
        with torch.no_grad():
            return cls(single, facts, names, single.score(facts))

    def apply(self, x: Tensor) -> Tensor:
        tables = {}
        for name in self.names:
            like = getattr(self.model, name)
            tables[name], x = x[: like.numel()].view_as(like), x[like.numel() :]
        with torch.no_grad():
            return self.model.with_rows(tables).score(self.facts) - self.offset

    def adjoint(self, w: Tensor) -> Tensor:
        model = self.model.with_rows({})
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name in self.names)
        with torch.enable_grad():
            scores = model.score(self.facts)
        gradients = torch.autograd.grad(scores, [getattr(model, name) for name in self.names], w)
        return torch.cat([gradient.flatten() for gradient in gradients])
