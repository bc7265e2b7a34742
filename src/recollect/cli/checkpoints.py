"""The checkpoints of a training: one file next to the memory for each of its runs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from recollect.cli.rendering import check_memory_place, print_line
from recollect.errors import UserError

if TYPE_CHECKING:
    from recollect.models.config import ModelConfig


def partial_of(out: Path) -> Path:
    """Return the path of the first checkpoint of a memory."""
    return out.with_name(out.name + ".partial")


def checkpoint_of(partial: Path, number: int) -> Path:
    """Return the path of the checkpoint of a run by its number from 0: m.partial, m.partial-2, m.partial-3 …"""
    return partial if number == 0 else partial.with_name(f"{partial.name}-{number + 1}")


def checkpoints(partial: Path) -> Iterator[Path]:
    """Yield the checkpoints that there are, those of earlier runs first."""
    for number in count():
        path = checkpoint_of(partial, number)
        if not path.exists():
            return
        yield path


def remove_checkpoints(partial: Path) -> None:
    """Remove all checkpoints, those of later runs first, so that a kill leaves a run that can be continued."""
    from recollect.io.atomic import remove_file
    from recollect.io.checkpoint import remove_shards

    for path in reversed(list(checkpoints(partial))):
        remove_file(path)
        remove_shards(path)


def stored_configs(partial: Path) -> list[ModelConfig]:
    """Return the models of an interrupted run; none if its checkpoint cannot be read as one."""
    from recollect.io.checkpoint import read_settings
    from recollect.models.config import ModelConfig

    try:
        return [ModelConfig.from_dict(read_settings(path)) for path in checkpoints(partial)]
    except (KeyError, TypeError, UserError):
        return []  # `load_checkpoint_` says what is wrong with it


def check_out(out: Path, resume: bool, force: bool) -> Path:
    """Return the path of the checkpoint that belongs to `out`; refuse, before any work, what cannot be written."""
    if resume and force:
        raise UserError("--resume continues a run and --force discards it; give one of them")
    partial = partial_of(out)
    check_memory_place(out, replace=force or resume)
    if resume and out.exists() and not partial.exists():
        print_line(f"{out} is finished already; there is nothing to resume", err=True)
        raise typer.Exit
    if partial.exists() and not (resume or force):
        raise UserError(f"{partial} is an unfinished run; continue it with --resume or discard it with --force")
    return partial
