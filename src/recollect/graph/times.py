"""Time labels as bins: a bin is the number of a year, quarter, month, week, day or hour, or a plain ordinal.

The grain says which. A label with an offset from UTC lies on the local date that it names; its hour is that of UTC. A
`TimeAxis` maps the labels of consecutive bins to the ids 0, 1, ….
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from torch import Tensor

from recollect.errors import UserError

GRAINS = ("year", "quarter", "month", "week", "day", "hour", "ordinal")
MAX_TIMES = 10_000_000
_FINENESS = {grain: i for i, grain in enumerate(GRAINS[:-1])}
_EPOCH = date(1970, 1, 1).toordinal()  # day 0
_OF_THURSDAY = ("year", "quarter", "month")  # by ISO 8601 a week belongs to that of its Thursday
_MONDAY = 3  # days from a Monday to 1970-01-01, a Thursday

_YEAR = re.compile(r"[0-9]{4}")
_MONTH = re.compile(r"([0-9]{4})[-/]([0-9]{1,2})|((?:18|19|20|21)[0-9]{2})([0-9]{2})")
_QUARTER = re.compile(r"([0-9]{4})[- ]?Q([1-4])")
_WEEK = re.compile(r"([0-9]{4})-?W([0-9]{1,2})")
_DAY = re.compile(r"([0-9]{4})([-/.]?)([0-9]{1,2})\2([0-9]{1,2})")
_ORDINAL = re.compile(r"-?[0-9]{1,15}")


def moment(label: str) -> tuple[datetime, str] | None:
    """Parse a calendar label: return the start of its period and its grain, or None if it is not one.

    >>> moment("2014-03")[1], moment("2014-03-05T13:30Z")[1], moment("soon")
    ('month', 'hour', None)
    """
    try:
        if _YEAR.fullmatch(label):
            return datetime(int(label), 1, 1), "year"
        if match := _MONTH.fullmatch(label):
            return datetime(int(match[1] or match[3]), int(match[2] or match[4]), 1), "month"
        if match := _QUARTER.fullmatch(label):
            return datetime(int(match[1]), 3 * int(match[2]) - 2, 1), "quarter"
        if match := _WEEK.fullmatch(label):
            return datetime.fromisocalendar(int(match[1]), int(match[2]), 1), "week"
        if (match := _DAY.fullmatch(label)) and (match[2] or len(label) == 8):
            return datetime(int(match[1]), int(match[3]), int(match[4])), "day"
        return datetime.fromisoformat(label), "hour"
    except ValueError:
        return None


def _bin(at: datetime, grain: str) -> int:
    """Return the number of the year, quarter, month, week, day or hour that contains `at`."""
    if grain == "hour" and at.tzinfo:
        at = at.astimezone(UTC)
    days = at.toordinal() - _EPOCH
    match grain:
        case "year":
            return at.year
        case "quarter":
            return at.year * 4 + (at.month - 1) // 3
        case "month":
            return at.year * 12 + at.month - 1
        case "week":
            return (days + _MONDAY) // 7
        case "day":
            return days
    return days * 24 + at.hour


def _bin_label(number: int, grain: str) -> str:
    """Return the label of a bin, the inverse of `_bin`."""
    match grain:
        case "ordinal":
            return str(number)
        case "year":
            return f"{number:04d}"
        case "quarter":
            return f"{number // 4:04d}-Q{number % 4 + 1}"
        case "month":
            return f"{number // 12:04d}-{number % 12 + 1:02d}"
        case "week":
            year, week, _ = date.fromordinal(number * 7 - _MONDAY + _EPOCH).isocalendar()
            return f"{year:04d}-W{week:02d}"
        case "day":
            return date.fromordinal(number + _EPOCH).isoformat()
    return f"{date.fromordinal(number // 24 + _EPOCH).isoformat()}T{number % 24:02d}"


def time_bin(label: str, grain: str, *, before: bool = False) -> int | None:
    """Return the bin of `label` at `grain`, or None if the label cannot be parsed or is coarser than the grain.

    With `before`, return the bin of the last instant before `label`: the last bin of an interval [start, label).

    >>> time_bin("2014-03-05", "month") == time_bin("2014-04", "month", before=True)
    True
    """
    if grain == "ordinal":
        if not _ORDINAL.fullmatch(label):
            return None
        return int(label) - 1 if before else int(label)
    parsed = moment(label)
    if parsed is None or _FINENESS[parsed[1]] < _FINENESS[grain]:
        return None
    at, label_grain = parsed
    try:
        if label_grain == "week" and grain in _OF_THURSDAY:
            thursday = at + timedelta(days=3)
            return _bin(thursday - timedelta(weeks=1) if before else thursday, grain)
        return _bin(at - timedelta(microseconds=1) if before else at, grain)
    except OverflowError:
        return None


def within(label: str, since: str | None, until: str | None, grain: str) -> bool:
    """Return whether a time lies in [since, until]; a limit may be coarser and then covers its whole period.

    >>> within("2014-03-05", "2014-03", "2014", "day"), within("2014-03", None, "2014-02-28", "month")
    (True, False)
    """
    return (since is None or _not_after(since, label, since, grain)) and (
        until is None or _not_after(label, until, until, grain)
    )


def _not_after(first: str, second: str, limit: str, grain: str) -> bool:
    """Return whether first ≤ second at `grain`, or at the grain of `limit` if that is coarser."""
    common = coarser_grain(grain, limit)
    first_bin, second_bin = time_bin(first, common), time_bin(second, common)
    return first_bin is not None and second_bin is not None and first_bin <= second_bin


def check_limits(since: str | None, until: str | None, grain: str) -> None:
    """Raise UserError for limits that cannot be parsed or that have no time between them."""
    for limit in (since, until):
        if limit is not None and time_bin(limit, coarser_grain(grain, limit)) is None:
            wanted = "a whole number" if grain == "ordinal" else "a date like 2018-10-04, 2018-10 or 2018"
            raise UserError(f"cannot read {limit!r} as a time; wanted {wanted}")
    if since is not None and until is not None and not within(since, None, until, coarser_grain(grain, since)):
        raise UserError(f"nothing lies between {since} and {until}; the first must not be after the last")


def coarser_grain(grain: str, label: str) -> str:
    """Return the coarser of `grain` and the grain of a label."""
    parsed = None if grain == "ordinal" else moment(label)
    return grain if parsed is None else min(grain, parsed[1], key=_FINENESS.__getitem__)


@dataclass(frozen=True, repr=False)
class TimeAxis:
    """A two-way map between time labels and ids: `size` consecutive bins of one grain, starting at bin `first`.

    Examples:
        >>> axis = TimeAxis.spanning("month", [time_bin("2013-11", "month"), time_bin("2014-02", "month")])
        >>> axis
        TimeAxis(4 times, month, 2013-11 to 2014-02)
        >>> axis.labels
        ['2013-11', '2013-12', '2014-01', '2014-02']
        >>> axis.index("2014-01-20")
        2
    """

    grain: str
    first: int
    size: int
    step: int = 1  # difference of neighbouring ordinals; 1 for calendar grains

    @classmethod
    def spanning(cls, grain: str, bins: Iterable[int], steps: Iterable[int] | None = None) -> TimeAxis:
        """Return the axis from the first to the last of `bins`.

        Ordinals advance by the greatest step that reaches all of `steps`, or if there are none, all of `bins`.
        """
        bins = set(bins)
        first, last = min(bins), max(bins)
        step = 1
        if grain == "ordinal":
            step = math.gcd(*(number - first for number in steps or bins)) or 1
        size = (last - first) // step + 1
        if size > MAX_TIMES:
            raise UserError(
                f"the times span {size:,} steps of one {grain}; wanted at most {MAX_TIMES:,}: choose a coarser grain"
            )
        return cls(grain, first, size, step)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> TimeAxis:
        """Return the axis whose fields a file stores; raise ValueError or TypeError if there is none like it."""
        axis = cls(**stored)
        if axis.grain not in GRAINS or not all(type(number) is int for number in (axis.first, axis.size, axis.step)):
            raise ValueError(f"there is no time axis like {stored}")
        if not 0 <= axis.size <= MAX_TIMES or axis.step < 1 or abs(axis.first) + axis.size * axis.step >= 2**63:
            raise ValueError(f"there is no time axis like {stored}")
        return axis

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        return f"TimeAxis({self.size:,} times, {self.span})"

    @property
    def span(self) -> str:
        """The grain and the first and last label, in words."""
        if not self.size:
            return self.grain
        step = f" by {self.step}" if self.step > 1 else ""
        return f"{self.grain}, {self.label(0)} to {self.label(self.size - 1)}{step}"

    def label(self, index: int) -> str:
        """Return the label of an id."""
        return _bin_label(self.first + index * self.step, self.grain)

    @property
    def labels(self) -> list[str]:
        """The labels of all ids, in order."""
        return [self.label(i) for i in range(self.size)]

    def take(self, ids: Tensor) -> list[str]:
        """Return the labels of ids (n,)."""
        return [self.label(i) for i in ids.tolist()]

    def index(self, label: str | int | date | datetime, *, ahead: int = 0) -> int:
        """Return the id of the bin that contains `label`, which may be finer than the grain but not coarser.

        With `ahead`, as many times after the last have the ids that follow.
        """
        text = label.isoformat() if isinstance(label, date) else str(label)
        number = time_bin(text, self.grain)
        if number is None:
            wanted = "whole number" if self.grain == "ordinal" else self.grain
            raise UserError(f"cannot read time {text!r} as a {wanted}; write it like {self.label(0)!r}")
        index, rest = divmod(number - self.first, self.step)
        if rest or not 0 <= index < self.size + ahead:
            raise self.off_axis(text, ahead if index >= self.size else 0)
        return index

    def off_axis(self, text: str, ahead: int = 0) -> UserError:
        """Return the error for a time that is not on the axis, nor among the `ahead` times after it."""
        further = f", and forecasts reach to {self.label(self.size + ahead - 1)}" if ahead else ""
        return UserError(
            f"time {text!r} is not on this axis; it runs from {self.label(0)} to {self.label(self.size - 1)}{further}"
        )
