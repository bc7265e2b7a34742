"""The compiled kernels: plain loops over contiguous arrays, run without Python's lock.

Arrays of numbers are (rows, width) and real, a complex number as two; arrays of ids are whole numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

Array = np.ndarray[Any, np.dtype[Any]]
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8  # of Adam
ADAGRAD_EPSILON = 1e-10
COUNTED = 2**16  # a float32 counts exactly up to 2**24


def compiled(**options: Any) -> Callable[[Any], Any]:
    """Compile a function, kept on disk for the next time where there is a place to keep it."""

    def decorate(function: Any) -> Any:
        try:
            return njit(nogil=True, cache=True, **options)(function)
        except RuntimeError:  # no folder to write to
            return njit(nogil=True, **options)(function)

    return decorate


kernel = compiled(fastmath={"contract", "reassoc", "nsz"}, error_model="numpy")


@kernel
def add_rows(table: Array, rows: Array, values: Array) -> None:
    for n in range(len(rows)):
        row = table[rows[n]]
        for r in range(values.shape[1]):
            row[r] += values[n, r]


@kernel
def multiply(a: Array, i: Array, b: Array, j: Array, out: Array) -> None:
    for n in range(len(out)):
        x, y = a[i[n]], b[j[n]]
        for r in range(out.shape[1]):
            out[n, r] = x[r] * y[r]


@kernel
def multiply_back(
    a: Array, i: Array, b: Array, j: Array, grad: Array, da: Array, db: Array, first: int, last: int
) -> None:
    """The gradients of `multiply`, the columns from first to last."""
    for n in range(len(grad)):
        x, y, dz = a[i[n], first:last], b[j[n], first:last], grad[n, first:last]
        dx, dy = da[i[n], first:last], db[j[n], first:last]
        for r in range(len(dz)):
            dx[r] += dz[r] * y[r]
            dy[r] += dz[r] * x[r]


@kernel
def multiply_complex(a: Array, i: Array, b: Array, j: Array, out: Array) -> None:
    for n in range(len(out)):
        x, y, z = a[i[n]], b[j[n]], out[n]
        for r in range(len(z) // 2):
            x0, x1, y0, y1 = x[2 * r], x[2 * r + 1], y[2 * r], y[2 * r + 1]
            z[2 * r] = x0 * y0 - x1 * y1
            z[2 * r + 1] = x0 * y1 + x1 * y0


@kernel
def multiply_back_complex(
    a: Array, i: Array, b: Array, j: Array, grad: Array, da: Array, db: Array, first: int, last: int
) -> None:
    """The gradients of z = x y as PyTorch counts them, g conj(y) and g conj(x), the columns from first to last."""
    for n in range(len(grad)):
        x, y, dz = a[i[n], first:last], b[j[n], first:last], grad[n, first:last]
        dx, dy = da[i[n], first:last], db[j[n], first:last]
        for r in range(len(dz) // 2):
            g, h = dz[2 * r], dz[2 * r + 1]
            dx[2 * r] += g * y[2 * r] + h * y[2 * r + 1]
            dx[2 * r + 1] += h * y[2 * r] - g * y[2 * r + 1]
        for r in range(len(dz) // 2):
            g, h = dz[2 * r], dz[2 * r + 1]
            dy[2 * r] += g * x[2 * r] + h * x[2 * r + 1]
            dy[2 * r + 1] += h * x[2 * r] - g * x[2 * r + 1]


@kernel
def dot(query: Array, table: Array, ids: Array, out: Array) -> None:
    zero = query.dtype.type(0)
    for n in range(len(query)):
        for k in range(ids.shape[1]):
            row = table[ids[n, k]]
            total = zero
            for r in range(query.shape[1]):
                total += query[n, r] * row[r]
            out[n, k] = total


@kernel
def dot_back(
    query: Array, table: Array, ids: Array, grad: Array, dquery: Array, dtable: Array, first: int, last: int
) -> None:
    """The gradients of `dot`, the columns from first to last."""
    for n in range(len(query)):
        x, dx = query[n, first:last], dquery[n, first:last]
        for r in range(len(dx)):
            dx[r] = 0
        for k in range(ids.shape[1]):
            row, drow, g = table[ids[n, k], first:last], dtable[ids[n, k], first:last], grad[n, k]
            for r in range(len(x)):
                dx[r] += g * row[r]
                drow[r] += g * x[r]


@kernel
def adam_rows(
    weight: Array,
    average: Array,
    square: Array,
    last: Array,
    paid: Array,
    rows: Array,
    grad: Array,
    step: int,
    lr: float,
    decay: float,
) -> None:
    """In the numbers' own precision throughout: a float64 constant would make all of it so, at five times the cost."""
    real, touched = weight.dtype.type, len(grad) > 0
    b1, b2, epsilon = real(BETA1), real(BETA2), real(EPSILON)
    c1, c2 = real(1 - BETA1), real(1 - BETA2)
    rate, fix = real(lr / (1 - BETA1**step)), real(1 / (1 - BETA2**step))
    for n in range(len(rows)):
        row = rows[n]
        seen = last[row]
        gap = step - seen - touched
        tail, old, d1, d2 = real(0), real(1), real(1), real(1)
        if seen > 0 and gap > 0:
            tail = real(lr / (1 - BETA1**seen) * BETA1 * (1 - BETA1**gap) / (1 - BETA1))
            old = real(1 / (1 - BETA2**seen))
            d1, d2 = real(BETA1**gap), real(BETA2**gap)
        last[row] = step
        if touched:
            penalty = real(decay * (step - paid[row]))
            paid[row] = step
            for r in range(weight.shape[1]):
                p, m, v = weight[row, r], average[row, r], square[row, r]
                p -= tail * m / (np.sqrt(v * old) + epsilon)
                x = grad[n, r] + penalty * p
                m = b1 * d1 * m + c1 * x
                v = b2 * d2 * v + c2 * x * x
                weight[row, r] = p - rate * m / (np.sqrt(v * fix) + epsilon)
                average[row, r] = m
                square[row, r] = v
        else:
            for r in range(weight.shape[1]):
                weight[row, r] -= tail * average[row, r] / (np.sqrt(square[row, r] * old) + epsilon)
                average[row, r] *= d1
                square[row, r] *= d2


