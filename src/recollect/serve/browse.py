"""Browse the stored facts of a graph: completion of labels, facts around an entity, what began and ended."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from recollect.graph.facts import EpisodicGraph
from recollect.graph.runs import Runs, split_runs

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
SCANNED = 2_000  # labels that contain a text and are compared by number of facts
NEVER = 1 << 62  # the last time of a run without an end
_END = "\0"  # of a label


class LabelIndex:
    """Finds the labels that begin with a text, and those that contain it, whatever their upper case.

    >>> LabelIndex(["Syria", "Turkey", "North Turkistan", "Turin"], np.array([3, 1, 5, 2])).find("tur", 3)
    [3, 1, 2]
    """

    def __init__(self, labels: Sequence[str], facts: Ints) -> None:
        """`facts` (n,) is the number of facts of each label."""
        folded = [label.casefold().replace(_END, " ") for label in labels]
        order = sorted(range(len(labels)), key=folded.__getitem__)
        self._facts, self._order = facts, np.array(order, dtype=np.int64)
        self._sorted = [folded[i] for i in order]
        lengths = np.fromiter(map(len, self._sorted), dtype=np.int64, count=len(labels)) + 1
        self._starts = lengths.cumsum() - lengths  # of each sorted label in the text
        self._text = _END.join([*self._sorted, ""])

    def find(self, text: str, count: int) -> list[int]:
        """Return the ids of at most `count` labels: those that begin with the text first, each by number of facts."""
        wanted = text.casefold()
        first = bisect_left(self._sorted, wanted)
        last = bisect_left(self._sorted, True, lo=first, key=lambda label: not label.startswith(wanted))
        found = self._by_facts(np.arange(first, last), count)
        if wanted and len(found) < count:
            others = np.fromiter(self._containing(wanted, first, last), dtype=np.int64)
            found += self._by_facts(others, count - len(found))
        return found

    def _containing(self, wanted: str, first: int, last: int) -> Iterator[int]:
        """Yield the places of at most SCANNED labels that contain a text, without those from `first` to `last`."""
        at, scanned = self._text.find(wanted), 0
        while at >= 0 and scanned < SCANNED:
            place = int(np.searchsorted(self._starts, at, side="right")) - 1
            is_prefix = first <= place < last
            if not is_prefix:
                yield place
                scanned += 1
            following = last if is_prefix else place + 1
            if following == len(self._sorted):
                return
            at = self._text.find(wanted, int(self._starts[following]))

    def _by_facts(self, places: Ints, count: int) -> list[int]:
        """Return the ids at places of the sorted labels, those with most facts first."""
        ids = self._order[places]
        return ids[np.argsort(-self._facts[ids], kind="stable")][:count].tolist()


@dataclass(frozen=True, eq=False)
class Selection:
    """Some stored runs: their numbers, the first to be shown first, and how many more there are."""

    runs: Ints
    left_out: int = 0


class StoreView:
    """The stored runs of a graph, by entity and by time."""

    def __init__(self, graph: EpisodicGraph, runs: Runs, *, has_times: bool) -> None:
        self.graph, self.has_times = graph, has_times
        self.s, self.p, self.o, self.first = (runs.first.column(slot).numpy() for slot in "spot")
        self.last = np.where(runs.goes_on.numpy(), NEVER, runs.last.numpy())

    @cached_property
    def entity_facts(self) -> Ints:
        """The number of stored facts of each entity, intervals counted once: (N,)."""
        facts, size = split_runs(self.graph)["train"].true().first, len(self.graph.entities)
        as_subject = np.bincount(facts.s.numpy(), minlength=size)
        return as_subject + np.bincount(facts.o.numpy(), minlength=size)

    @cached_property
    def predicate_facts(self) -> Ints:
        """The number of stored facts of each predicate: (P,)."""
        facts = split_runs(self.graph)["train"].true().first
        return np.bincount(facts.p.numpy(), minlength=len(self.graph.predicates))

    @cached_property
    def entities(self) -> LabelIndex:
        """The index of entities by label."""
        return LabelIndex(self.graph.entities.labels, self.entity_facts)

    @cached_property
    def predicates(self) -> LabelIndex:
        """The index of predicates by label."""
        return LabelIndex(self.graph.predicates.labels, self.predicate_facts)

    @cached_property
    def _by_entity(self) -> tuple[Ints, Ints]:
        """The runs sorted by entity, each under its subject and its object, and where each entity begins: (N + 1,)."""
        entity = np.concatenate([self.s, self.o])
        order = np.argsort(entity, kind="stable")
        starts = np.searchsorted(entity[order], np.arange(len(self.graph.entities) + 1))
        return order % max(1, len(self.s)), starts

    def of_entities(self, entities: Ints) -> Ints:
        """Return the runs that have one of some entities as subject or object, each once."""
        order, starts = self._by_entity
        parts = [order[starts[entity] : starts[entity + 1]] for entity in entities.tolist()]
        return np.unique(np.concatenate([np.empty(0, dtype=np.int64), *parts]))

    def holds(self, runs: Ints, time: int) -> Mask:
        """Return whether each run holds at a time; everything does in a semantic memory: (n,)."""
        if not self.has_times:
            return np.ones(len(runs), dtype=bool)
        return (self.first[runs] <= time) & (self.last[runs] >= time)

    def at(self, time: int, entity: int | None, depth: int, count: int) -> Selection:
        """Return at most `count` runs that hold at a time, within `depth` steps of an entity; the newest first."""
        if entity is None:
            return self._newest(np.arange(len(self.s)), time, count)
        chosen, reached, left_out = np.empty(0, dtype=np.int64), np.array([entity]), 0
        for _ in range(depth):
            found = np.setdiff1d(self.of_entities(reached), chosen)
            selection = self._newest(found, time, count - len(chosen))
            chosen, left_out = np.concatenate([chosen, selection.runs]), left_out + selection.left_out
            reached = np.unique(np.concatenate([self.s[chosen], self.o[chosen]]))
        return Selection(chosen, left_out)

    def ended(self, time: int, entity: int | None, count: int) -> Selection:
        """Return at most `count` runs that ended before a time and of triples that do not hold; the latest first."""
        runs = self._all(entity)
        past = runs[self.last[runs] < time] if self.has_times else runs[:0]
        held = runs[self.holds(runs, time)]
        past = past[~np.isin(self._triples(past), self._triples(held))]
        return self._latest(past, self.last[past], count)

    def began_between(self, since: int, until: int, entity: int | None, count: int) -> Selection:
        """Return at most `count` runs whose first time is after `since` and at most `until`; the newest first."""
        runs = self._all(entity)
        runs = runs[(self.first[runs] > since) & (self.first[runs] <= until)]
        return self._latest(runs, self.first[runs], count)

    def ended_between(self, since: int, until: int, entity: int | None, count: int) -> Selection:
        """Return at most `count` runs that still held at `since` or later and no more at `until`; the latest first."""
        runs = self._all(entity)
        runs = runs[(self.last[runs] >= since) & (self.last[runs] < until)]
        return self._latest(runs, self.last[runs], count)

    def _all(self, entity: int | None) -> Ints:
        return np.arange(len(self.s)) if entity is None else self.of_entities(np.array([entity]))

    def _newest(self, runs: Ints, time: int, count: int) -> Selection:
        held = runs[self.holds(runs, time)]
        return self._latest(held, self.first[held], count)

    def _latest(self, runs: Ints, times: Ints, count: int) -> Selection:
        """Return the `count` runs with the latest of their times (n,)."""
        order = np.argsort(-times, kind="stable")[:count]
        return Selection(runs[order], max(0, len(runs) - count))

    def _triples(self, runs: Ints) -> Ints:
        """Return the triple of each run as one number: (n,)."""
        sizes = self.graph.sizes
        return (self.s[runs] * sizes["predicate"] + self.p[runs]) * sizes["entity"] + self.o[runs]
