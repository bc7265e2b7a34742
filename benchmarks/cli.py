"""The commands of `python -m benchmarks`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from benchmarks import accuracy as accuracy_race
from benchmarks import capacity as capacities
from benchmarks import compare as comparison
from benchmarks import events as event_reading
from benchmarks import leaders as leaders_table
from benchmarks import serving_cli
from benchmarks import shared_host as shared_hosts
from benchmarks.bounds import Machine
from benchmarks.cases import PARTS, all_cases, select_cases
from benchmarks.intervals import measure_intervals
from benchmarks.large_tables import measure_tables, parse_bytes
from benchmarks.measure import growth_points, measure
from benchmarks.options import Json, Quick
from benchmarks.plots import cost_growth
from benchmarks.pykeen_contests import find_pykeen
from benchmarks.ranks.commands import app as ranks_app
from benchmarks.remember import measure_remember
from benchmarks.report import format_record
from benchmarks.report import tables as report_tables
from recollect import UserError
from recollect.cli.allocator import keep_freed_memory
from recollect.cli.rendering import format_value, print_rows
from recollect.io.plots import check_figure

app = typer.Typer(add_completion=False, rich_markup_mode="markdown", pretty_exceptions_enable=False)

app.add_typer(serving_cli.app, name="serving")

app.add_typer(ranks_app, name="ranks")


@app.callback()
def commands() -> None:
    """Measure the speed of recollect, always in turns with something else on the same machine."""


@app.command()
def contests(
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help=f"Some of {', '.join(PARTS)}, or below as in train/gdelt/cont."),
    ] = None,
    quick: Quick = False,
    repeats: Annotated[int, typer.Option(min=1, help="Rounds; all contenders run in every round.")] = 3,
    pykeen: Annotated[str | None, typer.Option(metavar="PYTHON", help="A Python that has PyKEEN.")] = None,
    figure: Annotated[Path | None, typer.Option(help="Save a figure of growth here (.png, .svg, .pdf).")] = None,
    as_json: Json = False,
) -> None:
    """Measure training, evaluation, recall, loading and memory next to references and the machine's bounds.

    Example: `python -m benchmarks contests --quick --only train`
    """
    if figure is not None:
        check_figure(figure)
    keep_freed_memory()
    python = find_pykeen(pykeen)
    cases = select_cases(all_cases(quick=quick, pykeen=python), only or [])
    if python is None:
        _say("PyKEEN is not measured: give a Python that has it (--pykeen PYTHON)")
    machine = Machine.measure()
    _say(
        f"{machine.flops / 1e9:.0f} Gflop/s in matrix products, {machine.bytes / 1e9:.0f} GB/s in copies, "
        f"{torch.get_num_threads()} threads"
    )
    records = []
    for record in measure(cases, repeats):
        records.append(record)
        _say(format_record(record))
    points = growth_points(records)
    if figure is not None and points:
        cost_growth(points, figure)
    if as_json:
        _print_json(records)
    else:
        for rows in report_tables(records):
            print_rows(rows, as_json=False)


@app.command()
def intervals(
    count: Annotated[int, typer.Option(min=100, help="Intervals over 200 years of days.")] = 1_000_000,
    quick: Quick = False,
    as_json: Json = False,
) -> None:
    """Measure seconds and peak memory of reading, learning and asking a graph of intervals, step by step.

    Example: `python -m benchmarks intervals --count 10000`
    """
    print_rows(measure_intervals(300 if quick else count), as_json)


@app.command()
def remember(
    facts: Annotated[int, typer.Option(min=1, help="Facts that are remembered one by one.")] = 200,
    batch: Annotated[int, typer.Option(min=1, help="Facts that are remembered at once.")] = 100_000,
    model: Annotated[str, typer.Option(help="history, or a model, which is trained for one epoch.")] = "history",
    quick: Quick = False,
    as_json: Json = False,
) -> None:
    """Measure `remember` on a memory on disk: one fact with a new entity, many at once, questions meanwhile.

    Example: `python -m benchmarks remember --quick`
    """
    counts = {"facts": 5, "batch": 200} if quick else {"facts": facts, "batch": batch}
    rows = measure_remember(**counts, model=model, quick=quick)
    if as_json:
        _print_json(rows)
        return
    for row in rows:
        print_rows([{name: format_value(value) for name, value in row.items()}], as_json=False)


@app.command()
def compare(
    old: Annotated[Path, typer.Argument(help="Checkout to compare with: a folder that has src/recollect.")],
    new: Annotated[Path, typer.Argument(help="Checkout to measure.")],
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="CASE", help="Cases or groups of them, like train, train/cont or evaluate/tucker/t."),
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Rounds of each case; both sides run in every round.")] = 15,
    seconds: Annotated[float, typer.Option(min=0.001, help="Length of a round on the slower side.")] = 0.4,
    whole: Annotated[bool, typer.Option("--whole", help="Rounds of whole epochs and evaluations instead.")] = False,
    threads: Annotated[int, typer.Option(min=0, help="Threads of either side; 0 leaves PyTorch's choice.")] = 0,
    avx2: Annotated[bool, typer.Option("--avx2", help="Run both sides without AVX-512.")] = False,
    quick: Quick = False,
    as_json: Json = False,
) -> None:
    """Run two checkouts in turns and print ratios new / old of wall and CPU time.

    Example: `python -m benchmarks compare ../old . --only train --repeats 9`
    """
    cases = comparison.select_cases(comparison.all_cases(quick=quick), only or [])
    settings = comparison.AVX2 if avx2 else {}
    results = comparison.compare(
        old, new, cases, repeats=repeats, seconds=seconds, whole=whole, threads=threads, settings=settings
    )
    machine = next(results)
    _say(json.dumps(machine))
    records: list[dict[str, Any]] = []
    for record in results:
        records.append(record)
        _say(comparison.format_record(record))
    means = comparison.geometric_means(records)
    for row in means:
        _say(comparison.format_mean(row))
    if as_json:
        _print_json({"machine": machine, "cases": records, "means": means})


@app.command()
def events(
    rows: Annotated[int, typer.Option(min=1, help="Rows of GDELT's format to generate and read.")] = 20_000_000,
    spark: Annotated[
        str | None, typer.Option(metavar="MASTER", help="Compare with Spark at this master, instead of pandas.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure how many raw event rows per second are read, next to pandas. Needs RECOLLECT_DATA and 8 GB of disk.

    Example: `RECOLLECT_DATA=data python -m benchmarks events --rows 1000000`, and with `--spark 'local[2]'`
    """
    if spark is not None:
        print_rows(event_reading.measure_engines(rows, spark), as_json)
        return
    report = event_reading.measure(rows)
    if as_json:
        _print_json(report)
    else:
        typer.echo(event_reading.format_report(report))


