"""MCP: some operations of the service as tools for agents, over standard input and output or HTTP."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Annotated, Any

import anyio
import mcp_types as types
import msgspec
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from msgspec import Meta
from starlette.types import Receive, Scope, Send

import recollect
from recollect.errors import UserError
from recollect.serve import messages as msg
from recollect.serve.operations import input_schema
from recollect.serve.problems import ProblemError, explain_invalid
from recollect.serve.service import Service

SUMMARY = "recollect://memory"
DIGITS = 4  # of scores and probabilities
INSTRUCTIONS = (
    "A memory of facts (subject, predicate, object, time). Answers marked stored are certain and held at the asked "
    "time; predicted ones have a calibrated probability. Labels are matched exactly: an error names similar ones. "
    f"Read {SUMMARY} for what the memory holds."
)

Context = ServerRequestContext[Any]
Run = Callable[..., Awaitable[Any]]


@dataclass(frozen=True)
class Tool:
    """An operation that agents may use."""

    name: str
    question: type[msg.Message]
    description: str
    ask: Callable[[Service, Any], Any]
    writes: bool = False

    def describe(self) -> types.Tool:
        """Return the tool as MCP lists it."""
        hints = types.ToolAnnotations(
            read_only_hint=not self.writes,
            destructive_hint=self.name == "forget",
        )
        return types.Tool(
            name=self.name,
            description=self.description,
            input_schema=input_schema(self.question),
            annotations=hints,
        )


class FewTimes(msg.Triple, frozen=True):
    """A fact without its time, for readers who count tokens."""

    points: Annotated[int, Meta(ge=2, le=msg.MAX_POINTS, description="Number of times at most.")] = 24


TOOLS = (
    Tool(
        "recall",
        msg.Recall,
        "Recall the one missing part of a fact: give three of subject, predicate, object and time. Stored answers come "
        "first, then predicted ones. explain=3 adds the stored facts that speak for each prediction.",
        Service.recall,
    ),
    Tool(
        "know",
        msg.Know,
        "List what held as of a time, by default now, among facts with the given parts. Facts that had ended are left "
        "out.",
        Service.know,
    ),
    Tool(
        "timeline",
        FewTimes,
        "Say when a fact held, as intervals, and how likely it was at each time.",
        Service.timeline,
    ),
    Tool(
        "remember",
        msg.Remember,
        "Store facts, durably; stored ones are left alone. New labels and times are fine. A fact has a time, or a "
        "start and the time before which it ends.",
        Service.remember,
        writes=True,
    ),
    Tool(
        "forget",
        msg.Forget,
        "Remove stored facts with all the given parts. Try preview=true first.",
        Service.forget,
        writes=True,
    ),
)


def build_server(service: Service, run: Run = anyio.to_thread.run_sync) -> Server[Any]:
    """Return the MCP server of a service; `run` awaits work that blocks."""
    tools = {tool.name: tool for tool in TOOLS if not (tool.writes and service.read_only)}

    async def list_tools(context: Context, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[tool.describe() for tool in tools.values()])

    async def call_tool(context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            if params.name not in tools:
                raise UserError(f"unknown tool {params.name!r}; choose one of {', '.join(tools)}")
            return _text(await run(_call, service, tools[params.name], params.arguments or {}))
        except (UserError, ProblemError) as error:
            return _text(str(error), is_error=True)

    async def list_resources(context: Context, params: Any) -> types.ListResourcesResult:
        summary = types.Resource(name="memory", uri=SUMMARY, mime_type="application/json", description="What it holds.")
        return types.ListResourcesResult(resources=[summary])

    async def read_resource(context: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        if params.uri != SUMMARY:
            raise UserError(f"unknown resource {params.uri!r}; there is {SUMMARY}")
        text = await run(summary, service)
        content = types.TextResourceContents(uri=SUMMARY, mime_type="application/json", text=text)
        return types.ReadResourceResult(contents=[content])

    return Server(
        "recollect",
        version=recollect.__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_read_resource=read_resource,
    )


class AgentEndpoint:
    """The ASGI application of an MCP server; no state is kept between requests, so any process may answer them."""

    def __init__(self, server: Server[Any]) -> None:
        self._sessions = StreamableHTTPSessionManager(server, json_response=True, stateless=True)

    def run(self) -> AbstractAsyncContextManager[None]:
        """Return the context in which requests can be answered."""
        return self._sessions.run()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        scope["recollect.route"] = "mcp"
        await self._sessions.handle_request(scope, receive, send)


def summary(service: Service) -> str:
    """Return what the memory is and its most frequent labels, as JSON."""
    frequent = {
        f"frequent_{kind}": [each.label for each in service.labels(msg.Completion(kind=kind, top=20)).labels]
        for kind in ("entity", "predicate")
    }
    return compact({**msgspec.to_builtins(service.about()), **frequent})


def _call(service: Service, tool: Tool, arguments: dict[str, Any]) -> str:
    """Return the answer of a tool as JSON; raise UserError for arguments that do not fit."""
    try:
        question = msgspec.convert(arguments, tool.question)
    except msgspec.ValidationError as error:
        raise UserError(explain_invalid(error, tool.question)) from error
    return compact(msgspec.to_builtins(tool.ask(service, question)))


def compact(answer: Any) -> str:
    """Return an answer as JSON without what is null, with rounded numbers: an agent reads every character.

    >>> compact({"probability": 0.123456, "why": None, "answers": []})
    '{"probability":0.1235,"answers":[]}'
    """
    return json.dumps(_short(answer), ensure_ascii=False, separators=(",", ":"))


def _short(value: Any) -> Any:
    match value:
        case dict():
            return {key: _short(each) for key, each in value.items() if each is not None}
        case list():
            return [_short(each) for each in value]
        case float():
            return round(value, DIGITS)
    return value


def _text(text: str, *, is_error: bool = False) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=is_error)


def run_stdio(service: Service) -> None:
    """Answer an agent on standard input and output until the input ends."""

    async def talk() -> None:
        server = build_server(service)
        async with stdio_server() as (received, sent):
            await server.run(received, sent, server.create_initialization_options())

    anyio.run(talk)
