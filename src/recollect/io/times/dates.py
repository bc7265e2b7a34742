"""Parse dates as people write them: one reading for all time labels of a table, found by looking at all of them.

A parsed label has the local time `at` at which its period starts, the offset from UTC in minutes (null if none is
written) and its own grain. The readings are ymd, dmy and mdy, which differ in numeric dates only, unix, unix-ms,
unix-us, unix-ns, excel, ordinal (plain numbers), and a format of `datetime.strptime`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import polars as pl

from recollect.errors import UserError

ORDERS = ("ymd", "dmy", "mdy")
NUMBERS = ("unix", "unix-ms", "excel")  # that the caller may choose; unix-us and unix-ns are found
YEAR_DIRECTIVES = ("%Y", "%y", "%G", "%c", "%x")  # of strptime; without one, Python 3.13 warns and 3.15 will raise
OPEN = frozenset(
    (
        *("", "-", "--", "–", "—", "…", "...", "..", "∞", "+∞", "inf", "infinity", "+infinity", "?", "unknown"),
        *("n/a", "na", "nan", "nat", "none", "null", "<na>", "#", "##", "####", "####-##-##", "0000", "0000-00-00"),
        *("present", "now", "today", "current", "currently", "ongoing", "incumbent", "open", "still"),
        *("to date", "to present", "until now", "up to now"),
    )
)  # folded labels of a start or an end that is not known
_UNKNOWN_NUMBERS = ("-9", "-99", "-999", "-9999", "-99999999", "999912", "99999999")  # in columns of dates
_UNITS = {"unix": 10**6, "unix-ms": 10**3, "unix-us": 1, "unix-ns": 0}  # microseconds of one
FEW = 0.02  # of the labels or rows may be unreadable, and are left out with a warning
MOSTLY = 0.8  # of the cells of a column of dates are dates
_UNIX_RANGE = (10**8, 42 * 10**8)  # 1973 to 2103, in seconds
_EXCEL_RANGE = (18264, 54788)  # 1950 to 2049, in days from 1899-12-30
_MICROSECOND, _DAY = pl.duration(microseconds=1), pl.duration(days=1)
_MONTHS = "january february march april may june july august september october november december".split()  # noqa: SIM905
_MONTH_NUMBERS = {name[:n]: i for i, name in enumerate(_MONTHS, 1) for n in (3, len(name))} | {"sept": 9}

_TIME = (
    r"(?:(?:t| |, ?)(?P<H>[0-9]{1,2})(?::?(?P<M>[0-9]{2})(?::?(?P<S>[0-9]{2})(?:[.,](?P<f>[0-9]{1,9}))?)?)?"
    r" ?(?P<half>[ap]\.?m\.?)? ?(?P<offset>z|utc|gmt|[+-][0-9]{2}(?::?[0-9]{2})?)?)?"
)
_WEEKDAY = r"(?:(?:mon|tue|wed|thu|fri|sat|sun)[a-z]{0,6}\.?,? )?"
_Y, _M, _D = r"(?P<y>[0-9]{4})", r"(?P<m>[0-9]{1,2})", r"(?P<d>[0-9]{1,2})"
_NAME, _TH, _GAP = r"(?P<name>[a-z]{3,9})\.?", r"(?:st|nd|rd|th)?", r"[-/. ]?"
_CENTURY = r"(?P<y>(?:18|19|20|21)[0-9]{2})"
_UNKNOWN_PART = r"(?:00|##|xx|\?\?)"


@dataclass(frozen=True)
class _Pattern:
    """A form of dates. `order` is "first" or "last" by the place of the year in a numeric date, else "any"."""

    regex: str
    grain: str
    order: str = "any"


_PATTERNS = (
    _Pattern(rf"{_Y}(?:[-/]{_UNKNOWN_PART}){{1,2}}", "year", "first"),
    _Pattern(rf"{_Y}[-/]{_M}[-/]{_UNKNOWN_PART}", "month", "first"),
    _Pattern(rf"{_M}/-99?/{_Y}", "month", "last"),
    _Pattern(rf"{_Y}(?P<s1>[-/. ]){_M}(?P<s2>[-/. ]){_D}{_TIME}", "day", "first"),
    _Pattern(_Y, "year"),
    _Pattern(rf"(?P<n1>[0-9]{{1,2}})(?P<s1>[-/. ])(?P<n2>[0-9]{{1,2}})(?P<s2>[-/. ]){_Y}{_TIME}", "day", "last"),
    _Pattern(rf"{_Y}(?P<m>[0-9]{{2}})(?P<d>[0-9]{{2}}){_TIME}", "day", "first"),
    _Pattern(rf"{_Y}[-/]{_M}", "month", "first"),
    _Pattern(rf"{_CENTURY}(?P<m>[0-9]{{2}})", "month", "first"),
    _Pattern(rf"{_WEEKDAY}{_D}{_TH}{_GAP}(?:of )?{_NAME},?{_GAP}{_Y}{_TIME}", "day"),
    _Pattern(rf"{_WEEKDAY}{_NAME}{_GAP}{_D}{_TH},?{_GAP}{_Y}{_TIME}", "day"),
    _Pattern(rf"{_Y}{_GAP}{_NAME}{_GAP}{_D}{_TIME}", "day"),
    _Pattern(rf"{_NAME},?{_GAP}{_Y}", "month"),
    _Pattern(rf"{_Y}{_GAP}{_NAME}", "month"),
    _Pattern(rf"{_M}[-/.]{_Y}", "month", "last"),
    _Pattern(rf"{_Y}[-/ ]?q(?P<q>[1-4])", "quarter"),
    _Pattern(rf"q(?P<q>[1-4])[-/ ]?{_Y}", "quarter"),
    _Pattern(rf"(?P<q>[1-4])q[-/ ]?{_Y}", "quarter"),
    _Pattern(rf"{_Y}-?w(?P<w>[0-9]{{1,2}})", "week"),
    _Pattern(
        rf"{_CENTURY}(?P<m>[0-9]{{2}})(?P<d>[0-9]{{2}})(?P<H>[0-9]{{2}})(?:(?P<M>[0-9]{{2}})(?P<S>[0-9]{{2}})?)?",
        "hour",
        "first",
    ),
)
_PARSED: dict[str, Any] = {"label": pl.String, "at": pl.Datetime("us"), "offset": pl.Int64, "grain": pl.String}
_PARSED["number"] = pl.Int64
_GROUPS = ("y", "m", "d", "n1", "n2", "s1", "s2", "name", "q", "w", "H", "M", "S", "f", "half", "offset")
_NUMERIC = r"^[+-]?[0-9]{1,19}(?:\.[0-9]+)?$"
_COMPACT = r"^(?:[12][0-9]{3}|[12][0-9]{5}|[12][0-9]{7}|(?:18|19|20|21)[0-9]{8}(?:[0-9]{2}){0,2})$"
_SHORT_YEAR = r"^[0-9]{1,2}[-/. ](?:[0-9]{1,2}|[a-z]{3})[-/. ][0-9]{2}(?:[ t].*)?$"


@dataclass(frozen=True)
class TimeLabels:
    """Parsed time labels: columns label, at, offset, grain, number (of an ordinal), open; null is unreadable."""

    frame: pl.DataFrame
    reading: str

    def hint(self, label: str) -> str:
        """Return what else to do about a label that this reading does not parse, or ""."""
        text = label.strip().lower()
        if pl.Series([text]).str.contains(_SHORT_YEAR).item():
            return "; for years of two digits give the format, like dates='%d/%m/%y' (--dates %d/%m/%y)"
        if self.reading in ("dmy", "mdy"):
            return f"; all dates before it are {self.reading}: write all dates in one way"
        return "; write all dates in one way, or give their format (--dates %d/%m/%Y)"


def check_dates(dates: str | None) -> None:
    """Raise UserError for a reading that does not exist."""
    if dates is None or dates in (*ORDERS, *NUMBERS):
        return
    if "%" not in dates:
        raise UserError(
            f"unknown dates {dates!r}; choose {', '.join((*ORDERS, *NUMBERS))} or a format like %d/%m/%Y (strftime)"
        )
    tells_year = any(directive in dates for directive in YEAR_DIRECTIVES)
    try:
        text = datetime(2014, 12, 25, tzinfo=UTC).strftime(dates)
        is_inverse = tells_year and datetime.strptime(text, dates).year == 2014
    except ValueError as error:
        raise UserError(f"dates={dates!r} is no format of strftime ({error}); write it like %d/%m/%Y") from error
    if not is_inverse:
        raise UserError(f"dates={dates!r} does not tell the year; write the format like %d/%m/%Y")


def parse_times(
    labels: pl.DataFrame, dates: str | None, grain: str | None, *, dated: bool, where: Callable[[int], str]
) -> TimeLabels:
    """Parse the labels of all time columns by the one reading that fits all of them.

    `labels` has columns `label`, distinct, and `first`, the row in which it occurs first; `where` says where a row is.
    `dated` says whether all columns are called dates, so that numbers from 18264 to 54788 are taken for Excel's.
    If no reading fits, one that fits nearly all labels is taken, or else that of the longest beginning of the table.
    """
    labels = _with_text(labels).with_columns(open=pl.col("text").is_in(OPEN))
    known = labels.filter(~pl.col("open"))
    if dates is not None and "%" in dates:
        parsed, reading = _by_format(known, dates), dates
    elif dates in ORDERS:
        parsed, reading = _in_order(_components(known), dates), dates
    else:
        reading = dates or _number_reading(known, grain, dated, where)
        if reading == "calendar":
            parsed, reading = _calendar(known, where)
        else:
            parsed = _numbers(known, reading)
    parsed = labels.join(parsed, on="label", how="left", maintain_order="left")
    is_unknown_number = pl.col("text").is_in(_UNKNOWN_NUMBERS) & pl.col("at").is_null() & pl.lit(reading != "ordinal")
    columns = ("label", "at", "offset", "grain", "number", pl.col("open") | is_unknown_number)
    return TimeLabels(parsed.select(columns), reading)


def looks_dated(values: Iterable[str | None]) -> bool:
    """Return whether nearly all cells of a sample are dates, apart from open ends."""
    cells = [cell for cell in dict.fromkeys(values) if cell and cell.strip().lower() not in OPEN]
    known = _with_text(
        pl.DataFrame({"label": cells, "first": range(len(cells))}, schema={"label": pl.String, "first": pl.Int64})
    )
    numbers = known["text"].filter(known["text"].str.contains(_NUMERIC))
    if not cells or not numbers.str.contains(_COMPACT).all():
        return False
    parts = _components(known)
    return any(int(_in_order(parts, order)["at"].is_not_null().sum()) >= MOSTLY * len(cells) for order in ORDERS)


def _with_text(labels: pl.DataFrame) -> pl.DataFrame:
    """Add the folded text of labels: lower case, single blanks, no footnote mark as in `May 2014[2]`."""
    text = pl.col("label").str.strip_chars().str.to_lowercase().str.replace_all(r"\s+", " ")
    return labels.with_columns(text=text.str.replace(r"( ?\[[^\[\]]{1,9}\])+$", "").fill_null(""))


def _number_reading(known: pl.DataFrame, grain: str | None, dated: bool, where: Callable[[int], str]) -> str:
    """Return the reading of labels that are numbers, or "calendar"."""
    if grain == "ordinal":
        return "ordinal"
    is_number = known["text"].str.contains(_NUMERIC)
    numbers = known.filter(is_number & ~known["text"].is_in((*_UNKNOWN_NUMBERS, "9999", "99991231")))
    whole = numbers["text"].str.strip_chars("+").str.replace(r"\.0+$", "")
    if not is_number.any():
        return "calendar"
    compact = whole.str.contains(_COMPACT)
    if len(numbers) and compact.all() and _in_order(_components(numbers), "ymd")["at"].null_count() == 0:
        return "calendar"
    if not is_number.all() or not len(numbers):
        is_mostly_dates = 2 * int(is_number.sum()) < known.height
        return "calendar" if grain or is_mostly_dates else "ordinal"
    values = whole.cast(pl.Float64)
    low, high = _UNIX_RANGE
    for unit, reading in enumerate(_UNITS):
        if values.is_between(low * 1000.0**unit, high * 1000.0**unit).all():
            return reading
    if values.is_between(*_EXCEL_RANGE).all():
        if dated or grain:
            return "excel"
        row = numbers.row(0, named=True)
        day = _numbers(numbers[:1], "excel")["at"].item().date()
        raise UserError(
            f"{where(row['first'])}: {row['label']!r} can be read as the day {day} of Excel and as a plain number, and "
            "so can all times; say which: dates='excel' (--dates excel) or grain='ordinal' (--grain ordinal)"
        )
    return "calendar" if grain else "ordinal"


def _calendar(known: pl.DataFrame, where: Callable[[int], str]) -> tuple[pl.DataFrame, str]:
    """Parse dates in the order that fits all of them: (parsed, order)."""
    parts = _components(known)
    parsed = {order: _in_order(parts, order) for order in ORDERS}
    ignored = known["text"].is_in(_UNKNOWN_NUMBERS)
    unread = {order: known["first"].filter(frame["at"].is_null() & ~ignored) for order, frame in parsed.items()}
    fitting = [order for order in ORDERS if unread[order].is_empty()]
    if fitting == ["dmy", "mdy"]:
        _refuse_ambiguous(known.with_columns(dmy=parsed["dmy"]["at"], mdy=parsed["mdy"]["at"]), where)
    if fitting:
        return parsed[fitting[0]], fitting[0]
    best = min(ORDERS, key=lambda order: len(unread[order]))
    if len(unread[best]) > FEW * known.height:
        best = max(ORDERS, key=lambda order: int(unread[order].to_numpy().min()))
    return parsed[best], best


def _refuse_ambiguous(read: pl.DataFrame, where: Callable[[int], str]) -> None:
    """Raise UserError if a date has another reading as dmy than as mdy."""
    differing = read.filter(pl.col("dmy") != pl.col("mdy")).sort("first")
    if not differing.is_empty():
        row = differing.row(0, named=True)
        raise UserError(
            f"{where(row['first'])}: {row['label']!r} can be read as {row['dmy'].date()} (dmy) or {row['mdy'].date()} "
            "(mdy), and so can every date here; say which: dates='dmy' (--dates dmy) or dates='mdy' (--dates mdy)"
        )


def _components(known: pl.DataFrame) -> pl.DataFrame:
    """Return the parts of labels by the first pattern that each matches, null where none does."""
    text = known["text"].str.replace(r"^([+-]?[0-9]+)\.0+$", "${1}")
    found = [pl.DataFrame(schema={"row": pl.UInt32} | dict.fromkeys((*_GROUPS, "own", "order"), pl.String))]
    rest = pl.DataFrame({"text": text}).with_row_index("row")
    for pattern in _PATTERNS:
        groups = rest["text"].str.extract_groups(f"^{pattern.regex}$").struct.unnest()
        matched = groups["y"].is_not_null()
        if matched.any():
            parts = groups.with_columns(row=rest["row"], own=pl.lit(pattern.grain), order=pl.lit(pattern.order))
            found.append(parts.filter(matched))
            rest = rest.filter(~matched)
        if rest.is_empty():
            break
    parts = pl.concat(found, how="diagonal").filter(pl.col("s1").eq_missing(pl.col("s2")))
    parts = parts.with_columns(pl.col("y", "m", "d", "n1", "n2", "q", "w", "H", "M", "S").cast(pl.Int64))
    every = pl.DataFrame({"label": known["label"]}).with_row_index("row")
    return every.join(parts, on="row", how="left", maintain_order="left")


def _in_order(parts: pl.DataFrame, order: str) -> pl.DataFrame:
    """Return columns label, at, offset, grain and number of components, with numeric dates in one order."""
    month, day = ("n1", "n2") if order == "mdy" else ("n2", "n1")
    named = pl.col("name").replace_strict(_MONTH_NUMBERS, default=None, return_dtype=pl.Int64)
    parts = parts.with_columns(
        m=pl.when(pl.col("name").is_not_null()).then(named).otherwise(pl.coalesce("m", 3 * pl.col("q") - 2, month, 1)),
        d=pl.coalesce("d", day, 1),
    )
    wrong_order = pl.col("order") == ("last" if order == "ymd" else "first")
    valid = pl.col("y").is_between(1, 9999) & pl.col("m").is_between(1, 12) & ~wrong_order
    parts = parts.with_columns(pl.when(valid).then("y"), pl.when(valid).then("m"))
    first = pl.date("y", "m", 1)
    in_month = pl.col("d").is_between(1, first.dt.month_end().dt.day())
    date = pl.when(in_month).then(first.cast(pl.Datetime("us")) + (pl.col("d") - 1) * _DAY)
    at = pl.when(pl.col("w").is_null()).then(date).otherwise(_monday()) + _time_of_day()
    grain = pl.when(pl.col("H").is_not_null()).then(pl.lit("hour")).otherwise("own")
    return parts.select("label", at=at, offset=_offset(), grain=grain, number=pl.lit(None, pl.Int64))


def _monday() -> pl.Expr:
    """Return the first instant of ISO week `w` of year `y`, null if the year has no such week."""
    fourth = pl.date("y", 1, 4).cast(pl.Datetime("us"))
    monday = fourth + (7 * (pl.col("w") - 1) - fourth.dt.weekday().cast(pl.Int64) + 1) * _DAY
    return pl.when((pl.col("w") > 0) & ((monday + 3 * _DAY).dt.iso_year() == pl.col("y"))).then(monday)


def _time_of_day() -> pl.Expr:
    """Return the time since midnight, zero if none is written, null if there is no such time."""
    afternoon = pl.col("half").str.starts_with("p")
    hour = pl.when(afternoon.is_null()).then("H").otherwise(pl.col("H") % 12 + 12 * afternoon.cast(pl.Int64))
    is_valid = (
        hour.fill_null(0).is_between(0, 23)
        & pl.col("M").fill_null(0).is_between(0, 59)
        & pl.col("S").fill_null(0).is_between(0, 59)
        & (afternoon.is_null() | pl.col("H").is_between(1, 12))
    )
    micros = pl.col("f").str.pad_end(6, "0").str.slice(0, 6).cast(pl.Int64).fill_null(0)
    total = ((hour.fill_null(0) * 60 + pl.col("M").fill_null(0)) * 60 + pl.col("S").fill_null(0)) * 10**6 + micros
    return pl.when(is_valid).then(total * _MICROSECOND)


def _offset() -> pl.Expr:
    """Return the minutes by which local time is ahead of UTC, null if no offset is written."""
    digits = pl.col("offset").str.replace_all("[^0-9]", "").str.pad_end(4, "0")
    minutes = digits.str.slice(0, 2).cast(pl.Int64) * 60 + digits.str.slice(2, 2).cast(pl.Int64)
    return pl.when(pl.col("offset").str.starts_with("-")).then(-minutes).otherwise(minutes)


def _numbers(known: pl.DataFrame, reading: str) -> pl.DataFrame:
    """Parse numbers: ordinals, days of Excel, seconds, milli-, micro- or nanoseconds of Unix."""
    text = known["text"].str.strip_chars("+")
    whole = text.str.extract(r"^(-?[0-9]+)(?:\.[0-9]+)?$").cast(pl.Int64, strict=False)
    part = text.str.extract(r"\.([0-9]+)$")
    frame = pl.DataFrame({"label": known["label"], "whole": whole, "part": part})
    fraction = ("0." + pl.col("part")).cast(pl.Float64).fill_null(0.0)
    if reading == "ordinal":
        is_whole = pl.col("part").fill_null("").str.strip_chars("0") == ""
        number = pl.when(is_whole & pl.col("whole").abs().lt(10**15)).then("whole")
        return frame.select("label", at=pl.lit(None, pl.Datetime("us")), offset=pl.lit(None, pl.Int64),
                            grain=pl.lit("ordinal"), number=number)  # fmt: skip
    if reading == "excel":
        start = pl.datetime(1899, 12, 30)
        micros = pl.when(pl.col("whole").is_between(1, 2_958_465)).then(
            (pl.col("whole") * 86_400 + (fraction * 86_400).round().cast(pl.Int64)) * 10**6
        )
        grain, offset = pl.when(fraction > 0).then(pl.lit("hour")).otherwise(pl.lit("day")), None
    else:
        start = pl.datetime(1970, 1, 1)
        unit = _UNITS[reading]
        micro = pl.col("whole") * unit + (fraction * unit).round().cast(pl.Int64) if unit else pl.col("whole") // 1000
        micros = pl.when(pl.col("whole").abs() < 10**11 * 1000 ** list(_UNITS).index(reading)).then(micro)
        grain, offset = pl.lit("hour"), 0
    at = start + micros * _MICROSECOND
    return frame.select("label", at=at, offset=pl.lit(offset, pl.Int64), grain=grain, number=pl.lit(None, pl.Int64))


def _by_format(known: pl.DataFrame, format: str) -> pl.DataFrame:
    """Parse labels by a format of `datetime.strptime`; the grain is that of its finest directive."""
    directives = set(format.replace("%%", "").replace("%-", "%").split("%")[1:])
    letters = {directive[:1] for directive in directives}
    if letters & set("HIMSTXfcRr"):
        grain = "hour"
    elif letters & set("djaAuwDFxe"):
        grain = "day"
    else:
        grain = "week" if letters & set("UWV") else "month" if letters & set("mbBh") else "year"
    at, offset = [], []
    for label in known["label"].to_list():
        try:
            parsed = datetime.strptime(label.strip(), format)
        except ValueError:
            parsed = None
        zone = parsed.utcoffset() if parsed else None
        at.append(parsed.replace(tzinfo=None) if parsed else None)
        offset.append(None if zone is None else round(zone.total_seconds() / 60))
    return pl.DataFrame(
        {"label": known["label"], "at": at, "offset": offset, "grain": grain, "number": None},
        schema=_PARSED,
    )
