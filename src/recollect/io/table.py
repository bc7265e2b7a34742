"""A table of labels in memory, as every reader of files returns it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import polars as pl

from recollect.errors import DataWarning, UserError

TIME_ROLES = ("time", "start", "end")


@dataclass(frozen=True)
class Table:
    """Rows of labels: one string column per role (subject, predicate, object, time or start and end, value, weight)."""

    frame: pl.DataFrame
    where: Callable[[int], str]  # where a row, counted from 1, came from, for error messages
    name: str
    columns: Mapping[str, str] = field(default_factory=dict)  # role -> name of its column, where that is known
    notes: tuple[str, ...] = ()  # sentences about how the table was read
    dropped: Mapping[str, int] = field(default_factory=dict)  # rows left out, by reason

    def without(self, bad: pl.Series, reason: str) -> Table:
        """Return the table without the rows of a mask (rows,), which are counted under a reason."""
        kept = (~bad).arg_true()
        where = self.where
        return replace(
            self,
            frame=self.frame.filter(~bad),
            where=lambda row: where(int(kept[row - 1]) + 1),
            dropped={**self.dropped, reason: self.dropped.get(reason, 0) + int(bad.sum())},
        )


def first_true(mask: pl.Series) -> int:
    """Return the index of the first True of a mask that has one."""
    return int(mask.arg_max() or 0)


def leave_out(table: Table, bad: pl.Series, reason: str, *, most: float, what: str, advice: str) -> Table:
    """Return a table without the rows of a mask (rows,), with a warning; raise UserError if they are too many.

    `most` is the share of all rows that may be left out, always less than half of them unless it is 1: then all but
    one. `what` says what is wrong with the first of them.
    """
    count, height = int(bad.sum()), table.frame.height
    if not count:
        return table
    where = table.where(first_true(bad) + 1)
    limit = height - 1 if most == 1 else min(most * height, (height - 1) / 2)
    if count > limit:
        raise UserError(f"{where}: {what}; {advice}")
    rows = "this row is" if count == 1 else f"this row and {count - 1:,} more are"
    warnings.warn(f"{where}: {what}; {rows} left out, of {height:,}", DataWarning, stacklevel=2)
    return table.without(bad, reason)
