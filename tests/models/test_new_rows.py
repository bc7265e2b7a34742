"""Rows for ids that a model has not seen: the problem of a row against loops, and what may and may not change."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import FORMED, UNEQUAL, generator, random_facts, random_model
from recollect import Facts
from recollect.evaluation.ranking import rank
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import KINDS, distinct
from recollect.models.new_rows import RowSolver, one_vs_all
from recollect.models.new_rows import problem as problem_module
from recollect.models.new_rows.features import Implicit, row_features
from recollect.models.new_rows.likelihood import Dense, Likelihood, downdate, minimise
from recollect.models.new_rows.tables import without_knots
from recollect.models.new_rows.trained import RIDGE

SIZES = {"entity": 7, "predicate": 3, "time": 5}
GROWN = {"entity": 10, "predicate": 4, "time": 7}
EACH = pytest.mark.parametrize(("name", "form"), FORMED)
VARIANTS = [
    ("complex", "both", {"reciprocal": True, "time_levels": (0, 1, 3)}),
    ("distmult", "episodic", {"time_levels": (1, 2)}),
    ("tucker", "semantic", {"reciprocal": True}),
    ("cont", "both", {"reciprocal": True, "time_levels": (1, 3)}),
    ("hole", "episodic", {"time_levels": (2,)}),
    ("tree", "episodic", {}),
]
VARIED = pytest.mark.parametrize(("name", "form", "options"), VARIANTS)


def trained(name: str, form: str, **options: object):
    dims = {} if options else UNEQUAL.get((name, form), {})
    return random_model(name, form, sizes=SIZES, **(dims | options))


def some_facts(sizes=GROWN, n=40, seed=0) -> Facts:
    return distinct(random_facts(n, sizes, seed), sizes)


def new_facts(facts: Facts) -> Facts:
    """Return the facts among trained ids."""
    old = (facts.s < SIZES["entity"]) & (facts.o < SIZES["entity"]) & (facts.p < SIZES["predicate"])
    return facts[old & (facts.t < SIZES["time"])]


@EACH
@pytest.mark.parametrize("slot", "spot")
def test_features_and_offset_give_the_score(name, form, slot):
    model = trained(name, form)
    if slot not in model.slots or len(model.equation.occurrences(slot)) > 1:
        pytest.skip("no slot in which the score is linear")
    facts = some_facts(SIZES, 6)
    features, offset = row_features(model, facts, slot)
    expected = model.score(facts)
    for i in range(len(facts)):
        row = torch.cat(
            [getattr(model, table)[facts.column(slot)[i]].flatten() for table in model.table_names(KINDS[slot])]
        )
        assert (features[i] @ row + offset[i]).item() == pytest.approx(expected[i].item())


@VARIED
def test_features_that_are_not_stored_are_the_same(name, form, options):
    model = trained(name, form, **options)
    facts = some_facts(SIZES, 12).with_slot("p", 1)
    design = Implicit.of(model, facts, "p")
    features, offset = row_features(model, facts, "p")
    x, w = torch.randn(features.shape[1], dtype=torch.float64), torch.randn(len(facts), dtype=torch.float64)
    torch.testing.assert_close(design.offset, offset)
    torch.testing.assert_close(design.apply(x), features @ x)
    torch.testing.assert_close(design.adjoint(w), features.T @ w)


def random_problem(seed: int = 0) -> tuple[Dense, Likelihood, torch.Tensor]:
    g = generator(seed)
    choices, width, answers, dim = 3, 4, 5, 6
    features = torch.randn(choices * width + answers, dim, dtype=torch.float64, generator=g)
    likelihood = Likelihood(
        offset=torch.randn(len(features), dtype=torch.float64, generator=g),
        log_weight=torch.randn(choices, width, dtype=torch.float64, generator=g),
        weight=torch.rand(choices, dtype=torch.float64, generator=g) + 0.5,
        log_rest=torch.randn(answers, dtype=torch.float64, generator=g),
        is_answer=torch.arange(answers) < 2,
        count=torch.rand(answers, dtype=torch.float64, generator=g) + 0.5,
    )
    return Dense(features), likelihood, torch.randn(dim, dtype=torch.float64, generator=g)


def test_the_loss_of_a_row_is_that_of_loops_and_its_derivatives_are_those_of_autograd():
    design, likelihood, x = random_problem()
    z = (design.apply(x) + likelihood.offset).tolist()
    choices, width = likelihood.log_weight.shape
    expected = 0.0
    for b in range(choices):
        terms = [likelihood.log_weight[b, k].item() + z[b * width + k] for k in range(width)]
        expected += likelihood.weight[b].item() * (math.log(sum(map(math.exp, terms))) - z[b * width])
    for a, count in enumerate(likelihood.count.tolist()):
        margin = z[choices * width + a] - likelihood.log_rest[a].item()
        expected += count * math.log1p(math.exp(-margin if likelihood.is_answer[a] else margin))
    assert likelihood.value(design.apply(x)).item() == pytest.approx(expected)
    scores = design.apply(x)
    gradient, product = likelihood.derivatives(scores)
    v = torch.randn(len(scores), dtype=torch.float64, generator=generator(3))
    wanted = torch.autograd.functional.jacobian(likelihood.value, scores)
    _, by_autograd = torch.autograd.functional.hvp(likelihood.value, scores, v)
    torch.testing.assert_close(gradient, wanted)
    torch.testing.assert_close(product(v), by_autograd)


@pytest.mark.parametrize("seed", range(5))
def test_newtons_method_finds_the_minimum(seed):
    design, likelihood, prior = random_problem(seed)

    def objective(x):
        return likelihood.value(design.apply(x)) + 0.3 * (x - prior).square().sum()

    solved = minimise(design, likelihood, prior=prior, ridge=0.3, start=prior)
    x = prior.clone().requires_grad_()
    optimizer = torch.optim.LBFGS([x], max_iter=200, line_search_fn="strong_wolfe", tolerance_grad=1e-10)

    def closure():
        optimizer.zero_grad()
        loss = objective(x)
        loss.backward()
        return loss

    optimizer.step(closure)
    assert objective(solved).item() == pytest.approx(objective(x).item(), rel=1e-3)


@VARIED
def test_a_new_row_minimises_the_one_vs_all_loss_of_its_facts_and_of_the_trained_ones(name, form, options):
    model, new, sizes = trained(name, form, **options), 7, SIZES | {"entity": 8}
    old = distinct(model.normalize(some_facts(SIZES, 30)), SIZES)
    own = model.normalize(Facts.of([(new, 0, 2, 1), (3, 1, new, 2), (new, 2, 5, 4), (1, 2, new, 0)]))
    solver = RowSolver(model, old)
    mean, by_role = solver.trained.role_means
    prior = (by_role[[0, 2, 3 + 1, 3 + 2]].sum(0) + mean) / 5  # subject of 0 and 2, object of 1 and 2

    def objective(row: torch.Tensor) -> float:
        scored = model.with_rows({"entity": torch.cat([model.entity.detach(), row.view(1, *model.entity.shape[1:])])})
        total = RIDGE / solver.trained.variance("entity") * (row - prior).square().sum().item()
        for slot in "so":
            scores = scored.score_against(old, slot)
            total += (scores.logsumexp(1) - scores[:, :new].logsumexp(1)).sum().item()
            for answer, scores in zip(own.column(slot).tolist(), scored.score_against(own, slot), strict=True):
                candidates = scores if answer == new else scores[:new]  # θ with it in both slots is not linear
                total += (candidates.logsumexp(0) - scores[answer]).item()
        return total

    row = solver.solve(sizes, Facts.concat([old, own])).model.entity[new].detach().flatten()
    best, g = objective(row), generator(5)
    assert objective(prior) > best
    for _ in range(20):
        step = torch.randn(row.shape, dtype=row.dtype, generator=g)
        assert objective(row + 0.2 * step / step.norm()) > best


@VARIED
def test_nothing_else_moves(name, form, options):
    model = trained(name, form, **options)
    facts = some_facts()
    grown = RowSolver(model, new_facts(facts)).solve(GROWN, facts).model
    assert grown.sizes == GROWN
    old = new_facts(some_facts(seed=1))
    inner = {"entity": torch.arange(7), "predicate": torch.arange(3), "time": torch.arange(5)}
    torch.testing.assert_close(grown.score(old), model.score(old), rtol=1e-12, atol=1e-12)
    for slot in model.slots:
        ids = inner[KINDS[slot]]
        if grown.knots is None and model.knots is not None and slot == "t":
            continue  # interpolated rows, equal up to rounding: compared by their scores above
        for prefix in model.equations:
            if slot in model.equations[prefix].slots:
                assert torch.equal(grown.rows(slot, prefix, ids), model.rows(slot, prefix, ids))
    if model.config.reciprocal:
        torch.testing.assert_close(
            grown.score_against(old, "s", torch.arange(7)), model.score_against(old, "s", torch.arange(7))
        )


@VARIED
def test_new_ids_of_every_kind_have_rows_that_fit_their_facts_better_than_the_priors(name, form, options):
    model = trained(name, form, **options)
    facts = some_facts()
    solver = RowSolver(model, new_facts(facts))
    grown, blank = solver.solve(GROWN, facts).model, solver.solve(GROWN, new_facts(facts)).model
    new = facts[(facts.s >= 7) ^ (facts.o >= 7)]

    def loss(scored):
        parts = [scored.score_against(new, slot) for slot in "so"]
        own = [part.gather(1, new.column(slot)[:, None])[:, 0] for part, slot in zip(parts, "so", strict=True)]
        return sum((part.logsumexp(1) - true).mean() for part, true in zip(parts, own, strict=True))

    assert loss(grown) < loss(blank)


@settings(max_examples=8)
@given(data=st.data(), variant=st.sampled_from(VARIANTS))
def test_rows_depend_on_the_current_facts_only(data, variant):
    name, form, options = variant
    model = trained(name, form, **options)
    pool = some_facts(n=25)
    solver = RowSolver(model, new_facts(pool))
    chosen = torch.zeros(len(pool), dtype=torch.bool)
    grown = solver.solve(GROWN, pool[chosen])
    for _ in range(data.draw(st.integers(1, 4))):
        flipped = torch.tensor(data.draw(st.lists(st.integers(0, len(pool) - 1), min_size=1, max_size=5, unique=True)))
        chosen[flipped] = ~chosen[flipped]
        order = torch.randperm(int(chosen.sum()), generator=generator(0))
        grown = solver.solve(GROWN, pool[chosen][order], before=grown, changed=pool[flipped])
    afresh = solver.solve(GROWN, pool[chosen])
    for key, parameter in afresh.model.named_parameters():
        assert torch.equal(parameter, dict(grown.model.named_parameters())[key])


def loss_of_time(model, facts, row, prior, ridge):
    """Return the one-vs-all loss of facts at the last time, with a row for it, over all trained entities."""
    scored = model.with_rows({"time": torch.cat([model.time.detach()[:-1], row.view(1, *model.time.shape[1:])])})
    total = ridge * (row - prior).square().sum().item()
    for slot in "so":
        scores = scored.score_against(facts, slot)
        total += (scores.logsumexp(1) - scores.gather(1, facts.column(slot)[:, None])[:, 0]).sum().item()
    return total


@pytest.mark.parametrize(("name", "form", "options"), [each for each in VARIANTS if "time_levels" not in each[2]])
def test_a_new_time_minimises_the_one_vs_all_loss_of_its_facts(name, form, options):
    model = trained(name, form, **options)
    if "t" not in model.slots:
        pytest.skip("no times")
    old, own = some_facts(SIZES, 30), some_facts(SIZES, 12, seed=3).with_slot("t", 5)
    solver = RowSolver(model, old)
    grown = solver.solve(SIZES | {"time": 6}, Facts.concat([old, own])).model
    row, prior, ridge = grown.time[5].detach().flatten(), model.time[4].detach().flatten(), solver.trained.time_ridge
    best, g = loss_of_time(grown, own, row, prior, ridge), generator(5)
    assert loss_of_time(grown, own, prior, prior, ridge) > best
    for _ in range(20):
        step = torch.randn(row.shape, dtype=row.dtype, generator=g)
        assert loss_of_time(grown, own, row + 0.3 * step / step.norm(), prior, ridge) > best


def test_every_nth_of_many_candidates_stands_for_n(monkeypatch):
    monkeypatch.setattr(one_vs_all, "CANDIDATES", 3)
    ids, log_weight = one_vs_all._candidates(torch.tensor([8, 2, 9, 2]), 7, torch.float64)
    assert ids.tolist() == [0, 2, 3, 6, 8, 9]  # every third of seven, and the answers, of which two are new
    assert log_weight.exp().tolist() == pytest.approx([3, 1, 3, 3, 1, 1])


def test_a_question_of_weight_two_counts_like_two():
    model, facts = trained("complex", "episodic"), some_facts(SIZES, 12).with_slot("t", 4)
    options = {"entities": 7, "prior": model.time[3].detach().flatten(), "ridge": 0.3}
    questions = [(facts, slot) for slot in "so"]
    weighted = one_vs_all.fit_row(model, questions, "t", weight=2.0, **options)
    torch.testing.assert_close(weighted, one_vs_all.fit_row(model, 2 * questions, "t", **options))


def test_the_prior_of_a_time_remembers_the_times_before_it():
    model, old = trained("distmult", "episodic"), some_facts(SIZES)
    own = some_facts(SIZES, 12, seed=3)
    times = torch.where(own.t % 2 == 0, 5, 6)
    grown = RowSolver(model, old).solve(SIZES | {"time": 9}, Facts.concat([old, own.with_slot("t", times)])).model
    last, five, six, seven, eight = grown.time.detach()[4:]
    torch.testing.assert_close(seven, (last + five) / 4 + six / 2)
    torch.testing.assert_close(eight, seven)


def test_earlier_times_come_first():
    model = trained("complex", "both", reciprocal=True, time_levels=(1, 3))
    facts = some_facts()
    old = new_facts(facts)
    shifted = facts.with_slot("t", (facts.t + 2) % 7)
    sizes = SIZES | {"time": 7}
    keep = (shifted.s < 7) & (shifted.o < 7) & (shifted.p < 3)
    grown = RowSolver(model, old).solve(sizes, shifted[keep], earlier=2).model
    torch.testing.assert_close(grown.score(old.with_slot("t", old.t + 2)), model.score(old))


def test_a_time_without_facts_is_the_nearest_trained_one():
    model = trained("distmult", "episodic", time_levels=(1, 3))
    grown = RowSolver(model, some_facts(SIZES)).solve(SIZES | {"time": 9}, some_facts(SIZES)).model
    for time in range(5, 9):
        torch.testing.assert_close(grown.rows("t", ids=torch.tensor([time])), model.rows("t", ids=torch.tensor([4])))


def without_last_choice(design: Dense, likelihood: Likelihood) -> tuple[tuple[Dense, Likelihood], ...]:
    """Return the problem without its last choice, and that of this choice alone."""
    choices, width = likelihood.log_weight.shape
    cut = (choices - 1) * width
    kept = torch.arange(len(design.features))
    kept = kept[(kept < cut) | (kept >= choices * width)]
    one = slice(cut, choices * width)
    none = likelihood.log_rest[:0]
    left = replace(
        likelihood,
        offset=likelihood.offset[kept],
        log_weight=likelihood.log_weight[:-1],
        weight=likelihood.weight[:-1],
    )
    lost = Likelihood(
        likelihood.offset[one], likelihood.log_weight[-1:], likelihood.weight[-1:], none, none.bool(), none.clone()
    )
    return (Dense(design.features[kept]), left), (Dense(design.features[one]), lost)


@pytest.mark.parametrize("seed", range(5))
def test_a_downdate_goes_most_of_the_way_to_the_minimum_without_a_fact(seed):
    design, likelihood, prior = random_problem(seed)
    left, lost = without_last_choice(design, likelihood)
    options = {"prior": prior, "ridge": 1.0}
    with_it = minimise(design, likelihood, **options, start=prior)
    without = minimise(*left, **options, start=prior)
    found = downdate(left, lost, with_it, ridge=1.0, limit=math.inf)
    assert (found - without).norm() < 0.7 * (with_it - without).norm()


@VARIED
def test_forgotten_facts_change_the_rows_of_their_ids_only(name, form, options):
    model = trained(name, form, **options)
    facts = model.normalize(some_facts(SIZES, 40))
    lost, rest = facts[:2], facts[2:]
    solver = RowSolver(model, facts)
    forgot = solver.solve(SIZES, rest, forgotten=lost).model
    for slot in model.slots:
        if slot == "t" and (len(model.equation.occurrences("t")) > 1 or 1 not in model.config.time_levels):
            continue  # not linear in its row, or no row of its own
        touched = torch.cat([lost.column(other) for other in model.slots if KINDS[other] == KINDS[slot]]).unique()
        is_touched = torch.zeros(SIZES[KINDS[slot]], dtype=torch.bool).index_fill_(0, touched, True)
        same = (forgot.rows(slot) == model.rows(slot)).flatten(1).all(dim=1)
        assert torch.equal(same, ~is_touched)
    step_by_step = solver.solve(SIZES, facts[1:], forgotten=facts[:1])
    step_by_step = solver.solve(SIZES, rest, forgotten=lost, before=step_by_step, changed=facts[1:2])
    for key, parameter in forgot.named_parameters():
        assert torch.equal(parameter, dict(step_by_step.model.named_parameters())[key])


def test_forgotten_facts_score_lower():
    model = trained("complex", "episodic", reciprocal=True)
    facts = some_facts(SIZES, 60)
    lost = facts[::6]
    forgot = RowSolver(model, facts).solve(SIZES, facts, forgotten=lost).model

    def log_share(scored):
        return sum(scored.score_against(lost, s).log_softmax(1).gather(1, lost.column(s)[:, None]).sum() for s in "so")

    assert log_share(forgot) < log_share(model)


def test_a_planted_row_is_recovered_from_its_facts():
    sizes = {"entity": 60, "predicate": 8, "time": 1}
    model = random_model("complex", "semantic", dim=6, sizes=sizes)
    planted = model.entity.detach()[-1].clone()
    trained_model = model.with_rows({"entity": model.entity.detach()[:-1]})
    trained_model.sizes = sizes | {"entity": 59}
    every = Facts(torch.cartesian_prod(torch.arange(60), torch.arange(8), torch.arange(60), torch.tensor([0])))
    scores = model.score(every)
    true = every[scores > scores.quantile(0.95)]
    old, new = true[(true.s < 59) & (true.o < 59)], true[((true.s == 59) ^ (true.o == 59))]
    seen = new[torch.arange(len(new)) % 2 == 0]
    grown = RowSolver(trained_model, old).solve(sizes, Facts.concat([old, seen])).model
    cosine = torch.nn.functional.cosine_similarity(grown.entity[-1].flatten(), planted.flatten(), dim=0)
    assert cosine > 0.75
    held_out = new[torch.arange(len(new)) % 2 == 1]
    known = FactIndex(true, sizes)
    ranks = [rank(grown, held_out, slot, known=known)["filtered"].ranks().median() for slot in "so"]
    assert max(ranks) <= 3


def test_large_rows_are_solved_without_storing_their_features(monkeypatch):
    model = trained("cont", "episodic", reciprocal=True)
    facts = some_facts()
    stored = RowSolver(model, new_facts(facts)).solve(GROWN, facts).model
    monkeypatch.setattr(problem_module, "STORED", 0)
    computed = RowSolver(model, new_facts(facts)).solve(GROWN, facts).model
    torch.testing.assert_close(stored.time, computed.time)
    torch.testing.assert_close(stored.entity, computed.entity)


def test_a_model_without_knots_scores_the_same():
    model = trained("complex", "both", time_levels=(0, 2))
    facts = some_facts(SIZES)
    torch.testing.assert_close(without_knots(model).score(facts), model.score(facts))
