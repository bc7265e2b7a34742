"""Random histories of remember, forget, consolidate and questions, against a plain list of events.

`RECOLLECT_HISTORIES=2500 pytest -m long tests/memory/test_histories.py` runs as many histories of each of four kinds.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

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
from polars.testing import assert_frame_equal

from recollect import Memory, UserError, load, read
from tests.memory.event_list import LAST, Cell, EventList, Happened, cells, labels_of, listed_changes

FIRST = 2000  # years that are used begin here; those of the base are 2003 to 2007
BASE = [
    ("a", "p", "b", 2003, 2004),
    ("b", "p", "c", 2004, 2007),
    ("a", "q", "c", 2005, 2005),
    ("c", "q", "c", 2003, 2003),
]
ENTITIES, PREDICATES = ("a", "b", "c", "x", "y"), ("p", "q", "r")
NAMES = ("subject", "predicate", "object")
ALL = {"top": 1000}

years = st.integers(FIRST, LAST - 1)
triples = st.tuples(st.sampled_from(ENTITIES), st.sampled_from(PREDICATES), st.sampled_from(ENTITIES))


@cache
def learned(kind: str) -> Memory:
    """Return a memory of single years or of intervals, of which one has no end."""
    if kind == "points":
        rows = [(s, p, o, str(year)) for s, p, o, first, last in BASE for year in range(first, last + 1)]
        table = pl.DataFrame(rows, schema=[*NAMES, "time"], orient="row")
        return Memory.learn(read(table, grain="year"), model="history")
    rows = [(s, p, o, str(first), None if last == 2007 else str(last)) for s, p, o, first, last in BASE]
    rows.append(("a", "p", "b", "2006", "2007"))
    table = pl.DataFrame(rows, schema=[*NAMES, "start", "end"], orient="row")
    return Memory.learn(read(table, grain="year", inclusive_end=True), model="history")


@cache
def saved(kind: str) -> Path:
    """Return the folder of the same memory."""
    folder = Path(tempfile.mkdtemp()) / kind
    learned(kind).save(folder)
    return folder


class Histories(RuleBasedStateMachine):
    """Remember, forget, consolidate and ask; a memory on disk is asked by a second reader."""

    kind = "points"
    on_disk = False

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp()) if self.on_disk else None
        if self.folder is not None:
            shutil.copytree(saved(self.kind), self.folder / "m")
            self.memory, self.reader = load(self.folder / "m"), load(self.folder / "m")
        else:
            self.memory = self.reader = Memory.of(learned(self.kind)._at().learned)
        stored = {cell for s, p, o, first, last in BASE for cell in cells((s, p, o), first, last)}
        if self.kind == "runs":
            stored |= cells(("b", "p", "c"), 2004, None) | cells(("a", "p", "b"), 2006, 2007)
        self.generation = 0
        self.oracle = EventList([])
        self.note(Happened(added=stored))

    def teardown(self) -> None:
        if getattr(self, "folder", None) is not None:
            shutil.rmtree(self.folder)

    def note(self, happened: Happened) -> None:
        """Add an event to the list, with the labels and some answers of the memory after it."""
        happened.labels, happened.generation = labels_of(self.memory), self.generation
        for question in self.questions(happened.labels):
            happened.answers[repr(question)] = self.memory.recall(**question, **ALL)
        self.oracle.events.append(happened)

    def questions(self, labels: tuple[tuple[str, ...], ...]) -> list[dict[str, str]]:
        """Return a question for each slot about labels of the memory."""
        entities, predicates, times = labels
        if not entities:
            return []
        fact = {"subject": entities[0], "predicate": predicates[-1], "object": entities[-1], "time": times[-1]}
        return [{name: label for name, label in fact.items() if name != slot} for slot in fact]

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
        happened.number, happened.known_at = table["event"][0], table["known_at"][0]
        assert happened.known_at > self.oracle.events[-1].known_at
        assert happened.number == self.oracle.events[-1].number + 1
        self.note(happened)

    # -- changes ------------------------------------------------------------------------------------------------------

    @rule(facts=st.lists(st.tuples(triples, years, st.one_of(st.none(), st.integers(0, 3))), min_size=1, max_size=4))
    def remember(self, facts: list[tuple[tuple[str, str, str], int, int | None]]) -> None:
        rows = [(*triple, *self.interval(first, length)) for triple, first, length in facts]
        if self.kind == "points":
            asked: list[Any] = [
                (s, p, o, f"{year}") for s, p, o, first, last in rows for year in range(first, (last or first) + 1)
            ]
        else:
            asked = [(s, p, o, str(first), None if last is None else str(last)) for s, p, o, first, last in rows]
        wanted = {cell for s, p, o, first, last in rows for cell in cells((s, p, o), first, last)}
        new = wanted - self.oracle.stored()
        table = self.memory.remember(asked, inclusive_end=True)
        self.record(table, Happened(added=new) if new else None)

    @rule(triple=triples, mask=st.integers(1, 7), first=years, length=st.one_of(st.none(), st.integers(0, 4)))
    def forget(self, triple: tuple[str, str, str], mask: int, first: int, length: int | None) -> None:
        given = {name: triple[i] for i, name in enumerate(NAMES) if mask >> i & 1}
        last = None if length is None else min(first + length, LAST - 1)
        table = self.memory.forget(**given, time=f"{first}..{'' if last is None else last}")
        end = LAST if last is None else last
        gone = {
            cell
            for cell in self.oracle.stored()
            if first <= cell[3] <= end and all(not mask >> i & 1 or cell[i] == triple[i] for i in range(3))
        }
        self.record(table, Happened(removed=gone) if gone else None)

    @rule(entity=st.sampled_from(ENTITIES))
    def erase(self, entity: str) -> None:
        is_known = entity in self.oracle.labels()[0]
        if is_known and len(self.oracle.labels()[0]) == 1:
            with pytest.raises(UserError, match="is the only entity of this memory; delete the memory, or"):
                self.memory.forget(entity=entity)
            return
        table = self.memory.forget(entity=entity)
        self.record(table, Happened(erased=entity) if is_known else None)

    @precondition(lambda self: len(self.oracle.events) > 1)
    @rule(data=st.data())
    def undo(self, data: st.DataObject) -> None:
        """Take an event back; what it changed and was changed again since stays as it is."""
        event = data.draw(st.sampled_from(self.oracle.events[1:]))
        added, removed = self.oracle.changes().get(event.number, (set(), set()))
        if not added and not removed:
            with pytest.raises(UserError, match=r"nothing was kept|there is no event"):
                self.memory.undo(event.number)
            return
        store = self.oracle.stored()
        new, gone = removed - store, added & store
        table = self.memory.undo(event.number)
        self.record(table, Happened(added=new, removed=gone) if new or gone else None)

    @rule()
    def consolidate(self) -> None:
        """Train again, and replace the memory by one that has absorbed all events."""
        self.generation += 1
        self.memory.consolidate()

    @rule()
    def absorb(self) -> None:
        """Replace the memory by one that has absorbed all events, with the same weights."""
        if self.folder is not None:
            self.memory.save(self.folder / "m", overwrite=True)

    @rule()
    def open_again(self) -> None:
        """Ask and change by what others load."""
        if self.folder is not None:
            self.memory, self.reader = self.reader, load(self.folder / "m")

    # -- questions ----------------------------------------------------------------------------------------------------

    def moments(self) -> st.SearchStrategy[datetime | None]:
        return st.sampled_from([None, *(event.known_at for event in self.oracle.events)])

    @rule(data=st.data(), year=years)
    def know(self, data: st.DataObject, year: int) -> None:
        """What holds at a time, now or at an earlier moment, on the axis of that moment."""
        moment = data.draw(self.moments())
        times = self.oracle.labels(moment)[2]
        held = {cell[:3] for cell in self.oracle.stored(moment) if cell[3] == year}
        try:
            found = self.reader.know(as_of=str(year), include="stored", **ALL, known_at=moment)
        except UserError as error:
            assert "not on this axis" in str(error)
            assert str(year) not in times
            return
        assert set(found.select(NAMES).rows()) == held
        assert found["status"].unique().to_list() in ([], ["stored"])

    @rule(data=st.data(), triple=triples, slot=st.sampled_from([*NAMES, "time"]))
    def recall(self, data: st.DataObject, triple: tuple[str, str, str], slot: str) -> None:
        """Stored answers are those of the list; the candidates are the labels of the moment; reasons are stored."""
        moment = data.draw(self.moments())
        labels, store = self.oracle.labels(moment), self.oracle.stored(moment)
        fact: dict[str, str] = dict(zip(NAMES, triple, strict=True)) | {"time": data.draw(st.sampled_from(labels[2]))}
        given = {name: label for name, label in fact.items() if name != slot}
        of_name = dict(zip((*NAMES, "time"), (labels[0], labels[1], labels[0], labels[2]), strict=True))
        is_known = all(label in of_name[name] for name, label in given.items())
        try:
            found = self.reader.recall(**given, explain=3, known_at=moment, **ALL)
        except UserError as error:
            assert "unknown" in str(error)
            assert not is_known
            return
        assert is_known
        position = [*NAMES, "time"].index(slot)
        asked = [*triple, int(fact["time"])]
        alike = [cell for cell in store if all(i == position or cell[i] == asked[i] for i in range(4))]
        expected = {str(cell[position]) for cell in alike} & set(of_name[slot])
        assert set(found.filter(status="stored")[slot].to_list()) == expected
        assert sorted(found[slot].to_list()) == sorted(of_name[slot])
        assert_reasons(found, store)

    @rule(data=st.data(), triple=triples)
    def timeline(self, data: st.DataObject, triple: tuple[str, str, str]) -> None:
        """When a fact held: as intervals, and time by time."""
        moment = data.draw(self.moments())
        labels, store = self.oracle.labels(moment), self.oracle.stored(moment)
        if not {triple[0], triple[2]} <= set(labels[0]) or triple[1] not in labels[1]:
            return
        held = {cell for cell in store if cell[:3] == triple}
        intervals = self.reader.when(*triple, known_at=moment).filter(status="stored")
        listed = [
            cells(triple, int(first), None if last is None else int(last)) for first, last, *_ in intervals.rows()
        ]
        assert {cell for each in listed for cell in each} == held
        times = self.reader.probabilities(*triple, known_at=moment)
        assert times["time"].to_list() == list(labels[2])
        expected = {str(cell[3]) for cell in held} & set(labels[2])
        assert set(times.filter(status="stored")["time"].to_list()) == expected

    @rule(data=st.data())
    def forecast(self, data: st.DataObject) -> None:
        """Forecasts have the labels of the moment, and reasons that are stored."""
        moment = data.draw(self.moments())
        labels, store = self.oracle.labels(moment), self.oracle.stored(moment)
        found = self.reader.forecast(horizon=2, explain=3, known_at=moment, top=5)
        assert {*found["subject"].to_list(), *found["object"].to_list()} <= set(labels[0])
        assert set(found["predicate"].to_list()) <= set(labels[1])
        assert_reasons(found, store)

    @rule(data=st.data())
    def ask_again(self, data: st.DataObject) -> None:
        """Labels are those that there were; unless trained since, predicted answers are those of the moment too."""
        event = data.draw(st.sampled_from(self.oracle.events))
        entities, *others = labels_of(self.reader, event.known_at)
        expected, *expected_others = self.oracle.labels(event.known_at)
        assert sorted(entities) == sorted(expected)
        assert others == expected_others
        if self.oracle.erased_after(event) or event.generation != self.generation:
            return
        for question in self.questions(event.labels):
            found = self.reader.recall(**question, known_at=event.known_at, **ALL)
            assert_frame_equal(found, event.answers[repr(question)])

    @precondition(lambda self: len(self.oracle.events) > 1)
    @rule()
    def list_changes(self) -> None:
        table = self.reader.changes()
        assert table["known_at"].is_sorted()
        assert listed_changes(table) == {number: parts for number, parts in self.oracle.changes().items() if number}
        erased = {(event.number, event.erased) for event in self.oracle.events if event.erased is not None}
        assert set(table.filter(change="erased").select("event", "subject").rows()) <= erased


def assert_reasons(table: pl.DataFrame, store: set[Cell]) -> None:
    """Every reason of predicted answers is a stored fact."""
    for reasons in table["why"].drop_nulls().to_list():
        for reason in reasons:
            assert (*(reason[name] for name in NAMES), int(reason["time"])) in store


HISTORIES = int(os.environ.get("RECOLLECT_HISTORIES", "100"))


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
