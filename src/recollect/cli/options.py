"""Arguments and options that several commands share, each declared once with its help, and what they stand for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from glob import has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recollect.cli.rendering import byte_progress, plain, print_line
from recollect.errors import UserError

if TYPE_CHECKING:
    from recollect.graph.facts import EpisodicGraph
    from recollect.training.recipe import Recipe

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Force = Annotated[bool, typer.Option("--force", help="Replace what is at --out.")]

Data = Annotated[
    str,
    typer.Argument(
        help="A dataset, a view (NAME/starts), a file (- is standard input), FILE::TABLE, a folder or graph."
    ),
]
Columns = Annotated[
    str | None,
    typer.Option(help="subject=NAME or position,…; predicate==TEXT for all rows."),
]
Grain = Annotated[
    str | None,
    typer.Option(help="year, quarter, month, week, day, hour, ordinal."),
]
Dates = Annotated[
    str | None,
    typer.Option(help="dmy, mdy, ymd, unix, excel or like %d/%m/%y."),
]
InclusiveEnd = Annotated[bool, typer.Option("--inclusive-end", help="Facts still hold at their end time.")]
AllowEmpty = Annotated[bool, typer.Option("--allow-empty", help="Keep empty cells as labels.")]
Split = Annotated[str | None, typer.Option(help="random, time or none; by default that of DATA.")]

MemoryDir = Annotated[Path, typer.Argument(help="A saved memory.", metavar="DIR")]
Subject = Annotated[str | None, typer.Option(help="Label of the subject.")]
Predicate = Annotated[str | None, typer.Option(help="Label of the predicate.")]
Object = Annotated[str | None, typer.Option(help="Label of the object.")]
Time = Annotated[str | None, typer.Option(help="A time, a period such as 2014 of daily data, or FIRST..LAST.")]
AsOf = Annotated[str | None, typer.Option(metavar="TIME", help="A time, or the end of a period; by default the last.")]
KnownAt = Annotated[str | None, typer.Option(metavar="MOMENT", help="Answer with what was known then, in UTC.")]
Top = Annotated[int, typer.Option(min=1, help="Number of answers.")]
Include = Annotated[str, typer.Option(help="all, stored or predicted answers.")]

Model = Annotated[
    str,
    typer.Option(help="auto, history, cont+complex, … (recollect models)."),
]
Dim = Annotated[int | None, typer.Option(help="Embedding size; by default from the data.")]
PredicateDim = Annotated[int | None, typer.Option(help="Embedding size of predicates, if it differs.")]
Form = Annotated[str, typer.Option(help="episodic or semantic (without time).")]
Static = Annotated[bool | None, typer.Option("--static/--no-static", help="Add the semantic equation to it.")]
Reciprocal = Annotated[
    bool | None,
    typer.Option(
        "--reciprocal/--no-reciprocal",
        help="Train inverse predicates as well.",
    ),
]
RecipeName = Annotated[str, typer.Option(help="modern, paper or a file of a search.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A setting (recollect recipes show); repeatable.",
    ),
]
Epochs = Annotated[int | None, typer.Option(help="Number of epochs at most.")]
Seed = Annotated[int, typer.Option(help="Seed of splits and training.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, mps …")]

# what --set takes apart from the settings of a recipe: name -> (default, help)
MODEL_SETTINGS = {
    "dtype": ("float32", "Number type of the weights: float32, float64."),
    "time_dim": ("auto", "Embedding size of times, if the model allows another."),
    "time_levels": ("auto", "Spacings of the knots that times are interpolated from, like 1,5,25."),
}


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
        raise UserError(f"{data}: neither a file or folder nor a dataset; the datasets are {', '.join(DATASETS)}")
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


def choose_recipe(
    name: str, settings: Sequence[str] | None, epochs: int | None = None
) -> tuple[Recipe, dict[str, Any]]:
    """Return the recipe with the changes of --set and --epochs, and the settings of the model.

    A setting that the recipe's loss does not use is refused.
    """
    from recollect.models.time_knots import parse_time_levels
    from recollect.training.recipe import USED_BY, parse_recipe

    changes = parse_settings(settings or ())
    if epochs is not None and "epochs" in changes:
        raise UserError("epochs is given by --epochs and by --set; give one of them")
    if epochs is not None:
        changes["epochs"] = epochs
    of_model: dict[str, Any] = {each: changes.pop(each, default) for each, (default, _) in MODEL_SETTINGS.items()}
    levels = of_model["time_levels"]
    of_model["time_levels"] = None if levels == "auto" else parse_time_levels(levels)
    time_dim = of_model["time_dim"]
    if time_dim != "auto" and not time_dim.isdecimal():
        raise UserError(f"time_dim must be a whole number from 1; got {time_dim!r}")
    of_model["time_dim"] = None if time_dim == "auto" else int(time_dim)
    recipe = replace(parse_recipe(name), **changes)
    for setting in changes:
        losses = USED_BY.get(setting, (recipe.loss,))
        if recipe.loss not in losses:
            raise UserError(
                f"{setting} means nothing to the {recipe.loss} loss; "
                f"leave it out, or choose --set loss={' or '.join(losses)}"
            )
    return recipe, of_model


def parse_settings(settings: Sequence[str]) -> dict[str, Any]:
    """Return the value of each NAME=VALUE, parsed by the type of the recipe's field."""
    from recollect.training.recipe import Recipe

    names = [field.name for field in fields(Recipe)]
    values: dict[str, Any] = {}
    for text in settings:
        name, equals, value = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals:
            raise UserError(f"cannot read --set {text!r}; write name=value, like epochs=20")
        if name not in (*names, *MODEL_SETTINGS):
            known = ", ".join((*names, *MODEL_SETTINGS))
            raise UserError(f"unknown setting {name!r}; `recollect recipes show modern` explains all: {known}")
        values[name] = value if name in MODEL_SETTINGS else Recipe.parse_option(name, value.strip())
    return values
