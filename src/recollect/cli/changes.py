"""Change a saved memory: remember, forget, journal, consolidate, watch."""

from __future__ import annotations

import time as clock
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recollect.cli import options as opt
from recollect.cli.rendering import plural, print_json, print_line, print_rows, share_progress
from recollect.errors import UserError

if TYPE_CHECKING:
    import polars as pl

SHOWN = 20  # changes that are printed one by one

Facts = Annotated[str | None, typer.Argument(help="A file of facts, as `recollect train` reads it.", metavar="FILE")]
Start = Annotated[str | None, typer.Option(help="The first time of an interval.")]
End = Annotated[str | None, typer.Option(help="The time before which it ends.")]


def remember(
    memory: opt.MemoryDir,
    facts: Facts = None,
    subject: opt.Subject = None,
    predicate: opt.Predicate = None,
    object: opt.Object = None,
    time: opt.Time = None,
    start: Start = None,
    end: End = None,
    columns: opt.Columns = None,
    dates: opt.Dates = None,
    inclusive_end: opt.InclusiveEnd = False,
    as_json: opt.Json = False,
) -> None:
    """Store new facts, without training. All open memories answer with them.

    \b
    recollect remember world.memory new.csv
    recollect remember DIR --subject Iran --predicate Visits --object Oman --time 2006
    Next: recollect journal world.memory
    """
    from recollect.memory.memory import load

    changed = load(memory).remember(
        facts, subject=subject, predicate=predicate, object=object, time=time, start=start, end=end,
        columns=opt.parse_columns(columns), dates=dates, inclusive_end=inclusive_end,
    )  # fmt: skip
    print_change(changed, as_json, "every fact is stored already")


def forget(
    memory: opt.MemoryDir,
    facts: Facts = None,
    entity: Annotated[str | None, typer.Option(help="Label of an entity to remove altogether.")] = None,
    subject: opt.Subject = None,
    predicate: opt.Predicate = None,
    object: opt.Object = None,
    time: opt.Time = None,
    start: Start = None,
    end: End = None,
    columns: opt.Columns = None,
    dates: opt.Dates = None,
    inclusive_end: opt.InclusiveEnd = False,
    yes: Annotated[bool, typer.Option("--yes", help="Forget facts of several triples, or an entity.")] = False,
    as_json: opt.Json = False,
) -> None:
    """Remove stored facts. Parts that are left out match everything.

    \b
    recollect forget DIR --subject Iran --predicate Visits --object Oman --time 2006
    recollect forget world.memory --subject Reathland --time 2004 --yes
    recollect forget world.memory --entity "Bran Nethova" --yes
    Next: recollect journal world.memory
    """
    from recollect.memory.memory import load

    loaded = load(memory)
    asked: dict[str, Any] = {
        "entity": entity, "subject": subject, "predicate": predicate, "object": object, "time": time, "start": start,
        "end": end, "columns": opt.parse_columns(columns), "dates": dates, "inclusive_end": inclusive_end,
    }  # fmt: skip
    if not yes and entity is not None:
        tables = (loaded.forget(subject=entity, preview=True), loaded.forget(object=entity, preview=True))
        count = len({row for table in tables for row in table.rows()})
        raise UserError(f"{entity} would be removed altogether, with {plural(count, 'run')} of facts; if so, add --yes")
    changes = loaded.forget(facts, **asked, check=None if yes else refuse_many)
    print_change(changes, as_json, "nothing like that is stored")


def refuse_many(changes: pl.DataFrame) -> None:
    """Raise UserError if facts of several triples would be forgotten."""
    count = changes.select("subject", "predicate", "object").n_unique()
    if count > 1:
        raise UserError(
            f"{plural(changes.height, 'run')} of {plural(count, 'triple')} would be forgotten; if so, add --yes"
        )


