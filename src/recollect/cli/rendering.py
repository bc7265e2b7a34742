"""What all commands share: how they print rows, JSON, labels and progress."""

from __future__ import annotations

import json
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

from recollect.errors import UserError


def console(**options: Any) -> Console:
    return Console(emoji=False, **options)  # labels may hold :names: that are no emoji


def plain(text: str) -> str:
    """Labels may hold square brackets, which are not markup."""
    return escape(text)


def print_json(value: Any) -> None:
    typer.echo(json.dumps(value, ensure_ascii=False))


def print_rows(rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json(rows)
        return
    table = Table()
    for name in rows[0] if rows else ():
        table.add_column(name, overflow="fold")  # a long label is shown whole
    for row in rows:
        table.add_row(*(plain(str(value)) for value in row.values()))
    console().print(table)


def print_pairs(pairs: dict[str, Any]) -> None:
    """Names and values, one a line; a dict as its entries side by side."""
    table = Table(show_header=False, box=None)
    for name, value in pairs.items():
        shown = "  ".join(f"{k} {_figure(v)}" for k, v in value.items()) if isinstance(value, dict) else _figure(value)
        table.add_row(name, plain(shown or "–"))
    console().print(table)


def _figure(value: Any) -> str:
    match value:
        case bool():
            return str(value)
        case int():
            return f"{value:,}"
        case float():
            return f"{value:.3g}"
    return str(value)


def check_place(out: Path) -> None:
    """Refuse, before any work, a place that could not be written to in the end."""
    nearest = next(parent for parent in (out.absolute(), *out.absolute().parents) if parent.exists())
    if not nearest.is_dir() or (out.is_symlink() and not out.exists()):
        raise UserError(f"{out}: cannot be made, for {nearest} is not a directory; choose another --out")
    probe = nearest / f".{out.name}.partial.try"  # as long as the longest name that will be used
    try:
        probe.mkdir(exist_ok=True)
        probe.rmdir()
    except OSError as error:
        raise UserError(f"{out}: cannot be made in {nearest} ({error.strerror}); choose another --out") from error


@contextmanager
def byte_progress() -> Iterator[tuple[Progress, Any]]:
    """A progress bar of bytes with rate and time left, on standard error; silent where that is no terminal."""
    shown = console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=shown, transient=True, disable=not shown.is_terminal) as progress:
        yield progress, progress.add_task("", total=None, note="")


@dataclass(frozen=True)
class Shown:
    """A progress bar of the share that is done."""

    progress: Progress
    task: TaskID

    def share(self, done: float) -> None:
        self.progress.update(self.task, completed=done)

    def tell(self, what: str, done: float) -> None:
        self.progress.update(self.task, description=plain(what), completed=done)


@contextmanager
def share_progress(what: str) -> Iterator[Shown]:
    """A bar of the share that is done, with the time left, on standard error; silent where that is no terminal."""
    shown = console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Progress(*columns, console=shown, transient=True, disable=not shown.is_terminal) as progress:
        yield Shown(progress, progress.add_task(what, total=1.0))
