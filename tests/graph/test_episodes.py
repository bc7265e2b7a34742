"""Runs, starts, ends, χ, rare facts and splits equal what sets and loops give."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conftest import SIZES
from recollect import (
    EpisodicGraph,
    Facts,
    TimeAxis,
    UserError,
    Vocabulary,
    current,
    ends,
    rare,
    runs,
    split_by_time,
    split_randomly,
    starts,
)
from recollect.graph.episodes import most_frequent
from recollect.graph.facts import KINDS

ROWS = st.sets(st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 2), st.integers(0, 5)), max_size=40)


def graph_of(rows, times=6):
    entities = Vocabulary("entity", ("a", "b", "c"))
    predicates = Vocabulary("predicate", ("knows", "sees"))
    facts = Facts.of(sorted(rows))
    return EpisodicGraph(entities, predicates, TimeAxis("ordinal", 0, times), {"train": facts})


def rows_of(facts):
    return {tuple(row) for row in facts.ids.tolist()}


def runs_by_loop(rows):
    """(s, p, o, first, last) of every maximal block of consecutive times."""
    found = set()
    for s, p, o, t in rows:
        if (s, p, o, t - 1) not in rows:
            last = t
            while (s, p, o, last + 1) in rows:
                last += 1
            found.add((s, p, o, t, last))
    return found


@given(rows=ROWS)
def test_runs_starts_and_ends_are_those_found_by_a_loop(rows):
    graph, expected = graph_of(rows), runs_by_loop(rows)
    found = runs(graph)
    pairs = zip(found.first.ids.tolist(), found.last.tolist(), strict=True)
    assert [(*first, last) for first, last in pairs] == sorted(expected)
    assert rows_of(starts(graph)) == {(s, p, o, first) for s, p, o, first, _ in expected}
    assert rows_of(ends(graph)) == {(s, p, o, last) for s, p, o, _, last in expected if last < 5}


@given(rows=ROWS)
def test_current_is_true_where_a_run_reaches_the_last_time(rows):
    chi = current(graph_of(rows))
    state = {tuple(row[:3]): value for row, value in zip(chi.ids.tolist(), chi.truth.tolist(), strict=True)}
    assert state == {row[:3]: (*row[:3], 5) in rows for row in rows}
    assert len(chi) == len(state)
    assert set(chi.t.tolist()) <= {5}


@given(rows=ROWS)
def test_rare_are_triples_seen_once_or_twice_and_all_starts(rows):
    counts = Counter(row[:3] for row in rows)
    expected = {row for row in rows if counts[row[:3]] < 3} | {row[:4] for row in runs_by_loop(rows)}
    found = rare(graph_of(rows))
    assert rows_of(found) == expected
    assert len(found) == len(expected)


def test_starts_minus_ends_counts_what_is_current(small_world):
    # every run has a start; it has an end unless it reaches T
    chi = current(small_world)
    assert len(starts(small_world)) - len(ends(small_world)) == int(chi.truth.sum())
    assert 0 < int(chi.truth.sum()) < len(chi)


def test_a_random_split_depends_on_its_seed_alone(small_world):
    again = split_randomly(small_world, seed=3)
    for name, facts in split_randomly(small_world, seed=3).splits.items():
        assert torch.equal(facts.ids, again.splits[name].ids)
    assert not torch.equal(split_randomly(small_world, seed=4).splits["test"].ids, again.splits["test"].ids)


def test_a_random_split_has_every_fact_once_and_every_label_in_train(small_world):
    split = split_randomly(small_world, seed=3)
    parts = {name: rows_of(facts) for name, facts in split.splits.items()}
    assert sum(map(len, parts.values())) == len(small_world.facts) == len(set().union(*parts.values()))
    assert len(parts["valid"]) == len(parts["test"]) == len(small_world.facts) // 10
    for slot in "spot":
        assert set(split.facts.column(slot).tolist()) == set(split.splits["train"].column(slot).tolist())


def test_the_most_frequent_entities_keep_the_facts_among_them(small_world):
    kept = most_frequent(small_world, 6)
    counts = Counter(small_world.facts.s.tolist() + small_world.facts.o.tolist())
    by_frequency = sorted(counts, key=lambda entity: (-counts[entity], entity))
    top = {small_world.entities.labels[entity] for entity in by_frequency[:6]}
    assert set(kept.entities.labels) == top
    before = {r for r in small_world.table(small_world.facts).rows() if r[0] in top and r[2] in top}
    assert set(kept.table(kept.facts).rows()) == before
    assert split_randomly(small_world, entities=6).sizes["entity"] == 6


def test_a_split_by_time_puts_later_times_into_later_splits(small_world):
    split = split_by_time(small_world)
    last_train, first_valid = split.splits["train"].t.max(), split.splits["valid"].t.min()
    assert last_train < first_valid <= split.splits["valid"].t.max() < split.splits["test"].t.min()
    assert sum(map(len, split.splits.values())) == len(small_world.facts)
    assert 0.05 < len(split.splits["test"]) / len(small_world.facts) < 0.2


@pytest.mark.parametrize(("valid", "test"), [(0.5, 0.5), (-0.1, 0.1), (1.5, 0)])
def test_shares_must_leave_facts_for_training(small_world, valid, test):
    for split in (split_randomly, split_by_time):
        with pytest.raises(UserError, match="wanted shares that sum below 1"):
            split(small_world, valid=valid, test=test)


def test_every_kind_of_slot_has_a_size():
    assert set(KINDS.values()) == set(SIZES)
