"""Rows of tables multiplied and compared where they lie, without gathered copies.

Each operation is one function of tensors with its gradient. On the processor, in float32 or float64, it
runs as a small compiled kernel; anywhere else as the same sum in plain PyTorch (`NATIVE = False` asks for
that everywhere). A gradient is summed in the order of the facts, so results do not depend on threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from recollect.engine import kernels as native
from recollect.engine.lanes import BYTES, Array
from recollect.engine.parallel import parallel_for

NATIVE = True  # False: plain PyTorch only, which the tests compare with
COLUMNS = 256  # of a piece at least: threads that write next to each other hinder each other
LONG_ROW, MANY_ROWS = 128, 2**13  # of candidates that are met and counted in one pass
PIECES, PIECE = 4, 2**21  # of a product, at most: with more it is slower; multiplications that are worth one
COPIED = 4  # multiplications that reading and writing a number is worth
COMPILED = {("cpu", dtype) for dtype in (torch.float32, torch.float64, torch.complex64, torch.complex128)}


def is_compiled(*tensors: Tensor) -> bool:
    """Whether the compiled kernels serve these tensors."""
    kinds = {(x.device.type, x.dtype) for x in tensors}
    return NATIVE and len(kinds) == 1 and kinds <= COMPILED


def take(table: Tensor, rows: Tensor) -> Tensor:
    """table[rows]: (N, …), (B,) -> (B, …); its gradient adds up where rows repeat."""
    if not is_compiled(table) or not (table.requires_grad and torch.is_grad_enabled()):
        return table.index_select(0, rows)
    return _Take.apply(table, rows)


def scatter_add(count: int, rows: Tensor, values: Tensor) -> Tensor:
    """Zeros (count, …) with values[n] added to row rows[n], in order."""
    summed = values.new_zeros(count, *values.shape[1:])
    if not is_compiled(values):
        return summed.index_add_(0, rows, values)
    native.scatter_add(_flat(summed), _ids(rows), _flat(values))
    return summed


def gather_mul(a: Tensor, i: Tensor, b: Tensor, j: Tensor) -> Tensor:
    """Entry (n, r) is a[i[n], r] · b[j[n], r]: (N, w), (B,), (M, w), (B,) -> (B, w), real or complex."""
    if not is_compiled(a, b):
        return a.index_select(0, i) * b.index_select(0, j)
    return _RowProduct.apply(a, i, b, j)


def gather_dot(query: Tensor, table: Tensor, ids: Tensor) -> Tensor:
    """Entry (b, k) is query[b] · table[ids[b, k]]: (B, w), (N, w), (B, K) -> (B, K), real."""
    if not is_compiled(query, table):
        rows = table.index_select(0, ids.reshape(-1)).view(*ids.shape, query.shape[1])
        return torch.linalg.vecdot(rows, query[:, None, :])
    return _RowDot.apply(query, table, ids)


def pair_scores(
    context: Tensor, i: Tensor | None, subjects: Tensor, s: Tensor, objects: Tensor, o: Tensor,
    other_s: Tensor, other_o: Tensor,
) -> Tensor:  # fmt: skip
    """Re Σ c x y of each fact, of it with its other subjects, and of it with its other objects: (B, 1 + K + L).

    context, subjects and objects (N, w) with the rows i, s and o of each fact (B,), and the other subjects (B, K) and
    objects (B, L); without i every fact has a context of its own. The same as the products and dots above, without what
    lies between them. Compiled only.
    """
    return _PairScores.apply(context, i, subjects, s, objects, o, other_s, other_o)


def matmul(rows: Tensor, matrix: Tensor) -> Tensor:
    """rows @ matrix, (B, K), (K, N) -> (B, N), on all threads where PyTorch has one."""
    return rows @ matrix if rows.device.type != "cpu" else _Matmul.apply(rows, matrix)


def rows_times(rows: Tensor, index: Tensor, matrices: Tensor, starts: Tensor, owner: Tensor) -> Tensor:
    """Entry n is rows[index[n]] @ matrices[owner of n's group]; group g has the rows starts[g] to starts[g + 1].

    rows (N, K), index (n,), matrices (M, K, R), starts (G + 1,), owner (G,) -> (n, R); no gradient.
    """
    swapped = _is_transposed(matrices)
    out = torch.empty(len(index), matrices.shape[2], dtype=rows.dtype)
    m = (matrices.mT if swapped else matrices).detach().contiguous().numpy()
    x, i, at, of, u = _flat(rows), _ids(index), _ids(starts), _ids(owner), _flat(out)
    multiply = native.times_rows if swapped else native.rows_times

    def work(start: int, stop: int) -> None:
        multiply(x, i, m, at[start : stop + 1], of[start:stop], u)

    by_rows(work, starts, len(i) * matrices[:1].numel())
    return out


def add_outer(left: Tensor, i: Tensor, right: Tensor, like: Tensor, starts: Tensor, owner: Tensor) -> Tensor:
    """Zeros like `like` (M, K, R), with left[i[n]] ⊗ right[n] added to the matrix of each n's group, its only one."""
    swapped = _is_transposed(like)
    each = torch.arange(len(right))
    first, second = ((right, each), (left, i)) if swapped else ((left, i), (right, each))
    summed = room(like, like.mT.shape if swapped else like.shape, owner)
    sides = (_flat(first[0]), _ids(first[1]), _flat(second[0]), _ids(second[1]))
    m, at, of = summed.numpy(), _ids(starts), _ids(owner)

    def work(start: int, stop: int) -> None:
        native.add_outer(*sides, at[start : stop + 1], of[start:stop], m)

    by_rows(work, starts, len(right) * like[:1].numel())
    return summed.mT if swapped else summed


def strips(table: Tensor) -> Tensor | None:
    """The rows of a table (N, K) as `native.count_better_of` meets them, as columns: (strips × K, rows of a strip).

    The last ones are followed by zeros. None where a product of its own is better, of long rows or of many, and where
    nothing is compiled.
    """
    if not is_compiled(table) or table.shape[1] > LONG_ROW or len(table) > MANY_ROWS:
        return None
    across = native.STRIP * BYTES // table.dtype.itemsize
    padded = functional.pad(table.detach(), (0, 0, 0, -len(table) % across))
    return padded.view(-1, across, table.shape[1]).mT.contiguous().view(-1, across)


def room(like: Tensor, shape: Sequence[int], owner: Tensor) -> Tensor:
    """Room for matrices that kernels write group by group, (M, …): zeros where some own no group, which stay so."""
    return like.new_empty(shape) if len(owner) == shape[0] else like.new_zeros(shape)


def by_rows(work: Callable[[int, int], None], starts: Tensor, multiplications: int) -> None:
    """work(first, last) over groups that start so, shared out so that all have about as many rows."""
    at, count = starts.numpy(), int(starts[-1])
    middles = (at[1:] + at[:-1]) / 2

    def some(first: int, last: int) -> None:
        a, b = np.searchsorted(middles, [first, last])  # a group is whose its middle is
        work(a if first else 0, b if last < count else len(middles))

    parallel_for(some, count, multiplications)


def _by_columns(back: Callable[..., None], arguments: tuple[Any, ...], numbers: int, width: int) -> None:
    """Gradients that add up in rows which facts share: every thread has columns of its own, many at a time."""

    def columns(first: int, last: int) -> None:
        back(*arguments, COLUMNS * first, width if last == pieces else COLUMNS * last)

    pieces = max(1, width // COLUMNS)
    parallel_for(columns, pieces, 2 * COPIED * numbers)


def _is_transposed(matrices: Tensor) -> bool:
    return matrices.stride(1) < matrices.stride(2)


class _Take(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, rows: Tensor) -> Tensor:
        ctx.save_for_backward(rows)
        ctx.count = len(table)
        return table.index_select(0, rows)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (rows,) = ctx.saved_tensors
        return scatter_add(ctx.count, rows, grad), None


class _Matmul(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, matrix: Tensor) -> Tensor:
        ctx.save_for_backward(rows, matrix)
        return _multiplied(rows, matrix)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        rows, matrix = ctx.saved_tensors
        for_rows, for_matrix = ctx.needs_input_grad
        drows = dmatrix = None
        if for_rows:
            drows = _multiplied(grad, matrix.mH)
        if for_matrix:  # as the matrix lies in memory
            along = matrix.stride(1) == 1
            dmatrix = _multiplied(rows.mH, grad) if along else _multiplied(grad.mT, rows.conj()).mT
        return drows, dmatrix


def _multiplied(a: Tensor, b: Tensor) -> Tensor:
    """a @ b in pieces of rows or of columns, of which there are more; which ones does not depend on threads."""
    out = torch.empty(len(a), b.shape[1], dtype=a.dtype)
    numbers, multiplications = max(out.shape), a.numel() * b.shape[1]
    pieces = min(PIECES, 1 + multiplications // PIECE)
    bounds = [numbers * piece // pieces for piece in range(pieces + 1)]

    def some(first: int, last: int) -> None:
        for begin, end in pairwise(bounds[first : last + 1]):
            if len(a) == numbers:
                torch.mm(a[begin:end], b, out=out[begin:end])
            else:
                torch.mm(a, b[:, begin:end], out=out[:, begin:end])

    parallel_for(some, pieces, multiplications)
    return out


class _RowProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, i: Tensor, b: Tensor, j: Tensor) -> Tensor:
        ctx.save_for_backward(a, i, b, j)
        out = torch.empty(len(i), a.shape[1], dtype=a.dtype)
        x, at, y, to, z = _flat(a), _ids(i), _flat(b), _ids(j), _flat(out)

        def rows(first: int, last: int) -> None:
            native.multiply(x, at[first:last], y, to[first:last], z[first:last], _paired(a))

        parallel_for(rows, len(z), COPIED * z.size)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, Tensor, None]:
        a, i, b, j = ctx.saved_tensors
        da, db = (torch.zeros(x.shape, dtype=x.dtype) for x in (a, b))
        arguments = (_flat(a), _ids(i), _flat(b), _ids(j), _flat(grad), _flat(da), _flat(db), _paired(a))
        _by_columns(native.multiply_back, arguments, arguments[4].size, arguments[4].shape[1])
        return da, None, db, None


class _RowDot(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, table: Tensor, ids: Tensor) -> Tensor:
        ctx.save_for_backward(query, table, ids)
        out = torch.empty(ids.shape, dtype=query.dtype)
        native.dot(_flat(query), _flat(table), _ids(ids), out.numpy())
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        query, table, ids = ctx.saved_tensors
        dquery, dtable = torch.empty(query.shape, dtype=query.dtype), torch.zeros(table.shape, dtype=table.dtype)
        arguments = (_flat(query), _flat(table), _ids(ids), _flat(grad), _flat(dquery), _flat(dtable))
        _by_columns(native.dot_back, arguments, query.numel() * ids.shape[1], query.shape[1])
        return dquery, dtable, None


class _PairScores(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, c: Tensor, i: Tensor | None, subjects: Tensor, s: Tensor, objects: Tensor, o: Tensor,
        u: Tensor, v: Tensor,
    ) -> Tensor:  # fmt: skip
        ctx.own = i is None
        i = torch.arange(len(c)) if i is None else i
        ctx.save_for_backward(c, i, subjects, s, objects, o, u, v)
        ctx.one_table = subjects is objects
        out = torch.empty(len(i), 1 + u.shape[1] + v.shape[1], dtype=c.dtype.to_real())
        x, xs, ys, scores = _flat(c), _flat(subjects), _flat(objects), out.numpy()
        by_fact = (_ids(i), _ids(s), _ids(o), _ids(u), _ids(v))

        def rows(first: int, last: int) -> None:
            of, a, b, others, more = (ids[first:last] for ids in by_fact)
            native.pair_scores(x, of, xs, a, ys, b, others, more, scores[first:last], _paired(c))

        parallel_for(rows, len(i), COPIED * len(i) * x.shape[1])
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        c, i, subjects, s, objects, o, u, v = ctx.saved_tensors
        dc = (torch.empty if ctx.own else torch.zeros)(c.shape, dtype=c.dtype)
        dsubjects = torch.zeros(subjects.shape, dtype=subjects.dtype)
        dobjects = dsubjects if ctx.one_table else torch.zeros(objects.shape, dtype=objects.dtype)
        facts = (_flat(c), _ids(i), _flat(subjects), _ids(s), _flat(objects), _ids(o), _ids(u), _ids(v), _flat(grad))
        width = facts[0].shape[1]
        gradients = (_flat(dc), _flat(dsubjects), _flat(dobjects))
        _by_columns(native.pair_back, (*facts, *gradients, ctx.own, _paired(c)), 2 * len(i) * width, width)
        return dc, None, dsubjects, None, None if ctx.one_table else dobjects, None, None, None


def _flat(x: Tensor) -> Array:
    """Real rows of the same memory: (N, …) -> (N, width), a complex number as two."""
    x = x.detach().resolve_conj()
    x = (torch.view_as_real(x) if x.is_complex() else x).contiguous()
    return x.view(len(x), -1).numpy() if x.numel() else x.reshape(len(x), x[:1].numel()).numpy()


def _paired(x: Tensor) -> bool | None:
    """What tells a kernel that pairs of columns are complex numbers: not None."""
    return True if x.is_complex() else None


def _ids(x: Tensor) -> Array:
    return x.contiguous().numpy()
