"""Each answer against all candidates: the loss, its gradients and runs with it, against PyTorch's cross entropy."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck
from torch.nn.functional import cross_entropy

from conftest import FORMED, generator, random_facts, random_model
from recollect import Facts, Recipe, TrainingRun, UserError
from recollect.models.tensor_model import MODELS, TensorModel
from recollect.training.losses import one_vs_all
from recollect.training.trainer import Epoch, Step, Trainer

SIZES = {"entity": 7, "predicate": 3, "time": 4}
EACH = pytest.mark.parametrize(("name", "form"), FORMED)
PREDICT = pytest.mark.parametrize(
    ("name", "form", "predict"),
    [(name, form, slots) for name, form in FORMED for slots in ("so", "spot" if form == "episodic" else "spo")],
)


def problem(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Ten queries, of which one is never asked, 9 candidates, 40 facts."""
    g = generator(4)
    query, table = (torch.randn(n, 5, dtype=dtype, generator=g).requires_grad_() for n in (10, 9))
    which, answer = (torch.randint(n, (40,), generator=g) for n in (9, 9))
    return query, table, which, answer


def plain(query: Tensor, table: Tensor, which: Tensor, answer: Tensor, weight: Tensor | None = None) -> Tensor:
    losses = cross_entropy(query[which] @ table.T, answer, reduction="none")
    return (losses if weight is None else losses * weight).sum()


@pytest.mark.parametrize("budget", [1, 9 * 8 * 3, 10**6])  # a query, three queries and all of them at a time
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_is_cross_entropy_in_value_and_gradients(budget, weighted, dtype):
    query, table, which, answer = problem(dtype)
    weight = torch.rand(40, generator=generator(5)) if weighted else None
    ours = one_vs_all(query, table, which, answer, weight, budget=budget)
    theirs = plain(query, table, which, answer, weight)
    assert ours.dtype == dtype
    torch.testing.assert_close(ours, theirs)
    for a, b in zip(*(torch.autograd.grad(3 * x, (query, table)) for x in (ours, theirs)), strict=True):
        torch.testing.assert_close(a, b)


def test_a_query_that_is_never_asked_has_no_gradient():
    query, table, which, answer = problem()
    one_vs_all(query, table, which, answer, budget=9 * 8 * 4).backward()
    assert not query.grad[9].any()
    assert query.grad[:9].any(dim=1).all()


def test_large_logits_stay_finite():
    query, table, which, answer = problem(torch.float32)
    with torch.no_grad():
        query *= 1e3
    ours = one_vs_all(query, table, which, answer)
    torch.testing.assert_close(ours, plain(query, table, which, answer))
    assert all(bool(x.isfinite().all()) for x in torch.autograd.grad(ours, (query, table)))


@pytest.mark.parametrize("budget", [1, 10**6])
def test_gradcheck(budget):
    query, table, which, answer = problem()
    weight = torch.rand(40, generator=generator(5))
    assert gradcheck(lambda q, x: one_vs_all(q, x, which, answer, weight, budget=budget), (query, table))


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("budget", [1, 10**6])
def test_a_candidate_that_stands_for_three_is_three(smoothing, budget):
    query, table, which, answer = problem()
    counts = torch.tensor([1, 3, 1, 2, 1, 1, 4, 1, 1])
    ours = one_vs_all(query, table, which, answer, counts=counts, smoothing=smoothing, budget=budget)
    repeated, first = table.repeat_interleave(counts, dim=0), counts.cumsum(0) - counts
    theirs = cross_entropy(query[which] @ repeated.T, first[answer], reduction="sum", label_smoothing=smoothing)
    torch.testing.assert_close(ours, theirs)
    for a, b in zip(*(torch.autograd.grad(x, (query, table)) for x in (ours, theirs)), strict=True):
        torch.testing.assert_close(a, b)


def test_without_gradients_it_is_the_same_number():
    query, table, which, answer = problem()
    with torch.no_grad():
        quiet = one_vs_all(query, table, which, answer)
    assert quiet == one_vs_all(query, table, which, answer)
    (only_table,) = torch.autograd.grad(one_vs_all(query.detach(), table, which, answer), table)
    torch.testing.assert_close(only_table, torch.autograd.grad(plain(query, table, which, answer), table)[0])


def plain_loss(model: TensorModel, facts: Facts, predict: str) -> Tensor:
    """Mean over facts of the summed cross entropies of their slots."""
    weight = torch.ones(len(facts)) if facts.weight is None else facts.weight
    losses = [
        cross_entropy(model.score_against(facts, slot), facts.column(slot), reduction="none") * weight
        for slot in predict
    ]
    return torch.stack(losses).sum() / len(facts)


@PREDICT
@pytest.mark.parametrize("weighted", [False, True])
def test_the_first_step_is_down_the_plain_loss(name, form, predict, weighted):
    model = random_model(name, form, 3, sizes=SIZES)
    facts = random_facts(90, SIZES)
    facts = Facts(facts.ids, weight=torch.rand(90, generator=generator(6)) if weighted else None)
    recipe = Recipe(loss="one-vs-all", predict=predict, batch_size=100, epochs=1, l2=0, order="random")
    expected = plain_loss(model, facts, predict)
    wanted = torch.autograd.grad(expected, list(model.parameters()))
    training = Trainer(model, facts, recipe, generator=generator())
    value, gradients = training._gradients({}, facts, {})
    assert value == pytest.approx(expected.item())
    for (key, _), gradient in zip(model.named_parameters(), wanted, strict=True):
        torch.testing.assert_close(gradients[key], gradient)
    first = next(iter(training))
    assert isinstance(first, Step)
    assert first.loss == pytest.approx(expected.item())


