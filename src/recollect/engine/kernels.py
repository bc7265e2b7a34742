"""Compiled loops behind the operations of `ops`: plain numba, one loop nest per kernel, no bounds checks.

Arrays are C-contiguous. Ids are cast to unsigned integers, which spares numba's test for negative (wrap-around)
indices. Reads and scattered writes stay in separate loops, so that LLVM vectorises both.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

Array = npt.NDArray[Any]
Id = np.uint64


def kernel(function: Any) -> Any:
    """Compile a function that releases the GIL; cache the machine code on disk if there is a folder for it."""
    options = {"nogil": True, "fastmath": {"contract", "reassoc", "nsz"}, "error_model": "numpy"}
    try:
        return njit(cache=True, **options)(function)
    except RuntimeError:  # no writable cache folder
        return njit(**options)(function)


@kernel
def gather_mul(a: Array, i: Array, b: Array, j: Array, out: Array) -> None:
    """out[n] = a[i[n]] * b[j[n]], real or complex."""
    for n in range(len(out)):
        x, y = Id(i[n]), Id(j[n])
        for r in range(out.shape[1]):
            out[n, r] = a[x, r] * b[y, r]


@kernel
def gather_mul_grad(grad: Array, b: Array, j: Array, i: Array, da: Array) -> None:
    """da[i[n]] += grad[n] * conj(b[j[n]])."""
    for n in range(len(grad)):
        x, y = Id(i[n]), Id(j[n])
        for r in range(da.shape[1]):
            da[x, r] += grad[n, r] * np.conj(b[y, r])


@kernel
def diagonal_scores(
    context: Array, subjects: Array, s: Array, objects: Array, o: Array, other_s: Array, other_o: Array, out: Array
) -> None:
    """out[n] = Re Σ_r c x y, then of each other subject, then of each other object; real or complex rows."""
    K, d = other_s.shape[1], context.shape[1]
    for n in range(len(s)):
        x, y, total = Id(s[n]), Id(o[n]), out.dtype.type(0)
        for r in range(d):
            total += (context[n, r] * subjects[x, r] * objects[y, r]).real
        out[n, 0] = total
        for k in range(K):
            row, total = Id(other_s[n, k]), out.dtype.type(0)
            for r in range(d):
                total += (context[n, r] * objects[y, r] * subjects[row, r]).real
            out[n, 1 + k] = total
        for k in range(other_o.shape[1]):
            row, total = Id(other_o[n, k]), out.dtype.type(0)
            for r in range(d):
                total += (context[n, r] * subjects[x, r] * objects[row, r]).real
            out[n, 1 + K + k] = total


@kernel
def diagonal_scores_grad(
    context: Array, subjects: Array, s: Array, objects: Array, o: Array, other_s: Array, other_o: Array,
    grad: Array, dcontext: Array, dsubjects: Array, dobjects: Array,
) -> None:  # fmt: skip
    """Set the gradient of the context, add those of subjects and objects to their rows."""
    K, d = other_s.shape[1], context.shape[1]
    cx, cy = np.empty(d, context.dtype), np.empty(d, context.dtype)  # conjugates of c x and c y
    dcx, dcy = np.empty(d, context.dtype), np.empty(d, context.dtype)  # gradients of c x and c y
    for n in range(len(s)):
        x, y, g = Id(s[n]), Id(o[n]), grad[n, 0]
        for r in range(d):
            cx[r] = np.conj(context[n, r] * subjects[x, r])
            cy[r] = np.conj(context[n, r] * objects[y, r])
            dcx[r] = g * np.conj(objects[y, r])
            dcy[r] = 0
        for k in range(other_o.shape[1]):
            row, g = Id(other_o[n, k]), grad[n, 1 + K + k]
            for r in range(d):
                dcx[r] += g * np.conj(objects[row, r])
            for r in range(d):
                dobjects[row, r] += g * cx[r]
        for k in range(K):
            row, g = Id(other_s[n, k]), grad[n, 1 + k]
            for r in range(d):
                dcy[r] += g * np.conj(subjects[row, r])
            for r in range(d):
                dsubjects[row, r] += g * cy[r]
        g = grad[n, 0]
        for r in range(d):
            dcontext[n, r] = dcx[r] * np.conj(subjects[x, r]) + dcy[r] * np.conj(objects[y, r])
        for r in range(d):
            dsubjects[x, r] += dcx[r] * np.conj(context[n, r])
        for r in range(d):
            dobjects[y, r] += g * cx[r] + dcy[r] * np.conj(context[n, r])


@kernel
def gather_dot(query: Array, table: Array, ids: Array, out: Array) -> None:
    """out[n, k] = query[n] · table[ids[n, k]]."""
    for n in range(len(query)):
        for k in range(ids.shape[1]):
            row = Id(ids[n, k])
            total = query.dtype.type(0)
            for r in range(query.shape[1]):
                total += query[n, r] * table[row, r]
            out[n, k] = total


@kernel
def gather_dot_grad(query: Array, table: Array, ids: Array, grad: Array, dquery: Array, dtable: Array) -> None:
    """dquery[n] = Σ_k grad[n, k] table[ids[n, k]] and dtable[ids[n, k]] += grad[n, k] query[n]."""
    for n in range(len(query)):
        for r in range(query.shape[1]):
            dquery[n, r] = 0
        for k in range(ids.shape[1]):
            row, g = Id(ids[n, k]), grad[n, k]
            for r in range(query.shape[1]):
                dquery[n, r] += g * table[row, r]
    for n in range(len(query)):
        for k in range(ids.shape[1]):
            row, g = Id(ids[n, k]), grad[n, k]
            for r in range(query.shape[1]):
                dtable[row, r] += g * query[n, r]


@kernel
def grouped_mm(x: Array, rows: Array, matrices: Array, offsets: Array, owner: Array, out: Array) -> None:
    """out[n] = x[rows[n]] @ matrices[owner[g]] for offsets[g] ≤ n < offsets[g + 1].

    Register block: two rows of x (the last of an odd group twice) times four rows of the matrix.
    """
    K, R = matrices.shape[1], matrices.shape[2]
    blocked = K - K % 4
    for g in range(len(owner)):
        m, end = Id(owner[g]), offsets[g + 1]
        for n in range(offsets[g], end, 2):
            n0, n1 = Id(n), Id(min(n + 1, end - 1))
            i, j = Id(rows[n0]), Id(rows[n1])
            for r in range(R):
                out[n0, r] = 0
                out[n1, r] = 0
            for k in range(0, blocked, 4):
                a0, a1, a2, a3 = x[i, k], x[i, k + 1], x[i, k + 2], x[i, k + 3]
                b0, b1, b2, b3 = x[j, k], x[j, k + 1], x[j, k + 2], x[j, k + 3]
                for r in range(R):
                    m0, m1 = matrices[m, k, r], matrices[m, k + 1, r]
                    m2, m3 = matrices[m, k + 2, r], matrices[m, k + 3, r]
                    u = out[n0, r] + a0 * m0 + a1 * m1 + a2 * m2 + a3 * m3
                    v = out[n1, r] + b0 * m0 + b1 * m1 + b2 * m2 + b3 * m3
                    out[n0, r] = u
                    out[n1, r] = v
            for k in range(blocked, K):
                a0, b0 = x[i, k], x[j, k]
                for r in range(R):
                    u = out[n0, r] + a0 * matrices[m, k, r]
                    v = out[n1, r] + b0 * matrices[m, k, r]
                    out[n0, r] = u
                    out[n1, r] = v


@kernel
def grouped_mm_transposed(x: Array, rows: Array, matrices: Array, offsets: Array, owner: Array, out: Array) -> None:
    """out[n] = matrices[owner[g]] @ x[rows[n]] for offsets[g] ≤ n < offsets[g + 1]; four dot products at a time."""
    K, R = matrices.shape[1], matrices.shape[2]
    blocked = K - K % 4
    zero = x.dtype.type(0)
    for g in range(len(owner)):
        m = Id(owner[g])
        for n in range(offsets[g], offsets[g + 1]):
            row = Id(rows[n])
            for k in range(0, blocked, 4):
                a = b = c = d = zero
                for r in range(R):
                    y = x[row, r]
                    a += y * matrices[m, k, r]
                    b += y * matrices[m, k + 1, r]
                    c += y * matrices[m, k + 2, r]
                    d += y * matrices[m, k + 3, r]
                out[n, k], out[n, k + 1], out[n, k + 2], out[n, k + 3] = a, b, c, d
            for k in range(blocked, K):
                a = zero
                for r in range(R):
                    a += x[row, r] * matrices[m, k, r]
                out[n, k] = a


@kernel
def grouped_outer(x: Array, rows: Array, grad: Array, offsets: Array, owner: Array, out: Array) -> None:
    """out[owner[g]] = Σ x[rows[n]] ⊗ grad[n] over offsets[g] ≤ n < offsets[g + 1], four n at a time."""
    K, R = out.shape[1], out.shape[2]
    for g in range(len(owner)):
        m, begin, end = Id(owner[g]), offsets[g], offsets[g + 1]
        blocked = end - (end - begin) % 4
        for k in range(K):
            for r in range(R):
                out[m, k, r] = 0
        for n in range(begin, blocked, 4):
            i0, i1, i2, i3 = Id(rows[n]), Id(rows[n + 1]), Id(rows[n + 2]), Id(rows[n + 3])
            for k in range(K):
                a, b, c, d = x[i0, k], x[i1, k], x[i2, k], x[i3, k]
                for r in range(R):
                    out[m, k, r] += a * grad[n, r] + b * grad[n + 1, r] + c * grad[n + 2, r] + d * grad[n + 3, r]
        for n in range(blocked, end):
            row = Id(rows[n])
            for k in range(K):
                a = x[row, k]
                for r in range(R):
                    out[m, k, r] += a * grad[n, r]


@kernel
def rank_counts(scores: Array, own: Array, start: Array, stop: Array, known: Array, out: Array) -> None:
    """out[b] = greater, ties and others, raw and without the ids known[start[b]:stop[b]]; −1 if a score is NaN."""
    N = scores.shape[1]
    for b in range(len(scores)):
        target = scores[b, Id(own[b])]
        greater, equal, numbers = np.int32(0), np.int32(0), np.int32(0)  # as wide as float32: twice as fast as int64
        for n in range(N):
            x = scores[b, n]
            greater += np.int32(x > target)
            equal += np.int32(x == target)
            numbers += np.int32(x == x)
        if numbers < N:
            out[b] = -1
            continue
        counts = (greater, equal - 1, N - 1)
        out[b, 0, 0], out[b, 0, 1], out[b, 0, 2] = counts
        out[b, 1, 0], out[b, 1, 1], out[b, 1, 2] = counts
        for n in range(start[b], stop[b]):
            if known[n] != own[b]:
                x = scores[b, Id(known[n])]
                out[b, 1, 0] -= x > target
                out[b, 1, 1] -= x == target
                out[b, 1, 2] -= 1


@kernel
def adam_rows(
    weight: Array, average: Array, square: Array, last: Array, paid: Array, rows: Array, grad: Array,
    step: int, lr: float, decay: float, beta1: float, beta2: float, epsilon: float,
) -> None:  # fmt: skip
    """Lazy Adam of distinct rows: skipped momentum steps, then this step unless `grad` is empty.

    Constants are cast to the dtype of the weights: one float64 would make all of the arithmetic float64.
    """
    real, touched = weight.dtype.type, len(grad) > 0
    b1, b2, eps, c1, c2 = real(beta1), real(beta2), real(epsilon), real(1 - beta1), real(1 - beta2)
    rate, correction = real(lr / (1 - beta1**step)), real(1 / (1 - beta2**step))
    for n in range(len(rows)):
        row = Id(rows[n])
        seen = last[row]
        gap = step - seen - touched
        tail, old, decay1, decay2 = real(0), real(1), real(1), real(1)
        if seen > 0 and gap > 0:
            tail = real(lr / (1 - beta1**seen) * beta1 * (1 - beta1**gap) / (1 - beta1))
            old = real(1 / (1 - beta2**seen))
            decay1, decay2 = real(beta1**gap), real(beta2**gap)
        last[row] = step
        if not touched:
            for r in range(weight.shape[1]):
                weight[row, r] -= tail * average[row, r] / (np.sqrt(square[row, r] * old) + eps)
                average[row, r] *= decay1
                square[row, r] *= decay2
            continue
        shrink = real(decay * (step - paid[row]))
        paid[row] = step
        for r in range(weight.shape[1]):
            p, m, v = weight[row, r], average[row, r], square[row, r]
            p -= tail * m / (np.sqrt(v * old) + eps)
            g = grad[n, r] + shrink * p
            m = b1 * decay1 * m + c1 * g
            v = b2 * decay2 * v + c2 * g * g
            weight[row, r] = p - rate * m / (np.sqrt(v * correction) + eps)
            average[row, r] = m
            square[row, r] = v