@kernel
def adagrad_rows(
    weight: Array, total: Array, last: Array, paid: Array, rows: Array, grad: Array, step: int, lr: float, decay: float
) -> None:
    real = weight.dtype.type
    rate, epsilon = real(lr), real(ADAGRAD_EPSILON)
    for n in range(len(rows)):
        row = rows[n]
        penalty = real(decay * (step - paid[row]))
        last[row] = paid[row] = step
        for r in range(weight.shape[1]):
            p = weight[row, r]
            x = grad[n, r] + penalty * p
            v = total[row, r] + x * x
            total[row, r] = v
            weight[row, r] = p - rate * x / (np.sqrt(v) + epsilon)


@kernel
def times_two(x: Array, y: Array, m: Array, u: Array, v: Array, both: bool) -> None:
    """u = x @ m and, if told, v = y @ m, four terms at a time; else v is u."""
    K = len(m)
    for r in range(len(u)):
        u[r] = 0
        v[r] = 0
    for k in range(0, K - 3, 4):
        x0, x1, x2, x3 = x[k], x[k + 1], x[k + 2], x[k + 3]
        y0, y1, y2, y3 = y[k], y[k + 1], y[k + 2], y[k + 3]
        m0, m1, m2, m3 = m[k], m[k + 1], m[k + 2], m[k + 3]
        if both:
            for r in range(len(u)):
                u[r] += x0 * m0[r] + x1 * m1[r] + x2 * m2[r] + x3 * m3[r]
                v[r] += y0 * m0[r] + y1 * m1[r] + y2 * m2[r] + y3 * m3[r]
        else:
            for r in range(len(u)):
                u[r] += x0 * m0[r] + x1 * m1[r] + x2 * m2[r] + x3 * m3[r]
    for k in range(K - K % 4, K):
        for r in range(len(u)):
            u[r] += x[k] * m[k, r]
        if both:
            for r in range(len(v)):
                v[r] += y[k] * m[k, r]


