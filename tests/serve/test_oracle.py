"""No answer that is marked stored has ended: random questions against the rows that a memory was given.

The ordinary suite asks a few hundred. With RECOLLECT_TORTURE=1 (`make torture`) there are 10,000 of each kind.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from starlette.testclient import TestClient

import recollect
from recollect import Memory
from recollect.serve.http.guard import Access
from recollect.serve.http.rest import create_app
from recollect.serve.service import Service
from torture.scale import scaled

QUESTIONS = scaled(200, 10_000)
CHANGE_EVERY = 20  # questions
TOP = 50
Row = tuple[str, str, str, str, str | None]  # subject, predicate, object, first and last time; None: no end
Ask = Callable[[str, dict[str, Any]], list[dict[str, Any]]]  # of know and recall, with their parts


@dataclass
class Oracle:
    """The rows that a memory was given, and the labels to ask about."""

    rows: set[Row]
    times: list[str]
    entities: list[str] = field(init=False)
    predicates: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.entities = sorted({row[0] for row in self.rows} | {row[2] for row in self.rows})
        self.predicates = sorted({row[1] for row in self.rows})

    def holds(self, fact: dict[str, Any], time: str) -> bool:
        """Return whether a row says that a fact held at a time."""
        triple = (fact["subject"], fact["predicate"], fact["object"])
        return any(row[:3] == triple and row[3] <= time and (row[4] is None or time <= row[4]) for row in self.rows)


@pytest.fixture
def points(world_folder: Path, tmp_path: Path) -> tuple[Memory, Oracle]:
    """A memory of facts at single times."""
    memory = Memory.load(shutil.copytree(world_folder, tmp_path / "world.memory"))
    facts = memory.graph.table(memory.graph.split("train")).rows()
    return memory, Oracle({(s, p, o, t, t) for s, p, o, t in facts}, memory.graph.times.labels)


@pytest.fixture
def intervals(tmp_path: Path) -> tuple[Memory, Oracle]:
    """A memory of intervals, of which some have no end."""
    dice = random.Random(1)
    people, firms = [f"Person {i}" for i in range(12)], [f"Firm {i}" for i in range(6)]
    rows: set[Row] = set()
    for person in people:
        for firm in dice.sample(firms, 3):
            start = dice.randrange(1990, 2010)
            end = None if dice.random() < 0.3 else str(min(2011, start + dice.randrange(4)))
            rows.add((person, dice.choice(["leads", "advises"]), firm, str(start), end))
    names = ["subject", "predicate", "object", "start", "end"]
    table = [(*row[:4], "present" if row[4] is None else str(int(row[4]) + 1)) for row in sorted(rows)]
    graph = recollect.read(pl.DataFrame(table, schema=names, orient="row"))
    Memory.learn(graph, model="history").save(tmp_path / "firms.memory")
    years = [str(year) for year in range(1991, 2015)]  # the last ones are after everything that is stored
    return Memory.load(tmp_path / "firms.memory"), Oracle(rows, years)


@pytest.fixture(params=["library", "rest"])
def ask_of(request) -> Iterator[Callable[[Memory], Ask]]:
    """How a memory is asked: by its methods, or over HTTP."""
    clients = []

    def by_library(memory: Memory) -> Ask:
        def ask(kind: str, parts: dict[str, Any]) -> list[dict[str, Any]]:
            rows = getattr(memory, kind)(**parts, include="stored", top=TOP).to_dicts()
            return [{**parts, **row} for row in rows]

        return ask

    def by_rest(memory: Memory) -> Ask:
        client = TestClient(create_app(Service(memory), Access()), base_url="http://127.0.0.1")
        clients.append(client.__enter__())

        def ask(kind: str, parts: dict[str, Any]) -> list[dict[str, Any]]:
            answer = client.get(f"/v1/{kind}", params={**parts, "top": TOP})
            assert answer.status_code == 200, answer.text
            return [each for each in answer.json()["answers"] if each["status"] == "stored"]

        return ask

    yield by_library if request.param == "library" else by_rest
    for client in clients:
        client.__exit__(None, None, None)


def check(ask: Ask, oracle: Oracle, dice: random.Random) -> int:
    """Ask two random questions; return the number of stored answers."""
    time, entity, predicate = dice.choice(oracle.times), dice.choice(oracle.entities), dice.choice(oracle.predicates)
    role = dice.choice(["subject", "object"])
    found = 0
    for kind, parts in (
        ("know", {role: entity, "as_of": time}),
        ("recall", {role: entity, "predicate": predicate, "time": time}),
    ):
        answers = ask(kind, parts)
        assert all(oracle.holds(answer, time) for answer in answers), (kind, parts, answers)
        expected = {
            row[:3]
            for row in oracle.rows
            if row[2 if role == "object" else 0] == entity and (kind == "know" or row[1] == predicate)
            if row[3] <= time and (row[4] is None or time <= row[4])
        }
        assert len(answers) == min(TOP, len(expected)), (kind, parts)
        found += len(answers)
    return found


def test_no_stored_answer_of_a_memory_that_changes_has_ended(points, ask_of):
    memory, oracle = points
    ask, dice, found = ask_of(memory), random.Random(0), 0
    for number in range(QUESTIONS // 2):
        if number % CHANGE_EVERY == 0:
            change(memory, oracle, dice)
        found += check(ask, oracle, dice)
    assert found > QUESTIONS // 10


def change(memory: Memory, oracle: Oracle, dice: random.Random) -> None:
    """Remember a random fact, and forget one."""
    parts = [dice.choice(each) for each in (oracle.entities, oracle.predicates, oracle.entities, oracle.times)]
    subject, predicate, object_, time = parts
    memory.remember(subject=subject, predicate=predicate, object=object_, time=time)
    oracle.rows.add((subject, predicate, object_, time, time))
    gone = dice.choice(sorted(oracle.rows, key=str))
    memory.forget(subject=gone[0], predicate=gone[1], object=gone[2], time=gone[3])
    oracle.rows.remove(gone)


def test_no_stored_interval_has_ended(intervals, ask_of):
    memory, oracle = intervals
    ask, dice = ask_of(memory), random.Random(0)
    assert sum(check(ask, oracle, dice) for _ in range(QUESTIONS // 2)) > QUESTIONS // 10
