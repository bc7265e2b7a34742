"""A table of labels in memory, as every reader of files returns it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import polars as pl

TIME_ROLES = ("time", "start", "end")


@dataclass(frozen=True)
class Table:
    """Rows of labels: one string column per role (subject, predicate, object, time or start and end, value, weight)."""

    frame: pl.DataFrame
    where: Callable[[int], str]  # where a row, counted from 1, came from, for error messages
    name: str
    columns: Mapping[str, str] = field(default_factory=dict)  # role -> name of its column, where that is known
    notes: tuple[str, ...] = ()  # sentences about how the table was read


def first_true(mask: pl.Series) -> int:
    """Return the index of the first True of a mask that has one."""
    return int(mask.arg_max() or 0)