@kernel
def rows_times(rows: Array, index: Array, matrices: Array, starts: Array, owner: Array, out: Array) -> None:
    """out[n] = rows[index[n]] @ matrices[owner of n's group]."""
    for group in range(len(owner)):
        m, stop = matrices[owner[group]], starts[group + 1]
        for n in range(starts[group], stop, 2):
            other = min(n + 1, stop - 1)
            times_two(rows[index[n]], rows[index[other]], m, out[n], out[other], n + 1 < stop)


@kernel
def times_rows(rows: Array, index: Array, matrices: Array, starts: Array, owner: Array, out: Array) -> None:
    """out[n] = matrices[owner of n's group] @ rows[index[n]], four terms at a time."""
    K, zero = matrices.shape[1], matrices.dtype.type(0)
    for group in range(len(owner)):
        m = matrices[owner[group]]
        for n in range(starts[group], starts[group + 1]):
            x, u = rows[index[n]], out[n]
            for k in range(0, K - 3, 4):
                m0, m1, m2, m3 = m[k], m[k + 1], m[k + 2], m[k + 3]
                u0 = u1 = u2 = u3 = zero
                for r in range(len(x)):
                    u0 += x[r] * m0[r]
                    u1 += x[r] * m1[r]
                    u2 += x[r] * m2[r]
                    u3 += x[r] * m3[r]
                u[k], u[k + 1], u[k + 2], u[k + 3] = u0, u1, u2, u3
            for k in range(K - K % 4, K):
                m0 = m[k]
                u0 = zero
                for r in range(len(x)):
                    u0 += x[r] * m0[r]
                u[k] = u0


@kernel
def add_outer(left: Array, i: Array, right: Array, j: Array, starts: Array, owner: Array, matrices: Array) -> None:
    """matrices[owner of n's group] = Σ left[i[n]] ⊗ right[j[n]], four rows at a time; every owner has one group."""
    for group in range(len(owner)):
        m, stop = matrices[owner[group]], starts[group + 1]
        for k in range(len(m)):
            for r in range(m.shape[1]):
                m[k, r] = 0
        whole = starts[group] + (stop - starts[group]) // 4 * 4
        for n in range(starts[group], whole, 4):
            x0, x1, x2, x3 = left[i[n]], left[i[n + 1]], left[i[n + 2]], left[i[n + 3]]
            y0, y1, y2, y3 = right[j[n]], right[j[n + 1]], right[j[n + 2]], right[j[n + 3]]
            for k in range(len(x0)):
                row, c0, c1, c2, c3 = m[k], x0[k], x1[k], x2[k], x3[k]
                for r in range(len(row)):
                    row[r] += c0 * y0[r] + c1 * y1[r] + c2 * y2[r] + c3 * y3[r]
        for n in range(whole, stop):
            x0, y0 = left[i[n]], right[j[n]]
            for k in range(len(x0)):
                row, c0 = m[k], x0[k]
                for r in range(len(row)):
                    row[r] += c0 * y0[r]


@kernel
def matrix_scores(
    matrices: Array, starts: Array, owner: Array, rows: Array, i: Array, columns: Array, j: Array, out: Array, q: Array
) -> None:
    """x M y of each fact, of its other x with its y, then of its x with its other y: (B, K + L - 1).

    M is the matrix of the fact's group; x are the rows i[n], the fact's own first, (B, K); y the columns j[n], (B, L).
    What x M is stays in q, (B, K, R).
    """
    K, L, zero = i.shape[1], j.shape[1], q.dtype.type(0)
    for group in range(len(owner)):
        m = matrices[owner[group]]
        for n in range(starts[group], starts[group + 1]):
            for a in range(0, K, 2):
                x, u = rows[i[n, a]], q[n, a]
                x2, u2 = rows[i[n, min(a + 1, K - 1)]], q[n, min(a + 1, K - 1)]
                times_two(x, x2, m, u, u2, a + 1 < K)
            for a in range(K + L - 1):
                u, y = q[n, 0 if a >= K else a], columns[j[n, max(0, a - K + 1)]]
                total = zero
                for r in range(len(y)):
                    total += u[r] * y[r]
                out[n, a] = total


