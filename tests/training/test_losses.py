"""Losses as functions: against PyTorch's own, in value and gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck
from torch.nn.functional import cross_entropy, softplus

from conftest import generator
from recollect.engine import one_thread, parallel
from recollect.training.losses import logistic, one_vs_all, ranking

Problem = tuple[Tensor, Tensor, Tensor, Tensor]


def problem(dtype: torch.dtype = torch.float64) -> Problem:
    """Return ten queries, the last without facts, 9 candidates, and the queries and answers of 40 facts."""
    g = generator(4)
    queries, candidates = (torch.randn(n, 5, dtype=dtype, generator=g).requires_grad_() for n in (10, 9))
    query_index, answers = (torch.randint(n, (40,), generator=g) for n in (9, 9))
    return queries, candidates, query_index, answers


def reference(
    queries: Tensor, candidates: Tensor, query_index: Tensor, answers: Tensor, weights: Tensor | None = None, **options
) -> Tensor:
    losses = cross_entropy(queries[query_index] @ candidates.T, answers, reduction="none", **options)
    return (losses if weights is None else losses * weights).sum()


def assert_same_gradients(ours: Tensor, theirs: Tensor, inputs: tuple[Tensor, Tensor]) -> None:
    for a, b in zip(torch.autograd.grad(3 * ours, inputs), torch.autograd.grad(3 * theirs, inputs), strict=True):
        torch.testing.assert_close(a, b)


def test_logistic_and_ranking_losses_by_hand():
    true, false = torch.tensor([0.0, 2.0]), torch.tensor([[0.0, 1.0], [-1.0, 3.0]])
    expected = softplus(-true) + softplus(false).sum(1)
    torch.testing.assert_close(logistic(true, false), expected)
    half_true = logistic(true, false, torch.tensor([True, False]))
    torch.testing.assert_close(half_true, torch.stack([expected[0], softplus(true[1])]))
    torch.testing.assert_close(ranking(true, false, sigmoid=False), torch.tensor([1.0 + 2.0, 0.0 + 2.0]))
    first = (0.5 + false[0].sigmoid() - true[0].sigmoid()).clamp(min=0).sum()
    torch.testing.assert_close(ranking(true, false, margin=0.5)[0], first)


@pytest.mark.parametrize("block_bytes", [1, 9 * 8 * 3, 10**6])  # one query, three queries, all of them per block
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_vs_all_is_cross_entropy_in_value_and_gradients(block_bytes, weighted, smoothing, dtype):
    given = problem(dtype)
    weights = torch.rand(40, generator=generator(5)) if weighted else None
    ours = one_vs_all(*given, weights, smoothing=smoothing, block_bytes=block_bytes)
    theirs = reference(*given, weights, label_smoothing=smoothing)
    assert ours.dtype == dtype
    torch.testing.assert_close(ours, theirs)
    assert_same_gradients(ours, theirs, given[:2])


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("block_bytes", [1, 10**6])
def test_a_candidate_with_count_three_equals_three_candidates(smoothing, block_bytes):
    queries, candidates, query_index, answers = problem()
    counts = torch.tensor([1, 3, 1, 2, 1, 1, 4, 1, 1])
    ours = one_vs_all(
        queries, candidates, query_index, answers, counts=counts, smoothing=smoothing, block_bytes=block_bytes
    )
    repeated, first = candidates.repeat_interleave(counts, dim=0), counts.cumsum(0) - counts
    theirs = reference(queries, repeated, query_index, first[answers], label_smoothing=smoothing)
    torch.testing.assert_close(ours, theirs)
    assert_same_gradients(ours, theirs, (queries, candidates))


@pytest.mark.parametrize("block_bytes", [1, 10**6])
def test_one_vs_all_passes_gradcheck(block_bytes):
    queries, candidates, query_index, answers = problem()
    weights = torch.rand(40, generator=generator(5))

    def loss(q: Tensor, x: Tensor) -> Tensor:
        return one_vs_all(q, x, query_index, answers, weights, block_bytes=block_bytes)

    assert gradcheck(loss, (queries, candidates))


def test_a_query_without_facts_has_no_gradient():
    given = problem()
    one_vs_all(*given, block_bytes=9 * 8 * 4).backward()
    assert not given[0].grad[9].any()
    assert given[0].grad[:9].any(dim=1).all()


def test_large_logits_stay_finite():
    given = problem(torch.float32)
    with torch.no_grad():
        given[0].mul_(1e3)
    ours = one_vs_all(*given)
    torch.testing.assert_close(ours, reference(*given))
    assert all(bool(grad.isfinite().all()) for grad in torch.autograd.grad(ours, given[:2]))


def test_the_loss_is_the_same_without_gradients():
    queries, candidates, query_index, answers = problem()
    with torch.no_grad():
        without = one_vs_all(queries, candidates, query_index, answers)
    assert without == one_vs_all(queries, candidates, query_index, answers)
    only_candidates = one_vs_all(queries.detach(), candidates, query_index, answers)
    (grad,) = torch.autograd.grad(only_candidates, candidates)
    expected = torch.autograd.grad(reference(queries, candidates, query_index, answers), candidates)[0]
    torch.testing.assert_close(grad, expected)


@pytest.fixture
def three_threads(monkeypatch):
    monkeypatch.setattr(parallel, "MIN_WORK", 0)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize("block_bytes", [9 * 8 * 2, 10**6])
def test_threads_give_cross_entropy_and_the_same_bits_every_time(block_bytes):
    given = problem()
    results = []
    for _ in range(3):
        with one_thread():
            loss = one_vs_all(*given, smoothing=0.1, block_bytes=block_bytes)
        results.append((loss, *torch.autograd.grad(loss, given[:2])))
    theirs = reference(*given, label_smoothing=0.1)
    wanted = (theirs, *torch.autograd.grad(theirs, given[:2]))
    for ours, expected in zip(results[0], wanted, strict=True):
        torch.testing.assert_close(ours, expected)
    for again in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], again, strict=True))
