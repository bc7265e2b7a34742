"""The operations of `ops` as autograd functions over compiled kernels, for CPU tensors in float32 and float64.

Gathers, elementwise and diagonal operations also take complex tensors.
"""

from __future__ import annotations

import os
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from recollect.engine.parallel import parallel_for
from recollect.engine.plan import MOVE_WORK

if TYPE_CHECKING:
    from recollect.engine.ops import Groups

COMPILED = os.environ.get("RECOLLECT_COMPILED", "1") != "0"
DTYPES = {torch.float32, torch.float64, torch.complex64, torch.complex128}
LANES = 16  # float32 numbers of a 512-bit register: buffer rows of whole registers spare the remainder of a loop


@cache
def kernels() -> ModuleType:
    """Import numba and the kernels at first use."""
    from recollect.engine import kernels as module

    return module


def is_compiled(*tensors: Tensor) -> bool:
    """Return whether kernels serve these tensors: on the CPU, of one supported dtype, not switched off."""
    dtype = tensors[0].dtype
    return COMPILED and dtype in DTYPES and all(x.device.type == "cpu" and x.dtype == dtype for x in tensors)


def rows_of(x: Tensor) -> np.ndarray[Any, Any]:
    """Return the memory of a tensor as a matrix of rows: (N, …) -> (N, width), real or complex."""
    x = x.detach().resolve_conj().contiguous()
    return x.reshape(len(x), x.numel() // len(x) if len(x) else 0).numpy()


def ids_of(x: Tensor) -> np.ndarray[Any, Any]:
    return x.contiguous().numpy()


class GatherMul(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, i: Tensor, b: Tensor, j: Tensor) -> Tensor:
        ctx.save_for_backward(a, i, b, j)
        out = torch.empty(len(i), a.shape[1], dtype=a.dtype)
        x, at, y, to, z = rows_of(a), ids_of(i), rows_of(b), ids_of(j), rows_of(out)
        parallel_for(lambda s, e: kernels().gather_mul(x, at[s:e], y, to[s:e], z[s:e]), len(z), MOVE_WORK * z.size)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None, Tensor | None, None]:
        a, i, b, j = ctx.saved_tensors
        da, db = (torch.zeros(x.shape, dtype=x.dtype) for x in (a, b))
        at, to, g = ids_of(i), ids_of(j), rows_of(grad)
        kernels().gather_mul_grad(g, rows_of(b), to, at, rows_of(da))
        kernels().gather_mul_grad(g, rows_of(a), at, to, rows_of(db))
        return da, None, db, None


class GatherDot(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, table: Tensor, ids: Tensor) -> Tensor:
        ctx.save_for_backward(query, table, ids)
        out = torch.empty(ids.shape, dtype=query.dtype)
        q, x, at, y = rows_of(query), rows_of(table), ids_of(ids), out.numpy()
        work = MOVE_WORK * q.shape[1] * at.size
        parallel_for(lambda s, e: kernels().gather_dot(q[s:e], x, at[s:e], y[s:e]), len(q), work)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        query, table, ids = ctx.saved_tensors
        dquery, dtable = torch.empty(query.shape, dtype=query.dtype), torch.zeros(table.shape, dtype=table.dtype)
        arrays = (rows_of(query), rows_of(table), ids_of(ids), ids_of(grad))
        kernels().gather_dot_grad(*arrays, dquery.numpy(), dtable.numpy())
        return dquery, dtable, None


class DiagonalScores(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, context: Tensor, subjects: Tensor, s: Tensor, objects: Tensor, o: Tensor, other_s: Tensor,
        other_o: Tensor,
    ) -> Tensor:  # fmt: skip
        ctx.save_for_backward(context, subjects, s, objects, o, other_s, other_o)
        out = torch.empty(len(s), 1 + other_s.shape[1] + other_o.shape[1], dtype=context.dtype.to_real())
        c, x, y, scores = rows_of(context), rows_of(subjects), rows_of(objects), out.numpy()
        i, j, k, m = ids_of(s), ids_of(o), ids_of(other_s), ids_of(other_o)

        def some(first: int, last: int) -> None:
            facts = slice(first, last)
            kernels().diagonal_scores(c[facts], x, i[facts], y, j[facts], k[facts], m[facts], scores[facts])

        parallel_for(some, len(s), MOVE_WORK * out.numel() * context.shape[1])
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        context, subjects, s, objects, o, other_s, other_o = ctx.saved_tensors
        dcontext = torch.empty(context.shape, dtype=context.dtype)
        dsubjects, dobjects = (torch.zeros(x.shape, dtype=x.dtype) for x in (subjects, objects))
        kernels().diagonal_scores_grad(
            rows_of(context), rows_of(subjects), ids_of(s), rows_of(objects), ids_of(o), ids_of(other_s),
            ids_of(other_o), ids_of(grad), rows_of(dcontext), rows_of(dsubjects), rows_of(dobjects),
        )  # fmt: skip
        return dcontext, dsubjects, None, dobjects, None, None, None


