"""Adam and Adagrad that visit only the rows a batch has touched.

A table of which a batch touches most rows is updated whole, as PyTorch would. One of which it touches
few (the core of a time, an entity among many) is updated row by row; what Adam's momentum would have done to
a row in the steps between is made up for when the row is next touched, and at `settle_`, in closed form:
over k untouched steps m decays to β₁ᵏm and the row moves by lr β₁(1 − β₁ᵏ)/(1 − β₁) m / (√v̂ + ε), v̂ and the
correction of m taken as they were at the last touch. There it differs from exact Adam, by a few percent of the way
that a row goes. Adagrad is exact: it has no momentum.
The penalty's gradient of the untouched steps is added to the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor, nn

from recollect.engine import kernels as native
from recollect.engine.kernels import ADAGRAD_EPSILON, BETA1, BETA2, EPSILON
from recollect.engine.ops import is_compiled
from recollect.engine.parallel import one_thread, parallel_for

WORK = 16  # multiplications that updating a number is worth
OPTIMIZERS = ("adam", "adagrad")


class Optimizer:
    """One step down for every parameter; `lazy` names the tables that are updated row by row."""

    def __init__(
        self,
        kind: str,
        parameters: Mapping[str, nn.Parameter],
        *,
        lr: float,
        decay: float,
        lazy: frozenset[str],
        rates: Mapping[str, float] | None = None,
    ) -> None:
        """`rates` are factors of the learning rate for some tables."""
        self.kind, self.parameters, self.lr, self.decay, self.lazy = kind, dict(parameters), lr, decay, lazy
        self.step_count, self.rates = 0, dict(rates or {})
        self.moments = {name: self._fresh(parameter) for name, parameter in self.parameters.items()}

    def _fresh(self, parameter: nn.Parameter) -> dict[str, Tensor]:
        """What is remembered of every row: moments, the step of its last move, and up to which its penalty is paid."""
        names = ("exp_avg", "exp_avg_sq") if self.kind == "adam" else ("sum",)
        moments = {name: torch.zeros_like(parameter.detach()) for name in names}
        steps = torch.zeros(len(parameter), dtype=torch.int64, device=parameter.device)
        return moments | {"last": steps, "paid": steps.clone()}

    def _rate(self, name: str) -> float:
        return self.lr * self.rates.get(name, 1.0)

    @torch.no_grad()
    def step(self, gradients: Mapping[str, tuple[Tensor | None, Tensor]]) -> None:
        """By the gradient of each table, or of the rows of a lazy one that are told with it."""
        self.step_count += 1
        with one_thread():
            for name, (rows, grad) in gradients.items():
                self._move(name, rows, grad)

    @torch.no_grad()
    def settle_(self) -> None:
        """Make up for the untouched steps of every row, so that the weights are what they would be."""
        if self.kind == "adam":
            with one_thread():
                for name in self.lazy:
                    self._move(name, None, None)

    def _move(self, name: str, rows: Tensor | None, grad: Tensor | None) -> None:
        moments, weight = self.moments[name], self.parameters[name]
        flat = [
            x.view(len(x), -1)
            for x in (weight.detach(), *(moments[key] for key in moments if key not in ("last", "paid")))
        ]
        count, width = len(weight) if rows is None else len(rows), flat[0].shape[1]
        values = flat[0].new_zeros(0, width) if grad is None else grad.reshape(count, width)
        steps, rate = (moments["last"], moments["paid"]), self._rate(name)
        if is_compiled(*flat):
            tables = [x.numpy() for x in (*flat, *steps)]
            ids, gradients = np.arange(count) if rows is None else rows.numpy(), values.numpy()

            def some(first: int, last: int) -> None:  # rows are distinct: no two threads meet in one
                COMPILED[self.kind](*tables, ids[first:last], gradients[first:last], self.step_count, rate, self.decay)

            parallel_for(some, count, WORK * count * width)
        else:
            which = slice(None) if rows is None else rows  # of a whole table nothing is copied
            PLAIN[self.kind](*flat, *steps, which, values, self.step_count, rate, self.decay)

    def state(self) -> dict[str, Tensor]:
        """Everything the next step depends on, beside the weights."""
        known = {f"{key}.{name}": value for name, moments in self.moments.items() for key, value in moments.items()}
        return {"step": torch.tensor(self.step_count), **known}

    def restore_(self, tensors: Mapping[str, Tensor]) -> None:
        """Continue from a `state`."""
        self.step_count = int(tensors["step"])
        for name, moments in self.moments.items():
            for key, value in moments.items():
                value.copy_(tensors[f"{key}.{name}"])


def _adam_rows(
    weight: Tensor,
    average: Tensor,
    square: Tensor,
    last: Tensor,
    paid: Tensor,
    rows: Tensor | slice,
    grad: Tensor,
    step: int,
    lr: float,
    decay: float,
) -> None:
    """Row by row: the untouched steps since the last touch, then, if there is a gradient, this step."""
    p, m, v, seen = weight[rows], average[rows], square[rows], last[rows].to(weight.dtype)[:, None]
    touched = len(grad) > 0
    gap = step - seen - int(touched)  # steps in which nothing touched the row
    moving = seen > 0
    root = (v / (1 - BETA2**seen).where(moving, 1)).sqrt() + EPSILON
    tail = lr / (1 - BETA1**seen).where(moving, 1) * BETA1 * (1 - BETA1**gap) / (1 - BETA1)
    p = p - (tail * m / root).where(moving, 0)
    m, v = m * BETA1**gap, v * BETA2**gap
    if touched:
        g = grad + decay * (step - paid[rows]).to(p.dtype)[:, None] * p
        paid[rows] = step
        m, v = BETA1 * m + (1 - BETA1) * g, BETA2 * v + (1 - BETA2) * g * g
        p = p - lr / (1 - BETA1**step) * m / ((v / (1 - BETA2**step)).sqrt() + EPSILON)
    weight[rows], average[rows], square[rows], last[rows] = p, m, v, step


def _adagrad_rows(
    weight: Tensor,
    total: Tensor,
    last: Tensor,
    paid: Tensor,
    rows: Tensor | slice,
    grad: Tensor,
    step: int,
    lr: float,
    decay: float,
) -> None:
    gap = (step - paid[rows]).to(weight.dtype)[:, None]
    g = grad + decay * gap * weight[rows]
    total[rows] += g * g
    weight[rows] -= lr * g / (total[rows].sqrt() + ADAGRAD_EPSILON)
    last[rows] = paid[rows] = step


COMPILED: dict[str, Callable[..., None]] = {"adam": native.adam_rows, "adagrad": native.adagrad_rows}
PLAIN: dict[str, Callable[..., None]] = {"adam": _adam_rows, "adagrad": _adagrad_rows}
