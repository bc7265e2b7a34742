"""A grown memory answers as one that was built from the grown graph with the same parameters; nothing else moves."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from recollect import Memory
from recollect.graph.runs import Runs, stored
from recollect.memory.journal.changes import Delta
from recollect.memory.journal.effects import matching
from recollect.memory.learning.growth import grow
from recollect.memory.snapshot import Snapshot
from recollect.models.zoo import MODELS
from tests.conftest import model_config, random_model
from tests.memory.growth_examples import (
    ENTITIES,
    FIRST,
    OLD_CELLS,
    SOME_CELLS,
    TIMES,
    answers,
    cells_of,
    effective,
    from_scratch,
    small_graph,
    small_memory,
    together,
)

STEPS = st.lists(
    st.tuples(SOME_CELLS, SOME_CELLS, st.sets(st.sampled_from([*ENTITIES[3:], "new"]), max_size=1)), max_size=4
)
LEARNED = {as_runs: small_memory(small_graph(as_runs=as_runs)) for as_runs in (False, True)}


@pytest.fixture(autouse=True, scope="module")
def _only_small_changes():
    """Correct edges even where a change concerns so much of a small store that sorting all again would be faster."""
    with patch("recollect.history.history.EDGES_PER_TRIPLE", 0):
        yield


def assert_same_answers(one: Snapshot, other: Snapshot, labels=ENTITIES) -> None:
    for expected, found in zip(answers(one, labels), answers(other, labels), strict=True):
        assert_frame_equal(expected, found, check_exact=True)


def assert_same_store(one: Snapshot, other: Snapshot) -> None:
    """Compare every number that answers are computed from."""
    for mine, theirs in ((one.scorer.history, other.scorer.history),):
        assert np.array_equal(mine.edges.table, theirs.edges.table)
        assert np.array_equal(mine.edges.start, theirs.edges.start)
        assert np.array_equal(mine.edges.pairs, theirs.edges.pairs)
    for slot in "spot":
        facts = one.graph.splits["valid"]
        assert torch.equal(one._stored.mask(facts, slot), other._stored.mask(facts, slot))
    assert one.graph.fingerprint == other.graph.fingerprint


@pytest.mark.parametrize("as_runs", [False, True])
@settings(max_examples=40)
@given(steps=STEPS)
def test_a_sequence_of_changes_gives_what_a_set_of_facts_says(as_runs, steps):
    snapshot = Snapshot(LEARNED[as_runs])
    snapshot.recall(subject="e0", predicate="r0", time=snapshot.graph.times.label(0))  # so that an index is built
    state, valid = cells_of(snapshot.graph), cells_of(snapshot.graph, "valid")
    for removed, added, erased in steps:
        state, valid = ({cell for cell in each if not erased & {cell[0], cell[2]}} for each in (state, valid))
        delta = effective(state, removed - added, added, snapshot.graph)
        delta = Delta(delta.frame, tuple(erased), delta.entities, delta.predicates, delta.reach)
        state = (state - removed) | added
        snapshot = snapshot.grown(delta)
        assert cells_of(snapshot.graph) == state
        assert cells_of(snapshot.graph, "valid") == valid
        assert not erased & {*snapshot.graph.entities.labels} - {cell[i] for cell in state for i in (0, 2)}
        assert_same_store(snapshot, from_scratch(snapshot.learned))


@pytest.mark.parametrize("as_runs", [False, True])
def test_a_grown_memory_answers_like_one_that_was_built_from_the_grown_graph(as_runs):
    snapshot = Snapshot(LEARNED[as_runs])
    changes = [
        Delta.of(added=[("e0", "r0", "new", FIRST + 3, FIRST + 3)]),
        Delta.of(added=[("new", "r1", "e1", FIRST + TIMES + 1, FIRST + TIMES + 1)]),
        Delta.of(added=[("e0", "fresh", "e1", FIRST + 2, FIRST + 4)]),
        Delta.of(added=[("e1", "fresher", "new", FIRST - 3, FIRST - 2)]),
        Delta.of(removed=[("e0", "fresh", "e1", FIRST + 3, FIRST + 3)], erased=("e4",)),
    ]
    for delta in changes:
        assert_same_answers(snapshot, from_scratch(snapshot.learned))
        snapshot = snapshot.grown(delta)
        assert_same_answers(snapshot, from_scratch(snapshot.learned), labels=("e1", "new" if delta.erased else "e0"))
    assert snapshot.scorer.history.fitted == 2
    assert snapshot.graph.predicates.labels == ("r0", "r1", "fresh", "fresher")


@settings(max_examples=30)
@given(steps=st.lists(st.tuples(SOME_CELLS, SOME_CELLS), min_size=2, max_size=4))
def test_the_result_does_not_depend_on_the_steps(steps):
    learned, deltas = LEARNED[False], []
    state = cells_of(learned.graph)
    for removed, added in steps:
        deltas.append(effective(state, removed - added, added, learned.graph))
        state = (state - removed) | added
        learned = grow(learned, deltas[-1])
    at_once = grow(LEARNED[False], together(deltas))
    assert at_once.graph.fingerprint == learned.graph.fingerprint
    one, other = learned.scorer.history, at_once.scorer.history
    assert np.array_equal(one.edges.table, other.edges.table)
    assert all(np.array_equal(one.kernels[slot], other.kernels[slot]) for slot in "opt")


@settings(max_examples=15)
@given(removed=OLD_CELLS, added=OLD_CELLS)
def test_undoing_a_change_gives_the_answers_of_before(removed, added):
    before = Snapshot(LEARNED[False])
    delta = effective(cells_of(before.graph), removed - added, added, before.graph)
    after = before.grown(delta).grown(delta.inverse())
    assert_same_answers(before, after)
    assert cells_of(before.graph) == cells_of(after.graph)


def test_a_stored_fact_is_the_first_answer_and_a_forgotten_one_is_not_stored():
    snapshot = Snapshot(LEARNED[False])
    day = snapshot.graph.times.label(5)
    row = ("e0", "r1", "new", FIRST + 5, FIRST + 5)
    grown = snapshot.grown(Delta.of(added=[row]))
    first = grown.recall(subject="e0", predicate="r1", time=day)
    assert ("new", "stored", 1.0) in first.select("object", "status", "probability").rows()
    forgotten = grown.grown(Delta.of(removed=[row])).recall(subject="e0", predicate="r1", time=day, top=99)
    assert forgotten.filter(pl.col("object") == "new")["status"].to_list() == ["predicted"]
    assert "new" not in snapshot.graph.entities.labels


def test_an_interval_without_an_end_goes_on_when_the_axis_grows():
    snapshot = Snapshot(LEARNED[True]).grown(Delta.of(added=[("e0", "r0", "new", FIRST + 6, None)]))
    snapshot = snapshot.grown(Delta.of(added=[("e1", "r0", "e2", FIRST + 20, FIRST + 20)]))
    assert {("e0", "r0", "new", number) for number in range(FIRST + 6, FIRST + 21)} <= cells_of(snapshot.graph)
    assert_same_store(snapshot, from_scratch(snapshot.learned))
    assert snapshot.when("e0", "r0", "new")["end"][0] is None
    ended = snapshot.grown(Delta.of(removed=[("e0", "r0", "new", FIRST + 20, None)]))
    assert ended.when("e0", "r0", "new")["end"][0] == snapshot.graph.times.label(19)


def test_an_interval_without_an_end_goes_on_after_a_hole_at_the_end_of_the_axis():
    last = FIRST + TIMES - 1
    snapshot = Snapshot(LEARNED[True]).grown(Delta.of(added=[("e0", "r0", "new", FIRST, None)]))
    hole = matching(snapshot.graph, {"subject": "e0", "predicate": "r0", "object": "new"}, (last, last))
    assert (hole.removed.rows(), hole.reach) == ([("e0", "r0", "new", last, last)], (last + 1, last + 1))
    snapshot = snapshot.grown(hole)
    snapshot = snapshot.grown(Delta.of(added=[("e1", "r0", "e2", last + 9, last + 9)]))
    runs = stored(snapshot.graph, "train")
    assert isinstance(runs, Runs)
    own = runs[runs.first.o == snapshot.graph.entities.index("new")]
    assert (own.first.t.tolist(), own.last.tolist()) == ([0, TIMES], [TIMES - 2, TIMES + 8])


def test_a_memory_that_grew_is_saved_and_loaded(tmp_path):
    delta = Delta.of(added=[("e0", "fresh", "new", FIRST + 20, FIRST + 20), ("e2", "r0", "e1", FIRST - 1, FIRST - 1)])
    memory = Memory.of(grow(LEARNED[False], delta))
    memory.save(tmp_path / "m")
    again = Memory.load(tmp_path / "m")
    assert again.scorer.history.fitted == 2
    assert_same_answers(memory._at(), again._at())
    more = Delta.of(added=[("e0", "fresher", "e3", FIRST + 20, FIRST + 20)])
    assert_same_answers(memory._at().grown(more), again._at().grown(more))


# -- models -----------------------------------------------------------------------------------------------------------

FORMS = [(name, form) for name, model in MODELS.items() for form in ("episodic", "semantic") if model.has_form(form)]
CHANGE = Delta.of(
    added=[
        ("new", "r0", "e1", FIRST + 3, FIRST + 3),
        ("e2", "r1", "new", FIRST + TIMES, FIRST + TIMES),
        ("e2", "fresh", "e0", FIRST + 1, FIRST + 1),
    ],
    removed=[],
)


def model_memory(name: str, form: str, **options: object):
    graph = small_graph()
    model = random_model(name, form, sizes=graph.sizes, dtype="float32", **options)
    return small_memory(graph, [model], history=form == "episodic")


@pytest.mark.parametrize(("name", "form"), FORMS)
@pytest.mark.parametrize("reciprocal", [False, True])
def test_rows_of_a_model_stay_bit_for_bit_and_new_ids_have_rows(name, form, reciprocal):
    learned = model_memory(name, form, reciprocal=reciprocal)
    grown = grow(learned, CHANGE)
    (old,), (new,) = learned.scorer.models, grown.scorer.models
    assert new.sizes == grown.graph.sizes
    predicates = len(learned.graph.predicates)
    for kind in ("entity", "time") if form == "episodic" else ("entity",):
        assert torch.equal(getattr(new, kind)[: len(getattr(old, kind))], getattr(old, kind))
    assert torch.equal(new.predicate[:predicates], old.predicate[:predicates])
    assert torch.isfinite(new.entity).all()
    facts = grown.graph.split("train")
    for slot in new.slots:
        assert torch.isfinite(new.score_against(new.normalize(facts), slot)).all()
    snapshot = Snapshot(grown)
    time = {"time": grown.graph.times.label(3)} if form == "episodic" else {}
    assert snapshot.recall(subject="new", predicate="r0", **time)[0, "object"] == "e1"


@pytest.mark.parametrize("is_read", [False, True])
@pytest.mark.parametrize("name", [name for name, form in FORMS if form == "episodic"])
def test_rows_do_not_depend_on_the_steps(name, is_read):
    learned = model_memory(name, "episodic")
    rows = CHANGE.added.rows()
    stepwise = learned
    for row in rows:
        stepwise = grow(stepwise, Delta.of(added=[row], entities=("new",)))
        if is_read:  # then the rows of each step are solved, and the next one starts from them
            assert len(stepwise.scorer.models) == 1
    at_once = grow(learned, CHANGE)
    for mine, theirs in zip(stepwise.scorer.models, at_once.scorer.models, strict=True):
        for (name_of, one), other in zip(mine.named_parameters(), theirs.parameters(), strict=True):
            assert torch.equal(one, other), name_of


def test_rows_are_solved_by_the_first_question_that_needs_them():
    snapshot = Snapshot(model_memory("complex", "episodic")).grown(CHANGE)
    assert "models" not in vars(snapshot.scorer)
    snapshot.recall(subject="new", predicate="r0", time=snapshot.graph.times.label(3))
    assert "models" in vars(snapshot.scorer)


def test_rows_of_ids_that_lost_facts_change_and_come_back_with_them():
    learned = model_memory("complex", "episodic")
    facts = learned.graph.split("train")
    s, p, o, t = facts.ids[0].tolist()
    labels = learned.graph.entities.labels
    row = (labels[s], f"r{p}", labels[o], FIRST + t, FIRST + t)
    gone = grow(learned, Delta.of(removed=[row]))
    (old,), (new,) = learned.scorer.models, gone.scorer.models
    for table, ids in (("entity", {s, o}), ("predicate", {p}), ("time", {t})):
        differs = getattr(old, table) != getattr(new, table)
        assert differs.flatten(1).any(dim=1).nonzero()[:, 0].tolist() == sorted(ids)
    (again,) = grow(gone, Delta.of(added=[row])).scorer.models
    assert all(torch.equal(one, other) for one, other in zip(old.parameters(), again.parameters(), strict=True))


def test_erasing_an_entity_takes_its_row_out_and_solves_its_neighbours_again():
    learned = model_memory("distmult", "episodic")
    erased = grow(learned, Delta.of(erased=("e1",)))
    (old,), (new,) = learned.scorer.models, erased.scorer.models
    assert erased.graph.entities.labels == ("e0", "e2", "e3", "e4")
    assert len(new.entity) == 4
    facts = learned.graph.split("train")
    near = {*facts.s[facts.o == 1].tolist(), *facts.o[facts.s == 1].tolist()} - {1}
    kept = [0, 2, 3, 4]
    for place, number in enumerate(kept):
        assert torch.equal(new.entity[place], old.entity[number]) == (number not in near)
    again = grow(erased, Delta.of(added=[("e1", "r0", "e2", FIRST, FIRST)]))
    assert again.graph.entities.labels[-1] == "e1"
    at_once = grow(learned, Delta.of(added=[("e1", "r0", "e2", FIRST, FIRST)], erased=("e1",), entities=("e1",)))
    (one,), (other,) = again.scorer.models, at_once.scorer.models
    assert torch.equal(one.entity, other.entity)


def test_models_with_time_levels_and_static_parts_grow():
    graph = small_graph()
    config = {"time_levels": (1, 3), "reciprocal": True}
    model = random_model("complex", "both", sizes=graph.sizes, dtype="float32", **config)
    assert model.config == model_config("complex", "both", dtype="float32", **config)
    grown = Snapshot(grow(small_memory(graph, [model]), CHANGE))
    assert grown.recall(subject="e2", predicate="r1", time=grown.graph.times.label(TIMES))[0, "object"] == "new"