@kernel
def matrix_back(
    matrices: Array, starts: Array, owner: Array, rows: Array, i: Array, columns: Array, j: Array, q: Array,
    grad: Array, dmatrices: Array, dx: Array, dy: Array,
) -> None:  # fmt: skip
    """The gradients of `matrix_scores`: of the matrices, and of each fact's own rows and columns."""
    K, L, zero = i.shape[1], j.shape[1], q.dtype.type(0)
    dq = np.empty(q.shape[1:], q.dtype)
    for group in range(len(owner)):
        m, dm = matrices[owner[group]], dmatrices[owner[group]]
        for k in range(len(dm)):
            for r in range(dm.shape[1]):
                dm[k, r] = zero
        for n in range(starts[group], starts[group + 1]):
            y, own, g = columns[j[n, 0]], q[n, 0], grad[n]
            for a in range(K):
                for r in range(len(y)):
                    dq[a, r] = g[a] * y[r]
            for r in range(len(y)):
                dy[n, 0, r] = g[0] * own[r]
            for a in range(1, K):
                for r in range(len(y)):
                    dy[n, 0, r] += g[a] * q[n, a, r]
            for b in range(1, L):
                z, c = columns[j[n, b]], g[K + b - 1]
                for r in range(len(y)):
                    dq[0, r] += c * z[r]
                    dy[n, b, r] = c * own[r]
            for a in range(0, K, 2):
                b = min(a + 1, K - 1)
                both = a + 1 < K
                x, x2, e, e2, v, v2 = rows[i[n, a]], rows[i[n, b]], dq[a], dq[b], dx[n, a], dx[n, b]
                for k in range(len(dm)):
                    row, drow, c, c2 = m[k], dm[k], x[k], x2[k] if both else zero
                    t = t2 = zero
                    for r in range(len(row)):
                        drow[r] += c * e[r] + c2 * e2[r]
                        t += row[r] * e[r]
                        t2 += row[r] * e2[r]
                    v[k] = t
                    if both:
                        v2[k] = t2


@kernel
def count_better(scores: Array, own: Array, codes: Array, starts: Array, stops: Array, size: int, out: Array) -> bool:
    """How many candidates beat each row's own and tie with it, of all others (0, 1) and of the known ones (2, 3, 4).

    Row b's known ids are codes[starts[b] : stops[b]] modulo `size`. Whether every score is a number.
    """
    fine, zero, one = True, scores.dtype.type(0), scores.dtype.type(1)
    for b in range(len(scores)):
        row = scores[b]
        mine = row[own[b]]
        out[0, b], out[1, b] = 0, -1
        for start in range(0, len(row), COUNTED):  # in the scores' own numbers, as many side by side as a register has
            piece = row[start : start + COUNTED]
            greater = equal = bad = zero
            for n in range(len(piece)):
                greater += one if piece[n] > mine else zero
                equal += one if piece[n] == mine else zero
                bad += one if piece[n] != piece[n] else zero
            fine = fine and bad == zero
            out[0, b] += int(greater)
            out[1, b] += int(equal)
        known_greater = known_equal = known = 0
        for at in range(starts[b], stops[b]):
            n = codes[at] % size
            if n != own[b]:
                known += 1
                known_greater += row[n] > mine
                known_equal += row[n] == mine
        out[2, b], out[3, b], out[4, b] = known_greater, known_equal, known
    return fine


