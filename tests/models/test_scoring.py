"""Scores of facts, candidates and negatives where facts share products, by both back ends."""

from __future__ import annotations

from unittest import mock

import pytest
import torch
from torch import Tensor

from backends import EACH_BACKEND, running
from conftest import ALONE, FORMED, generator, random_facts, random_model
from recollect import Facts, UserError
from recollect.engine import Contraction
from recollect.graph.facts import KINDS
from recollect.models import scoring
from recollect.models.tensor_model import TensorModel
from recollect.models.zoo import MODELS

EACH = pytest.mark.parametrize(("name", "form"), FORMED)
SHARED = {"entity": 40, "predicate": 3, "time": 4}  # facts share predicates and times, few share entities
MATRIX_MODELS = [(name, form) for name, form in ALONE if not getattr(MODELS[name], form).is_diagonal]


def einsum_scores(model: TensorModel, facts: Facts) -> Tensor:
    """Return θ of each fact by one einsum per equation over gathered rows: (B,)."""
    total = torch.zeros(len(facts), dtype=model.dtype)
    for prefix, equation in model.equations.items():
        rows = [model.lift(slot, model.table(slot, prefix)[facts.column(slot)]) for slot, _ in equation.factors]
        cores = [model.get_parameter(f"{prefix}core{number}") for number in range(len(equation.cores))]
        theta = torch.einsum(equation.einsum(), *rows, *cores)
        total = total + (theta.real if theta.is_complex() else theta)
    return total


def einsum_negatives(model: TensorModel, facts: Facts, negatives: dict[str, Tensor]) -> Tensor:
    columns = [
        einsum_scores(model, facts.with_slot(slot, ids[:, k]))
        for slot, ids in negatives.items()
        for k in range(ids.shape[1])
    ]
    return torch.stack([einsum_scores(model, facts), *columns], dim=1)


def assert_same(model: TensorModel, found: Tensor, wanted: Tensor) -> None:
    """Compare scores, and the gradients of an uneven sum of them."""
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)
    uneven = torch.randn(wanted.shape, generator=generator(9), dtype=wanted.dtype)
    parameters = list(model.parameters())
    gradients = [torch.autograd.grad((x * uneven).sum(), parameters, allow_unused=True) for x in (found, wanted)]
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-8)


def some_ids(model: TensorModel, slot: str, *shape: int) -> Tensor:
    return torch.randint(model.sizes[KINDS[slot]], shape, generator=generator(5))


@EACH
@EACH_BACKEND
def test_scores_of_facts_that_share_products_are_the_einsum(name, form, backend):
    model, facts = random_model(name, form, 3, sizes=SHARED), random_facts(150, SHARED)
    with running(backend, 3):
        assert_same(model, model.score(facts), einsum_scores(model, facts))
        for slot in model.slots:
            ids = some_ids(model, slot, 150, 2)
            wanted = einsum_negatives(model, facts, {slot: ids})[:, 1:]
            assert_same(model, model.score_against(facts, slot, ids), wanted)


@EACH
@EACH_BACKEND
@pytest.mark.parametrize("counts", [{"s": 1, "o": 1}, {"s": 2, "o": 3}, {"o": 2}, {"p": 1, "s": 2}])
def test_negatives_score_as_if_substituted(name, form, backend, counts):
    model, facts = random_model(name, form, 3, sizes=SHARED), random_facts(150, SHARED)
    negatives = {slot: some_ids(model, slot, 150, count) for slot, count in counts.items()}
    with running(backend):
        true, false = model.score_with_negatives(facts, negatives)
        assert_same(model, torch.cat([true[:, None], false], dim=1), einsum_negatives(model, facts, negatives))


@EACH
def test_scores_of_negatives_come_in_the_order_of_their_slots(name, form):
    model, facts = random_model(name, form, 3, sizes=SHARED), random_facts(150, SHARED)
    negatives = {slot: some_ids(model, slot, 150, 1) for slot in "os"}
    true, false = model.score_with_negatives(facts, negatives)
    wanted = einsum_negatives(model, facts, negatives)
    torch.testing.assert_close(torch.cat([true[:, None], false], dim=1), wanted)


@pytest.mark.parametrize(("name", "form"), MATRIX_MODELS)
@EACH_BACKEND
@pytest.mark.parametrize("is_sorted", [True, False])
def test_negatives_by_shared_matrices_score_as_if_substituted(name, form, backend, is_sorted):
    model, facts = random_model(name, form, 3, sizes=SHARED), random_facts(150, SHARED)
    facts = facts[(facts.t * 3 + facts.p).argsort()] if is_sorted else facts
    negatives = {slot: some_ids(model, slot, 150, 1) for slot in "os"}
    with running(backend), mock.patch.object(Contraction, "cost", return_value=float("inf")):  # of queries
        with mock.patch.object(scoring, "bilinear_scores", wraps=scoring.bilinear_scores) as bilinear:
            true, false = model.score_with_negatives(facts, negatives)
        assert bilinear.called
        assert_same(model, torch.cat([true[:, None], false], dim=1), einsum_negatives(model, facts, negatives))


@EACH
@EACH_BACKEND
def test_no_facts_have_no_scores(name, form, backend):
    model, none = random_model(name, form), Facts.of([])
    no_ids = torch.zeros(0, 2, dtype=torch.int64)
    with running(backend):
        assert model.score(none).shape == (0,)
        for slot in model.slots:
            assert model.score_against(none, slot).shape == (0, model.sizes[KINDS[slot]])
            assert model.score_against(none, slot, no_ids).shape == (0, 2)
        true, false = model.score_with_negatives(none, {"s": no_ids, "o": no_ids})
    assert (true.shape, false.shape) == ((0,), (0, 4))


