"""Many rows times few matrices: rows that share a matrix are multiplied with it together."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recollect.engine import kernels as native
from recollect.engine.lanes import Array
from recollect.engine.ops import COPIED, add_outer, by_rows, is_compiled, room, rows_times, scatter_add
from recollect.engine.parallel import parallel_for
from recollect.graph.facts import is_sorted, stable_sort

TILES = (4, 8, 16, 32, 64)
TILE_COST = 6  # rows that starting a tile is worth
LARGE = 16384  # numbers: a matrix that is not copied to its tiles but multiplied in a loop over groups


@dataclass(frozen=True)
class Groups:
    """Rows sorted by the matrix they share."""

    order: Tensor | None  # (n,): sorted rows; None where they come sorted
    matrix: Tensor  # (groups,): the matrix of each group
    counts: Tensor  # (groups,): its rows
    _copies: dict[int, Tensor] = field(default_factory=dict)  # by where the matrices lie; they outlive this

    @classmethod
    def of(cls, matrix: Tensor) -> Groups:
        """From the matrix of each row, (n,)."""
        order = None
        if not is_sorted(matrix):
            matrix, order = stable_sort(matrix)
        found, counts = torch.unique_consecutive(matrix, return_counts=True)
        return cls(order, found, counts)

    def sorted(self, rows: Tensor) -> Tensor:
        """Rows in the order of the groups."""
        return rows if self.order is None else rows.index_select(0, self.order)

    def unsorted(self, rows: Tensor) -> Tensor:
        """Sorted rows in the order that they came in."""
        return rows if self.order is None else rows.index_select(0, self._places)

    @cached_property
    def _places(self) -> Tensor:
        """Where each row lies among the sorted ones."""
        assert self.order is not None
        return torch.empty_like(self.order).index_copy_(0, self.order, torch.arange(len(self.order)).to(self.order))

    def repeated(self, times: int) -> Groups:
        """The groups of rows that each stand for so many."""
        if times == 1:
            return self
        order = self.order
        if order is not None:
            order = (order[:, None] * times + torch.arange(times, device=order.device)).flatten()
        return Groups(order, self.matrix, self.counts * times)

    @cached_property
    def tiles(self) -> tuple[int, Tensor, Tensor]:
        """Rows per tile, the matrix of each tile, and where each sorted row lies among the rows of all tiles."""
        cost = {tile: int((-(-self.counts // tile)).sum()) * (tile + TILE_COST) for tile in TILES}
        tile = min(cost, key=cost.__getitem__)
        of_group = -(-self.counts // tile)
        shift = tile * of_group - self.counts  # unused rows at the end of each group
        unused = torch.repeat_interleave(shift.cumsum(0) - shift, self.counts)
        place = torch.arange(len(unused), device=unused.device) + unused
        return tile, torch.repeat_interleave(self.matrix, of_group), place

    @cached_property
    def starts(self) -> Tensor:
        """Where the sorted rows of each group start, and where the last one stops: (groups + 1,)."""
        return torch.cat([self.counts.new_zeros(1), self.counts.cumsum(0)])

    @cached_property
    def bounds(self) -> list[tuple[int, int, int]]:
        """(matrix, start, stop) of each group of sorted rows."""
        starts = self.starts.tolist()
        return list(zip(self.matrix.tolist(), starts[:-1], starts[1:], strict=True))

    def gathered(self, matrices: Tensor) -> Tensor:
        """The matrix of each tile, copied once in the order of memory and seen in the order asked for."""
        order = _memory_order(matrices)
        if matrices.data_ptr() not in self._copies:
            copies = matrices.detach().permute(order).index_select(0, self.tiles[1])
            self._copies[matrices.data_ptr()] = copies
        return self._copies[matrices.data_ptr()].permute([order.index(axis) for axis in range(matrices.dim())])


def grouped_matmul(rows: Tensor, index: Tensor, matrices: Tensor, summed: int, groups: Groups) -> Tensor:
    """Entry n is rows[index[n]] @ matrices[group of n].

    rows (N, …, K), index (n,), matrices (G, *K, *R) with `summed` axes in K -> (n, …, *R).
    """
    left, right = rows.shape[1:-1], matrices.shape[1 + summed :]
    times = math.prod(left)
    if times > 1:
        index = (index[:, None] * times + torch.arange(times, device=index.device)).flatten()
    groups = groups.repeated(times)
    out = _Grouped.apply(rows.reshape(-1, rows.shape[-1]), index, matrices, summed, groups)
    return out.view(-1, *left, *right)


class _Grouped(torch.autograd.Function):
    """By compiled kernels; without them in tiles of rows that share a matrix; large matrices in a loop over them."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, index: Tensor, matrices: Tensor, summed: int, groups: Groups) -> Tensor:
        ctx.groups, ctx.count = groups, len(rows)
        ctx.own = len(index) == len(rows) and torch.equal(index, torch.arange(len(rows), device=index.device))
        ctx.shape = (math.prod(matrices.shape[1 : 1 + summed]), math.prod(matrices.shape[1 + summed :]))
        index = groups.sorted(index)
        ctx.compiled = (
            not is_large(matrices[:1].numel()) and (summed, matrices.dim()) == (1, 3) and is_compiled(rows, matrices)
        )
        ctx.compiled &= not rows.is_complex()
        if ctx.compiled:
            x, out = rows, rows_times(rows, index, matrices, groups.starts, groups.matrix)
        elif is_large(matrices[:1].numel()):
            x = rows.index_select(0, index)
            out = rows.new_empty(len(index), ctx.shape[1])

            def multiply(first: int, last: int) -> None:
                for matrix, start, stop in groups.bounds[first:last]:
                    torch.mm(x[start:stop], matrices[matrix].reshape(ctx.shape), out=out[start:stop])

            parallel_for(multiply, len(groups.bounds), x.numel() * ctx.shape[1])
        else:
            tile, owner, place = groups.tiles
            # unused rows of a tile take row 0; nothing comes of them
            padded = index.new_zeros(tile * len(owner)).index_copy_(0, place, index)
            x = rows.index_select(0, padded).view(len(owner), tile, ctx.shape[0])
            product = torch.bmm(x, groups.gathered(matrices).reshape(len(owner), *ctx.shape))
            out = product.flatten(0, 1).index_select(0, place)
        ctx.save_for_backward(index, x, matrices)
        return groups.unsorted(out)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None, Tensor | None, None, None]:
        index, x, matrices = ctx.saved_tensors
        groups, shape = ctx.groups, ctx.shape
        for_rows, for_matrices = ctx.needs_input_grad[0], ctx.needs_input_grad[2]
        grad = groups.sorted(grad.contiguous())
        dx = dmatrices = None
        if ctx.compiled:
            each = torch.arange(len(index))
            dx = rows_times(grad, each, matrices.mT, groups.starts, groups.matrix) if for_rows else None
            dmatrices = add_outer(x, index, grad, matrices, groups.starts, groups.matrix) if for_matrices else None
        elif is_large(matrices[:1].numel()):
            dx = torch.empty_like(x) if for_rows else None
            products = room(grad, (len(matrices), *shape), groups.matrix) if for_matrices else None

            def multiply(first: int, last: int) -> None:
                for matrix, start, stop in groups.bounds[first:last]:
                    if dx is not None:
                        torch.mm(grad[start:stop], matrices[matrix].reshape(shape).T, out=dx[start:stop])
                    if products is not None:
                        torch.mm(x[start:stop].T, grad[start:stop], out=products[matrix])

            parallel_for(multiply, len(groups.bounds), 2 * x.numel() * shape[1])
            dmatrices = None if products is None else products.view(matrices.shape)
        else:
            tile, owner, place = groups.tiles
            g = grad.new_zeros(tile * len(owner), shape[1]).index_copy_(0, place, grad).view(len(owner), tile, shape[1])
            if for_rows:
                back = torch.bmm(g, groups.gathered(matrices).reshape(len(owner), *shape).mT)
                dx = back.flatten(0, 1).index_select(0, place)
            if for_matrices:
                product = torch.bmm(g.mT, x) if _is_swapped(matrices) else torch.bmm(x.mT, g)
                dmatrices = _summed(product, owner, matrices)
        if dx is not None:
            dx = groups.unsorted(dx) if ctx.own else scatter_add(ctx.count, index, dx)
        return dx, None, dmatrices, None, None


