"""Rates λ against loops over facts, and the rule that a stored fact says nothing about itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect import Facts
from recollect.history import edges
from recollect.history.bins import COUNT
from recollect.history.history import POWERS, History
from tests.backends import EACH_BACKEND, running
from tests.history import oracle

SIZES = {"entity": 3, "predicate": 2, "time": 7}
IDS = st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 2), st.integers(0, 6))
STORES = st.sets(IDS, min_size=1, max_size=40)  # few ids: loops, parallel predicates, runs and equal times are common
PAST = pytest.mark.parametrize("past", [False, True], ids=["all", "past"])
SLOTS = pytest.mark.parametrize("slot", "spot")


def assert_rates_are_right(history, store, queries, slot):
    found = history.rates(Facts.of(queries), slot)
    for row, query in zip(found, queries, strict=True):
        wanted = [oracle.rate(store, history, fact, slot) for fact in oracle.others(query, slot, history.sizes)]
        np.testing.assert_allclose(row, wanted, rtol=1e-6)


@SLOTS
@PAST
@EACH_BACKEND
@given(store=STORES, query=IDS)
def test_rates_are_those_of_loops_over_the_stored_facts(backend, past, slot, store, query):
    history = oracle.random_history(store, SIZES, past=past)
    with running(backend):
        assert_rates_are_right(history, store, [query, min(store)], slot)


def long_axis():
    """A store whose facts fall in every bin: runs of all lengths, lone facts, and gaps of all lengths."""
    runs = {
        (0, 0, 1, start + t)
        for start, length in ((0, 1), (3, 2), (9, 30), (60, 4), (70, 7), (90, 12))
        for t in range(length)
    }
    return runs | {(1, 1, 0, t) for t in (0, 2, 5, 130, 260, 299)} | {(0, 1, 0, t) for t in (7, 8, 9, 10, 20)}


@SLOTS
@EACH_BACKEND
def test_rates_are_right_on_a_long_axis(backend, slot):
    store, sizes = long_axis(), {"entity": 3, "predicate": 2, "time": 300}
    queries = [(0, 0, 1, 9), (1, 0, 0, 39), (0, 1, 1, 200), (0, 0, 0, 11)]
    with running(backend):
        assert_rates_are_right(oracle.random_history(store, sizes), store, queries, slot)


def test_the_long_axis_has_a_fact_in_every_bin():
    history = oracle.random_history(long_axis(), {"entity": 3, "predicate": 2, "time": 300})
    asked = [(s, 0, o, t) for s, o in ((0, 1), (0, 0)) for t in range(300)]
    said = [each for fact in asked for each in oracle.evidence(long_axis(), history, fact, "o")]
    assert {each.entry[2] for each in said} == set(range(COUNT))


@SLOTS
def test_rare_predicates_share_a_class(slot, monkeypatch):
    monkeypatch.setattr(edges, "MAX_CLASSES", 2)
    rng = np.random.default_rng(3)
    store = {tuple(row) for row in rng.integers(0, (3, 4, 3, 6), (60, 4)).tolist()}
    history = oracle.random_history(store, {"entity": 3, "predicate": 4, "time": 6})
    assert sorted(history.classes[:4]) == [0, 1, 1, 1]
    assert_rates_are_right(history, store, sorted(store)[:5], slot)


@SLOTS
@given(store=STORES, number=st.integers(0, 39))
def test_a_stored_fact_has_the_score_that_it_has_once_removed(slot, store, number):
    fact = sorted(store)[number % len(store)]
    history, query = oracle.random_history(store, SIZES), Facts.of([fact])
    without = history.with_facts(Facts.of(sorted(store - {fact})))
    answer = query.column(slot)[:, None]
    stored, removed = (each.score_against(query, slot, answer) for each in (history, without))
    np.testing.assert_allclose(stored, removed, atol=1e-6)


@SLOTS
@given(store=STORES, query=IDS)
def test_the_score_is_log_rate_and_a_part_of_log_popularity(slot, store, query):
    history, facts = oracle.random_history(store, SIZES), Facts.of([query])
    popularity = History(history.facts, SIZES, history.classes, silent(history.kernels), history.weights)
    wanted = np.log(history.rates(facts, slot)) + POWERS[slot] * np.log(popularity.rates(facts, slot))
    np.testing.assert_allclose(history.score_against(facts, slot), wanted, atol=1e-5)


def silent(kernels):
    """Kernels that add next to nothing; kernels of zeros would read only the past."""
    return {slot: np.full_like(kernel, 1e-20) for slot, kernel in kernels.items()}


@pytest.mark.parametrize("slot", "spo")
@given(store=STORES, query=IDS, changed=STORES)
def test_with_past_lags_only_the_asked_time_and_the_future_change_no_score(slot, store, query, changed):
    kept = {fact for fact in store if fact[3] < query[3]}
    later = {fact for fact in changed if fact[3] >= query[3]}
    history = oracle.random_history(store, SIZES, past=True)
    other = history.with_facts(Facts.of(sorted(kept | later)))
    assert (history.rates(Facts.of([query]), slot) == other.rates(Facts.of([query]), slot)).all()


@SLOTS
def test_candidates_are_columns_of_all_scores(slot):
    store = {(0, 0, 1, 2), (1, 1, 0, 2), (0, 1, 2, 3)}
    history, query = oracle.random_history(store, SIZES), Facts.of([(0, 0, 1, 2), (2, 1, 2, 6)])
    scores, ids = history.score_against(query, slot), query.column(slot)
    assert history.score_against(query, slot, ids).equal(scores[:, ids])
    assert history.score_against(query, slot, ids[:, None]).equal(scores.gather(1, ids[:, None]))


def test_the_score_of_a_fact_is_that_of_its_object():
    store = {(0, 0, 1, 2), (1, 1, 0, 2), (0, 1, 2, 3)}
    history, facts = oracle.random_history(store, SIZES), Facts.of(sorted(store))
    assert history.score(facts).equal(history.score_against(facts, "o").gather(1, facts.o[:, None])[:, 0])


def test_times_after_the_axis_are_scored_by_the_same_bins():
    store, longer = {(0, 0, 1, t) for t in range(7)}, SIZES | {"time": 20}
    history = oracle.random_history(store, SIZES).with_facts(Facts.of(sorted(store)), longer)
    assert_rates_are_right(history, store, [(0, 0, 1, 19)], "o")


def test_false_facts_and_repeated_ones_are_not_stored_twice():
    rows = Facts.of([(0, 0, 1, 2), (0, 0, 1, 2), (0, 0, 2, 2)])
    history = oracle.random_history({(0, 0, 1, 2)}, SIZES)
    doubled = history.with_facts(Facts(rows.ids, value=rows.o < 2))
    asked = Facts.of([(0, 1, 1, 2)])
    assert (doubled.rates(asked, "o") == history.rates(asked, "o")).all()
