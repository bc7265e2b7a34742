"""Reproduce the paper: `python -m paper table-icews`, `python -m paper all --quick`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

import paper as experiments
from paper import EXPERIMENTS
from recollect.cli.allocator import keep_freed_memory
from recollect.cli.data import Json
from recollect.cli.rendering import check_place, print_json, share_progress
from recollect.io.plots import figure_class

app = typer.Typer(add_completion=False, rich_markup_mode="markdown", pretty_exceptions_enable=False)


@app.command()
def reproduce(
    names: Annotated[list[str], typer.Argument(help=f"Some of {', '.join(EXPERIMENTS)}; or all.", metavar="NAME...")],
    out: Annotated[Path, typer.Option(help="Folder for pages, figures and plots.")] = Path("recollect-results"),
    quick: Annotated[bool, typer.Option("--quick", help="Everything small, on an invented world.")] = False,
    data: Annotated[str | None, typer.Option(help="A dataset or path in place of the experiment's own.")] = None,
    dim: Annotated[list[int] | None, typer.Option(help="In place of the experiment's own; may be repeated.")] = None,
    as_json: Json = False,
) -> None:
    """Run the paper's experiments and write the paper's figures beside ours. Ctrl-C keeps what is done.

    Example: `recollect reproduce all --quick`
    """
    keep_freed_memory()
    check_place(out)
    figure_class()  # without it there would be no plots in the end
    wanted = experiments.chosen(names)
    with share_progress("") as progress:
        ranks = tuple(dim) if dim else None
        pages = list(experiments.reproduce(wanted, out, quick=quick, data=data, ranks=ranks, tell=progress.tell))
    if as_json:
        print_json([json.loads(page.with_suffix(".json").read_text(encoding="utf-8")) for page in pages])
    else:
        typer.echo("\n".join(map(str, pages)))


if __name__ == "__main__":
    app()
