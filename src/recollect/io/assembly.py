"""Assemble tables of labels into an episodic graph: number labels and times, merge equal facts and intervals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import polars as pl
import torch
from torch import Tensor

from recollect.errors import UserError
from recollect.graph.facts import EpisodicGraph, Facts
from recollect.graph.runs import Runs, RunSplits
from recollect.graph.times import TimeAxis
from recollect.graph.vocabulary import Vocabulary
from recollect.io.merging import MAX_WEIGHT, merge_intervals, merge_rows
from recollect.io.table import Table, first_true
from recollect.io.times.axis import find_times

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
    expand: bool = False,
    name: str,
    labels: Mapping[str, list[str]] | None = None,
) -> EpisodicGraph:
    """Return the graph of tables by split, with one vocabulary and time axis for all splits.

    An interval without a start begins at the first plausible time of the tables. One without an end lasts to the last
    plausible time, and if that is the last of the axis, it is ongoing. Intervals are stored as runs if one of them is
    ongoing or covers more than one time, or with `expand` as one fact for every time.
    With `disjoint`, a fact in two splits is an error. `labels` has further entities and predicates, by kind.
    """
    if not tables:
        raise UserError("no tables to read; give at least a train split")
    times = find_times(tables, grain, dates, inclusive_end)
    tables, axis = times.tables, times.axis
    more = labels or {}
    entities = Vocabulary.of("entity", [*_distinct(tables, "subject", "object"), *more.get("entity", ())])
    predicates = Vocabulary.of("predicate", [*_distinct(tables, "predicate"), *more.get("predicate", ())])
    sizes = {"entity": len(entities), "predicate": len(predicates), "time": len(axis)}
    rows = {split: _runs(table, times.bins[split], entities, predicates, axis) for split, table in tables.items()}
    splits: Mapping[str, Facts]
    if expand or all(part.count == len(part) and not part.has_ongoing for part in rows.values()):
        splits, duplicates = merge_rows(rows, tables, sizes, disjoint=disjoint)
    else:
        runs, duplicates = merge_intervals(rows, tables, sizes, disjoint=disjoint)
        splits = RunSplits(runs, axis.grain)
    rows_read = {split: table.frame.height + sum(table.dropped.values()) for split, table in tables.items()}
    dropped = Counter[str]()
    for table in tables.values():
        dropped.update(table.dropped)
    notes = dict.fromkeys(note for table in tables.values() for note in table.notes)
    return EpisodicGraph(
        entities, predicates, axis, splits, name, duplicates, rows_read, dict(dropped), (*notes, *times.notes)
    )


def _distinct(tables: Mapping[str, Table], *roles: str) -> list[str]:
    """Return the distinct labels of some roles in all tables."""
    return pl.concat([table.frame[role] for table in tables.values() for role in roles]).unique().to_list()


def _runs(table: Table, bins: pl.DataFrame, entities: Vocabulary, predicates: Vocabulary, axis: TimeAxis) -> Runs:
    """Return the run of every row; a row without an interval is a run of one time."""
    ids = bins.select(
        first=((pl.col("first") - axis.first) // axis.step).fill_null(0),
        last=((pl.col("last") - axis.first) // axis.step).fill_null(len(axis) - 1),
    )
    first = ids["first"].to_torch()
    facts = Facts.from_columns(
        entities.ids(table.frame["subject"]),
        predicates.ids(table.frame["predicate"]),
        entities.ids(table.frame["object"]),
        first,
    )
    last = torch.maximum(first, ids["last"].to_torch())
    ongoing = bins["ongoing"].to_torch() & (last == len(axis) - 1)
    runs = Runs(replace(facts, value=_values(table), weight=_weights(table)), last, ongoing)
    return runs if runs.has_ongoing else replace(runs, ongoing=None)


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
