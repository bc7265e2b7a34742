"""The compiled kernels: plain loops over contiguous arrays, run without Python's lock.

Arrays of numbers are (rows, width) and real, a complex number as two; arrays of ids are whole numbers.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from recollect.lanes import Array, flipped, lanes, load, plus, spread, store, times, totals, without

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8  # of Adam
ADAGRAD_EPSILON = 1e-10
MANY = 16  # rows that share a matrix, for which it is worth transposing
COUNTED = 2**16  # a float32 counts exactly up to 2**24


def compiled(**options: Any) -> Callable[[Any], Any]:
    """Compile a function, kept on disk for the next time where there is a place to keep it."""

    def decorate(function: Any) -> Any:
        try:
            kept = njit(nogil=True, cache=True, **options)(function)
        except RuntimeError:  # no folder to write to
            return njit(nogil=True, **options)(function)
        # numba numbers the files of what a kernel is compiled to: two processes at it at once would mix them up
        file: Any = getattr(kept._cache, "_cache_file", None)
        if hasattr(file, "_data_name"):
            file._data_name = lambda _: f"{function.__name__}.{uuid.uuid4().hex}.nbc"
        return kept

    return decorate


kernel = compiled(fastmath={"contract", "reassoc", "nsz"}, error_model="numpy")


@kernel
def add_rows(table: Array, rows: Array, values: Array) -> None:
    for n in range(len(rows)):
        row = table[rows[n]]
        for r in range(values.shape[1]):
            row[r] += values[n, r]


@kernel
def multiply(a: Array, i: Array, b: Array, j: Array, out: Array, paired: bool | None) -> None:
    """out[n] = a[i[n]] b[j[n]], pairs of columns as complex numbers where `paired` is not None."""
    width = lanes(out)
    last = max(0, out.shape[1] - width)
    for n in range(len(out)):
        x, y = a[i[n]], b[j[n]]
        for start in range(0, len(x), width):
            at = min(start, last)
            store(out[n], at, flipped(times(load(x, at), load(y, at), paired), paired))


@kernel
def multiply_back(
    a: Array, i: Array, b: Array, j: Array, grad: Array, da: Array, db: Array, paired: bool | None, first: int, end: int
) -> None:
    """The gradients of `multiply` as PyTorch counts them, g conj(y) and g conj(x), the columns from first to end."""
    width, one = lanes(a), a.dtype.type(1)
    last = max(first, end - width)
    for n in range(len(grad)):
        x, y, g, dx, dy = a[i[n]], b[j[n]], grad[n], da[i[n]], db[j[n]]
        for start in range(first, end, width):
            at = min(start, last)
            z = flipped(without(load(g, at), start - at), paired)
            store(dx, at, plus(load(dx, at), one, times(z, load(y, at), paired)))
            store(dy, at, plus(load(dy, at), one, times(z, load(x, at), paired)))


@kernel
def dots(
    x0: Array, y0: Array, x1: Array, y1: Array, x2: Array, y2: Array, x3: Array, y3: Array
) -> tuple[Any, Any, Any, Any]:
    """Four times Σ x y, of rows of one length."""
    u0 = u1 = u2 = u3 = spread(x0.dtype.type(0))
    width = lanes(x0)
    last = max(0, len(x0) - width)
    for start in range(0, len(x0), width):
        a = min(start, last)
        new = start - a
        u0 = plus(u0, load(x0, a), without(load(y0, a), new))
        u1 = plus(u1, load(x1, a), without(load(y1, a), new))
        u2 = plus(u2, load(x2, a), without(load(y2, a), new))
        u3 = plus(u3, load(x3, a), without(load(y3, a), new))
    return totals(u0, u1, u2, u3)


@kernel
def dot(query: Array, table: Array, ids: Array, out: Array) -> None:
    end = ids.shape[1] - 1
    for n in range(len(query)):
        x = query[n]
        for k in range(0, end + 1, 4):
            k1, k2, k3 = min(k + 1, end), min(k + 2, end), min(k + 3, end)
            y0, y1, y2, y3 = table[ids[n, k]], table[ids[n, k1]], table[ids[n, k2]], table[ids[n, k3]]
            out[n, k], out[n, k1], out[n, k2], out[n, k3] = dots(x, y0, x, y1, x, y2, x, y3)


@kernel
def dot_back(
    query: Array, table: Array, ids: Array, grad: Array, dquery: Array, dtable: Array, first: int, end: int
) -> None:
    """The gradients of `dot`, the columns from first to end."""
    width, none = lanes(query), spread(query.dtype.type(0))
    last = max(first, end - width)
    for n in range(len(query)):
        x, dx = query[n], dquery[n]
        for start in range(first, end, width):
            a = min(start, last)
            new, total = without(load(x, a), start - a), none
            for k in range(ids.shape[1]):
                row, drow, g = table[ids[n, k]], dtable[ids[n, k]], grad[n, k]
                total = plus(total, g, load(row, a))
                store(drow, a, plus(load(drow, a), g, new))
            store(dx, a, total)


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
def product(rows: Array, index: Array, m: Array, out: Array) -> None:
    """out[n] = rows[index[n]] @ m, four rows at a time."""
    (K, R), end, none = m.shape, len(index) - 1, spread(m.dtype.type(0))
    width = lanes(m)
    last = max(0, R - width)
    for n in range(0, end + 1, 4):
        n1, n2, n3 = min(n + 1, end), min(n + 2, end), min(n + 3, end)
        x0, x1, x2, x3 = rows[index[n]], rows[index[n1]], rows[index[n2]], rows[index[n3]]
        for start in range(0, R, 2 * width):
            a, b = min(start, last), min(start + width, last)
            u0 = u1 = u2 = u3 = v0 = v1 = v2 = v3 = none
            for k in range(K):
                row = m[k]
                y, z = load(row, a), load(row, b)
                u0, v0 = plus(u0, x0[k], y), plus(v0, x0[k], z)
                u1, v1 = plus(u1, x1[k], y), plus(v1, x1[k], z)
                u2, v2 = plus(u2, x2[k], y), plus(v2, x2[k], z)
                u3, v3 = plus(u3, x3[k], y), plus(v3, x3[k], z)
            store_two(out[n], a, u0, b, v0)
            store_two(out[n1], a, u1, b, v1)
            store_two(out[n2], a, u2, b, v2)
            store_two(out[n3], a, u3, b, v3)


@kernel
def product_transposed(rows: Array, index: Array, m: Array, out: Array, room: Array) -> None:
    """out[n] = m @ rows[index[n]]; `room` for as many numbers as m has."""
    if len(index) >= MANY:
        swapped = room[: m.size].reshape(m.shape[1], m.shape[0])
        for k in range(len(m)):
            for r in range(m.shape[1]):
                swapped[r, k] = m[k, r]
        product(rows, index, swapped, out)
    else:
        product_in_dots(rows, index, m, out)


@kernel
def product_in_dots(rows: Array, index: Array, m: Array, out: Array) -> None:
    """The same where few rows share m, two rows and four sums at a time."""
    (K, R), end, none = m.shape, len(index) - 1, spread(m.dtype.type(0))
    width = lanes(m)
    last = max(0, R - width)
    for n in range(0, end + 1, 2):
        n1 = min(n + 1, end)
        x, y, u, v = rows[index[n]], rows[index[n1]], out[n], out[n1]
        for k in range(0, K, 4):
            k1, k2, k3 = min(k + 1, K - 1), min(k + 2, K - 1), min(k + 3, K - 1)
            u0 = u1 = u2 = u3 = v0 = v1 = v2 = v3 = none
            for start in range(0, R, width):
                a = min(start, last)
                p, q = without(load(x, a), start - a), without(load(y, a), start - a)
                m0, m1, m2, m3 = load(m[k], a), load(m[k1], a), load(m[k2], a), load(m[k3], a)
                u0, v0 = plus(u0, m0, p), plus(v0, m0, q)
                u1, v1 = plus(u1, m1, p), plus(v1, m1, q)
                u2, v2 = plus(u2, m2, p), plus(v2, m2, q)
                u3, v3 = plus(u3, m3, p), plus(v3, m3, q)
            u[k], u[k1], u[k2], u[k3] = totals(u0, u1, u2, u3)
            v[k], v[k1], v[k2], v[k3] = totals(v0, v1, v2, v3)


@kernel
def outer(x: Array, y: Array, m: Array) -> None:
    """m = Σ x[n] ⊗ y[n], four of its rows at a time."""
    (K, R), none = m.shape, spread(m.dtype.type(0))
    width = lanes(m)
    last = max(0, R - width)
    for start in range(0, R, 2 * width):
        a, b = min(start, last), min(start + width, last)
        for k in range(0, K, 4):
            k1, k2, k3 = min(k + 1, K - 1), min(k + 2, K - 1), min(k + 3, K - 1)
            u0 = u1 = u2 = u3 = v0 = v1 = v2 = v3 = none
            for n in range(len(x)):
                p, q = load(y[n], a), load(y[n], b)
                u0, v0 = plus(u0, x[n, k], p), plus(v0, x[n, k], q)
                u1, v1 = plus(u1, x[n, k1], p), plus(v1, x[n, k1], q)
                u2, v2 = plus(u2, x[n, k2], p), plus(v2, x[n, k2], q)
                u3, v3 = plus(u3, x[n, k3], p), plus(v3, x[n, k3], q)
            store_two(m[k], a, u0, b, v0)
            store_two(m[k1], a, u1, b, v1)
            store_two(m[k2], a, u2, b, v2)
            store_two(m[k3], a, u3, b, v3)


@kernel
def gathered(rows: Array, index: Array, room: Array) -> Array:
    """rows[index], in `room`."""
    width = lanes(rows)
    last = max(0, rows.shape[1] - width)
    for n in range(len(index)):
        for start in range(0, rows.shape[1], width):
            a = min(start, last)
            store(room[n], a, load(rows[index[n]], a))
    return room[: len(index)]


@kernel
def most_rows(starts: Array) -> int:
    """Of all groups."""
    most = 0
    for group in range(len(starts) - 1):
        most = max(most, starts[group + 1] - starts[group])
    return most


@kernel
def store_two(row: Array, a: int, u: Any, b: int, v: Any) -> None:
    store(row, a, u)
    store(row, b, v)


@kernel
def rows_times(rows: Array, index: Array, matrices: Array, starts: Array, owner: Array, out: Array) -> None:
    """out[n] = rows[index[n]] @ matrices[owner of n's group]."""
    for group in range(len(owner)):
        some = slice(starts[group], starts[group + 1])
        product(rows, index[some], matrices[owner[group]], out[some])


@kernel
def times_rows(rows: Array, index: Array, matrices: Array, starts: Array, owner: Array, out: Array) -> None:
    """out[n] = matrices[owner of n's group] @ rows[index[n]]."""
    room = np.empty(matrices.shape[1] * matrices.shape[2], matrices.dtype)
    for group in range(len(owner)):
        some = slice(starts[group], starts[group + 1])
        product_transposed(rows, index[some], matrices[owner[group]], out[some], room)


@kernel
def add_outer(left: Array, i: Array, right: Array, j: Array, starts: Array, owner: Array, matrices: Array) -> None:
    """matrices[owner of n's group] = Σ left[i[n]] ⊗ right[j[n]]; every owner has one group."""
    most = most_rows(starts)
    x, y = np.empty((most, left.shape[1]), left.dtype), np.empty((most, right.shape[1]), right.dtype)
    for group in range(len(owner)):
        some = slice(starts[group], starts[group + 1])
        outer(gathered(left, i[some], x), gathered(right, j[some], y), matrices[owner[group]])


@kernel
def matrix_scores(
    matrices: Array, starts: Array, owner: Array, rows: Array, i: Array, columns: Array, j: Array, out: Array, q: Array
) -> None:
    """x M y of each fact, of its other x with its y, then of its x with its other y: (B, K + L - 1).

    M is the matrix of the fact's group; x are the rows i[n], the fact's own first, (B, K); y the columns j[n], (B, L).
    What x M is stays in q, (B, K, R).
    """
    K, L = i.shape[1], j.shape[1]
    all_i, all_q = i.reshape(-1), q.reshape(-1, q.shape[2])
    for group in range(len(owner)):
        first, stop = starts[group], starts[group + 1]
        product(rows, all_i[K * first : K * stop], matrices[owner[group]], all_q[K * first : K * stop])
        for n in range(first, stop):
            for a in range(0, K + L - 1, 4):
                a1, a2, a3 = min(a + 1, K + L - 2), min(a + 2, K + L - 2), min(a + 3, K + L - 2)
                x0, x1 = q[n, a if a < K else 0], q[n, a1 if a1 < K else 0]
                x2, x3 = q[n, a2 if a2 < K else 0], q[n, a3 if a3 < K else 0]
                y0, y1 = columns[j[n, max(0, a - K + 1)]], columns[j[n, max(0, a1 - K + 1)]]
                y2, y3 = columns[j[n, max(0, a2 - K + 1)]], columns[j[n, max(0, a3 - K + 1)]]
                out[n, a], out[n, a1], out[n, a2], out[n, a3] = dots(x0, y0, x1, y1, x2, y2, x3, y3)


@kernel
def matrix_back(
    matrices: Array, starts: Array, owner: Array, rows: Array, i: Array, columns: Array, j: Array, q: Array,
    grad: Array, dmatrices: Array, dx: Array, dy: Array,
) -> None:  # fmt: skip
    """The gradients of `matrix_scores`: of the matrices, and of each fact's own rows and columns."""
    K, L, R, none = i.shape[1], j.shape[1], q.shape[2], spread(q.dtype.type(0))
    width = lanes(q)
    last = max(0, R - width)
    most = K * most_rows(starts)
    dq, each = np.empty((most, R), q.dtype), np.arange(most)
    x, room = np.empty((most, rows.shape[1]), q.dtype), np.empty(matrices.shape[1] * matrices.shape[2], q.dtype)
    all_i, all_dx = i.reshape(-1), dx.reshape(-1, dx.shape[2])
    for group in range(len(owner)):
        first, stop = starts[group], starts[group + 1]
        for n in range(first, stop):
            g, at = grad[n], K * (n - first)
            for start in range(0, R, width):
                c = min(start, last)
                own, y = load(q[n, 0], c), load(columns[j[n, 0]], c)
                down, across = plus(none, g[0], y), plus(none, g[0], own)
                for a in range(1, K):
                    across = plus(across, g[a], load(q[n, a], c))
                    store(dq[at + a], c, plus(none, g[a], y))
                for b in range(1, L):
                    down = plus(down, g[K + b - 1], load(columns[j[n, b]], c))
                    store(dy[n, b], c, plus(none, g[K + b - 1], own))
                store(dq[at], c, down)
                store(dy[n, 0], c, across)
        some, these = slice(K * first, K * stop), each[: K * (stop - first)]
        outer(gathered(rows, all_i[some], x), dq[: len(these)], dmatrices[owner[group]])
        product_transposed(dq, these, matrices[owner[group]], all_dx[some], room)


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
    c: Array, i: Array, subjects: Array, s: Array, objects: Array, o: Array, other_s: Array, other_o: Array,
    out: Array, paired: bool | None,
) -> None:  # fmt: skip
    """Σ c s o of each fact, c being the row i[n], of its other subjects, then of its other objects: (B, 1 + K + L).

    Pairs of columns are complex numbers where `paired` is not None, whose real part is taken.
    """
    K, L, width, none = other_s.shape[1], other_o.shape[1], lanes(c), spread(c.dtype.type(0))
    last = max(0, c.shape[1] - width)
    for n in range(len(i)):
        z, x, y = c[i[n]], subjects[s[n]], objects[o[n]]
        for k in range(max(1, K, L)):  # one of its other subjects and one of its other objects at a time
            x2, y2 = subjects[other_s[n, k] if k < K else s[n]], objects[other_o[n, k] if k < L else o[n]]
            true = by_subject = by_object = none
            for start in range(0, len(z), width):
                a = min(start, last)
                u, v, w = without(load(z, a), start - a), load(x, a), load(y, a)
                q = times(u, v, paired)
                true = plus(true, q, w)
                by_subject = plus(by_subject, times(u, w, paired), load(x2, a))
                by_object = plus(by_object, q, load(y2, a))
            sums = totals(true, by_subject, by_object, none)
            out[n, 0] = sums[0]
            if k < K:
                out[n, 1 + k] = sums[1]
            if k < L:
                out[n, 1 + K + k] = sums[2]


