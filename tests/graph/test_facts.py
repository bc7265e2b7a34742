"""Facts, vocabularies and graphs: selection, sorting, labels, fingerprints, and short text when printed."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import SIZES, random_facts
from recollect import EpisodicGraph, Facts, TimeAxis, UserError, Vocabulary, dataset
from recollect.graph.facts import check_ids, distinct, parse_slots, stable_sort


@settings(max_examples=50)
@given(st.lists(st.integers(0, 2**60) | st.integers(0, 5), max_size=30))
def test_stable_sort_is_torch_sort(numbers):
    numbers = torch.tensor(numbers, dtype=torch.int64)
    values, indices = stable_sort(numbers)
    expected_values, expected_indices = torch.sort(numbers, stable=True)
    assert torch.equal(values, expected_values)
    assert torch.equal(indices, expected_indices)


def test_distinct_keeps_the_first_of_equal_facts():
    facts = random_facts(300)
    facts = replace(facts, weight=torch.arange(300.0))
    found = distinct(facts, SIZES)
    first = {}
    for row, weight in zip(facts.ids.tolist(), facts.weight.tolist(), strict=True):
        first.setdefault(tuple(row), weight)
    assert list(zip(map(tuple, found.ids.tolist()), found.weight.tolist(), strict=True)) == sorted(first.items())


def test_concat_fills_in_missing_values_and_weights():
    plain = Facts.of([(0, 0, 1, 0)])
    full = Facts(plain.ids, torch.tensor([False]), torch.tensor([2.0]))
    both = Facts.concat([plain, full])
    assert both.value.tolist() == [True, False]
    assert both.weight.tolist() == [1.0, 2.0]
    assert len(Facts.concat([])) == 0


def test_a_graph_too_large_for_64_bit_codes_is_refused():
    huge = {"entity": 10**8, "predicate": 10**3, "time": 10**4}
    with pytest.raises(UserError, match="more cells than 64 bits can number"):
        distinct(Facts.of([(0, 0, 1, 0)]), huge)


@pytest.mark.parametrize("ids", [[-1, 0], [0, 3]])
def test_ids_out_of_bounds_are_refused(ids):
    with pytest.raises(IndexError, match="object ids must be from 0 to 2"):
        check_ids("o", torch.tensor(ids), 3)


@pytest.mark.parametrize(("text", "slots"), [("spo", "spo"), ("object", "o"), ("time, s,time", "ts")])
def test_slots_are_parsed_from_letters_and_words(text, slots):
    assert parse_slots(text) == slots


@pytest.mark.parametrize(
    ("label", "hint"),
    [
        ("turky", "did you mean 'Turkey'?"),
        ("Rep", "did you mean 'Dominican Republic'?"),
        ("???", "there are 3, such as 'Dominican Republic', 'Syria', 'Turkey'"),
    ],
)
def test_an_unknown_label_is_answered_with_similar_ones(label, hint):
    countries = Vocabulary.of("entity", ["Turkey", "Syria", "Dominican Republic"])
    with pytest.raises(UserError) as caught:
        countries.index(label)
    assert str(caught.value) == f"unknown entity {label!r}; {hint}"


def test_the_fingerprint_is_that_of_version_0_1():
    graph = EpisodicGraph(
        Vocabulary.of("entity", ["Ann", "Bob"]),
        Vocabulary.of("predicate", ["knows"]),
        TimeAxis("ordinal", 0, 3, 24),
        {"train": Facts(torch.tensor([[0, 0, 1, 2]]), None, torch.tensor([2.5])), "test": Facts.of([(1, 0, 0, 0)])},
    )
    assert graph.fingerprint == "90bf19983c0473d1cf5fe2f8c75686dc01ed1f08e19df1175913e7745bb1284b"


def test_a_graph_prints_its_name_splits_sizes_and_span(small_world):
    assert repr(small_world) == (
        "EpisodicGraph('world', facts: train 887, valid 110, test 110; "
        "23 entities × 7 predicates × 24 times (month, 2000-01 to 2001-12))"
    )


def test_an_unsplit_and_an_empty_graph_print_too(small_world):
    empty = replace(small_world, splits={}, times=TimeAxis("year", 2000, 0), name="empty")
    assert "facts: none; " in repr(empty)
    assert repr(empty).endswith("0 times (year))")


def test_a_vocabulary_prints_a_few_short_labels():
    labels = ["x" * 1000, "a", "b", "c"]
    assert repr(Vocabulary.of("entity", labels)) == "Vocabulary(entity, 4 labels: 'a', 'b', 'c', …)"
    assert repr(Vocabulary("predicate", ("x" * 1000,))) == f"Vocabulary(predicate, 1 labels: '{'x' * 39}…')"


def test_facts_print_their_number_and_columns():
    facts = random_facts(1234)
    assert repr(facts) == "Facts(1,234 facts)"
    weighted = replace(facts, weight=torch.ones(1234))
    assert repr(weighted) == "Facts(1,234 facts with weights)"
    assert repr(replace(weighted, value=weighted.weight > 0)) == "Facts(1,234 facts with values and weights)"


def test_nothing_large_is_printed():
    graph = dataset("world", countries=20, years=2)
    for thing in (graph, graph.facts, graph.entities, graph.times):
        assert len(repr(thing)) < 250
        assert "\n" not in repr(thing)
