"""Regularizers of embeddings: norms of the factors of a score, and smoothness over time."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from recollect.graph.facts import Facts
from recollect.models.batch import Batch, real_rows
from recollect.models.tensor_model import TensorModel
from recollect.models.time_knots import interpolate_untouched_, neighbours

ROWWISE_ELEMENTS = 2**12  # time rows of more elements are regularized one at a time, without copies


def embedding_norms(batch: Batch, slot: str, query: Tensor, answers: Tensor) -> tuple[Tensor, Tensor]:
    """Return the norms of each query's factors (B,) and of the answers (N,) to an open slot, s or o.

    Models with `norm = 3` (sums over one axis): Σ|·|³ of the given entity, of the product of all factors between it
    and the answer, by each equation, and of the answer; a smaller exponent would make terms of the sum vanish.
    Others: ‖·‖² of the given entity, of the query and of the answer, which is invariant to a change of basis.
    """
    cubic = batch.model.norm == 3
    norm = _cubic_norm if cubic else _squared_norm
    first = batch.contractions[""]
    between = [contraction.query("so") for contraction in batch.contractions.values()] if cubic else [query]
    given_slot = "s" if slot == "o" else "o"
    given, given_index = first.factor(given_slot, first.ids[given_slot])
    answer, answer_index = first.factor(slot, answers)
    queries = sum((norm(product) for product in between), start=norm(given).index_select(0, given_index))
    return queries, norm(answer).index_select(0, answer_index)


def _squared_norm(x: Tensor) -> Tensor:
    return real_rows(x).square().sum(dim=1)


def _cubic_norm(x: Tensor) -> Tensor:
    return x.abs().pow(3).sum(dim=1)


class TimeSmoothness:
    """weight · Σ ‖a_k − a_{k+1}‖² over neighbouring knots of the time table, added to the loss of all facts."""

    def __init__(self, model: TensorModel, facts: Facts, weight: float) -> None:
        """`facts` are the training facts."""
        self.model, self.weight = model, weight
        self.facts_per_time = facts.t.bincount(minlength=model.sizes["time"])
        self.neighbours = neighbours(model.sizes["time"], model.config.time_levels)

    @torch.no_grad()
    def add_gradient_(self, grads: Mapping[str, Tensor], times: Tensor, rows: Tensor | None) -> None:
        """Add a batch's share to the gradient of the time table, of which `grads` holds the given `rows`, or all.

        `times` (B,) are those of the batch's facts. A time is regularized by the share of its facts that the batch
        has, so that an epoch adds one whole gradient.
        """
        if not self.weight or "time" not in grads:
            return
        grad = grads["time"]
        scale = 2 * self.weight / len(times) * self._shares(times)
        rows = torch.arange(len(scale)) if rows is None else rows
        if grad[:1].numel() < ROWWISE_ELEMENTS:
            for neighbour in self.neighbours:
                near = neighbour[rows]
                has = (near >= 0) & (scale[rows] > 0)
                difference = self._knots(rows[has]) - self._knots(near[has])
                grad[has] += difference * scale[rows[has]].to(grad).view(-1, *[1] * (grad.dim() - 1))
            return
        for place, row in enumerate(rows.tolist()):
            alpha = float(scale[row])
            for neighbour in self.neighbours:
                near_row = int(neighbour[row])
                if near_row >= 0 and alpha:
                    knot, near_knot = self._knots(row), self._knots(near_row)
                    grad[place].add_(knot, alpha=alpha).sub_(near_knot, alpha=alpha)

    def _knots(self, ids: Tensor | int) -> Tensor:
        """Return the rows of some knots, or of one, without a copy."""
        return self.model.time[ids]

    def interpolate_(self) -> None:
        """Set the rows of knots without facts to where the regularizer alone would move them."""
        if self.weight:
            times_with_facts = self.facts_per_time.nonzero()[:, 0]
            interpolate_untouched_(
                self.model.time, times_with_facts, len(self.facts_per_time), self.model.config.time_levels
            )

    def _shares(self, times: Tensor) -> Tensor:
        """Return the share of each knot's training facts that the batch has: (knots,)."""
        found, counts = times.unique(return_counts=True)
        shares = torch.zeros(len(self.facts_per_time), dtype=torch.float64)
        shares[found] = counts / self.facts_per_time[found].double()
        if self.model.knots is None:
            return shares
        return self.model.knots.shares(shares, (self.facts_per_time > 0).double())
