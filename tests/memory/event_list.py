"""A memory as a plain list of events: what was stored at a moment, and which labels there were."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

import polars as pl

from recollect import Memory

LAST = 2012  # a year after all that are used; an interval without an end lasts until then
Cell = tuple[str, str, str, int]
Labels = tuple[tuple[str, ...], ...]


@dataclass(kw_only=True)
class Happened:
    """One event: cells that are added or removed, or an entity that is erased."""

    number: int = 0
    known_at: datetime = datetime(1970, 1, 2, tzinfo=UTC)
    added: set[Cell] = field(default_factory=set)
    removed: set[Cell] = field(default_factory=set)
    erased: str | None = None
    labels: Labels = ()  # entities, predicates and times of the memory after it
    answers: dict[str, pl.DataFrame] = field(default_factory=dict)  # to some questions after it, by question
    generation: int = 0  # trainings before it: answers of others may differ


def cells(triple: tuple[str, str, str], first: int, last: int | None) -> set[Cell]:
    """Return the years of an interval."""
    return {(*triple, year) for year in range(first, (LAST if last is None else last) + 1)}


def labels_of(memory: Memory, known_at: datetime | None = None) -> Labels:
    """Return the entities, predicates and times of a memory."""
    graph = memory.snapshot(known_at).graph
    return tuple(graph.entities.labels), tuple(graph.predicates.labels), tuple(graph.times.labels)


@dataclass
class EventList:
    """The events of a memory in order; the first stands for what it learned."""

    events: list[Happened]

    def until(self, moment: datetime | None) -> Happened:
        """Return the last event until a moment."""
        return next(event for event in reversed(self.events) if moment is None or event.known_at <= moment)

    def erased_after(self, event: Happened) -> set[str | None]:
        """Return the entities that were erased after an event."""
        return {other.erased for other in self.events if other.known_at > event.known_at} - {None}

    def stored(self, moment: datetime | None = None) -> set[Cell]:
        """Return what was stored at a moment, without the entities that were erased later."""
        store: set[Cell] = set()
        for event in self.events:
            if moment is None or event.known_at <= moment:
                store = (store - event.removed) | event.added
            store = without(store, {event.erased})
        return store

    def labels(self, moment: datetime | None = None) -> Labels:
        """Return the labels that there were at a moment, without the entities that were erased later."""
        event = self.until(moment)
        (entities, *others), gone = event.labels, self.erased_after(event)
        return tuple(label for label in entities if label not in gone), *others

    def changes(self) -> dict[int, tuple[set[Cell], set[Cell]]]:
        """Return what each event added and removed, by its number, without the entities that were erased later."""
        found = {}
        for event in self.events:
            gone = self.erased_after(event)
            parts = without(event.added, gone), without(event.removed, gone)
            if any(parts):
                found[event.number] = parts
        return found


def without(store: set[Cell], entities: set[str | None]) -> set[Cell]:
    """Return the cells of other entities."""
    return {cell for cell in store if cell[0] not in entities and cell[2] not in entities}


def listed_changes(table: pl.DataFrame) -> dict[int, tuple[set[Cell], set[Cell]]]:
    """Return the cells that a table of changes lists, by event: added and removed."""
    found: dict[int, tuple[set[Cell], set[Cell]]] = {}
    for event, _, change, s, p, o, first, last in table.rows():
        if change != "erased":
            parts = found.setdefault(event, (set(), set()))
            parts[change == "removed"].update(cells((s, p, o), int(first), None if last is None else int(last)))
    return found