@kernel
def pair_scores(
    c: Array, i: Array, subjects: Array, s: Array, objects: Array, o: Array, other_s: Array, other_o: Array, out: Array
) -> None:
    """Σ c s o of each fact, c being the row i[n], of its other subjects, then of its other objects: (B, 1 + K + L)."""
    zero, K = c.dtype.type(0), other_s.shape[1]
    q, p = np.empty(c.shape[1], c.dtype), np.empty(c.shape[1], c.dtype)
    for n in range(len(i)):
        z, x, y = c[i[n]], subjects[s[n]], objects[o[n]]
        true = zero
        for r in range(len(q)):
            q[r] = z[r] * x[r]
            p[r] = z[r] * y[r]
            true += q[r] * y[r]
        out[n, 0] = true
        for k in range(K):
            row, total = subjects[other_s[n, k]], zero
            for r in range(len(q)):
                total += p[r] * row[r]
            out[n, 1 + k] = total
        for k in range(other_o.shape[1]):
            row, total = objects[other_o[n, k]], zero
            for r in range(len(q)):
                total += q[r] * row[r]
            out[n, 1 + K + k] = total


@kernel
def pair_back(
    c: Array, i: Array, subjects: Array, s: Array, objects: Array, o: Array, other_s: Array, other_o: Array,
    grad: Array, dc: Array, dsubjects: Array, dobjects: Array, own: bool, first: int, last: int,
) -> None:  # fmt: skip
    """The gradients of `pair_scores`, the columns from first to last; `own`: no two facts share a c."""
    K = other_s.shape[1]
    dq, dp = np.empty(last - first, c.dtype), np.empty(last - first, c.dtype)
    for n in range(len(i)):
        z, x, y = c[i[n], first:last], subjects[s[n], first:last], objects[o[n], first:last]
        g = grad[n, 0]
        for r in range(len(dq)):
            dq[r] = g * y[r]
            dp[r] = 0
        for k in range(other_o.shape[1]):
            row, drow, g = objects[other_o[n, k], first:last], dobjects[other_o[n, k], first:last], grad[n, 1 + K + k]
            for r in range(len(dq)):
                dq[r] += g * row[r]
                drow[r] += g * z[r] * x[r]
        for k in range(K):
            row, drow, g = subjects[other_s[n, k], first:last], dsubjects[other_s[n, k], first:last], grad[n, 1 + k]
            for r in range(len(dq)):
                dp[r] += g * row[r]
                drow[r] += g * z[r] * y[r]
        dz, dx, dy, g = dc[i[n], first:last], dsubjects[s[n], first:last], dobjects[o[n], first:last], grad[n, 0]
        if own:
            for r in range(len(dz)):
                dz[r] = 0
        for r in range(len(dq)):
            dz[r] += dq[r] * x[r] + dp[r] * y[r]
            dx[r] += dq[r] * z[r]
            dy[r] += g * z[r] * x[r] + dp[r] * z[r]


