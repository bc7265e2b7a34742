"""Ranks against a loop over every query and candidate, ties and filters included."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conftest import FORMED, SIZES, generator, random_facts, random_model
from recollect import Facts, UserError
from recollect.engine import ops as kernels
from recollect.engine import parallel as threads
from recollect.engine.kernels import COUNTED, count_better, count_better_of
from recollect.engine.ops import strips
from recollect.evaluation.metrics import evaluate, summarise
from recollect.evaluation.ranking import Ranking, rank
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import KINDS, SLOTS
from recollect.models import tensor_model as models


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


def test_nan_is_refused():
    scorer, facts = TableScorer(), random_facts(5)
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


def both_ways(monkeypatch, *arguments, **options):
    """The rankings of the compiled comparison and of the plain one."""
    found = []
    for native in (True, False):
        with monkeypatch.context() as patch:
            patch.setattr(kernels, "NATIVE", native)
            found.append(rank(*arguments, **options))
    return found


def assert_same_rankings(first, second):
    assert first.keys() == second.keys() == {"raw", "filtered"}
    for setting, ranking in first.items():
        for name, value in vars(ranking).items():
            assert torch.equal(value, getattr(second[setting], name)), (setting, name)


@pytest.mark.parametrize("slot", SLOTS)
@pytest.mark.parametrize("budget", [1, 8 * 5 * 7, 10**6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_compiled_and_plain_comparisons_agree_on_ties(monkeypatch, slot, budget, dtype):
    scorer, facts = TableScorer(levels=3), random_facts(40)
    scorer.table = scorer.table.to(dtype)
    # facts that nobody knows, known ones, and known ones twice
    known = FactIndex(Facts.concat([facts[:30], facts[:5], random_facts(60, seed=1)]), SIZES)
    compiled, plain = both_ways(monkeypatch, scorer, facts, slot, known=known, budget=budget)
    assert_same_rankings(compiled, plain)
    assert compiled["raw"].ties.any()
    assert (compiled["filtered"].others < compiled["raw"].others).any()


@pytest.mark.parametrize(("name", "form"), FORMED)
def test_compiled_and_plain_comparisons_agree_on_models(monkeypatch, name, form):
    model, facts = random_model(name, form), random_facts(90)
    with torch.no_grad():
        model.entity[3] = model.entity[1]  # ties
    known = FactIndex(model.as_modelled(Facts.concat([facts[:60], random_facts(60, seed=1)])), SIZES)
    for slot in model.indicator.slots:
        compiled, plain = both_ways(monkeypatch, model, model.as_modelled(facts), slot, known=known)
        assert_same_rankings(compiled, plain)
        few = rank(model, model.as_modelled(facts), slot, known=known, budget=1)
        assert_same_rankings(compiled, few)


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("at", ["own", "other", "known"])
def test_nan_is_refused_wherever_it_is(monkeypatch, native, at):
    monkeypatch.setattr(kernels, "NATIVE", native)
    scorer, facts = TableScorer(), Facts.of([(0, 0, 1, 0), (1, 1, 1, 1)])
    known = FactIndex(Facts.of([(1, 1, 2, 1)]), SIZES)
    scorer.table[1, 1, {"own": 1, "other": 3, "known": 2}[at], 1] = float("nan")
    for budget in (1, 10**6):
        with pytest.raises(UserError, match="the model scores some object as NaN, so nothing can be ranked"):
            rank(scorer, facts, "o", known=known, budget=budget)


@pytest.mark.parametrize("native", [True, False])
def test_scores_of_any_type_and_layout_are_ranked(monkeypatch, native):
    monkeypatch.setattr(kernels, "NATIVE", native)
    scorer, facts = TableScorer(), random_facts(30)
    known = FactIndex(facts, SIZES)
    expected = rank(scorer, facts, "o", known=known)

    for change in (torch.Tensor.double, torch.Tensor.long, torch.Tensor.half, lambda x: x.T.contiguous().T):
        assert_same_rankings(rank(Changed(scorer, change), facts, "o", known=known), expected)


class Changed:
    """The same scores in another form."""

    def __init__(self, scorer, change):
        self.scorer, self.change = scorer, change

    def score_against(self, facts, slot, candidates=None):
        return self.change(self.scorer.score_against(facts, slot))


@pytest.mark.parametrize("name", ["complex", "cont"])
def test_no_facts_have_no_ranks(name):
    for slot in "ot":
        rankings = rank(random_model(name, "episodic"), Facts.of([]), slot, known=FactIndex(random_facts(5), SIZES))
        assert rankings["filtered"].ranks().shape == (0,)


@pytest.mark.parametrize(("name", "form"), FORMED)
def test_pieces_and_threads_rank_alike(name, form, monkeypatch):
    """Facts in several rounds, each of several threads with several stretches, pieces and blocks."""
    model, facts = random_model(name, form), random_facts(100)
    known = FactIndex(facts, SIZES)
    slots = model.indicator.slots
    whole = [rank(model, facts, slot, known=known) for slot in slots]
    monkeypatch.setattr(models, "ROUND", 70)
    monkeypatch.setattr(models, "QUERIES", 15)
    monkeypatch.setattr(models, "WORK_BYTES", 4000)
    monkeypatch.setattr(threads, "WORTH", 0)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        parts = [rank(model, facts, slot, known=known, budget=8 * 4 * 9) for slot in slots]
    finally:
        torch.set_num_threads(before)
    for a, b in zip(whole, parts, strict=True):
        for setting in a:
            assert torch.equal(a[setting].ranks(), b[setting].ranks())


def test_more_candidates_than_are_counted_at_a_time():
    size = 2 * COUNTED + 7
    scores = torch.randint(0, 5, (2, size), generator=generator(0)).float()
    own = torch.tensor([3, size - 1])
    nothing, keys = torch.zeros(0, dtype=torch.int64), torch.tensor([0, size])
    counts, places = torch.empty(2, 6, dtype=torch.int64), torch.tensor([1, 0])
    arrays = (scores, own, nothing, keys, places, counts)
    assert count_better(*(x.numpy() for x in arrays))
    mine = scores.gather(1, own[:, None])
    wanted = torch.stack([(scores > mine).sum(dim=1), (scores == mine).sum(dim=1) - 1, torch.full((2,), size - 1)], 1)
    assert torch.equal(counts[places], torch.cat([wanted, wanted], dim=1))
    scores[1, COUNTED + 1] = float("nan")
    assert not count_better(*(x.numpy() for x in arrays))


@given(
    sizes=st.tuples(st.integers(1, 150), st.integers(1, 50), st.integers(1, 150)),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    seed=st.integers(0, 1000),
)
def test_what_is_counted_while_it_is_scored_is_what_is_counted_of_scores(sizes, dtype, seed):
    """Of whole numbers, so that sums are exact whatever their order; rows and columns of any number."""
    (n, width, count), g = sizes, generator(seed)
    queries, table = (torch.randint(-2, 3, (rows, width), generator=g).to(dtype) for rows in (n, count))
    own, places = torch.randint(count, (n,), generator=g), torch.randperm(n, generator=g)
    keys = count * torch.arange(n)
    codes = torch.arange(n * count)[torch.rand(n * count, generator=g) < 0.1]
    fused, apart = (torch.empty(n, 6, dtype=torch.int64) for _ in range(2))
    cut = strips(table)
    assert cut is not None
    scores, more = queries @ table.T, [x.numpy() for x in (own, codes, keys, places)]
    assert count_better_of(queries.numpy(), cut.numpy(), count, *more, fused.numpy())
    assert count_better(scores.numpy(), *more, apart.numpy())
    hidden = torch.zeros(n * count, dtype=torch.bool)
    hidden[codes] = True
    others = ~torch.nn.functional.one_hot(own, count).bool()
    mine, wanted = scores.gather(1, own[:, None]), []
    for some in (others, others & ~hidden.view(n, count)):
        wanted += [((scores > mine) & some).sum(1), ((scores == mine) & some).sum(1), some.sum(1)]
    assert torch.equal(apart[places], torch.stack(wanted, dim=1))
    assert torch.equal(fused, apart)
    table[int(torch.randint(count, (), generator=g)), 0] = float("nan")
    cut = strips(table)
    assert cut is not None
    assert not count_better_of(queries.numpy(), cut.numpy(), count, *more, fused.numpy())


@pytest.mark.parametrize(("name", "form"), FORMED)
def test_candidates_met_in_one_pass_and_in_products_of_their_own_rank_alike(name, form, monkeypatch):
    model, facts = random_model(name, form), random_facts(60)
    known, slots = FactIndex(facts, SIZES), model.indicator.slots
    at_once = [rank(model, facts, slot, known=known) for slot in slots]
    monkeypatch.setattr(kernels, "LONG_ROW", 0)
    for slot, wanted in zip(slots, at_once, strict=True):
        for native in (True, False):
            monkeypatch.setattr(kernels, "NATIVE", native)
            # at once, a few rows at a time, and one
            for budget in (10**6, 8 * 4 * 9, 1):
                assert_same_rankings(wanted, rank(model, facts, slot, known=known, budget=budget))


@pytest.mark.parametrize("wrong", [-1, 5])
def test_facts_to_rank_must_have_ids_that_there_are(wrong):
    facts = random_facts(9)  # 5 entities
    with pytest.raises(IndexError, match="from 0 to 4"):
        rank(random_model("distmult", "episodic"), facts.with_slot("o", wrong), "o", known=FactIndex(facts, SIZES))
