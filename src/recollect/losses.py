"""Losses as pure functions of logits: θ of true facts (B,) against θ of their corruptions (B, K)."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional


def logistic(true: Tensor, false: Tensor, truth: Tensor | None = None) -> Tensor:
    """Σ log(1 + exp(−y θ)) of each fact and its corruptions: (B,), (B, K) -> (B,).

    Corruptions have y = −1. A fact has y = +1, or −1 where `truth` says that it is known to be false;
    its corruptions then tell nothing and are left out.
    """
    corrupted = functional.softplus(false).sum(dim=1)
    if truth is None:
        return functional.softplus(-true) + corrupted
    return functional.softplus(true.where(~truth, -true)) + corrupted * truth


def ranking(true: Tensor, false: Tensor, *, margin: float = 1.0, sigmoid: bool = True) -> Tensor:
    """Σ max(0, γ + σ(θ⁻) − σ(θ⁺)) of each fact and its corruptions: (B,), (B, K) -> (B,).

    Without `sigmoid`, θ itself is compared, as projection needs.
    """
    if sigmoid:
        true, false = true.sigmoid(), false.sigmoid()
    return (margin + false - true[:, None]).clamp(min=0).sum(dim=1)
