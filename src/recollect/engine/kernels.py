"""The compiled kernels: loops over arrays whose last axis lies together, run without Python's lock.

Arrays of numbers are (rows, width) and real, a complex number as two; arrays of ids are whole numbers. In inner loops a
row is told by its number, not by a view of it: numba counts who refers to a view, and threads would fight over that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

from recollect.engine import lanes as lanes_module
from recollect.engine.lanes import (
    Array,
    claim,
    count_equal,
    count_greater,
    count_nan,
    flipped,
    four_products,
    joined,
    lanes,
    load,
    plus,
    spread,
    store,
    swap,
    times,
    totals,
    without,
    zeros,
)

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8  # of Adam
ADAGRAD_EPSILON = 1e-10
KEPT = 2**17  # numbers that stay in a processor's cache
INTRINSICS = hashlib.sha256(Path(lanes_module.__file__).read_bytes()).hexdigest()
MANY = 8  # rows that share a matrix, for which it is worth transposing
STRIP = 4  # registers of columns that rows meet at a time, as `count_better_of` is written
COUNTED = 2**20  # scores at a time, in float32, which counts exactly up to 2**24
SIDE = 64  # rows that meet a strip one after another
SCORES = 2**18  # that stay in a processor's cache until they are counted


def compiled(**options: Any) -> Callable[[Any], Any]:
    """Compile a function, kept on disk for the next time where there is a place to keep it."""

    def decorate(function: Any) -> Any:
        try:
            kept = njit(nogil=True, cache=True, **options)(function)
        except RuntimeError:  # no folder to write to
            return njit(nogil=True, **options)(function)
        _name_apart(getattr(kept._cache, "_cache_file", None), function.__name__)
        return kept

    return decorate


def _name_apart(file: Any, function: str) -> None:
    """Name what is kept on disk by what it was compiled for and from, the intrinsics of `lanes` among it.

    Numba counts: two processes that compile at once would give one name to different things.
    """
    if not hasattr(file, "save") or not hasattr(file, "_data_name") or not hasattr(file, "_source_stamp"):
        return
    save, file._source_stamp = file.save, (file._source_stamp, INTRINSICS)

    def save_apart(key: Any, data: Any) -> None:
        told = hashlib.sha256(repr((key, file._source_stamp)).encode()).hexdigest()[:16]
        file._data_name = lambda number: f"{function}.{told}.{number}.nbc"
        save(key, data)

    file.save = save_apart


kernel = compiled(fastmath={"contract", "reassoc", "nsz"}, error_model="numpy")


@kernel
def scatter_add(table: Array, rows: Array, values: Array) -> None:
    """table[rows[n]] += values[n], in order."""
    width, one = lanes(table), table.dtype.type(1)
    last = max(0, table.shape[1] - width)
    for n in range(len(rows)):
        row = rows[n]
        for start in range(0, table.shape[1], width):
            a = min(start, last)
            store(table, row, a, plus(load(table, row, a), one, without(load(values, n, a), start - a)))


@kernel
def multiply(a: Array, i: Array, b: Array, j: Array, out: Array, paired: bool | None) -> None:
    """out[n] = a[i[n]] b[j[n]], pairs of columns as complex numbers where `paired` is not None."""
    width = lanes(out)
    last = max(0, out.shape[1] - width)
    for n in range(len(out)):
        for start in range(0, out.shape[1], width):
            at = min(start, last)
            store(out, n, at, flipped(times(load(a, i[n], at), load(b, j[n], at), paired), paired))


@kernel
def multiply_back(
    a: Array, i: Array, b: Array, j: Array, grad: Array, da: Array, db: Array, paired: bool | None, first: int, end: int
) -> None:
    """The gradients of `multiply` as PyTorch counts them, g conj(y) and g conj(x), the columns from first to end."""
    width, one = lanes(a), a.dtype.type(1)
    last = max(first, end - width)
    for n in range(len(grad)):
        x, y = i[n], j[n]
        for start in range(first, end, width):
            at = min(start, last)
            g = flipped(without(load(grad, n, at), start - at), paired)
            store(da, x, at, plus(load(da, x, at), one, times(g, load(b, y, at), paired)))
            store(db, y, at, plus(load(db, y, at), one, times(g, load(a, x, at), paired)))


@kernel
def dots(
    a: Array, i0: int, i1: int, i2: int, i3: int, b: Array, j0: int, j1: int, j2: int, j3: int
) -> tuple[Any, Any, Any, Any]:
    """Four times Σ a[i] b[j]."""
    u0 = u1 = u2 = u3 = spread(a.dtype.type(0))
    width = lanes(a)
    last = max(0, a.shape[1] - width)
    for start in range(0, a.shape[1], width):
        at = min(start, last)
        new = start - at
        u0 = plus(u0, load(a, i0, at), without(load(b, j0, at), new))
        u1 = plus(u1, load(a, i1, at), without(load(b, j1, at), new))
        u2 = plus(u2, load(a, i2, at), without(load(b, j2, at), new))
        u3 = plus(u3, load(a, i3, at), without(load(b, j3, at), new))
    return totals(u0, u1, u2, u3)


@kernel
def dot(query: Array, table: Array, ids: Array, out: Array) -> None:
    end = ids.shape[1] - 1
    for n in range(len(query)):
        for k in range(0, end + 1, 4):
            k1, k2, k3 = min(k + 1, end), min(k + 2, end), min(k + 3, end)
            j0, j1, j2, j3 = ids[n, k], ids[n, k1], ids[n, k2], ids[n, k3]
            out[n, k], out[n, k1], out[n, k2], out[n, k3] = dots(query, n, n, n, n, table, j0, j1, j2, j3)


@kernel
def dot_back(
    query: Array, table: Array, ids: Array, grad: Array, dquery: Array, dtable: Array, first: int, end: int
) -> None:
    """The gradients of `dot`, the columns from first to end."""
    width, none = lanes(query), spread(query.dtype.type(0))
    last = max(first, end - width)
    for n in range(len(query)):
        for start in range(first, end, width):
            a = min(start, last)
            x, total = without(load(query, n, a), start - a), none
            for k in range(ids.shape[1]):
                row, g = ids[n, k], grad[n, k]
                total = plus(total, g, load(table, row, a))
                store(dtable, row, a, plus(load(dtable, row, a), g, x))
            store(dquery, n, a, total)


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


@njit(inline="always")
def four_rows(
    rows: Array, i0: int, i1: int, i2: int, i3: int, table: Array, first: int, column: int,
    out: Array, n0: int, n1: int, n2: int, n3: int, start: int, more: bool,
) -> None:  # fmt: skip
    """out[n] = rows[i] @ table[first :, column :] of four rows, or that `more`; the columns of the strip at `start`."""
    R, width, zero = out.shape[1], lanes(out), out.dtype.type(0)
    last = R - width
    if last < 0:  # narrower than a register
        for r in range(R):
            u0 = out[n0, r] if more else zero
            u1 = out[n1, r] if more else zero
            u2 = out[n2, r] if more else zero
            u3 = out[n3, r] if more else zero
            for k in range(rows.shape[1]):
                y = table[first + k, column + r]
                u0, u1, u2, u3 = u0 + rows[i0, k] * y, u1 + rows[i1, k] * y, u2 + rows[i2, k] * y, u3 + rows[i3, k] * y
            out[n0, r], out[n1, r], out[n2, r], out[n3, r] = u0, u1, u2, u3
        return
    count = next_strip(start, R, width) - start
    a, b = min(start, last), min(start + width, last)
    c, d = min(start + 2 * width, last), min(start + 3 * width, last)
    if count == 2 * width:
        four_products(rows, i0, i1, i2, i3, table, first, column, (a, b), out, n0, n1, n2, n3, more)
    elif count == 3 * width:
        four_products(rows, i0, i1, i2, i3, table, first, column, (a, b, c), out, n0, n1, n2, n3, more)
    else:
        four_products(rows, i0, i1, i2, i3, table, first, column, (a, b, c, d), out, n0, n1, n2, n3, more)


@njit(inline="always")
def next_strip(start: int, columns: int, width: int) -> int:
    """Where the strip after that at `start` begins: two to four registers on, so that no strip is a single one."""
    left = (columns - start + width - 1) // width
    if left < 3:
        return start + 2 * width
    return start + (3 if left == 3 or left == 5 else 4) * width


@kernel
def product(
    rows: Array, index: Array, first: int, stop: int, table: Array, at: int, out: Array, to: int, step: int
) -> None:
    """out[to::step] = rows[index[first:stop]] @ table[at:], four rows at a time, which meet one strip after another."""
    shift, start = to - step * first, 0
    while start < out.shape[1]:
        for n in range(first, stop, 4):
            n1, n2, n3 = min(n + 1, stop - 1), min(n + 2, stop - 1), min(n + 3, stop - 1)
            i0, i1, i2, i3 = index[n], index[n1], index[n2], index[n3]
            u0, u1, u2, u3 = shift + step * n, shift + step * n1, shift + step * n2, shift + step * n3
            four_rows(rows, i0, i1, i2, i3, table, at, 0, out, u0, u1, u2, u3, start, False)
        start = next_strip(start, out.shape[1], lanes(out))


@kernel
def product_transposed(
    rows: Array, index: Array, first: int, stop: int, table: Array, at: int, out: Array, to: int, room: Array
) -> None:
    """out[to :] = rows[index[first:stop]] @ mᵀ of the matrix m in table[at :], as large as `room` is transposed."""
    if stop - first < MANY:
        product_in_dots(rows, index, first, stop, table, at, out, to)
        return
    transpose(table, at, room)
    product(rows, index, first, stop, room, 0, out, to, 1)


@kernel
def transpose(table: Array, at: int, room: Array) -> None:
    """room[r, k] = table[at + k, r]."""
    (R, K), width = room.shape, lanes(room)
    if width > R or width > K:
        for k in range(K):
            for r in range(R):
                room[r, k] = table[at + k, r]
        return
    for start in range(0, K, width):
        k = min(start, K - width)
        for begin in range(0, R, width):
            r = min(begin, R - width)
            swap(table, at + k, r, room, r, k)


@kernel
def product_in_dots(
    rows: Array, index: Array, first: int, stop: int, table: Array, at: int, out: Array, to: int
) -> None:
    """The same where few rows share the matrix: two rows and four sums over their columns at a time."""
    last, width, none = out.shape[1] - 1, lanes(rows), spread(rows.dtype.type(0))
    end = max(0, rows.shape[1] - width)
    for n in range(first, stop, 2):
        n1 = min(n + 1, stop - 1)
        i, i1, to0, to1 = index[n], index[n1], to + n - first, to + n1 - first
        for k in range(0, last + 1, 4):
            k1, k2, k3 = min(k + 1, last), min(k + 2, last), min(k + 3, last)
            u0 = u1 = u2 = u3 = v0 = v1 = v2 = v3 = none
            for start in range(0, rows.shape[1], width):
                a = min(start, end)
                x, y = without(load(rows, i, a), start - a), without(load(rows, i1, a), start - a)
                m0, m1 = load(table, at + k, a), load(table, at + k1, a)
                m2, m3 = load(table, at + k2, a), load(table, at + k3, a)
                u0, v0 = plus(u0, m0, x), plus(v0, m0, y)
                u1, v1 = plus(u1, m1, x), plus(v1, m1, y)
                u2, v2 = plus(u2, m2, x), plus(v2, m2, y)
                u3, v3 = plus(u3, m3, x), plus(v3, m3, y)
            out[to0, k], out[to0, k1], out[to0, k2], out[to0, k3] = totals(u0, u1, u2, u3)
            out[to1, k], out[to1, k1], out[to1, k2], out[to1, k3] = totals(v0, v1, v2, v3)


@kernel
def outer(columns: Array, y: Array, column: int, out: Array, to: int) -> None:
    """out[to :] = Σ x[n] ⊗ y[n, column :], x being columns[:, n], four rows at a time."""
    last, start = len(columns) - 1, 0
    while start < out.shape[1]:
        for k in range(0, last + 1, 4):
            k1, k2, k3 = min(k + 1, last), min(k + 2, last), min(k + 3, last)
            four_rows(columns, k, k1, k2, k3, y, 0, column, out, to + k, to + k1, to + k2, to + k3, start, False)
        start = next_strip(start, out.shape[1], lanes(out))


@kernel
def gather(rows: Array, index: Array, first: int, stop: int, room: Array) -> None:
    """room[n] = rows[index[first + n]]."""
    width = lanes(rows)
    last = max(0, rows.shape[1] - width)
    for n in range(first, stop):
        for start in range(0, rows.shape[1], width):
            a = min(start, last)
            store(room, n - first, a, load(rows, index[n], a))


@kernel
def most_rows(starts: Array) -> int:
    """Of all groups."""
    most = 0
    for group in range(len(starts) - 1):
        most = max(most, starts[group + 1] - starts[group])
    return most


@kernel
def rows_times(rows: Array, index: Array, matrices: Array, starts: Array, owner: Array, out: Array) -> None:
    """out[n] = rows[index[n]] @ matrices[owner of n's group]."""
    _, K, R = matrices.shape
    table = matrices.reshape(-1, R)
    for group in range(len(owner)):
        first, stop = starts[group], starts[group + 1]
        product(rows, index, first, stop, table, K * owner[group], out, first, 1)


@kernel
def times_rows(rows: Array, index: Array, matrices: Array, starts: Array, owner: Array, out: Array) -> None:
    """out[n] = matrices[owner of n's group] @ rows[index[n]]."""
    _, K, R = matrices.shape
    table, room = matrices.reshape(-1, R), np.empty((R, K), matrices.dtype)
    for group in range(len(owner)):
        first, stop = starts[group], starts[group + 1]
        product_transposed(rows, index, first, stop, table, K * owner[group], out, first, room)


@kernel
def add_outer(left: Array, i: Array, right: Array, j: Array, starts: Array, owner: Array, matrices: Array) -> None:
    """matrices[owner of n's group] = Σ left[i[n]] ⊗ right[j[n]]; every owner has one group."""
    _, K, R = matrices.shape
    table, most = matrices.reshape(-1, R), most_rows(starts)
    x, y = np.empty((most, K), left.dtype), np.empty((most, R), right.dtype)
    for group in range(len(owner)):
        first, stop = starts[group], starts[group + 1]
        gather(left, i, first, stop, x)
        gather(right, j, first, stop, y)
        outer(x[: stop - first].T, y, 0, table, K * owner[group])


@kernel
def matrix_scores(
    matrices: Array, starts: Array, owner: Array, rows: Array, i: Array, columns: Array, j: Array, out: Array, q: Array
) -> None:
    """x M y of each fact, of its other x with its y, then of its x with its other y: (B, X + Y - 1).

    M is the matrix of the fact's group; x are the rows i[n], the fact's own first, (B, X); y the columns j[n], (B, Y).
    What x M is stays in q, (B, X, R).
    """
    (_, X), Y, (_, K, R) = i.shape, j.shape[1], matrices.shape
    table, index, products, last = matrices.reshape(-1, R), i.reshape(-1), q.reshape(-1, R), X + Y - 2
    for group in range(len(owner)):
        first, stop = starts[group], starts[group + 1]
        product(rows, index, X * first, X * stop, table, K * owner[group], products, X * first, 1)
        for n in range(first, stop):
            own = X * n
            for a in range(0, last + 1, 4):
                a1, a2, a3 = min(a + 1, last), min(a + 2, last), min(a + 3, last)
                x0, x1 = own + (a if a < X else 0), own + (a1 if a1 < X else 0)
                x2, x3 = own + (a2 if a2 < X else 0), own + (a3 if a3 < X else 0)
                y0, y1 = j[n, max(0, a - X + 1)], j[n, max(0, a1 - X + 1)]
                y2, y3 = j[n, max(0, a2 - X + 1)], j[n, max(0, a3 - X + 1)]
                sums = dots(products, x0, x1, x2, x3, columns, y0, y1, y2, y3)
                out[n, a], out[n, a1], out[n, a2], out[n, a3] = sums


@kernel
def matrix_back(
    matrices: Array, starts: Array, owner: Array, rows: Array, i: Array, columns: Array, j: Array, q: Array,
    grad: Array, dmatrices: Array, dx: Array, dy: Array,
) -> None:  # fmt: skip
    """The gradients of `matrix_scores`: of the matrices, and of each fact's own rows and columns."""
    (_, X), Y, (_, K, R) = i.shape, j.shape[1], matrices.shape
    table, dtable = matrices.reshape(-1, R), dmatrices.reshape(-1, R)
    index, products, by_row, by_column = i.reshape(-1), q.reshape(-1, R), dx.reshape(-1, K), dy.reshape(-1, R)
    most = X * most_rows(starts)
    x, dq, each = np.empty((most, K), q.dtype), np.empty((most, R), q.dtype), np.arange(most)
    room = np.empty((R, K), q.dtype)
    width, none = lanes(q), spread(q.dtype.type(0))
    last = max(0, R - width)
    for group in range(len(owner)):
        first, stop = starts[group], starts[group + 1]
        for n in range(first, stop):
            at = X * (n - first)
            for start in range(0, R, width):
                c = min(start, last)
                own, y = load(products, X * n, c), load(columns, j[n, 0], c)
                down, across = plus(none, grad[n, 0], y), plus(none, grad[n, 0], own)
                for a in range(1, X):
                    across = plus(across, grad[n, a], load(products, X * n + a, c))
                    store(dq, at + a, c, plus(none, grad[n, a], y))
                for b in range(1, Y):
                    g = grad[n, X + b - 1]
                    down = plus(down, g, load(columns, j[n, b], c))
                    store(by_column, Y * n + b, c, plus(none, g, own))
                store(dq, at, c, down)
                store(by_column, Y * n, c, across)
        count = X * (stop - first)
        gather(rows, index, X * first, X * stop, x)
        outer(x[:count].T, dq, 0, dtable, K * owner[group])
        product_transposed(dq, each, 0, count, table, K * owner[group], by_row, X * first, room)


@kernel
def make_matrices(
    given: Array, index: Array, begin: int, stop: int, cores: Array, core: int, parts: Array, to: int
) -> None:
    """The matrices Σ_k given[index[n], k] G[:, k, :] from begin to stop of a core G, as rows of parts from `to` on.

    cores are (G, R, K, C), in any order in memory but that the last axis lies together; where rows do too, they may be
    told as one, (G, 1, K, R × C), for parts of that width.
    """
    R = cores.shape[1]
    for r in range(R):
        product(given, index, begin, stop, cores[core, r], 0, parts, to + r, R)


@kernel
def core_rows(
    given: Array, index: Array, cores: Array, claims: Array, places: Array,
    starts: Array, rows: Array, i: Array, out: Array, transposed: bool,
) -> None:  # fmt: skip
    """out[n] = rows[i[n]] @ M, or @ Mᵀ, of the matrix M of n's group, which is made on the way and forgotten.

    The matrices of core g are those from places[g] to places[g + 1]. `claims` tells the next core that no thread has.
    """
    R, C = out.shape[1], rows.shape[1]
    if not transposed:
        R, C = C, R
    some = max(4, KEPT // (R * C))
    parts, room = np.empty((some * R, C), cores.dtype), np.empty((C, R), cores.dtype)
    lines = parts.reshape(-1, cores.shape[3])
    for _ in range(len(places) - 1):
        core = claim(claims)
        if core >= len(places) - 1:
            break
        for begin in range(places[core], places[core + 1], some):
            stop = min(begin + some, places[core + 1])
            make_matrices(given, index, begin, stop, cores, core, lines, 0)
            for n in range(begin, stop):
                at, a, b = R * (n - begin), starts[n], starts[n + 1]
                if transposed:
                    product_transposed(rows, i, a, b, parts, at, out, a, room)
                else:
                    product(rows, i, a, b, parts, at, out, a, 1)


@kernel
def core_scores(
    given: Array, index: Array, cores: Array, claims: Array, places: Array, made: Array,
    starts: Array, owner: Array, rows: Array, i: Array, columns: Array, j: Array, out: Array, q: Array,
) -> None:  # fmt: skip
    """`matrix_scores` of matrices that are made on the way, and kept: (n, R, C)."""
    _, R, _, C = cores.shape
    parts = made.reshape(-1, C)
    for _ in range(len(places) - 1):
        core = claim(claims)
        if core >= len(places) - 1:
            break
        begin, stop = places[core], places[core + 1]
        make_matrices(given, index, begin, stop, cores, core, parts, R * begin)
        matrix_scores(made, starts[begin : stop + 1], owner[begin:stop], rows, i, columns, j, out, q)


@kernel
def core_back(
    given: Array, index: Array, cores: Array, claims: Array, places: Array, made: Array,
    starts: Array, rows: Array, i: Array, columns: Array, j: Array, q: Array, grad: Array,
    dgiven: Array, dcores: Array, dx: Array, dy: Array,
) -> None:  # fmt: skip
    """The gradients of `core_scores`: of each matrix's given row, of the cores, and of facts as in `matrix_back`."""
    _, R, K, C = cores.shape
    most = most_rows(places)
    dmade, x, each = np.empty((most, R, C), q.dtype), np.empty((most, K), q.dtype), np.arange(most)
    width = lanes(q)
    lines, parts, swapped = dmade.reshape(most, -1), dmade.reshape(-1, C), np.empty((C, K), q.dtype)
    for _ in range(len(places) - 1):
        core = claim(claims)
        if core >= len(places) - 1:
            break
        begin, stop = places[core], places[core + 1]
        count = stop - begin
        if count == 0:
            dcores[core] = 0
            continue
        matrix_back(
            made[begin:stop], starts[begin : stop + 1], each[:count], rows, i, columns, j, q, grad, dmade, dx, dy
        )
        gather(given, index, begin, stop, x)
        for r in range(R):
            outer(x[:count].T, lines, C * r, dcores[core, r], 0)
            transpose(cores[core, r], 0, swapped)
            start = 0
            while start < K:
                for n in range(0, count, 4):
                    n1, n2, n3 = min(n + 1, count - 1), min(n + 2, count - 1), min(n + 3, count - 1)
                    m0, m1, m2, m3 = R * n + r, R * n1 + r, R * n2 + r, R * n3 + r
                    u0, u1, u2, u3 = begin + n, begin + n1, begin + n2, begin + n3
                    four_rows(parts, m0, m1, m2, m3, swapped, 0, 0, dgiven, u0, u1, u2, u3, start, r > 0)
                start = next_strip(start, K, width)


@njit(inline="always")
def first_from(codes: Array, key: int, near: int) -> int:
    """The first place of sorted codes that has at least `key`, soon found if it is a little after `near`."""
    low, step = near if near == 0 or codes[near - 1] < key else 0, 1
    while low + step <= len(codes) and codes[low + step - 1] < key:
        low, step = low + step, 2 * step
    high = min(len(codes), low + step - 1)
    while low < high:
        middle = (low + high) // 2
        if codes[middle] < key:
            low = middle + 1
        else:
            high = middle
    return low


@njit(inline="always")
def count_row(
    scores: Array, row: int, size: int, own: int, codes: Array, key: int, at: int, out: Array, to: int
) -> tuple[bool, int]:
    """How many others beat a row's own candidate, tie with it, and are there; then the same of unknown ones: out[to].

    The row has `size` scores; the known candidates are the sorted codes from `key` on, less that, found from `at` on.
    Returns whether every score is a number, and where the known ones begin.
    """
    mine, width, better, ties, fine = scores[row, own], lanes(scores), 0, -1, True
    for begin in range(0, size, COUNTED):
        end = min(size, begin + COUNTED)
        start, level = begin, spread(mine)
        greater = equal = none = zeros(level)
        while start + 2 * width <= end:
            x, y = load(scores, row, start), load(scores, row, start + width)
            greater, equal = count_greater(greater, x, level), count_equal(equal, x, level)
            greater, equal = count_greater(greater, y, level), count_equal(equal, y, level)
            none = count_nan(none, x, y)
            start += 2 * width
        while start < end and size >= width:
            a = min(start, end - width)  # a register that begins early enough to be full
            x = load(scores, row, a)
            greater = joined(greater, count_greater(greater, x, level), start - a)
            equal = joined(equal, count_equal(equal, x, level), start - a)
            none = count_nan(none, x, level)
            start += width
        sums = totals(greater, equal, none, none)
        better, ties, fine = better + int(sums[0]), ties + int(sums[1]), fine and sums[2] == 0 and mine == mine
        for n in range(start, end):  # of a row that is narrower than a register
            x = scores[row, n]
            better, ties, fine = better + (x > mine), ties + (x == mine), fine and x == x
    known_greater = known_equal = known = 0
    at = first_from(codes, key, at)
    for place in range(at, len(codes)):
        n = codes[place] - key
        if n >= size:
            break
        if n != own:
            known += 1
            known_greater += scores[row, n] > mine
            known_equal += scores[row, n] == mine
    out[to, 0], out[to, 1], out[to, 2] = better, ties, size - 1
    out[to, 3], out[to, 4], out[to, 5] = better - known_greater, ties - known_equal, size - 1 - known
    return fine, at


@kernel
def count_better(scores: Array, own: Array, codes: Array, keys: Array, places: Array, out: Array) -> bool:
    """`count_row` of every row b: its own candidate own[b], its known ones from keys[b] on, its counts out[places[b]].

    Returns whether every score is a number.
    """
    fine, at = True, 0
    for b in range(len(scores)):
        numbers, at = count_row(scores, b, scores.shape[1], own[b], codes, keys[b], at, out, places[b])
        fine = fine and numbers
    return fine


@kernel
def count_better_of(
    queries: Array, strips: Array, size: int, own: Array, codes: Array, keys: Array, places: Array, out: Array
) -> bool:
    """`count_better` of the scores of queries (B, K) and `size` candidates, counted while they are in the cache.

    Strips are the candidates' columns, (strips × K, STRIP registers), the last ones followed by zeros.
    """
    (B, K), across, width = queries.shape, strips.shape[1], lanes(queries)
    count = len(strips) // K
    some = max(4, min(SIDE, SCORES // (count * across)))
    scores, fine, at = np.empty((some, count * across), queries.dtype), True, 0
    for begin in range(0, B, some):
        end = min(begin + some, B) - 1
        for strip in range(count):
            a = across * strip
            columns = (a, a + width, a + 2 * width, a + 3 * width)
            for n in range(begin, end + 1, 4):
                n1, n2, n3 = min(n + 1, end), min(n + 2, end), min(n + 3, end)
                u0, u1, u2, u3 = n - begin, n1 - begin, n2 - begin, n3 - begin
                four_products(
                    queries, n, n1, n2, n3, strips, K * strip, -a, columns, scores, u0, u1, u2, u3, False
                )  # fmt: skip
        for b in range(begin, end + 1):
            numbers, at = count_row(scores, b - begin, size, own[b], codes, keys[b], at, out, places[b])
            fine = fine and numbers
    return fine


@kernel
def count_distinct(codes: Array, most: int) -> int:
    """How many different numbers there are among whole numbers from 0 up to `most`."""
    seen, count = np.zeros(most + 1, np.uint8), 0
    for code in codes:
        count += 1 - seen[code]
        seen[code] = 1
    return count


@kernel
def shuffle_groups(numbers: Array, ends: Array, chances: Array) -> None:
    """Numbers from one end to the next in random order, by a chance in [0, 1) for each: Fisher and Yates's way."""
    first = 0
    for end in ends:
        for last in range(end - 1, first, -1):
            other = min(last, first + int(chances[last] * (last - first + 1)))
            numbers[last], numbers[other] = numbers[other], numbers[last]
        first = end


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
        for k in range(max(1, K, L)):  # one of its other subjects and one of its other objects at a time
            s2, o2 = other_s[n, k] if k < K else s[n], other_o[n, k] if k < L else o[n]
            true = by_subject = by_object = none
            for start in range(0, c.shape[1], width):
                a = min(start, last)
                z, x, y = without(load(c, i[n], a), start - a), load(subjects, s[n], a), load(objects, o[n], a)
                q = times(z, x, paired)
                true = plus(true, q, y)
                by_subject = plus(by_subject, times(z, y, paired), load(subjects, s2, a))
                by_object = plus(by_object, q, load(objects, o2, a))
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
        at, own_s, own_o = i[n], s[n], o[n]
        for start in range(first, end, width):
            a = min(start, last)
            done, z, x, y = start - a, load(c, at, a), load(subjects, own_s, a), load(objects, own_o, a)
            q, p = times(z, x, paired), times(z, y, paired)
            dq, dp = plus(none, grad[n, 0], y), none
            for k in range(L):
                g, row = grad[n, 1 + K + k], other_o[n, k]
                dq = plus(dq, g, load(objects, row, a))
                store(dobjects, row, a, plus(load(dobjects, row, a), g, without(q, done)))
            for k in range(K):
                g, row = grad[n, 1 + k], other_s[n, k]
                dp = plus(dp, g, load(subjects, row, a))
                store(dsubjects, row, a, plus(load(dsubjects, row, a), g, without(p, done)))
            dz = plus(times(dq, x, paired), one, times(dp, y, paired))
            store(dc, at, a, dz if own else plus(load(dc, at, a), one, without(dz, done)))
            dx = without(times(dq, z, paired), done)
            store(dsubjects, own_s, a, plus(load(dsubjects, own_s, a), one, dx))
            dy = without(plus(times(dp, z, paired), grad[n, 0], q), done)
            store(dobjects, own_o, a, plus(load(dobjects, own_o, a), one, dy))
