"""The one error a user ever sees: what was given, what was wanted, what to do."""

from importlib import import_module
from typing import Any


class UserError(ValueError):
    """Bad input, explained in one sentence; the command line prints it without a traceback."""


def import_extra(module: str, package: str, *, needed_by: str, extra: str) -> Any:
    """Import a module of an optional package; raise UserError that names the extra to install if it is missing."""
    try:
        return import_module(module)
    except ImportError as error:
        hint = f"pip install 'recollect[{extra}]'"
        raise UserError(f"{needed_by} needs {package}, which is not installed; {hint}") from error
