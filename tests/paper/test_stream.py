"""The stream study: what is learned, what is withheld, and who is new."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paper.stream_questions import NewEntity, by_group, difference, mean_ranks, reciprocal_ranks
from paper.stream_world import hash_facts, read_stream
from recollect import Facts, UserError, dataset
from recollect.evaluation.baselines import Baseline
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import encode


@pytest.fixture(scope="module")
def world():
    return dataset("world", countries=6, years=2)


@pytest.fixture(scope="module")
def stream(world):
    return read_stream(world, days=6, old=30)


def table_of(stream, facts):
    return set(stream.graph.table(facts).iter_rows())


def test_every_fact_is_learned_withheld_or_old(world, stream):
    parts = [stream.base, stream.old, *(day.learned for day in stream.days), *(day.withheld for day in stream.days)]
    tables = [table_of(stream, part) for part in parts]
    assert set.union(*tables) == set(world.table(world.facts.true()).iter_rows())
    assert sum(map(len, tables)) == len(world.facts.true())


def test_days_come_in_order_and_old_facts_before_them(stream):
    assert [day.time for day in stream.days] == list(range(18, 24))
    for day in stream.days:
        assert set(day.facts.t.tolist()) == {day.time}
    assert int(stream.old.t.max()) < stream.first_time
    assert len(stream.old) == 30


def test_old_facts_ask_for_nothing_unknown(stream):
    sizes = stream.sizes(0)
    assert int(stream.old.ids[:, [0, 2]].max()) < sizes["entity"]
    assert int(stream.old.p.max()) < sizes["predicate"]
    assert torch.equal(stream.base.ids[:, [0, 2]].unique(), torch.arange(sizes["entity"]))


@pytest.mark.parametrize("count", range(7))
def test_labels_of_a_moment_are_the_first_ids(stream, count):
    sizes = stream.sizes(count)
    asked = [stream.base, *(day.facts for day in stream.days[:count])]
    seen = torch.cat([facts.ids[:, [0, 2]].flatten() for facts in asked]).unique()
    assert torch.equal(seen, torch.arange(sizes["entity"]))
    graph = stream.graph_of(count)
    assert graph.sizes == sizes
    assert table_of(stream, stream.learned(count)) == set(graph.table(graph.split("train")).iter_rows())


def test_a_hash_depends_on_labels_alone(world, stream):
    facts = world.facts.true()
    hashes = dict(zip(world.table(facts).iter_rows(), hash_facts(world, facts).tolist(), strict=True))
    for day in stream.days:
        for facts, is_learned in ((day.learned, True), (day.withheld, False)):
            found = hash_facts(stream.graph, facts).tolist()
            assert found == [hashes[row] for row in stream.graph.table(facts).iter_rows()]
            assert all((value % 100 < 80) == is_learned for value in found)


def test_a_graph_of_too_few_times_is_refused(world):
    with pytest.raises(UserError, match="has 24 times; wanted more than 24"):
        read_stream(world, days=20, old=1, skip=4)


def test_the_last_times_can_be_left_out(world):
    earlier = read_stream(world, days=3, old=5, skip=6)
    assert [day.time for day in earlier.days] == [15, 16, 17]
    assert len(earlier.graph.times) == 18


def test_reciprocal_ranks_are_those_of_the_definition(stream):
    facts, sizes = stream.facts, stream.sizes(6)
    known, scorer = FactIndex(facts, sizes), Baseline(stream.base, sizes)
    asked = stream.days[0].withheld
    codes = set(encode(facts, sizes).tolist())
    found = reciprocal_ranks(scorer, asked, "o", known)["o"]
    scores = scorer.score_against(asked, "o")
    for number, row in enumerate(asked.ids.tolist()):
        rank = 1.0
        for other in range(sizes["entity"]):
            fact = Facts.of([[*row[:2], other, row[3]]])
            if other != row[2] and int(encode(fact, sizes)) not in codes:
                gap = (scores[number, other] - scores[number, row[2]]).item()
                rank += 1.0 if gap > 0 else 0.5 if gap == 0 else 0.0
        assert found[number] == pytest.approx(1 / rank, abs=1e-6)


@given(count=st.integers(0, 6))
@settings(max_examples=7, deadline=None)
def test_new_entities_are_counted_by_learned_facts(stream, count):
    first_new = stream.sizes(0)["entity"]
    asked = Facts.concat([day.withheld for day in stream.days])
    found = NewEntity.of(stream, asked, count)
    learned = stream.learned(count).ids.tolist()
    for number, (s, _, o, _) in enumerate(asked.ids.tolist()):
        counts = [sum((row[0] == e) + (row[2] == e) for row in learned) for e in {s, o} if e >= first_new]
        assert found.seen[number] == min(counts, default=None)
        assert (found.subject[number], found.object[number]) == (s >= first_new, o >= first_new)


def test_ranks_of_new_entities_are_grouped():
    new = NewEntity([0, None, 3], [True, False, False], [False, False, True])
    groups = new.group({"s": [0.1, 0.2, 0.3], "o": [0.4, 0.5, 0.6]})
    assert groups["0"] == {"asked": [0.1], "given": [0.4]}
    assert groups["2–4"] == {"asked": [0.6], "given": [0.3]}
    pieces = {"ours": [{"new": groups}, {"new": groups}]}
    assert by_group(pieces, "new")["0, asked"] == {"questions": 2, "ours": 0.1}
    assert by_group(pieces, "new")["1, given"] == {"questions": 0, "ours": None}


def test_means_and_differences():
    one, other = ({"withheld": {"s": [value, 0.5], "o": [1.0]}} for value in (1.0, 0.5))
    assert mean_ranks([one["withheld"]]) == {"who": pytest.approx(2.5 / 3)}
    found = difference([one], [other])
    assert found["questions"] == 3
    assert found["mean"] == pytest.approx(0.5 / 3)
