"""Compiled loops over edges: plain numba; `reference` defines the same quantities in NumPy.

A kernel table is k (A, C, COUNT): by class of the asked predicate, class of the edge's predicate, and bin. `hits` and
`exposure` have its shape. Edges are rows of one table (2n, 9): see `edges.Edges`. An edge is a run of times, TIME to
END, and at lag 0 from each of them. Where only the past is read, `cut` has the run-length bins, and a run that began
before the asked time counts as ending before it; else `cut` is empty.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from recollect.engine.kernels import kernel
from recollect.history.edges import CLASS, EARLIER, END, FUTURE_RUN, LATER, PAST_RUN, PREDICATE, TARGET, TIME

Array = npt.NDArray[Any]


@njit(inline="always")
def bin_at(edges: Any, bins: Any, cut: Any, j: int, t: int) -> Any:
    """Return the bin of edge j as seen from time t."""
    if len(cut) > 0 and edges[j, TIME] < t and t <= edges[j, END]:
        return np.uint64(1 + cut[np.uint64(min(t - edges[j, TIME], len(cut) - 1))])
    lag, limit = max(t - edges[j, END], 0) + min(t - edges[j, TIME], 0), bins.shape[1] // 2
    is_closest = edges[j, LATER] >= t if lag > 0 else edges[j, EARLIER] <= t
    if is_closest and lag == 1:
        found = edges[j, PAST_RUN]
    elif is_closest and lag == -1:
        found = edges[j, FUTURE_RUN]
    else:
        found = bins[np.uint64(is_closest), np.uint64(min(max(lag, -limit), limit) + limit)]
    return np.uint64(found)


@njit(inline="always")
def holds_at(edges: Any, cut: Any, j: int, t: int) -> Any:
    """Return whether edge j is at lag 0 from time t."""
    return edges[j, TIME] == t or (len(cut) == 0 and edges[j, TIME] <= t and t <= edges[j, END])


@njit(inline="always")
def is_left_out(edges: Any, cut: Any, j: int, e: int, mirror: int, t: int) -> Any:
    """Return whether edge j is the asked fact or run e at time t, or its mirror."""
    return j in (e, mirror) and (len(cut) == 0 or edges[e, TIME] >= t)


@kernel
def score_entities(
    start: Array, edges: Array, bins: Array, cut: Array, k: Array, u: Array, r: Array, inverse: Array, asked: Array,
    t: Array, out: Array,
) -> None:  # fmt: skip
    """out[n, v] += Σ_j k[asked, c_j, bin_j] over the edges (u, r_j, v) of query n, but for that of (u, r, v, t) itself.

    `inverse` (n,) is the inverse of r: a stored (u, r, u, t) is also there as its own inverse.
    """
    for n in range(len(u)):
        a = np.uint64(asked[n])
        for j in range(start[u[n]], start[u[n] + 1]):
            mirrored = edges[j, TARGET] == u[n] and edges[j, PREDICATE] == inverse[n]
            if not holds_at(edges, cut, j, t[n]) or not (edges[j, PREDICATE] == r[n] or mirrored):
                c, b = np.uint64(edges[j, CLASS]), bin_at(edges, bins, cut, j, t[n])
                out[n, np.uint64(edges[j, TARGET])] += k[a, c, b]


@kernel
def score_predicates(
    first: Array, last: Array, is_loop: Array, edges: Array, bins: Array, cut: Array, k: Array, classes: Array,
    asked: Array, t: Array, out: Array,
) -> None:  # fmt: skip
    """out[n, i] += Σ_j k[asked_i, c_j, bin_j] over the edges first[n] … last[n] − 1 between the entities of query n.

    `asked` (P,) has the predicates that the columns of `out` stand for. `is_loop` (n,): whether both entities are the
    same, so that every fact is also there as its own inverse.
    """
    predicates = len(classes) // 2
    for n in range(len(t)):
        for j in range(first[n], last[n]):
            c, b = np.uint64(edges[j, CLASS]), bin_at(edges, bins, cut, j, t[n])
            itself = edges[j, PREDICATE] if holds_at(edges, cut, j, t[n]) else -1
            if is_loop[n] and itself >= predicates:
                itself -= predicates
            for i in range(out.shape[1]):
                if asked[i] != itself:
                    out[n, i] += k[np.uint64(classes[np.uint64(asked[i])]), c, b]


@kernel
def score_times(
    first: Array, last: Array, edges: Array, bins: Array, k: Array, p: Array, inverse: Array, asked: Array, out: Array
) -> None:
    """out[n, t] += Σ_j k[asked, c_j, bin_j as seen from t] over the edges between the entities of query n.

    `inverse` (n,) is the inverse of p if both are the same entity, else −1.
    """
    cut = np.empty(0, np.int64)
    for n in range(len(p)):
        a = np.uint64(asked[n])
        for j in range(first[n], last[n]):
            c = np.uint64(edges[j, CLASS])
            is_asked = edges[j, PREDICATE] == p[n] or edges[j, PREDICATE] == inverse[n]
            for t in range(out.shape[1]):
                if not is_asked or not holds_at(edges, cut, j, t):
                    out[n, t] += k[a, c, bin_at(edges, bins, cut, j, t)]


@kernel
def entity_pass(
    start: Array, edges: Array, bins: Array, cut: Array, pairs: Array, mirror: Array, twins: Array, k: Array,
    weights: Array, shares: Array, queries: Array, sources: Array, at: Array, hits: Array, exposure: Array,
    weight_hits: Array, weight_exposure: Array,
) -> float:  # fmt: skip
    """Add the hits and exposures of queries, edges at times `at`, sorted by (source, time); return Σ log λ/Z.

    The edges of a source are counted by class and bin once for all queries of one time. Edges with the asked predicate
    at lag 0, twins[q] of them, are stored answers and say nothing. Nor does mirror[q], the inverse of one of them that
    leads from the source to itself. Both, and the shares, are by query.
    """
    total, classes, width = 0.0, k.shape[1], k.shape[2]
    slot_of, class_of = np.full(classes, -1), np.empty(classes, np.uint64)
    counts = np.empty((classes, width), np.float32)
    used, previous_source, previous_time = 0, -1, -1
    for q in range(len(queries)):
        e, u = queries[q], sources[q]
        t, a = at[q], np.uint64(edges[e, CLASS])
        if u != previous_source or t != previous_time:
            for i in range(used):
                slot_of[class_of[i]] = -1
            used, previous_source, previous_time = 0, u, t
            for j in range(start[u], start[u + 1]):
                c = np.uint64(edges[j, CLASS])
                if slot_of[c] < 0:
                    slot_of[c], class_of[used] = used, c
                    for b in range(width):
                        counts[used, b] = 0
                    used += 1
                counts[np.uint64(slot_of[c]), bin_at(edges, bins, cut, j, t)] += 1
        own = np.uint64(slot_of[a])
        counts[own, 0] -= twins[q]
        if mirror[q] >= 0:
            counts[np.uint64(slot_of[edges[mirror[q], CLASS]]), 0] -= 1
        norm = rate = np.float32(0)
        for i in range(used):
            c = class_of[i]
            for b in range(width):
                norm += k[a, c, b] * counts[i, b]
        for w in range(weights.shape[1]):
            norm += weights[a, w]
            rate += weights[a, w] * shares[q, w]
        for j in range(pairs[e, 0], pairs[e, 1]):
            if not is_left_out(edges, cut, j, e, mirror[q], t):
                rate += k[a, np.uint64(edges[j, CLASS]), bin_at(edges, bins, cut, j, t)]
        by_norm, by_rate = np.float32(1) / norm, np.float32(1) / rate
        for i in range(used):
            c = class_of[i]
            for b in range(width):
                exposure[a, c, b] += counts[i, b] * by_norm
        for j in range(pairs[e, 0], pairs[e, 1]):
            if not is_left_out(edges, cut, j, e, mirror[q], t):
                c, b = np.uint64(edges[j, CLASS]), bin_at(edges, bins, cut, j, t)
                hits[a, c, b] += k[a, c, b] * by_rate
        for w in range(weights.shape[1]):
            weight_exposure[a, w] += by_norm
            weight_hits[a, w] += weights[a, w] * shares[q, w] * by_rate
        total += np.log(rate * by_norm)
        counts[own, 0] += twins[q]
        if mirror[q] >= 0:
            counts[np.uint64(slot_of[edges[mirror[q], CLASS]]), 0] += 1
    return total


@kernel
def predicate_pass(
    edges: Array, bins: Array, cut: Array, pairs: Array, mirror: Array, classes: Array, k: Array, column_sums: Array,
    weights: Array, shares: Array, queries: Array, at: Array, of_any: Array, hits: Array, exposure: Array,
    weight_hits: Array, weight_exposure: Array,
) -> float:  # fmt: skip
    """Add the hits and exposures of queries, edges whose predicate is asked for at times `at`; shares are by query.

    The exposure of all predicates alike is added to `of_any` (C, COUNT). An edge at lag 0 is a stored answer that says
    nothing about itself, which is subtracted from `exposure`.
    """
    total, predicates = 0.0, len(classes) // 2
    for q in range(len(queries)):
        e = queries[q]
        t, a = at[q], np.uint64(edges[e, CLASS])
        norm = rate = np.float32(0)
        for w in range(weights.shape[1]):
            norm += weights[0, w]
            rate += weights[0, w] * shares[q, w]
        for j in range(pairs[e, 0], pairs[e, 1]):
            if not is_left_out(edges, cut, j, e, mirror[e], t):
                c, b = np.uint64(edges[j, CLASS]), bin_at(edges, bins, cut, j, t)
                norm += column_sums[c, b]
                rate += k[a, c, b]
                if b == 0 and (edges[j, PREDICATE] < predicates or mirror[e] >= 0):
                    norm -= k[np.uint64(classes[edges[j, PREDICATE] % predicates]), c, 0]
        by_norm, by_rate = np.float32(1) / norm, np.float32(1) / rate
        for j in range(pairs[e, 0], pairs[e, 1]):
            if not is_left_out(edges, cut, j, e, mirror[e], t):
                c, b = np.uint64(edges[j, CLASS]), bin_at(edges, bins, cut, j, t)
                of_any[c, b] += by_norm
                if b == 0 and (edges[j, PREDICATE] < predicates or mirror[e] >= 0):
                    exposure[np.uint64(classes[edges[j, PREDICATE] % predicates]), c, 0] -= by_norm
                hits[a, c, b] += k[a, c, b] * by_rate
        for w in range(weights.shape[1]):
            weight_exposure[0, w] += by_norm
            weight_hits[0, w] += weights[0, w] * shares[q, w] * by_rate
        total += np.log(rate * by_norm)
    return total


@njit(inline="always")
def add_widths(width: Any, ranges: Any, first_bin: int, last_bin: int, shortest: int, longest: int) -> None:
    """width[b] += the number of lags of bin b, from ranges[0, b] to ranges[1, b], that lie in [shortest, longest]."""
    for b in range(first_bin, last_bin):
        width[b] += max(0, min(ranges[1, b], longest) - max(ranges[0, b], shortest) + 1)


@kernel
def bin_widths(
    edges: Array, runs: Array, ranges: Array, firsts: Array, j: int, removed: int, times: int, width: Array
) -> None:
    """Set width[b] to the number of times of the axis from which edge j is in bin b, the edge `removed` left out.

    `firsts` are the first bins of the past side for the closest and for older facts, and the first of the future side.
    Only edges of the same triple feel the removal: their neighbours and the lengths of their runs change.
    """
    for b in range(len(width)):
        width[b] = 0
    near, older, future = firsts
    t, end, earlier, later = edges[j, TIME], edges[j, END], edges[j, EARLIER], edges[j, LATER]
    past_run, future_run = edges[j, PAST_RUN], edges[j, FUTURE_RUN]
    gap = edges[removed, TIME] - t
    if edges[j, PREDICATE] == edges[removed, PREDICATE]:
        if removed == j + 1:
            later = edges[removed, LATER]
        if removed == j - 1:
            earlier = edges[removed, EARLIER]
        if removed - j == gap and gap < 0:  # one run from the removed edge to j
            past_run = 1 + runs[-gap]
        if removed - j == gap and gap > 0:
            future_run = future + runs[gap]
    else:
        width[0] = end - t + 1  # with the same predicate, what holds at lag 0 would be the stored answer itself
    closest, longest = min(later, times - 1) - end, times - 1 - end
    width[past_run] += closest >= 1
    add_widths(width, ranges, near, older, 2, closest)
    add_widths(width, ranges, older, future, max(2, closest + 1), longest)
    closest, longest = t - max(earlier, 0), t
    width[future_run] += closest >= 1
    side = future - 1
    add_widths(width, ranges, side + near, side + older, 2, closest)
    add_widths(width, ranges, side + older, side + future, max(2, closest + 1), longest)


@kernel
def time_pass(
    edges: Array, bins: Array, runs: Array, ranges: Array, firsts: Array, pairs: Array, mirror: Array, times: int,
    k: Array, weights: Array, shares: Array, queries: Array, at: Array, hits: Array, exposure: Array,
    weight_hits: Array, weight_exposure: Array,
) -> float:  # fmt: skip
    """Add the hits and exposures of queries, edges whose time is asked for and which are removed meanwhile.

    The answer is a time `at` of the edge; shares are by query.
    """
    total, cut = 0.0, np.empty(0, np.int64)
    width = np.empty(k.shape[2], np.float32)
    for q in range(len(queries)):
        e = queries[q]
        t, a = at[q], np.uint64(edges[e, CLASS])
        inverse = edges[mirror[e], PREDICATE] if mirror[e] >= 0 else -1
        norm = rate = np.float32(0)
        for w in range(weights.shape[1]):
            norm += weights[a, w]
            rate += weights[a, w] * shares[q, w]
        for j in range(pairs[e, 0], pairs[e, 1]):
            if j != e and j != mirror[e]:
                c = np.uint64(edges[j, CLASS])
                removed = mirror[e] if edges[j, PREDICATE] == inverse else e
                bin_widths(edges, runs, ranges, firsts, j, removed, times, width)
                for b in range(len(width)):
                    norm += k[a, c, b] * width[b]
                rate += k[a, c, bin_at(edges, bins, cut, j, t)]
        by_norm, by_rate = np.float32(1) / norm, np.float32(1) / rate
        for j in range(pairs[e, 0], pairs[e, 1]):
            if j != e and j != mirror[e]:
                c = np.uint64(edges[j, CLASS])
                removed = mirror[e] if edges[j, PREDICATE] == inverse else e
                bin_widths(edges, runs, ranges, firsts, j, removed, times, width)
                for b in range(len(width)):
                    exposure[a, c, b] += width[b] * by_norm
                b = bin_at(edges, bins, cut, j, t)
                hits[a, c, b] += k[a, c, b] * by_rate
        for w in range(weights.shape[1]):
            weight_exposure[a, w] += by_norm
            weight_hits[a, w] += weights[a, w] * shares[q, w] * by_rate
        total += np.log(rate * by_norm)
    return total
