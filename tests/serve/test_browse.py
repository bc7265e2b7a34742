"""Labels are completed and stored facts browsed as by plain loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.graph.runs import maximal_runs
from recollect.serve.browse import LabelIndex, StoreView
from recollect.serve.service import thinned

LABELS = st.lists(st.text("aAbß\0İ \U0010ffff", max_size=4), unique=True, max_size=12)


@given(LABELS, st.text("aAbßİ ", max_size=2), st.integers(1, 5))
def test_labels_are_found_as_by_a_loop(labels, text, count):
    facts = np.arange(len(labels)) * 7 % 5
    wanted = text.casefold()
    folded = [label.casefold().replace("\0", " ") for label in labels]
    prefix = [i for i, label in enumerate(folded) if label.startswith(wanted)]
    inside = [i for i, label in enumerate(folded) if wanted and wanted in label and i not in prefix]
    found = LabelIndex(labels, facts).find(text, count)
    assert len(found) == len(set(found)) == min(count, len(prefix) + len(inside))
    expected = [sorted(facts[part].tolist(), reverse=True) for part in (prefix, inside)]
    assert facts[found].tolist() == (expected[0] + expected[1])[:count]
    assert set(found[: len(prefix)]) <= set(prefix)


@given(st.lists(st.floats(0, 1), max_size=30), st.integers(2, 8))
def test_thinned_keeps_the_largest_of_every_block(values, count):
    kept = thinned(np.array(values), count).tolist()
    assert kept == sorted(set(kept))
    assert len(kept) <= count
    assert not values or max(values) == max(values[i] for i in kept)


@pytest.fixture(scope="module")
def view(small_world) -> StoreView:
    return StoreView(small_world, maximal_runs(small_world.split("train"), small_world.sizes), has_times=True)


def rows(view, runs) -> list[tuple[int, ...]]:
    return list(
        zip(*(column[runs].tolist() for column in (view.s, view.p, view.o, view.first, view.last)), strict=True)
    )


@pytest.mark.parametrize("entity", [None, 3])
@pytest.mark.parametrize("time", [0, 11, 23])
def test_what_holds_and_what_ended_are_those_of_a_loop(view, entity, time):
    every = [row for row in rows(view, np.arange(len(view.s))) if entity is None or entity in (row[0], row[2])]
    held = [row for row in every if row[3] <= time <= row[4]]
    found = view.at(time, entity, 1, 10_000)
    assert sorted(rows(view, found.runs)) == sorted(held)
    assert found.left_out == 0
    ended = [row for row in every if row[4] < time and row[:3] not in {each[:3] for each in held}]
    past = rows(view, view.ended(time, entity, 10_000).runs)
    assert sorted(past) == sorted(ended)
    assert [row[4] for row in past] == sorted((row[4] for row in past), reverse=True)


def test_what_is_past_the_limit_is_counted(view):
    whole = view.at(12, None, 1, 10_000)
    some = view.at(12, None, 1, 5)
    assert some.runs.tolist() == whole.runs[:5].tolist()
    assert some.left_out == len(whole.runs) - 5


def test_two_steps_reach_the_facts_of_neighbours(view):
    near = view.at(12, 0, 1, 10_000).runs
    neighbours = {*view.s[near].tolist(), *view.o[near].tolist(), 0}
    every = view.at(12, None, 1, 10_000).runs
    expected = {run for run in every.tolist() if {int(view.s[run]), int(view.o[run])} & neighbours}
    assert set(view.at(12, 0, 2, 10_000).runs.tolist()) == expected


@pytest.mark.parametrize(("since", "until"), [(0, 23), (5, 9), (7, 7), (9, 5)])
def test_changes_are_the_difference_of_what_held_at_both_times(view, since, until):
    every = rows(view, np.arange(len(view.s)))
    began = rows(view, view.began_between(since, until, None, 10_000).runs)
    ended = rows(view, view.ended_between(since, until, None, 10_000).runs)
    assert sorted(began) == sorted(row for row in every if since < row[3] <= until)
    assert sorted(ended) == sorted(row for row in every if since <= row[4] < until)
    if since <= until:
        before, after = ({row for row in every if row[3] <= time <= row[4]} for time in (since, until))
        assert after - before <= set(began)
        assert before - after == set(ended) & before