def journal(
    memory: opt.MemoryDir,
    since: Annotated[str | None, typer.Option(metavar="MOMENT", help="From this date or moment on, in UTC.")] = None,
    until: Annotated[str | None, typer.Option(metavar="MOMENT", help="Until this date or moment, in UTC.")] = None,
    as_json: opt.Json = False,
) -> None:
    """List what was remembered and forgotten, and when (UTC).

    \b
    recollect journal world.memory
    recollect journal world.memory --since 2026-03-01 --json
    Next: recollect consolidate world.memory
    """
    from recollect.memory.memory import load

    changes = load(memory).changes(since, until)
    if changes.is_empty() and not as_json:
        print_line("no changes")
        return
    print_rows(change_rows(changes, as_json), as_json)


def consolidate(memory: opt.MemoryDir, as_json: opt.Json = False) -> None:
    """Train again on all that is stored, from the present weights.

    The memory answers and changes meanwhile; what was erased leaves no trace in the files.

    \b
    recollect consolidate world.memory
    Next: recollect evaluate world.memory
    """
    from recollect.memory.memory import load

    loaded = load(memory)
    began = clock.monotonic()
    with share_progress("history") as progress:
        is_changed = loaded.consolidate(show=lambda: nullcontext(progress.update))
    about = {
        "memory": str(memory),
        "changed": is_changed,
        "facts": loaded.graph.counts["train"],
        "seconds": round(clock.monotonic() - began, 1),
    }
    if as_json:
        print_json(about)
    elif is_changed:
        print_line(f"{memory}: learned {about['facts']:,} facts in {about['seconds']} s")
    else:
        print_line(f"{memory}: nothing was changed since it was learned")


def watch(
    memory: opt.MemoryDir,
    folder: Annotated[Path, typer.Argument(help="A folder to which files of facts are added.", metavar="FOLDER")],
    once: Annotated[bool, typer.Option("--once", help="Remember what is there, and exit.")] = False,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between looks.")] = 2.0,
    columns: opt.Columns = None,
    dates: opt.Dates = None,
    inclusive_end: opt.InclusiveEnd = False,
    as_json: opt.Json = False,
) -> None:
    """Remember every new file of a folder, each once, until Ctrl-C.

    Files are taken by name when they no longer grow; hidden and temporary ones are left alone.

    \b
    recollect watch world.memory events/
    recollect watch world.memory events/ --once
    Next: recollect journal world.memory
    """
    from recollect.cli.train import stop_signals
    from recollect.memory.journal.watching import Watcher
    from recollect.memory.timeline import Timeline

    options = {"columns": opt.parse_columns(columns), "dates": dates, "inclusive_end": inclusive_end}
    watcher = Watcher(Timeline.load(memory), folder, options)
    with stop_signals() as received:
        for found in watcher.watch(interval, once=once, is_stopped=lambda: bool(received)):
            added = 0 if found.changes is None else found.changes.height
            if as_json:
                print_json({"file": found.name, "added": added, "error": found.error})
            elif found.error is None:
                print_line(f"{found.name}: {plural(added, 'run')} added")
            else:
                print_line(f"{found.name}: not remembered: {found.error}", err=True)


def print_change(changes: pl.DataFrame, as_json: bool, nothing: str) -> None:
    """Print what one event changed: all of it as JSON, else the number, and the changes if they are few."""
    rows = change_rows(changes, as_json)
    if as_json:
        print_json(rows)
    elif not rows:
        print_line(f"{nothing}; nothing was changed")
    elif len(rows) > SHOWN:
        counts = changes["change"].value_counts(sort=True).rows()
        print_line(", ".join(f"{plural(count, 'run')} {change}" for change, count in counts))
    else:
        print_rows(rows, as_json)


def change_rows(changes: pl.DataFrame, as_json: bool) -> list[dict[str, Any]]:
    """Return changes as rows; a table leaves nulls empty, and moments have an ISO text."""
    rows = [row | {"known_at": row["known_at"].isoformat()} for row in changes.to_dicts()]
    if as_json:
        return rows
    return [{name: "" if value is None else value for name, value in row.items()} for row in rows]
