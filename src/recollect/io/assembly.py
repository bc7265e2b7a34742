"""Assemble tables of labels into an episodic graph: number labels and times, expand intervals, merge equal facts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import polars as pl
import psutil
import torch
from torch import Tensor

from recollect.errors import UserError
from recollect.graph.fact_index import expand_ranges
from recollect.graph.facts import EpisodicGraph, Facts, Vocabulary, encode, merge_equal
from recollect.graph.times import TimeAxis
from recollect.io.table import Table, first_true
from recollect.io.times.axis import find_times

MAX_WEIGHT = torch.finfo(torch.float32).max
FACT_BYTES = 150  # peak memory per fact while facts are encoded and merged
_BOOLEANS = {
    **dict.fromkeys(("true", "True", "TRUE", "1"), True),
    **dict.fromkeys(("false", "False", "FALSE", "0"), False),
}


def assemble(
    tables: Mapping[str, Table],
    *,
    grain: str | None = None,
    dates: str | None = None,
    inclusive_end: bool = False,
    disjoint: bool = True,
    name: str,
    labels: Mapping[str, list[str]] | None = None,
) -> EpisodicGraph:
    """Return the graph of tables by split, with one vocabulary and time axis for all splits.

    An interval without a start begins at the first plausible time of the tables, one without an end ends at the last.
    With `disjoint`, a fact in two splits is an error. `labels` has further entities and predicates, by kind.
    """
    if not tables:
        raise UserError("no tables to read; give at least a train split")
    more = labels or {}
    entities = Vocabulary.of("entity", [*_distinct(tables, "subject", "object"), *more.get("entity", ())])
    predicates = Vocabulary.of("predicate", [*_distinct(tables, "predicate"), *more.get("predicate", ())])
    times = find_times(tables, grain, dates, inclusive_end)
    axis = times.axis
    sizes = {"entity": len(entities), "predicate": len(predicates), "time": len(axis)}
    splits: dict[str, Facts] = {}
    duplicates = 0
    for split, table in tables.items():
        facts, rows = _expand(table, times.bins[split], entities, predicates, axis)
        if disjoint and splits:
            earlier = {tables[other].name: encode(known, sizes) for other, known in splits.items()}
            _refuse_overlap(encode(facts, sizes), rows, table, earlier)
        merged, position = merge_equal(facts, sizes)
        _refuse_contradictions(facts, merged, position, rows, table)
        _refuse_infinite_sums(merged, position, rows, table)
        duplicates += len(facts) - len(merged)
        splits[split] = merged
    rows_read = {split: table.frame.height for split, table in tables.items()}
    notes = dict.fromkeys(note for table in tables.values() for note in table.notes)
    return EpisodicGraph(entities, predicates, axis, splits, name, duplicates, rows_read, notes=(*notes, *times.notes))


def check_memory(count: int, bytes_each: int, what: str) -> None:
    """Raise UserError if there is not enough free memory for `count` rows or facts; `what` says where they are."""
    needed, free = count * bytes_each, psutil.virtual_memory().available
    if needed > free:
        raise UserError(f"{what} {count:,}, which need {needed:,} bytes, and {free:,} are free; give a smaller table")


def _distinct(tables: Mapping[str, Table], *roles: str) -> list[str]:
    """Return the distinct labels of some roles in all tables."""
    return pl.concat([table.frame[role] for table in tables.values() for role in roles]).unique().to_list()


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
