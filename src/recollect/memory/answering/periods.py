"""Questions about a period: a time coarser than the grain, like 2014-12 of days, or a range, like 1914..1918.

What is stored at any time of the period is an answer. A predicted answer has the probability of its likeliest time
among at most `TIMES` evenly spaced ones: a lower bound of the probability that it holds at some time of the period.
"""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

import polars as pl
import torch
from torch import Tensor

from recollect.engine import one_thread
from recollect.errors import UserError
from recollect.evaluation.calibration import Calibration
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import Facts
from recollect.graph.times import TimeAxis, coarser_grain, moment, time_bin
from recollect.memory.answering.answers import Answers, check_scores
from recollect.memory.answering.knowledge import Knowledge
from recollect.memory.answering.questions import Table, Time
from recollect.memory.answering.scorer import MemoryScorer

RANGE = ".."  # between the first and the last time of a range
TIMES = 16  # times of a period at which predicted answers are scored


@dataclass(frozen=True)
class Period:
    """The ids of consecutive times."""

    first: int
    last: int

    def spread(self) -> Tensor:
        """Return at most TIMES evenly spaced times, with both ends: (n,)."""
        count = min(TIMES, self.last - self.first + 1)
        return torch.linspace(self.first, self.last, count, dtype=torch.float64).round().long()

    def times_of(self, stored: Tensor) -> Tensor:
        """Return the time of each answer after the last time: what is stored (m,) holds to the end: (m,)."""
        return torch.where(stored, self.last, self.first)


