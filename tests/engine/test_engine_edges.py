"""The edges of the engine: short batches, ids out of range, no facts at all, two uses of one contraction."""

from __future__ import annotations

import pytest
import torch
from recollect.engine.grouped import Groups, grouped_matmul
from torch import nn

from conftest import FORMED, generator, random_facts, random_model
from recollect import Facts, Recipe, UserError
from recollect.engine import contraction as contraction_module
from recollect.engine import ops as kernels
from recollect.engine.ops import gather_dot
from recollect.engine.row_optim import Optimizer
from recollect.graph.facts import KINDS
from recollect.models.equation import Equation
from recollect.models.tensor_model import MODELS
from recollect.training.trainer import Trainer


@pytest.mark.parametrize("name", ["cont", "complex"])
def test_a_run_resumed_before_a_short_batch_ends_the_same(name):
    sizes = {"entity": 50, "predicate": 4, "time": 300}
    recipe = Recipe(epochs=3, batch_size=100, learning_rate=1e-2)

    def fresh() -> Trainer:
        model = MODELS[name](sizes, 5, generator=generator(1))
        return Trainer(model, random_facts(330, sizes), recipe, generator=generator(2))

    whole, records, states = fresh(), [], []
    for record in whole:
        records.append(record)
        tensors, plain = whole.state()
        states.append(({key: value.clone() for key, value in tensors.items()}, plain))
    for stop, state in enumerate(states, 1):
        again = fresh()
        again.restore_(*state)
        assert list(again) == records[stop:], stop
        for a, b in zip(again.model.parameters(), whole.model.parameters(), strict=True):
            assert torch.equal(a, b), stop


def test_the_end_of_a_large_core_is_summed(monkeypatch):
    model, facts = random_model("tree", "episodic"), random_facts(150)
    want = model.score(facts)
    monkeypatch.setattr(contraction_module, "LARGE_CORE", 0)  # or simply rank 110
    torch.testing.assert_close(model.score(facts), want)


@pytest.mark.parametrize(("name", "form"), FORMED)
def test_no_facts_have_no_scores(name, form):
    model, none = random_model(name, form), Facts.of([])
    assert model.score(none).shape == (0,)
    for slot in model.indicator.slots:
        assert model.score_against(none, slot).shape == (0, model.sizes[KINDS[slot]])
        assert model.score_against(none, slot, torch.zeros(0, 3, dtype=torch.int64)).shape == (0, 3)


@pytest.mark.parametrize("form", ["episodic", "both"])
@pytest.mark.parametrize("wrong", [6, -1])
def test_ids_outside_a_table_are_refused(form, wrong):
    model, facts = random_model("distmult", form), random_facts(9)  # 5 entities
    with pytest.raises((IndexError, UserError)):
        model.score(facts.with_slot("s", wrong))
    with pytest.raises((IndexError, UserError)):
        model.score_against(facts, "o", torch.full((9, 1), wrong))


@pytest.mark.parametrize("wrong", [-(10**6), -1, 5, 10**6])
@pytest.mark.parametrize("name", ["cont", "tucker", "tree", "rescal"])
def test_ids_outside_a_table_are_refused_where_facts_share_work(name, wrong):
    model, facts = random_model(name, "semantic" if name == "rescal" else "episodic"), random_facts(100)
    some = facts.ids.clone()
    some[3, 0] = wrong
    for given in (facts.with_slot("s", wrong), Facts(some)):
        with pytest.raises((IndexError, UserError)):
            model.score(given)


def test_settling_forgets_no_penalty():
    rows = torch.tensor([0])
    moments = []
    for settle in (False, True):
        weight = nn.Parameter(torch.ones(2, 1, dtype=torch.float64))
        optimizer = Optimizer("adam", {"time": weight}, lr=1e-9, decay=0.1, lazy=frozenset({"time"}))
        for _ in range(9):
            optimizer.step({})
        if settle:
            optimizer.settle_()  # the end of an epoch
        optimizer.step({"time": (rows, torch.zeros(1, 1, dtype=torch.float64))})
        moments.append(optimizer.moments["time"]["exp_avg"][0].item())
    assert moments[1] == pytest.approx(moments[0])  # 0.1 · 10 · 0.1 against 0.1 · 1 · 0.1


@pytest.mark.parametrize("recipe", [Recipe(loss="one-vs-all", predict="sot"), Recipe(negatives={"t": 1})])
def test_a_semantic_model_cannot_predict_times(recipe):
    with pytest.raises(UserError, match="no time to learn"):
        for _ in Trainer(random_model("complex", "semantic"), random_facts(20), recipe, generator=generator()):
            pass


def test_candidates_do_not_take_a_factors_place():
    model, facts = random_model("cont", "episodic"), random_facts(9)
    work = model.works(facts)[""]
    work.against("t", model.time)
    assert work.score().shape == (9,)
    work = model.works(facts)[""]
    work.score()
    assert work.against("t", model.time).shape == (9, 4)


@pytest.mark.parametrize("text", ["s:i p:i o:j t:j", "s:ii p:i", "s:i p:i o:i t:i | jj"])
def test_equations_that_fall_apart_or_repeat_an_axis_are_refused(text):
    with pytest.raises(ValueError, match="falls apart|names an axis twice"):
        Equation.parse(text)


def test_plain_row_dot_of_nothing(monkeypatch):
    monkeypatch.setattr(kernels, "NATIVE", False)
    assert gather_dot(torch.ones(0, 3), torch.ones(7, 3), torch.zeros(0, 4, dtype=torch.int64)).shape == (0, 4)


def test_plain_grouped_product_of_nothing(monkeypatch):
    monkeypatch.setattr(kernels, "NATIVE", False)
    none = torch.zeros(0, dtype=torch.int64)
    assert grouped_matmul(torch.ones(9, 6), none, torch.ones(5, 6, 4), 1, Groups.of(none)).shape == (0, 4)


def test_a_step_that_touches_no_row():
    weight = nn.Parameter(torch.ones(4, 2))
    optimizer = Optimizer("adam", {"time": weight}, lr=0.1, decay=0.0, lazy=frozenset({"time"}))
    optimizer.step({"time": (torch.zeros(0, dtype=torch.int64), torch.zeros(0, 2))})
    assert torch.equal(weight, torch.ones(4, 2))
