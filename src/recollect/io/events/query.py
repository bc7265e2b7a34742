"""Compute facts and the reasons of dropped rows from raw events, as one Ibis expression on text columns.

The expression uses only what Ibis offers on every engine, so DuckDB and a cluster give the same facts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ibis
import ibis.expr.types as ir

from recollect.graph.times import coarser_grain, time_bin
from recollect.io.events.cameo import ROOTS
from recollect.io.events.files import EventFormat

if TYPE_CHECKING:
    from recollect.io.events import EventRecipe

# Why a row is dropped. A row that has several reasons counts for the first one.
BAD_TEXT = "text is not UTF-8"
MALFORMED = "malformed row"
NO_ACTOR = "unknown actor"
BAD_ID = "event id is no whole number"
BAD_DATE = "unreadable date"
OUTSIDE = "outside the dates"
NO_CODE = "unknown event code"
SELF_LOOP = "self-loop"

FILE_DIGITS = 7  # a file's number as text of fixed width, so that text order is numeric order
MAX_LINE_BYTES = 2_000_000  # rows of this length or longer are malformed
NO_CELL = "\x01"  # a cell that is read as null; an empty cell is an empty text


def column_names(event_format: EventFormat) -> list[str]:
    """Return c0, c1, …: all columns of the widest row and one more, which only a malformed row fills."""
    return [f"c{position}" for position in range(max(event_format.widths) + 1)]


def used_columns(event_format: EventFormat, recipe: EventRecipe) -> list[int]:
    """Return the positions of the columns that the expression reads; only their text must be UTF-8."""
    used = {event_format.event, event_format.date, *event_format.actors[recipe.actors]}
    used |= {position for width in event_format.widths for position in (width - 1, width)}
    if recipe.predicates == "name" and event_format.text is not None:
        return sorted({*used, event_format.text})
    if recipe.predicates != "root" or event_format.root is None:
        used.add(event_format.code)
    if event_format.root is not None:
        used.add(event_format.root)
    return sorted(used)


def file_numbers(count: int) -> list[str]:
    """Return the numbers of files in order, as text of which the order is the same."""
    return [f"{number:0{FILE_DIGITS}d}" for number in range(count)]


def facts_and_drops(
    lines: ir.Table, event_format: EventFormat, recipe: EventRecipe, names: ir.Table | None = None
) -> ir.Table:
    """Return one row per fact and one row per reason of dropping.

    `lines` has a text column for every `used_columns`, null beyond the end of a short row; `file`, the number of its
    file as `file_numbers` writes it; and `rejected`, the reason of a row that the engine could not read, else null.
    `names` has the columns `whole_code` and `code_name`, where the recipe needs names that the files have not.

    Columns of the result: `reason` (null for facts), `fact` (subject, predicate, object and time bin, joined by
    tabs), `rows` (input rows) and `events` (distinct event ids).
    """
    if event_format.header is not None:
        lines = lines.filter(lines.c0.fill_null("") != event_format.header)
    if names is not None:
        lines = lines.mutate(whole_code=_cameo_code(lines, event_format)).left_join(names, "whole_code")
    subject, object_ = event_format.actors[recipe.actors]
    parsed = lines.select(
        "file",
        "rejected",
        has_width=_has_width(lines, event_format),
        event=_event_id(lines[f"c{event_format.event}"]),
        subject=_actor(lines[f"c{subject}"], recipe),
        predicate=_predicate(lines, event_format, recipe),
        object=_actor(lines[f"c{object_}"], recipe),
        date=_date(lines[f"c{event_format.date}"]),
    )
    checked = parsed.mutate(reason=_reason(parsed, recipe))
    kept = checked.reason.isnull()
    time = time_bins(checked.date, recipe.grain).cast("string")
    parts = [checked.file, checked.subject, checked.predicate, checked.object, time]
    keyed = checked.select(
        "reason",
        event=kept.ifelse(checked.event, None),
        # no label contains a tab: it separates the columns of the files
        key=kept.ifelse(ibis.literal("\t").join(parts), None),
    )
    # Of rows with the same event id the least key counts: the first file, then the first in alphabetical order.
    by_event = keyed.group_by("reason", "event").agg(rows=keyed.count(), key=keyed.key.min())
    first = by_event.select("reason", "rows", fact=by_event.key.substr(FILE_DIGITS + 1))
    return first.group_by("reason", "fact").agg(rows=first.rows.sum(), events=first.count())


def _has_width(lines: ir.Table, event_format: EventFormat) -> ir.BooleanValue:
    """True where a row has one of the allowed numbers of columns."""
    return ibis.or_(*(lines[f"c{width - 1}"].notnull() & lines[f"c{width}"].isnull() for width in event_format.widths))


def _event_id(text: Any) -> ir.IntegerValue:
    """Return the event id as int64, or null if it is not written in digits alone."""
    # DuckDB leaves a line feed before the cell that follows an empty line of carriage returns
    return text.re_search(r"\A[ \n]*[0-9]+ *\z").ifelse(text, None).try_cast("int64")


def _actor(text: Any, recipe: EventRecipe) -> ir.StringValue:
    """Return the label of an actor, empty if there is none."""
    if recipe.actors == "sector":  # ICEWS lists sectors in any order
        text = text.split(",").filter(lambda sector: sector != "").unique().sort().join(",")
    return text.fill_null("")


def _date(text: Any) -> ir.DateValue:
    """Return the date of YYYYMMDD or YYYY-MM-DD, or null."""
    with_dashes = ibis.literal("-").join([text.substr(0, 4), text.substr(4, 2), text.substr(6, 2)])
    iso = (text.length() == 8).ifelse(with_dashes, text)
    in_calendar = iso > "0001"  # the first year of the calendar
    written = in_calendar & iso.re_search(r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}\z")
    return written.ifelse(iso, None).try_cast("date")


def _predicate(lines: ir.Table, event_format: EventFormat, recipe: EventRecipe) -> ir.StringValue:
    """Return the label of the predicate, or null if there is none."""
    if recipe.predicates == "name":
        return lines.code_name if event_format.text is None else lines[f"c{event_format.text}"].nullif("")
    if recipe.predicates == "code":
        return _cameo_code(lines, event_format)
    if event_format.root is None:
        return _cameo_code(lines, event_format).substr(0, 2)
    return _known_root(lines[f"c{event_format.root}"])


def _known_root(text: Any) -> ir.StringValue:
    """Return a root code in two digits, or null if it is not one of 01 to 20."""
    root = (text.length() == 1).ifelse("0" + text, text)
    return root.isin(ROOTS).ifelse(root, None)


def _cameo_code(lines: ir.Table, event_format: EventFormat) -> ir.StringValue:
    """Return the CAMEO code with its leading zero, or null if it does not begin with 01 to 20.

    The root column decides where there is one. Without it, a code has at least three digits and its first two are
    a root: 42 is 042, and 311 is 0311.
    """
    code = lines[f"c{event_format.code}"]
    padded = "0" + code
    if event_format.root is None:
        as_written = (code.length() >= 3) & code.substr(0, 2).isin(ROOTS)
        zero_lost = (padded.length() >= 3) & padded.substr(0, 2).isin(ROOTS)
    else:
        root = _known_root(lines[f"c{event_format.root}"])
        as_written = code.substr(0, 2) == root
        zero_lost = padded.substr(0, 2) == root
    digits = code.re_search(r"\A[0-9]{1,4}\z")
    return ibis.cases((digits & as_written, code), (digits & zero_lost, padded))


def _reason(parsed: ir.Table, recipe: EventRecipe) -> ir.StringValue:
    """Return why a row is dropped, or null if it is kept."""
    branches = [
        (parsed.rejected.notnull(), parsed.rejected),
        (~parsed.has_width, MALFORMED),
        ((parsed.subject == "") | (parsed.object == ""), NO_ACTOR),
        (parsed.event.isnull(), BAD_ID),
        (parsed.date.isnull(), BAD_DATE),
    ]
    if recipe.since is not None:
        day, first = _at_grain_of(parsed.date, recipe.since)
        branches.append((day < first, OUTSIDE))
    if recipe.until is not None:
        day, last = _at_grain_of(parsed.date, recipe.until)
        branches.append((day > last, OUTSIDE))
    branches.append((parsed.predicate.isnull(), NO_CODE))
    if not recipe.self_loops:
        branches.append((parsed.subject == parsed.object, SELF_LOOP))
    return ibis.cases(*branches)


def _at_grain_of(dates: Any, limit: str) -> tuple[ir.IntegerValue, int]:
    """Return the time bins of dates and of a limit, both at the grain at which the limit is written."""
    grain = coarser_grain("day", limit)
    number = time_bin(limit, grain)
    assert number is not None  # the recipe checked its limits
    return time_bins(dates, grain), number


def time_bins(dates: Any, grain: str) -> ir.IntegerValue:
    """Return the bin number of dates, equal to `recollect.graph.times.time_bin`."""
    if grain == "year":
        return dates.year()
    if grain == "quarter":
        return dates.year() * 4 + dates.quarter() - 1
    if grain == "month":
        return dates.year() * 12 + dates.month() - 1
    if grain == "week":
        return ((dates.epoch_days() + 3) // 7).cast("int64")  # day 0, 1970-01-01, is the fourth day of its week
    return dates.epoch_days()
