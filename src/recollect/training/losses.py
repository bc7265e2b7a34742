"""Losses as pure functions of logits, or of queries and candidates."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from recollect.engine import parallel_for

BLOCK_BYTES = 4 * 2**20  # logits per block and thread: they stay in a CPU cache until their gradient is computed


def logistic(true: Tensor, false: Tensor, truth: Tensor | None = None) -> Tensor:
    """Return softplus(−y θ) of each fact + Σ softplus(θ⁻) of its negatives: (B,), (B, K) -> (B,).

    Negatives have y = −1. A fact has y = +1, or −1 where `truth` (B,) is False; the negatives of a false fact carry no
    information and are left out.
    """
    negatives = functional.softplus(false).sum(dim=1)
    if truth is None:
        return functional.softplus(-true) + negatives
    return functional.softplus(true.where(~truth, -true)) + negatives * truth


def ranking(true: Tensor, false: Tensor, *, margin: float = 1.0, sigmoid: bool = True) -> Tensor:
    """Return Σ max(0, γ + σ(θ⁻) − σ(θ⁺)) over each fact's negatives: (B,), (B, K) -> (B,).

    Without `sigmoid`, θ itself is compared, as projection needs.
    """
    if sigmoid:
        true, false = true.sigmoid(), false.sigmoid()
    return (margin + false - true[:, None]).clamp(min=0).sum(dim=1)


def one_vs_all(
    queries: Tensor,
    candidates: Tensor,
    query_index: Tensor,
    answers: Tensor,
    weights: Tensor | None = None,
    *,
    counts: Tensor | None = None,
    smoothing: float = 0.0,
    block_bytes: int = BLOCK_BYTES,
) -> Tensor:
    """Return Σ_facts w (log Σ_n c_n exp(q · x_n) − q · x_a): the summed cross entropy of answers a, a scalar.

    queries (Q, d), candidates (N, d); query_index, answers and weights w (B,) hold the query, the answer and the weight
    of each fact. Facts with the same query share its logits. Candidate n counts as c_n equal ones (N,), by default 1.
    With `smoothing` ε the answer has probability 1 − ε and all candidates share ε.

    The logits (Q, N) exist only in blocks of `block_bytes`. Inside `one_thread()`, blocks of queries run in parallel.
    """
    weights = torch.ones_like(answers, dtype=queries.dtype) if weights is None else weights.to(queries.dtype)
    counts = queries.new_ones(len(candidates)) if counts is None else counts.to(queries)
    detached = queries.detach(), candidates.detach()
    block_losses = _BlockLosses(*detached, query_index, answers, weights, counts, smoothing, block_bytes)
    return _OneVsAll.apply(queries, candidates, block_losses)


class _OneVsAll(torch.autograd.Function):
    """Cross entropy whose gradients are computed together with the loss, block by block."""

    @staticmethod
    def forward(ctx: Any, queries: Tensor, candidates: Tensor, block_losses: _BlockLosses) -> Tensor:
        losses: dict[int, list[Tensor]] = {}  # by the first query of a thread's range
        candidate_grads: dict[int, Tensor] = {}
        query_grad = torch.empty_like(queries)

        def run(first: int, last: int) -> None:
            losses[first], candidate_grads[first] = block_losses.run(first, last, query_grad)

        parallel_for(run, len(queries), 3 * len(queries) * candidates.numel())
        starts = sorted(losses)  # a fixed order of summation: the same thread count gives the same bits
        candidate_grad = candidate_grads[starts[0]]
        for start in starts[1:]:
            candidate_grad += candidate_grads[start]
        ctx.save_for_backward(query_grad, candidate_grad)
        # summed in double precision on the host: some devices have no float64
        return queries.new_full((), sum(loss.item() for start in starts for loss in losses[start]))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query_grad, candidate_grad = ctx.saved_tensors
        return grad * query_grad, grad * candidate_grad, None


class _BlockLosses:
    """The data of one call of `one_vs_all`, and the loss of any range of its queries."""

    def __init__(
        self,
        queries: Tensor,
        candidates: Tensor,
        query_index: Tensor,
        answers: Tensor,
        weights: Tensor,
        counts: Tensor,
        smoothing: float,
        block_bytes: int,
    ) -> None:
        self.queries, self.candidates, self.smoothing = queries, candidates, smoothing
        self.block_rows = max(1, block_bytes // (len(candidates) * queries.itemsize))
        order = query_index.argsort(stable=True)
        self.query_index, self.answers, self.weights = query_index[order], answers[order], weights[order]
        every_query = torch.arange(len(queries) + 1, device=query_index.device)
        self.offsets = torch.searchsorted(self.query_index, every_query).tolist()  # facts of query q: offsets[q : q+1]
        self.query_weights = queries.new_zeros(len(queries)).index_add_(0, self.query_index, self.weights)
        self.log_counts = counts.log()
        self.uniform = smoothing * counts / counts.sum()  # (N,): the share of ε of each candidate

    def run(self, first: int, last: int, query_grad: Tensor) -> tuple[list[Tensor], Tensor]:
        """Return the losses of the blocks of queries [first, last) and the gradient of their sum by candidates (N, d).

        The gradient by queries is written to rows [first, last) of `query_grad` (Q, d).
        """
        losses = []
        candidate_grad = torch.zeros_like(self.candidates)
        buffer = self.queries.new_empty(min(self.block_rows, last - first), len(self.candidates))
        for start in range(first, last, self.block_rows):
            stop = min(start + self.block_rows, last)
            queries = self.queries[start:stop]
            logits = torch.addmm(self.log_counts, queries, self.candidates.T, out=buffer[: stop - start])
            losses.append(self._loss_(logits, start, stop))
            torch.mm(logits, self.candidates, out=query_grad[start:stop])
            candidate_grad.addmm_(logits.T, queries)
        return losses, candidate_grad

    def _loss_(self, logits: Tensor, start: int, stop: int) -> Tensor:
        """Return the loss of queries [start, stop), and overwrite their logits (n, N) with its gradient."""
        facts = slice(self.offsets[start], self.offsets[stop])
        row, answer = self.query_index[facts] - start, self.answers[facts]
        weights, query_weights = (1 - self.smoothing) * self.weights[facts], self.query_weights[start:stop]
        log_softmax = torch.log_softmax(logits, dim=1, out=logits)
        loss = -((log_softmax[row, answer] - self.log_counts[answer]) * weights).sum()
        if self.smoothing:
            mean = log_softmax @ self.uniform - self.log_counts @ self.uniform
            loss = loss - (mean * query_weights).sum()
        gradient = log_softmax.exp_().mul_(query_weights[:, None])
        if self.smoothing:
            gradient.sub_(query_weights[:, None] * self.uniform)
        gradient.index_put_((row, answer), -weights, accumulate=True)
        return loss
