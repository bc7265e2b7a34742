"""The synthetic world: seeded, adjustable, fast, and with states that start and end."""

from __future__ import annotations

from collections import defaultdict

import pytest
import torch

from recollect import UserError, current, dataset, ends, starts


def test_the_same_seed_gives_the_same_world():
    assert dataset("world", countries=5, years=2).fingerprint == dataset("world", countries=5, years=2).fingerprint
    assert (
        dataset("world", countries=5, years=2, seed=1).fingerprint != dataset("world", countries=5, years=2).fingerprint
    )


def test_the_default_world_has_tens_of_thousands_of_facts():
    graph = dataset("world")
    assert 20_000 < len(graph.facts) < 60_000
    assert graph.sizes["time"] == 120
    assert set(graph.splits) == {"train", "valid", "test"}


def test_every_office_is_held_by_exactly_one_person_at_a_time():
    graph = dataset("world", countries=5, years=6)
    held = defaultdict(set)
    for person, office, country, month in graph.table(graph.facts).rows():
        if office.endswith(" of"):
            held[office, country, month].add(person)
    assert len(held) == 3 * 5 * 72
    assert {len(people) for people in held.values()} == {1}
    presidents = {country: set() for _, country, _ in held}
    for (office, country, _), people in held.items():
        if office == "President of":
            presidents[country] |= people
    assert any(len(people) > 1 for people in presidents.values())  # they change hands


def test_states_start_end_and_some_are_current():
    graph = dataset("world", countries=8, years=5)
    names = graph.predicates.labels
    began, ended = starts(graph), ends(graph)
    assert 0 < len(ended) < len(began)
    assert int(current(graph).truth.sum()) == len(began) - len(ended)
    for predicate in ("Allied with", "At war with", "Treaty with", "Visits", "President of"):
        assert bool((graph.facts.p == names.index(predicate)).any())


def test_alliances_hold_both_ways():
    graph = dataset("world", countries=8, years=3)
    allied = graph.facts[graph.facts.p == graph.predicates.index("Allied with")]
    rows = {tuple(row) for row in allied.ids.tolist()}
    assert rows == {(o, p, s, t) for s, p, o, t in rows}


def test_worlds_too_small_and_unknown_datasets_are_refused():
    with pytest.raises(UserError, match="no world of 3 countries and 2 years; wanted 4 to 2,000"):
        dataset("world", countries=3, years=2)
    with pytest.raises(UserError, match="world has no option 'planets'; its options: countries, years, seed"):
        dataset("world", planets=3)
    with pytest.raises(UserError, match="unknown dataset 'wordl'; choose one of .*world"):
        dataset("wordl")
    with pytest.raises(UserError, match="a seed is a whole number"):
        dataset("world", seed=-1)
    assert torch.is_tensor(dataset("world", countries=4, years=1).facts.ids)