@dataclass(frozen=True)
class Product:
    """Matrices that are yet to be made, each of a row and of a core that several share: Σ_k x[k] G[:, k, :]."""

    rows: Tensor  # (N, K)
    index: Tensor  # (n,): the row of each matrix
    cores: Tensor  # (G, R, K, C), in any order in memory but that the last axis lies together
    places: Tensor  # (G + 1,): where the matrices of each core start, and where the last ones stop

    @classmethod
    def of(cls, rows: Tensor, index: Tensor, cores: Tensor, core: Tensor) -> Product | None:
        """From the core of each matrix, (n,); None where they are not sorted."""
        if not is_sorted(core):
            return None
        cores = cores if cores.stride(3) == 1 else cores.contiguous()
        places = torch.cat([core.new_zeros(1), core.bincount(minlength=len(cores)).cumsum(0)])
        return cls(rows, index, cores, places)


def matrix_scores(
    matrices: Tensor | Product, groups: Groups, rows: Tensor, i: Tensor, columns: Tensor, j: Tensor
) -> Tensor:
    """Entry n is x M y, then x M y of its other x with its y, then of its x with its other y: (n, K + L − 1).

    M is the matrix of n's group (G, R, C), x are the rows i[n], its own first, (n, K), y the columns j[n], (n, L). The
    same as the products and dots of queries, without what lies between them. Compiled only.
    """
    i, j = groups.sorted(i), groups.sorted(j)
    if isinstance(matrices, Product):
        made = (matrices.rows, matrices.cores, matrices.index, matrices.places)
        scores = _ProductScores.apply(*made, groups, rows, i, columns, j)
    else:
        scores = _MatrixScores.apply(matrices, groups, rows, i, columns, j)
    return groups.unsorted(scores)


