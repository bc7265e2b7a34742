"""Reproduce the paper: `python -m paper table-icews`, `python -m paper all --quick`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from paper.experiments import EXPERIMENTS, parse_names, reproduce
from recollect import UserError
from recollect.cli.allocator import keep_freed_memory
from recollect.cli.rendering import check_place, share_progress
from recollect.io.plots import figure_class

app = typer.Typer(add_completion=False, rich_markup_mode="markdown", pretty_exceptions_enable=False)


@app.command()
def run(
    names: Annotated[list[str], typer.Argument(help=f"Some of {', '.join(EXPERIMENTS)}; or all.", metavar="NAME...")],
    out: Annotated[Path, typer.Option(help="Folder for pages, figures and plots.")] = Path("recollect-results"),
    quick: Annotated[bool, typer.Option("--quick", help="Small models on a synthetic world, to try the code.")] = False,
    data: Annotated[str | None, typer.Option(help="Dataset or path to use instead of the experiment's own.")] = None,
    dim: Annotated[list[int] | None, typer.Option(help="Embedding size to use instead; may be repeated.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Run experiments of the paper and write its figures next to ours. An interrupted run continues.

    Example: `python -m paper all --quick`
    """
    keep_freed_memory()
    check_place(out)
    figure_class()  # raises before the work if plots could not be drawn after it
    chosen = parse_names(names)
    with share_progress("") as progress:
        dims = tuple(dim) if dim else None
        pages = list(reproduce(chosen, out, quick=quick, data=data, dims=dims, report=progress.describe))
    if as_json:
        results = [json.loads(page.with_suffix(".json").read_text(encoding="utf-8")) for page in pages]
        typer.echo(json.dumps(results, ensure_ascii=False))
    else:
        typer.echo("\n".join(map(str, pages)))


def main() -> None:
    """Run the command; a UserError is one line on stderr and exit code 2."""
    try:
        app(prog_name="python -m paper")
    except UserError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
