"""How far probabilities can be relied on: the figures of `evaluate`, without the ranks."""

from __future__ import annotations

from starlette.testclient import TestClient

from recollect import Memory
from recollect.serve.guard import Access
from recollect.serve.rest import create_app
from recollect.serve.service import Service


def test_reliability_is_that_of_evaluate(client, world_memory):
    found = client.get("/v1/reliability").json()
    expected = world_memory.evaluate("test").to_dict()["calibration"]
    assert found["facts"] == world_memory.graph.counts["test"] > 0
    assert [each["slot"] for each in found["slots"]] == list(expected)
    for each in found["slots"]:
        rows = [{name: row[name] for name in row if name != "from"} for row in expected[each["slot"]]["after"]["bins"]]
        assert each["bins"] == rows


def test_a_memory_that_withheld_nothing_has_no_reliability(small_world):
    memory = Memory.learn(small_world.with_splits({"train": small_world.facts}), model="history")
    with TestClient(create_app(Service(memory), Access()), base_url="http://127.0.0.1:8000") as client:
        assert client.get("/v1/reliability").json() == {"facts": 0, "slots": []}


def test_reliability_is_measured_once(service, monkeypatch):
    first = service.reliability()
    monkeypatch.setattr("recollect.serve.service.reliability_of", None)
    assert service.reliability() is first