def product_rows(product: Product, groups: Groups, rows: Tensor, i: Tensor, *, transposed: bool) -> Tensor:
    """Entry n is rows[i[n]] @ the matrix of n's group, or that `transposed`; no gradient, compiled only.

    rows (N, R), i (n,) -> (n, C); transposed, (N, C) -> (n, R).
    """
    i = groups.sorted(i)
    out = rows.new_empty(len(i), product.cores.shape[1 if transposed else 3])
    before, cores = _arrays(product.rows, product.index), product.cores.detach()
    if cores.stride(1) == cores.shape[3]:  # rows that lie together are longer ones
        cores = cores.transpose(1, 2).flatten(2)[:, None]
    at = cores.numpy()
    after = _arrays(product.places, groups.starts, rows, i, out)

    def work(claims: Array) -> None:
        native.core_rows(*before, at, claims, *after, transposed)

    _by_claims(work, len(cores), len(product.index) * cores[:1].numel())
    return groups.unsorted(out)


class _MatrixScores(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, matrices: Tensor, groups: Groups, rows: Tensor, i: Tensor, columns: Tensor, j: Tensor
    ) -> Tensor:
        matrices = matrices.contiguous()
        out, q = _scores_of(rows, i, j, matrices.shape[2])
        ctx.groups = groups
        ctx.save_for_backward(matrices, rows, i, columns, j, q)
        facts = _arrays(rows, i, columns, j, out, q)
        m, at, of = _arrays(matrices, groups.starts, groups.matrix)

        def work(first: int, last: int) -> None:
            native.matrix_scores(m, at[first : last + 1], of[first:last], *facts)

        by_rows(work, groups.starts, i.numel() * matrices[:1].numel())
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        matrices, rows, i, columns, j, q = ctx.saved_tensors
        dm = room(grad, matrices.shape, ctx.groups.matrix)
        dx, dy = rows.new_empty(*i.shape, rows.shape[1]), rows.new_empty(*j.shape, columns.shape[1])
        facts = _arrays(rows, i, columns, j, q, grad.contiguous(), dm, dx, dy)
        m, at, of = _arrays(matrices, ctx.groups.starts, ctx.groups.matrix)

        def work(first: int, last: int) -> None:
            native.matrix_back(m, at[first : last + 1], of[first:last], *facts)

        by_rows(work, ctx.groups.starts, 2 * i.numel() * matrices[:1].numel())
        by_row, by_column = _added((rows, i, dx), (columns, j, dy))
        return dm, None, by_row, None, by_column, None


