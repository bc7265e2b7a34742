"""Popularity of candidates: their shares of the stored facts, the part of λ that needs no evidence of the pair.

Columns of shares by asked slot, each with sum 1 over its candidates:

    o    uniform; among the targets of the predicate
    p    uniform; among all facts; among the facts with this subject; among those with this object
    t    uniform; among all facts; among the facts of the predicate; with the subject on either side; with the object;
         with this subject and predicate; with this object and predicate

Of runs, entities and predicates are counted once per run, times once per time that a run covers. With `past`, only
facts before the asked time count (not where the time is asked); else all but the answer itself, a fact or a whole run.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from recollect.history.bins import Ints
from recollect.history.edges import END, PREDICATE, TARGET, TIME, Edges, Floats, count_covering

COLUMNS = {"o": 2, "p": 4, "t": 7}  # columns of shares by asked slot
NONE = slice(0)
NO_TIMES = np.empty(0, dtype=np.int64)
Rows = npt.NDArray[np.int32]  # of the table of edges
Counts = tuple[Ints, int]  # how often each candidate occurs (N,), and the sum over all candidates


class LeftOutShares:
    """The shares of an edge's own id of the asked slot, without its fact or run.

    Where a predicate or a time is asked, those of inverse edges mean nothing.
    """

    def __init__(self, edges: Edges, slot: str, sizes: Mapping[str, int], *, past: bool) -> None:
        u, r, v, t = edges.source, edges.column(PREDICATE), edges.column(TARGET), edges.column(TIME)
        direction = r // max(1, sizes["predicate"])
        is_forward = direction == 0
        of_subject, of_object = (_group_numbers(entity, r) for entity in (u, v))  # and predicate
        given, value, self.size, counted = {
            "o": ([r], v, sizes["entity"], np.full(len(r), True)),
            "p": ([direction, u, v], r, sizes["predicate"], is_forward),
            "t": ([direction, r, u, v, of_subject, of_object], t, sizes["time"], is_forward | (u != v)),
        }[slot]  # a fact of u with itself counts once
        self._coverage: list[_Coverage | _Past] = []
        if slot == "t" and edges.has_runs:
            self._coverage = [_Coverage(edges, each, counted) for each in given]
        elif past and slot != "t":
            self._coverage = [_Past(each, value, t, counted) for each in given]
        shares = [] if self._coverage else [_left_out_share(each, value, counted) for each in given]
        self._shares = np.stack([np.full(len(r), 1 / max(1, self.size)), *shares], axis=1).astype(np.float32)

    def of(self, edges: Ints, times: Ints) -> Floats:
        """Return the shares of edges (n,) at one of their times (n,): (n, columns)."""
        known = self._shares[edges]
        covering = [each.share(edges, times)[:, None].astype(np.float32) for each in self._coverage]
        return np.concatenate([known, *covering], axis=1) if covering else known


class _Coverage:
    """How many of the counted runs of a group cover a time."""

    def __init__(self, edges: Edges, group: Ints, counted: npt.NDArray[np.bool_]) -> None:
        first, last, self.lengths = edges.column(TIME), edges.column(END), edges.lengths
        self.code = group * (int(last.max(initial=0)) + 1)
        self.first, self.last = np.sort((self.code + first)[counted]), np.sort((self.code + last)[counted])
        self.total = np.bincount(group, weights=np.where(counted, self.lengths, 0))[group]

    def share(self, edges: Ints, times: Ints) -> npt.NDArray[np.float64]:
        """Return the share of a time among the facts of an edge's group, the edge left out: (n,), (n,) -> (n,)."""
        covering = count_covering(self.first, self.last, self.code[edges] + times)
        return (covering - 1) / np.maximum(self.total[edges] - self.lengths[edges], 1)


def _group_numbers(entity: Ints, predicate: Ints) -> Ints:
    """Return 0, 1, 2, … for the distinct (entity, predicate): (n,)."""
    codes = entity * (int(predicate.max(initial=0)) + 1) + predicate
    return np.unique(codes, return_inverse=True)[1].astype(np.int64)


