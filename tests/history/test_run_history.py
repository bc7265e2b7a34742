"""History over stored runs: rates and sums against loops, and the rule that a run says nothing about itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect import Facts
from recollect.graph.runs import Runs
from recollect.history.bins import Layout, interval_layout, layout, layout_of
from recollect.history.cells import CellRates, _total_widths
from recollect.history.edges import CLASS
from recollect.history.fit import Statistics, fitting_pass, slot_queries
from recollect.history.history import History
from recollect.history.reference import NOT_CUT, bin_at
from tests.backends import EACH_BACKEND, running
from tests.history import run_oracle as oracle
from tests.history.oracle import others

SIZES = {"entity": 3, "predicate": 2, "time": 16}
STORES = oracle.stores()
QUERIES = st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 2), st.integers(0, 15))
SLOTS = pytest.mark.parametrize("slot", "spot")


def a_fact_of(store, number):
    """One fact of the store, by any number."""
    run = sorted(store)[number % len(store)]
    return (*run[:3], run[3] + number % (run[4] - run[3] + 1))


def assert_rates_are_right(history, store, queries, slot):
    found = history.rates(Facts.of(queries), slot)
    for row, query in zip(found, queries, strict=True):
        wanted = [oracle.rate(store, history, fact, slot) for fact in others(query, slot, history.sizes)]
        np.testing.assert_allclose(row, wanted, rtol=1e-6)


@SLOTS
@EACH_BACKEND
@settings(max_examples=40)
@given(store=STORES, query=QUERIES, number=st.integers(0, 99))
def test_rates_are_those_of_loops_over_the_stored_runs(backend, slot, store, query, number):
    history = oracle.random_run_history(store, SIZES)
    with running(backend):
        assert_rates_are_right(history, store, [query, a_fact_of(store, number)], slot)


@SLOTS
@pytest.mark.parametrize("levels", [0, 2])
def test_rates_are_right_for_long_runs_and_gaps(slot, levels):
    store = {(0, 0, 1, 0, 4), (0, 0, 1, 6, 40), (0, 0, 1, 200, 200), (1, 1, 0, 30, 250), (0, 1, 0, 5, 9)}
    history = oracle.random_run_history(store, SIZES | {"time": 300}, levels=levels)
    queries = [(0, 0, 1, 3), (0, 0, 1, 5), (1, 0, 0, 41), (0, 1, 1, 251), (0, 0, 0, 7), (0, 0, 1, 299)]
    assert_rates_are_right(history, store, queries, slot)


@SLOTS
@given(store=STORES, number=st.integers(0, 99))
def test_a_stored_fact_has_the_score_that_it_has_once_its_run_is_removed(slot, store, number):
    fact = a_fact_of(store, number)
    history, query = oracle.random_run_history(store, SIZES), Facts.of([fact])
    removed = history.with_facts(oracle.as_runs(oracle.without(store, fact)))
    answer = query.column(slot)[:, None]
    scores = [each.score_against(query, slot, answer) for each in (history, removed)]
    np.testing.assert_allclose(*scores, atol=1e-6)


@pytest.mark.parametrize("slot", "opt")
@EACH_BACKEND
@settings(max_examples=30)
@given(store=STORES, seed=st.integers(0, 99))
def test_the_sums_of_a_pass_are_those_of_loops_over_the_sampled_facts(backend, slot, store, seed):
    history = oracle.random_run_history(store, SIZES)
    sums = Statistics.zeros(history.kernels[slot], history.weights[slot])
    queries, times = slot_queries(history.edges, slot).sample(1.0, np.random.default_rng(seed))
    with running(backend):
        fitting_pass(history.edges, history.bins, SIZES, history.classes, slot)(
            history.kernels[slot], history.weights[slot], queries, times, sums
        )
    wanted, likelihood = [np.zeros(array.shape) for array in sums.arrays], 0.0
    for edge, t in zip(queries.tolist(), times.tolist(), strict=True):
        u, (v, r) = int(history.edges.source[edge]), history.edges.table[edge, :2].tolist()
        fact, asked = ((u, r, v, t), slot) if r < 2 else ((v, r - 2, u, t), "s")
        likelihood += oracle.add_query(store, history, fact, asked, wanted)
    for ours, theirs in zip(sums.arrays, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    assert sums.log_likelihood == pytest.approx(likelihood, rel=1e-5, abs=1e-5)


@given(store=STORES)
def test_a_sampled_time_lies_in_its_run(store):
    edges = oracle.random_run_history(store, SIZES).edges
    queries, times = slot_queries(edges, "o").sample(1.0, np.random.default_rng(0))
    assert len(queries) == 2 * len(store)
    assert (edges.table[queries, 3] <= times).all()
    assert (times <= edges.table[queries, 4]).all()


@SLOTS
@given(store=STORES, fact=QUERIES)
def test_the_evidence_for_a_fact_is_that_of_loops_over_the_runs(slot, store, fact):
    history = oracle.random_run_history(store, SIZES)
    kernel, wanted = history.kernels["o" if slot == "s" else slot], {}
    for said in oracle.evidence(store, history, fact, slot):
        key = (said.fact, said.entry[2] == 0)
        wanted[key[0]] = wanted.get(key[0], 0) + float(kernel[said.entry])
    found = history.evidence(Facts.of([fact]), slot)
    added = {}
    for row, share in zip(found.facts.ids.tolist(), found.shares.tolist(), strict=True):
        added[tuple(row)] = added.get(tuple(row), 0) + share * found.rate
    assert added == pytest.approx(wanted)


@given(store=STORES)
def test_runs_of_one_time_are_facts(store):
    points = {(*run[:4], run[3]) for run in store}
    facts = Facts.of([run[:4] for run in sorted(points)])
    history = oracle.random_run_history(points, SIZES)
    as_points = history.with_facts(facts)
    assert (history.edges.table == as_points.edges.table).all()


@given(store=STORES)
def test_overlapping_pieces_of_a_run_are_one_edge(store):
    pieces = [(*run[:3], *ends) for run in store for ends in ((run[3], run[4]), (run[4], run[4]), (run[3], run[3]))]
    doubled = Runs(Facts.of([row[:4] for row in pieces]), torch.tensor([row[4] for row in pieces]))
    history = oracle.random_run_history(store, SIZES)
    assert (history.with_facts(doubled).edges.table == history.edges.table).all()


@given(store=STORES)
def test_exposure_counts_every_time_from_which_a_run_is_in_a_bin(store):
    history = oracle.random_run_history(store, SIZES)
    wanted = np.zeros_like(_total_widths(history, past=False))
    for row in history.edges.table:
        for t in range(SIZES["time"]):
            wanted[row[CLASS], bin_at(row, history.bins.by_lag, NOT_CUT, np.array(t))] += 1
    assert _total_widths(history, past=False) == pytest.approx(wanted)


def tenures(seed=0):
    """Offices held one after the other, some people twice, at 3,000 times."""
    rng, rows = np.random.default_rng(seed), []
    for office in range(10):
        at = 0
        while at < 2900:
            length = int(rng.integers(50, 400))
            rows.append((10 + int(rng.integers(40)), 0, office, at, min(2999, at + length - 1)))
            at += length
    return Runs(Facts.of([row[:4] for row in rows]), torch.tensor([row[4] for row in rows]))


def test_a_fit_to_runs_ranks_those_who_had_the_office_before_first_and_no_office_as_a_holder():
    sizes = {"entity": 50, "predicate": 1, "time": 3000}
    history = History.fit(tenures(), sizes)
    scores = history.score_against(Facts.of([(0, 0, 3, 2999)]), "s")[0]
    assert scores[:10].max() <= scores[10:].min()
    assert scores[:10].max() < scores[10:].median()
    cells = CellRates.fit(history)
    rates = cells.at(1500, cells.pairs())
    assert rates[cells.subject < 10].max() < 1e-4
    assert np.isfinite(rates).all()


# -- the past only ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slot", "spo")
@EACH_BACKEND
@settings(max_examples=40)
@given(store=STORES, query=QUERIES, number=st.integers(0, 99))
def test_the_past_of_a_time_has_runs_that_end_before_it(backend, slot, store, query, number):
    history = oracle.random_run_history(store, SIZES, past=True)
    with running(backend):
        for asked in (query, a_fact_of(store, number), (*query[:3], SIZES["time"])):
            assert_rates_are_right(history, oracle.before(store, asked[3]), [asked], slot)


@pytest.mark.parametrize("slot", "op")
@EACH_BACKEND
@settings(max_examples=30)
@given(store=STORES, seed=st.integers(0, 99))
def test_the_sums_of_a_pass_over_the_past_are_those_of_loops(backend, slot, store, seed):
    history = oracle.random_run_history(store, SIZES, past=True)
    sums = Statistics.zeros(history.kernels[slot], history.weights[slot])
    queries, times = slot_queries(history.edges, slot).sample(1.0, np.random.default_rng(seed))
    with running(backend):
        fitting_pass(history.edges, history.bins, SIZES, history.classes, slot, past=True)(
            history.kernels[slot], history.weights[slot], queries, times, sums
        )
    wanted, likelihood = [np.zeros(array.shape) for array in sums.arrays], 0.0
    for edge, t in zip(queries.tolist(), times.tolist(), strict=True):
        u, (v, r) = int(history.edges.source[edge]), history.edges.table[edge, :2].tolist()
        fact, asked = ((u, r, v, t), slot) if r < 2 else ((v, r - 2, u, t), "s")
        likelihood += oracle.add_query(oracle.before(store, t), history, fact, asked, wanted)
    past = slice(1, 1 + history.bins.layout.side)  # kernels of other bins are 0, whatever their exposure
    for ours, theirs in zip(sums.arrays, wanted, strict=True):
        part = (..., past) if ours.ndim == 3 else ...
        np.testing.assert_allclose(ours[part], theirs[part], rtol=1e-5, atol=1e-5)
    assert sums.log_likelihood == pytest.approx(likelihood, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("slot", "spo")
@given(store=STORES, query=QUERIES)
def test_the_past_of_runs_is_that_of_their_facts_but_for_older_ones(slot, store, query):
    history = oracle.random_run_history(store, SIZES, past=True)
    is_older = history.bins.layout.groups % 3 == 0
    for name, kernel in history.kernels.items():
        kernel[:, :, is_older] = 0
        history.weights[name][:, 1:] = 0
    by_facts = history.with_facts(history.facts.expand())
    asked = Facts.of([query])
    np.testing.assert_allclose(history.rates(asked, slot), by_facts.rates(asked, slot), rtol=1e-6)


@pytest.mark.parametrize("slot", "spo")
@given(store=STORES, fact=QUERIES)
def test_the_evidence_of_the_past_is_that_of_loops(slot, store, fact):
    history = oracle.random_run_history(store, SIZES, past=True)
    kernel, wanted = history.kernels["o" if slot == "s" else slot], {}
    for said in oracle.evidence(oracle.before(store, fact[3]), history, fact, slot):
        wanted[said.fact] = wanted.get(said.fact, 0) + float(kernel[said.entry])
    found = history.evidence(Facts.of([fact]), slot)
    added = {
        tuple(row): share * found.rate
        for row, share in zip(found.facts.ids.tolist(), found.shares.tolist(), strict=True)
    }
    assert added == pytest.approx(wanted)
    assert all(row[3] < fact[3] for row in added)


@given(store=STORES)
def test_exposure_of_the_past_counts_runs_up_to_the_time_before(store):
    history = oracle.random_run_history(store, SIZES, past=True)
    wanted = np.zeros_like(_total_widths(history, past=True))
    for row in history.edges.table:
        for t in range(SIZES["time"]):
            wanted[row[CLASS], bin_at(row, history.bins.by_lag, history.bins.run, np.array(t))] += 1
    past = slice(1, 1 + history.bins.layout.side)
    assert _total_widths(history, past=True)[:, past] == pytest.approx(wanted[:, past])


def test_who_holds_an_office_is_likely_to_go_on_and_others_are_not():
    sizes = {"entity": 50, "predicate": 1, "time": 3000}
    runs = tenures()
    past = History.fit(runs, sizes, asked="op", past=True)
    cells = CellRates.fit(past, ahead=1)
    rates = cells.at(1500, cells.pairs())[:, 0]
    holds = {(int(s), int(o)) for s, _, o, _ in runs.at(1499).ids.tolist()}
    is_holder = np.array([(s, o) in holds for s, o in zip(cells.subject, cells.object, strict=True)])
    assert 0.8 < rates[is_holder].min() <= rates[is_holder].max() < 1.2
    assert rates[~is_holder].max() < 0.02
    scores = past.score_against(Facts.of([(0, 0, office, 1500) for office in range(10)]), "s")
    assert {(int(s), office) for office, s in enumerate(scores.argmax(dim=1))} == holds


# -- layouts of bins --------------------------------------------------------------------------------------------------


def test_layouts_grow_with_the_axis_and_are_known_by_their_number_of_bins():
    assert interval_layout(511) == layout(0) == Layout()
    assert interval_layout(512) == layout(1)
    assert interval_layout(50_000).near[-1] == 16_384
    for levels in (0, 1, 7):
        assert layout_of(layout(levels).count) == layout(levels)
    for count in (0, 42, 44, 46, 43 + 6 * 99):
        with pytest.raises(ValueError, match=f"no kernel has {count} bins"):
            layout_of(count)


def test_kernels_of_intervals_know_longer_lags_and_are_read_with_as_many_bins():
    sizes = {"entity": 50, "predicate": 1, "time": 3000}
    history = History.fit(tenures(), sizes)
    assert history.kernels["o"].shape[2] == interval_layout(3000).count > Layout().count
    again = History.from_tensors(history.tensors(), tenures(), sizes)
    asked = Facts.of([(0, 0, 3, 1500)])
    assert torch.equal(again.score_against(asked, "s"), history.score_against(asked, "s"))
    longer = history.with_facts(tenures(), sizes | {"time": 90_000})
    assert longer.bins.layout == history.bins.layout
    assert longer.score_against(asked, "s").argmax() == history.score_against(asked, "s").argmax()
    damaged = history.tensors() | {"history.p.kernel": history.tensors()["history.p.kernel"][:, :, :43]}
    with pytest.raises(ValueError, match="history.p.kernel"):
        History.from_tensors(damaged, tenures(), sizes)
