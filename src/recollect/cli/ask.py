"""Ask a saved memory: recall, when, know, forecast, project."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recollect.cli import options as opt
from recollect.cli.rendering import check_memory_place, print_json, print_line, print_rows, share_progress
from recollect.errors import UserError

if TYPE_CHECKING:
    from recollect.memory.memory import Memory

REASONS = 3  # stored facts that --why names for each answer
Why = Annotated[bool, typer.Option("--why", help="Name the facts that speak for predicted answers.")]


def recall(
    memory: opt.MemoryDir,
    subject: opt.Subject = None,
    predicate: opt.Predicate = None,
    object: opt.Object = None,
    time: opt.Time = None,
    top: opt.Top = 10,
    include: opt.Include = "all",
    why: Why = False,
    known_at: opt.KnownAt = None,
    as_json: opt.Json = False,
) -> None:
    """Recall the one part of a fact that is left out. Stored answers come first.

    \b
    recollect recall world.memory --predicate Visits --object Drinia --time 2004
    recollect recall world.memory --subject Drinia --predicate Visits --time 2004
    recollect recall world.memory --subject Drinia --object Felmark --time 2004
    Next: recollect know world.memory
    """
    from recollect.memory.memory import load

    given = {"subject": subject, "predicate": predicate, "object": object, "time": time}
    answers = load(memory).recall(**given, top=top, include=include, explain=REASONS if why else 0, known_at=known_at)
    print_answers(answers.to_dicts(), as_json)


def when(
    memory: opt.MemoryDir,
    subject: Annotated[str, typer.Option(help="Label of the subject.")],
    predicate: Annotated[str, typer.Option(help="Label of the predicate.")],
    object: Annotated[str, typer.Option(help="Label of the object.")],
    known_at: opt.KnownAt = None,
    as_json: opt.Json = False,
) -> None:
    """List the intervals in which a fact held. The likeliest other one comes last.

    \b
    recollect when world.memory --subject Drinia --predicate Visits --object Volia
    Next: recollect ask world.memory
    """
    from recollect.memory.memory import load

    print_answers(load(memory).when(subject, predicate, object, known_at=known_at).to_dicts(), as_json)


def know(
    memory: opt.MemoryDir,
    subject: opt.Subject = None,
    predicate: opt.Predicate = None,
    object: opt.Object = None,
    as_of: opt.AsOf = None,
    top: opt.Top = 10,
    include: opt.Include = "all",
    known_at: opt.KnownAt = None,
    as_json: opt.Json = False,
) -> None:
    """List what holds now, or held as of a time. Stored facts come before likely ones.

    \b
    recollect know world.memory --predicate "President of" --as-of 2004-05
    recollect know world.memory --object Reathland
    recollect know world.memory --as-of 2004 --include stored
    Next: recollect ask world.memory
    """
    from recollect.memory.memory import load

    loaded = load(memory)
    say_period_end(loaded, as_of)
    given: dict[str, Any] = {"subject": subject, "predicate": predicate, "object": object, "as_of": as_of}
    given["known_at"] = known_at
    with share_progress("starts and ends") as progress:
        answers = loaded.know(**given, top=top, include=include, progress=progress.update)
    print_answers(answers.to_dicts(), as_json)
    if not as_json and answers.height == top and (answers["status"] == "stored").all():
        count = loaded.know(**given, top=sys.maxsize, include="stored").height
        if count > top:
            print_line(f"{top:,} of {count:,} stored facts; --top {count} shows all", err=True)


def forecast(
    memory: opt.MemoryDir,
    subject: opt.Subject = None,
    predicate: opt.Predicate = None,
    object: opt.Object = None,
    horizon: Annotated[int, typer.Option(help="Steps after the last stored time.")] = 7,
    top: Annotated[int, typer.Option(min=1, help="Number of facts in each step.")] = 10,
    why: Why = False,
    known_at: opt.KnownAt = None,
    as_json: opt.Json = False,
) -> None:
    """List the likeliest facts of each of the next steps.

    \b
    recollect forecast world.memory
    recollect forecast world.memory --subject Reathland --why
    recollect forecast world.memory --predicate "President of" --horizon 3 --top 5
    Next: recollect evaluate world.memory
    """
    from recollect.memory.memory import load

    given = {"subject": subject, "predicate": predicate, "object": object}
    found = load(memory).forecast(**given, horizon=horizon, top=top, explain=REASONS if why else 0, known_at=known_at)
    print_answers(found.to_dicts(), as_json)


def project(
    memory: opt.MemoryDir,
    out: Annotated[Path, typer.Option(help="Folder of the semantic memory.")],
    as_of: opt.AsOf = None,
    force: opt.Force = False,
    as_json: opt.Json = False,
) -> None:
    """Save what holds as of a time as a semantic memory. It is read like any other.

    \b
    recollect project world.memory --out now.memory
    recollect project world.memory --as-of 2004-05 --out then.memory
    recollect project world.memory --as-of 2004 --out then.memory --force
    Next: recollect show then.memory
    """
    from recollect.memory.memory import load

    if out.exists() and out.samefile(memory):
        raise UserError(f"{out} is the memory that is projected, and would be lost; choose another --out")
    check_memory_place(out, replace=force)
    loaded = load(memory)
    say_period_end(loaded, as_of)
    with share_progress("starts and ends") as progress:
        semantic = loaded.project(as_of, progress=progress.update)
    semantic.save(out, overwrite=force)
    about = {"out": str(out), **semantic.model.config.to_dict(), "as_of": semantic.about["projection"]["as_of"]}
    if as_json:
        print_json(about)
    else:
        print_line(f"{out}: {about['model']}, {len(semantic.graph.split('train')):,} facts as of {about['as_of']}")


def print_answers(rows: list[dict[str, Any]], as_json: bool) -> None:
    """Print the answers of a memory; a table rounds scores and probabilities, and has no column of no scores."""
    if not as_json:
        scored = any(row.get("score") is not None for row in rows)
        rows = [
            {name: value for name, value in row.items() if name != "score" or scored}
            | ({"score": "" if row["score"] is None else f"{row['score']:.3f}"} if scored else {})
            | {"probability": f"{row['probability']:.3f}"}
            | ({"model_share": _percent(row["model_share"])} if "model_share" in row else {})
            | ({"why": _reasons(row["why"])} if "why" in row else {})
            for row in rows
        ]
    print_rows(rows, as_json)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def _reasons(why: list[dict[str, Any]] | None) -> str:
    """Return stored facts with their shares of the evidence."""
    parts = ("subject", "predicate", "object", "time")
    return "; ".join(f"{fact['share']:.0%} {' · '.join(fact[part] for part in parts)}" for fact in why or [])


def say_period_end(memory: Memory, as_of: str | None) -> None:
    """Print, on standard error, the time that stands for a period: its last."""
    from recollect.memory.answering.periods import is_period, parse_period
    from recollect.memory.answering.questions import steps_ahead

    times = memory.graph.times
    if "t" in memory.scorer.slots and is_period(times, as_of):
        period = parse_period(times, as_of or "", ahead=steps_ahead(memory.graph))
        print_line(f"as of {times.label(period.last)}, the end of {as_of}", err=True)
