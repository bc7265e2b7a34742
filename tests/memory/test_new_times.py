"""At times that came after training, a model has a smaller weight than history."""

from __future__ import annotations

import pytest
import torch

from recollect import EpisodicGraph, Facts, Memory, Recipe, dataset, load
from recollect.memory.answering.scorer import NEW_TIME
from recollect.memory.journal.changes import Delta
from recollect.memory.learning import relearning
from recollect.memory.learning.growth import grow
from recollect.memory.learning.learn import Learned, Learning
from recollect.memory.learning.relearning import relearn

RECIPE = Recipe(learning_rate=0.02, epochs=1, batch_size=256)


@pytest.fixture(scope="module")
def graph() -> EpisodicGraph:
    world = dataset("world", countries=4, years=1)
    return world.with_splits({"train": world.facts})


@pytest.fixture(scope="module")
def learned(graph) -> Learned:
    learning = Learning(graph, model="complex", dim=4, recipe=RECIPE)
    for run in learning.runs():
        for _ in run:
            pass
    return learning.result()


def later(graph: EpisodicGraph, time: int) -> Delta:
    """Return one more fact so many times after the last one, or before the first."""
    subject, other = graph.entities.labels[:2]
    bin_of = graph.times.first + (len(graph.times) - 1 + time if time > 0 else time)
    return Delta.of(added=[(subject, "Visits", other, bin_of, bin_of)], reach=(bin_of, bin_of))


@pytest.fixture(scope="module")
def grown(learned, graph) -> Learned:
    return grow(learned, later(graph, 2))


def expected(grown: Learned, facts: Facts, slot: str, factor: torch.Tensor) -> torch.Tensor:
    scorer = grown.scorer
    a, b = scorer.weights[slot]
    theta, rate = (part.score_against(facts, slot) for part in scorer.parts)
    return a * factor * theta.detach() + b * rate


@pytest.mark.parametrize("slot", "so")
def test_the_model_counts_less_for_entities_at_new_times(grown, slot):
    facts = Facts.of([(0, 0, 1, 3), (0, 0, 1, 11), (0, 0, 1, 12), (1, 0, 0, 13)])
    factor = torch.tensor([1.0, 1.0, NEW_TIME, NEW_TIME])[:, None]
    torch.testing.assert_close(grown.scorer.score_against(facts, slot), expected(grown, facts, slot, factor))


@pytest.mark.parametrize("slot", "pt")
def test_the_model_counts_in_full_for_predicates_and_times(grown, slot):
    facts = Facts.of([(0, 0, 1, 3), (1, 0, 2, 13)])
    whole = expected(grown, facts, slot, torch.ones(1))
    torch.testing.assert_close(grown.scorer.score_against(facts, slot), whole)


def test_trained_times_move_with_the_axis(learned, graph):
    assert learned.scorer.trained_times is None
    earlier = grow(learned, later(graph, -3))
    assert earlier.scorer.trained_times == (3, 14)
    both = grow(earlier, later(graph, 1))
    assert both.scorer.trained_times == (3, 14)


def test_a_saved_memory_knows_its_trained_times(grown, tmp_path):
    Memory.of(grown).save(tmp_path / "m")
    scorer = load(tmp_path / "m").scorer
    assert scorer.trained_times == (0, 11)
    facts = Facts.of([(0, 0, 1, 13)])
    torch.testing.assert_close(scorer.score_against(facts, "o"), grown.scorer.score_against(facts, "o"))


def test_new_times_count_less_until_weights_are_fitted_again(grown, monkeypatch):
    assert relearn(grown, epochs=1).scorer.trained_times == (0, 11)
    monkeypatch.setattr(relearning, "ENOUGH", 20)
    assert relearn(grown, grown.graph.split("train")[::2], epochs=1).scorer.trained_times is None
