"""Random histories of remember, forget and questions, against a plain list of events.

`RECOLLECT_HISTORIES=10000 pytest -m long tests/memory/test_histories.py` runs as many histories of each kind.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from recollect import Memory, UserError, load, read

FIRST, LAST = 2000, 2012  # years that are used; those of the base are in between
BASE = [
    ("a", "p", "b", 2003, 2004),
    ("b", "p", "c", 2004, 2007),
    ("a", "q", "c", 2005, 2005),
    ("c", "q", "c", 2003, 2003),
]
ENTITIES, PREDICATES = ("a", "b", "c", "x", "y"), ("p", "q", "r")
Cell = tuple[str, str, str, int]

years = st.integers(FIRST, LAST - 1)
triples = st.tuples(st.sampled_from(ENTITIES), st.sampled_from(PREDICATES), st.sampled_from(ENTITIES))


@cache
def learned(kind: str) -> Memory:
    """Return a memory of single years or of intervals, of which one has no end."""
    if kind == "points":
        rows = [(s, p, o, str(year)) for s, p, o, first, last in BASE for year in range(first, last + 1)]
        table = pl.DataFrame(rows, schema=["subject", "predicate", "object", "time"], orient="row")
        return Memory.learn(read(table, grain="year"), model="history")
    rows = [(s, p, o, str(first), None if last == 2007 else str(last)) for s, p, o, first, last in BASE]
    table = pl.DataFrame(rows, schema=["subject", "predicate", "object", "start", "end"], orient="row")
    rows.append(("a", "p", "b", "2006", "2007"))
    table = pl.DataFrame(rows, schema=["subject", "predicate", "object", "start", "end"], orient="row")
    return Memory.learn(read(table, grain="year", inclusive_end=True), model="history")


@dataclass
class Happened:
    """One event of the oracle: cells that are added or removed, or an entity that is erased."""

    known_at: datetime
    added: set[Cell] = field(default_factory=set)
    removed: set[Cell] = field(default_factory=set)
    erased: str | None = None


def cells(triple: tuple[str, str, str], first: int, last: int | None) -> set[Cell]:
    """Return the years of an interval; one without an end lasts as long as the oracle looks."""
    return {(*triple, year) for year in range(first, (LAST if last is None else last) + 1)}


def replay(events: list[Happened], until: datetime | None) -> set[Cell]:
    """Return what was stored at a moment, without the entities that were erased later."""
    store: set[Cell] = set()
    for number, event in enumerate(events):
        if until is None or event.known_at <= until:
            store = (store - event.removed) | event.added
        if event.erased is not None:
            store = {cell for cell in store if event.erased not in (cell[0], cell[2])}
            assert number
    return store


class Histories(RuleBasedStateMachine):
    """Remember, forget and ask; the memory on disk is asked by a second reader."""

    kind = "points"
    on_disk = False

    @initialize()
    def begin(self) -> None:
        base = learned(self.kind)
        self.folder = Path(tempfile.mkdtemp()) if self.on_disk else None
        if self.folder is not None:
            base.save(self.folder / "m")
            self.memory, self.reader = load(self.folder / "m"), load(self.folder / "m")
        else:
            self.memory = self.reader = Memory.of(base._at().learned)
        stored = {cell for s, p, o, first, last in BASE for cell in cells((s, p, o), first, last)}
        if self.kind == "runs":
            stored |= cells(("b", "p", "c"), 2004, None) | cells(("a", "p", "b"), 2006, 2007)
        self.events = [Happened(datetime(1970, 1, 2, tzinfo=UTC), added=stored)]
        self.reach = (2003, 2007)

    def teardown(self) -> None:
        if getattr(self, "folder", None) is not None:
            shutil.rmtree(self.folder)

    def interval(self, first: int, length: int | None) -> tuple[int, int | None]:
        if length is None:
            return (first, None) if self.kind == "runs" else (first, first)
        return first, min(first + length, LAST - 1)

    def record(self, table: pl.DataFrame, happened: Happened | None) -> None:
        """Note an event, which the memory must have made if it changes anything."""
        if happened is None:
            assert table.is_empty()
            return
        assert table["event"].unique().len() == 1
        happened.known_at = table["known_at"][0]
        assert happened.known_at > self.events[-1].known_at
        self.events.append(happened)

    @rule(facts=st.lists(st.tuples(triples, years, st.one_of(st.none(), st.integers(0, 3))), min_size=1, max_size=4))
    def remember(self, facts: list[tuple[tuple[str, str, str], int, int | None]]) -> None:
        rows = [(*triple, *self.interval(first, length)) for triple, first, length in facts]
        if self.kind == "points":
            asked = [
                (s, p, o, f"{year}") for s, p, o, first, last in rows for year in range(first, (last or first) + 1)
            ]
        else:
            asked = [(s, p, o, str(first), None if last is None else str(last)) for s, p, o, first, last in rows]
        wanted = {cell for s, p, o, first, last in rows for cell in cells((s, p, o), first, last)}
        new = wanted - replay(self.events, None)
        table = self.memory.remember(asked, inclusive_end=True)
        self.record(table, Happened(datetime.now(UTC), added=new) if new else None)
        if new:
            ends = [year for *_, year in new if year < LAST] + [first for *_, first, last in rows if last is None]
            self.reach = (min(self.reach[0], *(year for *_, year in new)), max(self.reach[1], *ends, *self.reach))

    @rule(triple=triples, mask=st.integers(1, 7), first=years, length=st.one_of(st.none(), st.integers(0, 4)))
    def forget(self, triple: tuple[str, str, str], mask: int, first: int, length: int | None) -> None:
        given = {name: triple[i] for i, name in enumerate(("subject", "predicate", "object")) if mask >> i & 1}
        last = None if length is None else min(first + length, LAST - 1)
        table = self.memory.forget(**given, time=f"{first}..{'' if last is None else last}")
        end = LAST if last is None else last
        gone = {
            cell
            for cell in replay(self.events, None)
            if first <= cell[3] <= end and all(not mask >> i & 1 or cell[i] == triple[i] for i in range(3))
        }
        self.record(table, Happened(datetime.now(UTC), removed=gone) if gone else None)

    @rule(entity=st.sampled_from(ENTITIES))
    def erase(self, entity: str) -> None:
        is_known = entity in self.memory.graph.entities.labels
        assert is_known or not any(entity in (cell[0], cell[2]) for cell in replay(self.events, None))
        table = self.memory.forget(entity=entity)
        self.record(table, Happened(datetime.now(UTC), erased=entity) if is_known else None)

    @rule(data=st.data(), year=years)
    def ask(self, data: st.DataObject, year: int) -> None:
        """What holds at a time, by `know` and by `recall` of each slot, now or at an earlier moment."""
        if not self.reach[0] <= year <= self.reach[1]:
            return
        moment = data.draw(st.sampled_from([None, *(event.known_at for event in self.events)]))
        held = {cell[:3] for cell in replay(self.events, moment) if cell[3] == year}
        try:
            found = self.reader.know(as_of=str(year), include="stored", top=1000, known_at=moment)
        except UserError as error:
            assert "not on this axis" in str(error)  # what extended it was remembered later
            assert not held
            return
        assert set(found.select("subject", "predicate", "object").rows()) == held
        triple = data.draw(triples)
        slot = data.draw(st.sampled_from(["subject", "predicate", "object"]))
        names = ("subject", "predicate", "object")
        given = {name: label for name, label in zip(names, triple, strict=True) if name != slot}
        try:
            found = self.reader.recall(**given, time=str(year), include="stored", top=1000, known_at=moment)
        except UserError as error:
            assert "unknown" in str(error)
            assert not any(set(given.values()) <= set(cell) for cell in held)
            return
        position = names.index(slot)
        others = [i for i in range(3) if i != position]
        expected = {cell[position] for cell in held if all(cell[i] == triple[i] for i in others)}
        assert set(found[slot].to_list()) == expected

    @precondition(lambda self: len(self.events) > 1)
    @rule()
    def list_changes(self) -> None:
        table = self.reader.changes()
        assert table["known_at"].is_sorted()
        assert table["event"].unique().to_list() == sorted(table["event"].unique().to_list())


HISTORIES = int(os.environ.get("RECOLLECT_HISTORIES", "200"))


def run(kind: str, on_disk: bool, histories: int) -> None:
    machine = type("Machine", (Histories,), {"kind": kind, "on_disk": on_disk})
    chosen = settings(
        max_examples=histories, stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck)
    )
    run_state_machine_as_test(machine, settings=chosen)


@pytest.mark.parametrize("kind", ["points", "runs"])
def test_answers_of_random_histories_are_those_of_a_list_of_events(kind):
    run(kind, False, 15)


@pytest.mark.long
@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize("kind", ["points", "runs"])
def test_answers_of_many_random_histories_are_those_of_a_list_of_events(kind, on_disk):
    run(kind, on_disk, HISTORIES)
