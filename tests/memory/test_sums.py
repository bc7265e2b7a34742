"""A memory that adds up the scores of several models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conftest import SMALL
from recollect import Facts, Memory, Recipe, UserError, load
from recollect.graph.fact_index import FactIndex
from recollect.memory.answering.scorer import Scored, fit_weights
from recollect.training.auto import SEED_STEP

RECIPE = Recipe(learning_rate=0.02, epochs=4, validate_every=2, batch_size=256)


@pytest.fixture(scope="module")
def summed(small_world) -> Memory:
    return Memory.learn(small_world, model="complex+distmult", dim=6, recipe=RECIPE)


def asked(memory: Memory, slot: str = "object"):
    return memory.graph.table(memory.graph.split("test")[:20]).drop(slot)


def test_the_score_is_the_weighted_sum_of_all_models_and_the_history(summed):
    facts = summed.graph.split("valid")[:9]
    for slot in "spot":
        *of_models, of_history = summed.scorer.weights[slot]
        expected = of_history * summed.scorer.history.score_against(facts, slot)
        for weight, model in zip(of_models, summed.models, strict=True):
            expected = expected + weight * model.score_against(facts, slot)
        assert torch.allclose(summed.scorer.score_against(facts, slot), expected, atol=1e-5)
        assert min(summed.scorer.weights[slot]) >= 0
    assert repr(summed).startswith("Memory(ComplEx, episodic, dim 6 + DistMult, episodic, dim 6 + history; world")


def test_a_sum_is_saved_and_loaded(summed, tmp_path):
    summed.save(tmp_path / "m")
    again = load(tmp_path / "m")
    assert (tmp_path / "m" / "weights-2.safetensors").is_file()
    assert again.scorer.weights == summed.scorer.weights
    assert [model.config.to_dict() for model in again.models] == [model.config.to_dict() for model in summed.models]
    assert again.recall_many(asked(summed), top=9).equals(summed.recall_many(asked(summed), top=9))
    assert [run["seed"] for run in again.about["runs"]] == [0, SEED_STEP]


def test_the_same_model_twice_is_trained_with_two_seeds(small_world):
    memory = Memory.learn(small_world, model="distmult+distmult", dim=3, recipe=Recipe(epochs=1))
    first, second = memory.models
    assert not torch.equal(first.entity, second.entity)
    assert len(memory.scorer.weights["o"]) == 3


@pytest.mark.parametrize("form", ["episodic", "semantic"])
def test_models_are_summed_without_history_too(small_world, tmp_path, form):
    memory = Memory.learn(small_world, model="distmult+complex", form=form, dim=3, recipe=RECIPE, history=False)
    assert memory.scorer.history is None
    assert {len(weights) for weights in memory.scorer.weights.values()} == {2}
    memory.save(tmp_path / "m")
    questions = {"subject": [small_world.entities.labels[0]], "predicate": [small_world.predicates.labels[0]]}
    questions |= {"time": ["2000-03"]} if form == "episodic" else {}
    assert load(tmp_path / "m").recall_many(questions).equals(memory.recall_many(questions))
    assert 0 < memory.evaluate("test", "o").filtered["object"]["mrr"] < 1


def test_what_needs_one_model_names_them(summed, small_world):
    for call in (lambda: summed.model, summed.project, lambda: summed.embedding("2000-03"), summed.embeddings):
        with pytest.raises(UserError, match=r"adds up the models ComplEx \+ DistMult, and one is needed"):
            call()
    assert summed.know(as_of="2001-02").height
    alone = Memory.learn(small_world, model="distmult+hole", dim=2, recipe=Recipe(epochs=1), history=False)
    with pytest.raises(UserError, match="and one is needed"):
        alone.know(as_of="2001-02")


@pytest.mark.parametrize(
    ("model", "message"),
    [("complex+magic", "unknown model 'magic'"), ("complex+", "unknown model ''"), ("cont+rescal", "no episodic form")],
)
def test_a_sum_of_unknown_models_is_refused(small_world, model, message):
    with pytest.raises(UserError, match=message):
        Memory.learn(small_world, model=model, dim=2)


def test_bundles_of_sums_that_do_not_fit_are_refused(summed, tmp_path):
    from recollect.memory.bundle.content import to_bundle
    from recollect.memory.bundle.folder import write_bundle
    from recollect.memory.learning.learn import Learned

    bundle = to_bundle(Learned(summed.scorer, summed.graph, summed.calibration, summed.about))
    weights = dict(bundle.tensors["weights-2"])
    changes = {
        "fewer weights": ({"score_weights": {"o": [1.0, 2.0]}}, {}),
        "a missing file": ({"models": [*bundle.about["models"], bundle.about["models"][0]]}, {}),
        "no list": ({"models": 3}, {}),
        "another shape": ({}, {"weights-2": weights | {"entity": torch.zeros(1, 1)}}),
        "not finite": ({}, {"weights-2": weights | {"entity": weights["entity"] * torch.nan}}),
    }
    for name, (about, tensors) in changes.items():
        changed = type(bundle)(bundle.weights, bundle.graph, {**bundle.about, **about}, {**bundle.tensors, **tensors})
        write_bundle(tmp_path / name, changed)
        with pytest.raises(UserError, match="the memory cannot be read"):
            load(tmp_path / name)


@given(st.integers(1, 4), st.integers(0, 2**31))
def test_fitted_weights_are_the_best_nonnegative_ones(width, seed):
    generator = torch.Generator().manual_seed(seed)
    facts = Facts.of([(0, 0, i % 5, i) for i in range(40)])
    start = (1 / width,) * width
    features = torch.randn(width, 40, 5, generator=generator)
    features[0, torch.arange(40), facts.o] += 1.0
    known = FactIndex(facts, {"entity": 5, "predicate": 1, "time": 40})
    fitted = torch.tensor(fit_weights([Scored(facts, features)], "o", known=known, start=start))

    def likelihood(weights: torch.Tensor) -> float:
        prior = (weights - torch.tensor(start)).square().sum() / 2
        return (
            torch.tensordot(weights, features, dims=1).log_softmax(1)[torch.arange(40), facts.o].sum() - prior
        ).item()

    assert fitted.min() >= 0
    for i in range(width):
        for change in (0.05, -0.05):
            moved = fitted + change * torch.eye(width)[i]
            if moved[i] >= 0:
                assert likelihood(moved) <= likelihood(fitted) + 0.02


def test_a_sum_is_trained_by_command_and_resumed_in_its_second_model(run, facts_csv, tmp_path):
    from cli.test_interrupts import assert_same_memory, signalled

    words = ["train", facts_csv, *SMALL, "--model", "complex+distmult"]
    code, out, error = run(*words, "--out", tmp_path / "whole", "--json")
    assert code == 0, error
    assert [model["config"]["model"] for model in json.loads(out)["models"]] == ["complex", "distmult"]
    folder = tmp_path / "runs"
    folder.mkdir()
    epochs = [line for line in error.splitlines() if line.startswith("epoch")]
    steps = steps_of(facts_csv)
    cut = signalled(2, "record", steps + 2, *words, "--out", folder / "cut")
    assert cut.returncode == 130, cut.stderr
    assert sorted(path.name for path in folder.iterdir()) == ["cut.partial", "cut.partial-2"]
    code, _, error = run(*words, "--out", folder / "cut", "--resume")
    assert code == 0
    resumed = [line for line in error.splitlines() if line.startswith("epoch")]
    assert len(resumed) == len(epochs) // 2  # those of the second model
    assert_same_memory(tmp_path / "whole", folder / "cut")
    assert [path.name for path in folder.iterdir()] == ["cut"]


def steps_of(facts_csv: Path) -> int:
    """Return the number of records of the first model."""
    from recollect import ModelConfig, TrainingRun, read, split_randomly

    recipe = Recipe(epochs=3, validate_every=1, batch_size=128)
    graph = split_randomly(read(facts_csv))
    return len(list(TrainingRun(graph, ModelConfig(model="complex", dim=4), recipe=recipe)))
