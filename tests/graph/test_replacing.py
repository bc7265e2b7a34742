"""Changed stores hold what sets of facts hold, row for row the same in one step or many."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import Facts, sort_facts
from recollect.graph.replacing import change_store, in_order
from recollect.graph.runs import Runs, is_canonical, merge_runs

SIZES = {"entity": 3, "predicate": 2, "time": 6}
CELL = st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 2), st.integers(0, 5))
SPAN = st.tuples(CELL, st.integers(0, 3), st.booleans())

STEPS = st.lists(st.tuples(st.lists(SPAN, max_size=3), st.lists(SPAN, max_size=3)), max_size=3)


def runs_of(spans) -> Runs:
    """Return runs from (first fact, length − 1, whether it has no end)."""
    first = Facts.of([cell for cell, _, _ in spans])
    last = torch.tensor([min(5, cell[3] + more) for cell, more, _ in spans], dtype=torch.int64)
    ongoing = torch.tensor([is_open for _, _, is_open in spans], dtype=torch.bool)
    return Runs(first, last.masked_fill(ongoing, 5), ongoing)


def points(store: Facts | Runs) -> set[tuple[int, ...]]:
    facts = store.true().expand() if isinstance(store, Runs) else store.true()
    return set(map(tuple, facts.ids.tolist()))


def with_future(runs: Runs) -> set[tuple[int, ...]]:
    """Return the facts of runs, and for those without an end one at the time after the axis."""
    return points(runs) | {(s, p, o, 6) for s, p, o in runs.first.ids[runs.goes_on][:, :3].tolist()}


NO_RUNS = runs_of([])


@settings(max_examples=60)
@given(st.lists(CELL, max_size=12), STEPS)
def test_a_store_of_facts_changes_like_a_set(cells, steps):
    expected = set(cells)
    store = in_order(Facts.of(sorted(expected)), SIZES)
    index = FactIndex(store, SIZES)
    for slot in "spot":
        index.codes(slot)
    for removed, added in steps:
        gone, new = runs_of(removed), runs_of(added)
        expected = (expected - points(gone)) | points(new)
        changed, rows = change_store(store, SIZES, gone, new)
        index = index.changed(changed, SIZES, rows.before, rows.after)
        store = changed
        assert store.ids.tolist() == [list(cell) for cell in sorted(expected)]
        assert points(rows.after) - points(rows.before) == points(store) & points(rows.after) - points(rows.before)
        for slot in "spot":
            assert torch.equal(index.codes(slot), FactIndex(store, SIZES).codes(slot))


@settings(max_examples=60)
@given(st.lists(SPAN, max_size=12), STEPS)
def test_a_store_of_runs_changes_like_a_set(spans, steps):
    store = in_order(runs_of(spans), SIZES)
    expected = with_future(store)
    for removed, added in steps:
        gone, new = runs_of(removed), runs_of(added)
        expected = (expected - with_future(gone)) | with_future(new)
        expected = {cell for cell in expected if cell[3] < 6 or (*cell[:3], 5) in expected}
        store, _ = change_store(store, SIZES, gone, new)
        assert with_future(store) == expected
        assert store.count == len({cell for cell in expected if cell[3] < 6})
        assert is_canonical(store, SIZES)
        assert in_order(store, SIZES) is store


def test_values_and_weights_of_other_facts_stay():
    cells = [(0, 0, 1, 0), (0, 0, 1, 1), (1, 0, 1, 0)]
    store = replace(Facts.of(cells), value=torch.tensor([True, False, False]), weight=torch.tensor([2.0, 3.0, 4.0]))
    added = Runs.of_points(Facts.of([(0, 0, 1, 1), (0, 0, 1, 2)]))
    changed, _ = change_store(store, SIZES, NO_RUNS, added)
    assert changed.ids.tolist() == [[0, 0, 1, 0], [0, 0, 1, 1], [0, 0, 1, 2], [1, 0, 1, 0]]
    assert changed.truth.tolist() == [True, True, True, False]
    assert changed.weight.tolist() == [2, 1, 1, 4]


def test_a_weighted_run_is_cut():
    first = replace(Facts.of([(0, 0, 1, 0)]), weight=torch.tensor([2.0]))
    store = Runs(first, torch.tensor([5]))
    changed, _ = change_store(store, SIZES, runs_of([((0, 0, 1, 2), 1, False)]), NO_RUNS)
    assert changed.first.t.tolist() == [0, 4]
    assert changed.last.tolist() == [1, 5]
    assert changed.first.weight.tolist() == [2, 2]


@pytest.mark.parametrize("slot", "spot")
def test_an_index_with_more_ids_is_the_index_of_all_facts(slot):
    facts = sort_facts(Facts.of([(0, 0, 1, 0), (2, 1, 0, 5), (1, 1, 1, 3)]), SIZES)
    larger = {"entity": 5, "predicate": 3, "time": 7}
    index = FactIndex(facts, SIZES)
    index.codes(slot)
    changed, rows = change_store(facts, larger, NO_RUNS, Runs.of_points(Facts.of([(4, 2, 0, 6)])))
    found = index.changed(changed, larger, rows.before, rows.after)
    assert torch.equal(found.codes(slot), FactIndex(changed, larger).codes(slot))
    assert torch.equal(found.mask(changed, slot), FactIndex(changed, larger).mask(changed, slot))


def test_merged_runs_are_not_merged_again():
    runs = runs_of([((0, 0, 1, 0), 1, False), ((0, 0, 1, 2), 1, False)])
    assert len(in_order(runs, SIZES)) == 1
    merged = merge_runs(runs, SIZES)
    assert in_order(merged, SIZES) is merged
