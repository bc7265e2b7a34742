"""Popularity of candidates: their shares of the stored facts, the part of λ that needs no evidence of the pair.

Columns of shares by asked slot, each with sum 1 over its candidates:

    o    uniform; among the targets of the predicate
    p    uniform; among all facts; among the facts of the subject; among those of the object
    t    uniform; among all facts; among the facts of the predicate; of the subject; of the object
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from recollect.history.bins import Ints
from recollect.history.edges import PREDICATE, TARGET, TIME, Edges, Floats

COLUMNS = {"o": 2, "p": 4, "t": 5}  # columns of shares by asked slot
Counts = tuple[Ints, int]  # how often each candidate occurs (N,), and the sum over all candidates


def left_out_shares(edges: Edges, slot: str, sizes: Mapping[str, int]) -> Floats:
    """Return the shares of each edge's own id of the asked slot, without the edge itself: (2n, columns)."""
    u, r, v, t = edges.source, edges.column(PREDICATE), edges.column(TARGET), edges.column(TIME)
    direction = r // max(1, sizes["predicate"])
    given, value, size = {
        "o": ([r], v, sizes["entity"]),
        "p": ([direction, u, v], r, sizes["predicate"]),
        "t": ([direction, r, u, v], t, sizes["time"]),
    }[slot]
    columns = [np.full(len(r), 1 / size), *(_left_out_share(each, value) for each in given)]
    return np.stack(columns, axis=1).astype(np.float32)


def _left_out_share(given: Ints, value: Ints) -> npt.NDArray[np.float64]:
    """Return (count of (given, value) − 1) / (count of given − 1) of each row: (n,)."""
    _, group, totals = np.unique(given, return_inverse=True, return_counts=True)
    codes = group * (int(value.max(initial=0)) + 1) + value
    _, pair, counts = np.unique(codes, return_inverse=True, return_counts=True)
    return (counts[pair] - 1) / np.maximum(totals[group] - 1, 1)


class Popularity:
    """Weighted shares of all candidates of a query."""

    def __init__(self, edges: Edges, sizes: Mapping[str, int]) -> None:
        self.edges, self.sizes = edges, sizes
        self._cached: dict[tuple[str, int], Counts] = {}

    def entities(self, weights: Floats, r: int, stored: Ints) -> Floats:
        """Return Σ_c w_c share_c of each entity as the target of r: (E,); stored answers are left out of their own."""
        return _weighted(weights, [self._of_predicate("o", r)], stored)

    def predicates(self, weights: Floats, s: int, o: int, stored: Ints) -> Floats:
        """Return the same of each predicate between two entities: (P,)."""
        count = self.sizes["predicate"]
        of_subject, of_object = self._rows(s)[:, PREDICATE], self._rows(o)[:, PREDICATE] - count
        as_object = np.bincount(of_object[of_object >= 0], minlength=count)
        columns = [
            self._of_predicate("p", -1),
            (np.bincount(of_subject, minlength=2 * count)[:count], len(of_subject)),
            (as_object, len(of_object)),
        ]
        return _weighted(weights, columns, stored)

    def times(self, weights: Floats, s: int, p: int, o: int, stored: Ints) -> Floats:
        """Return the same of each time of a triple: (T,)."""
        columns = [self._of_predicate("t", -1), self._of_predicate("t", p)]
        for entity in (s, o):
            times = self._rows(entity)[:, TIME]
            columns.append((np.bincount(times, minlength=self.sizes["time"]), len(times)))
        return _weighted(weights, columns, stored)

    def _rows(self, entity: int) -> npt.NDArray[np.int32]:
        return self.edges.table[self.edges.start[entity] : self.edges.start[entity + 1]]

    def _of_predicate(self, slot: str, r: int) -> Counts:
        """Return the counts of a slot's ids among the edges of predicate r, or of all predicates for −1."""
        if (slot, r) not in self._cached:
            predicate = self.edges.table[:, PREDICATE]
            chosen = predicate == r if r >= 0 else predicate < self.sizes["predicate"]
            column, kind = {"o": (TARGET, "entity"), "p": (PREDICATE, "predicate"), "t": (TIME, "time")}[slot]
            ids = self.edges.table[chosen, column]
            self._cached[slot, r] = np.bincount(ids, minlength=self.sizes[kind]), len(ids)
        return self._cached[slot, r]


def _weighted(weights: Floats, columns: list[Counts], stored: Ints) -> Floats:
    """Return w_0 / N + Σ_c w_c count_c / total_c: (N,); for stored candidates with one fact less."""
    size = len(columns[0][0])
    out = np.full(size, weights[0] / size, dtype=np.float32)
    for weight, (counts, total) in zip(weights[1:], columns, strict=True):
        out += weight / max(1, total) * counts
        out[stored] += weight * ((counts[stored] - 1) / max(1, total - 1) - counts[stored] / max(1, total))
    return out
