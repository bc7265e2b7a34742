"""Projection and as-of experiments agree with brute force, and a perfect model has perfect figures."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import pytest
import torch

from conftest import random_facts, random_model
from paper import as_of, projection
from paper.workspace import Workspace
from recollect import Facts, ModelConfig, Recipe, current, ends, starts
from recollect.models.zoo import build_model


def times_of_triples(facts: Facts) -> dict[tuple[int, ...], set[int]]:
    times: dict[tuple[int, ...], set[int]] = {}
    for *triple, t in facts.ids.tolist():
        times.setdefault(tuple(triple), set()).add(t)
    return times


def average_precision(scores: list[float], truth: list[bool]) -> float:
    area = 0.0
    for level in set(scores):
        taken = [y for x, y in zip(scores, truth, strict=True) if x >= level]
        new = sum(y for x, y in zip(scores, truth, strict=True) if x == level)
        area += new * sum(taken) / len(taken)
    return area / sum(truth)


def as_set(facts: Facts) -> set[tuple[int, ...]]:
    return set(map(tuple, facts.ids.tolist()))


@pytest.mark.parametrize("share", [0.3, 0.8])
def test_a_sample_has_whole_triples(small_world, share):
    everything = current(small_world)
    sample = projection.draw_sample(small_world, share, seed=1)
    triples = times_of_triples(sample.state).keys()
    assert len(triples) == len(sample.state) == int(share * len(everything))
    assert as_set(sample.genuine) == {row for row in as_set(everything.true()) if row[:3] in triples}
    assert as_set(sample.false) == as_set(sample.state) - as_set(sample.genuine)
    assert as_set(sample.starts) == {row for row in as_set(starts(small_world)) if row[:3] in triples}
    assert as_set(sample.ends) == {row for row in as_set(ends(small_world)) if row[:3] in triples}
    assert as_set(projection.draw_sample(small_world, share, seed=1).state) == as_set(sample.state)
    assert as_set(projection.draw_sample(small_world, share, seed=2).state) != as_set(sample.state)


@pytest.mark.parametrize("dense", [False, True])
def test_exact_auprc_and_states_by_brute_force(small_world, dense):
    many_runs = random_facts(300, {"entity": 5, "predicate": 2, "time": 24})
    graph = small_world.with_splits({"train": many_runs}) if dense else small_world
    times, last = times_of_triples(graph.facts), len(graph.times) - 1
    started = {triple: sum(t - 1 not in held for t in held) for triple, held in times.items()}
    ended = {triple: sum(t + 1 not in held for t in held if t < last) for triple, held in times.items()}
    truth = [last in held for held in times.values()]
    exact = projection.exact_auprc(graph)
    assert exact["start"] == pytest.approx(average_precision(list(started.values()), truth))
    now = [started[triple] - ended[triple] for triple in times]
    assert exact["start-end"] == pytest.approx(average_precision(now, truth))
    triples = Facts.of([(*triple, 0) for triple in sorted(times)])
    states = as_of.holds_at(graph.facts, triples, graph.sizes)
    assert states.tolist() == [[t in times[triple] for t in range(last + 1)] for triple in sorted(times)]


@pytest.mark.parametrize(("name", "form"), [("rescal", "semantic"), ("distmult", "episodic")])
def test_states_are_evaluated_as_by_brute_force(small_world, name, form):
    facts, n, last = random_facts(300, {"entity": 23, "predicate": 2, "time": 3}), 23, len(small_world.times) - 1
    graph = small_world.with_splits({"train": facts.with_slot("t", last - facts.t)})
    sample = projection.draw_sample(graph, 0.8, seed=0)
    model = random_model(name, form, 3, sizes=small_world.sizes)
    found = projection.evaluate_state(model, sample)
    cells = list(product(range(n), range(2), range(n)))
    score = dict(zip(cells, model.score(Facts.of([(*cell, last) for cell in cells])).tolist(), strict=True))
    scores = [score[s, p, o] for s, p, o, _ in sample.state.ids.tolist()]
    assert found["auprc"] == pytest.approx(average_precision(scores, sample.state.truth.tolist()))
    for suffix, triples_of_kind in (("", sample.genuine), (" false", sample.false)):
        triples, hits = times_of_triples(triples_of_kind).keys(), {"raw": 0, "filtered": 0}
        for s, p, o in triples:
            for others in ([(e, p, o) for e in range(n)], [(s, p, e) for e in range(n)]):
                better = [cell for cell in others if score[cell] > score[s, p, o]]
                hits["raw"] += len(better) < 10
                hits["filtered"] += len([cell for cell in better if cell not in triples]) < 10
        assert hits["raw"] < hits["filtered"]
        for setting, count in hits.items():
            assert found[setting + suffix] == pytest.approx(count / (2 * len(triples)))


@pytest.mark.parametrize("name", ["distmult", pytest.param("cont", marks=pytest.mark.long)])
def test_ends_are_learned_in_the_time_table_alone(small_world, name):
    sample = projection.draw_sample(small_world, 0.8, seed=0)
    learned = random_model(name, "episodic", 3, "float32", sizes=small_world.sizes)
    before = {key: weights.clone() for key, weights in learned.state_dict().items()}
    recipe = Recipe(loss="ranking", sigmoid=False, learning_rate=0.02)
    first, last = (projection.learn_ends(replace(recipe, epochs=epochs), sample, learned, 0) for epochs in (1, 60))
    for key, weights in learned.state_dict().items():
        assert torch.equal(weights, before[key]), key
    mrr = projection.time_mrr(learned, last, sample.ends, sample)
    assert mrr > projection.time_mrr(learned, first, sample.ends, sample)
    assert mrr > projection.time_mrr(learned, last, sample.starts, sample)


@pytest.mark.parametrize("name", ["tucker", "cont"])
def test_the_semantic_counterpart_learns_the_state(small_world, tmp_path, monkeypatch, name):
    sample, seen, train = projection.draw_sample(small_world, 0.8, seed=0), [], Workspace.train

    def watched(self, graph, config, recipe, *, seed):
        seen.append((config.model, config.form, config.dim, seed))
        assert as_set(graph.facts.true()) == as_set(sample.genuine)
        assert as_set(graph.split("train")) == as_set(sample.state)
        return train(self, graph, config, recipe, seed=seed)

    monkeypatch.setattr(Workspace, "train", watched)
    series = projection.QUICK[0]
    found = projection.learn_semantic(Workspace(tmp_path), series, small_world, sample, name, 4, 3)
    assert seen == [("rescal" if name == "cont" else name, "semantic", 4, 3)]
    assert 0 < found["auprc"] <= 1


@pytest.fixture
def perfect_model(small_world):
    """Return a ConT whose cores are the adjacency tensor: θ is 1 for facts and 0 elsewhere."""
    n, m = small_world.sizes["entity"], small_world.sizes["predicate"]
    cores = torch.zeros(len(small_world.times), n, m, n)
    for s, p, o, t in small_world.facts.ids.tolist():
        cores[t, s, p, o] = 1
    model = build_model(ModelConfig(model="cont", dim=n, predicate_dim=m), small_world.sizes)
    return model.with_rows({"entity": torch.eye(n), "predicate": torch.eye(m), "time": cores})


@pytest.fixture
def _trained_perfectly(monkeypatch, perfect_model, small_world):
    """Let every episodic training return the perfect model."""
    static = random_model("rescal", "semantic", 3, sizes=small_world.sizes)

    def train(_space, _graph, config, _recipe, **_):
        return SimpleNamespace(model=perfect_model if config.form == "episodic" else static)

    monkeypatch.setattr(Workspace, "train", train)


@pytest.mark.usefixtures("_trained_perfectly")
def test_a_model_that_reconstructs_everything_knows_what_held_at_every_time(small_world, tmp_path):
    counts = torch.bincount(small_world.facts.t).tolist()
    least = sorted(counts)[len(counts) // 2]
    found = as_of.compute_curves(Workspace(tmp_path), replace(as_of.QUICK[0], least=least), small_world)
    assert found["true"] == [count for count in counts if count >= least]
    assert found["times"] == [small_world.times.label(t) for t, count in enumerate(counts) if count >= least]
    for memory in ("start-end", "episodic"):
        assert found["auprc"][memory] == pytest.approx([1.0] * len(found["times"]))
    assert max(found["auprc"]["static"]) < 1
    assert found["auprc"]["start"][-1] < 0.8


@pytest.mark.usefixtures("_trained_perfectly")
def test_a_model_that_reconstructs_everything_knows_what_holds_now(small_world, tmp_path):
    series = replace(projection.QUICK[0], sample=1.0)
    point = projection.compute_point(Workspace(tmp_path), series, small_world, "cont", 3, 0)
    assert point["closed"]["starts time mrr"] == point["closed"]["ends time mrr"] == pytest.approx(1)
    assert point["closed"]["start-end"]["auprc"] == pytest.approx(1)
    assert point["closed"]["start"]["auprc"] < 0.8
