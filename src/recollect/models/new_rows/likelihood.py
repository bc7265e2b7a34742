"""The convex problem of one row: one-vs-all losses that are functions of z = Φ x + offset, and Newton's method for x.

    min_x  Σ_b v_b [log Σ_k w_bk exp(z_bk) − z_b0]  +  Σ_a u_a log(1 + exp(±(z_a − log Z_a)))  +  ridge ‖x − prior‖²

The first sum has the questions in which the id is given: the answer is k = 0, the other k are candidates that stand for
w of their kind, and the question itself stands for v. The second has the questions of which the id is an answer
(sign −) or is not (sign +); Z is the sum of exp θ over all other candidates, which do not depend on x. Φ has one row of
features φ = ∂θ/∂x per candidate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import softplus

NEWTON_STEPS = 8  # at most
CG_STEPS = 16  # of conjugate gradients in a Newton step, at most
CG_RESIDUAL = 0.05  # relative to the gradient, at which conjugate gradients stop
DECREASE = 1e-4  # relative decrease of the objective in a step, at which Newton's method stops
HALVINGS = 8  # of a step that does not decrease the objective, at most


class Design(Protocol):
    """The matrix Φ (n, d) of the features of n candidates."""

    def apply(self, x: Tensor) -> Tensor:
        """Return Φ x: (d,) -> (n,)."""

    def adjoint(self, w: Tensor) -> Tensor:
        """Return Φᵀ w: (n,) -> (d,)."""


@dataclass(frozen=True, eq=False)
class Dense:
    """Features as a matrix."""

    features: Tensor  # (n, d)

    def apply(self, x: Tensor) -> Tensor:
        return self.features @ x

    def adjoint(self, w: Tensor) -> Tensor:
        return self.features.T @ w


@dataclass(frozen=True, eq=False)
class Likelihood:
    """The losses as functions of z (n,): first B · K scores of choices, then A scores of answers and non-answers."""

    offset: Tensor  # (n,): the part of a score that does not depend on the row
    log_weight: Tensor  # (B, K): log w of each candidate; column 0 is the answer
    weight: Tensor  # (B,): the questions that each stands for
    log_rest: Tensor  # (A,): log Z
    is_answer: Tensor  # (A,) bool
    count: Tensor  # (A,): u, the questions that each stands for

    def value(self, z: Tensor) -> Tensor:
        """Return the summed loss."""
        choices, rest = self._parts(z)
        loss = (self.weight * ((choices + self.log_weight).logsumexp(1) - choices[:, 0])).sum()
        return loss + (self.count * softplus(torch.where(self.is_answer, -rest, rest))).sum()

    def derivatives(self, z: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """Return the gradient by z (n,) and the product of the Hessian with a vector (n,)."""
        choices, rest = self._parts(z)
        share = (choices + self.log_weight).softmax(1)
        gradient = share.clone()
        gradient[:, 0] -= 1
        positive = rest.sigmoid()
        curvature = self.count * positive * (1 - positive)
        by_answer = self.count * (positive - self.is_answer.to(z))

        def product(v: Tensor) -> Tensor:
            of_choices = v[: share.numel()].view_as(share)
            centred = share * (of_choices - (share * of_choices).sum(1, keepdim=True))
            return torch.cat([(self.weight[:, None] * centred).flatten(), curvature * v[share.numel() :]])

        return torch.cat([(self.weight[:, None] * gradient).flatten(), by_answer]), product

    def _parts(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return z of choices (B, K) and z − log Z of the others (A,), offsets added."""
        z = z + self.offset
        size = self.log_weight.numel()
        return z[:size].view_as(self.log_weight), z[size:] - self.log_rest


def minimise(design: Design, likelihood: Likelihood, *, prior: Tensor, ridge: float, start: Tensor) -> Tensor:
    """Return the row x (d,) that minimises the losses of Φ x + offset, and ridge ‖x − prior‖², by Newton's method.

    Every step is solved for by conjugate gradients and halved until the objective decreases.
    """
    x, z = start, design.apply(start)
    value = likelihood.value(z) + ridge * (x - prior).square().sum()
    for _ in range(NEWTON_STEPS):
        by_score, curvature = likelihood.derivatives(z)
        gradient = design.adjoint(by_score) + 2 * ridge * (x - prior)

        def hessian(v: Tensor, curvature: Callable[[Tensor], Tensor] = curvature) -> Tensor:
            return design.adjoint(curvature(design.apply(v))) + 2 * ridge * v

        step = _solve(hessian, -gradient)
        step_z = design.apply(step)
        length, decreased = 1.0, False
        for _ in range(HALVINGS):
            new = likelihood.value(z + length * step_z) + ridge * (x + length * step - prior).square().sum()
            decreased = bool(new < value)
            if decreased:
                break
            length /= 2
        if not decreased:
            break
        x, z = x + length * step, z + length * step_z
        is_enough = bool(value - new <= DECREASE * value.abs())
        value = new
        if is_enough:
            break
    return x


def downdate(
    left: tuple[Design, Likelihood] | None, lost: tuple[Design, Likelihood], x: Tensor, *, ridge: float, limit: float
) -> Tensor:
    """Return x + H⁻¹ g: where the minimum at x moves to, to first order, when the losses `lost` are taken away.

    g is their gradient at x, and H the Hessian of the losses that are `left` and of ridge ‖x − prior‖². A step that is
    longer than `limit` is shortened to it.
    """
    gone, losses = lost
    by_score, _ = losses.derivatives(gone.apply(x))
    gradient = gone.adjoint(by_score)
    step = gradient / (2 * ridge)
    if left is not None:
        design, likelihood = left
        _, curvature = likelihood.derivatives(design.apply(x))
        step = _solve(lambda v: design.adjoint(curvature(design.apply(v))) + 2 * ridge * v, gradient)
    return x + step * min(1.0, limit / max(step.norm().item(), 1e-30))


def _solve(hessian: Callable[[Tensor], Tensor], right: Tensor) -> Tensor:
    """Return v with H v = right by conjugate gradients: (d,)."""
    v, residual = torch.zeros_like(right), right.clone()
    direction, square = right.clone(), right.square().sum()
    enough = CG_RESIDUAL**2 * square
    for _ in range(CG_STEPS):
        if square <= enough:
            break
        image = hessian(direction)
        length = square / (direction @ image).clamp(min=1e-30)
        v, residual = v + length * direction, residual - length * image
        new_square = residual.square().sum()
        direction, square = residual + new_square / square * direction, new_square
    return v
