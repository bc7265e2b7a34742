"""Ranks against a loop over every query and candidate, ties and filters included."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conftest import SIZES, generator, random_facts
from recollect import Facts, UserError
from recollect.facts import KINDS, SLOTS
from recollect.known import Known
from recollect.metrics import evaluate, summarise
from recollect.ranks import Ranking, rank


class TableScorer:
    """Scores read from a dense table of whole numbers, so that ties abound; no model at all."""

    def __init__(self, seed=0, levels=4):
        shape = [SIZES[KINDS[slot]] for slot in SLOTS]
        self.table = torch.randint(levels, shape, generator=generator(seed)).float()
        self.calls = []

    def score_against(self, facts, slot, candidates=None):
        index = [facts.column(s) for s in SLOTS]
        index[SLOTS.index(slot)] = slice(None)
        table = self.table.movedim(SLOTS.index(slot), -1)
        others = [facts.column(s) for s in SLOTS if s != slot]
        scores = table[tuple(others)]
        self.calls.append(scores.shape)
        return scores if candidates is None else scores.gather(1, candidates)


def loop_ranks(scorer, facts, known_rows, slot, filtered, policy):
    """The definition, query by query."""
    at, found = SLOTS.index(slot), []
    for row in facts.ids.tolist():
        true = scorer.table[tuple(row)].item()
        greater = ties = 0
        for candidate in range(SIZES[KINDS[slot]]):
            other = [*row[:at], candidate, *row[at + 1 :]]
            if candidate == row[at] or (filtered and other in known_rows):
                continue
            score = scorer.table[tuple(other)].item()
            greater += score > true
            ties += score == true
        found.append(1 + greater + {"realistic": 0.5, "optimistic": 0, "pessimistic": 1}[policy] * ties)
    return found


@given(seed=st.integers(0, 500), slot=st.sampled_from(SLOTS), budget=st.sampled_from([1, 100, 10**6]))
def test_ranks_equal_the_definition(seed, slot, budget):
    scorer, facts = TableScorer(seed), random_facts(12, seed=seed)
    known_facts = Facts.concat([facts, random_facts(30, seed=seed + 1)])
    rankings = rank(scorer, facts, slot, known=Known(known_facts, SIZES), budget=budget)
    for setting in ("raw", "filtered"):
        for policy in ("realistic", "optimistic", "pessimistic"):
            expected = loop_ranks(scorer, facts, known_facts.ids.tolist(), slot, setting == "filtered", policy)
            assert rankings[setting].ranks(policy).tolist() == expected


def test_memory_is_bounded_by_the_budget():
    scorer, facts = TableScorer(), random_facts(100)
    rank(scorer, facts, "o", known=Known(facts, SIZES), budget=8 * 5 * 10)
    assert len(scorer.calls) == 10
    assert all(rows * columns * 8 <= 400 for rows, columns in scorer.calls)


def test_nan_is_refused():
    scorer, facts = TableScorer(), random_facts(5)
    scorer.table[facts.s[0], facts.p[0], 2, facts.t[0]] = float("nan")
    with pytest.raises(UserError, match="scores some object as NaN"):
        rank(scorer, facts, "o", known=Known(facts, SIZES))


def test_infinite_scores_are_ranked():
    scorer, facts = TableScorer(), random_facts(5)
    scorer.table[..., 0, :] = float("inf")
    scorer.table[..., 1, :] = -float("inf")
    ranks = rank(scorer, facts, "o", known=Known(facts, SIZES))["raw"].ranks()
    assert ranks.tolist() == loop_ranks(scorer, facts, [], "o", False, "realistic")


def test_constant_scores_earn_chance_not_perfection():
    scorer, facts = TableScorer(levels=1), random_facts(50)
    report = evaluate(scorer, facts, known=Known(Facts.of([]), SIZES), slots="spot")["filtered"]
    assert report["object"]["mean_rank"] == 3.0
    assert report["object"]["adjusted_mean_rank_index"] == pytest.approx(0)
    assert report["object"]["mrr"] == pytest.approx(1 / 3)
    assert report["object"]["optimistic"]["mrr"] == 1.0
    assert report["object"]["pessimistic"]["mrr"] == pytest.approx(1 / 5)


def test_summary_by_hand():
    ranking = Ranking(torch.tensor([0, 1, 9]), torch.tensor([0, 1, 0]), torch.tensor([20, 20, 20]))
    figures = summarise([ranking])
    assert figures["mrr"] == pytest.approx((1 + 1 / 2.5 + 1 / 10) / 3)
    assert figures["hits@1"] == pytest.approx(1 / 3)
    assert figures["hits@3"] == pytest.approx(2 / 3)
    assert figures["hits@10"] == 1.0
    assert figures["mean_rank"] == pytest.approx(13.5 / 3)
    assert figures["adjusted_mean_rank_index"] == pytest.approx(1 - (4.5 - 1) / 10)


def test_entity_is_subject_and_object_together():
    scorer, facts = TableScorer(), random_facts(40)
    report = evaluate(scorer, facts, known=Known(facts, SIZES), slots="so")
    for setting in ("filtered", "raw"):
        both = report[setting]
        assert list(both) == ["subject", "object", "entity"]
        mean = (both["subject"]["mrr"] + both["object"]["mrr"]) / 2
        assert both["entity"]["mrr"] == pytest.approx(mean)
    assert set(evaluate(scorer, facts, known=Known(facts, SIZES), slots="t")["raw"]) == {"time"}