class _ProductScores(torch.autograd.Function):
    """Core by core, whose matrices stay in a processor's cache until they are used."""

    @staticmethod
    def forward(
        ctx: Any, given: Tensor, cores: Tensor, index: Tensor, places: Tensor, groups: Groups,
        rows: Tensor, i: Tensor, columns: Tensor, j: Tensor,
    ) -> Tensor:  # fmt: skip
        _, R, K, C = cores.shape
        out, q = _scores_of(rows, i, j, C)
        made = cores.new_empty(len(index), R, C)
        ctx.groups = groups
        ctx.save_for_backward(given, cores, index, places, made, rows, i, columns, j, q)
        before, after = _arrays(given, index), _arrays(places, made, groups.starts, groups.matrix)
        at = cores.detach().numpy()
        facts = _arrays(rows, i, columns, j, out, q)

        def work(claims: Array) -> None:
            native.core_scores(*before, at, claims, *after, *facts)

        _by_claims(work, len(cores), R * C * (i.numel() + K * len(index)))
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        given, cores, index, places, made, rows, i, columns, j, q = ctx.saved_tensors
        _, R, K, C = cores.shape
        dgiven, dcores = given.new_empty(len(index), K), torch.empty_like(cores)
        dx, dy = rows.new_empty(*i.shape, rows.shape[1]), rows.new_empty(*j.shape, columns.shape[1])
        before, after = _arrays(given, index), _arrays(places, made, ctx.groups.starts)
        at = cores.detach().numpy()
        facts, gradients = _arrays(rows, i, columns, j, q, grad.contiguous(), dgiven), _arrays(dx, dy)

        def work(claims: Array) -> None:
            native.core_back(*before, at, claims, *after, *facts, dcores.numpy(), *gradients)

        _by_claims(work, len(cores), R * C * (2 * i.numel() + 2 * K * len(index)))
        by_row, by_column = _added((rows, i, dx), (columns, j, dy))
        return scatter_add(len(given), index, dgiven), dcores, None, None, None, by_row, None, by_column, None


def _scores_of(rows: Tensor, i: Tensor, j: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Room for the scores of facts, and for what their rows times matrices are."""
    return rows.new_empty(len(i), i.shape[1] + j.shape[1] - 1), rows.new_empty(*i.shape, width)


def _added(*sides: tuple[Tensor, Tensor, Tensor]) -> list[Tensor]:
    """For every table and its ids (n, K), the gradients of each fact's own rows (n, K, w), added up in the table's."""
    summed = [torch.empty(0)] * len(sides)

    def some(first: int, last: int) -> None:
        for side in range(first, last):
            table, ids, grads = sides[side]
            summed[side] = scatter_add(len(table), ids.reshape(-1), grads.flatten(0, 1))

    parallel_for(some, len(sides), 2 * COPIED * sum(grads.numel() for _, _, grads in sides))
    return summed


def _arrays(*tensors: Tensor) -> list[Array]:
    return [x.detach().contiguous().numpy() for x in tensors]


def _by_claims(work: Callable[[Array], None], count: int, multiplications: int) -> None:
    """work(claims) on several threads, each of which claims the next of so many cores whenever it is done with one."""
    claims = np.zeros(1, np.int64)
    parallel_for(lambda first, last: work(claims), count, multiplications)


def is_large(numbers: int) -> bool:
    """Whether a matrix of so many numbers is."""
    return numbers > LARGE


def _summed(products: Tensor, matrix: Tensor, matrices: Tensor) -> Tensor:
    """The products of all tiles, as they lie in memory, added up for each matrix."""
    order = _memory_order(matrices)
    if not _is_swapped(matrices):
        products = products.view(len(matrix), *matrices.shape[1:]).permute(order)
    summed = scatter_add(len(matrices), matrix, products.contiguous())
    return summed.permute([order.index(axis) for axis in range(matrices.dim())])


def _memory_order(matrices: Tensor) -> list[int]:
    """The axes as they lie in memory, the matrices' own first."""
    return [0, *sorted(range(1, matrices.dim()), key=matrices.stride().__getitem__, reverse=True)]


def _is_swapped(matrices: Tensor) -> bool:
    """Whether these are plain matrices that lie in memory transposed."""
    return matrices.dim() == 3 and _memory_order(matrices) == [0, 2, 1]
