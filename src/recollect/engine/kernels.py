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
ROWS = 64  # of a gradient that `grouped_outer` copies at a time: 64 × 100 float32 fit in the L1 cache
inlined = njit(inline="always")  # LLVM would leave a call, which costs as much as the loop inside


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


@inlined
def _add_rows(sums: Array, a: Any, b: Any, c: Any, d: Any, table: Array, k0: int, k1: int, k2: int, k3: int) -> None:
    """sums[0] += Σ_j a[j] table[k_j], and so on with b, c and d: a register block of 4 × 4."""
    for r in range(sums.shape[1]):
        t0, t1, t2, t3 = table[k0, r], table[k1, r], table[k2, r], table[k3, r]
        s0 = sums[0, r] + a[0] * t0 + a[1] * t1 + a[2] * t2 + a[3] * t3
        s1 = sums[1, r] + b[0] * t0 + b[1] * t1 + b[2] * t2 + b[3] * t3
        s2 = sums[2, r] + c[0] * t0 + c[1] * t1 + c[2] * t2 + c[3] * t3
        s3 = sums[3, r] + d[0] * t0 + d[1] * t1 + d[2] * t2 + d[3] * t3
        sums[0, r], sums[1, r], sums[2, r], sums[3, r] = s0, s1, s2, s3


@inlined
def _set_product(sums: Array, x: Array, i0: int, i1: int, i2: int, i3: int, table: Array) -> None:
    """sums = x[[i0, i1, i2, i3]] @ table[:K]; the last row of the table is zero and completes blocks."""
    K, zero, none = x.shape[1], x.dtype.type(0), Id(len(table) - 1)
    blocked = K - K % 4
    sums[:] = 0
    for k in range(0, blocked, 4):
        a = x[i0, k], x[i0, k + 1], x[i0, k + 2], x[i0, k + 3]
        b = x[i1, k], x[i1, k + 1], x[i1, k + 2], x[i1, k + 3]
        c = x[i2, k], x[i2, k + 1], x[i2, k + 2], x[i2, k + 3]
        d = x[i3, k], x[i3, k + 1], x[i3, k + 2], x[i3, k + 3]
        _add_rows(sums, a, b, c, d, table, Id(k), Id(k + 1), Id(k + 2), Id(k + 3))
    for k in range(blocked, K):
        a, b = (x[i0, k], zero, zero, zero), (x[i1, k], zero, zero, zero)
        c, d = (x[i2, k], zero, zero, zero), (x[i3, k], zero, zero, zero)
        _add_rows(sums, a, b, c, d, table, Id(k), none, none, none)


@kernel
def grouped_mm(x: Array, rows: Array, matrices: Array, offsets: Array, owner: Array, out: Array, buffer: Array) -> None:
    """out[n, q] = x[rows[n]] @ matrices[owner[g], q] for offsets[g] ≤ n < offsets[g + 1].

    The buffer holds four sums, a matrix and a zero row, all aligned. Blocks of fewer than four n repeat the last.
    """
    Q, K, R = matrices.shape[1:]
    sums, table = buffer[:4], buffer[4:]
    for g in range(len(owner)):
        m, last = Id(owner[g]), offsets[g + 1] - 1
        for q in range(Q):
            if last - offsets[g] < 2:  # one or two rows do not pay for a copy of the matrix
                for n in range(offsets[g], last + 1):
                    i = Id(rows[n])
                    out[Id(n), q, :] = 0
                    for k in range(K):
                        for r in range(R):
                            out[Id(n), q, r] += x[i, k] * matrices[m, q, k, r]
                continue
            for k in range(K):
                for r in range(R):
                    table[k, r] = matrices[m, q, k, r]
            for n in range(offsets[g], last + 1, 4):
                i0, i1 = Id(rows[n]), Id(rows[min(n + 1, last)])
                i2, i3 = Id(rows[min(n + 2, last)]), Id(rows[min(n + 3, last)])
                _set_product(sums, x, i0, i1, i2, i3, table)
                for j in range(min(4, last + 1 - n)):
                    for r in range(R):
                        out[Id(n + j), q, r] = sums[j, r]


@kernel
def grouped_mm_transposed(x: Array, matrices: Array, offsets: Array, owner: Array, out: Array, buffer: Array) -> None:
    """out[n] += Σ_q matrices[owner[g], q] @ x[n Q + q] for offsets[g] ≤ n < offsets[g + 1]."""
    Q, K, R = matrices.shape[1:]
    sums, table = buffer[:4], buffer[4:]
    for g in range(len(owner)):
        m, last = Id(owner[g]), offsets[g + 1] - 1
        for q in range(Q):
            if last - offsets[g] < 2:
                for n in range(offsets[g], last + 1):
                    i = Id(n * Q + q)
                    for k in range(K):
                        total = x.dtype.type(0)
                        for r in range(R):
                            total += matrices[m, q, k, r] * x[i, r]
                        out[Id(n), k] += total
                continue
            for k in range(K):
                for r in range(R):
                    table[r, k] = matrices[m, q, k, r]
            for n in range(offsets[g], last + 1, 4):
                i0, i1 = Id(n * Q + q), Id(min(n + 1, last) * Q + q)
                i2, i3 = Id(min(n + 2, last) * Q + q), Id(min(n + 3, last) * Q + q)
                _set_product(sums, x, i0, i1, i2, i3, table)
                for j in range(min(4, last + 1 - n)):
                    for k in range(K):
                        out[Id(n + j), k] += sums[j, k]


@kernel
def grouped_outer(x: Array, rows: Array, grad: Array, offsets: Array, owner: Array, out: Array, buffer: Array) -> None:
    """out[owner[g], q] += Σ x[rows[n]] ⊗ grad[n Q + q] over offsets[g] ≤ n < offsets[g + 1]."""
    Q, K, R = out.shape[1:]
    sums, table, zero, none = buffer[:4], buffer[4:], x.dtype.type(0), Id(ROWS)
    for g in range(len(owner)):
        m, last = Id(owner[g]), offsets[g + 1] - 1
        for q in range(Q):
            for first in range(offsets[g], last + 1, ROWS):
                count = min(ROWS, last + 1 - first)
                blocked = count - count % 4
                for n in range(count):
                    for r in range(R):
                        table[n, r] = grad[Id((first + n) * Q + q), r]
                for k in range(0, K, 4):
                    k1, k2, k3 = Id(min(k + 1, K - 1)), Id(min(k + 2, K - 1)), Id(min(k + 3, K - 1))
                    sums[:] = 0
                    for n in range(0, blocked, 4):
                        at = first + n
                        h, i, j, o = Id(rows[at]), Id(rows[at + 1]), Id(rows[at + 2]), Id(rows[at + 3])
                        a, b = (x[h, k], x[i, k], x[j, k], x[o, k]), (x[h, k1], x[i, k1], x[j, k1], x[o, k1])
                        c, d = (x[h, k2], x[i, k2], x[j, k2], x[o, k2]), (x[h, k3], x[i, k3], x[j, k3], x[o, k3])
                        _add_rows(sums, a, b, c, d, table, Id(n), Id(n + 1), Id(n + 2), Id(n + 3))
                    for n in range(blocked, count):
                        i = Id(rows[first + n])
                        a, b = (x[i, k], zero, zero, zero), (x[i, k1], zero, zero, zero)
                        c, d = (x[i, k2], zero, zero, zero), (x[i, k3], zero, zero, zero)
                        _add_rows(sums, a, b, c, d, table, Id(n), none, none, none)
                    for j in range(min(4, K - k)):
                        for r in range(R):
                            out[m, q, Id(k + j), r] += sums[j, r]


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
