"""Let requests in: token, host and origin are checked, bodies bounded in size and time, answers counted."""

from __future__ import annotations

import asyncio
import hmac
import time
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from recollect.serve.http.metrics import Metrics
from recollect.serve.problems import ProblemError, problem_response

MAX_BODY = 16 * 2**20  # bytes
BODY_SECONDS = 30.0  # until all of a body must be there
OPEN = ("/", "/static", "/healthz", "/readyz", "/openapi.json")  # pages that need no token: they say nothing of facts
LOOPBACK = ("127.0.0.1", "localhost", "::1")
SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
        b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
)


@dataclass(frozen=True)
class Access:
    """Who may ask: those with the token, or if there is none, this machine; never pages of other sites."""

    token: str | None = None
    hosts: tuple[str, ...] = LOOPBACK  # names by which the service may be called if there is no token

    def check(self, path: str, headers: Headers) -> None:
        """Raise ProblemError for a request that must not be answered."""
        host = headers.get("host", "")
        if self.token is None and host_name(host) not in self.hosts:  # a page whose name was pointed here
            raise ProblemError(403, f"this service answers to {' and '.join(self.hosts)}, not to {host!r}")
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            raise ProblemError(403, f"pages of {origin} may not ask this service")
        if self.token is not None and not is_open(path):
            scheme, _, given = headers.get("authorization", "").partition(" ")
            if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self.token.encode()):
                raise ProblemError(
                    401, "this memory needs a token; send the header Authorization: Bearer and the token after it"
                )


def host_name(host: str) -> str:
    """Return a host without its port.

    >>> host_name("localhost:8000"), host_name("[::1]:8000"), host_name("::1")
    ('localhost', '::1', '::1')
    """
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host if host.count(":") > 1 else host.partition(":")[0]


def is_open(path: str) -> bool:
    """Return whether a page needs no token."""
    return path in OPEN or path.startswith("/static/")


class Guard:
    """ASGI middleware around everything that is served over HTTP."""

    def __init__(self, app: ASGIApp, access: Access, metrics: Metrics) -> None:
        self.app, self.access, self.metrics = app, access, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), 500

        async def send_counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", []), *SECURITY_HEADERS]
            await send(message)

        self.metrics.active += 1
        try:
            headers = Headers(scope=scope)
            self.access.check(scope["path"], headers)
            check_length(headers)
            await self.app(scope, bounded(receive), send_counted)
        except ProblemError as problem:
            await problem_response(problem)(scope, receive, send_counted)
        finally:
            self.metrics.active -= 1
            route = scope.get("recollect.route", "other")
            self.metrics.count(scope["method"], route, status, time.perf_counter() - started)


def check_length(headers: Headers) -> None:
    """Raise ProblemError if a body says that it is too long."""
    length = headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > MAX_BODY:
        raise ProblemError(413, f"the body has {length} bytes; send at most {MAX_BODY:,} at a time")


def bounded(receive: Receive) -> Receive:
    """Return `receive` that raises ProblemError for a body that is too long or arrives too slowly."""
    total, deadline = 0, asyncio.get_running_loop().time() + BODY_SECONDS
    is_whole = False

    async def receive_bounded() -> Message:
        nonlocal total, is_whole
        if is_whole:  # from here on it waits for the client to leave
            return await receive()
        try:
            async with asyncio.timeout_at(deadline):
                message = await receive()
        except TimeoutError:
            raise ProblemError(408, f"the body was not there after {BODY_SECONDS:g} seconds; send it faster") from None
        total += len(message.get("body", b""))
        is_whole = not message.get("more_body", False)
        if total > MAX_BODY:
            raise ProblemError(413, f"the body has more than {MAX_BODY:,} bytes; send fewer facts at a time")
        return message

    return receive_bounded
