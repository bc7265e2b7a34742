"""Ranks equal a loop over every query and candidate, ties and filters included; metrics equal those by hand."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conftest import FORMED, SIZES, generator, random_facts, random_model
from recollect import Facts, UserError
from recollect.engine import parallel
from recollect.evaluation import ranking as ranking_module
from recollect.evaluation.baselines import Baseline
from recollect.evaluation.metrics import Evaluation, evaluate, summarise
from recollect.evaluation.ranking import QueryScorer, Ranking, rank
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import KINDS, SLOTS


class TableScorer:
    """Scores read from a dense table of small whole numbers, so that many are equal."""

    def __init__(self, seed=0, levels=4):
        shape = [SIZES[KINDS[slot]] for slot in SLOTS]
        self.table = torch.randint(levels, shape, generator=generator(seed)).float()
        self.calls = []

    def score(self, facts):
        return self.table[tuple(facts.column(slot) for slot in SLOTS)]

    def score_against(self, facts, slot, candidates=None):
        table = self.table.movedim(SLOTS.index(slot), -1)
        others = [facts.column(s) for s in SLOTS if s != slot]
        scores = table[tuple(others)]
        self.calls.append(scores.shape)
        return scores if candidates is None else scores.gather(1, candidates)


def loop_ranks(scorer, facts, known_rows, slot, filtered, policy):
    """Return ranks by their definition, query by query and candidate by candidate."""
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


class TableQueryScorer(TableScorer):
    """The same scores as products of queries (the rows of the table) and candidates (unit vectors)."""

    def queries(self, facts, slot):
        return self.score_against(facts, slot)

    def candidates(self, slot):
        return torch.eye(SIZES[KINDS[slot]])


@given(
    kind=st.sampled_from([TableScorer, TableQueryScorer]),
    seed=st.integers(0, 500),
    slot=st.sampled_from(SLOTS),
    budget=st.sampled_from([1, 100, 10**6]),
)
def test_ranks_equal_the_definition(kind, seed, slot, budget):
    scorer, facts = kind(seed), random_facts(12, seed=seed)
    known_facts = Facts.concat([facts, random_facts(30, seed=seed + 1)])
    rankings = rank(scorer, facts, slot, known=FactIndex(known_facts, SIZES), budget=budget)
    for setting in ("raw", "filtered"):
        for policy in ("realistic", "optimistic", "pessimistic"):
            expected = loop_ranks(scorer, facts, known_facts.ids.tolist(), slot, setting == "filtered", policy)
            assert rankings[setting].ranks(policy).tolist() == expected


def test_memory_is_bounded_by_the_budget():
    scorer, facts = TableScorer(), random_facts(100)
    rank(scorer, facts, "o", known=FactIndex(facts, SIZES), budget=8 * 5 * 10)
    assert len(scorer.calls) == 10
    assert all(rows * columns * 8 <= 400 for rows, columns in scorer.calls)


@pytest.mark.parametrize("kind", [TableScorer, TableQueryScorer])
def test_nan_is_refused(kind):
    scorer, facts = kind(), random_facts(5)
    scorer.table[facts.s[0], facts.p[0], 2, facts.t[0]] = float("nan")
    with pytest.raises(UserError, match="scores some object as NaN"):
        rank(scorer, facts, "o", known=FactIndex(facts, SIZES))


def test_infinite_scores_are_ranked():
    scorer, facts = TableScorer(), random_facts(5)
    scorer.table[..., 0, :] = float("inf")
    scorer.table[..., 1, :] = -float("inf")
    ranks = rank(scorer, facts, "o", known=FactIndex(facts, SIZES))["raw"].ranks()
    assert ranks.tolist() == loop_ranks(scorer, facts, [], "o", False, "realistic")


def test_constant_scores_earn_chance_not_perfection():
    scorer, facts = TableScorer(levels=1), random_facts(50)
    report = evaluate(scorer, facts, known=FactIndex(Facts.of([]), SIZES), slots="spot")["filtered"]
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
    report = evaluate(scorer, facts, known=FactIndex(facts, SIZES), slots="so")
    for setting in ("filtered", "raw"):
        both = report[setting]
        assert list(both) == ["subject", "object", "entity"]
        mean = (both["subject"]["mrr"] + both["object"]["mrr"]) / 2
        assert both["entity"]["mrr"] == pytest.approx(mean)
    assert set(evaluate(scorer, facts, known=FactIndex(facts, SIZES), slots="t")["raw"]) == {"time"}


def assert_same_rankings(first, second):
    assert first.keys() == second.keys() == {"raw", "filtered"}
    for setting, ranking in first.items():
        for name, value in vars(ranking).items():
            assert torch.equal(value, getattr(second[setting], name)), (setting, name)


class WithoutQueries:
    """A model as a scorer that offers no queries."""

    def __init__(self, model):
        self.score, self.score_against = model.score, model.score_against


@pytest.mark.parametrize(("name", "form"), FORMED)
def test_models_are_ranked_alike_by_queries_and_by_scores(name, form):
    model, facts = random_model(name, form), random_facts(90)
    known = FactIndex(model.normalize(Facts.concat([facts[:60], random_facts(60, seed=1)])), SIZES)
    facts = model.normalize(facts)
    assert isinstance(model, QueryScorer)
    assert not isinstance(WithoutQueries(model), QueryScorer)
    for slot in model.slots:
        by_scores = rank(WithoutQueries(model), facts, slot, known=known)
        assert_same_rankings(rank(model, facts, slot, known=known), by_scores)
        assert_same_rankings(rank(model, facts, slot, known=known, budget=1), by_scores)


@pytest.mark.parametrize(("name", "form"), FORMED)
def test_small_blocks_on_several_threads_give_the_same_ranks(name, form, monkeypatch):
    model, facts = random_model(name, form), random_facts(100)
    known = FactIndex(facts, SIZES)
    whole = [rank(model, facts, slot, known=known) for slot in model.slots]
    monkeypatch.setattr(ranking_module, "QUERY_FACTS", 15)
    monkeypatch.setattr(parallel, "MIN_WORK", 0)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        parts = [rank(model, facts, slot, known=known, budget=8 * 4 * 9) for slot in model.slots]
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
    for one, other in zip(whole, parts, strict=True):
        assert_same_rankings(one, other)


@pytest.mark.parametrize("kind", [TableScorer, TableQueryScorer])
@pytest.mark.parametrize("at", ["own", "other", "known"])
def test_nan_is_refused_wherever_it_is(kind, at):
    scorer, facts = kind(), Facts.of([(0, 0, 1, 0), (1, 1, 1, 1)])
    known = FactIndex(Facts.of([(1, 1, 2, 1)]), SIZES)
    scorer.table[1, 1, {"own": 1, "other": 3, "known": 2}[at], 1] = float("nan")
    for budget in (1, 10**6):
        with pytest.raises(UserError, match="the model scores some object as NaN, so nothing can be ranked"):
            rank(scorer, facts, "o", known=known, budget=budget)


class Converted:
    """The scores of another scorer, converted by a function."""

    def __init__(self, scorer, convert):
        self.scorer, self.convert = scorer, convert

    def score_against(self, facts, slot, candidates=None):
        return self.convert(self.scorer.score_against(facts, slot))


CONVERSIONS = [torch.Tensor.double, torch.Tensor.long, torch.Tensor.half, lambda x: x.T.contiguous().T]


@pytest.mark.parametrize("convert", CONVERSIONS, ids=["double", "long", "half", "transposed"])
def test_scores_of_any_dtype_and_layout_are_ranked(convert):
    scorer, facts = TableScorer(), random_facts(30)
    known = FactIndex(facts, SIZES)
    expected = rank(scorer, facts, "o", known=known)
    assert_same_rankings(rank(Converted(scorer, convert), facts, "o", known=known), expected)


@pytest.mark.parametrize("name", ["complex", "cont"])
@pytest.mark.parametrize("slot", "ot")
def test_no_facts_have_no_ranks(name, slot):
    rankings = rank(random_model(name, "episodic"), Facts.of([]), slot, known=FactIndex(random_facts(5), SIZES))
    assert rankings["filtered"].ranks().shape == (0,)


@pytest.mark.parametrize("wrong", [-1, 5])
def test_facts_to_rank_must_have_valid_ids(wrong):
    facts = random_facts(9)  # 5 entities
    with pytest.raises(IndexError, match="from 0 to 4"):
        rank(random_model("distmult", "episodic"), facts.with_slot("o", wrong), "o", known=FactIndex(facts, SIZES))


@pytest.mark.parametrize("slot", SLOTS)
def test_a_baseline_is_ranked_like_a_model(slot):
    facts = random_facts(60)
    baseline = Baseline(facts[:40], SIZES, decay=1.0)
    assert torch.equal(baseline.score(facts), baseline.score_against(facts, "o").gather(1, facts.o[:, None])[:, 0])
    rankings = rank(baseline, facts, slot, known=FactIndex(facts, SIZES))
    ranks = rankings["filtered"].ranks()
    assert ranks[:40].mean() < ranks[40:].mean()  # the first 40 facts were counted


def test_an_evaluation_is_a_dictionary_and_a_tidy_frame():
    scorer, facts = TableScorer(), random_facts(40)
    report = evaluate(scorer, facts, known=FactIndex(facts, SIZES), slots="so")
    reliability = {"brier": 0.25, "log_loss": 0.5, "expected_error": 0.125, "bins": [{"from": 0.0}]}
    calibration = {"object": {"before": reliability, "after": reliability | {"brier": 0.0625}}}
    found = Evaluation("valid", 40, report["filtered"], report["raw"], calibration)
    assert found.to_dict() == {
        **{"split": "valid", "facts": 40, **report, "calibration": calibration},
        **{"protocol": "interpolation", "intervals": {}},
    }
    frame = found.to_frame()
    assert frame.columns == ["split", "slot", "filter", "metric", "value"]
    assert frame["split"].unique().to_list() == ["valid"]
    assert frame.select("slot", "filter", "metric").is_unique().all()
    values = {row[1:4]: row[4] for row in frame.rows()}
    assert values["subject", "raw", "hits@3"] == report["raw"]["subject"]["hits@3"]
    assert values["entity", "filtered", "mrr_optimistic"] == report["filtered"]["entity"]["optimistic"]["mrr"]
    assert values["object", None, "brier"] == 0.0625
    assert values["object", None, "brier_uncalibrated"] == 0.25
    assert len(values) == 2 * 3 * 3 * 6 + 2 * 3
    mrr, hits = (report["filtered"]["entity"][name] for name in ("mrr", "hits@10"))
    assert repr(found) == f"Evaluation(valid, 40 facts, filtered entity MRR {mrr:.3f}, Hits@10 {hits:.3f})"
