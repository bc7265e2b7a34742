"""Measure speed in turns with references: `python -m benchmarks --only train`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import torch
import typer

from benchmarks import bench
from benchmarks.bounds import Machine
from benchmarks.plots import cost_growth
from benchmarks.workers import find_pykeen
from recollect.cli.allocator import keep_freed_memory
from recollect.cli.data import Json
from recollect.cli.rendering import console, plain, print_rows
from recollect.io.plots import check_figure

app = typer.Typer(add_completion=False, rich_markup_mode="markdown", pretty_exceptions_enable=False)


@app.command("bench")
def bench_(
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help=f"Some of {', '.join(bench.PARTS)}, or below as in train/gdelt/cont."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Everything tiny: tries the suite, measures nothing.")] = False,
    repeats: Annotated[int, typer.Option(min=1, help="Rounds, in each of which all contenders take their turn.")] = 3,
    pykeen: Annotated[str | None, typer.Option(metavar="PYTHON", help="A Python that has PyKEEN.")] = None,
    figure: Annotated[Path | None, typer.Option(help="Save a picture of growth here (.png, .svg, .pdf).")] = None,
    as_json: Json = False,
) -> None:
    """Measure training, evaluation, recall, loading and memory beside references and the machine's bounds.

    Example: `recollect bench --quick --only train`
    """
    if figure is not None:
        check_figure(figure)
    keep_freed_memory()
    python = find_pykeen(pykeen)
    told = console(stderr=True, soft_wrap=True)
    chosen = bench.chosen(bench.cases(quick=quick, pykeen=python), only or [])
    for line in bench.missing(pykeen=python):
        told.print(line, highlight=False)
    machine = Machine.measure()
    told.print(
        f"{machine.flops / 1e9:.0f} Gflop/s in matrix products, {machine.bytes / 1e9:.0f} GB/s in copies, "
        f"{torch.get_num_threads()} threads",
        highlight=False,
    )
    entries = []
    for entry in bench.measure(chosen, repeats):
        entries.append(entry)
        told.print(plain(bench.line(entry)), highlight=False)
    if figure is not None and (points := bench.growth_points(entries)):
        cost_growth(points, figure)
    for rows in [entries] if as_json else bench.tables(entries):
        print_rows(rows, as_json)


if __name__ == "__main__":
    app()
