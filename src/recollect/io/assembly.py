"""Assemble tables of labels into an episodic graph: number labels and times, expand intervals, merge equal facts."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
import psutil
import torch
from torch import Tensor

from recollect.errors import DataWarning, UserError
from recollect.graph.fact_index import expand_ranges
from recollect.graph.facts import EpisodicGraph, Facts, Vocabulary, encode, merge_equal
from recollect.graph.times import TimeAxis, natural_grain, time_bin, time_key

TIME_ROLES = ("time", "start", "end")
STRETCH, MANY_TIMES, FEW = 100, 1000, 100  # a warning is due if at most 1 % and FEW rows do this to a long axis
MAX_WEIGHT = torch.finfo(torch.float32).max
FACT_BYTES = 150  # peak memory per fact while facts are encoded and merged
_EXAMPLES = {"year": "2014", "month": "2014-03", "week": "2014-W10", "day": "2014-03-05", "hour": "2014-03-05T13"}
_BOOLEANS = {
    **dict.fromkeys(("true", "True", "TRUE", "1"), True),
    **dict.fromkeys(("false", "False", "FALSE", "0"), False),
}


@dataclass(frozen=True)
class Table:
    """Rows of labels: one string column per role (subject, predicate, object, time or start and end, value, weight)."""

    frame: pl.DataFrame
    where: Callable[[int], str]  # where a row, counted from 1, came from, for error messages
    name: str


def assemble(
    tables: Mapping[str, Table],
    *,
    grain: str | None = None,
    inclusive_end: bool = False,
    disjoint: bool = True,
    name: str,
    labels: Mapping[str, list[str]] | None = None,
) -> EpisodicGraph:
    """Return the graph of tables by split, with one vocabulary and time axis for all splits.

    An interval without a start begins at the first time of the tables, one without an end ends at the last. With
    `disjoint`, a fact in two splits is an error. `labels` has further entities and predicates, by kind.
    """
    if not tables:
        raise UserError("no tables to read; give at least a train split")
    more = labels or {}
    entities = Vocabulary.of("entity", [*_distinct(tables, "subject", "object"), *more.get("entity", ())])
    predicates = Vocabulary.of("predicate", [*_distinct(tables, "predicate"), *more.get("predicate", ())])
    bins, axis = _times(tables, grain, inclusive_end)
    sizes = {"entity": len(entities), "predicate": len(predicates), "time": len(axis)}
    splits: dict[str, Facts] = {}
    duplicates = 0
    for split, table in tables.items():
        facts, rows = _expand(table, bins[split], entities, predicates, axis)
        if disjoint and splits:
            earlier = {tables[other].name: encode(known, sizes) for other, known in splits.items()}
            _refuse_overlap(encode(facts, sizes), rows, table, earlier)
        merged, position = merge_equal(facts, sizes)
        _refuse_contradictions(facts, merged, position, rows, table)
        _refuse_infinite_sums(merged, position, rows, table)
        duplicates += len(facts) - len(merged)
        splits[split] = merged
    rows_read = {split: table.frame.height for split, table in tables.items()}
    return EpisodicGraph(entities, predicates, axis, splits, name, duplicates, rows_read)


def check_memory(count: int, bytes_each: int, what: str) -> None:
    """Raise UserError if there is not enough free memory for `count` rows or facts; `what` says where they are."""
    needed, free = count * bytes_each, psutil.virtual_memory().available
    if needed > free:
        raise UserError(f"{what} {count:,}, which need {needed:,} bytes, and {free:,} are free; give a smaller table")


def first_true(mask: pl.Series) -> int:
    """Return the index of the first True of a mask that has one."""
    return int(mask.arg_max() or 0)


def _distinct(tables: Mapping[str, Table], *roles: str) -> list[str]:
    """Return the distinct labels of some roles in all tables."""
    return pl.concat([table.frame[role] for table in tables.values() for role in roles]).unique().to_list()


def _times(
    tables: Mapping[str, Table], grain: str | None, inclusive_end: bool
) -> tuple[dict[str, pl.DataFrame], TimeAxis]:
    """Return columns `first` and `last`, the bins of every row or null where unknown, and the axis of all bins."""
    roles = [role for role in TIME_ROLES if any(role in table.frame.columns for table in tables.values())]
    for table in tables.values():
        if missing := [role for role in roles if role not in table.frame.columns]:
            raise UserError(
                f"{table.name}: no column for the {missing[0]}, which another split has; use the same columns"
            )
    if not roles:
        zero = {split: pl.DataFrame({"first": [0] * table.frame.height, "last": 0}) for split, table in tables.items()}
        return zero, TimeAxis("ordinal", 0, 1)
    labels = [label for label in _distinct(tables, *roles) if label]  # None or "": unknown
    grain = grain or natural_grain(labels)
    parsed = pl.DataFrame(
        {
            "label": labels,
            "bin": [time_bin(label, grain) for label in labels],
            "last_bin": [time_bin(label, grain, before=not inclusive_end) for label in labels],  # as an end
            "key": [time_key(label, grain) for label in labels],
        },
        schema={"label": pl.String, "bin": pl.Int64, "last_bin": pl.Int64, "key": pl.Int64},
    )
    bins = {split: _row_bins(table, parsed, grain) for split, table in tables.items()}
    _warn_of_stray_times(tables, bins, grain)
    known = (
        pl.concat([frame[column] for frame in bins.values() for column in ("first", "last")]).drop_nulls().to_numpy()
    )
    ends = [int(known.min()), int(known.max())]
    starts = parsed["bin"].drop_nulls().to_numpy()
    step = int(np.gcd.reduce((starts if len(starts) else known) - ends[0]))  # of ordinals
    return bins, TimeAxis.spanning(grain, ends, steps=[ends[0] + step])


def _warn_of_stray_times(tables: Mapping[str, Table], bins: Mapping[str, pl.DataFrame], grain: str) -> None:
    """Warn of the few rows whose times make the axis STRETCH times as long, and say where they are."""
    is_point = any("time" in table.frame.columns for table in tables.values())
    columns = ["first"] if is_point else ["first", "last"]
    times = pl.concat([frame[column] for frame in bins.values() for column in columns]).drop_nulls()
    few = min(FEW, max(2, len(times) // 100))
    if len(times) <= 10 * few:
        return
    lows, highs = (ends.sort().to_numpy() for ends in (times.bottom_k(few + 1), times.top_k(few + 1)))
    whole = int(highs[-1] - lows[0]) + 1
    densest = int((highs - lows).argmin())  # without so many of the lowest times and few − densest of the highest
    low, high = int(lows[densest]), int(highs[densest])
    width = high - low + 1
    if whole < MANY_TIMES or whole < STRETCH * width:
        return
    is_near = pl.all_horizontal(pl.col(columns).is_between(low - width, high + width).fill_null(True))
    strays: list[tuple[str, int, int]] = []  # split, row, bin
    for split, frame in bins.items():
        far = frame.with_row_index("row", offset=1).filter(~is_near)
        for row, *ends in far.select("row", *columns).iter_rows():
            farthest = max((end for end in ends if end is not None), key=lambda end: abs(end - low))
            strays.append((split, row, farthest))
    named = [f"{tables[split].where(row)} ({TimeAxis(grain, far, 1).label(0)})" for split, row, far in strays[:3]]
    others = f", and {len(strays) - 3:,} more rows" if len(strays) > 3 else ""
    near = times.filter(times.is_between(low - width, high + width)).to_numpy()
    warnings.warn(
        f"{'; '.join(named)}{others}: far from all other times, so that the time axis has {whole:,} steps of one "
        f"{grain}, where the others span {int(near.max() - near.min()) + 1:,}; correct them if they are wrong",
        DataWarning,
        stacklevel=2,
    )


def _row_bins(table: Table, parsed: pl.DataFrame, grain: str) -> pl.DataFrame:
    """Return the first and last bin of each row, or raise UserError for a time that cannot be parsed."""
    frame = table.frame
    is_point = "time" in frame.columns
    for role in TIME_ROLES:
        if role in frame.columns:
            unreadable = _look_up(frame, role, "last_bin" if role == "end" else "bin", parsed).is_null()
            if not is_point:  # a start or an end may be unknown
                unreadable &= frame[role].is_not_null() & (frame[role] != "")
            _refuse_unreadable(table, role, unreadable, grain)
    if is_point:
        bins = _look_up(frame, "time", "bin", parsed)
        return pl.DataFrame({"first": bins, "last": bins})
    _check_intervals(table, _look_up(frame, "start", "key", parsed), _look_up(frame, "end", "key", parsed))
    intervals = pl.DataFrame(
        {"first": _look_up(frame, "start", "bin", parsed), "last": _look_up(frame, "end", "last_bin", parsed)}
    )
    # an interval that ends where it starts is a point
    return intervals.with_columns(last=pl.when(pl.col("last").is_not_null()).then(pl.max_horizontal("first", "last")))


def _look_up(frame: pl.DataFrame, role: str, column: str, parsed: pl.DataFrame) -> pl.Series:
    """Return a column of `parsed` for the labels of a role, null for labels that are not there: (rows,)."""
    if role not in frame.columns:
        return pl.Series([None] * frame.height, dtype=pl.Int64)
    values = parsed.select("label", column)
    return frame.select(label=role).join(values, on="label", how="left", maintain_order="left")[column]


def _refuse_unreadable(table: Table, role: str, unreadable: pl.Series, grain: str) -> None:
    """Raise UserError for the first row of a mask."""
    if unreadable.any():
        row = first_true(unreadable)
        label = table.frame[role][row]
        given = repr(label) if label else "nothing"
        wanted = "a whole number" if grain == "ordinal" else f"a {grain} or finer, like {_EXAMPLES[grain]}"
        raise UserError(f"{table.where(row + 1)}: cannot read {given} as the {role}; wanted {wanted}, or another grain")


def _check_intervals(table: Table, start: pl.Series, end: pl.Series) -> None:
    """Raise UserError for the first interval without start and end, or with an end before its start."""
    unknown = start.is_null() & end.is_null()
    if unknown.any():
        row = first_true(unknown)
        raise UserError(f"{table.where(row + 1)}: neither start nor end is known; give one or drop the row")
    reversed_ = (end < start).fill_null(False)
    if reversed_.any():
        row = first_true(reversed_)
        raise UserError(
            f"{table.where(row + 1)}: the end {table.frame['end'][row]} is before the start "
            f"{table.frame['start'][row]}; correct it, or name the columns if these are not start and end"
        )


def _expand(
    table: Table, bins: pl.DataFrame, entities: Vocabulary, predicates: Vocabulary, axis: TimeAxis
) -> tuple[Facts, Tensor]:
    """Return one fact for every row and time of its interval, and the row of each fact, counted from 1: (n,)."""
    ids = bins.select(
        first=((pl.col("first") - axis.first) // axis.step).fill_null(0),
        last=((pl.col("last") - axis.first) // axis.step).fill_null(len(axis) - 1),
    )
    first = ids["first"].to_torch()
    stop = torch.maximum(first, ids["last"].to_torch()) + 1
    total = int((stop - first).sum())
    check_memory(total, FACT_BYTES, f"{table.name}: at this grain the number of facts is")
    facts = Facts.from_columns(
        entities.ids(table.frame["subject"]),
        predicates.ids(table.frame["predicate"]),
        entities.ids(table.frame["object"]),
        first,
    )
    facts = replace(facts, value=_values(table), weight=_weights(table))
    if total == len(facts):  # no interval covers more than one time
        return facts, torch.arange(1, total + 1)
    row, time = expand_ranges(first, stop)
    return facts[row].with_slot("t", time), row + 1


def _values(table: Table) -> Tensor | None:
    """Return the value column, if there is one: (rows,) bool."""
    if "value" not in table.frame.columns:
        return None
    parsed = table.frame["value"].replace_strict(_BOOLEANS, default=None, return_dtype=pl.Boolean)
    return _refuse_nulls(table, "value", parsed, "true or false").to_torch()


def _weights(table: Table) -> Tensor | None:
    """Parse the weight column, finite and ≥ 0: (rows,) float32; None if there is none."""
    if "weight" not in table.frame.columns:
        return None
    numbers = table.frame["weight"].cast(pl.Float64, strict=False).cast(pl.Float32, strict=False)
    parsed = pl.select(pl.when(numbers.is_finite() & (numbers >= 0)).then(numbers)).to_series()
    return _refuse_nulls(table, "weight", parsed, f"a number from 0 to {MAX_WEIGHT:.1e}").to_torch()


def _refuse_nulls(table: Table, role: str, parsed: pl.Series, wanted: str) -> pl.Series:
    """Return a parsed column, or raise UserError for the first cell that could not be parsed."""
    if parsed.null_count():
        row = first_true(parsed.is_null())
        raise UserError(f"{table.where(row + 1)}: cannot read {table.frame[role][row]!r} as a {role}; wanted {wanted}")
    return parsed


def _refuse_contradictions(facts: Facts, merged: Facts, position: Tensor, rows: Tensor, table: Table) -> None:
    """Raise UserError for the first fact whose value is not that of the equal fact merged[position]."""
    clash = facts.truth != merged.truth[position]
    if clash.any():
        row = int(rows[clash.nonzero()[0, 0]])
        raise UserError(f"{table.where(row)}: this fact is True in one row and False in another; keep one of them")


def _refuse_infinite_sums(merged: Facts, position: Tensor, rows: Tensor, table: Table) -> None:
    """Raise UserError for the first fact merged[position] whose weights add up to more than a float32 holds."""
    if merged.weight is not None and not merged.weight.isfinite().all():
        row = int(rows[(~merged.weight.isfinite()[position]).nonzero()[0, 0]])
        raise UserError(
            f"{table.where(row)}: the weights of this fact add up to more than {MAX_WEIGHT:.1e}; use smaller ones"
        )


def _refuse_overlap(codes: Tensor, rows: Tensor, table: Table, earlier: Mapping[str, Tensor]) -> None:
    """Raise UserError if a fact of a table is also in an earlier one; `earlier` has their codes by name."""
    for other, known in earlier.items():
        shared = torch.isin(codes, known)
        if shared.any():
            row = int(rows[shared.nonzero()[0, 0]])
            raise UserError(
                f"{table.where(row)}: this fact is also in {other}, and so are "
                f"{int(shared.sum()) - 1:,} more; no fact may be in two splits: remove it from one"
            )
