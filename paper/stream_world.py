"""A graph in time order: base facts, old ones that are never learned, then days whose facts are learned in part."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from recollect import EpisodicGraph, Facts, UserError
from recollect.graph.vocabulary import Vocabulary

LEARNED_PERCENT = 80  # of the facts of a day, by a hash of their labels


@dataclass(frozen=True, eq=False)
class Day:
    """The facts of one time: what is learned of it, and what is only asked."""

    time: int
    learned: Facts
    withheld: Facts

    @cached_property
    def facts(self) -> Facts:
        """All facts of the day."""
        return Facts.concat([self.learned, self.withheld])


@dataclass(frozen=True, eq=False)
class Stream:
    """Facts in time order. Labels are numbered by first occurrence, so that those of any moment are the first ids."""

    graph: EpisodicGraph  # all labels and times, without splits
    base: Facts  # of the times before the first day
    old: Facts  # of the same times, never learned
    days: tuple[Day, ...]

    @cached_property
    def facts(self) -> Facts:
        """All facts, of which questions leave out the other answers."""
        return Facts.concat([self.base, self.old, *(day.facts for day in self.days)])

    def sizes(self, count: int) -> dict[str, int]:
        """Return the number of labels and times after so many days, with those that were only asked about."""
        parts = [self.base, *(day.facts for day in self.days[:count])]
        ids = torch.cat([part.ids for part in parts])
        entities, predicates = int(ids[:, [0, 2]].max()) + 1, int(ids[:, 1].max()) + 1
        return {"entity": entities, "predicate": predicates, "time": self.first_time + count}

    @property
    def first_time(self) -> int:
        """The time of the first day."""
        return self.days[0].time

    def learned(self, count: int) -> Facts:
        """Return the facts that are learned after so many days."""
        return Facts.concat([self.base, *(day.learned for day in self.days[:count])])

    def graph_of(self, count: int) -> EpisodicGraph:
        """Return the graph that is learned after so many days, with the labels asked about so far."""
        sizes = self.sizes(count)
        return replace(
            self.graph,
            entities=_first(self.graph.entities, sizes["entity"]),
            predicates=_first(self.graph.predicates, sizes["predicate"]),
            times=replace(self.graph.times, size=sizes["time"]),
            splits={"train": self.learned(count)},
        )


def _first(vocabulary: Vocabulary, size: int) -> Vocabulary:
    return replace(vocabulary, labels=vocabulary.labels[:size])


def read_stream(graph: EpisodicGraph, *, days: int, old: int, skip: int = 0) -> Stream:
    """Return the last `days` times of a graph as a stream, after leaving out its last `skip` times.

    `old` earlier facts are withheld: those with the lowest hashes whose labels all have other earlier facts.
    """
    facts, end = graph.facts.true(), len(graph.times) - skip
    first = end - days
    if first < 1:
        raise UserError(f"{graph.name} has {len(graph.times)} times; wanted more than {days + skip}")
    facts = facts[facts.t < end]
    hashes = hash_facts(graph, facts)
    facts, hashes = facts[hashes.argsort()], hashes.sort().values
    before, after = facts[facts.t < first], facts[facts.t >= first]
    is_old = _removable(before, graph.sizes, old)
    base, asked = before[~is_old], before[is_old]
    ids = _ids_by_occurrence(base, after)
    renamed = replace(
        graph,
        entities=replace(graph.entities, labels=tuple(graph.entities.labels[i] for i in ids[0].tolist())),
        predicates=replace(graph.predicates, labels=tuple(graph.predicates.labels[i] for i in ids[1].tolist())),
        times=replace(graph.times, size=end),
        splits={},
    )
    base, asked, after = (_renumber(part, ids, graph.sizes) for part in (base, asked, after))
    is_learned = hashes[facts.t >= first] % 100 < LEARNED_PERCENT
    parts = []
    for time in range(first, end):
        today = after.t == time
        parts.append(Day(time, after[today & is_learned], after[today & ~is_learned]))
    return Stream(renamed, base, asked, tuple(parts))


def hash_facts(graph: EpisodicGraph, facts: Facts) -> Tensor:
    """Return a hash of the labels of each fact, from 0 to 2⁶² − 1: (n,)."""
    rows = graph.table(facts).iter_rows()
    digests = (hashlib.blake2b("\t".join(row).encode(), digest_size=8).digest() for row in rows)
    return torch.tensor([int.from_bytes(digest) >> 2 for digest in digests], dtype=torch.int64)


def _removable(facts: Facts, sizes: dict[str, int], count: int) -> Tensor:
    """Return the first `count` facts whose labels all occur in facts that stay: (n,) bool."""
    entities = torch.bincount(facts.ids[:, [0, 2]].flatten(), minlength=sizes["entity"]).tolist()
    predicates = torch.bincount(facts.p, minlength=sizes["predicate"]).tolist()
    chosen = torch.zeros(len(facts), dtype=torch.bool)
    for number, (s, p, o, _) in enumerate(facts.ids.tolist()):
        if count == 0:
            break
        enough = entities[s] > 1 and entities[o] > 1 and (s != o or entities[s] > 2)
        if enough and predicates[p] > 1:
            chosen[number] = True
            count -= 1
            entities[s], entities[o], predicates[p] = entities[s] - 1, entities[o] - 1, predicates[p] - 1
    return chosen


def _ids_by_occurrence(base: Facts, after: Facts) -> tuple[Tensor, Tensor]:
    """Return the ids of entities and of predicates: those of the base ascending, then others by first time."""
    found = []
    for columns in ([0, 2], [1]):
        known = base.ids[:, columns].unique()
        parts = [known]
        for day in _by_time(after):
            fresh = day.ids[:, columns].unique()
            parts.append(fresh[~torch.isin(fresh, torch.cat(parts))])
        found.append(torch.cat(parts))
    return found[0], found[1]


def _by_time(facts: Facts) -> Iterator[Facts]:
    for time in facts.t.unique().tolist():
        yield facts[facts.t == time]


def _renumber(facts: Facts, ids: tuple[Tensor, Tensor], sizes: dict[str, int]) -> Facts:
    """Return facts with the position of each id among `ids` instead."""
    places = []
    for kind, order in zip(("entity", "predicate"), ids, strict=True):
        place = torch.full((sizes[kind],), -1)
        place[order] = torch.arange(len(order))
        places.append(place)
    return Facts.from_columns(places[0][facts.s], places[1][facts.p], places[0][facts.o], facts.t)
