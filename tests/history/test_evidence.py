"""Evidence: every stored fact's share of λ, and what happens to λ without that fact."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from recollect import Facts
from recollect.history.history import History
from tests.history import oracle
from tests.history.test_rates import IDS, PAST, SIZES, SLOTS, STORES

EXAMPLE = {(0, 0, 1, 2), (0, 0, 1, 3), (1, 1, 0, 3), (2, 1, 0, 4)}


def rows(facts):
    return [tuple(row) for row in facts.ids.tolist()]


@SLOTS
@PAST
@given(store=STORES, fact=IDS)
def test_shares_add_up_to_1_and_λ_is_the_rate_of_the_answer(past, slot, store, fact):
    history, query = oracle.random_history(store, SIZES, past=past), Facts.of([fact])
    found = history.evidence(query, slot)
    assert float(found.shares.sum()) + found.popularity == pytest.approx(1)
    assert found.rate == pytest.approx(history.rates(query, slot)[0, query.column(slot)].item(), rel=1e-6)


@SLOTS
@PAST
@given(store=STORES, fact=IDS)
def test_shares_are_those_of_loops_over_the_stored_facts_largest_first(past, slot, store, fact):
    history = oracle.random_history(store, SIZES, past=past)
    kernel, wanted = history.kernels["o" if slot == "s" else slot], {}
    for said in oracle.evidence(store, history, fact, slot):
        wanted[said.fact] = wanted.get(said.fact, 0) + float(kernel[said.entry])
    found = history.evidence(Facts.of([fact]), slot)
    added = found.shares.numpy() * found.rate
    assert dict(zip(rows(found.facts), added, strict=True)) == pytest.approx({x: y for x, y in wanted.items() if y})
    assert (np.diff(added) <= 0).all()


def is_independent(store, named, t):
    """Whether no bin of another fact of the triple depends on the named fact: the rule of the docstring."""
    others = {x[3] for x in store if x[:3] == named[:3] and x[3] != t}
    at = named[3]
    if at == t:
        return True
    step = 1 if at < t else -1
    side = [time for time in others if (time < t) == (at < t)]
    nearer = [time for time in side if abs(t - time) < abs(t - at)]
    reaches = all(time in others for time in range(at, t, step))
    return len(side) == 1 or (bool(nearer) and not reaches)


@SLOTS
@given(store=STORES, fact=IDS, number=st.integers(0, 99))
def test_the_evidence_is_less_by_its_share_without_a_stored_fact(slot, store, fact, number):
    history, query = oracle.random_history(store, SIZES), Facts.of([fact])
    before = history.evidence(query, slot)
    independent = [n for n, named in enumerate(rows(before.facts)) if is_independent(store, named, fact[3])]
    assume(independent)
    chosen = independent[number % len(independent)]
    assert fall_without(history, query, slot, chosen) == pytest.approx(before.rate * float(before.shares[chosen]))


def fall_without(history, query, slot, chosen):
    """By how much the part of λ that stored facts give is less without one of them."""
    before = history.evidence(query, slot)
    rest = set(rows(history.facts)) - {rows(before.facts)[chosen]}
    after = history.with_facts(Facts.of(sorted(rest))).evidence(query, slot)
    return before.rate * (1 - before.popularity) - after.rate * (1 - after.popularity)


@pytest.mark.parametrize("times", [(3, 1), (3, 2)], ids=["the closest goes", "a run gets shorter"])
def test_the_evidence_falls_by_another_amount_where_other_bins_depend_on_the_fact(times):
    store, query = {(0, 0, 1, t) for t in times}, Facts.of([(0, 0, 1, 4)])
    named = (0, 0, 1, 3 if 1 in times else 2)
    history = oracle.random_history(store, SIZES)
    found = history.evidence(query, "o")
    chosen = rows(found.facts).index(named)
    assert not is_independent(store, named, 4)
    assert fall_without(history, query, "o", chosen) != pytest.approx(found.rate * float(found.shares[chosen]))


@SLOTS
def test_where_popularity_is_uniform_λ_falls_by_exactly_the_share(slot):
    history = oracle.random_history(EXAMPLE, SIZES)
    for weights in history.weights.values():
        weights[:, 1:] = 0
    query, named = Facts.of([(0, 1, 1, 3)]), (1, 1, 0, 3)
    before = history.evidence(query, slot)
    after = history.with_facts(Facts.of(sorted(EXAMPLE - {named}))).evidence(query, slot)
    share = float(before.shares[rows(before.facts).index(named)])
    assert after.rate == pytest.approx((1 - share) * before.rate)


def test_evidence_names_facts_as_they_are_stored():
    found = oracle.random_history(EXAMPLE, SIZES).evidence(Facts.of([(0, 1, 1, 3)]), "s")
    assert set(rows(found.facts)) == EXAMPLE - {(2, 1, 0, 4)}


def test_a_stored_fact_is_no_evidence_for_itself():
    found = oracle.random_history(EXAMPLE, SIZES).evidence(Facts.of([(0, 0, 1, 2)]), "t")
    assert (0, 0, 1, 2) not in rows(found.facts)


def test_without_any_evidence_popularity_is_all():
    history = oracle.random_history(EXAMPLE, SIZES)
    assert history.evidence(Facts.of([(2, 0, 2, 0)]), "o").popularity == 1
    history.weights["o"][:] = 0
    assert history.evidence(Facts.of([(2, 0, 2, 0)]), "o").popularity == 1


def test_the_host_is_the_evidence_for_a_visit():
    visits = [(a, 0, (a + t) % 6, t) for a in range(6) for t in range(1, 30, 4)]
    hosts = [(b, 1, a, t) for a, _, b, t in visits]
    sizes = {"entity": 6, "predicate": 2, "time": 30}
    history = History.fit(Facts.of([*visits, *hosts]), sizes, asked="o")
    stored = Facts.of([(3, 1, 5, 20), (5, 0, 3, 16)])
    found = history.with_facts(stored).evidence(Facts.of([(5, 0, 3, 20)]), "o")
    assert rows(found.facts)[0] == (3, 1, 5, 20)
    assert found.shares[0] > 0.5
