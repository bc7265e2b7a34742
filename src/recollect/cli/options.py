"""Arguments and options that several commands share, each declared once with its help, and what they stand for."""

from __future__ import annotations

from glob import has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from recollect.cli.rendering import byte_progress, plain, print_line
from recollect.errors import UserError

if TYPE_CHECKING:
    from recollect.graph.facts import EpisodicGraph

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Force = Annotated[bool, typer.Option("--force", help="Replace what is at --out.")]

Data = Annotated[str, typer.Argument(help="A file, a folder, FILE::TABLE, - or a dataset.")]
Columns = Annotated[
    str | None,
    typer.Option(help="subject=NAME,object=NAME,predicate==TEXT,…"),
]
Grain = Annotated[
    str | None,
    typer.Option(help="year, month, week, day, hour …; none: no time."),
]
Dates = Annotated[
    str | None,
    typer.Option(help="dmy, mdy, ymd, unix, excel, or %d/%m/%y."),
]
InclusiveEnd = Annotated[bool, typer.Option("--inclusive-end", help="Facts hold at their end time too.")]
AllowEmpty = Annotated[bool, typer.Option("--allow-empty", help="Keep empty cells as labels.")]
Split = Annotated[str | None, typer.Option(help="random, time, none; by default as in DATA.")]

MemoryDir = Annotated[Path, typer.Argument(help="A saved memory.", metavar="DIR")]
Subject = Annotated[str | None, typer.Option(help="Label of the subject.")]
Predicate = Annotated[str | None, typer.Option(help="Label of the predicate.")]
Object = Annotated[str | None, typer.Option(help="Label of the object.")]
Time = Annotated[str | None, typer.Option(help="A time, a period (2014 of days), or FIRST..LAST.")]
AsOf = Annotated[str | None, typer.Option(metavar="TIME", help="A time, or a period: its end; by default the last.")]
KnownAt = Annotated[str | None, typer.Option(metavar="MOMENT", help="Answer with what was known then (UTC).")]
Top = Annotated[int, typer.Option(min=1, help="Number of answers.")]
Include = Annotated[str, typer.Option(help="all, stored or predicted answers.")]

Model = Annotated[
    str,
    typer.Option(help="auto, history, cont, cont+complex …"),
]
Dim = Annotated[int | None, typer.Option(help="Embedding size; by default by the data.")]
RecipeName = Annotated[str, typer.Option(help="modern, paper, or a file of a search.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A setting: recollect recipes show.",
    ),
]
Epochs = Annotated[int | None, typer.Option(help="Epochs at most.")]
Seed = Annotated[int, typer.Option(help="Seed of splits and training.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, mps …")]


def load_graph(
    data: str,
    columns: str | None = None,
    grain: str | None = None,
    dates: str | None = None,
    inclusive_end: bool = False,
    allow_empty: bool = False,
) -> EpisodicGraph:
    """Return a named dataset, or the graph in a file or folder; ./NAME is a folder even if a dataset has that name."""
    from recollect.io.atomic import existing_folder
    from recollect.io.datasets import DATASETS, dataset
    from recollect.io.tables import read
    from recollect.io.tables.files import is_address

    if data.partition("/")[0] in DATASETS:
        if columns or grain or dates or inclusive_end or allow_empty:
            raise UserError(
                f"{data} is a dataset; leave out what tells how to read a file, or write ./{data} for yours"
            )
        with byte_progress() as (bar, task):
            bar.update(task, description=plain(data))
            return dataset(data, progress=lambda done, total: bar.update(task, completed=done, total=total))
    if not data or not (is_address(data) or has_magic(data) or existing_folder(Path(data)).exists()):
        raise UserError(
            f"{data}: no such file, folder or dataset; correct the path, or choose one of {', '.join(DATASETS)}"
        )
    static = grain == "none"
    graph = read(
        data,
        columns=parse_columns(columns),
        grain=None if static else grain,
        dates=dates,
        static=static,
        inclusive_end=inclusive_end,
        allow_empty=allow_empty,
    )
    for note in graph.notes:
        print_line(f"note: {note}", err=True)
    return graph


def parse_columns(text: str | None) -> dict[str, str | int]:
    """Return the column of each role: parse_columns("subject=who,time=3") == {"subject": "who", "time": 3}."""
    columns: dict[str, str | int] = {}
    for word in (text or "").split(","):
        role, equals, name = word.partition("=")
        if word and not equals:
            raise UserError(f"cannot read --columns {word!r}; write role=name, like subject=who,time=when")
        if word:
            columns[role.strip()] = int(name) if name.isdecimal() else name
    return columns


def split_graph(graph: EpisodicGraph, how: str | None, seed: int = 0) -> EpisodicGraph:
    """Split a graph: at random, by time or not at all ("none"); None keeps existing splits, else at random."""
    from recollect.graph.episodes import split_by_time, split_randomly, unsplit

    if how not in (None, "random", "time", "none"):
        raise UserError(f"unknown split {how!r}; choose random, time or none")
    if how is None and len(graph.splits) > 1:
        return graph
    if how == "none":
        return unsplit(graph)
    return split_by_time(graph) if how == "time" else split_randomly(graph, seed=seed)