@kernel
def pair_scores_complex(
    c: Array, i: Array, subjects: Array, s: Array, objects: Array, o: Array, other_s: Array, other_o: Array, out: Array
) -> None:
    """The real part of the same, pairs of columns as complex numbers."""
    zero, K = c.dtype.type(0), other_s.shape[1]
    q, p = np.empty(c.shape[1], c.dtype), np.empty(c.shape[1], c.dtype)  # conjugate: Re Σ q y = Σ of columns
    for n in range(len(i)):
        z, x, y = c[i[n]], subjects[s[n]], objects[o[n]]
        for r in range(len(q) // 2):
            z0, z1, x0, x1 = z[2 * r], z[2 * r + 1], x[2 * r], x[2 * r + 1]
            q[2 * r] = z0 * x0 - z1 * x1
            q[2 * r + 1] = -z0 * x1 - z1 * x0
        for r in range(len(q) // 2):
            z0, z1, y0, y1 = z[2 * r], z[2 * r + 1], y[2 * r], y[2 * r + 1]
            p[2 * r] = z0 * y0 - z1 * y1
            p[2 * r + 1] = -z0 * y1 - z1 * y0
        true = zero
        for r in range(len(q)):
            true += q[r] * y[r]
        out[n, 0] = true
        for k in range(K):
            row, total = subjects[other_s[n, k]], zero
            for r in range(len(q)):
                total += p[r] * row[r]
            out[n, 1 + k] = total
        for k in range(other_o.shape[1]):
            row, total = objects[other_o[n, k]], zero
            for r in range(len(q)):
                total += q[r] * row[r]
            out[n, 1 + K + k] = total


@kernel
def pair_back_complex(
    c: Array, i: Array, subjects: Array, s: Array, objects: Array, o: Array, other_s: Array, other_o: Array,
    grad: Array, dc: Array, dsubjects: Array, dobjects: Array, own: bool, first: int, last: int,
) -> None:  # fmt: skip
    K = other_s.shape[1]
    width = last - first
    q, p = np.empty(width, c.dtype), np.empty(width, c.dtype)  # conj(c s), conj(c o)
    dq, dp = np.empty(width, c.dtype), np.empty(width, c.dtype)  # Σ g o, Σ g s; conjugate where they are used
    for n in range(len(i)):
        z, x, y = c[i[n], first:last], subjects[s[n], first:last], objects[o[n], first:last]
        for r in range(width // 2):
            z0, z1, x0, x1 = z[2 * r], z[2 * r + 1], x[2 * r], x[2 * r + 1]
            q[2 * r] = z0 * x0 - z1 * x1
            q[2 * r + 1] = -z0 * x1 - z1 * x0
        for r in range(width // 2):
            z0, z1, y0, y1 = z[2 * r], z[2 * r + 1], y[2 * r], y[2 * r + 1]
            p[2 * r] = z0 * y0 - z1 * y1
            p[2 * r + 1] = -z0 * y1 - z1 * y0
        g = grad[n, 0]
        for r in range(width):
            dq[r] = g * y[r]
            dp[r] = 0
        for k in range(other_o.shape[1]):
            row, drow, g = objects[other_o[n, k], first:last], dobjects[other_o[n, k], first:last], grad[n, 1 + K + k]
            for r in range(width):
                dq[r] += g * row[r]
                drow[r] += g * q[r]
        for k in range(K):
            row, drow, g = subjects[other_s[n, k], first:last], dsubjects[other_s[n, k], first:last], grad[n, 1 + k]
            for r in range(width):
                dp[r] += g * row[r]
                drow[r] += g * p[r]
        dz, dx, dy, g = dc[i[n], first:last], dsubjects[s[n], first:last], dobjects[o[n], first:last], grad[n, 0]
        if own:
            for r in range(len(dz)):
                dz[r] = 0
        for r in range(width // 2):  # conj(dq x) + conj(dp y)
            a0, a1, b0, b1 = dq[2 * r], dq[2 * r + 1], dp[2 * r], dp[2 * r + 1]
            x0, x1, y0, y1 = x[2 * r], x[2 * r + 1], y[2 * r], y[2 * r + 1]
            dz[2 * r] += a0 * x0 - a1 * x1 + b0 * y0 - b1 * y1
            dz[2 * r + 1] += -a0 * x1 - a1 * x0 - b0 * y1 - b1 * y0
        for r in range(width // 2):  # conj(dq c)
            a0, a1, z0, z1 = dq[2 * r], dq[2 * r + 1], z[2 * r], z[2 * r + 1]
            dx[2 * r] += a0 * z0 - a1 * z1
            dx[2 * r + 1] += -a0 * z1 - a1 * z0
        for r in range(width // 2):  # g conj(c s) + conj(dp c)
            b0, b1, z0, z1 = dp[2 * r], dp[2 * r + 1], z[2 * r], z[2 * r + 1]
            dy[2 * r] += g * q[2 * r] + b0 * z0 - b1 * z1
            dy[2 * r + 1] += g * q[2 * r + 1] - b0 * z1 - b1 * z0
