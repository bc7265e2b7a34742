"""The command line: registers the commands, and prints a user's mistake as one sentence."""

from __future__ import annotations

import io
import sys
from typing import Annotated

import typer

import recollect
from recollect.cli import ask, listing, train
from recollect.cli.data import app as data_app
from recollect.cli.rendering import console, plain
from recollect.errors import UserError

app = typer.Typer(
    help="Memory for knowledge graphs that change: learn facts (subject, predicate, object, time), recall any part.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
for command in (
    train.train,
    train.search,
    ask.evaluate,
    ask.baseline,
    ask.recall,
    ask.know,
    ask.project,
    listing.models,
):
    app.command()(command)
app.add_typer(listing.recipes_app, name="recipes")
app.add_typer(data_app, name="data")


def print_version(wanted: bool) -> None:
    """Print the version and exit."""
    if wanted:
        typer.echo(recollect.__version__)
        raise typer.Exit


@app.callback()
def program(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=print_version)
    ] = False,
) -> None:
    """Memory for knowledge graphs that change: learn facts (subject, predicate, object, time), recall any part."""


def main() -> None:
    """Run the command line; a user's mistake is one sentence and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal may lack the characters of a label
    try:
        app()
    except UserError as error:
        exit_with(str(error))
    except BrokenPipeError:
        sys.exit(1)
    except OSError as error:
        exit_with(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except RuntimeError as error:
        if "allocate" not in str(error):
            raise
        exit_with(f"not enough memory ({str(error).splitlines()[0]}); choose a lower dim or batch size")


def exit_with(sentence: str) -> None:
    """Print an error and exit with code 2."""
    console(stderr=True, soft_wrap=True).print(f"[bold red]error:[/] {plain(sentence)}", highlight=False)
    sys.exit(2)
