"""Definitions in NumPy of the compiled loops in `kernels`, with the same arguments; for where nothing is compiled.

A row is a stored fact that speaks for a candidate of a query: it has the query q, the edge j, and an entry (a, c, b) of
the kernel.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from recollect.engine import compiled
from recollect.history.edges import CLASS, EARLIER, END, FUTURE_RUN, LATER, PAST_RUN, PREDICATE, TARGET, TIME

Array = npt.NDArray[Any]
Entries = tuple[Array, Array, Array]
BLOCK = 64  # queries at a time, which bounds memory
NOT_CUT = np.empty(0, dtype=np.int64)


def loops() -> ModuleType:
    """Return the module of compiled loops, or this one where RECOLLECT_COMPILED=0."""
    if not compiled.COMPILED:
        return sys.modules[__name__]
    from recollect.history import kernels

    return kernels


def blocks(first: int, last: int) -> Iterator[slice]:
    """Yield ranges that cover first … last: all at once for compiled loops, else BLOCK queries at a time."""
    step = max(1, last - first) if compiled.COMPILED else BLOCK
    for start in range(first, last, step):
        yield slice(start, min(start + step, last))


def expand(first: Array, last: Array) -> tuple[Array, Array]:
    """Return (q, j) for every j in [first[q], last[q]): (M,), (M,)."""
    lengths = last - first
    q = np.repeat(np.arange(len(first)), lengths)
    return q, np.arange(len(q)) - np.repeat(np.cumsum(lengths) - lengths - first, lengths)


def bin_at(edges: Array, bins: Array, cut: Array, t: Array) -> Array:
    """Return the bins of edges (…, 9) as seen from times t, which broadcast with them.

    Where only the past is read, `cut` has the run-length bins: an edge that began before t and holds at t counts as
    one that ended at t − 1.
    """
    limit = bins.shape[1] // 2
    lag = np.maximum(t - edges[..., END], 0) + np.minimum(t - edges[..., TIME], 0)
    is_closest = np.where(lag > 0, edges[..., LATER] >= t, edges[..., EARLIER] <= t)
    found = bins[is_closest.astype(int), np.clip(lag, -limit, limit) + limit]
    found = np.where(lag == 1, edges[..., PAST_RUN], found)
    found = np.where(lag == -1, edges[..., FUTURE_RUN], found)
    if not len(cut):
        return found
    length = t - edges[..., TIME]
    return np.where((length > 0) & (t <= edges[..., END]), 1 + cut[np.clip(length, 0, len(cut) - 1)], found)


def holds_at(edges: Array, cut: Array, t: Array) -> Array:
    """Return whether edges (…, 9) are at lag 0 from times t, which broadcast with them.

    Where only the past is read, so are those that begin then.
    """
    return (edges[..., TIME] == t) if len(cut) else (edges[..., TIME] <= t) & (t <= edges[..., END])


def score_entities(
    start: Array, edges: Array, bins: Array, cut: Array, k: Array, u: Array, r: Array, inverse: Array, asked: Array,
    t: Array, out: Array,
) -> None:  # fmt: skip
    q, j = expand(start[u], start[u + 1])
    rows = edges[j]
    mirrored = (rows[:, TARGET] == u[q]) & (rows[:, PREDICATE] == inverse[q])
    is_answer = holds_at(rows, cut, t[q]) & ((rows[:, PREDICATE] == r[q]) | mirrored)
    rates = k[asked[q], rows[:, CLASS], bin_at(rows, bins, cut, t[q])]
    np.add.at(out, (q, rows[:, TARGET]), np.where(is_answer, 0, rates))


def score_predicates(
    first: Array, last: Array, is_loop: Array, edges: Array, bins: Array, cut: Array, k: Array, classes: Array,
    asked: Array, t: Array, out: Array,
) -> None:  # fmt: skip
    q, j = expand(first, last)
    entries, is_answer = _predicate_rows(edges[j], bins, cut, classes, asked, t[q], is_loop[q])
    np.add.at(out, q, np.where(is_answer, 0, k[entries]))


def score_times(
    first: Array, last: Array, edges: Array, bins: Array, k: Array, p: Array, inverse: Array, asked: Array, out: Array
) -> None:
    q, j = expand(first, last)
    rows, times = edges[j], np.arange(out.shape[1])
    is_asked = (rows[:, PREDICATE] == p[q]) | (rows[:, PREDICATE] == inverse[q])
    is_answer = is_asked[:, None] & holds_at(rows[:, None], NOT_CUT, times)
    rates = k[asked[q][:, None], rows[:, CLASS, None], bin_at(rows[:, None], bins, NOT_CUT, times)]
    np.add.at(out, q, np.where(is_answer, 0, rates))


def entity_pass(
    start: Array, edges: Array, bins: Array, cut: Array, pairs: Array, mirror: Array, twins: Array, k: Array,
    weights: Array, shares: Array, queries: Array, sources: Array, at: Array, *sums: Array,
) -> float:  # fmt: skip
    q, j = expand(start[sources], start[sources + 1])
    asked, rows = edges[queries], edges[j]
    is_twin = (rows[:, PREDICATE] == asked[q, PREDICATE]) & holds_at(rows, cut, at[q])
    said = ~is_twin & (j != mirror[q])
    entries = asked[q, CLASS], rows[:, CLASS], bin_at(rows, bins, cut, at[q])
    for_answer = said & (rows[:, TARGET] == asked[q, TARGET])
    return _add_sums(k, weights, asked[:, CLASS], shares, q, entries, said, for_answer, sums)


def predicate_pass(
    edges: Array, bins: Array, cut: Array, pairs: Array, mirror: Array, classes: Array, k: Array, column_sums: Array,
    weights: Array, shares: Array, queries: Array, at: Array, of_any: Array, *sums: Array,
) -> float:  # fmt: skip
    q, j = others_of_pair(edges, cut, pairs, mirror, queries, at)
    asked, candidates = edges[queries], np.arange(len(classes) // 2)
    entries, is_answer = _predicate_rows(edges[j], bins, cut, classes, candidates, at[q], mirror[queries][q] >= 0)
    for_answer = candidates == asked[q, PREDICATE, None]
    only_row = np.zeros(len(queries), dtype=int)
    return _add_sums(k, weights, only_row, shares, q, entries, ~is_answer, for_answer, sums)


def time_pass(
    edges: Array, bins: Array, runs: Array, ranges: Array, firsts: Array, pairs: Array, mirror: Array, times: int,
    k: Array, weights: Array, shares: Array, queries: Array, at: Array, *sums: Array,
) -> float:  # fmt: skip
    q, j = others_of_pair(edges, NOT_CUT, pairs, mirror, queries, at)
    asked, candidates = edges[queries], np.arange(times)
    removed = queries[q]
    mirrored = (mirror[removed] >= 0) & (edges[j, PREDICATE] == edges[mirror[removed], PREDICATE])
    removed = np.where(mirrored, mirror[removed], removed)
    rows, is_asked = _without(edges, runs, int(firsts[2]), j, removed)
    entries = asked[q, CLASS, None], rows[:, CLASS, None], bin_at(rows[:, None], bins, NOT_CUT, candidates)
    said = ~(is_asked[:, None] & holds_at(rows[:, None], NOT_CUT, candidates))
    for_answer = candidates == at[q, None]
    return _add_sums(k, weights, asked[:, CLASS], shares, q, entries, said, for_answer, sums)


def others_of_pair(
    edges: Array, cut: Array, pairs: Array, mirror: Array, queries: Array, at: Array
) -> tuple[Array, Array]:
    """Return (q, j) for every edge between the entities of a query but the asked fact or run.

    Where only the past is read, a run that began before the time `at` is among them.
    """
    q, j = expand(*pairs[queries].T)
    others = (j != queries[q]) & (j != mirror[queries][q])
    if len(cut):
        others |= (edges[queries, TIME] < at)[q]
    return q[others], j[others]


def _predicate_rows(
    rows: Array, bins: Array, cut: Array, classes: Array, candidates: Array, t: Array, is_loop: Array
) -> tuple[Entries, Array]:
    """Return entries of edges (M, 9) for each candidate, and whether the edge is the candidate itself: (M, P)."""
    predicate = np.where(is_loop, rows[:, PREDICATE] % max(1, len(classes) // 2), rows[:, PREDICATE])
    is_answer = holds_at(rows, cut, t)[:, None] & (predicate[:, None] == candidates)
    return (classes[candidates], rows[:, CLASS, None], bin_at(rows, bins, cut, t)[:, None]), is_answer


def _without(edges: Array, runs: Array, first_future: int, j: Array, removed: Array) -> tuple[Array, Array]:
    """Return edges j (M, 9) in a store without the edges `removed`, and whether both are of one triple (M,)."""
    rows, gone = edges[j], edges[removed]
    gap = gone[:, TIME] - rows[:, TIME]
    same = rows[:, PREDICATE] == gone[:, PREDICATE]
    for neighbour, position in ((EARLIER, j - 1), (LATER, j + 1)):
        rows[:, neighbour] = np.where(same & (removed == position), gone[:, neighbour], rows[:, neighbour])
    in_run = same & (removed - j == gap)  # consecutive times from one to the other
    length = runs[np.abs(gap)]
    rows[:, PAST_RUN] = np.where(in_run & (gap < 0), 1 + length, rows[:, PAST_RUN])
    rows[:, FUTURE_RUN] = np.where(in_run & (gap > 0), first_future + length, rows[:, FUTURE_RUN])
    return rows, same


def _add_sums(
    k: Array, weights: Array, row: Array, shares: Array, q: Array, entries: Entries, said: Array, for_answer: Array,
    sums: tuple[Array, ...],
) -> float:  # fmt: skip
    """Add hits and exposures and return Σ log λ/Z, given the entries of rows (M,) or of rows and candidates (M, N).

    `said` tells which of these count at all, `for_answer` which speak for the answer; row (n,) is that of the weights.
    """
    hits, exposure, weight_hits, weight_exposure = sums
    q, a, c, b = np.broadcast_arrays(q.reshape(-1, *[1] * (said.ndim - 1)), *entries)
    for_answer = said & for_answer
    rates, popularity = k[a, c, b], weights[row] * shares
    norm = weights[row].sum(1) + np.bincount(q[said], rates[said], minlength=len(row))
    rate = popularity.sum(1) + np.bincount(q[for_answer], rates[for_answer], minlength=len(row))
    _scatter_add(exposure, (a[said], c[said], b[said]), 1 / norm[q[said]])
    _scatter_add(hits, (a[for_answer], c[for_answer], b[for_answer]), (rates / rate[q])[for_answer])
    np.add.at(weight_hits, row, popularity / rate[:, None])
    np.add.at(weight_exposure, row, 1 / norm[:, None])
    return float(np.log(rate / norm).sum())


def _scatter_add(table: Array, entries: Entries, values: Array) -> None:
    """Add values (M,) to entries of a table, those of one entry summed in float64."""
    codes, index = np.unique(np.ravel_multi_index(entries, table.shape), return_inverse=True)
    table.reshape(-1)[codes] += np.bincount(index, values, minlength=len(codes))
