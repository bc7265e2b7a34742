"""Bind a batch of facts to a model: one contraction per equation computes scores and queries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from recollect.engine import Contraction, distinct_counts, gather_dot
from recollect.graph.facts import Facts, check_ids
from recollect.models.parameters import table_name

if TYPE_CHECKING:
    from recollect.models.tensor_model import TensorModel

LIFT_WHOLE = 4  # lift the whole table if a batch needs at least 1/4 of its rows, else only the rows it needs


class Batch:
    """Facts bound to a model; products of factors are computed once and shared by all open slots."""

    def __init__(
        self, model: TensorModel, facts: Facts, counts: Mapping[str, int] | None = None, open: str = ""
    ) -> None:
        self.model, self.facts = model, facts.to(model.device)
        self.contractions: dict[str, Contraction] = {}
        for prefix, equation in model.equations.items():
            ids = {slot: self.facts.column(slot).contiguous() for slot in equation.slots}
            cores = [getattr(model, f"{prefix}core{number}") for number in range(len(equation.cores))]
            combinations = counts or distinct_counts(equation.terms, ids, open)
            self.contractions[prefix] = Contraction(equation.terms, ids, self._factor(prefix), cores, combinations)

    def score(self) -> Tensor:
        """Return θ of each fact: (B,)."""
        return reduce(torch.add, [real(contraction.score()) for contraction in self.contractions.values()])

    def query(self, slot: str) -> Tensor:
        """Return real rows (B, d) whose products with `model.candidates(slot)` are scores.

        Queries of equations that read the slot from one table are added, others concatenated. An equation without the
        slot adds its score as a column that is multiplied by the constant 1.
        """
        parts: dict[str, list[Tensor]] = {}
        for prefix, contraction in self.contractions.items():
            if slot in contraction.ids:
                name = table_name(self.model.equations, prefix, slot)
                parts.setdefault(name, []).append(real_rows(contraction.query(slot).flatten(1)))
            else:
                parts.setdefault("", []).append(real(contraction.score())[:, None])
        columns = [reduce(torch.add, queries) for queries in parts.values()]
        return torch.cat(columns, dim=1) if len(columns) > 1 else columns[0]

    def score_candidates(self, slot: str, ids: Tensor) -> Tensor:
        """Return θ of each fact with each of its own candidates (B, K) of a slot with vector rows: (B, K)."""
        if len(self.contractions) > 1:
            check_ids(slot, ids, self.model.id_count(slot))
            candidates = self.model.candidates(slot)
            assert candidates is not None
            return gather_dot(self.query(slot), candidates, ids)
        rows, index = self.contractions[""].factor(slot, ids)
        return gather_dot(self.query(slot), real_candidates(rows), index)

    def elements(self, slot: str | None, candidates: Tensor | None = None) -> int:
        """Return the number of elements of all intermediate tensors of a score, or of the query of a slot."""
        total = 0
        for contraction in self.contractions.values():
            if slot is None or slot not in contraction.ids:
                total += contraction.elements()
            elif candidates is None:
                total += contraction.elements(slot)
            else:
                total += contraction.with_candidates(slot, candidates).elements()
        return total

    def cost(self, slots: str) -> float:
        """Return the estimated FLOPs of the queries of some slots; shared products count once."""
        return sum(contraction.cost(slots) for contraction in self.contractions.values())

    def _factor(self, prefix: str) -> Callable[[str, Tensor], tuple[Tensor, Tensor]]:
        """Return a function (slot, ids) -> (rows, index) with rows[index] the factors of the ids."""
        model = self.model
        is_lifted = model.is_lifted
        whole_tables: dict[str, Tensor] = {}

        def factor(slot: str, ids: Tensor) -> tuple[Tensor, Tensor]:
            check_ids(slot, ids, model.id_count(slot))
            table = model.table(slot, prefix)
            if slot == "t" and model.knots is not None:
                times, index = ids.unique(return_inverse=True)
                return model.lift(slot, model.knots.rows(table, times)).resolve_conj(), index
            if is_lifted and 0 < LIFT_WHOLE * ids.numel() < len(table):
                index = torch.arange(ids.numel(), device=model.device).view(ids.shape)
                return model.lift(slot, table.index_select(0, ids.reshape(-1))).resolve_conj(), index
            if slot not in whole_tables:
                whole_tables[slot] = model.lift(slot, table).resolve_conj()
            return whole_tables[slot], ids

        return factor


def real(theta: Tensor) -> Tensor:
    """Return the real part."""
    return theta.real if theta.is_complex() else theta


def real_rows(rows: Tensor) -> Tensor:
    """Return complex rows (N, d) as real rows (N, 2d); real rows as they are."""
    return torch.view_as_real(rows.resolve_conj()).flatten(1) if rows.is_complex() else rows


def real_candidates(rows: Tensor) -> Tensor:
    """Return candidates (N, d) as real rows: Re Σ q x = Σ Re q Re x − Im q Im x, the real rows of conj(x)."""
    return real_rows(rows.conj())
