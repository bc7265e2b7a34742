"""Differentiable operations on embedding rows.

The last lines of each body are its definition in plain PyTorch, for any device and dtype. A compiled version, where
there is one, serves CPU tensors instead (`RECOLLECT_COMPILED=0` switches all of them off).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from recollect.engine import compiled
from recollect.engine.compiled import is_compiled
from recollect.graph.fact_index import expand_ranges
from recollect.graph.facts import is_sorted, stable_sort


@dataclass(frozen=True)
class Groups:
    """Rows grouped by the matrix that they share."""

    order: Tensor | None  # (n,): the rows in the order of their groups; None if they come sorted
    matrix: Tensor  # (G,): the matrix of each group
    offsets: Tensor  # (G + 1,): where the sorted rows of each group start, and the end of the last

    @classmethod
    def of(cls, matrix: Tensor) -> Groups:
        """Group rows by their matrix (n,)."""
        order = None
        if not is_sorted(matrix):
            matrix, order = stable_sort(matrix)
        found, counts = torch.unique_consecutive(matrix, return_counts=True)
        return cls(order, found, torch.cat([counts.new_zeros(1), counts.cumsum(0)]))

    def sort(self, rows: Tensor) -> Tensor:
        """Return rows in the order of their groups."""
        return rows if self.order is None else rows.index_select(0, self.order)

    def unsort(self, rows: Tensor) -> Tensor:
        """Return rows that are in the order of their groups in their original order."""
        if self.order is None:
            return rows
        place = torch.empty_like(self.order)
        place[self.order] = torch.arange(len(self.order), device=self.order.device)
        return rows.index_select(0, place)

    def repeat(self, times: int) -> Groups:
        """Return the groups with every row replaced by `times` consecutive rows."""
        order = self.order
        if order is not None:
            order = (order[:, None] * times + torch.arange(times, device=order.device)).flatten()
        return Groups(order, self.matrix, self.offsets * times)


def gather_mul(a: Tensor, i: Tensor, b: Tensor, j: Tensor) -> Tensor:
    """Return a[i[n]] * b[j[n]]: (N, d), (B,), (M, d), (B,) -> (B, d), real or complex."""
    if is_compiled(a, b):
        return compiled.GatherMul.apply(a, i, b, j)
    return a.index_select(0, i) * b.index_select(0, j)


def gather_dot(query: Tensor, table: Tensor, ids: Tensor) -> Tensor:
    """Return out[b, k] = query[b] · table[ids[b, k]]: (B, d), (N, d), (B, K) -> (B, K), real."""
    if is_compiled(query, table) and not query.is_complex():
        return compiled.GatherDot.apply(query, table, ids)
    rows = table.index_select(0, ids.reshape(-1)).view(*ids.shape, query.shape[1])
    return torch.linalg.vecdot(rows, query[:, None, :])


def grouped_mm(x: Tensor, rows: Tensor, matrices: Tensor, groups: Groups) -> Tensor:
    """Return x[rows[n]] @ matrices[g], g being the group of n: (N, K), (n,), (M, …) -> (n, R), real.

    A matrix (K, R) may come with its axes split, as (M, *K, *R), in any memory order.
    """
    if not len(rows):
        return x.new_zeros(0, math.prod(matrices.shape[1:]) // x.shape[1])
    if is_compiled(x, matrices) and not x.is_complex():
        return groups.unsort(compiled.GroupedMM.apply(x, groups.sort(rows), matrices, groups))
    parts = groups.sort(rows).split(groups.offsets.diff().tolist())
    shared = matrices[groups.matrix].reshape(len(groups.matrix), x.shape[1], -1).unbind()
    products = [x.index_select(0, part) @ matrix for part, matrix in zip(parts, shared, strict=True)]
    return groups.unsort(torch.cat(products))


def bilinear_scores(matrices: Tensor, groups: Groups, rows: Tensor, i: Tensor, columns: Tensor, j: Tensor) -> Tensor:
    """Return x M y, x' M y and x M y' of each n: (n, 3).

    M is the matrix (R, C) of n's group; x and x' are rows[i[n]], y and y' columns[j[n]], i and j (n, 2).
    """
    x_m = grouped_mm(rows, i.reshape(-1), matrices, groups.repeat(2))
    scores = gather_dot(x_m, columns, j.repeat_interleave(2, dim=0)).view(-1, 4)  # x M y, x M y', x' M y, x' M y'
    return scores[:, [0, 2, 1]]


def diagonal_scores(
    context: Tensor, subjects: Tensor, s: Tensor, objects: Tensor, o: Tensor, other_s: Tensor, other_o: Tensor
) -> Tensor:
    """Return Re Σ_r c x y of each fact, of its K other subjects and of its L other objects: (B, 1 + K + L).

    c is the fact's row of the context (B, d); x and y are the rows s and o (B,) of subjects and objects (N, d).
    """
    if is_compiled(context, subjects, objects):
        return compiled.DiagonalScores.apply(context, subjects, s, objects, o, other_s, other_o)
    without_object, without_subject = context * subjects[s], context * objects[o]
    by_object = torch.einsum("br,bkr->bk", without_object, objects[torch.cat([o[:, None], other_o], dim=1)])
    by_subject = torch.einsum("br,bkr->bk", without_subject, subjects[other_s])
    scores = torch.cat([by_object[:, :1], by_subject, by_object[:, 1:]], dim=1)
    return scores.real if scores.is_complex() else scores


def rank_counts(scores: Tensor, own: Tensor, start: Tensor, stop: Tensor, known: Tensor) -> Tensor:
    """Count each row's candidates that exceed its own, tie with it, and are others: (B, N) -> (B, 2, 3) on the CPU.

    First all candidates but the row's own (B,), then those that are not in known[start[b]:stop[b]] either; start and
    stop are (B,). A row with a NaN has −1 throughout.
    """
    if is_compiled(scores):
        return compiled.rank_counts(scores, own, start, stop, known)
    rows, positions = expand_ranges(start, stop)
    rows, ids, own = (x.to(scores.device) for x in (rows, known[positions], own[:, None]))
    target = scores.gather(1, own)
    others = torch.ones_like(scores, dtype=torch.bool).scatter_(1, own, False)
    unknown = others.index_put((rows, ids), others.new_zeros(()))
    tests = torch.stack([scores > target, scores == target, others])  # (3, B, N)
    counts = torch.stack([(tests & others).sum(dim=2), (tests & unknown).sum(dim=2)])  # (2, 3, B)
    return counts.permute(2, 0, 1).masked_fill(scores.isnan().any(dim=1)[:, None, None], -1).cpu()
