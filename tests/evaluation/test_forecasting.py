"""Forecasts one step ahead, and the evaluator of the Temporal Graph Benchmark."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

from recollect import UserError
from recollect.evaluation.forecasting import SingleStep
from recollect.evaluation.metrics import evaluate
from recollect.evaluation.tgb import evaluate_with_tgb
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import Facts
from recollect.history.history import History

SIZES = {"entity": 6, "predicate": 2, "time": 8}


@pytest.fixture
def facts():
    generator = torch.Generator().manual_seed(0)
    columns = [torch.randint(size, (60,), generator=generator) for size in (6, 2, 6, 8)]
    return Facts.from_columns(*columns)


@pytest.fixture
def history(facts):
    return History.fit(facts[facts.t < 5], SIZES, asked="o", past=True)


@pytest.mark.parametrize("slot", ["s", "o"])
def test_questions_of_mixed_times_are_answered_from_the_facts_before_each(facts, history, slot):
    asked = facts[facts.t >= 5]
    expected = [history.with_facts(facts[facts.t < fact.t]).score_against(fact, slot) for fact in asked.split(1)]
    found = SingleStep(history.with_facts, facts).score_against(asked, slot)
    assert torch.equal(found, torch.cat(expected))


def test_later_facts_do_not_change_a_forecast(facts, history):
    asked = facts[facts.t == 5]
    with_later = SingleStep(history.with_facts, facts).score_against(asked, "o")
    without = SingleStep(history.with_facts, facts[facts.t < 5]).score_against(asked, "o")
    assert torch.equal(with_later, without)


@pytest.mark.parametrize("candidates", [torch.tensor([4, 0]), None])
def test_candidates_are_those_that_were_given(facts, history, candidates):
    scorer, asked = SingleStep(history.with_facts, facts), facts[facts.t >= 5]
    every = scorer.score_against(asked, "o")
    given = asked.o[:, None] if candidates is None else candidates
    expected = scorer.score(asked)[:, None] if candidates is None else every[:, candidates]
    assert torch.equal(scorer.score_against(asked, "o", given), expected)


class Evaluator:
    """The official definition, one fact at a time, for machines without py-tgb."""

    def __init__(self, name):
        if name != "tkgl-yago":
            raise NotImplementedError

    def eval(self, asked):
        true, others = asked["y_pred_pos"][:, None], asked["y_pred_neg"]
        rank = 1 + ((others > true).sum(1) + (others >= true).sum(1)) / 2
        return {"mrr": np.mean(1 / rank), "hits@10": np.mean(rank <= 10)}


@pytest.fixture
def evaluator(monkeypatch):
    """Install a stand-in for py-tgb."""
    module = type(sys)("tgb.linkproppred.evaluate")
    module.Evaluator = Evaluator
    for name in ("tgb", "tgb.linkproppred"):
        monkeypatch.setitem(sys.modules, name, type(sys)(name))
    monkeypatch.setitem(sys.modules, "tgb.linkproppred.evaluate", module)


def compare_with_own(facts, history):
    scorer, asked = SingleStep(history.with_facts, facts), facts[facts.t >= 5]
    known = FactIndex(facts, SIZES)
    own = evaluate(scorer, asked, known=known, slots="so")["filtered"]["entity"]
    found = evaluate_with_tgb(scorer, asked, known=known, benchmark="tkgl-yago")
    assert found == pytest.approx({"mrr": own["mrr"], "hits@10": own["hits@10"]}, rel=1e-5)


def test_the_stand_in_evaluator_agrees_with_ours(evaluator, facts, history):
    compare_with_own(facts, history)


def test_the_official_evaluator_agrees_with_ours(facts, history):
    pytest.importorskip("tgb", reason="py-tgb is not installed")
    compare_with_own(facts, history)


def test_an_unknown_benchmark_is_refused(evaluator, facts, history):
    with pytest.raises(UserError, match="no benchmark 'tkgl-mars'; give one such as tkgl-yago"):
        evaluate_with_tgb(history, facts, known=FactIndex(facts, SIZES), benchmark="tkgl-mars")


def test_a_missing_evaluator_names_the_extra(monkeypatch, facts, history):
    monkeypatch.setitem(sys.modules, "tgb.linkproppred.evaluate", None)
    with pytest.raises(UserError, match=r"pip install 'recollect\[tgb\]'"):
        evaluate_with_tgb(history, facts, known=FactIndex(facts, SIZES), benchmark="tkgl-yago")
