"""The commands of `python -m benchmarks serving`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from benchmarks.options import Json, Quick
from benchmarks.serving import ServingLoad, measure_serving
from benchmarks.serving_mixed import measure_mixed
from benchmarks.serving_workers import measure_agreement, measure_sharing
from recollect.cli.rendering import print_json as print_record
from recollect.cli.rendering import print_pairs, print_rows

app = typer.Typer(add_completion=False, rich_markup_mode="markdown", pretty_exceptions_enable=False)

MemoryDir = Annotated[
    Path | None, typer.Option("--memory", metavar="DIR", help="A saved memory; by default ICEWS14 learned by history.")
]
Workers = Annotated[int, typer.Option(min=1, help="Processes of the service.")]


def _dataset(quick: bool) -> str:
    return "world" if quick else "icews14"


@app.callback(invoke_without_command=True)
def load(
    context: typer.Context,
    memory: MemoryDir = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="Length of each measurement.")] = 10.0,
    connections: Annotated[int, typer.Option(min=1, help="Connections that ask at a time.")] = 2,
    workers: Workers = 1,
    quick: Quick = False,
    as_json: Json = False,
) -> None:
    """Ask a served memory on this machine: requests per second and latencies of recall and know.

    Example: `python -m benchmarks serving --seconds 5 --connections 4`
    """
    if context.invoked_subcommand is None:
        asked = ServingLoad(seconds=0.3 if quick else seconds, connections=connections, workers=workers)
        print_rows(measure_serving(memory, _dataset(quick), asked), as_json)


@app.command()
def mixed(
    memory: MemoryDir = None,
    minutes: Annotated[float, typer.Option(min=0.01, help="Length of the run; a tenth of it is the warm-up.")] = 10.0,
    workers: Workers = 1,
    quick: Quick = False,
    as_json: Json = False,
) -> None:
    """Read and write for minutes: errors, and resident memory after the warm-up and at the end.

    Example: `python -m benchmarks serving mixed --minutes 10`
    """
    found = measure_mixed(memory, _dataset(quick), seconds=2.0 if quick else 60 * minutes, workers=workers)
    print_record(found) if as_json else print_pairs(found)


@app.command()
def agree(
    memory: MemoryDir = None,
    writes: Annotated[int, typer.Option(min=1, help="Facts that are written.")] = 200,
    quick: Quick = False,
    as_json: Json = False,
) -> None:
    """Write by one process and read by another: milliseconds until the fact is there.

    Example: `python -m benchmarks serving agree --writes 200`
    """
    print_rows([measure_agreement(memory, _dataset(quick), 5 if quick else writes)], as_json)


@app.command()
def sharing(memory: MemoryDir = None, quick: Quick = False, as_json: Json = False) -> None:
    """Measure the memory of one, two and four processes that serve one bundle.

    Example: `python -m benchmarks serving sharing`
    """
    counts = (1, 2) if quick else (1, 2, 4)
    print_rows([measure_sharing(memory, _dataset(quick), workers) for workers in counts], as_json)
