"""How far probabilities can be relied on: the figures of `evaluate`, without the ranks."""

from __future__ import annotations

import time
from threading import Event
from typing import Any

from starlette.testclient import TestClient

import recollect
from recollect import Memory
from recollect.serve.http.guard import Access
from recollect.serve.http.rest import create_app
from recollect.serve.messages import Reliability
from recollect.serve.service import Service


def measured(client: TestClient) -> dict[str, Any]:
    """Return the reliability when it is there."""
    while (found := client.get("/v1/reliability").json())["status"] == "measuring":
        time.sleep(0.05)
    return found


def test_reliability_is_that_of_evaluate(client, world_memory):
    first = client.get("/v1/reliability")
    assert "etag" not in first.headers  # the answer changes while the memory does not
    found = measured(client)
    expected = world_memory.evaluate("test").to_dict()["calibration"]
    assert found["facts"] == world_memory.graph.counts["test"] > 0
    assert [each["slot"] for each in found["slots"]] == list(expected)
    for each in found["slots"]:
        rows = [{name: row[name] for name in row if name != "from"} for row in expected[each["slot"]]["after"]["bins"]]
        assert each["bins"] == rows


def test_a_memory_that_withheld_nothing_has_no_reliability(small_world):
    memory = Memory.learn(small_world.with_splits({"train": small_world.facts}), model="history")
    with TestClient(create_app(Service(memory), Access()), base_url="http://127.0.0.1:8000") as client:
        assert client.get("/v1/reliability").json() == {"status": "none", "facts": 0, "ahead": False, "slots": []}


def test_reliability_of_facts_that_come_later_is_that_of_forecasts(small_world):
    memory = Memory.learn(recollect.split_by_time(small_world), model="history")
    with TestClient(create_app(Service(memory), Access()), base_url="http://127.0.0.1:8000") as client:
        found = measured(client)
    assert found["ahead"]
    expected = memory.evaluate("test").to_dict()["calibration"]
    assert [each["slot"] for each in found["slots"]] == list(expected) == ["subject", "predicate", "object"]
    for each in found["slots"]:
        rows = expected[each["slot"]]["after"]["bins"]
        assert [row["observed"] for row in each["bins"]] == [row["observed"] for row in rows]


def test_reliability_is_measured_once_and_in_the_background(world_memory, monkeypatch):
    service, may_go_on, calls = Service(world_memory), Event(), []

    def slow(memory, *, ahead):
        calls.append(memory)
        assert may_go_on.wait(60)
        return Reliability(status="measured", facts=1, ahead=ahead, slots=[])

    monkeypatch.setattr("recollect.serve.reliability.reliability_of", slow)
    assert [service.reliability().status for _ in range(3)] == ["measuring"] * 3
    may_go_on.set()
    while service.reliability().status == "measuring":
        time.sleep(0.01)
    assert service.reliability() is service.reliability()
    assert len(calls) == 1
