"""Print rows, JSON, lines, labels and progress; check that results can be written. Every command uses these.

Text from files may steer a terminal: everything that is printed goes through `plain`, `print_line` or `print_json`.
"""

from __future__ import annotations

import codecs
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table

from recollect.errors import UserError, escape_controls


def console(**options: Any) -> Console:
    """Return a rich console that prints labels like `:smile:` as they are."""
    return Console(emoji=False, **options)


def plain(text: str) -> str:
    """Escape control characters and square brackets: in a label they are no markup."""
    return escape(escape_controls(text))


def print_line(text: str, *, err: bool = False) -> None:
    """Print one line to standard output, or with `err` to standard error."""
    typer.echo(escape_controls(text), err=err)


def print_json(value: Any) -> None:
    """Print a value as one line of JSON, from which `json.loads` gives every label as it was."""
    print_line(json.dumps(value, ensure_ascii=not _is_unicode(sys.stdout.encoding)))


def _is_unicode(encoding: str | None) -> bool:
    """Return whether an encoding has all characters."""
    return codecs.lookup(encoding or "ascii").name.startswith("utf")


def print_rows(rows: list[dict[str, Any]], as_json: bool) -> None:
    """Print rows with equal keys as a table, or as JSON."""
    if as_json:
        print_json(rows)
        return
    table = Table()
    for name in rows[0] if rows else ():
        table.add_column(name, overflow="fold")  # long labels wrap
    for row in rows:
        table.add_row(*(plain(str(value)) for value in row.values()))
    console().print(table)


def print_pairs(pairs: dict[str, Any]) -> None:
    """Print names and values, one per line; the entries of a dict on the same line."""
    table = Table(show_header=False, box=None)
    for name, value in pairs.items():
        if isinstance(value, dict):
            text = "  ".join(f"{key} {format_value(each)}" for key, each in value.items())
        else:
            text = format_value(value)
        table.add_row(name, plain(text or "–"))
    console().print(table)


def format_value(value: Any) -> str:
    """Return a number with separators or three digits, anything else as text.

    >>> format_value(72826), format_value(0.12345), format_value("day")
    ('72,826', '0.123', 'day')
    """
    match value:
        case bool():
            return str(value)
        case int():
            return f"{value:,}"
        case float():
            return f"{value:.3g}"
    return str(value)


def plural(count: int, noun: str) -> str:
    """Return a number and a noun.

    >>> plural(1, "run"), plural(2000, "run")
    ('1 run', '2,000 runs')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def check_place(out: Path) -> None:
    """Raise UserError, before any work, if a folder cannot be made at `out`."""
    if not out.name:
        raise UserError(f"--out {str(out)!r} names no directory that could be made; give one like world.memory")
    nearest = next(parent for parent in (out.absolute(), *out.absolute().parents) if parent.exists())
    if not nearest.is_dir() or (out.is_symlink() and not out.exists()):
        raise UserError(f"{out}: cannot be made, for {nearest} is not a directory; choose another --out")
    probe = nearest / f".{out.name}.partial.{'0' * 16}.tmp"  # as long as the longest name that will be used
    try:
        probe.mkdir(exist_ok=True)
        probe.rmdir()
    except OSError as error:
        raise UserError(f"{out}: cannot be made in {nearest} ({error.strerror}); choose another --out") from error


def check_memory_place(out: Path, *, replace: bool) -> None:
    """Raise UserError, before any work, if no memory can be saved at `out`; an earlier one needs `replace`."""
    from recollect.io.atomic import existing_folder
    from recollect.memory.bundle.folder import ABOUT

    check_place(out)
    existing = existing_folder(out)
    if existing.exists() and not (existing / ABOUT).is_file():
        raise UserError(f"{out} exists and is not a memory; choose another --out")
    if existing.exists() and not replace:
        raise UserError(f"{out} exists; choose another --out, or replace it with --force")


@contextmanager
def byte_progress() -> Iterator[tuple[Progress, Any]]:
    """Yield a bar of bytes with rate and time left, and its task; hidden if standard error is no terminal."""
    shown = console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=shown, transient=True, disable=not shown.is_terminal) as progress:
        yield progress, progress.add_task("", total=None)


@dataclass(frozen=True)
class ShareBar:
    """A progress bar of the share of the work that is done, from 0 to 1."""

    progress: Progress
    task: TaskID

    def update(self, done: float) -> None:
        """Show the share that is done."""
        self.progress.update(self.task, completed=done)

    def describe(self, text: str, done: float) -> None:
        """Show the share that is done, and a text next to the bar."""
        self.progress.update(self.task, description=plain(text), completed=done)


@contextmanager
def share_progress(text: str) -> Iterator[ShareBar]:
    """Yield a bar of the share that is done, with the time left; hidden if standard error is no terminal."""
    shown = console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Progress(*columns, console=shown, transient=True, disable=not shown.is_terminal) as progress:
        yield ShareBar(progress, progress.add_task(plain(text), total=1.0))
