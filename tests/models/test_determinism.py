"""The same seed and number of threads give the same bits; other numbers of threads give nearly the same."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from backends import EACH_BACKEND, running
from recollect import RECIPES, Memory, Recipe, TrainingRun
from recollect.models.config import ModelConfig
from recollect.models.zoo import MODELS

NAMES = pytest.mark.parametrize("name", MODELS)
RECIPE = Recipe(epochs=2, batch_size=512, learning_rate=0.01)


def trained(graph, name: str, backend: str, threads: int, dtype: str = "float32") -> dict[str, Tensor]:
    """Return the weights after a short training whose smallest loops are shared by threads."""
    form = "episodic" if MODELS[name].has_form("episodic") else "semantic"
    config = ModelConfig(model=name, dim=5, form=form, dtype=dtype)
    with running(backend, threads):
        run = TrainingRun(graph, config, recipe=RECIPE, seed=3)
        for _ in run:
            pass
    return {key: value.clone() for key, value in run.model.state_dict().items()}


@NAMES
@EACH_BACKEND
@pytest.mark.parametrize("threads", [1, 3])
def test_the_same_seed_and_threads_give_the_same_bits(small_world, name, backend, threads):
    first, second = (trained(small_world, name, backend, threads) for _ in range(2))
    for key, value in first.items():
        assert torch.equal(value, second[key]), key


@pytest.mark.parametrize("name", ["complex", "cont"])
@pytest.mark.parametrize("threads", [1, 3])
def test_a_memory_by_the_modern_recipe_has_the_same_bits_with_the_same_threads(small_world, name, threads):
    recipe = replace(RECIPES["modern"], epochs=2)

    def learned() -> Memory:
        with running("compiled", threads):
            return Memory.learn(small_world, model=name, dim=5, recipe=recipe, seed=3)

    first, second = learned(), learned()
    assert first.calibration == second.calibration
    for key, value in first.model.state_dict().items():
        assert torch.equal(value, second.model.state_dict()[key]), key


@NAMES
def test_numbers_of_threads_and_back_ends_agree_within_tolerance(small_world, name):
    wanted = trained(small_world, name, "reference", 1, "float64")
    for threads in (1, 2, 4):
        found = trained(small_world, name, "compiled", threads, "float64")
        for key, value in wanted.items():
            torch.testing.assert_close(found[key], value, rtol=1e-6, atol=1e-6)
