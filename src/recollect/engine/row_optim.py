"""Adam and Adagrad that update only the rows a batch has touched.

A table of which a batch touches most rows is updated whole, as torch.optim would. One of which it touches few (the
cores of times, an entity among many) is *lazy*: its rows are updated when they are touched.

Adam moves a row by its momentum even in steps without a gradient. For k such steps m decays to β₁ᵏ m and the row moves
by lr · β₁ (1 − β₁ᵏ) / (1 − β₁) · m / (√v̂ + ε); that catch-up is applied in closed form when the row is next touched,
and to all rows by `catch_up_`. It uses v̂ and the bias correction of the last touch, so lazy Adam differs from
torch.optim.Adam by a few percent of a row's path. Lazy Adagrad is exact: it has no momentum. The gradient of the
weight decay of skipped steps is added to the next one.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from recollect.engine.compiled import is_compiled, kernels
from recollect.engine.mapped import Zeros
from recollect.engine.parallel import one_thread, parallel_for

OPTIMIZERS = ("adam", "adagrad")
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8  # of Adam
ADAGRAD_EPSILON = 1e-10
UPDATE_WORK = 16  # multiply-adds that updating one element costs
Rows = Tensor | slice  # ids (R,), or all rows


class RowOptimizer:
    """One optimizer step for every parameter; `lazy` names the tables that are updated row by row."""

    def __init__(
        self,
        kind: str,
        parameters: Mapping[str, nn.Parameter],
        *,
        lr: float,
        decay: float,
        lazy: frozenset[str],
        rates: Mapping[str, float] | None = None,
        zeros: Zeros = torch.zeros,
    ) -> None:
        """`decay` multiplies a row in its gradient (weight decay); `rates` scale `lr` for some tables.

        `zeros` allocates the state.
        """
        self.kind, self.parameters, self.lr, self.decay, self.lazy = kind, dict(parameters), lr, decay, lazy
        self.step_count, self.rates = 0, dict(rates or {})
        self.moments = {name: self._initial_state(parameter, zeros) for name, parameter in self.parameters.items()}

    def _initial_state(self, parameter: nn.Parameter, zeros: Zeros) -> dict[str, Tensor]:
        """Return moments, and per row the step of its last update and the step its decay is paid up to."""
        names = ("exp_avg", "exp_avg_sq") if self.kind == "adam" else ("sum",)
        device = parameter.device
        moments = {name: zeros(parameter.shape, dtype=parameter.dtype, device=device) for name in names}
        return moments | {name: zeros((len(parameter),), dtype=torch.int64, device=device) for name in ("last", "paid")}

    @torch.no_grad()
    def step(self, gradients: Mapping[str, tuple[Tensor | None, Tensor]]) -> None:
        """Update each parameter by (rows, gradient): gradient (R, …) of the distinct rows (R,), or of all if None."""
        self.step_count += 1
        with one_thread():
            for name, (rows, grad) in gradients.items():
                self._update(name, rows, grad)

    @torch.no_grad()
    def catch_up_(self) -> None:
        """Apply the skipped momentum steps of every lazy row that was ever touched; others have no momentum."""
        if self.kind == "adam":
            with one_thread():
                for name in self.lazy:
                    self._update(name, self.moments[name]["last"].nonzero()[:, 0], None)

    def _update(self, name: str, rows: Tensor | None, grad: Tensor | None) -> None:
        tensors = [self.parameters[name].detach(), *self.moments[name].values()]
        state = [x.view(len(x), -1) for x in tensors[:-2]] + tensors[-2:]
        values = None if grad is None else grad.reshape(-1, state[0].shape[1])
        lr = self.lr * self.rates.get(name, 1.0)
        if self.kind == "adam" and is_compiled(state[0]):
            _adam_rows_compiled(state, rows, values, self.step_count, lr, self.decay)
            return
        which = slice(None) if rows is None else rows  # a slice copies nothing
        update = _adam_rows if self.kind == "adam" else _adagrad_rows
        update(state, which, values, self.step_count, lr, self.decay)

    def state(self) -> dict[str, Tensor]:
        """Return everything but the weights that the next step depends on."""
        moments = {f"{key}.{name}": value for name, state in self.moments.items() for key, value in state.items()}
        return {"step": torch.tensor(self.step_count), **moments}

    def restore_(self, tensors: Mapping[str, Tensor]) -> None:
        """Continue from a `state`."""
        self.step_count = int(tensors["step"])
        for name, state in self.moments.items():
            for key, value in state.items():
                value.copy_(tensors[f"{key}.{name}"])


def _adam_rows(state: list[Tensor], rows: Rows, grad: Tensor | None, step: int, lr: float, decay: float) -> None:
    """Catch up on skipped steps, then, if there is a gradient, apply this one."""
    weight, average, square, last, paid = state
    p, m, v, seen = weight[rows], average[rows], square[rows], last[rows].to(weight.dtype)[:, None]
    gap = step - seen - (0 if grad is None else 1)  # steps that did not touch the row
    started = seen > 0
    root = (v / (1 - BETA2**seen).where(started, 1)).sqrt() + EPSILON
    tail = lr / (1 - BETA1**seen).where(started, 1) * BETA1 * (1 - BETA1**gap) / (1 - BETA1)
    p = p - (tail * m / root).where(started, 0)
    m, v = m * BETA1**gap, v * BETA2**gap
    if grad is not None:
        g = grad + decay * (step - paid[rows]).to(p.dtype)[:, None] * p
        paid[rows] = step
        m, v = BETA1 * m + (1 - BETA1) * g, BETA2 * v + (1 - BETA2) * g * g
        p = p - lr / (1 - BETA1**step) * m / ((v / (1 - BETA2**step)).sqrt() + EPSILON)
    weight[rows], average[rows], square[rows], last[rows] = p, m, v, step


def _adam_rows_compiled(
    state: list[Tensor], rows: Tensor | None, grad: Tensor | None, step: int, lr: float, decay: float
) -> None:
    """`_adam_rows` as a kernel, rows in parallel."""
    arrays = [x.numpy() for x in state]
    ids = np.arange(len(arrays[0])) if rows is None else rows.numpy()
    values = arrays[0][:0] if grad is None else grad.contiguous().numpy()

    def some(first: int, last: int) -> None:  # rows are distinct: no two threads write to one
        part = slice(first, last)
        kernels().adam_rows(*arrays, ids[part], values[part], step, lr, decay, BETA1, BETA2, EPSILON)

    parallel_for(some, len(ids), UPDATE_WORK * len(ids) * arrays[0].shape[1])


def _adagrad_rows(state: list[Tensor], rows: Rows, grad: Tensor | None, step: int, lr: float, decay: float) -> None:
    assert grad is not None
    weight, total, last, paid = state
    gap = (step - paid[rows]).to(weight.dtype)[:, None]
    g = torch.addcmul(grad, gap, weight[rows], value=decay)
    v = total[rows].addcmul(g, g)
    total[rows] = v
    weight[rows] = weight[rows].addcdiv(g, v.sqrt().add_(ADAGRAD_EPSILON), value=-lr)
    last[rows] = paid[rows] = step
