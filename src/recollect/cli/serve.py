"""Serve a memory over HTTP and to agents."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from recollect.cli import options as opt
from recollect.cli.rendering import print_line
from recollect.cli.threads import use_threads
from recollect.errors import import_extra

ReadOnly = Annotated[bool, typer.Option("--read-only", help="Refuse to remember and forget.")]


def serve(
    memory: opt.MemoryDir,
    host: Annotated[str, typer.Option(help="Address to listen at; others than this machine need a token.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen at; 0 is any that is free.")] = 8000,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File with the token that requests must have.")
    ] = None,
    read_only: ReadOnly = False,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Number of processes.")] = 1,
) -> None:
    """Answer questions over HTTP, until Ctrl-C. /openapi.json lists them.

    \b
    recollect serve world.memory
    recollect serve world.memory --read-only
    recollect serve world.memory --host 0.0.0.0 --token-file token.txt --workers 2
    Next: open http://127.0.0.1:8000
    """
    prepare()
    from recollect.serve.http.running import Settings, run

    settings = Settings(
        memory=str(memory),
        host=host,
        port=port,
        token_file=None if token_file is None else str(token_file),
        read_only=read_only,
        workers=workers,
    )
    with suppress(KeyboardInterrupt):
        run(settings, lambda address: print_line(f"{memory} is served at {address} (Ctrl-C ends)", err=True))


def mcp(memory: opt.MemoryDir, read_only: ReadOnly = False) -> None:
    """Answer an agent by MCP on standard input and output.

    \b
    recollect mcp world.memory --read-only
    Next: add this command to the settings of the agent
    """
    prepare()
    from recollect.serve.agents import run_stdio
    from recollect.serve.http.running import load_service

    run_stdio(load_service(memory, read_only=read_only))


def prepare() -> None:
    """Raise UserError if the packages of the service are missing; let questions use one thread each."""
    import_extra("mcp", "the packages of the service", needed_by="serving a memory", extra="serve")
    if "OMP_NUM_THREADS" not in os.environ:
        use_threads(1)  # questions take milliseconds: threads of their own would wait for each other
