"""The command line: registers the commands, and prints a user's mistake as one sentence."""

from __future__ import annotations

import io
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

import recollect
from recollect.cli import ask, changes, listing, measure, plan, prompt, serve, sharing, show, train
from recollect.cli.data import app as data_app
from recollect.cli.rendering import console, plain, print_line
from recollect.cli.threads import sleep_while_waiting, use_threads
from recollect.errors import DataWarning, UserError

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,  # help as plain text: half as long as in boxes
    pretty_exceptions_enable=False,
)
for command in (
    train.train,
    prompt.ask,
    ask.recall,
    ask.know,
    ask.when,
    ask.forecast,
    show.show,
    ask.project,
    measure.evaluate,
    measure.baseline,
    changes.remember,
    changes.forget,
    changes.journal,
    changes.consolidate,
    changes.watch,
    serve.serve,
    serve.mcp,
    sharing.card,
    train.search,
    plan.plan,
    listing.models,
):
    app.command()(command)
app.add_typer(listing.recipes_app, name="recipes")
app.add_typer(data_app, name="data")
app.add_typer(sharing.hub_app, name="hub")


def print_version(wanted: bool) -> None:
    """Print the version and exit."""
    if wanted:
        print_line(recollect.__version__)
        raise typer.Exit


@app.callback()
def program(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=print_version)
    ] = False,
    threads: Annotated[
        int | None, typer.Option(metavar="N", help="Threads, before the command; by default one per core.")
    ] = None,
) -> None:
    """Memory for knowledge graphs that change: learn facts, recall any of them.

    \b
    recollect data show events.csv     what a file of facts has
    recollect train events.csv         learn it: writes events.memory
    recollect ask events.memory        ask it
    Next: recollect train --help
    """
    use_threads(threads)


def main() -> None:
    """Run the command line; a user's mistake is one sentence and exit code 2."""
    sleep_while_waiting()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal may lack the characters of a label
    try:
        with printed_warnings():
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


@contextmanager
def printed_warnings() -> Iterator[None]:
    """Print every DataWarning as one line on standard error; other warnings as Python does."""
    with warnings.catch_warnings():
        show = warnings.showwarning

        def show_plainly(message: Warning | str, category: type[Warning], *place: Any, **options: Any) -> None:
            if issubclass(category, DataWarning):
                _print_labelled("[bold yellow]warning:[/]", str(message))
            else:
                show(message, category, *place, **options)

        warnings.simplefilter("always", DataWarning)
        warnings.showwarning = show_plainly
        yield


def exit_with(sentence: str) -> None:
    """Print an error and exit with code 2."""
    _print_labelled("[bold red]error:[/]", sentence)
    sys.exit(2)


def _print_labelled(label: str, sentence: str) -> None:
    """Print a label, which is markup, and a sentence, which is not, on standard error."""
    console(stderr=True, soft_wrap=True).print(f"{label} {plain(sentence)}", highlight=False)
