"""The commands that look at data, fetch, build and export it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer

from recollect.cli.rendering import byte_progress, check_place, console, plain, print_json, print_pairs, print_rows
from recollect.errors import UserError
from recollect.graph.describe import describe, sparkline
from recollect.graph.facts import EpisodicGraph
from recollect.io.datasets import DATASETS, dataset, find_dataset
from recollect.io.datasets.derived import VIEWS
from recollect.io.datasets.download import fetch, locate
from recollect.io.datasets.registry import CAMEO, Dataset
from recollect.io.events import EventRecipe, event_files, read_events
from recollect.io.events.cameo import code_names
from recollect.io.exchange import FORMATS, check_format, is_export, write_graph
from recollect.io.plots import check_figure, graph_overview
from recollect.io.tables import read

app = typer.Typer(help="Named datasets, files of facts, raw events.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Columns = Annotated[
    str | None, typer.Option(help="Tell columns: subject=NAME,…; in a file without a header, subject=0,….")
]
Grain = Annotated[str | None, typer.Option(help="Time grain: year, month, week, day, hour or ordinal.")]
InclusiveEnd = Annotated[bool, typer.Option("--inclusive-end", help="A fact still holds in its end.")]
Static = Annotated[bool, typer.Option("--static", help="Read triples without time.")]
Data = Annotated[
    str, typer.Argument(help="A dataset, a view of one (NAME/starts), or the path of a file, a folder or a graph.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace the graph that is at --out.")]


@app.command("list")
def data_list(as_json: Json = False) -> None:
    """List the named datasets, how large they are, and whether their files are here.

    Every one has the views NAME/rare, NAME/starts, NAME/ends and NAME/current.

    Example: `recollect data list`
    """
    if as_json:
        print_json([{"name": name, **_entry(entry)} for name, entry in DATASETS.items()])
        return
    rows = [
        {
            "name": name,
            "entities × predicates × times": " × ".join(f"{n:,}" for n in entry.sizes or ()),
            "rows": " / ".join(f"{n:,}" for n in entry.rows.values()),
            "files": _whereabouts(entry),
            "about": entry.about,
        }
        for name, entry in DATASETS.items()
    ]
    print_rows(rows, as_json)


@app.command("show")
def data_show(
    data: Data,
    columns: Columns = None,
    grain: Grain = None,
    static: Static = False,
    inclusive_end: InclusiveEnd = False,
    figure: Annotated[Path | None, typer.Option(help="Save a picture here (.png, .svg, .pdf).")] = None,
    as_json: Json = False,
) -> None:
    """Show sizes, density, the busiest entities and predicates, facts over time and how long facts last.

    Example: `recollect data show world --figure world.png`
    """
    if figure is not None:
        check_figure(figure)
    graph = graph_of(data, columns, grain, static, inclusive_end)
    about = describe(graph)
    if figure is not None:
        graph_overview(about, figure)
    if as_json:
        print_json(about)
        return
    drawn = {"run_lengths", "over_time"}
    print_pairs({name.replace("_", " "): value for name, value in about.items() if name not in drawn})
    width = max(10, console().width - len(about["from"] + about["to"]) - 22)
    print_pairs({"facts over time": f"{about['from']} {sparkline(about['over_time'], width)} {about['to']}"})
    few = graph.facts[:5]
    extras = {"value": few.value, "weight": few.weight}
    told = [pl.Series(name, extra.tolist()) for name, extra in extras.items() if extra is not None]
    print_rows(graph.table(few).with_columns(*told).to_dicts(), False)


@app.command("fetch")
def data_fetch(
    names: Annotated[list[str], typer.Argument(help="Datasets.")],
    as_json: Json = False,
) -> None:
    """Download the files of datasets into the cache, unless they are there already.

    Example: `recollect data fetch icews14 wikidata12k`
    """
    entries = {name: find_dataset(name) for name in names}
    rows = [row for name, entry in entries.items() for row in _fetch(name, entry)]
    if rows or as_json:
        print_rows(rows, as_json)
    else:
        typer.echo(f"{', '.join(names)}: nothing to fetch")


@app.command("build")
def data_build(
    sources: Annotated[list[str], typer.Argument(help="Event files, folders or patterns; plain, .gz or .zip.")],
    out: Annotated[Path, typer.Option(help="Folder for the graph.")],
    actors: Annotated[str, typer.Option(help="name, country or sector.")] = "country",
    predicates: Annotated[str, typer.Option(help="code (CAMEO), name, or root (its first two digits).")] = "root",
    grain: Annotated[str, typer.Option(help="Time grain: year, month, week or day.")] = "day",
    since: Annotated[str | None, typer.Option(help="First date, like 2018-10-04 or 2018.")] = None,
    until: Annotated[str | None, typer.Option(help="Last date, included.")] = None,
    entities: Annotated[int | None, typer.Option(help="Keep only so many entities, the most frequent.")] = None,
    self_loops: Annotated[bool, typer.Option(help="Keep events between an actor and itself.")] = True,
    counts: Annotated[bool, typer.Option("--counts/--presence", help="Weigh facts by their events, or not.")] = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Build a graph from raw ICEWS or GDELT event files of any size, accounting for every row.

    Example: `recollect data build 'events/*.export.CSV.zip' --grain month --out gdelt.graph`
    """
    recipe = EventRecipe(
        actors=actors,
        predicates=predicates,
        grain=grain,
        since=since,
        until=until,
        entities=entities,
        self_loops=self_loops,
        counts=counts,
    )
    _check_out(out, force)
    files = event_files(sources)
    with byte_progress() as (bar, task):
        bar.update(task, description="building")
        graph = read_events(
            files,
            recipe,
            names=lambda: code_names(fetch(CAMEO)),
            name=out.name,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    inputs = [{"name": path.name, "bytes": path.stat().st_size} for path in files]
    write_graph(graph, out, about={"recipe": asdict(recipe), "inputs": inputs}, overwrite=force)
    summary = {
        "out": str(out),
        "rows": sum(graph.rows.values()),
        "facts": len(graph.facts),
        "duplicates": graph.duplicates,
        "dropped": dict(graph.dropped),
        "entities": len(graph.entities),
        "predicates": len(graph.predicates),
        "times": len(graph.times),
        "fingerprint": graph.fingerprint,
    }
    if as_json:
        print_json(summary)
        return
    print_pairs(summary)
    parts = {"facts": len(graph.facts), "duplicates": graph.duplicates, **graph.dropped}
    typer.echo(f"{summary['rows']:,} rows = " + " + ".join(f"{count:,} {what}" for what, count in parts.items()))


@app.command("export")
def data_export(
    data: Data,
    out: Annotated[Path, typer.Option(help="Folder for the export.")],
    format: Annotated[str, typer.Option(help=f"One of {', '.join(FORMATS)}.")] = "parquet",
    columns: Columns = None,
    grain: Grain = None,
    static: Static = False,
    inclusive_end: InclusiveEnd = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write a graph for other tools; whatever reads a folder reads it back.

    Example: `recollect data export world --format nquads --out world.rdf`
    """
    check_format(format)
    _check_out(out, force)
    graph = graph_of(data, columns, grain, static, inclusive_end)
    write_graph(graph, out, format, overwrite=force)
    summary = {"out": str(out), "format": format, "facts": len(graph.facts), "fingerprint": graph.fingerprint}
    if as_json:
        print_json(summary)
    else:
        typer.echo(f"{out}: {len(graph.facts):,} facts as {format}")


def graph_of(data: str, columns: str | None, grain: str | None, static: bool, inclusive_end: bool) -> EpisodicGraph:
    """A named dataset, or what a file or folder holds; ./NAME is a folder even where a dataset has that name."""
    if data.partition("/")[0] in DATASETS:
        if columns or grain or static or inclusive_end:
            raise UserError(
                f"{data} is a dataset; leave out what tells how to read a file, or write ./{data} for yours"
            )
        with byte_progress() as (bar, task):
            bar.update(task, description=plain(data))
            return dataset(data, progress=lambda done, total: bar.update(task, completed=done, total=total))
    if not data or not Path(data).exists():
        raise UserError(f"{data}: neither a file or folder nor a dataset; the datasets are {', '.join(DATASETS)}")
    return read(data, columns=_parse_columns(columns), grain=grain, static=static, inclusive_end=inclusive_end)


def _fetch(name: str, entry: Dataset) -> list[dict[str, Any]]:
    """The files of a dataset, downloaded with a progress bar where they are not here."""
    rows = []
    with byte_progress() as (bar, task):
        for file in entry.files.values():
            bar.update(task, description=plain(file.path))
            path = fetch(file, lambda done, total: bar.update(task, completed=done, total=total))
            rows.append(
                {"dataset": name, "file": file.path, "path": str(path), "checked": "sha1" if file.sha1 else "rows"}
            )
    return rows


def _entry(entry: Dataset) -> dict[str, Any]:
    return {
        "about": entry.about,
        "sizes": dict(zip(("entities", "predicates", "times"), entry.sizes, strict=True)) if entry.sizes else None,
        "rows": dict(entry.rows),
        "licence": entry.licence,
        "source": entry.source,
        "files": [{"path": file.path, "url": file.url, "sha1": file.sha1} for file in entry.files.values()],
        "views": list(VIEWS),
        "here": _whereabouts(entry),
    }


def _whereabouts(entry: Dataset) -> str:
    """Whether the files of a dataset are here, can be fetched, or must be given."""
    try:
        missing = [file for file in entry.files.values() if locate(file) is None]
    except UserError:
        return "refused"
    if not missing:
        return "here"
    return "to fetch" if all(file.url for file in missing) else "to be given"


def _check_out(out: Path, force: bool) -> None:
    if out.exists() and not force:
        raise UserError(f"{out} exists; choose another --out, or replace it with --force")
    if out.exists() and not is_export(out):
        raise UserError(f"{out} exists and is no graph, so it is not replaced; choose another --out")
    check_place(out)


def _parse_columns(text: str | None) -> dict[str, str | int]:
    columns: dict[str, str | int] = {}
    for word in (text or "").split(","):
        role, equals, name = word.partition("=")
        if word and not equals:
            raise UserError(f"cannot read --columns {word!r}; write role=name, like subject=who,time=when")
        if word:
            columns[role.strip()] = int(name) if name.isdecimal() else name
    return columns
