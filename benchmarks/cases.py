"""The suite of `recollect bench`: for every model and shape, our seconds beside a reference's and the machine's bound.

Contenders run in turn within one process, round by round, so that all share the machine's mood; a figure is the
median of its rounds, and figures that are to be compared come from the same rounds.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from benchmarks.contests import (
    QUICK,
    Contest,
    Effort,
    Epochs,
    Subject,
    evaluate_contest,
    load_contest,
    load_textbook,
    one_vs_all_recipe,
    recall_contest,
    train_contest,
)
from benchmarks.shapes import FB15K_237, GDELT, GROWTH, ICEWS14, Shape
from benchmarks.workers import memory_contest, pykeen_contest
from recollect.errors import UserError
from recollect.graph.facts import SLOTS
from recollect.models.tensor_model import MODELS

PARTS = ("train", "one-vs-all", "evaluate", "recall", "load", "memory", "pykeen", "growth")
RANK = 40
QUICK_RANK = 4
# seconds of one epoch on the paper's Tesla K80, by model and dim
PAPER: dict[str, dict[int, float]] = {
    "distmult": {40: 35.2, 60: 36.4, 150: 53.7},
    "hole": {40: 42.8, 60: 43.2, 150: 59.0},
    "complex": {40: 40.1, 60: 42.4, 150: 57.5},
    "tree": {40: 133.6, 60: 160.2},
    "cont": {40: 95.4, 60: 226.1},
    "tucker": {40: 144.2, 60: 387.9},
}
PYKEEN_RANKS = {"distmult": 100, "complex": 100, "tucker": 50, "rescal": 50}
FACTORS = (1, 2, 4, 8)
GROWTH_RANKS = (20, 40, 80, 160)
GROWTH_TIME_RANK = 20  # of Tucker, whose core would not fit at dim 160
QUANTILES = {"p50": 0.5, "p99": 0.99}
KEYS = ("name", "model", "dim", "ours_s", "reference_s", "bound_s", "ratio", "of_bound")

Open = Callable[[], AbstractContextManager[Contest]]
Entry = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One line of the report, and how its contest is opened."""

    name: str
    model: str
    dim: int
    open: Open
    told: Mapping[str, Any] = field(default_factory=dict)  # what the record has from the start

    @property
    def label(self) -> str:
        return f"{self.name}/{self.model}/{self.dim}"


@dataclass(frozen=True)
class Scale:
    """The real sizes, or everything tiny, to try the suite itself."""

    quick: bool

    def shape(self, shape: Shape) -> Shape:
        return shape.tiny() if self.quick else shape

    def dim(self, dim: int) -> int:
        return QUICK_RANK if self.quick else dim

    def at(self, shape: Shape, model: str, dim: int = RANK) -> Subject:
        return Subject(
            shape=self.shape(shape), model=model, dim=self.dim(dim), effort=QUICK if self.quick else Effort()
        )


def cases(*, quick: bool = False, pykeen: str | None = None) -> list[Case]:
    """Everything there is to measure, part by part; quick ones are the same with tiny sizes and dims."""
    scale = Scale(quick)
    return [
        *_training(scale),
        *_one_vs_all(scale),
        *_evaluations(scale, GDELT),
        *([] if quick else _evaluations(scale, ICEWS14)),  # tiny, both are the same
        *_recalls(scale),
        *_loads(scale),
        *_memories(scale),
        *([] if pykeen is None else _beside_pykeen(scale, pykeen)),
        *_growth(scale),
    ]


def _case(name: str, subject: Subject, contest: Callable[..., Any], *options: Any, **told: Any) -> Case:
    return Case(name=name, model=subject.model, dim=subject.dim, open=partial(contest, subject, *options), told=told)