def parse_period(axis: TimeAxis, label: Time, *, ahead: int = 0) -> Period:
    """Return the times of a label: one, those of a coarser period, or those of a range, as far as the axis has them.

    A period that lies wholly after the axis may have the `ahead` times that follow.

    >>> days = TimeAxis("day", time_bin("2014-11-20", "day"), 40)
    >>> parse_period(days, "2014-11"), parse_period(days, "2014-11-30..2014-12"), parse_period(days, "2014-12-01")
    (Period(first=0, last=10), Period(first=10, last=39), Period(first=11, last=11))
    """
    text = label.isoformat() if isinstance(label, date) else str(label).strip()
    start, dots, end = text.partition(RANGE)
    if not is_period(axis, label):
        index = axis.index(label, ahead=ahead)
        return Period(index, index)
    first, last = bin_of(axis, start.strip(), False), bin_of(axis, (end if dots else start).strip(), True)
    if first > last:
        raise UserError(
            f"the period {text!r} ends before it begins; write it like "
            f"{axis.label(0)}{RANGE}{axis.label(len(axis) - 1)}"
        )
    start_id, end_id = max(0, -((axis.first - first) // axis.step)), (last - axis.first) // axis.step
    longest = len(axis) if start_id < len(axis) else len(axis) + ahead
    if start_id > min(longest - 1, end_id):
        raise axis.off_axis(text, ahead if start_id >= len(axis) else 0)
    return Period(start_id, min(longest - 1, end_id))


def is_period(axis: TimeAxis, label: Time | None) -> bool:
    """Return whether a label is a range, or coarser than the times of the axis."""
    if label is None or isinstance(label, date):
        return False
    return RANGE in str(label) or _is_coarser(axis, str(label).strip())


def _is_coarser(axis: TimeAxis, label: str) -> bool:
    return coarser_grain(axis.grain, label) != axis.grain


def bin_of(axis: TimeAxis, label: str, at_end: bool) -> int:
    """Return the first or the last bin, at the grain of the axis, of a label that may be coarser."""
    number = time_bin(label, axis.grain)
    if number is None and _is_coarser(axis, label):
        at, grain = moment(label) or (datetime.min, "")
        if at_end:
            at = _last_hour(at, grain)
        number = time_bin(at.isoformat(), axis.grain)
    if number is None:
        wanted = "whole number" if axis.grain == "ordinal" else axis.grain
        raise UserError(f"cannot read time {label!r} as a {wanted}; write it like {axis.label(0)!r}")
    return number


def _last_hour(at: datetime, grain: str) -> datetime:
    """Return the last hour of the year, quarter, month, week or day that starts at `at`."""
    match grain:
        case "year":
            return at.replace(month=12, day=31, hour=23)
        case "quarter":
            return _last_hour(at.replace(month=at.month + 2), "month")
        case "month":
            return at.replace(day=monthrange(at.year, at.month)[1], hour=23)
    return at + timedelta(days=6 if grain == "week" else 0, hours=23)


def take_periods(axis: TimeAxis, questions: Table, *, ahead: int = 0) -> tuple[pl.DataFrame, dict[int, Period]]:
    """Return the questions with the last time of each period in its place, and the periods by row."""
    frame = questions if isinstance(questions, pl.DataFrame) else pl.DataFrame(questions)
    if "time" not in frame.columns:
        return frame, {}
    labels: list[Any] = frame["time"].to_list()
    periods: dict[int, Period] = {}
    for row, label in enumerate(labels):
        if is_period(axis, label):
            periods[row] = parse_period(axis, label, ahead=ahead)
            labels[row] = axis.label(periods[row].last)
    if not periods:
        return frame, {}
    return frame.with_columns(pl.Series("time", labels, dtype=pl.String, strict=False)), periods


@dataclass(frozen=True)
class PeriodQuestions:
    """Answers questions about periods, from what a memory has."""

    scorer: MemoryScorer
    calibration: Calibration
    stored: FactIndex
    knowledge: Knowledge  # of which the runs are read when a question needs them

    @torch.no_grad()
    def ask(self, question: Facts, slot: str, period: Period, top: int, include: str) -> Answers:
        """Return at most `top` answers to one question: stored ones, the newest first, then predicted ones.

        The time of a stored answer is the last one of the period at which it holds, that of a predicted one its
        likeliest.
        """
        top, size = max(0, top), self.stored.size(slot)
        newest = self._newest(question, slot, period)
        held = (newest >= 0).nonzero()[:, 0]
        held = held[newest[held].argsort(descending=True, stable=True)][: 0 if include == "predicted" else top]
        count = 0 if include == "stored" else top - len(held)
        times = period.spread()
        facts = Facts(question.ids.expand(len(times), -1)).with_slot("t", times)
        with one_thread():
            scores = self.scorer.score_against(facts, slot).cpu().double()
        check_scores(scores)
        probabilities = self.calibration.answer_probabilities(scores, self.stored.mask(facts, slot), slot)
        likeliest, best = probabilities.masked_fill(newest >= 0, -1.0).max(dim=0)
        predicted = likeliest.argsort(descending=True, stable=True)[: min(count, size - int((newest >= 0).sum()))]
        ids = torch.cat([held, predicted])
        is_stored = torch.arange(len(ids)) < len(held)
        time = torch.where(is_stored, newest[ids], times[best[ids]])
        return Answers(
            torch.zeros(len(ids), dtype=torch.int64),
            Facts(question.ids.expand(len(ids), -1)).with_slot(slot, ids).with_slot("t", time),
            scores[best[ids], ids],
            torch.where(is_stored, torch.ones_like(likeliest[ids]), likeliest[ids]),
            is_stored,
        )

    def _newest(self, question: Facts, slot: str, period: Period) -> Tensor:
        """Return the last time of the period at which each id of a slot completes a stored fact, −1 if none: (N,)."""
        runs = self.knowledge.runs
        holds = (runs.first.t <= period.last) & (runs.reach >= period.first)
        for other in "spo".replace(slot, ""):
            holds &= runs.first.column(other) == question.column(other)
        newest = torch.full((self.stored.size(slot),), -1)
        last = runs.reach[holds].clamp(max=period.last)
        return newest.scatter_reduce_(0, runs.first.column(slot)[holds], last, "amax")


def question_groups(is_open: Tensor, periods: Mapping[int, Period]) -> Iterator[tuple[Tensor, Period | None]]:
    """Yield the rows (k,) of questions that are answered together: those of single times, then each with its period.

    `is_open` (n,) is whether a question asks for the slot.
    """
    rows = is_open.nonzero()[:, 0].tolist()
    single = [row for row in rows if row not in periods]
    if single:
        yield torch.tensor(single), None
    for row in rows:
        if row in periods:
            yield torch.tensor([row]), periods[row]
