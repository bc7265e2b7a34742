"""Find the time axis of tables: parse their time columns, choose the grain, and number the bins of every row."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from recollect.errors import UserError
from recollect.graph.times import TimeAxis
from recollect.io.table import TIME_ROLES, Table, first_true, leave_out
from recollect.io.times.dates import FEW, TimeLabels, parse_times
from recollect.io.times.grains import FINENESS, LAST_YEAR, PERIODS, choose_grain, days_suffice
from recollect.io.times.strays import close_intervals, warn_of_stray_times

REVERSED_SHARE = 0.05  # of the rows may end before they start; if more do, the columns are wrong ones
_EXAMPLES = {
    "year": "2014", "quarter": "2014-Q1", "month": "2014-03", "week": "2014-W10", "day": "2014-03-05",
    "hour": "2014-03-05T13",
}  # fmt: skip
_MICROSECOND = pl.duration(microseconds=1)
_FIRST = pl.datetime(1, 1, 1)  # what databases write for an unknown start


@dataclass(frozen=True)
class RowTimes:
    """The rows whose times are known, their bins by split, their axis, and sentences.

    Columns of the bins: `first`, `last` and `ongoing`, whether the row has no end.
    """

    tables: Mapping[str, Table]
    bins: dict[str, pl.DataFrame]
    axis: TimeAxis
    notes: tuple[str, ...] = ()


def find_times(tables: Mapping[str, Table], grain: str | None, dates: str | None, inclusive_end: bool) -> RowTimes:
    """Return the bins of every row at `grain`, or at the coarsest grain that loses nothing, and the axis of all bins.

    A time that is not known is that of the first or last plausible time: one that no gap separates from the others.
    """
    roles = _time_roles(tables)
    if not roles:
        zero = {
            split: pl.DataFrame({"first": [0] * table.frame.height, "last": 0, "ongoing": False})
            for split, table in tables.items()
        }
        return RowTimes(tables, zero, TimeAxis("ordinal", 0, 1))
    labels, parsed = _parsed_labels(tables, roles, grain, dates)
    tables = {split: _readable(table, parsed) for split, table in tables.items()}
    times = labels.join(parsed.frame, on="label", how="left", maintain_order="left")
    note = None
    if grain is None:
        grain, note = choose_grain(times, "time" in roles, inclusive_end)
        if grain == "hour" and "time" in roles and days_suffice(times, _points(tables)):
            grain = "day"
            note = (
                "no subject has a predicate at two times of a day, so the time grain is day; --grain hour keeps hours"
            )
    binned = _with_bins(times, grain, inclusive_end, coarse="time" not in roles)
    found = {split: _row_bins(table, binned, grain) for split, table in tables.items()}
    tables = {split: table for split, (table, _) in found.items()}
    bins = {split: frame for split, (_, frame) in found.items()}
    warn_of_stray_times(tables, bins, grain)
    bins = close_intervals(tables, bins, grain)
    known = pl.concat([frame[column] for frame in bins.values() for column in ("first", "last")]).to_numpy()
    ends = [int(known.min()), int(known.max())]
    starts = binned["bin"].drop_nulls().to_numpy()
    step = int(np.gcd.reduce((starts if len(starts) else known) - ends[0]))  # of ordinals
    axis = TimeAxis.spanning(grain, ends, steps=[ends[0] + step])
    return RowTimes(tables, bins, axis, (note,) if note else ())


def find_bins(
    table: Table, grain: str, dates: str | None, inclusive_end: bool, *, whole_periods: bool = False
) -> tuple[Table, pl.DataFrame]:
    """Return the rows whose times are known and their first and last bin at `grain`, null where open.

    With `whole_periods`, a time coarser than the grain covers all bins of its period; otherwise it is refused.
    """
    tables = {"train": table}
    roles = _time_roles(tables)
    if not roles:
        return table, pl.DataFrame({"first": [0] * table.frame.height, "last": 0})
    labels, parsed = _parsed_labels(tables, roles, grain, dates)
    table = _readable(table, parsed)
    times = labels.join(parsed.frame, on="label", how="left", maintain_order="left")
    is_point = "time" in roles
    table, bins = _row_bins(table, _with_bins(times, grain, inclusive_end, coarse=not is_point or whole_periods), grain)
    if is_point and whole_periods:
        ends = _with_bins(times, grain, inclusive_end=True, coarse=True)
        bins = bins.with_columns(last=_look_up(table.frame, "time", ends)["last_bin"])
    return table, bins.select("first", "last")


def _time_roles(tables: Mapping[str, Table]) -> list[str]:
    """Return the time roles of all tables; raise UserError if a table lacks one of them."""
    roles = [role for role in TIME_ROLES if any(role in table.frame.columns for table in tables.values())]
    for table in tables.values():
        if missing := [role for role in roles if role not in table.frame.columns]:
            raise UserError(
                f"{table.name}: no column for the {missing[0]}, which another split has; use the same columns"
            )
    return roles


def _distinct_labels(tables: Mapping[str, Table], roles: list[str]) -> pl.DataFrame:
    """Return the distinct labels in order of their first row: label, first, and how often each is a start or end."""
    columns = []
    offset = 0
    for table in tables.values():
        rows = pl.int_range(offset, offset + table.frame.height, eager=True, dtype=pl.Int64)
        columns += [
            pl.DataFrame({"label": table.frame[role], "first": rows}).with_columns(
                starts=pl.lit(role != "end"), ends=pl.lit(role == "end")
            )
            for role in roles
        ]
        offset += table.frame.height
    counts = (pl.col("first").min(), pl.col("starts").sum(), pl.col("ends").sum())
    return pl.concat(columns).drop_nulls("label").group_by("label").agg(counts).sort("first", "label")


def _points(tables: Mapping[str, Table]) -> pl.DataFrame:
    """Return subject, predicate and time label of all rows."""
    return pl.concat([table.frame.select("subject", "predicate", label="time") for table in tables.values()])


def _parsed_labels(
    tables: Mapping[str, Table], roles: list[str], grain: str | None, dates: str | None
) -> tuple[pl.DataFrame, TimeLabels]:
    """Return the distinct labels of all time columns, and what they mean."""
    labels = _distinct_labels(tables, roles)
    parsed = parse_times(
        labels.select("label", "first"),
        dates,
        grain,
        dated=_called_dates(tables, roles),
        where=lambda row: _locate(tables, row),
    )
    return labels, parsed


def _called_dates(tables: Mapping[str, Table], roles: list[str]) -> bool:
    """Return whether the names of all time columns say that they hold dates."""
    names = [table.columns.get(role, "") for table in tables.values() for role in roles]
    return all(re.search("date|day", name.casefold()) for name in names)


def _locate(tables: Mapping[str, Table], row: int) -> str:
    """Return where a row is, counted from 0 over all tables."""
    for table in tables.values():
        if row < table.frame.height:
            break
        row -= table.frame.height
    return table.where(row + 1)


def _readable(table: Table, parsed: TimeLabels) -> Table:
    """Leave out rows without a time, or whose time is no time, with a warning; raise UserError if many are so."""
    readable = parsed.frame.select(
        "label", known=pl.col("at").is_not_null() | pl.col("number").is_not_null(), open="open"
    )
    roles = [role for role in TIME_ROLES if role in table.frame.columns]
    cells = {role: _look_up(table.frame, role, readable) for role in roles}
    bad = {role: ~(each["known"].fill_null(False) | each["open"].fill_null(True)) for role, each in cells.items()}
    unreadable = pl.DataFrame(bad).select(pl.any_horizontal(pl.all())).to_series()
    row = first_true(unreadable)
    role = next((role for role in roles if bad[role][row]), roles[0])
    label = table.frame[role][row] or ""
    wanted = "a whole number" if parsed.reading == "ordinal" else "a date"
    kept = leave_out(
        table,
        unreadable,
        "unreadable time",
        most=FEW,
        what=f"cannot read {label!r} as the {role}",
        advice=f"wanted {wanted}{parsed.hint(label)}",
    )
    if "time" not in roles:
        return kept
    unknown = ~cells["time"]["known"].fill_null(False).filter(~unreadable)
    label = (kept.frame["time"][first_true(unknown)] or "").strip()
    what = f"cannot read {label!r} as the time" if label else "cannot read nothing as the time"
    return leave_out(kept, unknown, "no time", most=0.5, what=what, advice="fill it in or drop the row")


def _with_bins(times: pl.DataFrame, grain: str, inclusive_end: bool, coarse: bool) -> pl.DataFrame:
    """Return columns label, bin and start of labels as starts, last_bin and stop as ends; null: unknown, too coarse.

    `start` and `stop` order times more finely than bins. With `coarse`, labels may be coarser than the grain.
    """
    if grain == "ordinal":
        number = pl.col("number")
        last = number if inclusive_end else number - 1
        return times.select("label", "open", bin=number, start=number, last_bin=last, stop=number)
    own = pl.col("grain").replace_strict(FINENESS, return_dtype=pl.Int64)
    too_coarse = pl.lit(not coarse) & (own < FINENESS[grain])
    times = times.with_columns(at=pl.when(~too_coarse).then("at"))
    at = pl.col("at")
    stop = pl.coalesce(*(pl.when(pl.col("grain") == each).then(at.dt.offset_by(p)) for each, p in PERIODS.items()), at)
    is_week = (pl.col("grain") == "week") & pl.lit(grain in ("year", "quarter", "month"))
    shift = pl.when(is_week).then(pl.duration(days=3)).otherwise(pl.duration(days=0))  # by its Thursday, ISO 8601
    is_coarse = own < FINENESS[grain]
    end = at - _MICROSECOND
    if inclusive_end:
        end = pl.when(is_coarse).then(stop - _MICROSECOND).otherwise(at)
    elif grain in ("year", "quarter", "month"):
        end = pl.when(is_week).then(at - pl.duration(days=7)).otherwise(end)
    utc = pl.duration(minutes=pl.col("offset").fill_null(0))
    return times.select(
        "label",
        "open",
        bin=_bins(at + shift, grain),
        start=at - utc,
        last_bin=_bins(end + shift, grain),
        stop=pl.when(pl.col("grain") == "hour").then(at).otherwise(stop - _MICROSECOND) - utc,
    )


def _bins(at: pl.Expr, grain: str) -> pl.Expr:
    """Return the bin of local times, equal to `recollect.graph.times.time_bin`; hours are those of UTC."""
    if grain == "hour":
        at = at - pl.duration(minutes=pl.col("offset").fill_null(0))
    days = at.dt.epoch("d").cast(pl.Int64)
    number = {
        "year": at.dt.year().cast(pl.Int64),
        "quarter": at.dt.year().cast(pl.Int64) * 4 + at.dt.quarter().cast(pl.Int64) - 1,
        "month": at.dt.year().cast(pl.Int64) * 12 + at.dt.month().cast(pl.Int64) - 1,
        "week": (days + 3) // 7,  # day 0, 1970-01-01, is the fourth day of its week
        "day": days,
        "hour": at.dt.epoch("us") // 3_600_000_000,
    }[grain]
    return pl.when((at >= _FIRST) & (at.dt.year() <= LAST_YEAR)).then(number)


def _row_bins(table: Table, binned: pl.DataFrame, grain: str) -> tuple[Table, pl.DataFrame]:
    """Return the rows whose times can be used, and the first and last bin of each, null where open, and `ongoing`.

    Raise UserError for a time that is too coarse or too early.
    """
    if "time" in table.frame.columns:
        found = _look_up(table.frame, "time", binned)
        _refuse_coarse(table, "time", found["bin"].is_null(), grain)
        return table, pl.DataFrame({"first": found["bin"], "last": found["bin"], "ongoing": False})
    start = _look_up(table.frame, "start", binned).select("bin", "start", pl.col("open").fill_null(True))
    end = _look_up(table.frame, "end", binned).select("last_bin", "stop", pl.col("open").fill_null(True))
    if grain != "ordinal":
        start = start.with_columns(open=pl.col("open") | _is_placeholder("start", start=True))
        end = end.with_columns(open=pl.col("open") | _is_placeholder("stop"))
    _refuse_coarse(table, "start", start["bin"].is_null() & ~start["open"], grain)
    _refuse_coarse(table, "end", end["last_bin"].is_null() & ~end["open"], grain)
    start = start.with_columns(pl.when(~pl.col("open")).then(pl.col("bin", "start")))
    end = end.with_columns(pl.when(~pl.col("open")).then(pl.col("last_bin", "stop")))
    bins = pl.DataFrame({"first": start["bin"], "last": end["last_bin"], "ongoing": end["open"]})
    unknown = start["open"] & end["open"]
    is_reversed = (end["stop"] < start["start"]).fill_null(False)
    kept = _leave_out_bad_intervals(table, unknown, is_reversed)
    bins = bins.filter(~(unknown | is_reversed))
    # an interval that ends where it starts is a point
    last = pl.when(pl.col("last").is_not_null()).then(pl.max_horizontal("first", "last"))
    return kept, bins.with_columns(last=last)


def _leave_out_bad_intervals(table: Table, unknown: pl.Series, is_reversed: pl.Series) -> Table:
    """Leave out intervals without start and end and those that end before they start; raise UserError if many do."""
    kept = leave_out(
        table,
        unknown,
        "neither start nor end known",
        most=0.5,
        what="neither start nor end is known",
        advice="give one or drop the row",
    )
    row = first_true(is_reversed)
    start, end = ((table.frame[role][row] if role in table.frame.columns else None) for role in ("start", "end"))
    return leave_out(
        kept,
        is_reversed.filter(~unknown),
        "end before start",
        most=REVERSED_SHARE,
        what=f"the end {end} is before the start {start}",
        advice="correct it, or name the columns if these are not start and end",
    )


def _is_placeholder(column: str, start: bool = False) -> pl.Expr:
    """Return whether a time is what tables write for an open end: in the year 9999, or for a start 0001-01-01."""
    far = pl.col(column).dt.year() >= LAST_YEAR
    return (far | (pl.col(column) == _FIRST) if start else far).fill_null(False)


def _look_up(frame: pl.DataFrame, role: str, values: pl.DataFrame) -> pl.DataFrame:
    """Return the values of the labels of a role, null for labels that are not there: (rows, columns)."""
    if role not in frame.columns:
        return values.drop("label").clear(frame.height)
    return frame.select(label=role).join(values, on="label", how="left", maintain_order="left").drop("label")


def _refuse_coarse(table: Table, role: str, unreadable: pl.Series, grain: str) -> None:
    """Raise UserError for the first row of a mask, whose time has no bin."""
    if unreadable.any():
        row = first_true(unreadable)
        wanted = "a whole number" if grain == "ordinal" else f"a {grain} or finer, like {_EXAMPLES[grain]}"
        raise UserError(
            f"{table.where(row + 1)}: cannot read {table.frame[role][row]!r} as the {role}; "
            f"wanted {wanted}, or another grain"
        )