def _training(scale: Scale) -> Iterator[Case]:
    """An epoch with two negatives: the paper's runtimes, and every model on ICEWS14."""
    for model, seconds in PAPER.items():
        for dim in [RANK] if scale.quick else seconds:
            yield _case("train/gdelt", scale.at(GDELT, model, dim), train_contest, paper_s=seconds[dim])
    yield _case("train/gdelt", scale.at(GDELT, "rescal"), train_contest)
    yield _case("train/beside-distmult", scale.at(GDELT, "cont"), train_contest, "two-negatives", "distmult")
    for model in MODELS:
        yield _case("train/icews14", scale.at(ICEWS14, model), train_contest)


def _one_vs_all(scale: Scale) -> Iterator[Case]:
    if one_vs_all_recipe(1) is not None:
        for model, dim in [*dict.fromkeys(MODELS, RANK).items(), ("complex", 100)]:
            yield _case("one-vs-all/icews14", scale.at(ICEWS14, model, dim), train_contest, "one-vs-all")


def _evaluations(scale: Scale, shape: Shape) -> Iterator[Case]:
    """Every slot of every model; slot by slot, for the reference's filter of a slot serves all models."""
    for slot in SLOTS:
        for model, kind in MODELS.items():
            if slot in (kind.episodic or kind.equation("semantic")).slots:
                yield _case(f"evaluate/{shape.name}/{slot}", scale.at(shape, model), evaluate_contest, slot)


def _recalls(scale: Scale) -> Iterator[Case]:
    for model in MODELS:
        for name, share in QUANTILES.items():
            yield _case(f"recall/icews14/{name}", scale.at(ICEWS14, model), recall_contest, share)


def _loads(scale: Scale) -> Iterator[Case]:
    for model in MODELS:
        yield _case("load/icews14", scale.at(ICEWS14, model), load_contest)


def _memories(scale: Scale) -> Iterator[Case]:
    """Peak memory of training; a quick run tries one process only."""
    for model in ["distmult"] if scale.quick else MODELS:
        yield _case("memory/gdelt", scale.at(GDELT, model), memory_contest, not scale.quick)
    if not scale.quick:
        yield _case("memory/icews14", scale.at(ICEWS14, "cont", 100), memory_contest)


def _beside_pykeen(scale: Scale, python: str) -> Iterator[Case]:
    for model, dim in PYKEEN_RANKS.items():
        for task in ("epoch", "evaluate"):
            yield _case(f"pykeen/{task}", scale.at(FB15K_237, model, dim), pykeen_contest, task, python)


def _growth(scale: Scale) -> Iterator[Case]:
    """Training and evaluation while facts, entities or the dim grow, and the memory of training at the largest."""
    base, usual = scale.shape(GROWTH), scale.dim(RANK)
    factors, dims = (FACTORS[:2], (2, 4)) if scale.quick else (FACTORS, GROWTH_RANKS)
    axes: dict[str, list[tuple[int, Shape, int]]] = {
        "facts": [(base.facts * k, _times_facts(base, k), usual) for k in factors],
        "entities": [(base.entities * k, replace(base, entities=base.entities * k), usual) for k in factors],
        "dim": [(dim, base, dim) for dim in dims],
    }
    for model in ("distmult", "cont") if scale.quick else PAPER:
        for axis, points in axes.items():
            for size, shape, dim in points:
                time_dim = min(dim, GROWTH_TIME_RANK) if model == "tucker" else None
                subject = replace(scale.at(GROWTH, model), shape=shape, dim=dim, time_dim=time_dim)
                told = {"axis": axis, "size": size}
                yield _case(f"growth/train/{axis}", subject, train_contest, **told)
                yield _case(f"growth/evaluate/{axis}", subject, evaluate_contest, "o", **told)
            if not scale.quick:
                yield _case(f"growth/memory/{axis}", subject, memory_contest, False, **told)


def _times_facts(shape: Shape, factor: int) -> Shape:
    return replace(shape, facts=shape.facts * factor, test=shape.test * factor)


