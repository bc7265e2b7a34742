"""Rows of tables multiplied and compared where they lie, without gathered copies.

Each operation is one function of tensors with its gradient. On the processor, in float32 or float64, it
runs as a small compiled kernel; anywhere else as the same sum in plain PyTorch (`NATIVE = False` asks for
that everywhere). A gradient is summed in the order of the facts, so results do not depend on threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from recollect import native

NATIVE = True  # False: plain PyTorch only, which the tests compare with
COMPILED = (torch.float32, torch.float64, torch.complex64, torch.complex128)


def is_native(*tensors: Tensor) -> bool:
    """Whether the compiled kernels serve these tensors."""
    return NATIVE and all(x.device.type == "cpu" and x.dtype in COMPILED for x in tensors)


def take(table: Tensor, rows: Tensor) -> Tensor:
    """table[rows]: (N, …), (B,) -> (B, …); its gradient adds up where rows repeat."""
    if not is_native(table) or not (table.requires_grad and torch.is_grad_enabled()):
        return table.index_select(0, rows)
    return _Take.apply(table, rows)


def add_rows(count: int, rows: Tensor, values: Tensor) -> Tensor:
    """Zeros (count, …) with values[n] added to row rows[n], in order."""
    summed = values.new_zeros(count, *values.shape[1:])
    if not is_native(values):
        return summed.index_add_(0, rows, values)
    native.add_rows(_flat(summed), _ids(rows), _flat(values))
    return summed


def row_product(a: Tensor, i: Tensor, b: Tensor, j: Tensor) -> Tensor:
    """Entry (n, r) is a[i[n], r] · b[j[n], r]: (N, w), (B,), (M, w), (B,) -> (B, w), real or complex."""
    if not is_native(a, b):
        return a.index_select(0, i) * b.index_select(0, j)
    return _RowProduct.apply(a, i, b, j)


def row_dot(query: Tensor, table: Tensor, ids: Tensor) -> Tensor:
    """Entry (b, k) is query[b] · table[ids[b, k]]: (B, w), (N, w), (B, K) -> (B, K), real."""
    if not is_native(query, table):
        rows = table.index_select(0, ids.reshape(-1)).view(*ids.shape, -1)
        return torch.linalg.vecdot(rows, query[:, None, :])
    return _RowDot.apply(query, table, ids)


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
        return add_rows(ctx.count, rows, grad), None


class _RowProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, i: Tensor, b: Tensor, j: Tensor) -> Tensor:
        ctx.save_for_backward(a, i, b, j)
        out = torch.empty(len(i), a.shape[1], dtype=a.dtype)
        multiply = native.multiply_complex if a.is_complex() else native.multiply
        multiply(_flat(a), _ids(i), _flat(b), _ids(j), _flat(out))
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, Tensor, None]:
        a, i, b, j = ctx.saved_tensors
        da, db = (torch.zeros(x.shape, dtype=x.dtype) for x in (a, b))
        multiply = native.multiply_back_complex if a.is_complex() else native.multiply_back
        multiply(_flat(a), _ids(i), _flat(b), _ids(j), _flat(grad), _flat(da), _flat(db))
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
        native.dot_back(_flat(query), _flat(table), _ids(ids), _flat(grad), _flat(dquery), _flat(dtable))
        return dquery, dtable, None


def _flat(x: Tensor) -> np.ndarray:
    """Real rows of the same memory: (N, …) -> (N, width), a complex number as two."""
    x = x.detach().resolve_conj()
    x = (torch.view_as_real(x) if x.is_complex() else x).contiguous()
    return x.view(len(x), -1).numpy() if x.numel() else x.reshape(len(x), x[:1].numel()).numpy()


def _ids(x: Tensor) -> np.ndarray:
    return x.contiguous().numpy()
