"""Losses as pure functions: of logits, θ of true facts (B,) against θ of their corruptions (B, K); or of queries."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

BYTES = 8 * 2**20  # of logits at a time: they stay in a processor's cache until they are used up


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


def one_vs_all(
    query: Tensor,
    table: Tensor,
    which: Tensor,
    answer: Tensor,
    weight: Tensor | None = None,
    *,
    counts: Tensor | None = None,
    smoothing: float = 0.0,
    budget: int = BYTES,
) -> Tensor:
    """Σ log Σ_n c_n exp(q · x_n) − q · x_a over facts: cross entropy of each answer a against all candidates n.

    query (Q, w), table (N, w), and for each fact its query, its answer and its weight: (B,) -> (). Facts that share
    a query share its logits, which are made, used for the loss and for both gradients, and forgotten, a block of
    queries at a time, of at most `budget` bytes. With `smoothing` ε the answer counts 1 − ε, all candidates ε together.
    A candidate stands for c_n (N,) like it, or for itself alone.
    """
    weight = torch.ones_like(answer, dtype=query.dtype) if weight is None else weight.to(query.dtype)
    counts = query.new_ones(len(table)) if counts is None else counts.to(query)
    rows = max(1, budget // (len(table) * query.itemsize))
    return _OneVsAll.apply(query, table, which, answer, weight, counts, smoothing, rows)


class _OneVsAll(torch.autograd.Function):
    """The gradients are those of a sum, so they are made with the loss and only scaled on the way back."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        table: Tensor,
        which: Tensor,
        answer: Tensor,
        weight: Tensor,
        counts: Tensor,
        smoothing: float,
        rows: int,
    ) -> Tensor:
        query, table = query.detach(), table.detach()
        needed = any(ctx.needs_input_grad[:2])
        total = query.new_zeros(len(query)).index_add_(0, which, weight)  # of the facts of each query
        order = which.argsort(stable=True)
        bounds = torch.searchsorted(
            which[order], torch.arange(0, len(query) + rows, rows, device=which.device)
        ).tolist()
        dquery, dtable = torch.empty_like(query), torch.zeros_like(table)
        buffer = query.new_empty(min(rows, len(query)), len(table))
        loss = query.new_zeros((), dtype=torch.float64)
        more, shared = counts.log(), smoothing * counts / counts.sum()
        for block, (start, stop) in enumerate(pairwise(bounds)):
            q = query[block * rows : (block + 1) * rows]
            logits = torch.addmm(more, q, table.T, out=buffer[: len(q)])
            torch.log_softmax(logits, dim=1, out=logits)
            facts = order[start:stop]
            at, to = which[facts] - block * rows, answer[facts]
            weights = total[block * rows : (block + 1) * rows, None]
            right = (1 - smoothing) * weight[facts]
            loss -= ((logits[at, to] - more[to]) * right).sum()
            if smoothing:
                loss -= ((logits @ shared - more @ shared) * weights[:, 0]).sum()
            if needed:
                wrong = logits.exp_().mul_(weights)  # Σ of softmax over the facts of a query
                if smoothing:
                    wrong.sub_(weights * shared)
                wrong.index_put_((at, to), -right, accumulate=True)
                torch.mm(wrong, table, out=dquery[block * rows : (block + 1) * rows])
                dtable.addmm_(wrong.T, q)
        if needed:
            ctx.save_for_backward(dquery, dtable)
        return loss.to(query.dtype)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        dquery, dtable = ctx.saved_tensors
        return grad * dquery, grad * dtable, None, None, None, None, None, None
