"""The tables: the search chooses on validation alone, and printed formulas are the parameter counts."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch

from conftest import ALONE, generator, random_facts
from paper import costs, tables
from paper.workspace import Workspace
from recollect import MODELS, EpisodicGraph, Facts, ModelConfig, Recipe
from recollect.evaluation.metrics import summarise
from recollect.evaluation.ranking import rank
from recollect.graph.fact_index import FactIndex
from recollect.models.zoo import parameter_count

SEARCH = tables.Search(
    data="small",
    dims={"distmult": (3, 5), "cont": (2, 3)},
    rates=(0.5, 0.1),
    epochs=(1, 2, 9),
    recipe=Recipe(validate_every=1, patience=3, batch_size=256),
)


def value_of(formula: str, symbols: dict[str, int]) -> int:
    """Return the value of a printed formula, in which adjacent factors are multiplied."""
    words = re.findall(r"N_[ept]|r_t|r|\d+|[()+²³]", formula)
    assert "".join(words) == formula.replace(" ", "")
    python = ""
    for before, word in zip(["(", *words], words, strict=False):
        if before not in "(+" and word not in ")+²³":
            python += "*"
        python += {"²": "**2", "³": "**3"}.get(word) or str(symbols.get(word, word))
    return eval(python)


def test_printed_formulas_are_the_parameter_counts():
    assert value_of("2 (N_e + 3) r² + r_t", {"N_e": 4, "r": 5, "r_t": 7}) == 357
    printed = {(model, form) for model, forms in costs.FORMULAS.items() for form in forms}
    assert printed == set(ALONE) - {("tree", "semantic"), ("cont", "semantic")}  # not in the paper
    for model, form in printed:
        for n_e, n_p, n_t, r, r_t in ((258, 20, 72, 40, 40), (7, 3, 5, 2, 2), (7, 3, 5, 2, 11), (31, 17, 13, 6, 1)):
            if r_t == r or (model, form) in (("tree", "episodic"), ("tucker", "episodic")):
                sizes = {"entity": n_e, "predicate": n_p, "time": n_t}
                config = ModelConfig(model=model, dim=r, time_dim=r_t, form=form)
                symbols = {"N_e": n_e, "N_p": n_p, "N_t": n_t, "r": r, "r_t": r_t}
                assert value_of(costs.FORMULAS[model][form], symbols) == parameter_count(config, sizes)


def run_search(graph: EpisodicGraph, folder: Path, monkeypatch):
    """Return the rows of a search, the order of its trials and tests, and validation metrics of the tested models."""
    steps, validated, evaluate, trial = [], [], tables.evaluate, tables._trial

    def watched_trial(space, search, seen, model, *setting):
        steps.append(("trial", model))
        return trial(space, search, seen, model, *setting)

    def watched_evaluate(model, facts, *, known):
        steps.append(("test", next(name for name, kind in MODELS.items() if kind is type(model))))
        assert torch.equal(facts.ids, graph.split("test").ids)
        assert bool(known.contains(graph.facts).all())
        index = FactIndex(Facts.concat([graph.split("train"), graph.split("valid")]), graph.sizes)
        rankings = [rank(model, graph.split("valid"), slot, known=index)["filtered"] for slot in "so"]
        validated.append(summarise(rankings))
        return evaluate(model, facts, known=known)

    with monkeypatch.context() as patched:
        patched.setattr(tables, "QUICK", SEARCH)
        patched.setattr(tables, "_split_graph", lambda *_: graph)
        patched.setattr(tables, "_trial", watched_trial)
        patched.setattr(tables, "evaluate", watched_evaluate)
        return tables.run("icews", Workspace(folder, quick=True))["rows"], steps, validated


def chosen(rows):
    keys = ("model", "dim", "learning_rate", "epoch", "valid_mrr")
    return [{key: row[key] for key in keys} for row in rows]


def test_a_search_never_uses_the_test_split(small_world, tmp_path, monkeypatch):
    rows, steps, validated = run_search(small_world, tmp_path / "one", monkeypatch)
    assert steps == [(what, model) for model in SEARCH.dims for what in ["trial"] * (4 + 2 + 1) + ["test"] * 2]
    assert any(row["epoch"] < SEARCH.epochs[-1] for row in rows)
    # the tested model is the chosen one with its best weights
    assert [row["valid_mrr"] for row in rows] == pytest.approx([metrics["mrr"] for metrics in validated[::2]])
    other = small_world.with_splits({**small_world.splits, "test": random_facts(300, small_world.sizes)})
    changed, _, _ = run_search(other, tmp_path / "two", monkeypatch)
    assert chosen(rows) == chosen(changed)
    assert rows[0]["entity"] != changed[0]["entity"]
    assert all(row["every_slot"]["predicate"] != row["predicate"] for row in rows)


@pytest.mark.parametrize("seed", range(6))
def test_the_winner_is_the_best_of_the_finalists(tmp_path, monkeypatch, seed):
    dims, rates, epochs = (10, 20, 30), (1e-3, 1e-4, 5e-5), (2, 6, 40)
    settings, tried = list(product(dims, rates)), []
    draws = torch.rand(3, 9, generator=generator(seed)).tolist()
    mrr = {count: dict(zip(settings, row, strict=True)) for count, row in zip(epochs, draws, strict=True)}

    def trial(_space, _search, _graph, _model, dim, rate, count):
        tried.append((dim, rate, count))
        return {"valid_mrr": mrr[count][dim, rate], "best_epoch": count, "epochs": count}

    monkeypatch.setattr(tables, "_trial", trial)
    search = replace(SEARCH, dims={"cont": dims}, rates=rates, epochs=epochs)
    best = tables.find_best(Workspace(tmp_path), search, None, "cont", settings)
    third = sorted(settings, key=mrr[2].get)[-3:]
    winner = max(third, key=mrr[6].get)
    expected = [(*s, 2) for s in settings] + [(*s, 6) for s in third] + [(*winner, 40)]
    assert sorted(tried) == sorted(expected)
    assert (best["dim"], best["rate"], best["valid_mrr"]) == (*winner, mrr[40][winner])
    last_epochs = {(dim, rate): count for dim, rate, count in sorted(expected, key=lambda each: each[2])}
    assert {(each["dim"], each["learning_rate"]): each["valid_mrr"] for each in best["trials"]} == {
        setting: mrr[last_epochs[setting]][setting] for setting in settings
    }
