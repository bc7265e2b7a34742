"""A mistake has the same sentence on the command line, over REST and by MCP."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from starlette.testclient import TestClient

from recollect import Memory
from recollect.serve.agents import build_server
from recollect.serve.http.guard import Access
from recollect.serve.http.rest import create_app
from recollect.serve.service import Service

VISIT = {"predicate": "Visits", "object": "Tasmark"}
FACT = {"subject": "Ada", **VISIT}
MISTAKES: list[tuple[str, dict[str, str], str]] = [
    ("recall", {"subject": "Tasmrk", "predicate": "Visits", "time": "2001-06"}, "did you mean 'Tasmark'?"),
    ("recall", {"subject": "Tasmark", "predicate": "Vists", "time": "2001-06"}, "did you mean 'Visits'?"),
    ("recall", {"subject": "Tasmark", "predicate": "Visits", "time": "some day"}, "some day"),
    ("recall", {"subject": "Tasmark", "predicate": "Visits", "time": "2099-01"}, "2099-01"),
    ("recall", {"subject": "Tasmark"}, "recall fills one slot"),
    ("recall", {**VISIT, "time": "2001-06", "known_at": "yesterday"}, "as a moment"),
    ("know", {"subject": "Tasmrk"}, "did you mean 'Tasmark'?"),
    ("know", {"as_of": "some day"}, "some day"),
    ("forget", {"subject": "Tasmark"}, "triples would be forgotten; if so, "),
    ("forget", {"entity": "Tasmark"}, "Tasmark would be removed altogether, with "),
    ("forget", {**VISIT, "time": "2001-06", "start": "2001-05"}, "give a time, or a start and an end, not both"),
    ("forget", {}, "give facts, or parts of facts, or an entity to forget"),
    ("remember", {"time": "some day"}, "some day"),
    ("remember", {"time": "2099-01"}, "2099-01"),
    ("remember", {"time": "2001"}, "'2001' is not one month"),
    ("remember", {}, "no time; give subject"),
]
CONSENTS = ("add --yes", "give several=true")  # how each skin agrees to what would be much


@pytest.fixture(scope="module")
def folder(world_folder: Path, tmp_path_factory) -> Path:
    return Path(shutil.copytree(world_folder, tmp_path_factory.mktemp("said") / "world.memory"))


@pytest.fixture(scope="module")
def service(folder: Path) -> Service:
    return Service(Memory.load(folder))


def by_command(run, folder: Path, kind: str, parts: dict[str, str]) -> str:
    words = [word for name, text in parts.items() for word in (f"--{name.replace('_', '-')}", text)]
    code, _, error = run(kind, folder, *words)
    assert code == 2
    return error.removeprefix("error: ").strip()


def by_rest(service: Service, kind: str, parts: dict[str, str]) -> str:
    with TestClient(create_app(service, Access()), base_url="http://127.0.0.1") as client:
        match kind:
            case "remember":
                answer = client.post("/v1/facts", json={"facts": [parts]})
            case "forget":
                answer = client.delete("/v1/facts", params=parts)
            case _:
                answer = client.get(f"/v1/{kind}", params=parts)
    assert answer.status_code == 400
    return answer.json()["detail"]


def by_agent(service: Service, kind: str, parts: dict[str, Any]) -> str:
    async def talk() -> str:
        async with Client(build_server(service)) as client:
            result = await client.call_tool(kind, {"facts": [parts]} if kind == "remember" else parts)
            assert result.is_error
            return result.content[0].text

    return anyio.run(talk)


def without_consent(sentence: str) -> str:
    for consent in CONSENTS:
        sentence = sentence.removesuffix(consent)
    return " ".join(sentence.split())


@pytest.mark.parametrize(("kind", "parts", "part_of_sentence"), MISTAKES)
def test_a_mistake_has_one_sentence(run, folder, service, kind, parts, part_of_sentence):
    given = {**FACT, **parts} if kind == "remember" else parts
    said = [by_command(run, folder, kind, given), by_rest(service, kind, given), by_agent(service, kind, given)]
    assert part_of_sentence in said[0]
    assert len({without_consent(each) for each in said}) == 1, said
