"""Stored facts as directed edges, indexed by source entity and by pair of entities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from recollect.graph.facts import Facts, distinct
from recollect.history.bins import SIDE, Bins, Ints

FAR = 2**30  # a time that no axis reaches
MAX_CLASSES = 256  # predicates with a kernel of their own; rarer ones share the last
TARGET, PREDICATE, CLASS, TIME, EARLIER, LATER, PAST_RUN, FUTURE_RUN = range(8)  # columns of the table of edges

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Edges:
    """The edges (u, r, v, t) of n stored facts in both directions, sorted by (u, v, r, t).

    Fact (s, p, o, t) gives the edges (s, p, o, t) and (o, p + P, s, t): r is a predicate or an inverse. Columns of the
    table: target v, predicate r, its class, time t; the times of the previous and the next edge with the same
    (u, r, v); the bins of the edge where it is the closest past one, or future one, at lag 1.
    """

    start: Ints  # (E + 1,): edges of source u are start[u] … start[u + 1] − 1
    table: npt.NDArray[np.int32]  # (2n, 8)
    predicates: int  # P
    pairs: Ints  # (2n, 2): the edges of the same (u, v) are pairs[e, 0] … pairs[e, 1] − 1

    def column(self, number: int) -> Ints:
        """Return one column of the table: (2n,)."""
        return self.table[:, number].astype(np.int64)

    @cached_property
    def source(self) -> Ints:
        """The source of each edge: (2n,)."""
        return np.repeat(np.arange(len(self.start) - 1), np.diff(self.start))

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
    def _twin_groups(self) -> Ints:
        """The number of each edge's group, those with the same (u, r, t): (2n,)."""
        predicate, time = self.column(PREDICATE), self.column(TIME)
        code = (self.source * (predicate.max(initial=0) + 1) + predicate) * (time.max(initial=0) + 1) + time
        return np.unique(code, return_inverse=True)[1].astype(np.int64)

    @cached_property
    def twins(self) -> Ints:
        """The number of edges with the same (u, r, t), the edge included: (2n,)."""
        return np.bincount(self._twin_groups)[self._twin_groups]

    @cached_property
    def mirror_of_twin(self) -> Ints:
        """The mirror of the edge with the same (u, r, t) that leads from u to itself; −1 if there is none: (2n,)."""
        found = np.full(len(self.table), -1)
        loops = np.flatnonzero(self.mirror >= 0)
        found[self._twin_groups[loops]] = self.mirror[loops]
        return found[self._twin_groups]


def build_edges(facts: Facts, sizes: Mapping[str, int], classes: Ints, bins: Bins) -> Edges:
    """Return the edges of the distinct true facts; `classes` (2P,) are those of predicates and inverses."""
    facts = distinct(facts.true(), sizes)
    s, p, o, t = (facts.column(slot).numpy() for slot in "spot")
    source, target = np.concatenate([s, o]), np.concatenate([o, s])
    predicate, time = np.concatenate([p, p + sizes["predicate"]]), np.concatenate([t, t])
    order = np.lexsort((time, predicate, target, source))
    source, target, predicate, time = source[order], target[order], predicate[order], time[order]
    same_pair = (source[1:] == source[:-1]) & (target[1:] == target[:-1])
    same_triple = same_pair & (predicate[1:] == predicate[:-1])
    earlier, later = np.full(len(time), -FAR), np.full(len(time), FAR)
    earlier[1:][same_triple] = time[:-1][same_triple]
    later[:-1][same_triple] = time[1:][same_triple]
    before, after = _run_lengths(earlier == time - 1, later == time + 1)
    past_run, future_run = 1 + bins.run[before], 1 + SIDE + bins.run[after]
    columns = [target, predicate, classes[predicate], time, earlier, later, past_run, future_run]
    start = np.searchsorted(source, np.arange(sizes["entity"] + 1))
    table = np.stack(columns, axis=1).astype(np.int32)
    return Edges(start, table, sizes["predicate"], _block_bounds(same_pair, len(time)))


def _run_lengths(follows: npt.NDArray[np.bool_], precedes: npt.NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """Return the number of consecutive times up to each edge, and from each edge on, itself included: (n,) each."""
    position = np.arange(len(follows))
    first = np.maximum.accumulate(np.where(follows, 0, position))
    last = np.minimum.accumulate(np.where(precedes, len(position), position)[::-1])[::-1]
    return position - first + 1, last - position + 1


def _block_bounds(continues: npt.NDArray[np.bool_], count: int) -> Ints:
    """Return the start and the end of the block that each of `count` items is in: (count, 2).

    `continues` says of all items but the first whether they are in the block of the one before.
    """
    starts = np.flatnonzero(np.concatenate([[True], ~continues])) if count else np.empty(0, dtype=np.int64)
    lengths = np.diff(np.append(starts, count))
    return np.stack([np.repeat(starts, lengths), np.repeat(starts + lengths, lengths)], axis=1)


def predicate_classes(facts: Facts, predicates: int) -> Ints:
    """Return the class of every predicate and inverse, (2P,): the most frequent ones have their own, the rest share."""
    counts = np.bincount(facts.true().p.numpy(), minlength=predicates)
    rank = np.empty(predicates, dtype=np.int64)
    rank[np.argsort(-counts, kind="stable")] = np.arange(predicates)
    classes = np.minimum(rank, MAX_CLASSES - 1)
    return np.concatenate([classes, classes + classes.max(initial=0) + 1])