def chosen(all_cases: Sequence[Case], only: Sequence[str]) -> list[Case]:
    """The cases whose label begins with one of `only`, as with the folders of a path; all without any."""
    for name in only:
        # a part that cannot be measured here is no mistake
        if name not in PARTS and not any(_below(case.label, name) for case in all_cases):
            raise UserError(f"unknown part {name!r}; choose among {', '.join(PARTS)}, or below as in train/gdelt/cont")
    return [case for case in all_cases if not only or any(_below(case.label, name) for name in only)]


def _below(label: str, name: str) -> bool:
    return f"{label}/".startswith(f"{name.rstrip('/')}/")


def missing(*, pykeen: str | None) -> list[str]:
    """What cannot be measured here, and what would help."""
    lines = []
    if load_textbook() is None:
        lines.append("no textbook references: they are in the benchmarks folder of a checkout")
    if pykeen is None:
        lines.append("no PyKEEN: give a Python that has it (--pykeen PYTHON), in a checkout")
    if one_vs_all_recipe(1) is None:
        lines.append("no one-vs-all: this version has no such loss")
    return lines


def measure(all_cases: Iterable[Case], repeats: int) -> Iterator[Entry]:
    """A record a case, as it is measured; then the exponents of growth."""
    entries = []
    for together in _series(all_cases):
        for entry in _measured(together, repeats):
            entries.append(entry)
            yield entry
    yield from exponents(entries)


def _series(all_cases: Iterable[Case]) -> list[list[Case]]:
    """Cases that take turns: the sizes of a series of growth, whose power a change of the machine's mood would bend."""
    series: dict[tuple[str, ...], list[Case]] = {}
    for case in all_cases:
        key = (case.name, case.model) if case.told.get("axis") else (case.label,)
        series.setdefault(key, []).append(case)
    return list(series.values())


def _measured(together: Sequence[Case], repeats: int) -> list[Entry]:
    with ExitStack() as stack:  # a function of its own, so that what contests hold is gone before the next
        contests = [stack.enter_context(case.open()) for case in together]
        times = interleaved(contests, repeats)
        return [_entry(*one) for one in zip(together, contests, times, strict=True)]


def interleaved(contests: Sequence[Contest], repeats: int) -> list[dict[str, list[float]]]:
    """Seconds of ours, the reference's and the bound of each contest, in turn, so many rounds."""
    times: list[dict[str, list[float]]] = [{} for _ in contests]
    for _ in range(repeats):
        for contest, known in zip(contests, times, strict=True):
            for who, run in {"ours": contest.ours, "reference": contest.reference, "bound": contest.bound}.items():
                if run is not None:
                    known.setdefault(who, []).append(run())
    return times


def _entry(case: Case, contest: Contest, times: Mapping[str, list[float]]) -> Entry:
    median = {who: statistics.median(values) for who, values in times.items()}
    ours, reference, bound = (median.get(who) for who in ("ours", "reference", "bound"))
    about = dict(contest.about)
    if isinstance(contest.ours, Epochs) and not contest.ours.whole:
        about["note"] = "; ".join(filter(None, [about.get("note"), "ours: part of an epoch, scaled"]))
    return {
        "name": case.name,
        "model": case.model,
        "dim": case.dim,
        "ours_s": ours,
        "reference_s": reference,
        "bound_s": bound,
        "ratio": _over(reference, ours),
        "of_bound": _over(bound, ours),
        "facts": contest.work,
        "unit": contest.unit,
        "per_second": _over(contest.work, ours),
        "spread": {who: [min(values), max(values)] for who, values in times.items()},
        **about,
        **case.told,
    }


