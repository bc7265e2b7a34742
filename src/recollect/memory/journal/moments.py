"""Moments of transaction time, and the table of changes by label."""

from __future__ import annotations

from datetime import UTC, date, datetime, time

import polars as pl

from recollect.errors import UserError
from recollect.graph.times import TimeAxis
from recollect.memory.journal.changes import SCHEMA, TRIPLE, Delta

Moment = str | date  # a datetime, also as ISO 8601; without a zone in UTC. A date is its end, as a `since` its start

COLUMNS = ("event", "known_at", "change", *TRIPLE, "from", "to")


def parse_moment(moment: Moment, *, at_end: bool) -> datetime:
    """Return a moment in UTC.

    >>> parse_moment("2026-03-01", at_end=False).isoformat(), parse_moment("2026-03-01T12:00+01:00", at_end=True).hour
    ('2026-03-01T00:00:00+00:00', 11)
    """
    given: date
    if isinstance(moment, date):
        given = moment
    else:
        text = str(moment).strip()
        try:
            given = date.fromisoformat(text) if len(text) <= len("2026-03-01") else datetime.fromisoformat(text)
        except ValueError as error:
            raise UserError(
                f"cannot read {text!r} as a moment; write it like 2026-03-01 or 2026-03-01T14:30:00, in UTC"
            ) from error
    if not isinstance(given, datetime):
        given = datetime.combine(given, time.max if at_end else time.min)
    return given.replace(tzinfo=UTC) if given.tzinfo is None else given.astimezone(UTC)


def change_rows(delta: Delta) -> pl.DataFrame:
    """Return the changes of a delta before it is an event, in the columns that `change_table` reads."""
    labels = pl.Series("subject", delta.erased, dtype=pl.String)
    erased = SCHEMA.to_frame().clear(len(labels)).with_columns(labels, change=pl.lit("erased"))
    numbers = (pl.lit(None, pl.Int64).alias("event"), pl.lit(None, pl.Datetime("us", "UTC")).alias("known_at"))
    return pl.concat([erased, delta.frame]).with_columns(numbers)


def change_table(changes: pl.DataFrame, axis: TimeAxis) -> pl.DataFrame:
    """Return changes with the labels of their first and last times, `from` and `to`; null: no end."""
    bins = pl.concat([changes["first"], changes["last"]]).drop_nulls().unique().to_list()
    labels = [TimeAxis(axis.grain, number, 1).label(0) for number in bins]
    label_of = pl.DataFrame({"bin": bins, "label": labels}, schema={"bin": pl.Int64, "label": pl.String})
    for name, column in (("from", "first"), ("to", "last")):
        found = changes.select(bin=column).join(label_of, on="bin", how="left", maintain_order="left")["label"]
        changes = changes.with_columns(found.alias(name))
    return changes.select(COLUMNS)
