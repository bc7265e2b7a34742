"""Run the service: load the memory, then answer on a host and port with one process or several."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import uvicorn
from msgspec import Struct
from starlette.types import ASGIApp
from uvicorn.supervisors import Multiprocess

from recollect.errors import UserError
from recollect.memory.bundle.folder import read_bundle
from recollect.memory.memory import Memory
from recollect.serve.http.guard import LOOPBACK, Access
from recollect.serve.http.rest import create_app
from recollect.serve.service import Service

SETTINGS = "RECOLLECT_SERVE"  # environment variable that hands the settings to worker processes
OPTIONS: dict[str, Any] = {
    "log_level": "warning",
    "access_log": False,
    "server_header": False,
    "limit_concurrency": 2_000,  # connections at a time per process; more are answered with 503
    "timeout_keep_alive": 15,  # seconds without a question
    "timeout_graceful_shutdown": 10,  # seconds for questions under way
    "lifespan": "on",
    "ws": "none",
}
MIN_TOKEN = 16  # characters
MAX_TOKEN_FILE = 4_096  # bytes


class Settings(Struct, frozen=True, kw_only=True):
    """How a memory is served."""

    memory: str
    host: str = "127.0.0.1"
    port: int = 8000
    token_file: str | None = None
    read_only: bool = False
    workers: int = 1


def read_token(file: Path) -> str:
    """Return the token of a file: its first line."""
    try:
        with file.open("rb") as opened:
            text = opened.read(MAX_TOKEN_FILE).decode().split("\n")[0].strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise UserError(f"{file}: the token cannot be read ({reason}); give a text file with one line") from error
    if len(text) < MIN_TOKEN or not text.isascii() or not text.isprintable() or " " in text:
        raise UserError(f"{file}: a token has at least {MIN_TOKEN} letters, digits or signs in one line")
    return text


def check_settings(settings: Settings) -> Access:
    """Return who may ask; raise UserError for a host that others reach and no token protects."""
    if settings.token_file is not None:
        return Access(token=read_token(Path(settings.token_file)))
    if settings.host not in LOOPBACK:
        raise UserError(
            f"others may reach {settings.host}, so a token is needed; "
            "write one into a file and give --token-file, or leave --host out"
        )
    return Access()


def load_service(folder: Path, *, read_only: bool) -> Service:
    """Return the service of a saved memory."""
    return Service(Memory.load(folder), read_only=read_only)


def build_app(settings: Settings) -> ASGIApp:
    """Return the application that serves a saved memory."""
    access = check_settings(settings)
    return create_app(load_service(Path(settings.memory), read_only=settings.read_only), access)


def app_of_environment() -> ASGIApp:
    """Return the application whose settings the environment has; worker processes begin here."""
    return build_app(msgspec.json.decode(os.environ[SETTINGS], type=Settings))


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; raise UserError if the place is taken or is none. Port 0 is any free one."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with ExitStack() as stack:
            opened = stack.enter_context(socket.socket(family, kind, protocol))
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # which connections inherit: no waiting
            opened.bind(address)
            opened.set_inheritable(True)
            stack.pop_all()
            return opened
    except OSError as error:
        raise UserError(
            f"cannot listen at {host} port {port} ({error.strerror or error}); choose another --port or --host"
        ) from error


def run(settings: Settings, say: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM; `say` is called with the address."""
    check_settings(settings)
    with listen(settings.host, settings.port) as opened:
        application: Any = f"{__name__}:{app_of_environment.__name__}"
        if settings.workers == 1:
            application = build_app(settings)
        else:
            read_bundle(Path(settings.memory))  # a mistake is one sentence here, and not one of every process
            os.environ[SETTINGS] = msgspec.json.encode(settings).decode()
        config = uvicorn.Config(application, factory=settings.workers > 1, workers=settings.workers, **OPTIONS)
        name = f"[{settings.host}]" if ":" in settings.host else settings.host
        say(f"http://{name}:{opened.getsockname()[1]}")
        if settings.workers == 1:
            uvicorn.Server(config).run(sockets=[opened])
        else:
            Multiprocess(config, sockets=[opened]).run()
