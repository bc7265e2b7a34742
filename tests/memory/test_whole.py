"""A graph without splits is learned whole: nothing is withheld, and probabilities are calibrated all the same."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect import Memory, Recipe, TrainingRun, dataset, load, read
from recollect.evaluation.calibration import Sample, fit_platt
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import EpisodicGraph, Facts
from recollect.memory.learning import learn as learning_module
from recollect.memory.learning.folds import held_out_folds
from recollect.memory.learning.learn import Learning
from recollect.training import auto

RECIPE = Recipe(learning_rate=0.02, epochs=6, validate_every=2, batch_size=256)


@pytest.fixture(scope="module")
def whole(small_world) -> EpisodicGraph:
    return small_world.with_splits({"train": small_world.facts})


def trained(learning: Learning) -> Learning:
    for run in learning.runs():
        for _ in run:
            pass
    return learning


def table(count: int, entities: int = 4, predicates: int = 2, times: int = 3, seed: int = 0) -> EpisodicGraph:
    """Return a graph of at most `count` random facts."""
    sizes = torch.tensor([entities, predicates, entities, times])
    drawn = (torch.rand(count, 4, generator=torch.Generator().manual_seed(seed)) * sizes).long()
    rows = [(f"e{s}", f"r{p}", f"e{o}", 2000 + t) for s, p, o, t in drawn.tolist()]
    return read(pl.DataFrame(rows, schema=["subject", "predicate", "object", "time"], orient="row"))


@pytest.mark.parametrize("model", ["history", "complex", "complex+distmult"])
def test_every_fact_is_stored(whole, tmp_path, model):
    memory = Memory.learn(whole, model=model, recipe=RECIPE, **({} if model == "history" else {"dim": 4}))
    memory.save(tmp_path / "m")
    again = load(tmp_path / "m")
    assert again.calibration == memory.calibration
    facts = whole.table(whole.facts[::29])
    for row in facts.iter_rows(named=True):
        asked = {name: row[name] for name in ("subject", "predicate", "time")}
        assert row["object"] in again.recall(**asked, include="stored", top=99)["object"].to_list()
    assert set(again.probability(facts)["status"]) == {"stored"}


def test_the_refitted_model_is_the_one_that_all_facts_give_in_as_many_epochs(whole):
    learning = Learning(whole, model="complex", dim=4, recipe=RECIPE, seed=3)
    memory = Memory.of(trained(learning).result())
    epochs = memory.about["training"]["epochs"]
    direct = TrainingRun(whole, learning.configs[0], recipe=replace(RECIPE, epochs=epochs), seed=3)
    for _ in direct:
        pass
    model, _ = direct.result()
    for name, weights in model.state_dict().items():
        assert torch.equal(weights, memory.model.state_dict()[name])


def test_weights_and_calibration_are_those_of_held_out_facts(whole):
    fold = next(held_out_folds(whole, 3))
    memory = Memory.learn(whole, model="complex", dim=4, recipe=RECIPE, seed=3)
    part = Memory.learn(fold, model="complex", dim=4, recipe=RECIPE, seed=3)
    assert memory.scorer.weights == part.scorer.weights
    assert memory.calibration.fits.keys() == part.calibration.fits.keys()
    assert len(memory.graph.facts) > len(part.graph.split("train"))


@given(st.integers(1, 60), st.integers(0, 99))
@settings(max_examples=25)
def test_folds_hold_out_whole_runs_and_lose_nothing(count, seed):
    graph = table(count, seed=seed)
    every, held = FactIndex(graph.facts, graph.sizes), []
    for fold in held_out_folds(graph, seed):
        train, valid = fold.split("train"), fold.split("valid")
        assert len(train) + len(valid) == len(graph.facts)
        assert every.contains(valid).all()
        left = FactIndex(train, graph.sizes)
        for step in (-1, 1):
            neighbours = valid.with_slot("t", (valid.t + step).clamp(0, len(graph.times) - 1))
            assert not (left.contains(neighbours) & (neighbours.t != valid.t)).any()
        held.append(valid)
    together = Facts.concat([Facts.of([]), *held])
    assert len(together.ids.unique(dim=0)) == len(together)
    if len(graph.facts) > 1 and len(held) == 0:
        assert len(graph.facts.ids[:, :3].unique(dim=0)) == 1  # a single run


@given(st.integers(1, 12), st.integers(0, 99))
@settings(max_examples=12)
def test_a_few_facts_make_no_certain_guess(count, seed):
    graph = table(count, seed=seed)
    memory = Memory.learn(graph)
    n, labels = len(graph.facts), graph.entities.labels
    highest = (n + 1) / (n + 3)
    for predicate in graph.predicates.labels:
        found = memory.recall(subject=labels[0], predicate=predicate, time=graph.times.label(0), include="predicted")
        assert found["probability"].max() <= highest if found.height else True
    known = memory.know(include="predicted", top=99)
    assert known["probability"].max() <= highest if known.height else True


def test_the_many_times_of_a_few_intervals_make_no_certain_guess():
    rows = [(f"a{i % 5}", "leads", f"b{i % 3}", 2000 + 10 * i, 2010 + 10 * i) for i in range(8)]
    frame = pl.DataFrame(rows, schema=["subject", "predicate", "object", "start", "end"], orient="row")
    memory = Memory.learn(read(frame), model="history")
    assert memory.calibration.highest["t"] == (len(rows) + 1) / (len(rows) + 3)


def test_the_slope_of_a_few_answers_stays_near_one_and_that_of_many_is_theirs():
    def sample(copies: int) -> Sample:
        score = torch.tensor([0.1, 0.1, -0.1, -0.1, 0.1, -0.1], dtype=torch.float64).repeat(copies)
        truth = torch.tensor([True, True, False, False, False, True]).repeat(copies)
        return Sample(score, truth, torch.ones(len(score), dtype=torch.float64))

    assert fit_platt(sample(1), strength=1.0)[0] == pytest.approx(1, abs=0.3)
    many = sample(10**4)
    assert fit_platt(many, strength=1.0)[0] == pytest.approx(fit_platt(many)[0], rel=0.01)


def test_what_a_predicate_never_had_is_improbable():
    rows = [(f"l{i}", "leads", f"c{i % 10}", 1900 + i // 10) for i in range(400)]
    graph = read(pl.DataFrame(rows, schema=["subject", "predicate", "object", "time"], orient="row"))
    memory = Memory.learn(graph)
    backwards = memory.recall(subject="c3", predicate="leads", time="1920")  # a country leads nobody
    assert backwards["probability"].max() < 0.15  # each of ten countries
    led = memory.recall(predicate="leads", object="c3", time="1920", top=500)
    assert led.filter(pl.col("subject").str.starts_with("c"))["probability"].max() < 0.02
    assert memory.recall(subject="c3", object="c4", time="1920")["probability"].max() < 0.01  # the only predicate


def test_auto_leaves_out_a_model_that_adds_nothing(whole, monkeypatch):
    monkeypatch.setattr(auto, "MIN_MODEL_FACTS", 10)
    monkeypatch.setattr(auto, "resolve_config", lambda graph, recipe, **_: (config, "ComplEx"))
    config = auto.ModelConfig(model="complex", dim=1)
    learning = trained(Learning(whole, recipe=Recipe(epochs=1)))
    assert learning.note.startswith("history alone: ComplEx changes the MRR of ")
    assert Memory.of(learning.result()).models == ()


def test_auto_keeps_a_model_that_adds_something(monkeypatch):
    graph = dataset("world", countries=6, years=2)
    gained = replace_gain(monkeypatch, 0.1)
    learning = trained(Learning(graph, dim=4, recipe=Recipe(epochs=1)))
    assert not learning.note
    assert len(Memory.of(learning.result()).models) == 1
    assert gained


def replace_gain(monkeypatch, gain: float) -> list[bool]:
    called = []

    def fit(*words):
        called.append(True)
        return replace(fit_fold(*words), gain=torch.tensor([gain, gain + 0.01]))

    fit_fold = learning_module.fit_fold
    monkeypatch.setattr(learning_module, "fit_fold", fit)
    return called


def test_triples_without_time_get_a_model_however_few():
    rows = [(f"a{i % 9}", "r", f"a{i * i % 8}") for i in range(60)]
    graph = read(pl.DataFrame(rows, schema=["subject", "predicate", "object"], orient="row"), static=True)
    configs, _ = auto.resolve_configs(graph, Recipe())
    assert len(configs) == 1