@PREDICT
def test_every_model_learns_with_it(small_world, name, form, predict):
    recipe = Recipe(loss="one-vs-all", predict=predict, epochs=8, learning_rate=0.1, batch_size=256)
    learning = TrainingRun(small_world, model=name, dim=3, form=form, recipe=recipe)
    losses = [record.loss for record in learning if isinstance(record, Epoch)]
    assert losses[-1] < 0.95 * losses[0]


@pytest.mark.parametrize(
    ("name", "form", "optimizer"),
    [("cont", "episodic", "adam"), ("tree", "episodic", "adagrad"), ("complex", "semantic", "adam")],
)
def test_a_run_resumes_bit_for_bit(name, form, optimizer):
    sizes = {"entity": 12, "predicate": 3, "time": 200}
    facts = random_facts(150, sizes)
    predict = "spo" if name != "tree" else "spot"
    recipe = Recipe(
        loss="one-vs-all", predict=predict, epochs=2, batch_size=40, optimizer=optimizer, learning_rate=0.05
    )

    def fresh() -> Trainer:
        model = MODELS[name](sizes, 3, form=form, generator=generator(1))
        return Trainer(model, facts, recipe, generator=generator(2))

    whole = fresh()
    assert whole.optimizer.lazy == (frozenset({"time"}) if name == "cont" else frozenset())
    records, states = [], []
    for record in whole:
        records.append(record)
        tensors, values = whole.state()
        states.append(({key: value.clone() for key, value in tensors.items()}, values))
    assert len(records) == 2 * (4 + 1)
    for stop, state in enumerate(states, 1):
        again = fresh()
        again.restore_(*state)
        assert list(again) == records[stop:]
        for a, b in zip(again.model.parameters(), whole.model.parameters(), strict=True):
            assert torch.equal(a, b)


def test_false_facts_are_refused():
    facts = random_facts(20, SIZES)
    marked = Facts(facts.ids, torch.arange(20) % 2 == 0)
    model = random_model("complex", "episodic", 3, sizes=SIZES)
    with pytest.raises(UserError, match="the one-vs-all loss needs true facts only; use the logistic loss"):
        Trainer(model, marked, Recipe(loss="one-vs-all"), generator=generator())


def test_nothing_is_drawn_for_it():
    recipe = Recipe(loss="one-vs-all", predict="subject,time")
    assert (recipe.slots, recipe.drawn) == ("st", {})
    model = random_model("complex", "episodic", 3, sizes=SIZES)
    g = generator(3)
    training = Trainer(model, random_facts(20, SIZES), Recipe(loss="one-vs-all", epochs=1), generator=g)
    for _ in training:
        pass
    same = generator(3)
    torch.randperm(20, generator=same)  # the order of the one epoch
    assert torch.equal(g.get_state(), same.get_state())


MANY = {"entity": 60, "predicate": 3, "time": 4}


@EACH
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_drawing_all_others_is_comparing_with_all(name, form, smoothing):
    facts = random_facts(60, MANY)
    others = MANY["entity"] - len(torch.cat([facts.s, facts.o]).unique())
    assert 0 < others <= 29
    told = {"loss": "one-vs-all", "optimizer": "adagrad", "l2": 0, "batch_size": 100, "label_smoothing": smoothing}
    learned = []
    for candidates in (0, 29):
        model = random_model(name, form, 3, sizes=MANY)
        recipe = Recipe(**told, candidates=candidates, penalty=0.01)
        training = Trainer(model, facts, recipe, generator=generator(1))
        assert training.sampled == bool(candidates)
        learned.append([next(iter(training)).loss, model])
    (loss, whole), (same, drawn) = learned
    assert loss == pytest.approx(same)
    for a, b in zip(whole.parameters(), drawn.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_those_that_are_drawn_stand_for_all_that_are_not_named():
    recipe = Recipe(loss="one-vs-all", candidates=5)
    training = Trainer(
        random_model("distmult", "episodic", 2, sizes=MANY), random_facts(9, MANY), recipe, generator=generator(1)
    )
    named, total = torch.tensor([3, 8, 59]), torch.zeros(60)
    for _ in range(2000):
        rows, counts = training._joined_by_others(named)
        assert len(rows) == 8
        assert bool((rows.diff() > 0).all())
        assert counts.sum().item() == pytest.approx(60)
        total[rows] += counts
    assert total[named].tolist() == [2000] * 3
    torch.testing.assert_close(total / 2000, torch.ones(60), rtol=0, atol=0.4)  # four standard deviations and more


def test_a_run_that_draws_resumes_bit_for_bit():
    facts = random_facts(90, MANY)
    recipe = Recipe(loss="one-vs-all", candidates=7, dropout=0.2, batch_size=8, epochs=3)

    def fresh() -> Trainer:
        return Trainer(random_model("complex", "episodic", 3, sizes=MANY), facts, recipe, generator=generator(1))

    whole, cut, again = fresh(), fresh(), fresh()
    list(whole)
    records = iter(cut)
    for _ in range(17):
        next(records)
    again.restore_(*cut.state())
    list(again)
    for a, b in zip(whole.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_candidates_are_whole_numbers():
    for wrong in (-1, 1.5):
        with pytest.raises(UserError, match="candidates must be a whole number from 0"):
            Recipe(loss="one-vs-all", candidates=wrong)
