"""The one error and the one warning a user ever sees, and how text from files is made safe to print."""

import os
import re
import unicodedata
from importlib import import_module
from typing import Any

_first_process: int | None = None  # the process that used recollect first
_ESCAPED = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})  # control, format, lone surrogate, line and paragraph separator
_SUSPECT = re.compile("[^ -~]")  # all but printable ASCII
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def escape_controls(text: str) -> str:
    r"""Replace characters that steer a terminal or hide text by their JSON escapes: \\n, \\u001b, \\u202e.

    >>> print(escape_controls("a\x1b[2J, \u202eb"))
    a\u001b[2J, \u202eb
    """
    return _SUSPECT.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    """Return a character, or its JSON escape of one or two UTF-16 units if it is not to be printed."""
    character = match[0]
    if unicodedata.category(character) not in _ESCAPED:
        return character
    if character in _SHORT:
        return _SHORT[character]
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))


class UserError(ValueError):
    """Bad input, explained in one sentence; the command line prints it without a traceback.

    Examples:
        >>> from recollect import dataset
        >>> dataset("no such dataset")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        recollect.errors.UserError: unknown dataset 'no such dataset'; choose one of ...
    """

    def __str__(self) -> str:
        return escape_controls(super().__str__())


class ReusedKeyError(UserError):
    """The key of a request that was made before with another content."""


class DataWarning(UserWarning):
    """Input that is read but is probably not what was meant, explained in one sentence.

    Examples:
        >>> import warnings
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("error", DataWarning)  # refuse what is probably not meant
    """

    def __str__(self) -> str:
        return escape_controls(super().__str__())


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
