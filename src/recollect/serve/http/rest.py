"""REST: every operation of the service as a route, with states, problems and limits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from recollect.errors import ReusedKeyError, UserError
from recollect.serve.agents import AgentEndpoint, build_server
from recollect.serve.http.bodies import accepted, parse_body, write_arrow, write_lines
from recollect.serve.http.guard import Access, Guard
from recollect.serve.http.metrics import CONTENT_TYPE, Metrics
from recollect.serve.messages import Message, RecallMany
from recollect.serve.operations import ARROW, JSON, LINES, MAX_KEY, READS, RECALL_MANY, WRITES, Operation, openapi
from recollect.serve.problems import ProblemError, explain_invalid, problem_response, to_json
from recollect.serve.service import ReadOnlyError, Service

THREADS = 2  # questions that are answered at a time: more would wait for the interpreter's lock
WAITING = 256  # questions that may be under way or wait for a thread
RETRY_SECONDS = 1
PAGE = Path(__file__).parents[1] / "page"  # index.html and the files under /static
INTERNAL = "the question could not be answered for a fault of recollect's; the log of the service says more"
UNCACHED = {"Cache-Control": "private, no-cache", "Vary": "Authorization"}

Result = TypeVar("Result")
Handler = Callable[[Request], Awaitable[Response]]
logger = logging.getLogger("recollect.serve")


class Workers:
    """A bounded pool of threads for what takes time; what does not fit is refused at once."""

    def __init__(self, metrics: Metrics, *, threads: int, waiting: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="recollect-serve")
        self._metrics, self._waiting, self._pending = metrics, waiting, 0

    async def run(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """Return work(*arguments), run by a thread; raise ProblemError if too much waits already."""
        if self._pending >= self._waiting:
            self._metrics.refused += 1
            retry = {"Retry-After": str(RETRY_SECONDS)}
            raise ProblemError(503, f"{self._pending} questions are under way; try again in a second", retry)
        self._pending += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work, *arguments)
        finally:
            self._pending -= 1

    def close(self) -> None:
        """Wait for what is under way."""
        self._pool.shutdown()


@dataclass(frozen=True)
class Pools:
    """Threads for what is asked; what takes long must not hold up what does not."""

    questions: Workers
    changes: Workers
    bulk: Workers  # many questions at a time

    @classmethod
    def start(cls, metrics: Metrics, *, threads: int, waiting: int) -> Pools:
        """Return pools in which as many questions as given may be under way or wait; changes are made one by one."""
        return cls(*(Workers(metrics, threads=count, waiting=waiting) for count in (threads, 1, 1)))

    def close(self) -> None:
        """Wait for what is under way."""
        for pool in (self.questions, self.changes, self.bulk):
            pool.close()


class PageFiles(StaticFiles):
    """Files of the page; a browser asks each time whether they changed."""

    def file_response(self, *arguments: Any, **options: Any) -> Response:
        """Return a file, or that it has not changed."""
        response = super().file_response(*arguments, **options)
        response.headers["Cache-Control"] = "no-cache"
        return response


class RestApi:
    """The routes of a service."""

    def __init__(self, service: Service, metrics: Metrics, pools: Pools) -> None:
        self.service, self.metrics, self.pools = service, metrics, pools

    def routes(self) -> list[BaseRoute]:
        """Return the routes of all operations, of health and of the page."""
        found: list[BaseRoute] = [Route(each.path, self._read(each), name=each.name) for each in READS]
        found += [Route(each.path, self._write(each), name=each.name, methods=[each.method]) for each in WRITES]
        many = RECALL_MANY
        found.append(Route(many.path, _named(many.name, self._recall_many), name=many.name, methods=[many.method]))
        found += [
            Route("/healthz", _named("healthz", self._health)),
            Route("/readyz", _named("readyz", self._health)),
            Route("/metrics", _named("metrics", self._metrics)),
            Route("/openapi.json", _named("openapi", self._openapi)),
            Route("/", _named("page", self._page)),
        ]
        if PAGE.is_dir():
            found.append(Mount("/static", PageFiles(directory=PAGE)))
        return found

    def _read(self, operation: Operation) -> Handler:
        """Return the handler of an operation that changes nothing."""

        async def handle(request: Request) -> Response:
            state = self.service.state
            headers = {"ETag": f'"{state}"', **UNCACHED} if operation.is_stateful else UNCACHED
            question = parse_question(request, operation)
            if operation.is_stateful and is_current(request.headers.get("if-none-match"), state):
                return Response(status_code=304, headers=headers)
            body = await self.pools.questions.run(_answer, self.service, operation, question)
            return Response(body, headers=headers, media_type="application/json")

        return _named(operation.name, handle)

    def _write(self, operation: Operation) -> Handler:
        """Return the handler of an operation that changes the memory, one at a time."""

        async def handle(request: Request) -> Response:
            key = request.headers.get("idempotency-key")
            if key is not None and len(key) > MAX_KEY:
                raise ProblemError(400, f"the idempotency key has {len(key)} characters; at most {MAX_KEY} are kept")
            body = await request.body()
            question: Message | None
            if operation.rows is not None:
                question = await self.pools.changes.run(parse_rows, request, body, operation)
            else:
                question = parse_question(request, operation)
            keys = (key,) if operation.has_key else ()
            found = await self.pools.changes.run(_answer, self.service, operation, question, *keys)
            return Response(found, headers=UNCACHED, media_type=JSON)

        return _named(operation.name, handle)

    async def _recall_many(self, request: Request) -> Response:
        """Answer many questions, in the type that the client accepts."""
        kind, body = accepted(request.headers.get("accept", "")), await request.body()
        found = await self.pools.bulk.run(_answer_many, self.service, request, body, kind)
        return Response(found, headers={**UNCACHED, "Vary": "Authorization, Accept"}, media_type=kind)

    async def _health(self, request: Request) -> Response:
        return Response(b'{"status":"ok"}', media_type="application/json")

    async def _metrics(self, request: Request) -> Response:
        facts = self.service.memory.graph.counts["train"]
        return PlainTextResponse(self.metrics.text({"facts": facts}), headers={"Content-Type": CONTENT_TYPE})

    async def _openapi(self, request: Request) -> Response:
        return Response(to_json(openapi()), media_type="application/json")

    async def _page(self, request: Request) -> Response:
        index = PAGE / "index.html"
        if not index.is_file():
            return PlainTextResponse("recollect: /openapi.json says what can be asked.\n")
        return FileResponse(index, headers={"Cache-Control": "no-cache"})


def parse_question(request: Request, operation: Operation) -> Message | None:
    """Return the question of a request; raise ProblemError for parameters that do not fit it."""
    given = check_once(request)
    names = [name for name, _ in given]
    if operation.question is None:
        if names:
            raise ProblemError(400, f"unknown parameter {names[0]!r}; {operation.path} takes none")
        return None
    if operation.in_path in names:
        raise ProblemError(400, f"unknown parameter {operation.in_path!r}; it is part of the path")
    try:
        return msgspec.convert({**dict(given), **request.path_params}, operation.question, strict=False)
    except msgspec.ValidationError as error:
        raise ProblemError(400, explain_invalid(error, operation.question)) from error


def check_once(request: Request) -> list[tuple[str, str]]:
    """Return the parameters of a request; raise ProblemError if one is given twice."""
    given = request.query_params.multi_items()
    names = [name for name, _ in given]
    for name in names:
        if names.count(name) > 1:
            raise ProblemError(400, f"{name} is given {names.count(name)} times; give it once")
    return given


def is_current(given: str | None, state: str) -> bool:
    """Return whether If-None-Match names the state of the memory."""
    if not given or not state:
        return False
    return given.strip() == "*" or f'"{state}"' in (each.strip().removeprefix("W/") for each in given.split(","))


def parse_rows(request: Request, body: bytes, operation: Operation) -> Message:
    """Return the question of a request whose body has many rows."""
    assert operation.question is not None
    assert operation.rows is not None
    given = check_once(request)
    return parse_body(request.headers.get("content-type", ""), body, operation.question, operation.rows, dict(given))


def _answer_many(service: Service, request: Request, body: bytes, kind: str) -> bytes:
    """Return the answers to many questions in a type of bodies; raise ProblemError for a user's mistake."""
    question = parse_rows(request, body, RECALL_MANY)
    assert isinstance(question, RecallMany)
    try:
        if kind == ARROW:
            return write_arrow(service.recall_table(question))
        found = service.recall_many(question)
    except UserError as error:
        raise ProblemError(400, str(error)) from error
    return write_lines(found.answers) if kind == LINES else to_json(found)


