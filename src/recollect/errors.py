"""The one error a user ever sees: what was given, what was wanted, what to do."""

import os
from importlib import import_module
from typing import Any

_first_process: int | None = None  # the process that used recollect first


class UserError(ValueError):
    """Bad input, explained in one sentence; the command line prints it without a traceback."""


def check_process() -> None:
    """Raise UserError in a process that was forked after recollect had been used.

    Only the thread that forks lives on in the new process. polars and PyTorch would wait there for ever for the threads
    that they had started. Public functions that use them call this first.
    """
    global _first_process
    if _first_process is None:
        _first_process = os.getpid()
    elif _first_process != os.getpid():
        raise UserError(
            "this process was forked from one that had used recollect, whose threads it does not have; start it by "
            'spawn (multiprocessing.get_context("spawn"), gunicorn without --preload), or fork before the first use'
        )


def import_extra(module: str, package: str, *, needed_by: str, extra: str) -> Any:
    """Import a module of an optional package; raise UserError that names the extra to install if it is missing."""
    try:
        return import_module(module)
    except ImportError as error:
        hint = f"pip install 'recollect[{extra}]'"
        raise UserError(f"{needed_by} needs {package}, which is not installed; {hint}") from error
