"""Agents: the real client of the package `mcp` asks in process, over HTTP and over standard input and output."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import anyio
import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

import recollect
from recollect.serve.agents import INSTRUCTIONS, SUMMARY, build_server
from recollect.serve.http.guard import Access
from recollect.serve.http.rest import create_app
from recollect.serve.service import Service

READS = ["recall", "know", "timeline"]


def words(text: str) -> int:
    """Return the number of words and signs of a text, which is about that of its tokens, or more."""
    return len(re.findall(r"\w+|[^\w\s]", text))


async def ask_all(client: Client, fact: dict[str, str]) -> dict[str, object]:
    """Ask every reading tool once; return what was said."""
    tools = await client.list_tools()
    resources = await client.list_resources()
    said: dict[str, object] = {
        "tools": [tool.name for tool in tools.tools],
        "resources": [resource.uri for resource in resources.resources],
        "summary": json.loads((await client.read_resource(SUMMARY)).contents[0].text),
    }
    triple = {name: fact[name] for name in ("subject", "predicate", "object")}
    asked = {
        "recall": {**triple, "time": fact["time"]},
        "know": {"subject": fact["subject"], "as_of": fact["time"], "top": 50},
        "timeline": triple,
    }
    del asked["recall"]["object"]
    for name, arguments in asked.items():
        result = await client.call_tool(name, arguments)
        assert not result.is_error
        said[name] = json.loads(result.content[0].text)
    wrong = await client.call_tool("recall", {"subject": "Nobody", "predicate": "Visits", "time": "2000-01"})
    said["wrong"] = (wrong.is_error, wrong.content[0].text)
    return said


def check_all(said: dict[str, object], fact: dict[str, str]) -> None:
    assert said["tools"][:3] == READS
    assert said["resources"] == [SUMMARY]
    assert said["summary"]["entities"] == 23
    assert fact["object"] in {answer["object"] for answer in said["recall"]["answers"]}
    assert said["recall"]["answers"][0]["status"] == "stored"
    assert fact["object"] in {answer["object"] for answer in said["know"]["answers"]}
    assert any(each["start"] <= fact["time"] <= each["end"] for each in said["timeline"]["intervals"])
    is_error, sentence = said["wrong"]
    assert is_error
    assert sentence.startswith("unknown entity 'Nobody'")


@pytest.fixture(scope="module")
def fact(world_memory) -> dict[str, str]:
    graph = world_memory.graph
    return graph.table(graph.split("train")[100:101]).row(0, named=True)


def test_an_agent_asks_in_process(service, fact):
    async def talk() -> dict[str, object]:
        async with Client(build_server(service)) as client:
            return await ask_all(client, fact)

    check_all(anyio.run(talk), fact)


@pytest.mark.parametrize("token", [None, "a-long-enough-token"])
def test_an_agent_asks_over_http(service, fact, token):
    app = create_app(service, Access(token=token))
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    async def talk() -> dict[str, object]:
        transport = httpx2.ASGITransport(app)
        async with (
            app.app.router.lifespan_context(app.app),
            httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000", headers=headers) as http,
            Client(streamable_http_client("http://127.0.0.1:8000/mcp", http_client=http)) as client,
        ):
            return await ask_all(client, fact)

    check_all(anyio.run(talk), fact)


def test_an_agent_asks_over_standard_input_and_output(world_folder: Path, fact):
    words = ["-m", "recollect", "mcp", str(world_folder)]
    source = str(Path(recollect.__file__).parents[1])
    server = StdioServerParameters(command=sys.executable, args=words, env={"PYTHONPATH": source})

    async def talk() -> dict[str, object]:
        with anyio.fail_after(120):
            async with Client(server) as client:
                return await ask_all(client, fact)

    check_all(anyio.run(talk), fact)


def test_arguments_that_do_not_fit_are_explained(service):
    async def talk() -> list[str]:
        async with Client(build_server(service)) as client:
            calls = [("recall", {"who": "x"}), ("know", {"top": 0}), ("timeline", {}), ("paint", {})]
            results = [await client.call_tool(name, arguments) for name, arguments in calls]
            assert all(result.is_error for result in results)
            return [result.content[0].text for result in results]

    unknown, too_few, missing, no_tool = anyio.run(talk)
    assert "unknown parameter 'who'" in unknown
    assert "expected int >= 1" in too_few
    assert "subject is missing" in missing
    assert "unknown tool 'paint'; choose one of recall, know, timeline, remember, forget" in no_tool


def test_descriptions_are_short(world_memory):
    async def describe() -> str:
        async with Client(build_server(Service(world_memory))) as client:
            tools = await client.list_tools()
            resources = await client.list_resources()
            parts = [*tools.tools, *resources.resources]
            return INSTRUCTIONS + "".join(part.model_dump_json(exclude_none=True) for part in parts)

    assert words(anyio.run(describe)) <= 1500
