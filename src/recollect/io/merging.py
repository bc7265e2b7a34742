"""Merge the rows of tables into facts or runs, and refuse rows that contradict each other or are in two splits."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from recollect.errors import UserError
from recollect.graph.fact_index import expand_ranges
from recollect.graph.facts import Facts, encode, merge_equal
from recollect.graph.free_memory import free_memory
from recollect.graph.runs import Runs, merge_runs, overlaps
from recollect.io.table import Table

MAX_WEIGHT = torch.finfo(torch.float32).max
FACT_BYTES = 150  # peak memory per fact while facts are encoded and merged
Sizes = Mapping[str, int]


def check_memory(count: int, bytes_each: int, what: str) -> None:
    """Raise UserError if there is not enough free memory for `count` rows or facts; `what` says where they are."""
    needed, free = count * bytes_each, free_memory()
    if needed > free:
        raise UserError(f"{what} {count:,}, which need {needed:,} bytes, and {free:,} are free; give a smaller table")


def merge_rows(
    rows: Mapping[str, Runs], tables: Mapping[str, Table], sizes: Sizes, *, disjoint: bool
) -> tuple[dict[str, Facts], int]:
    """Return the facts of each split, one for every time of every row, and the number of facts merged into others.

    With `disjoint`, a fact in two splits is an error.
    """
    splits: dict[str, Facts] = {}
    duplicates = 0
    for split, runs in rows.items():
        table = tables[split]
        check_memory(runs.count, FACT_BYTES, f"{table.name}: at this grain the number of facts is")
        row, time = expand_ranges(runs.first.t, runs.last + 1)
        facts = runs.first[row].with_slot("t", time)
        if disjoint and splits:
            _refuse_facts_in_two_splits(encode(facts, sizes), row, table, splits, tables, sizes)
        merged, position = merge_equal(facts, sizes)
        _refuse_contradiction(facts.truth != merged.truth[position], row, table)
        if merged.weight is not None:
            _refuse_infinite_sum(~merged.weight.isfinite()[position], row, table)
        duplicates += len(facts) - len(merged)
        splits[split] = merged
    return splits, duplicates


def merge_intervals(
    rows: Mapping[str, Runs], tables: Mapping[str, Table], sizes: Sizes, *, disjoint: bool
) -> tuple[dict[str, Runs], int]:
    """Return the disjoint runs of each split and the number of facts merged into others, as `merge_rows` does facts."""
    splits: dict[str, Runs] = {}
    duplicates = 0
    for split, runs in rows.items():
        table, row = tables[split], torch.arange(len(runs))
        if disjoint:
            _refuse_intervals_in_two_splits(runs, table, splits, tables, sizes)
        is_false = ~runs.first.truth
        clash = overlaps(runs, runs[is_false], sizes) & overlaps(runs, runs[~is_false], sizes)
        _refuse_contradiction(clash, row, table)
        merged = merge_runs(runs, sizes)
        if merged.first.weight is not None and not merged.first.weight.isfinite().all():
            _refuse_infinite_sum(overlaps(runs, merged[~merged.first.weight.isfinite()], sizes), row, table)
        duplicates += runs.count - merged.count
        splits[split] = merged
    return splits, duplicates


def _refuse_contradiction(clash: Tensor, row: Tensor, table: Table) -> None:
    """Raise UserError for the first fact of a mask, given the row of each, counted from 0."""
    if clash.any():
        raise UserError(
            f"{table.where(_first(clash, row))}: this fact is True in one row and False in another; keep one of them"
        )


def _refuse_infinite_sum(is_infinite: Tensor, row: Tensor, table: Table) -> None:
    """Raise UserError for the first fact of a mask, given the row of each, counted from 0."""
    if is_infinite.any():
        raise UserError(
            f"{table.where(_first(is_infinite, row))}: the weights of this fact add up to more than {MAX_WEIGHT:.1e}; "
            f"use smaller ones"
        )


def _refuse_facts_in_two_splits(
    codes: Tensor, row: Tensor, table: Table, splits: Mapping[str, Facts], tables: Mapping[str, Table], sizes: Sizes
) -> None:
    """Raise UserError if an encoded fact of a table is also in an earlier split."""
    for other, known in splits.items():
        shared = torch.isin(codes, encode(known, sizes))
        if shared.any():
            raise UserError(
                f"{table.where(_first(shared, row))}: this fact is also in {tables[other].name}, and so are "
                f"{int(shared.sum()) - 1:,} more; no fact may be in two splits: remove it from one"
            )


def _refuse_intervals_in_two_splits(
    runs: Runs, table: Table, splits: Mapping[str, Runs], tables: Mapping[str, Table], sizes: Sizes
) -> None:
    """Raise UserError if an interval of a table shares a fact with one of an earlier split."""
    for other, known in splits.items():
        shared = overlaps(runs, known, sizes)
        if shared.any():
            raise UserError(
                f"{table.where(_first(shared, torch.arange(len(runs))))}: this fact is also in {tables[other].name}, "
                f"at least for a time, and so are {int(shared.sum()) - 1:,} more; no fact may be in two splits: "
                f"remove it from one"
            )


def _first(mask: Tensor, row: Tensor) -> int:
    """Return the row of the first True of a mask, counted from 1."""
    return int(row[mask.nonzero()[0, 0]]) + 1
