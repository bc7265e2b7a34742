"""Choose the time grain of tables: the coarsest that loses nothing that matters."""

from __future__ import annotations

import polars as pl

from recollect.graph.times import GRAINS

COARSE_SHARE = 0.1  # of the starts and ends: so many may be coarser than the grain
FEW_HOURS = {True: 0.02, False: 0.1}  # of the points, or of the starts and ends, are not midnight where days are meant
ENOUGH_DATES = 3  # distinct ones from which a coarser grain is inferred
LAST_YEAR = 9999  # what tables write for an open end
FINENESS = {grain: i for i, grain in enumerate(GRAINS)}
LONG_AXIS, SPARSE = 50_000, 10  # hours from which an axis is long, and hours for each that a row has: mostly empty
PERIODS = {"year": "1y", "quarter": "1q", "month": "1mo", "week": "1w", "day": "1d"}


def choose_grain(times: pl.DataFrame, is_point: bool, inclusive_end: bool) -> tuple[str, str | None]:
    """Return the coarsest grain that loses nothing that matters, and a sentence if it is not the labels' own."""
    known = times.filter(pl.col("at").is_not_null() | pl.col("number").is_not_null())
    if known.is_empty():
        return "day", None
    if known["number"].is_not_null().any():
        return "ordinal", None
    known, note = _days_at_midnight(known, FEW_HOURS[is_point])
    counts = known.group_by("grain").agg(pl.col("starts", "ends").sum(), example=pl.col("label").first())
    own = sorted(counts.iter_rows(named=True), key=lambda row: FINENESS[row["grain"]])
    if len(own) > 1:
        return _mixed_grain(own, is_point)
    grain = own[0]["grain"]
    if grain != "day" or note or known.height < ENOUGH_DATES:
        return grain, note
    for coarse in ("year", "month"):
        if known.select(_on_edges(coarse, inclusive_end).all()).item():
            edge = "1 January" if coarse == "year" else "the first of a month"
            last = "" if is_point else f" or ends on {'31 December' if coarse == 'year' else 'the last'}"
            return coarse, f"every date is {edge}{last}, so the time grain is {coarse}; --grain day keeps days"
    return grain, None


def days_suffice(times: pl.DataFrame, rows: pl.DataFrame) -> bool:
    """Return whether an axis of hours would be long and mostly empty, and days tell the rows of a subject apart.

    Subjects that occur once tell nothing about it. `times` has the parsed labels, `rows` the columns subject, predicate
    and label.
    """
    at = times.select("label", hour=pl.col("at").dt.truncate("1h"), day=pl.col("at").dt.truncate("1d"))
    hours = at["hour"].drop_nulls()
    span = (hours.max() - hours.min()).total_seconds() / 3600 if len(hours) else 0  # type: ignore[operator, union-attr]
    if span < max(LONG_AXIS, SPARSE * hours.n_unique()):
        return False
    found = rows.join(at, on="label").drop_nulls("hour")
    by_hour, by_day = (found.select("subject", "predicate", time).n_unique() for time in ("hour", "day"))
    return by_hour == by_day >= 2 * found.select("subject", "predicate").n_unique()


def _days_at_midnight(known: pl.DataFrame, few: float) -> tuple[pl.DataFrame, str | None]:
    """Take times for days if at most a share `few` of them is not midnight; return a sentence if some are not."""
    is_hour = pl.col("grain") == "hour"
    other = is_hour & (pl.col("at") != pl.col("at").dt.truncate("1d"))
    uses = pl.col("starts") + pl.col("ends")
    hours, others = known.select(uses.filter(is_hour).sum(), other=uses.filter(other).sum()).row(0)
    if others > few * hours:
        return known, None
    example = known.filter(other)["label"]
    note = (
        f"{others:,} of {hours:,} times are not midnight, like {example[0]!r}, so the time grain is day"
        if others
        else None
    )
    return known.with_columns(grain=pl.when(is_hour).then(pl.lit("day")).otherwise("grain")), note


def _mixed_grain(own: list[dict[str, object]], is_point: bool) -> tuple[str, str]:
    """Return the grain of labels of several grains, given from coarse to fine, and a sentence about it."""
    count = {str(row["grain"]): int(str(row["starts"])) + int(str(row["ends"])) for row in own}
    coarsest, finest = str(own[0]["grain"]), str(own[-1]["grain"])
    coarser = sum(count.values()) - count[finest]
    example = own[0]["example"]
    if not is_point and coarser <= COARSE_SHARE * sum(count.values()):
        return finest, (
            f"{coarser:,} of {sum(count.values()):,} starts and ends are less exact than a {finest}, like {example!r}; "
            f"they count from the first {finest} of theirs"
        )
    return coarsest, (
        f"the times are of several grains ({', '.join(f'{n:,} {grain}s' for grain, n in count.items())}, such as "
        f"{example!r}), so the time grain is {coarsest}"
    )


def _on_edges(grain: str, inclusive_end: bool) -> pl.Expr:
    """Return whether a day is the first of a period, or as an end the last (of [start, end): either)."""
    period = PERIODS[grain]
    is_first = pl.col("at") == pl.col("at").dt.truncate(period)
    is_last = pl.col("at").dt.offset_by("1d") == pl.col("at").dt.offset_by("1d").dt.truncate(period)
    as_end = is_last if inclusive_end else is_first | is_last
    placeholder = pl.col("at").dt.year() == LAST_YEAR
    return placeholder | (((pl.col("starts") == 0) | is_first) & ((pl.col("ends") == 0) | as_end))
