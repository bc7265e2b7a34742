"""Calendar labels as numbered bins: years, months, weeks, days, hours, or plain ordinals."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from torch import Tensor

from recollect.errors import UserError

GRAINS = ("year", "month", "week", "day", "hour", "ordinal")
_FINENESS = {grain: i for i, grain in enumerate(GRAINS[:-1])}
_EPOCH = date(1970, 1, 1).toordinal()
_MONDAY = 3  # 1970-01-01 was a Thursday: three days after a Monday
MAX_TIMES = 10_000_000

_YEAR = re.compile(r"[0-9]{4}")
_MONTH = re.compile(r"([0-9]{4})[-/]([0-9]{1,2})|((?:18|19|20|21)[0-9]{2})([0-9]{2})")
_WEEK = re.compile(r"([0-9]{4})-?W([0-9]{1,2})")
_DAY = re.compile(r"([0-9]{4})([-/.]?)([0-9]{1,2})\2([0-9]{1,2})")
_ORDINAL = re.compile(r"-?[0-9]{1,15}")


def moment(label: str) -> tuple[datetime, str] | None:
    """The start of the calendar time that `label` names and the grain at which it names it, or None.

    >>> moment("2014-03")[1], moment("2014-03-05T13:30Z")[1], moment("soon")
    ('month', 'hour', None)
    """
    try:
        if _YEAR.fullmatch(label):
            return datetime(int(label), 1, 1), "year"
        if match := _MONTH.fullmatch(label):
            return datetime(int(match[1] or match[3]), int(match[2] or match[4]), 1), "month"
        if match := _WEEK.fullmatch(label):
            return datetime.fromisocalendar(int(match[1]), int(match[2]), 1), "week"
        if (match := _DAY.fullmatch(label)) and (match[2] or len(label) == 8):
            return datetime(int(match[1]), int(match[3]), int(match[4])), "day"
        at = datetime.fromisoformat(label)
        return (at.astimezone(UTC).replace(tzinfo=None) if at.tzinfo else at), "hour"
    except (ValueError, OverflowError):
        return None


def _bin(at: datetime, grain: str) -> int:
    """The number of the year, month, week, day or hour that holds `at`."""
    days = at.toordinal() - _EPOCH
    match grain:
        case "year":
            return at.year
        case "month":
            return at.year * 12 + at.month - 1
        case "week":
            return (days + _MONDAY) // 7
        case "day":
            return days
    return days * 24 + at.hour


def _bin_label(number: int, grain: str) -> str:
    """The inverse of `_bin`: the label of a year, month, week, day or hour."""
    match grain:
        case "ordinal":
            return str(number)
        case "year":
            return f"{number:04d}"
        case "month":
            return f"{number // 12:04d}-{number % 12 + 1:02d}"
        case "week":
            year, week, _ = date.fromordinal(number * 7 - _MONDAY + _EPOCH).isocalendar()
            return f"{year:04d}-W{week:02d}"
        case "day":
            return date.fromordinal(number + _EPOCH).isoformat()
    return f"{date.fromordinal(number // 24 + _EPOCH).isoformat()}T{number % 24:02d}"


def natural_grain(labels: Iterable[str]) -> str:
    """The finest grain among the readable labels; whole numbers that are not years or dates are ordinals.

    >>> natural_grain(["2014-03", "2014-03-05"]), natural_grain(["1999", "2001"]), natural_grain(["0", "24"])
    ('day', 'year', 'ordinal')
    """
    labels = list(labels)
    moments = [moment(label) for label in labels]
    read = [m for m in moments if m]
    ordinals = sum(1 for label in labels if _ORDINAL.fullmatch(label))
    if ordinals and (not read or (ordinals >= len(read) and not _all_dates(labels))):
        return "ordinal"
    if not read:
        return "day"
    if all(grain == "hour" and at.hour == at.minute == at.second == 0 for at, grain in read):
        return "day"
    return max((grain for _, grain in read), key=_FINENESS.__getitem__)


def _all_dates(labels: list[str]) -> bool:
    """Whether the whole numbers among `labels` all look like years 1000-2999, YYYYMM or YYYYMMDD."""
    numbers = [label for label in labels if _ORDINAL.fullmatch(label)]
    return all(len(n) in (4, 6, 8) and "1000" <= n[:4] <= "2999" and moment(n) for n in numbers)


def time_bin(label: str, grain: str, *, before: bool = False) -> int | None:
    """The bin of `label` at `grain`, or None when it cannot be read or is coarser than `grain`.

    With `before`, the bin of the last moment before `label`: the last true bin of an interval [start, end).

    >>> time_bin("2014-03-05", "month") == time_bin("2014-04", "month", before=True)
    True
    """
    if grain == "ordinal":
        return int(label) - before if _ORDINAL.fullmatch(label) else None
    if not (read := moment(label)):
        return None
    at, told = read
    if _FINENESS[told] < _FINENESS[grain]:
        return None
    try:
        if told == "week" and grain in ("year", "month"):  # a week belongs where its Thursday lies
            return _bin(at + timedelta(days=3 - 7 * before), grain)
        return _bin(at - timedelta(microseconds=1) if before else at, grain)
    except OverflowError:
        return None


def time_key(label: str, grain: str) -> int | None:
    """A number that orders labels in time, finer than any bin; None when the label cannot be read."""
    if grain == "ordinal":
        return time_bin(label, grain)
    return (read[0] - datetime.min) // timedelta(microseconds=1) if (read := moment(label)) else None


def within(label: str, since: str | None, until: str | None, grain: str) -> bool:
    """Whether a time of some grain lies between two others, both included, each taken as long as it is told.

    >>> within("2014-03-05", "2014-03", "2014", "day"), within("2014-03", None, "2014-02-28", "month")
    (True, False)
    """
    for limit, sign in ((since, 1), (until, -1)):
        if limit is not None:
            common = _coarser(grain, limit)
            at, edge = time_bin(label, common), time_bin(limit, common)
            if at is None or edge is None or sign * (at - edge) < 0:
                return False
    return True


def check_limits(since: str | None, until: str | None, grain: str) -> None:
    """Refuse limits that cannot be read or leave nothing between them."""
    for limit in (since, until):
        if limit is not None and time_bin(limit, _coarser(grain, limit)) is None:
            wanted = "a whole number" if grain == "ordinal" else "a date like 2018-10-04, 2018-10 or 2018"
            raise UserError(f"cannot read {limit!r} as a time; wanted {wanted}")
    if since is not None and until is not None and not within(since, None, until, _coarser(grain, since)):
        raise UserError(f"nothing lies between {since} and {until}; the first must not be after the last")


def _coarser(grain: str, label: str) -> str:
    """The grain of a label, or the other one if that is coarser."""
    read = None if grain == "ordinal" else moment(label)
    return grain if read is None else min(grain, read[1], key=_FINENESS.__getitem__)


@dataclass(frozen=True)
class TimeAxis:
    """Calendar label ⇄ index, without gaps: `size` bins of one grain from bin number `first`.

    >>> axis = TimeAxis.spanning("month", [time_bin("2013-11", "month"), time_bin("2014-02", "month")])
    >>> axis.labels
    ['2013-11', '2013-12', '2014-01', '2014-02']
    >>> axis.index("2014-01-20")
    2
    """

    grain: str
    first: int
    size: int
    step: int = 1  # between neighbouring ordinals; 1 for calendar grains

    @classmethod
    def spanning(cls, grain: str, bins: Iterable[int], told: Iterable[int] | None = None) -> TimeAxis:
        """The axis from the first to the last of `bins`; ordinals advance by the greatest common step of those told."""
        distinct = sorted(set(bins))
        first, last = distinct[0], distinct[-1]
        step = math.gcd(*(b - first for b in told or distinct)) or 1 if grain == "ordinal" else 1
        size = (last - first) // step + 1
        if size > MAX_TIMES:
            raise UserError(
                f"the times span {size:,} steps of one {grain}; wanted at most {MAX_TIMES:,}: choose a coarser grain"
            )
        return cls(grain, first, size, step)

    def __len__(self) -> int:
        return self.size

    def label(self, index: int) -> str:
        return _bin_label(self.first + index * self.step, self.grain)

    @property
    def labels(self) -> list[str]:
        return [self.label(i) for i in range(self.size)]

    def take(self, ids: Tensor) -> list[str]:
        return [self.label(i) for i in ids.tolist()]

    def index(self, label: str | int | date | datetime) -> int:
        """The index of the bin that holds `label`; a finer label is allowed, a coarser one is not."""
        text = label.isoformat() if isinstance(label, date) else str(label)
        number = time_bin(text, self.grain)
        if number is None:
            wanted = "whole number" if self.grain == "ordinal" else self.grain
            raise UserError(f"cannot read time {text!r} as a {wanted}; write it like {self.label(0)!r}")
        index, rest = divmod(number - self.first, self.step)
        if rest or not 0 <= index < self.size:
            raise UserError(
                f"time {text!r} is not on this axis; it runs from {self.label(0)} to {self.label(self.size - 1)}"
            )
        return index