WRONG = pytest.mark.parametrize("wrong", [-1, 5])  # there are 5 entities


@EACH
@EACH_BACKEND
@WRONG
def test_ids_outside_a_table_are_refused(name, form, backend, wrong):
    model, facts = random_model(name, form), random_facts(100)
    one_wrong = facts.ids.clone()
    one_wrong[3, 0] = wrong
    with running(backend):
        for given in (facts.with_slot("s", wrong), Facts(one_wrong), facts.with_slot("o", wrong)):
            with pytest.raises((IndexError, UserError)):
                model.score(given)
        with pytest.raises((IndexError, UserError)):
            model.score_against(facts, "o", torch.full((100, 1), wrong))


@EACH
@EACH_BACKEND
@WRONG
@pytest.mark.parametrize("slot", ["s", "o"])
def test_negatives_outside_a_table_are_refused(name, form, backend, wrong, slot):
    model, facts = random_model(name, form), random_facts(100)
    right, outside = torch.zeros(100, 1, dtype=torch.int64), torch.full((100, 1), wrong)
    with running(backend):
        with pytest.raises((IndexError, UserError)):
            model.score_with_negatives(facts, {"s": right, "o": right} | {slot: outside})
        with pytest.raises((IndexError, UserError)):
            model.score_with_negatives(facts.with_slot(slot, wrong), {"s": right, "o": right})


@EACH
def test_pieces_of_facts_that_share_products_score_the_same(name, form, monkeypatch):
    model, facts = random_model(name, form, sizes=SHARED), random_facts(150, SHARED)
    own = {slot: some_ids(model, slot, 150, 3) for slot in model.slots}

    def scores() -> list[Tensor]:
        against = [model.score_against(facts, slot, ids) for slot in model.slots for ids in (None, own[slot])]
        return [model.score(facts), *against]

    with torch.no_grad():
        whole = scores()
        monkeypatch.setattr(scoring, "PIECE_BYTES", 2000)
        monkeypatch.setattr(scoring, "CANDIDATE_ELEMENTS", 100)
        for piece, expected in zip(scores(), whole, strict=True):
            torch.testing.assert_close(piece, expected)


def test_pieces_are_as_few_as_their_memory_allows(monkeypatch):
    sizes = {"entity": 300, "predicate": 40, "time": 50}
    model, facts = random_model("cont", "episodic", sizes=sizes), random_facts(400, sizes)
    needed = model.batch(facts).elements("o") * 8
    monkeypatch.setattr(scoring, "PIECE_BYTES", needed // 5)
    with mock.patch.object(model, "batch", wraps=model.batch) as batches, torch.no_grad():
        model.score_against(facts, "o")
    whole, *pieces = (len(call.args[0]) for call in batches.call_args_list)
    assert whole == sum(pieces) == 400
    assert 5 <= len(pieces) <= 7
    with mock.patch.object(model, "batch", wraps=model.batch) as batches:
        model.score_against(facts, "o")  # with gradients, all at once
    assert batches.call_count == 1


def test_the_cost_of_a_batch_falls_with_what_its_facts_share():
    sizes = {"entity": 200, "predicate": 20, "time": 500}
    model, facts = random_model("cont", "episodic", 8, sizes=sizes), random_facts(400, sizes)
    few_times = facts.with_slot("t", facts.t % 4)
    assert model.batch(few_times).cost("so") < model.batch(facts).cost("so") / 2


REAL_MODELS = [(name, form) for name, form in FORMED if name not in ("complex", "hole")]  # no half-precision FFT


@pytest.mark.parametrize(("name", "form"), REAL_MODELS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_scores_agree_with_single_precision(name, form, dtype):
    """Nothing on the way needs kernels, float32 or float64: the definitions run in any dtype."""
    model, facts = random_model(name, form, 3, dtype="float32", sizes=SHARED), random_facts(150, SHARED)
    half = random_model(name, form, 3, dtype="float32", sizes=SHARED).to(dtype)
    model.load_state_dict(half.state_dict())  # the same rounded weights
    negatives = {slot: some_ids(model, slot, 150, 1) for slot in "so"}
    found, wanted = (
        torch.cat([x.float().view(150, -1) for x in m.score_with_negatives(facts, negatives)], 1) for m in (half, model)
    )
    assert half.score(facts).dtype == dtype
    scale = wanted.abs().max()
    close = {torch.bfloat16: 0.05, torch.float16: 0.005}[dtype]
    torch.testing.assert_close(found / scale, wanted / scale, rtol=close, atol=close)
    for slot in model.slots:
        wanted = model.score_against(facts, slot)
        error = half.score_against(facts, slot).float() - wanted
        assert error.abs().max() <= close * wanted.abs().max()


@pytest.mark.parametrize("reciprocal", [False, True])
@EACH
def test_entities_in_blocks_score_the_same(name, form, reciprocal, monkeypatch):
    model, facts = random_model(name, form, sizes=SHARED, reciprocal=reciprocal), random_facts(9, SHARED)
    with torch.no_grad():
        for slot in "so":
            whole = model.score_against(facts, slot)
            with monkeypatch.context() as patch:
                patch.setattr(scoring, "ENTITY_ELEMENTS", 12 * model.row_size(slot))  # three rows a block
                torch.testing.assert_close(model.score_against(facts, slot), whole)
