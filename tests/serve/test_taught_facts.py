"""Facts are remembered and forgotten over REST and MCP, durably, once, and visibly to all that serve the memory."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from mcp import Client
from starlette.testclient import TestClient

from recollect import Memory
from recollect.serve.agents import build_server
from recollect.serve.http.guard import Access
from recollect.serve.http.rest import create_app
from recollect.serve.messages import MAX_LABEL
from recollect.serve.service import Service

ADDRESS = "http://127.0.0.1:8000"
NEW = {"subject": "Ada", "predicate": "Visits", "object": "Tasmark", "time": "2001-06"}
TRIPLE = {name: label for name, label in NEW.items() if name != "time"}


@pytest.fixture
def folder(world_folder: Path, tmp_path: Path) -> Path:
    """A memory of this test's own."""
    return Path(shutil.copytree(world_folder, tmp_path / "world.memory"))


def opened(folder: Path, **options: bool) -> TestClient:
    return TestClient(create_app(Service(Memory.load(folder), **options), Access()), base_url=ADDRESS)


@pytest.fixture
def client(folder: Path) -> Iterator[TestClient]:
    with opened(folder) as found:
        yield found


def who(client: TestClient, **more: str) -> list[str]:
    """Return who is stored to have visited Tasmark in June 2001."""
    params = {"predicate": "Visits", "object": "Tasmark", "time": "2001-06", "include": "stored", "top": 100, **more}
    return [answer["subject"] for answer in client.get("/v1/recall", params=params).json()["answers"]]


