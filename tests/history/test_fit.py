"""Sums of a fitting pass against loops over facts, and what fitting finds."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from hypothesis import given, settings

from recollect import Facts
from recollect.history import edges, fit
from recollect.history.bins import SIDE
from recollect.history.fit import Statistics, fitting_pass, slot_queries
from recollect.history.history import History
from tests.backends import EACH_BACKEND, running
from tests.history import oracle
from tests.history.test_rates import PAST, SIZES, STORES, long_axis

ASKED = pytest.mark.parametrize("slot", "opt")
VISIT, HOST, TRADE = range(3)


def sums_of_pass(history, slot, every=1):
    """The sums of one pass over the queries, or over those of every n-th fact."""
    kernel, weights, past = history.kernels[slot], history.weights[slot], history.past[slot]
    run = fitting_pass(history.edges, history.bins, history.sizes, history.classes, slot, past=past)
    sums = Statistics.zeros(kernel, weights)
    queries = slot_queries(history.edges, slot)
    run(kernel, weights, queries.edge[::every], queries.first[::every], sums)
    return sums


def assert_sums_are_right(history, store, slot, every=1):
    found = sums_of_pass(history, slot, every)
    wanted = [np.zeros(array.shape) for array in found.arrays]
    facts = sorted(store, key=lambda fact: (fact[0], fact[2], fact[1], fact[3]))[::every]  # in the order of edges
    queries = [(fact, asked) for asked in ("so" if slot == "o" else slot) for fact in facts]
    likelihood = sum(oracle.add_query(store, history, fact, asked, wanted) for fact, asked in queries)
    for ours, theirs in zip(found.arrays, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    assert found.log_likelihood == pytest.approx(likelihood, rel=1e-5, abs=1e-5)


@ASKED
@PAST
@EACH_BACKEND
@settings(max_examples=50)
@given(store=STORES)
def test_the_sums_of_a_pass_are_those_of_loops_over_the_stored_facts(backend, past, slot, store):
    history = oracle.random_history(store, SIZES, past=past)
    with running(backend):
        assert_sums_are_right(history, store, slot)


@EACH_BACKEND
@pytest.mark.parametrize("slot", "pt")
def test_sums_are_right_on_a_long_axis(backend, slot):
    store = long_axis()
    history = oracle.random_history(store, {"entity": 3, "predicate": 2, "time": 300})
    with running(backend):
        assert_sums_are_right(history, store, slot, every=20)


@ASKED
def test_sums_are_right_where_rare_predicates_share_a_class(slot, monkeypatch):
    monkeypatch.setattr(edges, "MAX_CLASSES", 2)
    store = {tuple(row) for row in np.random.default_rng(3).integers(0, (3, 4, 3, 6), (60, 4)).tolist()}
    history = oracle.random_history(store, {"entity": 3, "predicate": 4, "time": 6})
    assert_sums_are_right(history, store, slot)


WORLD = {"entity": 12, "predicate": 3, "time": 60}


def planted(count: int = 400, seed: int = 0) -> Facts:
    """Facts where a host at a time goes with each visit, among random trade."""
    rng = np.random.default_rng(seed)
    pairs, times = rng.permuted(np.tile(np.arange(12), (count, 1)), axis=1)[:, :2], rng.integers(60, size=count)
    visits = [(a, VISIT, b, t) for (a, b), t in zip(pairs.tolist(), times.tolist(), strict=True)]
    hosts = [(b, HOST, a, t) for a, _, b, t in visits]
    trade = [(int(s), TRADE, int(o), int(t)) for s, o, t in rng.integers(0, (12, 12, 60), (count, 3))]
    return Facts.of([*visits, *hosts, *trade])


def likelihood(history: History, slot: str) -> float:
    return sums_of_pass(history, slot).log_likelihood


@ASKED
@PAST
def test_more_passes_raise_the_likelihood(slot, past, monkeypatch):
    found = []
    for passes in (1, 2, 4, 12):
        monkeypatch.setattr(fit, "PASSES", passes)
        found.append(likelihood(History.fit(planted(), WORLD, asked=slot, past=past), slot))
    assert found == sorted(found)
    assert found[-1] > found[0] + 1


@pytest.mark.parametrize("slot", "spot")
def test_a_fact_that_goes_with_another_is_ranked_first(slot):
    history = History.fit(planted(), WORLD)
    asked = Facts.of([(3, VISIT, 7, 25), (1, VISIT, 2, 40)])
    stored = Facts.concat([planted()[800:], Facts.of([(7, HOST, 3, 25), (2, HOST, 1, 40)])])
    assert history.with_facts(stored).score_against(asked, slot).argmax(1).equal(asked.column(slot))


def test_what_held_the_day_before_is_ranked_first_by_past_lags():
    runs = Facts.of([(i % 9, VISIT, (i * 7 + i // 9) % 12, 4 * (i // 9) + t) for i in range(90) for t in range(4)])
    history = History.fit(runs, WORLD, asked="o", past=True)
    stored = Facts.of([(0, VISIT, 5, 50), (0, VISIT, 5, 51), (0, VISIT, 4, 30), (0, VISIT, 6, 53)])
    scores = history.with_facts(stored).score_against(Facts.of([(0, VISIT, 0, 52)]), "o")
    assert scores.argmax().item() == 5


@pytest.mark.parametrize("slot", "op")
def test_with_past_the_kernel_is_zero_at_lag_0_and_in_the_future(slot):
    history = History.fit(planted(), WORLD, asked=slot, past=True)
    assert not history.kernels[slot][:, :, 0].any()
    assert not history.kernels[slot][:, :, 1 + SIDE :].any()
    assert history.kernels[slot][:, :, 1 : 1 + SIDE].all()


@ASKED
def test_a_fit_on_samples_stays_close_to_the_full_one(slot, monkeypatch):
    full = History.fit(planted(), WORLD, asked=slot)
    cost = slot_queries(full.edges, slot).cost.sum()
    monkeypatch.setattr(fit, "PASS_EDGES", int(cost) // 3)
    sampled = History.fit(planted(), WORLD, asked=slot)
    start = oracle.random_history({(0, 0, 0, 0)}, WORLD).with_facts(planted())
    assert not np.array_equal(sampled.kernels[slot], full.kernels[slot])
    gains = [likelihood(each, slot) - likelihood(start, slot) for each in (full, sampled)]
    assert gains[1] > 0.8 * gains[0]


def test_a_sample_has_whole_groups_of_queries_that_share_a_source_and_a_time():
    stored = oracle.random_history({(0, 0, 1, 2), (0, 1, 2, 2), (1, 0, 0, 2), (0, 0, 0, 4)}, SIZES).edges
    queries = slot_queries(stored, "o")
    found = list(
        zip(stored.source[queries.edge].tolist(), stored.column(edges.TIME)[queries.edge].tolist(), strict=True)
    )
    assert found == [(0, 2), (0, 2), (0, 2), (0, 4), (0, 4), (1, 2), (1, 2), (2, 2)]
    assert queries.group.tolist() == [0, 0, 0, 1, 1, 2, 2, 3]


def test_the_cost_of_a_query_is_the_edges_of_its_pair_and_once_per_group_those_of_its_source():
    stored = oracle.random_history({(0, 0, 1, 2), (0, 1, 2, 2), (0, 0, 1, 4)}, SIZES).edges
    assert slot_queries(stored, "o").cost.tolist() == [2 + 3, 1, 2 + 3, 2 + 2, 2 + 2, 1 + 1]


@ASKED
@pytest.mark.parametrize("threads", [1, 2])
def test_the_same_seed_and_threads_give_the_same_bits(slot, threads, monkeypatch):
    monkeypatch.setattr(fit, "PASS_EDGES", 5000)
    with running("compiled", threads):
        first, second = (History.fit(planted(), WORLD, asked=slot, seed=3) for _ in range(2))
        other = History.fit(planted(), WORLD, asked=slot, seed=4)
    assert (first.kernels[slot] == second.kernels[slot]).all()
    assert (first.weights[slot] == second.weights[slot]).all()
    assert (first.kernels[slot] != other.kernels[slot]).any()


def test_rare_predicates_share_a_kernel(monkeypatch):
    monkeypatch.setattr(edges, "MAX_CLASSES", 2)
    facts = planted()
    history = History.fit(facts, WORLD | {"predicate": 5})
    assert history.kernels["o"].shape[:2] == (4, 4)
    assert np.isfinite(history.rates(facts, "p")).all()
    assert history.classes[VISIT] == 0  # the most frequent, and the first of equals


@EACH_BACKEND
def test_facts_that_are_not_there_leave_only_popularity(backend):
    with running(backend):
        history = History.fit(Facts.of([(0, 0, 1, 0)]), SIZES)
        scores = history.with_facts(Facts.of([])).score_against(Facts.of([(0, 0, 1, 0)]), "o")
    assert scores.isfinite().all()
    assert (scores == scores[0, 0]).all()


@EACH_BACKEND
@PAST
@pytest.mark.parametrize("size", [0, 1, 3])
def test_a_store_without_facts_can_be_fitted(backend, past, size):
    with running(backend):
        history = History.fit(Facts.of([]), dict.fromkeys(WORLD, size), past=past)
    queries = Facts.of([(0, 0, 0, 0)] if size else [])
    assert all(history.score_against(queries, slot).isfinite().all() for slot in "spot")


@ASKED
def test_both_back_ends_fit_the_same_kernel(slot):
    fitted = []
    for backend in ("compiled", "reference"):
        with running(backend):
            fitted.append(History.fit(planted(150), WORLD, asked=slot).kernels[slot])
    np.testing.assert_allclose(*fitted, rtol=1e-3)


def test_progress_rises_to_1():
    shares: list[float] = []
    History.fit(planted(20), WORLD, asked="op", progress=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1


@pytest.mark.long
def test_without_compiled_code_numba_is_not_imported():
    script = """
        import sys
        from recollect import Facts
        from recollect.history.history import History
        facts = Facts.of([(0, 0, 1, t) for t in range(5)])
        history = History.fit(facts, {"entity": 3, "predicate": 1, "time": 5})
        assert all(history.score_against(facts, slot).isfinite().all() for slot in "spot")
        assert "numba" not in sys.modules
    """
    environment = os.environ | {"RECOLLECT_COMPILED": "0"}
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], env=environment, check=True)
