"""Describe a memory for others, and share it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from recollect.cli import options as opt
from recollect.cli.rendering import print_line

hub_app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Share memories on the Hugging Face Hub: push, pull."
)
Licence = Annotated[str | None, typer.Option(help="That of the data, if it is your own.")]
Repository = Annotated[str, typer.Argument(help="OWNER/NAME on the Hugging Face Hub.", metavar="REPOSITORY")]


def card(
    memory: opt.MemoryDir,
    out: Annotated[Path | None, typer.Option(help="Write it here; by default it is printed.")] = None,
    split: Annotated[str | None, typer.Option(help="Evaluated; by default test, else valid.")] = None,
    licence: Licence = None,
    figure: Annotated[
        Path | None, typer.Option(help="Save a reliability diagram here (.png, .svg), and show it.")
    ] = None,
) -> None:
    """Write the card of a memory: data, evaluation, calibration.

    \b
    recollect card world.memory --out world-card.md
    Next: recollect hub push world.memory OWNER/NAME
    """
    from recollect.io.atomic import write_text
    from recollect.memory.memory import load

    text = load(memory).card(split=split, licence=licence, figure=figure)
    if out is None:
        for line in text.splitlines():
            print_line(line)
    else:
        write_text(out, text)


@hub_app.command()
def push(
    memory: opt.MemoryDir,
    repository: Repository,
    licence: Licence = None,
    public: Annotated[bool, typer.Option("--public", help="Everyone may read it; else it is private.")] = False,
) -> None:
    """Upload a memory and its card to the Hugging Face Hub.

    A memory contains its facts: check the licence of the data first.

    \b
    recollect hub push world.memory OWNER/NAME
    Next: recollect hub pull OWNER/NAME world.memory
    """
    from recollect.memory.hub import push as upload
    from recollect.memory.memory import load

    loaded = load(memory)
    print_line(upload(loaded, repository, card=loaded.card(licence=licence), public=public))


@hub_app.command()
def pull(
    repository: Repository,
    out: Annotated[Path, typer.Argument(help="The folder to write.", metavar="DIR")],
    force: opt.Force = False,
) -> None:
    """Download a memory from the Hugging Face Hub.

    Nothing in it is executed, and its digests are checked.

    \b
    recollect hub pull OWNER/NAME world.memory
    Next: recollect show world.memory
    """
    from recollect.memory.hub import pull as download

    download(repository, out, overwrite=force)
    print_line(f"wrote {out}")
