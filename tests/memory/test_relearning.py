"""A memory that is learned again starts from its tables, and chooses anew only by facts that are new to its models."""

from __future__ import annotations

import pytest
import torch

from recollect import EpisodicGraph, Memory, Recipe, dataset, load
from recollect.evaluation.metrics import evaluate
from recollect.graph.fact_index import FactIndex
from recollect.memory.journal.changes import Delta
from recollect.memory.learning import relearning
from recollect.memory.learning.growth import grow
from recollect.memory.learning.learn import Learned, Learning
from recollect.memory.learning.relearning import Relearning, relearn

RECIPE = Recipe(learning_rate=0.02, epochs=3, validate_every=1, batch_size=256)


def learned_from(graph: EpisodicGraph, model: str, **options) -> Learned:
    learning = Learning(graph, model=model, recipe=RECIPE, **options)
    for run in learning.runs():
        for _ in run:
            pass
    return learning.result()


@pytest.fixture(scope="module")
def whole() -> EpisodicGraph:
    world = dataset("world", countries=4, years=1)
    return world.with_splits({"train": world.facts})


@pytest.fixture(scope="module")
def learned(whole) -> Learned:
    return learned_from(whole, "complex", dim=4)


@pytest.fixture
def few_are_enough(monkeypatch):
    monkeypatch.setattr(relearning, "ENOUGH", 20)


def weights(found: Learned) -> dict[str, torch.Tensor]:
    return {
        f"{number}.{name}": value
        for number, model in enumerate(found.scorer.models)
        for name, value in model.state_dict().items()
    }


def assert_same_bits(first: Learned, second: Learned) -> None:
    one, other = weights(first), weights(second)
    assert one.keys() == other.keys()
    assert all(torch.equal(value, other[name]) for name, value in one.items())


def test_training_starts_from_the_tables(learned):
    run = next(Relearning(learned).runs())
    for name, value in run.model.state_dict().items():
        assert torch.equal(value, learned.scorer.models[0].state_dict()[name])


def test_the_tables_that_it_starts_from_stay(learned):
    before = {name: value.clone() for name, value in weights(learned).items()}
    found = relearn(learned, epochs=1)
    assert all(torch.equal(value, before[name]) for name, value in weights(learned).items())
    assert not any(torch.equal(value, before[name]) for name, value in weights(found).items())


def test_the_tables_are_the_mean_of_those_before_and_those_reached(learned):
    learning = Relearning(learned, epochs=2)
    for run in learning.runs():
        for _ in run:
            pass
        run.trainer.finish_()
        reached = {name: value.clone() for name, value in run.model.state_dict().items()}
    found = learning.result().scorer.models[0].state_dict()
    for name, before in learned.scorer.models[0].state_dict().items():
        torch.testing.assert_close(found[name], (before + reached[name]) / 2)


def test_the_same_seed_gives_the_same_bits(learned):
    assert_same_bits(relearn(learned, seed=4), relearn(learned, seed=4))
    with pytest.raises(AssertionError):
        assert_same_bits(relearn(learned, seed=4), relearn(learned, seed=5))


def test_it_recalls_better_than_before(learned, whole):
    known = FactIndex(whole.facts, whole.sizes)

    def mrr(found: Learned) -> float:
        report = evaluate(found.scorer.models[0], whole.facts[::5], known=known, slots="so")
        return report["filtered"]["entity"]["mrr"]

    assert mrr(relearn(learned)) > mrr(learned) + 0.01


def test_few_new_facts_choose_nothing(learned, whole):
    found = relearn(learned, whole.facts[:50])
    assert found.calibration is learned.calibration
    assert found.scorer.history is learned.scorer.history
    assert found.scorer.weights == learned.scorer.weights
    assert found.forecaster is learned.forecaster


def test_held_out_facts_are_new_and_not_trained_on(few_are_enough, learned, whole):
    fresh = whole.facts[::2]
    learning = Relearning(learned, fresh)
    assert len(learning.held_out) == len(fresh) // 4
    assert FactIndex(fresh, whole.sizes).contains(learning.held_out).all()
    trained = [run.graph for run in learning.runs() if list(run)]
    first, last = (FactIndex(graph.split("train"), whole.sizes) for graph in trained)
    assert not first.contains(learning.held_out).any()
    assert last.contains(whole.facts).all()
    assert len(trained[0].split("valid")) == len(learning.held_out)
    found = learning.result()
    assert found.calibration != learned.calibration
    assert len(found.scorer.history.facts) == len(whole.facts)


def test_a_validation_split_chooses(small_world):
    before = learned_from(small_world, "complex", dim=4)
    learning = Relearning(before)
    runs = [run for run in learning.runs() if list(run)]
    assert len(runs) == 1
    assert len(runs[0].graph.split("valid"))
    assert learning.result().calibration != before.calibration


def test_history_alone_is_fitted_again_if_many_facts_are_new(few_are_enough, whole):
    before = learned_from(whole, "history")
    same = relearn(before, whole.facts[:10])
    assert same.scorer.history is before.scorer.history
    assert relearn(before, whole.facts).scorer.history is not before.scorer.history


def test_sums_of_models_are_trained_one_by_one(whole):
    before = learned_from(whole, "complex+distmult", dim=4)
    found = relearn(before, epochs=1)
    names = [type(model).__name__ for model in found.scorer.models]
    assert names == ["ComplEx", "DistMult"]


def test_the_description_lists_later_trainings(learned, whole, tmp_path):
    fresh = whole.facts[:7]
    found = relearn(relearn(learned, fresh), epochs=1)
    assert found.about["recipe"] == learned.about["recipe"]
    assert found.about["relearned"] == [{"epochs": 4, "fresh": 7}, {"epochs": 1, "fresh": 0}]
    Memory.of(found).save(tmp_path / "m")
    assert load(tmp_path / "m").about["relearned"] == found.about["relearned"]


def test_a_run_that_starts_from_tables_resumes_with_the_same_bits(learned, tmp_path):
    def start():
        return next(Relearning(learned).runs())

    whole = start()
    records = list(whole)
    part = start()
    for _, _ in zip(range(len(records) // 2), part, strict=False):
        pass
    part.save_checkpoint(tmp_path / "run")
    again = start()
    again.load_checkpoint_(tmp_path / "run")
    for _ in again:
        pass
    for name, value in whole.result()[0].state_dict().items():
        assert torch.equal(value, again.result()[0].state_dict()[name])


def test_rows_of_new_entities_have_not_seen_held_out_facts(monkeypatch, whole, learned):
    monkeypatch.setattr(relearning, "ENOUGH", 2)
    first, new = whole.times.first, len(whole.entities)
    rows = [("Newland", "Visits", label, first + t, first + t) for t, label in enumerate(whole.entities.labels[:8])]
    grown = grow(learned, Delta.of(added=rows, entities=("Newland",)))
    train = grown.graph.split("train")
    learning = Relearning(grown, train[train.s == new])
    held = set(grown.graph.table(learning.held_out).iter_rows())
    kept = [row for row in rows if (*row[:3], whole.times.label(row[3] - first)) not in held]
    assert len(kept) == 6
    without = grow(learned, Delta.of(added=kept, entities=("Newland",)))
    fold = next(learning.runs())
    assert torch.allclose(fold.model.entity[new], without.scorer.models[0].entity[new], atol=1e-4)
    assert not torch.allclose(fold.model.entity[new], grown.scorer.models[0].entity[new], atol=1e-4)