class GroupedMM(torch.autograd.Function):
    """x[rows[n]] @ matrices[g]; rows are in the order of their groups, matrices are (M, *K, *R) in any memory order."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: Tensor, matrices: Tensor, groups: Groups) -> Tensor:
        ctx.groups = groups
        ctx.save_for_backward(x, rows, matrices)
        width = x.shape[1]
        if matrices.shape[1] == width and matrices.movedim(1, -1).is_contiguous():  # in memory (M, *R, K)
            stored = matrices.detach().movedim(1, -1).reshape(len(matrices), 1, -1, width)
            out, gathered = x.new_zeros(len(rows), stored.shape[2]), rows_of(x.index_select(0, rows))
            by_row = kernels().grouped_mm_transposed
            _by_groups(by_row, (gathered, stored.numpy()), groups, out, width, width * out.numel())
            return out
        stored = _stored(matrices, width)
        _, Q, K, R = stored.shape
        out = x.new_empty(len(rows), Q, R)
        arrays = rows_of(x), ids_of(rows), stored.numpy()
        _by_groups(kernels().grouped_mm, arrays, groups, out, K, K * out.numel())
        return out.flatten(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None, Tensor | None, None]:
        x, rows, matrices = ctx.saved_tensors
        stored = _stored(matrices, x.shape[1])
        _, Q, K, R = stored.shape
        by_row, dstored, g = x.new_zeros(len(rows), K), torch.zeros_like(stored), grad.reshape(-1, R).numpy()
        work, arrays = K * grad.numel(), (rows_of(x), ids_of(rows), g)
        _by_groups(kernels().grouped_mm_transposed, (g, stored.numpy()), ctx.groups, by_row, R, work)
        _by_groups(kernels().grouped_outer, arrays, ctx.groups, dstored, kernels().ROWS, work)
        dmatrices = dstored.transpose(1, 2) if Q > 1 else dstored.view(matrices.shape)
        return torch.zeros_like(x).index_add_(0, rows, by_row), None, dmatrices, None


def _stored(matrices: Tensor, K: int) -> Tensor:
    """Return matrices (M, *K, *R) as (M, Q, K, R): without a copy if that is their order in memory, else Q = 1."""
    if matrices.dim() == 4 and matrices.shape[1] == K and matrices.transpose(1, 2).is_contiguous():
        return matrices.detach().transpose(1, 2)
    return matrices.detach().reshape(len(matrices), 1, K, -1).contiguous()


def _by_groups(run: Any, arrays: tuple[Any, ...], groups: Groups, out: Tensor, depth: int, work: int) -> None:
    """Run a kernel over contiguous groups in parallel, balanced by row count, with a buffer of `depth` rows."""
    offsets, owner, result = groups.offsets.numpy(), groups.matrix.numpy(), out.numpy()
    middles = (offsets[1:] + offsets[:-1]) / 2
    shape = 4 + depth + 1, -(-result.shape[-1] // LANES) * LANES

    def some(first: int, last: int) -> None:
        a, b = np.searchsorted(middles, [first, last])  # a group belongs to the range that holds its middle
        b = b if last < offsets[-1] else len(owner)
        buffer = torch.zeros(shape, dtype=out.dtype).numpy()  # PyTorch aligns to 64 bytes, numba to 32
        run(*arrays, offsets[a : b + 1], owner[a:b], result, buffer)

    parallel_for(some, int(offsets[-1]), work)


def rank_counts(scores: Tensor, own: Tensor, start: Tensor, stop: Tensor, known: Tensor) -> Tensor:
    out = torch.empty(len(scores), 2, 3, dtype=torch.int64)
    kernels().rank_counts(rows_of(scores), ids_of(own), ids_of(start), ids_of(stop), ids_of(known), out.numpy())
    return out
