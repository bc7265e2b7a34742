"""The commands of `python -m benchmarks`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks import compare as comparison
from recollect import UserError

app = typer.Typer(add_completion=False, rich_markup_mode="markdown", pretty_exceptions_enable=False)

Json = Annotated[bool, typer.Option("--json", help="Print records as JSON.")]


@app.callback()
def commands() -> None:
    """Measure the speed of recollect, always in turns with something else on the same machine."""


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
    quick: Annotated[bool, typer.Option("--quick", help="Tiny sizes, to try the command.")] = False,
    as_json: Json = False,
) -> None:
    """Run two checkouts in turns and print ratios new / old of wall and CPU time.

    Example: `python -m benchmarks compare ../old . --only train --repeats 9`
    """
    cases = comparison.select_cases(comparison.all_cases(quick=quick), only or [])
    settings = comparison.AVX2 if avx2 else {}
    found = comparison.compare(
        old, new, cases, repeats=repeats, seconds=seconds, whole=whole, threads=threads, settings=settings
    )
    about = next(found)
    _say(json.dumps(about))
    records: list[dict[str, Any]] = []
    for record in found:
        records.append(record)
        _say(comparison.format_record(record))
    means = comparison.geometric_means(records)
    for row in means:
        _say(comparison.format_mean(row))
    if as_json:
        sys.stdout.write(json.dumps({"machine": about, "cases": records, "means": means}, indent=1) + "\n")


def _say(line: str) -> None:
    """Print a line to stderr: stdout is for the result."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def main() -> None:
    """Run a command; a UserError is one line on stderr and exit code 1."""
    try:
        app()
    except UserError as error:
        _say(f"error: {error}")
        sys.exit(1)
