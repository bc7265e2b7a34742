"""Run a command in all processes that torchrun started: the first one prints and writes, and one error is printed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from recollect.cli.checkpoints import check_out, partial_of
from recollect.errors import UserError

if TYPE_CHECKING:
    from recollect.training.distributed.processes import Processes

RESTARTS = "TORCHELASTIC_RESTART_COUNT"  # how often torchrun has started these processes again


@contextmanager
def started_processes(out: Path) -> Iterator[Processes]:
    """Connect the processes that torchrun started, of which the first locks `out`; by itself, a process is alone."""
    from recollect.io.atomic import locked
    from recollect.training.distributed.processes import ALONE, is_launched, joined_processes

    with ExitStack() as stack:
        processes = ALONE
        if is_launched():
            stack.enter_context(one_voice())
            processes = stack.enter_context(joined_processes())
            if not processes.is_first:
                nowhere = stack.enter_context(Path(os.devnull).open("w"))
                stack.enter_context(redirect_stdout(nowhere))
                stack.enter_context(redirect_stderr(nowhere))
        if processes.is_first:
            stack.enter_context(locked(out, wait=0))
        yield processes


@contextmanager
def one_voice() -> Iterator[None]:
    """Let only the first process that fails say why; the others stop quietly, for torchrun stops them all."""
    from recollect.training.distributed.processes import is_first_report

    try:
        yield
    except UserError as error:
        if is_first_report():
            raise
        raise SystemExit(2) from error
    except RuntimeError as error:
        if "onnection" not in str(error):  # what gloo says if another process is gone
            raise
        if is_first_report():
            raise UserError(
                "another process of this training stopped; the same command with --resume continues it"
            ) from error
        raise SystemExit(2) from error


def agree_on_start(processes: Processes, out: Path, resume: bool, force: bool) -> tuple[Path, bool, bool]:
    """Return the checkpoint, whether to continue from it and whether to discard it, as the first process finds them.

    Processes that torchrun starts again continue from the last checkpoint.
    """

    def check() -> tuple[str, bool, bool] | None:
        discard = force
        restarted = int(os.environ.get(RESTARTS, "0")) > 0 and partial_of(out).exists()
        if restarted:
            discard = False
        try:
            partial = check_out(out, resume or restarted, discard)
        except typer.Exit:
            return None
        return str(partial), (resume or restarted) and partial.exists(), discard

    found = processes.by_first(check)
    if found is None:
        raise typer.Exit
    partial, goes_on, discards = found
    return Path(partial), goes_on, discards
