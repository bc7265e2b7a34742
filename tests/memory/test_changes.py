"""Deltas: added up by a journal, undone, and cut exactly, against sets of single times."""

from __future__ import annotations

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from recollect import TimeAxis
from recollect.memory.journal.changes import ADDED, FOREVER, SCHEMA, Delta, last_bins, sweep
from tests.memory.growth_examples import together

HORIZON = 12  # times that the oracle lists; an interval without an end covers all of them

interval = st.tuples(st.integers(0, 8), st.one_of(st.none(), st.integers(0, 3))).map(
    lambda pair: (pair[0], None if pair[1] is None else pair[0] + pair[1])
)
runs = st.lists(st.tuples(st.sampled_from("ab"), interval), max_size=5)
Cells = set[tuple[str, int]]


def cells_of(label: str, first: int, last: int | None) -> Cells:
    return {(label, time) for time in range(first, HORIZON if last is None else last + 1)}


def effective(store: Cells, asked: Cells, *, add: bool) -> Delta:
    """Return the delta of single times, where the last listed time stands for all later ones."""
    changed = sorted(asked - store if add else asked & store)
    rows = [(label, "p", "o", time, None if time == HORIZON - 1 else time) for label, time in changed]
    return Delta.of(added=rows) if add else Delta.of(removed=rows)


def apply(store: Cells, delta: Delta) -> Cells:
    added = {cell for row in delta.added.iter_rows() for cell in cells_of(row[0], row[3], row[4])}
    removed = {cell for row in delta.removed.iter_rows() for cell in cells_of(row[0], row[3], row[4])}
    assert removed <= store
    assert not added & store
    return (store - removed) | added


@given(runs, st.lists(st.tuples(st.booleans(), runs), max_size=6))
def test_several_deltas_together_have_the_effect_of_all_and_can_be_undone(stored, changes):
    before = {cell for label, (first, last) in stored for cell in cells_of(label, first, last)}
    store, deltas = before, []
    for add, asked in changes:
        cells = {cell for label, (first, last) in asked for cell in cells_of(label, first, last)}
        deltas.append(effective(store, cells, add=add))
        store = apply(store, deltas[-1])
    whole = together(deltas)
    assert whole.frame.schema == SCHEMA
    assert apply(before, whole) == store
    assert apply(store, whole.inverse()) == before


@given(st.lists(st.tuples(st.integers(0, 2), interval, st.integers(0, 1)), max_size=8), st.sampled_from([1, 10]))
def test_pieces_are_disjoint_and_count_what_covers_each_time(rows, step):
    frame = pl.DataFrame(
        [(group, step * first, None if last is None else step * last, kind) for group, (first, last), kind in rows],
        schema={"group": pl.Int64, "first": pl.Int64, "last": pl.Int64, "kind": pl.Int64},
        orient="row",
    )
    weights = np.eye(2, dtype=np.int64)[frame["kind"].to_numpy()]
    found = sweep(frame["group"].to_numpy(), frame["first"].to_numpy(), last_bins(frame), weights, step)
    counts: dict[tuple[int, int], list[int]] = {}
    for group, first, last, count in zip(found.group, found.first, found.last, found.counts.tolist(), strict=True):
        for time in range(first, min(last, step * HORIZON) + 1, step):
            assert (group, time) not in counts
            counts[int(group), time] = count
    for group in range(3):
        for time in range(0, step * HORIZON + 1, step):
            expected = [0, 0]
            for other, (first, last), kind in rows:
                if other == group and step * first <= time and (last is None or time <= step * last):
                    expected[kind] += 1
            assert counts.get((group, time), [0, 0]) == expected
    assert all(last == FOREVER or last % step == 0 for last in found.last.tolist())


def test_an_erased_entity_is_gone_from_what_came_before_and_can_come_again():
    first = Delta.of(added=[("x", "p", "y", 1, 1), ("y", "p", "z", 1, 1)], entities=("x", "y", "z"), reach=(1, 1))
    again = Delta.of(added=[("z", "p", "x", 3, 3)], entities=("x",), reach=(3, 3))
    whole = together([first, Delta.of(erased=("x",)), again], TimeAxis("day", 1, 2))
    assert whole.frame.rows() == [(ADDED, "y", "p", "z", 1, 1), (ADDED, "z", "p", "x", 3, 3)]
    assert (whole.erased, whole.entities, whole.reach) == (("x",), ("y", "z", "x"), (1, 3))
    assert set(whole.inverse().erased) == {"x", "y", "z"}
    assert whole.inverse().frame.is_empty()


def test_a_label_that_came_and_whose_facts_went_stays_a_label():
    whole = together(
        [Delta.of(added=[("x", "p", "y", 1, 1)], entities=("x",)), Delta.of(removed=[("x", "p", "y", 1, 1)])]
    )
    assert whole.frame.is_empty()
    assert whole.entities == ("x",)
    assert not whole.is_empty