@app.command()
def capacity(
    quick: Quick = False,
    as_json: Json = False,
) -> None:
    """Measure the constants that `recollect plan` estimates times with.

    Example: `python -m benchmarks capacity --quick`
    """
    rows = capacities.measure(quick=quick)
    print_rows([{name: format_value(value) for name, value in row.items()} for row in rows], as_json)


@app.command()
def accuracy(
    goal: Annotated[float, typer.Option(help="Filtered validation MRR to reach.")] = 0.54,
    turn: Annotated[float, typer.Option(help="Seconds that a contender trains before the next one does.")] = 10.0,
    as_json: Json = False,
) -> None:
    """Measure the minutes until a validation MRR is reached on ICEWS14, next to a textbook TNTComplEx.

    Example: `python -m benchmarks accuracy --goal 0.5`
    """
    keep_freed_memory()
    results = accuracy_race.race_on_icews14(goal, turn, _say)
    if as_json:
        _print_json({"goal": goal, "contenders": results})
    else:
        typer.echo("\n".join(accuracy_race.format_results(results)))


@app.command()
def leaders(
    table: Annotated[Path, typer.Argument(help="CSV file of tenures: subject, predicate, object, start, end.")],
    as_json: Json = False,
) -> None:
    """Learn a table of office holders with all defaults and ask who held which office in every year.

    Example: `python -m benchmarks leaders $RECOLLECT_DATA/wild/leaders.csv`
    """
    report = leaders_table.measure(table)
    if as_json:
        _print_json(report)
    else:
        typer.echo("\n".join(leaders_table.format_report(report)))


@app.command("shared-host")
def shared_host(
    repeats: Annotated[
        int, typer.Option(min=1, help="Rounds; every case runs quietly and next to busy processes.")
    ] = 3,
    quick: Quick = False,
    as_json: Json = False,
) -> None:
    """Measure recall, know, a projection and an epoch next to two busy processes; the epoch in a library too.

    Example: `python -m benchmarks shared-host --quick`
    """
    records = shared_hosts.measure(repeats, quick=quick)
    if as_json:
        _print_json(records)
        return
    print_rows([{name: format_value(value) for name, value in record.items()} for record in records], as_json=False)


@app.command()
def tables(
    entities: Annotated[int, typer.Option(min=1000, help="Entities of the table in files.")] = 30_000_000,
    small: Annotated[int, typer.Option(min=1000, help="Entities of the table in memory.")] = 1_000_000,
    dim: Annotated[int, typer.Option(min=1, help="Embedding size.")] = 64,
    facts: Annotated[int, typer.Option(min=1000, help="Random facts of either graph.")] = 5_000_000,
    batch_size: Annotated[int, typer.Option(min=1, help="Facts per step.")] = 512,
    limit: Annotated[str, typer.Option(help="Memory of the table in files, its cached pages included.")] = "6GiB",
    seconds: Annotated[float, typer.Option(min=0.1, help="Length of each run; its second half counts.")] = 60.0,
    folder: Annotated[Path | None, typer.Option(help="Folder of the files; by default that of the system.")] = None,
    quick: Quick = False,
    as_json: Json = False,
) -> None:
    """Train a table in memory-mapped files under a memory limit, and a smaller one in memory, in turns.

    Example: `python -m benchmarks tables --quick`
    """
    if quick:
        entities, small, facts, seconds = 20_000, 2_000, 5_000, 0.5
    rows = []
    for row in measure_tables(
        entities=entities,
        small=small,
        dim=dim,
        facts=facts,
        batch_size=batch_size,
        limit=parse_bytes(limit),
        seconds=seconds,
        folder=folder,
    ):
        rows.append(row)
        _say(", ".join(f"{name} {format_value(value)}" for name, value in row.items()))
    if as_json:
        _print_json(rows)
        return
    by_run = [
        {"": name, **{f"{row['tables']}, {row['facts']}": format_value(row[name]) for row in rows}} for name in rows[0]
    ]
    print_rows(by_run, as_json=False)


def _print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def _say(line: str) -> None:
    """Print a line to stderr: stdout is for the result."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def main() -> None:
    """Run a command; a UserError is one line on stderr and exit code 2."""
    try:
        app(prog_name="python -m benchmarks")
    except UserError as error:
        _say(f"error: {error}")
        sys.exit(2)
