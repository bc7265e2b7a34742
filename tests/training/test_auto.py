"""The choice of a model from the data, the memory and the recipe."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from recollect import EpisodicGraph, Facts, TimeAxis, Vocabulary
from recollect.training import auto
from recollect.training.auto import resolve_config
from recollect.training.recipe import RECIPES, Recipe

MODERN, PAPER = RECIPES["modern"], RECIPES["paper"]


def graph_of(facts: int, entities: int = 50, predicates: int = 5, times: int = 20) -> EpisodicGraph:
    numbers = torch.arange(facts)
    columns = [numbers % entities, numbers % predicates, numbers // 3 % entities, numbers % times]
    return EpisodicGraph(
        entities=Vocabulary("entity", tuple(f"e{i:06}" for i in range(entities))),
        predicates=Vocabulary("predicate", tuple(f"p{i:06}" for i in range(predicates))),
        times=TimeAxis("ordinal", 0, times),
        splits={"train": Facts.from_columns(*columns)},
    )


@pytest.fixture
def free_memory(monkeypatch):
    """Return a function that sets the free memory in bytes."""

    def set_bytes(count: float) -> None:
        monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=count))

    set_bytes(16 * 2**30)
    return set_bytes


@pytest.mark.parametrize(
    ("facts", "dims"), [(300, (8, 4)), (900, (16, 6)), (5000, (40, 8)), (20_000, (60, 10)), (72_826, (100, 12))]
)
@pytest.mark.usefixtures("free_memory")
def test_more_facts_get_a_larger_cont_with_a_static_part(facts, dims):
    config, reason = resolve_config(graph_of(facts), MODERN)
    assert (config.model, config.dim, config.predicate_dim, config.static) == ("cont", *dims, True)
    assert reason.startswith(f"ConT, dim {dims[0]}, predicate dim {dims[1]}, static: {facts:,} training facts")


def test_less_memory_gives_smaller_dims_and_at_last_complex(free_memory):
    graph = graph_of(72_826, times=365)
    assert resolve_config(graph, MODERN)[0].dim == 100
    free_memory(2 * 2**30)
    assert resolve_config(graph, MODERN)[0].dim == 60
    free_memory(2 * 2**20)
    config, reason = resolve_config(graph, MODERN)
    assert (config.model, config.static) == ("complex", True)
    assert reason.startswith("ComplEx, dim ")


@pytest.mark.usefixtures("free_memory")
def test_times_with_too_few_facts_get_complex():
    config, reason = resolve_config(graph_of(1000, times=900), MODERN)
    assert (config.model, config.dim, config.static) == ("complex", 32, True)
    assert "1,000 training facts at 900 times" in reason


@pytest.mark.usefixtures("free_memory")
def test_what_is_given_is_kept():
    graph = graph_of(900)
    config, reason = resolve_config(graph, MODERN, model="tucker", dim=7, time_dim=3)
    assert (config.model, config.dims, reason) == ("tucker", {"entity": 7, "predicate": 7, "time": 3}, "")
    assert not config.static
    config, reason = resolve_config(graph, MODERN, dim=9, static=False)
    assert (config.model, config.dim, config.predicate_dim, config.static) == ("cont", 9, 9, False)
    assert reason
    config, _ = resolve_config(graph, MODERN, reciprocal=False, time_levels=(1, 7), dtype="float64")
    assert (config.reciprocal, config.time_levels, config.dtype) == (False, (1, 7), "float64")


@pytest.mark.usefixtures("free_memory")
@pytest.mark.parametrize(
    ("model", "form", "dims"),
    [
        ("distmult", "episodic", (32, 32)),
        ("ComplEx", "semantic", (32, 32)),
        ("rescal", "semantic", (16, 16)),
        ("tucker", "episodic", (16, 6)),
        ("tree", "episodic", (16, 16)),
        ("auto", "semantic", (16, 6)),
    ],
)
def test_the_dim_of_a_named_model_is_chosen_too(model, form, dims):
    config, reason = resolve_config(graph_of(900), MODERN, model=model, form=form)
    assert (config.dims["entity"], config.dims["predicate"]) == dims
    assert (config.form, config.static) == (form, False)
    assert reason


@pytest.mark.usefixtures("free_memory")
@pytest.mark.parametrize(
    ("recipe", "form", "reciprocal", "time_levels"),
    [
        (MODERN, "episodic", True, (1, 5, 25)),
        (MODERN, "semantic", True, (1,)),
        (replace(MODERN, predict="o"), "episodic", False, (1, 5, 25)),
        (PAPER, "episodic", False, (1,)),
        (Recipe(loss="one-vs-all"), "episodic", True, (1, 5, 25)),
    ],
)
def test_inverse_predicates_and_time_levels_follow_the_objective(recipe, form, reciprocal, time_levels):
    config, _ = resolve_config(graph_of(900), recipe, model="complex", form=form)
    assert (config.reciprocal, config.time_levels) == (reciprocal, time_levels)


@pytest.mark.usefixtures("free_memory")
def test_an_axis_that_is_mostly_empty_is_left_to_history():
    configs, reason = auto.resolve_configs(graph_of(3000, times=4000), MODERN)
    assert configs == []
    assert reason == "history: 3,000 facts at 4,000 times, most of which a model could not learn"
    assert len(auto.resolve_configs(graph_of(3000, times=2000), MODERN)[0]) == 1
    assert len(auto.resolve_configs(graph_of(3000, times=4000), MODERN, model="complex")[0]) == 1