def _answer(service: Service, operation: Operation, question: Message | None, *key: str | None) -> bytes:
    """Return the answer to a question as JSON; raise ProblemError for a user's mistake."""
    try:
        return to_json(operation.ask(service, question, *key))
    except ReadOnlyError as error:
        raise ProblemError(403, str(error)) from error
    except ReusedKeyError as error:
        raise ProblemError(409, str(error)) from error
    except UserError as error:
        is_missing = operation.in_path is not None and str(error).startswith("unknown ")
        raise ProblemError(404 if is_missing else 400, str(error)) from error


def _named(route: str, handler: Handler) -> Handler:
    """Return a handler that says by which route a request is counted."""

    async def handle(request: Request) -> Response:
        request.scope["recollect.route"] = route
        try:
            return await handler(request)
        except (ProblemError, HTTPException):
            raise
        except Exception:
            logger.exception("%s failed", route)
            raise ProblemError(500, INTERNAL) from None

    return handle


async def _on_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, ProblemError)
    return problem_response(error)


async def _on_http_error(request: Request, error: Exception) -> Response:
    """Answer a path or a method that is not there."""
    assert isinstance(error, HTTPException)
    where = f"{request.method} {request.url.path}"
    sentences = {404: f"there is no {where}; /openapi.json lists what there is", 405: f"there is no {where}"}
    detail = sentences.get(error.status_code, error.detail)
    return problem_response(ProblemError(error.status_code, detail, error.headers))


def create_app(service: Service, access: Access, *, threads: int = THREADS, waiting: int = WAITING) -> ASGIApp:
    """Return the ASGI application of a service."""
    metrics = Metrics()
    pools = Pools.start(metrics, threads=threads, waiting=waiting)
    agents = AgentEndpoint(build_server(service, pools.questions.run))

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with agents.run():
            yield
        pools.close()

    app = Starlette(
        routes=[*RestApi(service, metrics, pools).routes(), Route("/mcp", agents)],
        exception_handlers={ProblemError: _on_problem, HTTPException: _on_http_error},
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    return Guard(app, access, metrics)
