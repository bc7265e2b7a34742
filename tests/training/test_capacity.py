"""Plans: the model is the one that training chooses, and more memory or fewer entities never fit less."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect import UserError
from recollect.models.zoo import parameter_count
from recollect.training import auto
from recollect.training.capacity import Demand, epoch_flops, plan
from recollect.training.recipe import RECIPES
from recollect.training.run import training_bytes

MODERN = RECIPES["modern"]
GIB = 2**30


def test_a_plan_has_the_model_that_training_chooses(small_world, monkeypatch):
    monkeypatch.setattr(auto, "free_memory", lambda: 8 * GIB)
    sizes, facts = small_world.sizes, small_world.counts["train"]
    demand = Demand(entities=sizes["entity"], predicates=sizes["predicate"], times=sizes["time"], facts=facts)
    configs, reason = auto.resolve_configs(small_world, MODERN)
    found = plan(demand, MODERN, 8 * GIB)
    assert found["chosen"] == reason
    expected = configs[0].to_dict() if configs else None
    assert (found["training"] and found["training"]["config"]) == expected


def test_a_plan_counts_parameters_and_bytes_as_training_does():
    demand = Demand(entities=7000, times=365, facts=90_000, predicates=230)
    found = plan(demand, MODERN, 64 * GIB)
    config, _ = auto.config_for_sizes(demand.sizes, demand.facts, MODERN, 64 * GIB)
    assert found["training"]["parameters"] == parameter_count(config, demand.sizes)
    assert found["training"]["weight_bytes"] == training_bytes(config, demand.sizes)
    assert (found["model"], found["tables"]) == ("cont", "in memory")


def test_an_epoch_of_a_diagonal_model_is_queries_and_candidates():
    demand = Demand(entities=50, times=4, facts=10, predicates=3)
    config, _ = auto.config_for_sizes(demand.sizes, 10, MODERN, GIB, model="distmult", dim=7)
    recipe = MODERN.for_model("distmult")
    assert epoch_flops(config, demand.sizes, 10, recipe) == 3 * 2 * 10 * (7 + 50 * 7)


@given(entities=st.integers(1, 10**7), facts=st.integers(1, 10**10), gib=st.integers(1, 2000))
def test_more_memory_never_fits_less(entities, facts, gib):
    places = ["in memory", "memory-mapped", "several ranks"]
    demand = Demand(entities=entities, times=400, facts=facts)

    def place(free: int) -> int:
        tables = plan(demand, MODERN, free)["tables"]
        return next(i for i, name in enumerate(places) if tables.startswith(name))

    stored = plan(demand, MODERN, gib * GIB)["store_bytes"]
    assert stored >= 150 * facts + 500 * entities
    assert place(4000 * GIB) <= place(gib * GIB)


def test_where_tables_and_events_go():
    large = Demand(entities=30_000_000, times=12, facts=10_000_000)
    assert plan(large, MODERN, 18 * GIB)["tables"].startswith("memory-mapped files")
    assert plan(large, MODERN, 1 * GIB)["tables"].startswith("several ranks")
    assert plan(large, MODERN, 24 * GIB)["events"]["engine"] == "duckdb"
    assert plan(Demand(entities=10, times=9, facts=10**10), MODERN, GIB)["events"]["engine"] == "spark"
    assert plan(Demand(entities=10, times=9, facts=100), MODERN, GIB)["model"] == "history"


def test_what_cannot_be_planned_is_refused(run):
    with pytest.raises(UserError, match="a graph with 0 times cannot be planned; wanted at least 1"):
        Demand(entities=1, times=0, facts=1)
    with pytest.raises(UserError, match="more cells than 64 bits can number"):
        Demand(entities=30_000_000, times=365, facts=1)
    words = ("plan", "--entities", "5", "--times", "3", "--facts", "10")
    code, _, err = run(*words, "--memory", "0")
    assert (code, "a machine with 0.0 GiB of memory cannot be planned for" in err) == (2, True)
    code, out, _ = run(*words, "--memory", "1", "--json")
    assert (code, json.loads(out)["model"]) == (0, "history")
    code, out, _ = run("plan", "--entities", "5000", "--times", "30", "--facts", "90000", "--memory", "16")
    assert code == 0
    assert "an epoch" in out