def _over(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None


def exponents(entries: Sequence[Entry]) -> Iterator[Entry]:
    """For every series of growth a record of the power with which its seconds grow."""
    series: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        if entry.get("axis"):
            series.setdefault((entry["name"], entry["model"]), []).append(entry)
    for (name, model), points in series.items():
        if len(points) > 1:
            sizes = [point["size"] for point in points]
            told = {
                key: None if points[0][seconds] is None else exponent(sizes, [point[seconds] for point in points])
                for key, seconds in {"exponent": "ours_s", "reference_exponent": "reference_s"}.items()
            }
            empty = dict.fromkeys(KEYS) | {"name": f"{name}/exponent", "model": model}
            yield empty | {"dim": None if name.endswith("dim") else points[0]["dim"]} | told


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """The power k of seconds ≈ c · sizeᵏ, fitted on a log-log scale.

    >>> round(exponent([1, 2, 4], [3.0, 12.0, 48.0]), 6)
    2.0
    """
    slope, _ = np.polyfit([math.log(size) for size in sizes], [math.log(second) for second in seconds], 1)
    return float(slope)


def growth_points(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """What the figure of growth shows: every measured point with the fitted power of its series."""
    fitted = {(entry["name"], entry["model"]): entry["exponent"] for entry in entries if "exponent" in entry}
    points = []
    for entry in entries:
        power = fitted.get((f"{entry['name']}/exponent", entry["model"]))
        if entry.get("axis") and power is not None:
            _, task, axis = entry["name"].split("/")
            told = {"task": task, "axis": axis, "size": entry["size"], "model": entry["model"]}
            points.append(told | {"seconds": entry["ours_s"], "exponent": power})
    return points


def tables(entries: Sequence[Entry]) -> list[list[dict[str, str]]]:
    """The records as rows of three tables: seconds, peak memory and growth, each only where there are some."""
    kinds = (("ours_s", _seconds_row), ("weight_bytes", _memory_row), ("exponent", _growth_row))
    found = [[row(entry) for entry in entries if entry.get(key) is not None] for key, row in kinds]
    return [rows for rows in found if rows]


def line(entry: Entry) -> str:
    """A record as one line, for those who wait."""
    (((_, *values),),) = [[list(row.items()) for row in rows] for rows in tables([entry])]
    shown = [label(entry), *(f"{name} {value}" for name, value in values if value)]
    return "  ".join([*shown, *filter(None, [entry.get("note")])])


def label(entry: Entry) -> str:
    size = f" {entry['size']:,}" if "size" in entry else ""
    dim = f"/{entry['dim']}" if entry["dim"] is not None else ""
    return f"{entry['name']}/{entry['model']}{dim}{size}"


def _seconds_row(entry: Entry) -> dict[str, str]:
    paper = entry.get("paper_s")
    return {
        "what": label(entry),
        "ours": _seconds(entry["ours_s"]),
        "reference": _seconds(entry["reference_s"]),
        "bound": _seconds(entry["bound_s"]),
        "ratio": _figure(entry["ratio"], ".2f"),
        "of bound": _figure(entry["of_bound"], ".1%"),
        "rate": f"{_short(entry['per_second'])} {entry['unit']}/s",
        "K80": f"{paper} s" if paper else "",
    }


def _memory_row(entry: Entry) -> dict[str, str]:
    peaks = {"ours": entry["peak_bytes"], "reference": entry.get("reference_peak_bytes")}
    weights = {"weights alone": entry["weight_bytes"]}
    shown = {who: "–" if size is None else f"{size / 2**30:.2f} GiB" for who, size in (peaks | weights).items()}
    return {"what": label(entry), **shown}


def _growth_row(entry: Entry) -> dict[str, str]:
    powers = {"power of ours": entry["exponent"], "of the reference": entry["reference_exponent"]}
    return {"what": label(entry), **{who: _figure(power, ".2f") for who, power in powers.items()}}


def _figure(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def _short(value: float) -> str:
    """Three digits.

    >>> _short(1234567), _short(43210), _short(12.3)
    ('1.23M', '43.2k', '12.3')
    """
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def _seconds(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.3g} s" if value >= 1 else f"{value * 1e3:.3g} ms"