def _left_out_share(given: Ints, value: Ints, counted: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """Return (count of (given, value) − 1) / (count of given − 1) of each row, among the counted rows: (n,)."""
    _, group = np.unique(given, return_inverse=True)
    _, pair = np.unique(group * (int(value.max(initial=0)) + 1) + value, return_inverse=True)
    totals, counts = np.bincount(group, weights=counted), np.bincount(pair, weights=counted)
    return (counts[pair] - 1) / np.maximum(totals[group] - 1, 1)


class _Past:
    """How often an edge's value occurs among the counted edges of its group that began before a time."""

    def __init__(self, given: Ints, value: Ints, t: Ints, counted: npt.NDArray[np.bool_]) -> None:
        self.width = int(t.max(initial=0)) + 2  # an edge is asked for at its last time at most
        pair = given * (int(value.max(initial=0)) + 1) + value
        self.groups = [group * self.width for group in (pair, given)]
        self.codes = [np.sort((group + t)[counted]) for group in self.groups]

    def share(self, edges: Ints, times: Ints) -> npt.NDArray[np.float64]:
        """Return count of (given, value) / count of given, among counted edges before a time: (n,), (n,) -> (n,)."""
        times = np.minimum(times, self.width - 1)
        pair, given = (
            np.searchsorted(codes, group[edges] + times) - np.searchsorted(codes, group[edges])
            for codes, group in zip(self.codes, self.groups, strict=True)
        )
        return pair / np.maximum(given, 1)


class Popularity:
    """Weighted shares of all candidates of a query; stored answers are left out of their own."""

    def __init__(self, edges: Edges, sizes: Mapping[str, int]) -> None:
        self.edges, self.sizes = edges, sizes
        self._rows_cached: dict[int, Rows] = {}
        self._counts_cached: dict[tuple[str, int], Counts] = {}

    def entities(self, weights: Floats, u: int, r: int, t: int, *, past: bool) -> Floats:
        """Return Σ_c w_c share_c of each entity as the target of (u, r) at t: (E,)."""
        if past:
            return _weighted(weights, [self._of_predicate("o", r, before=t)])
        rows = self._of_entity(u)
        stored = rows[_hold(rows, t) & (rows[:, PREDICATE] == r), TARGET]
        return _weighted(weights, [self._of_predicate("o", r)], stored)

    def predicates(self, weights: Floats, s: int, o: int, t: int, *, past: bool) -> Floats:
        """Return Σ_c w_c share_c of each predicate between two entities at t: (P,)."""
        before, count = t if past else None, self.sizes["predicate"]
        of_subject, of_object = self._of_entity(s, before), self._of_entity(o, before)
        of_subject = of_subject[of_subject[:, PREDICATE] < count]
        of_object = of_object[of_object[:, PREDICATE] >= count]
        columns = [
            self._of_predicate("p", -1, before),
            _counts(of_subject[:, PREDICATE], count),
            _counts(of_object[:, PREDICATE] - count, count),
        ]
        if past:
            return _weighted(weights, columns)
        stored = of_subject[(of_subject[:, TARGET] == o) & _hold(of_subject, t), PREDICATE]
        return _weighted(weights, columns, stored)

    def times(self, weights: Floats, s: int, p: int, o: int) -> Floats:
        """Return Σ_c w_c share_c of each time of a triple: (T,)."""
        columns = [self._of_predicate("t", -1), self._of_predicate("t", p)]
        for entity in (s, o):
            rows = self._of_entity(entity)
            is_repeated = (rows[:, TARGET] == entity) & (rows[:, PREDICATE] >= self.sizes["predicate"])
            columns.append(_covered(rows[~is_repeated], self.sizes["time"]))
        for entity, r in ((s, p), (o, p + self.sizes["predicate"])):
            rows = self._of_entity(entity)
            columns.append(_covered(rows[rows[:, PREDICATE] == r], self.sizes["time"]))
        rows = self._of_entity(s)
        rows = rows[(rows[:, TARGET] == o) & (rows[:, PREDICATE] == p)]
        lengths = rows[:, END] - rows[:, TIME] + 1
        stored = np.concatenate([NO_TIMES, *(np.arange(row[TIME], row[END] + 1) for row in rows)])
        return _weighted(weights, columns, stored, np.repeat(lengths, lengths))

    def _of_entity(self, entity: int, before: int | None = None) -> Rows:
        """Return the edges of an entity: (n, 9)."""
        rows = self.edges.table[self.edges.start[entity] : self.edges.start[entity + 1]]
        return rows if before is None else rows[rows[:, TIME] < before]

    def _of_predicate(self, slot: str, r: int, before: int | None = None) -> Counts:
        """Return the counts of a slot's ids among the edges of predicate r, or of all predicates for −1."""
        column, size = (TARGET, self.sizes["entity"]) if slot == "o" else (PREDICATE, self.sizes["predicate"])
        if before is not None:
            rows = self._by_time(r)
            return _counts(rows[: np.searchsorted(rows[:, TIME], before), column], size)
        if (slot, r) not in self._counts_cached:
            rows = self._of_edges(r)
            found = _covered(rows, self.sizes["time"]) if slot == "t" else _counts(rows[:, column], size)
            self._counts_cached[slot, r] = found
        return self._counts_cached[slot, r]

    def _by_time(self, r: int) -> Rows:
        """Return the edges of predicate r, or the stored direction of all for −1, in the order of time: (n, 9)."""
        if r not in self._rows_cached:
            rows = self._of_edges(r)
            self._rows_cached[r] = rows[np.argsort(rows[:, TIME], kind="stable")]
        return self._rows_cached[r]

    def _of_edges(self, r: int) -> Rows:
        """Return the edges of predicate r, or the stored direction of all for −1: (n, 9)."""
        predicates = self.edges.table[:, PREDICATE]
        return self.edges.table[predicates == r if r >= 0 else predicates < self.sizes["predicate"]]


def _counts(ids: npt.NDArray[np.int32], size: int) -> Counts:
    return np.bincount(ids, minlength=size), len(ids)


def _covered(rows: Rows, times: int) -> Counts:
    """Return how many edges cover each time (T,), and the sum over all times."""
    begun, ended = (np.bincount(ids, minlength=times + 1) for ids in (rows[:, TIME], rows[:, END] + 1))
    counts = np.cumsum(begun - ended)[:times]
    return counts, int(counts.sum())


def _hold(rows: Rows, t: int) -> npt.NDArray[np.bool_]:
    """Return which edges cover a time: (n,)."""
    return (rows[:, TIME] <= t) & (t <= rows[:, END])


def _weighted(
    weights: Floats, columns: list[Counts], stored: Rows | Ints | slice = NONE, removed: Ints | int = 1
) -> Floats:
    """Return w_0 / N + Σ_c w_c count_c / total_c: (N,).

    Stored candidates count one less, of a total that is less by `removed`, one number for all or one each.
    """
    size = len(columns[0][0])
    out = np.full(size, weights[0] / size, dtype=np.float32)
    for weight, (counts, total) in zip(weights[1:], columns, strict=True):
        shares = counts / max(1, total)
        shares[stored] = (counts[stored] - 1) / np.maximum(1, total - removed)
        out += weight * shares
    return out
