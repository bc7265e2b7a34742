"""Change a store that is sorted by (s, p, o, t), facts or runs, at a cost that hardly depends on its size.

A change concerns some triples. Their rows are replaced, and all others are copied in one piece, so a store that was
changed is the same, row by row, however many steps the changes were made in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from recollect.graph.fact_index import expand_ranges
from recollect.graph.facts import Facts, concat_ranges, encode, is_sorted, sort_facts, stable_sort
from recollect.graph.runs import FOREVER, Runs, is_canonical, merge_runs

Array = npt.NDArray[Any]
BEFORE_ALL = -1  # a time before the first


@dataclass(frozen=True, eq=False)
class Replaced:
    """The rows of the triples that a change concerns, in the order of the store."""

    before: Facts | Runs
    after: Facts | Runs

    @property
    def triples(self) -> Facts:
        """Each triple that the change concerns, at time 0."""
        rows = [each.first if isinstance(each, Runs) else each for each in (self.before, self.after)]
        return Facts(torch.cat([each.with_slot("t", 0).ids for each in rows]).unique(dim=0))


def in_order(store: Facts | Runs, sizes: Mapping[str, int]) -> Facts | Runs:
    """Return facts sorted by (s, p, o, t), or runs as `merge_runs` returns them."""
    if isinstance(store, Runs):
        return store if _is_merged(store, sizes) else merge_runs(store, sizes)
    codes = encode(store, sizes)
    return store if is_sorted(codes) else store[stable_sort(codes)[1]]


def _is_merged(runs: Runs, sizes: Mapping[str, int]) -> bool:
    """Return whether `merge_runs` would return the same runs; of runs with values or weights, it is not known."""
    if runs.first.value is not None or runs.first.weight is not None or not is_canonical(runs, sizes):
        return False
    start = encode(runs.first, sizes)
    follows = start[1:] == (start + runs.lengths)[:-1]
    return not bool((follows & (runs.first.t[1:] > 0)).any())


def change_store(
    store: Facts | Runs, sizes: Mapping[str, int], removed: Runs, added: Runs
) -> tuple[Facts | Runs, Replaced]:
    """Return the store without the removed runs and with the added ones, and the rows that were replaced.

    The store is `in_order`. Runs are cut to the axis; where they have no end, they stay ongoing. What is added is
    true and has weight 1, whatever was stored of the same facts. What was not stored is not missed. What would begin
    after the axis is left out.
    """
    codes = encode(store.first if isinstance(store, Runs) else store, sizes, "spo")
    triples = encode(Facts.concat([removed.first, added.first]), sizes, "spo").unique()
    start, stop = torch.searchsorted(codes, triples), torch.searchsorted(codes, triples, right=True)
    before = store[concat_ranges(start, stop - start)]
    after = (
        _changed_runs(before, sizes, removed, added)
        if isinstance(before, Runs)
        else _changed_facts(before, sizes, removed, added)
    )
    own = encode(after.first if isinstance(after, Runs) else after, sizes, "spo")
    counts = torch.searchsorted(own, triples, right=True) - torch.searchsorted(own, triples)
    return _spliced(store, after, start, stop, counts), Replaced(before, after)


def _changed_facts(facts: Facts, sizes: Mapping[str, int], removed: Runs, added: Runs) -> Facts:
    """Return facts without the removed and with the added runs, one fact for each of their times, in order."""
    last = sizes["time"] - 1
    new = added.between(0, last).expand("what is added")
    gone = Facts.concat([removed.between(0, last).expand("what is removed"), new])
    kept = facts[~torch.isin(encode(facts, sizes), encode(gone, sizes))]
    codes, order = stable_sort(encode(new, sizes))
    is_first = torch.ones(len(codes), dtype=torch.bool)
    is_first[1:] = codes[1:] != codes[:-1]
    return sort_facts(Facts.concat([kept, new[order[is_first]]]), sizes)


def _changed_runs(runs: Runs, sizes: Mapping[str, int], removed: Runs, added: Runs) -> Runs:
    """Return runs without the removed and with the added ones, in order."""
    new = merge_runs(_on_axis(added, sizes["time"]), sizes)
    kept = _cut_out(runs, removed, sizes)
    if runs.first.value is not None or runs.first.weight is not None:  # else both become one
        kept = _cut_out(kept, new, sizes)
    return merge_runs(Runs.concat([kept, new]), sizes)


def _on_axis(runs: Runs, times: int) -> Runs:
    """Return what lies on the axis; runs without an end reach its last time."""
    last = runs.last.clamp(max=times - 1)
    return replace(runs, last=torch.where(runs.goes_on, times - 1, last))[runs.first.t < times]


def _cut_out(runs: Runs, holes: Runs, sizes: Mapping[str, int]) -> Runs:
    """Return what is left of runs when the times of other runs of their triples are taken out of them."""
    if not len(holes):
        return runs
    holes = holes[stable_sort(encode(holes.first, sizes))[1]]  # if neighbours overlap, the gap between is empty
    triple = encode(holes.first, sizes, "spo")
    own = encode(runs.first, sizes, "spo")
    first_hole, stop_hole = torch.searchsorted(triple, own), torch.searchsorted(triple, own, right=True)
    row, number = expand_ranges(first_hole, stop_hole + 1)  # a run with n holes has n + 1 gaps: that before each, ...
    begins, ends = number == first_hole[row], number == stop_hole[row]
    reach = _reached(holes, triple)
    gap_start = torch.where(begins, BEFORE_ALL, reach[(number - 1).clamp(min=0)] + 1)
    gap_end = torch.where(ends, FOREVER, holes.first.t[number.clamp(max=len(holes) - 1)] - 1)  # ... and after the last
    start = torch.maximum(runs.first.t[row], gap_start)
    end = torch.minimum(runs.reach[row], gap_end)
    is_left = (start <= end) & (start < sizes["time"])
    row, start, end = row[is_left], start[is_left], end[is_left]
    ongoing = None if runs.ongoing is None else end >= FOREVER
    return Runs(runs.first[row].with_slot("t", start), end.clamp(max=sizes["time"] - 1), ongoing)


def _reached(holes: Runs, triple: Tensor) -> Tensor:
    """Return the last time that each hole or one before it of the same triple reaches: (n,)."""
    group = torch.unique_consecutive(triple, return_inverse=True)[1]
    width = 2 * FOREVER
    return (group * width + holes.reach).cummax(0).values - group * width


def _spliced(store: Facts | Runs, rows: Facts | Runs, start: Tensor, stop: Tensor, counts: Tensor) -> Facts | Runs:
    """Return the store with its rows start[i] … stop[i] − 1 replaced by the next counts[i] of other rows."""

    def splice_column(old: Tensor | None, new: Tensor | None) -> Tensor | None:
        if old is None or new is None:
            return None
        return torch.from_numpy(splice(old.numpy(), new.numpy(), start.tolist(), stop.tolist(), counts.tolist()))

    if isinstance(store, Facts) and isinstance(rows, Facts):
        every = [_columns(each) for each in _alike(store, rows)]
        ids, value, weight = (splice_column(old, new) for old, new in zip(*every, strict=True))
        assert ids is not None
        return Facts(ids, value, weight)
    assert isinstance(store, Runs)
    assert isinstance(rows, Runs)
    first = _spliced(store.first, rows.first, start, stop, counts)
    assert isinstance(first, Facts)
    last = splice_column(store.last, rows.last)
    assert last is not None
    has_flags = store.ongoing is not None or rows.ongoing is not None
    return Runs(first, last, splice_column(store.goes_on, rows.goes_on) if has_flags else None)


def _alike(*parts: Facts) -> list[Facts]:
    """Return facts with the defaults of values and weights filled in, where one of them has some."""
    whole = Facts.concat(part[:0] for part in parts)
    return [Facts.concat([whole, part]) for part in parts]


def _columns(facts: Facts) -> tuple[Tensor, Tensor | None, Tensor | None]:
    return facts.ids, facts.value, facts.weight


def splice(table: Array, rows: Array, start: list[int], stop: list[int], counts: list[int]) -> Array:
    """Return a table with its rows start[i] … stop[i] − 1 replaced by the next counts[i] of other rows.

    >>> splice(np.arange(6), np.array([7, 8, 9]), [1, 4], [3, 4], [1, 2]).tolist()
    [0, 7, 3, 8, 9, 4, 5]
    """
    pieces, copied, used = [], 0, 0
    for first, last, count in zip(start, stop, counts, strict=True):
        pieces += [table[copied:first], rows[used : used + count]]
        copied, used = last, used + count
    pieces.append(table[copied:])
    return np.concatenate(pieces)
