"""Commands that list, show, download, build and export graphs."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recollect.cli import options as opt
from recollect.cli.rendering import (
    byte_progress,
    check_place,
    plain,
    print_json,
    print_line,
    print_pairs,
    print_rows,
)
from recollect.errors import UserError

if TYPE_CHECKING:
    from recollect.graph.facts import EpisodicGraph
    from recollect.io.datasets.registry import Dataset
    from recollect.io.events import EventRecipe

HELP = """Files of facts, named datasets, raw events.

\b
recollect data show events.csv          what a file has, before it is learned
recollect data list                     datasets by name
recollect data export events.csv --out events.graph
Next: recollect train events.csv
"""
app = typer.Typer(help=HELP, no_args_is_help=True, rich_markup_mode=None)


@app.command("list")
def data_list(as_json: opt.Json = False) -> None:
    """List the named datasets and their sizes.

    Every one has the views NAME/rare, NAME/starts, NAME/ends and NAME/current.

    \b
    recollect data list
    Next: recollect data show world
    """
    from recollect.io.datasets import DATASETS

    if as_json:
        print_json([{"name": name, **_entry(entry)} for name, entry in DATASETS.items()])
        return
    rows = [
        {
            "name": name,
            "entities × predicates × times": " × ".join(f"{n:,}" for n in entry.sizes or ()),
            "rows": " / ".join(f"{n:,}" for n in entry.rows.values()),
            "files": _availability(entry),
            "about": entry.about,
        }
        for name, entry in DATASETS.items()
    ]
    print_rows(rows, as_json)


@app.command("show")
def data_show(
    data: opt.Data,
    columns: opt.Columns = None,
    grain: opt.Grain = None,
    dates: opt.Dates = None,
    inclusive_end: opt.InclusiveEnd = False,
    allow_empty: opt.AllowEmpty = False,
    figure: Annotated[Path | None, typer.Option(help="Save a figure here (.png, .svg, .pdf).")] = None,
    as_json: opt.Json = False,
) -> None:
    """Show what a graph holds: counts, busiest labels, facts over time.

    \b
    recollect data show events.csv
    recollect data show events.csv --grain month
    recollect data show world/starts --figure world.png
    Next: recollect train world
    """
    from recollect.cli.description import print_description
    from recollect.graph.describe import describe
    from recollect.io.plots import check_figure, graph_overview

    if figure is not None:
        check_figure(figure)
    graph = opt.load_graph(data, columns, grain, dates, inclusive_end, allow_empty)
    about = describe(graph)
    if figure is not None:
        graph_overview(about, figure)
    if as_json:
        print_json(about)
    else:
        print_description(graph, about, shlex.quote(data))


@app.command("fetch")
def data_fetch(
    names: Annotated[list[str], typer.Argument(help="Datasets.")],
    unverified: Annotated[
        bool, typer.Option("--unverified", help="Download files without a known checksum too.")
    ] = False,
    as_json: opt.Json = False,
) -> None:
    """Download datasets that are not here yet.

    \b
    recollect data fetch icews14
    recollect data fetch icews14 wikidata12k
    recollect data fetch yago11k --unverified
    Next: recollect train icews14
    """
    from recollect.io.datasets import find_dataset

    entries = {name: find_dataset(name) for name in names}
    rows = [row for name, entry in entries.items() for row in _fetch(name, entry, unverified)]
    if rows or as_json:
        print_rows(rows, as_json)
    else:
        print_line(f"{', '.join(names)}: nothing to fetch")


@app.command("build")
def data_build(
    sources: Annotated[list[str], typer.Argument(help="Event files, folders, patterns.")],
    out: Annotated[Path, typer.Option(help="Folder of the graph.")],
    actors: Annotated[str, typer.Option(help="name, country or sector.")] = "country",
    predicates: Annotated[str, typer.Option(help="code (CAMEO), name, or root.")] = "root",
    grain: Annotated[str, typer.Option(help="year, month, week, day.")] = "day",
    since: Annotated[str | None, typer.Option(help="First date, like 2018-10-04 or 2018.")] = None,
    until: Annotated[str | None, typer.Option(help="Last date, included.")] = None,
    entities: Annotated[int | None, typer.Option(help="Keep the most frequent entities.")] = None,
    self_loops: Annotated[bool, typer.Option(help="Keep events of an actor with itself.")] = True,
    counts: Annotated[bool, typer.Option("--counts/--presence", help="Weigh facts by events.")] = False,
    engine: Annotated[str, typer.Option(help="duckdb or spark.")] = "duckdb",
    master: Annotated[str | None, typer.Option(metavar="URL", help="Spark's master; by default this machine.")] = None,
    format: Annotated[str, typer.Option(help="See data formats.")] = "parquet",
    force: opt.Force = False,
    as_json: opt.Json = False,
) -> None:
    """Build a graph from raw ICEWS or GDELT events.

    \b
    recollect data build events.tab --out icews.graph
    recollect data build 'events/*.CSV.zip' --grain month --out gdelt.graph
    recollect data build events.tab --entities 500 --since 2018 --out big.graph
    recollect data build gdelt --engine spark --format partitioned --out gdelt.graph
    Next: recollect train gdelt.graph
    """
    from recollect.io.events import EventRecipe, check_engine
    from recollect.io.exchange import check_format

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
    check_engine(engine, master)
    check_format(format)
    check_graph_place(out, force)
    graph = build_graph(sources, recipe, out, engine=engine, master=master, format=format, force=force)
    about = {
        "out": str(out),
        "rows": sum(graph.rows.values()),
        "facts": sum(graph.counts.values()),
        "duplicates": graph.duplicates,
        "dropped": dict(graph.dropped),
        "entities": len(graph.entities),
        "predicates": len(graph.predicates),
        "times": len(graph.times),
        "fingerprint": graph.fingerprint,
    }
    if as_json:
        print_json(about)
        return
    print_pairs(about)
    parts = {"facts": sum(graph.counts.values()), "duplicates": graph.duplicates, **graph.dropped}
    print_line(f"{about['rows']:,} rows = " + " + ".join(f"{count:,} {what}" for what, count in parts.items()))


def build_graph(
    sources: list[str],
    recipe: EventRecipe,
    out: Path,
    *,
    engine: str = "duckdb",
    master: str | None = None,
    format: str = "parquet",
    force: bool = False,
) -> EpisodicGraph:
    """Read event files with a progress bar, write the graph to `out`, and return it."""
    from dataclasses import asdict

    from recollect.io.datasets.download import fetch
    from recollect.io.datasets.registry import CAMEO
    from recollect.io.events import event_files, read_events
    from recollect.io.events.cameo import code_names
    from recollect.io.exchange import write_graph

    files = event_files(sources)
    with byte_progress() as (bar, task):
        bar.update(task, description="building")
        graph = read_events(
            files,
            recipe,
            names=lambda: code_names(fetch(CAMEO)),
            name=out.name,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
            engine=engine,
            master=master,
        )
    inputs = [{"name": path.name, "bytes": path.stat().st_size} for path in files]
    write_graph(graph, out, format, about={"recipe": asdict(recipe), "inputs": inputs}, overwrite=force)
    return graph


@app.command("export")
def data_export(
    data: opt.Data,
    out: Annotated[Path, typer.Option(help="Folder of the export.")],
    format: Annotated[str, typer.Option(help="See recollect data formats.")] = "parquet",
    entities: Annotated[int | None, typer.Option(help="Keep the most frequent entities.")] = None,
    columns: opt.Columns = None,
    grain: opt.Grain = None,
    dates: opt.Dates = None,
    inclusive_end: opt.InclusiveEnd = False,
    allow_empty: opt.AllowEmpty = False,
    force: opt.Force = False,
    as_json: opt.Json = False,
) -> None:
    """Write a graph for other tools; all commands read it back.

    \b
    recollect data export world --out world.graph
    recollect data export world --format nquads --out world.rdf
    recollect data export world --format ids --entities 20 --out small
    Next: recollect data show world.graph
    """
    from recollect.graph.episodes import most_frequent
    from recollect.io.exchange import check_format, write_graph

    check_format(format)
    check_graph_place(out, force)
    graph = opt.load_graph(data, columns, grain, dates, inclusive_end, allow_empty)
    if entities is not None:
        graph = most_frequent(graph, entities)
    write_graph(graph, out, format, overwrite=force)
    count = sum(graph.counts.values())
    about = {"out": str(out), "format": format, "facts": count, "fingerprint": graph.fingerprint}
    if as_json:
        print_json(about)
    else:
        print_line(f"{out}: {count:,} facts as {format}")


@app.command("formats")
def data_formats(as_json: opt.Json = False) -> None:
    """List the formats of export, and if they keep weights.

    \b
    recollect data formats
    Next: recollect data export world --out world.graph
    """
    from recollect.io.exchange import FORMATS

    print_rows([{"format": name, "extras": each.extras} for name, each in FORMATS.items()], as_json)


def _fetch(name: str, entry: Dataset, unverified: bool) -> list[dict[str, Any]]:
    """Download the missing files of a dataset with a progress bar; return one row of the printed table per file."""
    from recollect.io.datasets.download import fetch

    rows = []
    with byte_progress() as (bar, task):
        for file in entry.files.values():
            bar.update(task, description=plain(file.path))
            path = fetch(file, lambda done, total: bar.update(task, completed=done, total=total), unverified=unverified)
            rows.append({"dataset": name, "file": file.path, "path": str(path), "checked": file.checked_by})
    return rows


def _entry(entry: Dataset) -> dict[str, Any]:
    """Return what `data list --json` prints of a dataset."""
    from recollect.io.datasets.derived import VIEWS

    return {
        "about": entry.about,
        "sizes": dict(zip(("entities", "predicates", "times"), entry.sizes, strict=True)) if entry.sizes else None,
        "rows": dict(entry.rows),
        "licence": entry.licence,
        "source": entry.source,
        "files": [
            {"path": file.path, "url": file.url, "sha256": file.sha256, "sha1": file.sha1}
            for file in entry.files.values()
        ],
        "views": list(VIEWS),
        "here": _availability(entry),
    }


def _availability(entry: Dataset) -> str:
    """Return whether the files of a dataset are here, to fetch, to be given, or refused."""
    from recollect.io.datasets.download import locate

    try:
        missing = [file for file in entry.files.values() if locate(file) is None]
    except UserError:
        return "refused"
    if not missing:
        return "here"
    return "to fetch" if all(file.url for file in missing) else "to be given"


def check_graph_place(out: Path, force: bool) -> None:
    """Raise UserError, before any work, if no graph can be written at `out`."""
    from recollect.io.atomic import existing_folder
    from recollect.io.exchange import is_export

    existing = existing_folder(out)
    if existing.exists() and not force:
        raise UserError(f"{out} exists; choose another --out, or replace it with --force")
    if existing.exists() and not is_export(existing):
        raise UserError(f"{out} exists and is no graph, so it is not replaced; choose another --out")
    check_place(out)
