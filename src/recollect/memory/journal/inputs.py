"""Read what is to be remembered or forgotten, a fact by its parts, rows, a table or a file, as runs of bins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl

from recollect.errors import UserError
from recollect.graph.facts import EpisodicGraph
from recollect.graph.runs import has_runs
from recollect.graph.times import MAX_TIMES, TimeAxis, time_bin
from recollect.io.table import first_true
from recollect.io.tables.reading import Source, read_changes
from recollect.io.times.dates import OPEN
from recollect.memory.answering.periods import RANGE, bin_of, is_period
from recollect.memory.answering.questions import Time
from recollect.memory.journal.changes import TRIPLE

ASKED = pl.Schema({**dict.fromkeys(TRIPLE, pl.String), "first": pl.Int64, "last": pl.Int64})
FEW_TIMES = 1000  # steps by which one change may extend any axis; a longer axis may double
_WIDTHS = {3: TRIPLE, 4: (*TRIPLE, "time"), 5: (*TRIPLE, "start", "end")}

Bins = tuple[int | None, int | None]  # first and last, both included; None: no limit


@dataclass(frozen=True, kw_only=True)
class FactParts:
    """A fact, or a pattern of facts, by its parts: a time or a period, or an interval of start and end."""

    subject: str | None = None
    predicate: str | None = None
    object: str | None = None
    time: Time | None = None
    start: Time | None = None
    end: Time | None = None

    def __post_init__(self) -> None:
        if self.time is not None and (self.start is not None or self.end is not None):
            raise UserError("give a time, or a start and an end, not both")
        for name in TRIPLE:
            label = getattr(self, name)
            if label is not None and (not isinstance(label, str) or not label):
                raise UserError(f"the {name} is a text that is not empty; got {label!r}")

    @property
    def has_time(self) -> bool:
        """Whether a time, a start or an end is given."""
        return self.time is not None or self.start is not None or self.end is not None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is given."""
        return not self.triple and not self.has_time

    @property
    def triple(self) -> dict[str, str]:
        """The given ones of subject, predicate and object."""
        return {name: getattr(self, name) for name in TRIPLE if getattr(self, name) is not None}

    def bins(self, axis: TimeAxis, *, inclusive_end: bool = False) -> Bins:
        """Return the first and last bin; None where there is no limit, or no time is given."""
        if self.time is not None:
            return _period_bins(axis, self.time)
        first = None if _is_open(self.start) else bin_of(axis, _text(self.start), False)
        last = None if _is_open(self.end) else _end_bin(axis, _text(self.end), inclusive_end)
        if first is not None and last is not None and last < first:
            if bin_of(axis, _text(self.end), True) < first:
                raise UserError(f"the end {self.end} is before the start {self.start}; give the earlier one as start")
            last = first  # an interval that ends where it starts is a point
        return first, last


def asked_fact(graph: EpisodicGraph, parts: FactParts, *, inclusive_end: bool = False) -> pl.DataFrame:
    """Return one fact to be remembered, in the columns of ASKED."""
    missing = [name for name in TRIPLE if name not in parts.triple]
    if not parts.has_time and not is_static(graph):
        missing.append("time")
    if missing:
        raise UserError(f"no {missing[0]}; give subject, predicate, object and time (or start and end) of a fact")
    axis = graph.times
    first, last = parts.bins(axis, inclusive_end=inclusive_end) if parts.has_time else (axis.first, axis.first)
    is_single = parts.time is not None and RANGE not in str(parts.time)
    if is_single and first != last and not has_runs(graph):
        raise UserError(
            f"{parts.time!r} is not one {axis.grain}, and this memory stores facts of single ones; write one, like "
            f"{axis.label(0)!r}, or for every {axis.grain} of a range two, like {axis.label(0)}{RANGE}{axis.label(1)}"
        )
    frame = pl.DataFrame([(*parts.triple.values(), first, last)], schema=ASKED, orient="row")
    return check_times(graph, frame, lambda row: "")


def asked_facts(
    graph: EpisodicGraph,
    facts: Source,
    *,
    columns: Mapping[str, str | int] | None = None,
    dates: str | None = None,
    inclusive_end: bool = False,
    forget: bool = False,
) -> pl.DataFrame:
    """Return the facts of a file, a table or rows, in the columns of ASKED.

    To `forget`, a time coarser than the grain is all of its period, and open ends are null; to remember, it is refused.
    """
    if not forget and columns is not None and "weight" in columns:
        raise UserError(
            "what is remembered has weight 1, and a column of weights is given; leave it out, or train with the table "
            "to weight its facts"
        )
    static = is_static(graph)
    source = _table_of(facts) if _is_rows(facts) else facts
    if isinstance(source, str) and source != "-" and "::" not in source:
        source = Path(source)
    table, bins = read_changes(
        source, graph.times.grain, columns=columns, dates=dates, static=static, inclusive_end=inclusive_end,
        whole_periods=forget,
    )  # fmt: skip
    if static:
        bins = bins.with_columns(first=pl.lit(graph.times.first), last=pl.lit(graph.times.first))
    if "value" in table.frame.columns:
        is_true = table.frame["value"].str.to_lowercase().is_in(["true", "1"])
        if not is_true.all():
            raise UserError(
                f"{table.where(first_true(~is_true) + 1)}: the value is {table.frame['value'].filter(~is_true)[0]!r}; "
                "a memory remembers and forgets true facts only: leave the row out"
            )
    frame = pl.concat([table.frame.select(TRIPLE), bins], how="horizontal").cast(ASKED)
    return frame if forget else check_times(graph, frame, lambda row: f"{table.where(row + 1)}: ")