def remember(client: TestClient, *facts: dict[str, str], **headers: str) -> dict[str, object]:
    answer = client.post("/v1/facts", json={"facts": list(facts)}, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_what_is_remembered_is_stored_until_it_is_forgotten(client, folder):
    before = client.get("/v1/memory")
    (change,) = remember(client, NEW)["changes"]
    assert (change["change"], change["subject"], change["start"], change["end"]) == (
        "added",
        "Ada",
        "2001-06",
        "2001-06",
    )
    assert "Ada" in who(client)
    after = client.get("/v1/memory", headers={"If-None-Match": before.headers["etag"]})
    assert after.status_code == 200
    assert after.headers["etag"] != before.headers["etag"]
    assert after.json()["entities"] == before.json()["entities"] + 1
    assert Memory.load(folder).probability({name: [label] for name, label in NEW.items()})["status"][0] == "stored"
    assert "Ada" in {each["label"] for each in client.get("/v1/labels", params={"text": "ad"}).json()["labels"]}
    edges = client.get("/v1/graph", params={"entity": "Ada", "as_of": "2001-06"}).json()["edges"]
    assert [each["object"] for each in edges] == ["Tasmark"]
    (change,) = client.delete("/v1/facts", params=NEW).json()["changes"]
    assert change["change"] == "removed"
    assert "Ada" not in who(client)


def test_the_journal_says_when_and_known_at_asks_then(client):
    remember(client, NEW)
    moment = client.get("/v1/journal").json()["changes"][-1]["known_at"]
    client.delete("/v1/facts", params=NEW)
    assert [each["change"] for each in client.get("/v1/journal").json()["changes"]] == ["added", "removed"]
    assert "Ada" in who(client, known_at=moment)
    assert "Ada" not in who(client)
    then = {"known_at": moment, "as_of": "2001-06"}
    assert client.get("/v1/graph", params={"entity": "Ada", **then}).json()["edges"]
    assert client.get("/v1/entity/Ada", params=then).json()["as_subject"][0]["status"] == "stored"
    assert (
        client.get("/v1/timeline", params={**TRIPLE, "known_at": moment}).json()["intervals"][0]["status"] == "stored"
    )
    assert client.get("/v1/why", params={**NEW, "known_at": moment}).json()["status"] == "stored"
    refused = client.get("/v1/know", params={"known_at": "yesterday"})
    assert (refused.status_code, "cannot read 'yesterday' as a moment" in refused.json()["detail"]) == (400, True)
    assert client.get("/v1/journal", params={"top": 1}).json()["left_out"] == 1


def test_lines_are_remembered_together_or_not_at_all(client):
    facts = [{**NEW, "subject": f"Visitor {i}"} for i in range(50)]
    body = "\n".join(json.dumps(fact) for fact in facts)
    answer = client.post("/v1/facts", content=body, headers={"Content-Type": "application/x-ndjson"})
    assert len(answer.json()["changes"]) == 50
    assert len({each["event"] for each in answer.json()["changes"]}) == 1
    facts = [{**NEW, "subject": f"Guest {i}"} for i in range(50)]
    facts[30]["time"] = "some day"
    answer = client.post("/v1/facts", json={"facts": facts})
    assert answer.status_code == 400
    assert "cannot read 'some day' as the time; correct it: nothing was changed" in answer.json()["detail"]
    assert not any(name.startswith("Guest") for name in who(client))


def test_the_same_request_with_the_same_key_is_done_once(client, folder):
    key = {"Idempotency-Key": "k1"}
    assert len(remember(client, NEW, **key)["changes"]) == 1
    assert client.delete("/v1/facts", params=NEW, headers={"Idempotency-Key": "k0"}).json()["changes"]
    assert remember(client, NEW, **key)["changes"] == []  # a client that did not hear of the first
    assert "Ada" not in who(client)
    with opened(folder) as other:
        assert remember(other, NEW, **key)["changes"] == []
    assert len(remember(client, NEW, **{"Idempotency-Key": "k2"})["changes"]) == 1


def test_a_key_that_is_used_for_another_request_is_refused(client):
    key = {"Idempotency-Key": "k1"}
    remember(client, NEW, **key)
    other = {**NEW, "subject": "Bo"}
    for answer in (
        client.post("/v1/facts", json={"facts": [other]}, headers=key),
        client.post("/v1/facts", json={"facts": [NEW], "inclusive_end": True}, headers=key),
        client.delete("/v1/facts", params=NEW, headers=key),
    ):
        assert answer.status_code == 409
        assert answer.json()["detail"].startswith("this key was used for a request with another content")
    assert who(client).count("Ada") == 1
    assert "Bo" not in who(client)


def test_an_event_is_taken_back_as_a_whole(client):
    before = client.get("/v1/recall", params={"predicate": "Visits", "object": "Tasmark", "time": "2001-06"}).json()
    many = [{**NEW, "subject": name, "time": time} for name in ("Ada", "Bo") for time in ("2001-03", "2001-06")]
    event = remember(client, *many)["changes"][0]["event"]
    undone = client.post("/v1/undo", params={"event": event}).json()["changes"]
    assert {(each["change"], each["subject"]) for each in undone} == {("removed", "Ada"), ("removed", "Bo")}
    assert {each["event"] for each in undone} == {event + 1}
    after = client.get("/v1/recall", params={"predicate": "Visits", "object": "Tasmark", "time": "2001-06"}).json()
    assert [each for each in after["answers"] if each["status"] == "stored"] == [
        each for each in before["answers"] if each["status"] == "stored"
    ]
    again = client.post("/v1/undo", params={"event": event + 1}).json()["changes"]
    assert [each["change"] for each in again] == ["added"] * 4
    assert client.post("/v1/undo", params={"event": event}).json()["changes"]
    assert client.post("/v1/undo", params={"event": event}).json()["changes"] == []  # nothing of it is left
    client.delete("/v1/facts", params={"entity": "Tasmark", "several": "true"})
    last = client.get("/v1/journal").json()["changes"][-1]["event"]
    for number, sentence in ((last, "erased Tasmark"), (99, "there is no event 99 to take back")):
        refused = client.post("/v1/undo", params={"event": number})
        assert (refused.status_code, sentence in refused.json()["detail"]) == (400, True)


def test_facts_of_several_triples_are_forgotten_only_if_asked_for(client):
    many = {"subject": "Tasmark"}
    refused = client.delete("/v1/facts", params=many)
    assert refused.status_code == 400
    assert "if so, give several=true" in refused.json()["detail"]
    preview = client.delete("/v1/facts", params={**many, "preview": "true"}).json()
    assert len(preview["changes"]) > 1
    assert all(each["event"] is None for each in preview["changes"])
    done = client.delete("/v1/facts", params={**many, "several": "true"}).json()
    assert len(done["changes"]) == len(preview["changes"])
    erased = client.delete("/v1/facts", params={"entity": "Tasmark"})
    assert erased.status_code == 400
    assert client.delete("/v1/facts", params={"entity": "Tasmark", "several": "true"}).status_code == 200
    assert client.get("/v1/entity/Tasmark").status_code == 404


@pytest.mark.parametrize(
    ("body", "kind", "status", "sentence"),
    [
        (b"{}", "application/json", 400, "facts is missing"),
        (b'{"facts": []}', "application/json", 400, "cannot read facts: expected array of length >= 1"),
        (b"{", "application/json", 400, "the body is not readable as application/json"),
        (b'{"facts": [{"subject": ""}]}', "application/json", 400, "expected str of length >= 1"),
        (b"\xff\xfe", "application/x-ndjson", 400, "the body is not readable as application/x-ndjson"),
        (b"", "application/x-ndjson", 400, "cannot read facts"),
        (b"a,b,c,d", "text/csv", 415, "the body has the type 'text/csv'; send application/json,"),
        (b"", "", 415, "the body has the type"),
        (json.dumps({"facts": [TRIPLE]}).encode(), "application/json", 400, "no time; give subject"),
        (json.dumps({"facts": [{**NEW, "start": "2001-01"}]}).encode(), "application/json", 400, "not both"),
        (json.dumps({"facts": [{**NEW, "time": "3000-01"}]}).encode(), "application/json", 400, "3000-01"),
        (
            json.dumps({"facts": [{**NEW, "object": "x" * (MAX_LABEL + 1)}]}).encode(),
            "application/json", 400, "expected str of length <= 2000",
        ),
    ],
)  # fmt: skip
def test_mistakes_change_nothing(client, body, kind, status, sentence):
    state = client.get("/v1/memory").json()["state"]
    answer = client.post("/v1/facts", content=body, headers={"Content-Type": kind} if kind else {})
    assert answer.status_code == status, answer.text
    assert sentence in answer.json()["detail"]
    assert client.get("/v1/memory").json()["state"] == state


def test_nothing_to_forget_is_a_mistake_and_a_long_key_too(client):
    assert client.delete("/v1/facts").status_code == 400
    refused = client.post("/v1/facts", json={"facts": [NEW]}, headers={"Idempotency-Key": "k" * 201})
    assert (refused.status_code, "at most 200" in refused.json()["detail"]) == (400, True)


def test_a_memory_that_is_read_only_stays_as_it_is(folder):
    with opened(folder, read_only=True) as client:
        for answer in (
            client.post("/v1/facts", json={"facts": [NEW]}),
            client.delete("/v1/facts", params=NEW),
            client.post("/v1/undo", params={"event": 1}),
        ):
            assert answer.status_code == 403
            assert "read-only" in answer.json()["detail"]
        assert client.delete("/v1/facts", params={**NEW, "preview": "true"}).status_code == 200
        assert client.get("/v1/memory").json()["read_only"]
        assert client.get("/v1/journal").json()["changes"] == []


def test_two_that_serve_a_memory_see_each_others_changes(folder):
    with opened(folder) as one, opened(folder) as other:
        remember(one, NEW)
        assert "Ada" in who(other)
        assert one.get("/v1/memory").headers["etag"] == other.get("/v1/memory").headers["etag"]


def test_what_an_agent_remembers_is_answered_to_all(folder):
    service = Service(Memory.load(folder))

    async def talk() -> list[str]:
        async with Client(build_server(service)) as agent:
            said = [await agent.call_tool("remember", {"facts": [NEW]})]
            said.append(await agent.call_tool("know", {"subject": "Ada", "as_of": "2001-06"}))
            with opened(folder) as client:
                assert "Ada" in who(client)
            said.append(await agent.call_tool("forget", NEW))
            said.append(await agent.call_tool("forget", {"subject": "Tasmark"}))
            assert [result.is_error for result in said] == [False, False, False, True]
            return [result.content[0].text for result in said]

    added, known, removed, refused = anyio.run(talk)
    assert json.loads(added)["changes"][0]["change"] == "added"
    assert json.loads(known)["answers"][0]["status"] == "stored"
    assert json.loads(removed)["changes"][0]["change"] == "removed"
    assert "give several=true" in refused


def test_an_agent_cannot_change_what_is_read_only(world_memory):
    async def talk() -> tuple[list[str], str]:
        async with Client(build_server(Service(world_memory, read_only=True))) as agent:
            tools = [tool.name for tool in (await agent.list_tools()).tools]
            return tools, (await agent.call_tool("remember", {"facts": [NEW]})).content[0].text

    tools, refused = anyio.run(talk)
    assert tools == ["recall", "know", "timeline"]
    assert "unknown tool 'remember'" in refused