@kernel
def pair_back(
    c: Array, i: Array, subjects: Array, s: Array, objects: Array, o: Array, other_s: Array, other_o: Array,
    grad: Array, dc: Array, dsubjects: Array, dobjects: Array, own: bool, paired: bool | None, first: int, end: int,
) -> None:  # fmt: skip
    """The gradients of `pair_scores`, the columns from first to end; `own`: no two facts share a c."""
    K, L, width, none, one = other_s.shape[1], other_o.shape[1], lanes(c), spread(c.dtype.type(0)), c.dtype.type(1)
    last = max(first, end - width)
    for n in range(len(i)):
        z, x, y, dz, dx, dy = c[i[n]], subjects[s[n]], objects[o[n]], dc[i[n]], dsubjects[s[n]], dobjects[o[n]]
        for start in range(first, end, width):
            a = min(start, last)
            done, u, v, w = start - a, load(z, a), load(x, a), load(y, a)
            q, p = times(u, v, paired), times(u, w, paired)
            dq, dp = plus(none, grad[n, 0], w), none
            for k in range(L):
                g, at = grad[n, 1 + K + k], other_o[n, k]
                dq = plus(dq, g, load(objects[at], a))
                store(dobjects[at], a, plus(load(dobjects[at], a), g, without(q, done)))
            for k in range(K):
                g, at = grad[n, 1 + k], other_s[n, k]
                dp = plus(dp, g, load(subjects[at], a))
                store(dsubjects[at], a, plus(load(dsubjects[at], a), g, without(p, done)))
            du = plus(times(dq, v, paired), one, times(dp, w, paired))
            store(dz, a, du if own else plus(load(dz, a), one, without(du, done)))
            store(dx, a, plus(load(dx, a), one, without(times(dq, u, paired), done)))
            dw = plus(times(dp, u, paired), grad[n, 0], q)
            store(dy, a, plus(load(dy, a), one, without(dw, done)))
