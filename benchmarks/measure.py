"""Measure cases: contenders run in turn, round by round, so that a busy machine slows all of them.

A figure is the median of its rounds, and figures that are compared come from the same rounds.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from benchmarks.cases import Case
from benchmarks.contests import Contest
from benchmarks.timing import EpochTimer

KEYS = ("name", "model", "dim", "ours_s", "reference_s", "bound_s", "ratio", "of_bound")

Record = dict[str, Any]


def measure(cases: Iterable[Case], repeats: int) -> Iterator[Record]:
    """Yield a record per case as it is measured, then the exponents of growth."""
    records = []
    for group in _series(cases):
        for record in _measure_together(group, repeats):
            records.append(record)
            yield record
    yield from growth_exponents(records)


def _series(cases: Iterable[Case]) -> list[list[Case]]:
    """Group the sizes of a series of growth: measured in turns, a change of the machine's speed bends no exponent."""
    series: dict[tuple[str, ...], list[Case]] = {}
    for case in cases:
        key = (case.name, case.model) if case.fields.get("axis") else (case.label,)
        series.setdefault(key, []).append(case)
    return list(series.values())


def _measure_together(cases: Sequence[Case], repeats: int) -> list[Record]:
    with ExitStack() as stack:  # contests are closed, and their memory freed, before the next series
        contests = [stack.enter_context(case.open()) for case in cases]
        times = run_in_turns(contests, repeats)
        return [_record(*each) for each in zip(cases, contests, times, strict=True)]


def run_in_turns(contests: Sequence[Contest], repeats: int) -> list[dict[str, list[float]]]:
    """Return the seconds of "ours", "reference" and "bound" of each contest, one per round."""
    times: list[dict[str, list[float]]] = [{} for _ in contests]
    for _ in range(repeats):
        for contest, measured in zip(contests, times, strict=True):
            contenders = {"ours": contest.ours, "reference": contest.reference, "bound": contest.bound}
            for name, run in contenders.items():
                if run is not None:
                    measured.setdefault(name, []).append(run())
    return times


def _record(case: Case, contest: Contest, times: Mapping[str, list[float]]) -> Record:
    medians = {name: statistics.median(values) for name, values in times.items()}
    ours, reference, bound = medians.get("ours"), medians.get("reference"), medians.get("bound")
    about = dict(contest.about)
    if isinstance(contest.ours, EpochTimer) and not contest.ours.is_whole:
        about["note"] = "; ".join(filter(None, [about.get("note"), "ours: part of an epoch, scaled"]))
    return {
        "name": case.name,
        "model": case.model,
        "dim": case.dim,
        "ours_s": ours,
        "reference_s": reference,
        "bound_s": bound,
        "ratio": _divide(reference, ours),
        "of_bound": _divide(bound, ours),
        "facts": contest.work,
        "unit": contest.unit,
        "per_second": _divide(contest.work, ours),
        "spread": {name: [min(values), max(values)] for name, values in times.items()},
        **about,
        **case.fields,
    }


def _divide(numerator: float | None, denominator: float | None) -> float | None:
    return numerator / denominator if numerator is not None and denominator else None


def growth_exponents(records: Sequence[Record]) -> Iterator[Record]:
    """Yield for every series of growth a record of the exponents with which its seconds grow."""
    series: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        if record.get("axis"):
            series.setdefault((record["name"], record["model"]), []).append(record)
    for (name, model), points in series.items():
        if len(points) > 1:
            yield {
                **dict.fromkeys(KEYS),
                "name": f"{name}/exponent",
                "model": model,
                "dim": None if name.endswith("dim") else points[0]["dim"],
                "exponent": _exponent_of(points, "ours_s"),
                "reference_exponent": _exponent_of(points, "reference_s"),
            }


def _exponent_of(points: Sequence[Record], key: str) -> float | None:
    if points[0][key] is None:
        return None
    return fit_exponent([point["size"] for point in points], [point[key] for point in points])


def fit_exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Return k of seconds ≈ c · sizeᵏ, fitted by least squares of the logarithms.

    >>> round(fit_exponent([1, 2, 4], [3.0, 12.0, 48.0]), 6)
    2.0
    """
    slope, _ = np.polyfit([math.log(size) for size in sizes], [math.log(second) for second in seconds], 1)
    return float(slope)


def growth_points(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Return the points of the figure of growth: every measured size with the fitted exponent of its series."""
    fitted = {(record["name"], record["model"]): record["exponent"] for record in records if "exponent" in record}
    points = []
    for record in records:
        exponent = fitted.get((f"{record['name']}/exponent", record["model"]))
        if record.get("axis") and exponent is not None:
            _, task, axis = record["name"].split("/")
            points.append(
                {
                    "task": task,
                    "axis": axis,
                    "size": record["size"],
                    "model": record["model"],
                    "seconds": record["ours_s"],
                    "exponent": exponent,
                }
            )
    return points
