"""What was learned without labels that came later: answers are those from before they came."""

from __future__ import annotations

import pytest
import torch
from polars.testing import assert_frame_equal

from recollect import Memory, load
from recollect.memory.journal.changes import Delta
from recollect.memory.learning.growth import grow
from recollect.memory.learning.restriction import restrict
from recollect.memory.snapshot import Snapshot
from recollect.models.restricting import restrict_model
from tests.conftest import random_model
from tests.memory.growth_examples import FIRST, TIMES, answers, small_graph, small_memory

REACH = (FIRST, FIRST + TIMES - 1)
LATER = Delta.of(
    added=[
        ("e0", "fresh", "new", FIRST + 2, FIRST + 3),
        ("e1", "r0", "e2", FIRST - 3, FIRST - 3),
        ("e2", "fresher", "e3", FIRST + TIMES + 4, FIRST + TIMES + 4),
    ],
    entities=("new",), predicates=("fresh", "fresher"), reach=(FIRST - 3, FIRST + TIMES + 4),
)  # fmt: skip


@pytest.mark.parametrize("as_runs", [False, True])
def test_a_change_that_is_undone_leaves_the_answers_and_candidates_of_before(as_runs):
    before = small_memory(small_graph(as_runs=as_runs))
    undone = grow(grow(before, LATER), LATER.inverse())
    assert undone.graph.predicates.labels == ("r0", "r1", "fresh", "fresher")
    again = restrict(undone, 2, REACH)
    assert (again.graph.predicates.labels, again.graph.times) == (("r0", "r1"), before.graph.times)
    assert again.graph.fingerprint == before.graph.fingerprint
    for expected, found in zip(answers(Snapshot(before)), answers(Snapshot(again)), strict=True):
        assert_frame_equal(expected, found, check_exact=True)


def test_an_interval_without_an_end_is_cut_where_the_axis_ends():
    before = grow(small_memory(small_graph(as_runs=True)), Delta.of(added=[("e0", "r0", "e1", FIRST + 2, None)]))
    later = Delta.of(added=[("e2", "r1", "e3", FIRST + 30, FIRST + 30)], reach=(FIRST + 30, FIRST + 30))
    again = restrict(grow(grow(before, later), later.inverse()), 2, REACH)
    assert again.graph.fingerprint == before.graph.fingerprint
    assert Snapshot(again).when("e0", "r0", "e1")[0, "end"] is None


@pytest.mark.parametrize("options", [{}, {"reciprocal": True}, {"time_levels": (1, 3), "reciprocal": True}])
@pytest.mark.parametrize("name", ["complex", "cont", "tree"])
def test_scores_of_a_model_stay_among_the_candidates_that_are_left(name, options):
    graph = small_graph()
    model = random_model(name, "both", sizes=graph.sizes, dtype="float32", **options)
    grown = grow(small_memory(graph, [model]), LATER)
    (larger,) = grown.scorer.models
    restricted = restrict_model(larger, 2, 3, 3 + TIMES - 1)
    assert restricted.sizes == graph.sizes | {"entity": 6}
    facts = graph.split("train")
    at_later_ids = facts.with_slot("t", facts.t + 3)
    kept = {"s": slice(None), "p": slice(2), "o": slice(None), "t": slice(3, 3 + TIMES)}
    for slot in "spot":
        expected = larger.score_against(at_later_ids, slot)[:, kept[slot]]
        torch.testing.assert_close(restricted.score_against(facts, slot), expected)


@pytest.mark.parametrize("model", ["history", "complex"])
def test_predicates_and_times_that_came_later_are_no_candidates_at_an_earlier_moment(tmp_path, model):
    graph = small_graph()
    models = [] if model == "history" else [random_model(model, "episodic", sizes=graph.sizes, dtype="float32")]
    Memory.of(small_memory(graph, models)).save(tmp_path / "m")
    memory, other = load(tmp_path / "m"), load(tmp_path / "m")
    labels, axis = memory.graph.predicates.labels, memory.graph.times
    moment = memory.remember([("e0", "r1", "first", axis.label(2))])["known_at"][0]
    asked = {"subject": "e0", "object": "e3", "time": axis.label(2), "top": 99}
    expected = memory.recall(**asked)
    memory.remember([("e0", "later", "e3", "1970-04-30")])
    assert "later" in memory.recall(**asked)["predicate"].to_list()
    memory.save(tmp_path / "m", overwrite=True)
    for each in (memory, other, load(tmp_path / "m")):
        found = each.recall(**asked, known_at=moment)
        assert sorted(found["predicate"].to_list()) == ["r0", "r1"]
        if model == "history":  # what models learned from later facts is taken out of them approximately
            assert_frame_equal(found, expected)
        assert each.snapshot(moment).graph.predicates.labels == labels
        assert each.snapshot(moment).graph.times == axis
        assert each.probabilities("e0", "r1", "e3", known_at=moment)["time"].to_list() == axis.labels
