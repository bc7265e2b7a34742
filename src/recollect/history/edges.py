"""Stored facts and runs as directed edges, indexed by source entity and by pair of entities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from recollect.graph.facts import Facts, distinct
from recollect.graph.replacing import splice
from recollect.graph.runs import Runs, merge_runs
from recollect.history.bins import Bins, Ints

FAR = 2**30  # a time that no axis reaches
MAX_CLASSES = 256  # predicates with a kernel of their own; rarer ones share the last
TARGET, PREDICATE, CLASS, TIME, END, EARLIER, LATER, PAST_RUN, FUTURE_RUN = range(9)  # columns of the table of edges

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Edges:
    """The edges (u, r, v, first, last) of n stored runs in both directions, sorted by (u, v, r, first).

    A fact is a run of one time. Run (s, p, o, first, last) gives the edges (s, p, o, first, last) and
    (o, p + P, s, first, last): r is a predicate or an inverse. Columns of the table: target v, predicate r, its class,
    first and last time; the first time of the previous edge with the same (u, r, v) and the last time of the next one,
    or its first where only the past is read; the bins of the edge where it is the closest past one, or future one, at
    lag 1.
    """

    start: Ints  # (E + 1,): edges of source u are start[u] … start[u + 1] − 1
    table: npt.NDArray[np.int32]  # (2n, 9)
    predicates: int  # P

    def column(self, number: int) -> Ints:
        """Return one column of the table: (2n,)."""
        return self.table[:, number].astype(np.int64)

    @cached_property
    def source(self) -> Ints:
        """The source of each edge: (2n,)."""
        return np.repeat(np.arange(len(self.start) - 1), np.diff(self.start))

    @cached_property
    def pairs(self) -> Ints:
        """The edges of the same (u, v) as edge e are pairs[e, 0] … pairs[e, 1] − 1: (2n, 2)."""
        return _block_bounds(self.pair_codes[1:] == self.pair_codes[:-1], len(self.table))

    @cached_property
    def pair_codes(self) -> Ints:
        """u · E + v of each edge, sorted: (2n,)."""
        return self.source * (len(self.start) - 1) + self.column(TARGET)

    def pair_ranges(self, u: Ints, v: Ints) -> tuple[Ints, Ints]:
        """Return the first edge from u to v and the one after the last: (B,), (B,)."""
        wanted = u * (len(self.start) - 1) + v
        return np.searchsorted(self.pair_codes, wanted), np.searchsorted(self.pair_codes, wanted, side="right")

    @cached_property
    def mirror(self) -> Ints:
        """The edge that is the same fact, for facts from an entity to itself; −1 for all others: (2n,)."""
        found = np.full(len(self.table), -1)
        loops = np.flatnonzero(self.source == self.column(TARGET))
        predicate, time = self.column(PREDICATE)[loops], self.column(TIME)[loops]
        order = np.lexsort((predicate, time, predicate % self.predicates, self.source[loops]))
        first, second = loops[order[0::2]], loops[order[1::2]]  # a fact and its inverse are neighbours in this order
        found[first], found[second] = second, first
        return found

    @cached_property
    def lengths(self) -> Ints:
        """The number of times of each edge: (2n,)."""
        return self.column(END) - self.column(TIME) + 1

    @cached_property
    def has_runs(self) -> bool:
        """Whether an edge covers more than one time."""
        return bool((self.lengths > 1).any())

    @cached_property
    def _by_source_and_predicate(self) -> tuple[Ints, Ints]:
        """(u, r, first) and (u, r, last) of each edge as numbers, each sorted: (2n,), (2n,)."""
        code = self._source_and_predicate
        return np.sort(code + self.column(TIME)), np.sort(code + self.column(END))

    @cached_property
    def _source_and_predicate(self) -> Ints:
        """(u, r) of each edge as a number that leaves room for a time: (2n,)."""
        return (self.source * (2 * self.predicates) + self.column(PREDICATE)) * self._width

    @cached_property
    def _width(self) -> int:
        return int(self.column(END).max(initial=0)) + 1

    def twins(self, edges: Ints, t: Ints, *, past: bool = False) -> Ints:
        """Return the number of edges with the same (u, r) as each of `edges` that hold at time t, itself included.

        With `past`, those that begin then: what began before is past.
        """
        first, last = self._by_source_and_predicate
        wanted = self._source_and_predicate[edges] + t
        if past:
            return np.searchsorted(first, wanted, side="right") - np.searchsorted(first, wanted)
        return count_covering(first, last, wanted)

    def mirrors_of_twins(self, edges: Ints, t: Ints, *, past: bool = False) -> Ints:
        """Return the mirror of the edge with the same (u, r) that leads from u to itself at time t; −1: none.

        With `past`, of one that begins then.
        """
        loops = np.flatnonzero(self.mirror >= 0)
        if not len(loops):
            return np.full(len(edges), -1)
        code = self._source_and_predicate[loops] + self.column(TIME)[loops]
        loops, wanted = loops[np.argsort(code)], self._source_and_predicate[edges] + t
        found = loops[np.maximum(np.searchsorted(np.sort(code), wanted, side="right") - 1, 0)]
        is_same = self._source_and_predicate[found] == self._source_and_predicate[edges]
        first, last = self.column(TIME)[found], self.column(END)[found]
        holds = (first == t) if past else (first <= t) & (last >= t)
        return np.where(is_same & holds, self.mirror[found], -1)


def count_covering(first: Ints, last: Ints, wanted: Ints) -> Ints:
    """Return how many ranges hold each wanted number, given their first and last numbers, each sorted: (n,)."""
    order = np.argsort(wanted)  # searching in order is several times as fast
    found = np.searchsorted(first, wanted[order], side="right") - np.searchsorted(last, wanted[order])
    counts = np.empty_like(found)
    counts[order] = found
    return counts


def build_edges(
    stored: Facts | Runs, sizes: Mapping[str, int], classes: Ints, bins: Bins, *, past: bool = False
) -> Edges:
    """Return the edges of the true facts or runs; `classes` (2P,) are those of predicates and inverses.

    Equal facts count once, and runs of one triple that overlap or follow each other are one. With `past`, the next edge
    is nearer as soon as it has begun.
    """
    s, p, o, t, end = _distinct_runs(stored, sizes)
    source, target = np.concatenate([s, o]), np.concatenate([o, s])
    predicate = np.concatenate([p, p + sizes["predicate"]])
    first, last = np.concatenate([t, t]), np.concatenate([end, end])
    order = np.lexsort((first, predicate, target, source))
    source, target, predicate, first, last = (each[order] for each in (source, target, predicate, first, last))
    same_pair = (source[1:] == source[:-1]) & (target[1:] == target[:-1])
    same_triple = same_pair & (predicate[1:] == predicate[:-1])
    earlier, later = np.full(len(first), -FAR), np.full(len(first), FAR)
    earlier[1:][same_triple] = first[:-1][same_triple]
    later[:-1][same_triple] = (first if past else last)[1:][same_triple]
    continues = same_triple & (first[1:] == last[:-1] + 1)
    before, after = _run_lengths(first, last, continues)
    past_run, future_run = 1 + bins.run[before], 1 + bins.layout.side + bins.run[after]
    columns = [target, predicate, classes[predicate], first, last, earlier, later, past_run, future_run]
    start = np.searchsorted(source, np.arange(sizes["entity"] + 1))
    table = np.stack(columns, axis=1).astype(np.int32)
    return Edges(start, table, sizes["predicate"])


def change_edges(
    edges: Edges, triples: Facts, stored: Facts | Runs, sizes: Mapping[str, int], classes: Ints, bins: Bins
) -> Edges:
    """Return the edges after the facts of some triples have changed: `stored` are all of these triples, and only they.

    No other edge depends on them. There may be more entities and times, but each has the number that it had.
    """
    own = build_edges(stored, sizes, classes, bins)
    new = sizes["entity"] + 1 - len(edges.start)
    start = np.concatenate([edges.start, np.full(new, edges.start[-1])])
    codes = _triple_codes(triples, sizes)
    before, after = _triple_ranges(start, edges, codes), _triple_ranges(own.start, own, codes)
    counts = after[:, 1] - after[:, 0]
    table = splice(edges.table, own.table, before[:, 0].tolist(), before[:, 1].tolist(), counts.tolist())
    added = np.zeros(len(start), dtype=np.int64)
    np.add.at(added, codes[:, 0] + 1, counts - (before[:, 1] - before[:, 0]))
    return Edges(start + np.cumsum(added), table, edges.predicates)


def _triple_codes(triples: Facts, sizes: Mapping[str, int]) -> Ints:
    """Return source u and 2 P v + r of the distinct edges (u, r, v) of triples, in order: (m, 2)."""
    s, p, o = (triples.column(slot).numpy() for slot in "spo")
    width = 2 * sizes["predicate"]
    source, rest = np.concatenate([s, o]), np.concatenate([width * o + p, width * s + p + sizes["predicate"]])
    return np.unique(np.stack([source, rest], axis=1), axis=0)


def _triple_ranges(start: Ints, edges: Edges, codes: Ints) -> Ints:
    """Return the first edge of each (u, r, v) and the one after the last: (m, 2). Reads the edges of each u."""
    found = np.empty_like(codes)
    for number, (source, code) in enumerate(codes.tolist()):
        rows = edges.table[start[source] : start[source + 1]]
        keys = 2 * edges.predicates * rows[:, TARGET].astype(np.int64) + rows[:, PREDICATE]
        found[number] = start[source] + np.searchsorted(keys, [code, code + 1])
    return found


def _distinct_runs(stored: Facts | Runs, sizes: Mapping[str, int]) -> list[Ints]:
    """Return the columns s, p, o, first and last time of the distinct true facts or disjoint true runs."""
    if isinstance(stored, Runs):
        runs = merge_runs(stored.plain(), sizes)
    else:
        runs = Runs.of_points(distinct(stored.true(), sizes))
    return [*(runs.first.column(slot).numpy() for slot in "spot"), runs.last.numpy()]


def _run_lengths(first: Ints, last: Ints, continues: npt.NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """Return the number of consecutive times up to the end of each edge, and from its start on: (n,), (n,).

    `continues` says of all edges but the first whether they follow the one before without a gap.
    """
    position = np.arange(len(first))
    begins = np.maximum.accumulate(np.where(np.append(False, continues)[: len(first)], 0, position))
    ends = np.minimum.accumulate(np.where(np.append(continues, False)[: len(first)], len(first), position)[::-1])[::-1]
    return last - first[begins] + 1, last[ends] - first + 1


def _block_bounds(continues: npt.NDArray[np.bool_], count: int) -> Ints:
    """Return the start and the end of the block that each of `count` items is in: (count, 2).

    `continues` says of all items but the first whether they are in the block of the one before.
    """
    starts = np.flatnonzero(np.concatenate([[True], ~continues])) if count else np.empty(0, dtype=np.int64)
    lengths = np.diff(np.append(starts, count))
    return np.stack([np.repeat(starts, lengths), np.repeat(starts + lengths, lengths)], axis=1)


def predicate_classes(stored: Facts | Runs, predicates: int) -> Ints:
    """Return the class of every predicate and inverse, (2P,): the most frequent ones have their own, the rest share."""
    true = stored.true()
    facts = true.first if isinstance(true, Runs) else true
    counts = np.bincount(facts.p.numpy(), minlength=predicates)
    rank = np.empty(predicates, dtype=np.int64)
    rank[np.argsort(-counts, kind="stable")] = np.arange(predicates)
    classes = np.minimum(rank, MAX_CLASSES - 1)
    return np.concatenate([classes, classes + classes.max(initial=0) + 1])
