"""Runs stored as first and last time: everything that reads them gives what the expanded facts give."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from unittest.mock import patch

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from recollect import EpisodicGraph, Facts, TimeAxis, UserError, Vocabulary
from recollect.graph import episodes
from recollect.graph.describe import describe
from recollect.graph.fact_index import FactIndex
from recollect.graph.run_index import RunIndex
from recollect.graph.runs import Runs, RunSplits, has_runs, is_canonical, merge_runs, overlaps, sampled, stored
from recollect.graph.seeds import seeded

SIZES = {"entity": 3, "predicate": 2, "time": 12}
ROWS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 2), st.integers(0, 11), st.integers(0, 5)),
    max_size=20,
)


def runs_of(rows, value=None, weight=None, ongoing=False):
    """Runs of rows (s, p, o, first, times after the first), cut at the end of the axis, or there ongoing."""
    last = torch.tensor([min(11, first + more) for *_, first, more in rows], dtype=torch.int64)
    goes_on = torch.tensor([first + more > 11 for *_, first, more in rows], dtype=torch.bool) if ongoing else None
    return Runs(Facts(Facts.of([row[:4] for row in rows]).ids, value, weight), last, goes_on)


def cells(facts):
    return {tuple(row) for row in facts.ids.tolist()}


def graph_of(rows, points=False):
    entities, predicates = Vocabulary("entity", ("a", "b", "c")), Vocabulary("predicate", ("knows", "sees"))
    merged = merge_runs(runs_of(rows), SIZES)
    splits = {"train": merged.expand()} if points else RunSplits({"train": merged}, "day")
    return EpisodicGraph(entities, predicates, TimeAxis("day", 0, 12), splits)


@given(rows=ROWS)
def test_merged_runs_are_the_maximal_runs_of_their_facts(rows):
    runs = runs_of(rows)
    merged, wanted = merge_runs(runs, SIZES), episodes.runs(graph_of(rows, points=True))
    assert torch.equal(merged.first.ids, wanted.first.ids)
    assert torch.equal(merged.last, wanted.last)
    assert cells(merged.expand()) == cells(runs.expand())
    assert merged.count == len(cells(runs.expand()))
    assert is_canonical(merged, SIZES)


@given(rows=ROWS, data=st.data())
def test_the_weights_of_overlapping_runs_are_added_time_by_time(rows, data):
    numbers = data.draw(st.lists(st.integers(0, 3), min_size=len(rows), max_size=len(rows)))
    runs = runs_of(rows, weight=torch.tensor(numbers, dtype=torch.float32))
    wanted = Counter()
    for (s, p, o, first, _), last, number in zip(rows, runs.last.tolist(), numbers, strict=True):
        wanted.update({(s, p, o, t): number for t in range(first, last + 1)})
    merged = merge_runs(runs, SIZES)
    facts = merged.expand()
    assert dict(zip(map(tuple, facts.ids.tolist()), facts.weight.tolist(), strict=True)) == dict(wanted)
    assert is_canonical(merged, SIZES)


@given(rows=ROWS, data=st.data())
def test_runs_of_different_values_stay_apart(rows, data):
    truth = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    runs = runs_of(rows, value=torch.tensor(truth, dtype=torch.bool))
    merged = merge_runs(runs, SIZES)
    for value in (True, False):
        ours, theirs = merged[merged.first.truth == value].expand(), runs[runs.first.truth == value].expand()
        assert cells(ours) == cells(theirs)


@given(rows=ROWS, others=ROWS)
def test_runs_overlap_if_they_share_a_fact(rows, others):
    known = cells(runs_of(others).expand())
    wanted = [bool(cells(runs_of([row]).expand()) & known) for row in rows]
    assert overlaps(runs_of(rows), runs_of(others), SIZES).tolist() == wanted


@pytest.mark.parametrize("slot", "spot")
@given(rows=ROWS, queries=st.lists(st.tuples(*(st.integers(0, n) for n in (2, 1, 2, 11))), max_size=6))
def test_an_index_of_runs_answers_as_one_of_their_facts(slot, rows, queries):
    runs, asked = runs_of(rows), Facts.of(queries)
    ours, theirs = RunIndex(runs, SIZES), FactIndex(runs.expand(), SIZES)
    assert [column.tolist() for column in ours.find(asked, slot)] == [
        column.tolist() for column in theirs.find(asked, slot)
    ]
    assert torch.equal(ours.mask(asked, slot), theirs.mask(asked, slot))
    assert torch.equal(ours.contains(asked), theirs.contains(asked))
    around = ours.around(asked, "spot")
    assert torch.equal(around.mask(asked, slot), theirs.mask(asked, slot))


def test_an_index_of_runs_has_only_true_ones():
    runs = runs_of([(0, 0, 1, 2, 3), (0, 0, 2, 2, 3)], value=torch.tensor([True, False]))
    assert RunIndex(runs, SIZES).find(Facts.of([(0, 0, 0, 4)]), "o")[1].tolist() == [1]


@given(rows=ROWS.filter(bool))
def test_operations_on_a_graph_of_runs_give_what_those_on_its_facts_give(rows):
    graph, points = graph_of(rows), graph_of(rows, points=True)
    for operation in (episodes.starts, episodes.ends, episodes.current, episodes.rare):
        assert torch.equal(operation(graph).ids, operation(points).ids)
    assert describe(graph) == describe(points)
    smaller, smaller_points = (episodes.most_frequent(each, 2) for each in (graph, points))
    assert smaller.entities.labels == smaller_points.entities.labels
    assert cells(smaller.facts) == cells(smaller_points.facts)


@given(rows=ROWS.filter(bool))
def test_a_split_by_time_cuts_runs_where_a_split_ends(rows):
    def cut(points):
        try:
            splits = episodes.split_by_time(graph_of(rows, points), valid=0.2, test=0.2).splits
        except UserError as error:
            return str(error)
        return {name: cells(facts) for name, facts in splits.items()}

    assert cut(points=False) == cut(points=True)


@given(rows=ROWS.filter(bool), counts=st.booleans())
def test_a_coarser_graph_of_runs_has_the_facts_of_a_coarser_graph_of_facts(rows, counts):
    options = {"grain": "week", "since": "1970-01-02", "until": "1970-01-10", "counts": counts}
    results = []
    for points in (False, True):
        try:
            found = episodes.aggregate(graph_of(rows, points), **options)
        except UserError as error:
            results.append(str(error))
        else:
            assert has_runs(found) == (not points and not counts)
            weights = found.facts.weight.tolist() if counts else [1] * len(found.facts)
            facts = sorted(zip(found.table(found.facts).rows(), weights, strict=True))
            results.append((facts, found.times, dict(found.dropped)))
    assert results[0] == results[1]


def test_a_random_split_withholds_whole_runs():
    rows = [(s, p, o, t, 1) for s in range(3) for p in range(2) for o in range(3) for t in (0, 3, 6, 9)]
    split = episodes.split_randomly(graph_of(rows), valid=0.2, test=0.2)
    parts = [stored(split, name) for name in ("train", "valid", "test")]
    assert [len(part) for part in parts] == [44, 14, 14]
    assert sum(part.count for part in parts) == graph_of(rows).counts["train"]
    assert all(set(part.lengths.tolist()) == {2} for part in parts)


def test_a_split_is_expanded_when_it_is_read_and_refused_if_memory_is_not_enough():
    graph = graph_of([(0, 0, 1, 2, 3), (1, 0, 2, 0, 5)])
    assert "train" in graph.splits
    assert graph.counts == {"train": 10}
    assert repr(graph).startswith("EpisodicGraph('graph', facts: train 2 runs of 10; 3 entities")
    with patch("psutil.virtual_memory") as memory:
        memory.return_value.available = 1000
        with pytest.raises(UserError, match=r"the train split at day grain is 10 facts, .* use model='history'"):
            graph.split("train")
        assert len(stored(graph, "train")) == 2
    assert len(graph.split("train")) == len(graph.facts) == 10
    with pytest.raises(UserError, match="no 'test' split"):
        stored(graph, "test")


def test_fingerprints_tell_graphs_of_runs_apart():
    one, same, other = ([(0, 0, 1, 2, more)] for more in (3, 3, 4))
    assert graph_of(one).fingerprint == graph_of(same).fingerprint
    assert len({graph.fingerprint for graph in (graph_of(one), graph_of(other), graph_of(one, points=True))}) == 3


def test_a_sample_has_one_fact_of_each_run():
    graph = graph_of([(0, 0, 1, 2, 3), (1, 0, 2, 0, 5), (2, 1, 2, 7, 0)])
    facts = sampled(graph, "train", seeded(0))
    assert torch.equal(facts.ids[:, :3], stored(graph, "train").first.ids[:, :3])
    assert cells(facts) <= cells(graph.facts)


def held_later(runs):
    """The triples of runs without an end, by loops."""
    return {
        tuple(ids[:3]) for ids, goes_on in zip(runs.first.ids.tolist(), runs.goes_on.tolist(), strict=True) if goes_on
    }


@given(rows=ROWS, weighted=st.booleans())
def test_merged_runs_have_no_end_if_one_of_them_has_none(rows, weighted):
    weight = torch.arange(len(rows), dtype=torch.float32) if weighted else None
    runs = runs_of(rows, weight=weight, ongoing=True)
    merged = merge_runs(runs, SIZES)
    assert held_later(merged) == held_later(runs)
    assert cells(merged.expand()) == cells(runs.expand())
    assert is_canonical(merged, SIZES)
    assert held_later(runs.plain()) == held_later(runs)


@given(rows=ROWS)
def test_a_run_without_an_end_covers_every_later_time(rows):
    runs = runs_of(rows, ongoing=True)
    index = RunIndex(runs, SIZES)
    for time in (11, 12, 500):
        wanted = held_later(runs) if time > 11 else {row[:3] for row in cells(runs.expand()) if row[3] == 11}
        assert {tuple(row[:3]) for row in runs.at(time).ids.tolist()} == wanted
        asked = Facts.of([(s, p, o, time) for s in range(3) for p in range(2) for o in range(3)])
        found = asked[index.contains(asked)]
        assert {tuple(row[:3]) for row in found.ids.tolist()} == wanted
        row, objects = index.find(asked, "o")
        assert {(*asked.ids[i, :2].tolist(), o) for i, o in zip(row, objects.tolist(), strict=True)} == wanted
        assert index.count_at(time) == len(wanted)


@given(rows=ROWS.filter(bool))
def test_operations_on_graphs_keep_runs_without_an_end(rows):
    def graph_with(runs):
        return graph_of(rows).with_splits(RunSplits({"train": runs}, "day"))

    runs = merge_runs(runs_of(rows, ongoing=True), SIZES)
    graph = graph_with(runs)
    plain = replace(runs, ongoing=None)
    assert (graph.fingerprint != graph_with(plain).fingerprint) == runs.has_ongoing
    assert graph_with(plain).fingerprint == graph_with(replace(plain, ongoing=plain.goes_on)).fingerprint
    labels = episodes.aggregate(graph, grain="week")
    coarse = stored(labels, "train")
    assert {
        (labels.entities.labels[s], labels.predicates.labels[p], labels.entities.labels[o])
        for s, p, o in held_later(coarse)
    } == {(*"abc"[s], ("knows", "sees")[p], *"abc"[o]) for s, p, o in held_later(runs)}
    cut = stored(episodes.aggregate(graph, until=graph.times.label(int(runs.first.t.min()))), "train")
    assert not cut.has_ongoing or len(graph.times) == 1 or int(runs.first.t.min()) == 11
    for split in (episodes.split_randomly, episodes.split_by_time):
        try:
            parts = split(graph)
        except UserError:
            continue
        assert held_later(Runs.concat(stored(parts, name) for name in parts.splits)) == held_later(runs)
        assert held_later(stored(episodes.unsplit(parts), "train")) == held_later(runs)
    assert held_later(episodes.runs(graph)) == held_later(runs)
    assert held_later(runs.between(0, 10)) == set()
    assert held_later(runs.between(5, 11)) == held_later(runs)