def check_times(graph: EpisodicGraph, frame: pl.DataFrame, where: Callable[[int], str]) -> pl.DataFrame:
    """Return facts with open starts filled in; raise UserError for times that the graph cannot have."""
    axis = graph.times
    unknown = frame["first"].is_null() & frame["last"].is_null()
    if unknown.any():
        raise UserError(f"{where(first_true(unknown))}neither start nor end is known; give one of them")
    if not has_runs(graph) and frame["last"].null_count():
        raise UserError(
            f"{where(first_true(frame['last'].is_null()))}the end is open, and this memory stores facts of single "
            "times; give the end"
        )
    first = pl.col("first").fill_null(pl.min_horizontal("last", pl.lit(axis.first)))
    frame = frame.with_columns(first=first)
    between = ((frame["first"] - axis.first) % axis.step != 0) | ((frame["last"] - axis.first) % axis.step != 0)
    if axis.step > 1 and between.fill_null(False).any():
        row = first_true(between.fill_null(False))
        raise UserError(
            f"{where(row)}time {frame['first'][row]} is between two times of this memory, which go by {axis.step} from "
            f"{axis.label(0)}"
        )
    _check_reach(axis, frame, where)
    return frame


def is_static(graph: EpisodicGraph) -> bool:
    """Return whether a graph was read without times."""
    return graph.times.grain == "ordinal" and len(graph.times) == 1


def _check_reach(axis: TimeAxis, frame: pl.DataFrame, where: Callable[[int], str]) -> None:
    """Raise UserError for a time that is so far from all others that it is probably wrong."""
    room = axis.step * max(FEW_TIMES, len(axis))
    low, high = axis.first - room, axis.first + (len(axis) - 1) * axis.step + room
    far = (frame["first"] < low) | (frame["first"] > high) | (frame["last"] > high).fill_null(False)
    span = max(0, axis.first - low) + len(axis)
    if far.any() or span > MAX_TIMES:
        row = first_true(far)
        given = frame["first"][row] if frame["first"][row] < low or frame["first"][row] > high else frame["last"][row]
        label = TimeAxis(axis.grain, given, 1).label(0)
        raise UserError(
            f"{where(row)}time {label} is more than {room // axis.step:,} steps from the times of this memory, "
            f"{axis.label(0)} to {axis.label(len(axis) - 1)}; correct it, or train a memory with it"
        )


def _period_bins(axis: TimeAxis, time: Time) -> Bins:
    """Return the first and last bin of a time, of a coarser period, or of a range, which may have one end only."""
    text = _text(time)
    start, dots, end = text.partition(RANGE)
    if not dots and not is_period(axis, time):
        number = bin_of(axis, text, False)
        return number, number
    start, end = start.strip(), (end if dots else start).strip()
    first = None if _is_open(start) else bin_of(axis, start, False)
    last = None if _is_open(end) else bin_of(axis, end, True)
    if first is not None and last is not None and first > last:
        raise UserError(f"the period {text!r} ends before it begins; write the earlier time first")
    return first, last


def _end_bin(axis: TimeAxis, label: str, inclusive: bool) -> int:
    """Return the last bin of an interval that ends at a label."""
    if inclusive:
        return bin_of(axis, label, True)
    number = time_bin(label, axis.grain, before=True)
    return bin_of(axis, label, False) - 1 if number is None else number


def _text(label: Any) -> str:
    return label.isoformat() if isinstance(label, date) else str(label).strip()


def _is_open(label: Any) -> bool:
    return label is None or (isinstance(label, str) and label.strip().lower() in OPEN)


def _is_rows(facts: Any) -> bool:
    """Return whether facts are given as tuples or dictionaries."""
    if isinstance(facts, Sequence) and not isinstance(facts, str):
        return all(isinstance(row, tuple | list | Mapping) for row in facts)
    return False


def _table_of(rows: Sequence[Any]) -> pl.DataFrame:
    """Return rows (s, p, o, t) or (s, p, o, start, end), or dictionaries, as a table of text."""
    if not rows:
        raise UserError("no facts; give at least one")
    if isinstance(rows[0], Mapping):
        names: Sequence[str] = list(dict.fromkeys(name for row in rows for name in row))
        cells = [[row.get(name) for name in names] for row in rows]
    else:
        width = len(rows[0])
        if width not in _WIDTHS or any(len(row) != width for row in rows):
            raise UserError("a row is (subject, predicate, object, time) or (subject, predicate, object, start, end)")
        names, cells = _WIDTHS[width], [list(row) for row in rows]
    texts = [
        [None if cell is None else _text(cell) if isinstance(cell, date) else str(cell) for cell in row]
        for row in cells
    ]
    return pl.DataFrame(texts, schema=dict.fromkeys(names, pl.String), orient="row")
