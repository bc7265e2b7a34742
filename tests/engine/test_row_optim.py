"""Adam and Adagrad row by row, against PyTorch's own on whole tables."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from conftest import generator
from recollect.engine import ops as kernels
from recollect.engine import parallel as threads
from recollect.engine.kernels import ADAGRAD_EPSILON
from recollect.engine.row_optim import OPTIMIZERS, Optimizer

ROWS, WIDTH = 30, (3, 2)
NATIVE = pytest.mark.parametrize("compiled", [True, False])
KIND = pytest.mark.parametrize("kind", OPTIMIZERS)


def table(dtype: torch.dtype = torch.float64, seed: int = 0) -> nn.Parameter:
    return nn.Parameter(torch.randn(ROWS, *WIDTH, dtype=dtype, generator=generator(seed)))


def dense(kind: str, parameters: list[nn.Parameter], lr: float, decay: float) -> torch.optim.Optimizer:
    if kind == "adam":
        return torch.optim.Adam(parameters, lr=lr, weight_decay=decay, fused=True)
    return torch.optim.Adagrad(parameters, lr=lr, weight_decay=decay, fused=True, eps=ADAGRAD_EPSILON)


def gradient(g: torch.Generator, rows: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
    """Gradients with a direction of their own in every row, and noise."""
    lean = torch.randn(ROWS, *WIDTH, dtype=dtype, generator=generator(99))
    return lean[rows] + torch.randn(len(rows), *WIDTH, dtype=dtype, generator=g)


def whole(rows: Tensor, grad: Tensor) -> Tensor:
    return grad.new_zeros(ROWS, *WIDTH).index_copy(0, rows, grad)


def lazily(kind: str, weight: nn.Parameter, lr: float = 0.01, decay: float = 0.0) -> Optimizer:
    return Optimizer(kind, {"time": weight}, lr=lr, decay=decay, lazy=frozenset({"time"}))


def some_rows(g: torch.Generator, share: float = 0.2) -> Tensor:
    return (torch.rand(ROWS, generator=g) < share).nonzero()[:, 0]


@NATIVE
@KIND
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_without_lazy_tables_it_is_pytorchs(kind, dtype, decay, compiled, monkeypatch):
    monkeypatch.setattr(kernels, "NATIVE", compiled)
    ours, theirs = ([table(dtype), table(dtype, 1)] for _ in range(2))
    named = dict(zip(("entity", "time"), ours, strict=True))
    optimizer = Optimizer(kind, named, lr=0.05, decay=decay, lazy=frozenset())
    reference, g = dense(kind, theirs, 0.05, decay), generator(3)
    for _ in range(20):
        for x in theirs:
            x.grad = torch.randn(x.shape, dtype=dtype, generator=g)
        optimizer.step({name: (None, x.grad) for name, x in zip(named, theirs, strict=True)})
        reference.step()
    close = {torch.float32: 2e-6, torch.float64: 1e-14}[dtype]
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=close, atol=close)


@NATIVE
def test_lazy_adagrad_is_adagrad(compiled, monkeypatch):
    monkeypatch.setattr(kernels, "NATIVE", compiled)
    ours, theirs, g = table(), table(), generator(3)
    optimizer, reference = lazily("adagrad", ours), dense("adagrad", [theirs], 0.01, 0.0)
    for step in range(100):
        rows = some_rows(g)
        grad = gradient(g, rows)
        theirs.grad = whole(rows, grad)
        optimizer.step({"time": (rows, grad)})
        reference.step()
        if step % 10 == 9:
            optimizer.settle_()
            torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


@NATIVE
@KIND
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_rows_touched_at_every_step_are_as_in_a_whole_table(kind, decay, compiled, monkeypatch):
    monkeypatch.setattr(kernels, "NATIVE", compiled)
    ours, theirs, g = table(), table(), generator(3)
    optimizer, reference = lazily(kind, ours, decay=decay), dense(kind, [theirs], 0.01, decay)
    always = torch.tensor([2, 7, 29])
    for step in range(100):
        rows = torch.cat([always, torch.tensor([step % 2])]).unique()
        grad = gradient(g, rows)
        theirs.grad = whole(rows, grad)
        optimizer.step({"time": (rows, grad)})
        reference.step()
        if step == 50:
            optimizer.settle_()  # changes nothing for those that are up to date
    torch.testing.assert_close(ours[always], theirs[always], rtol=1e-6, atol=1e-6)


@NATIVE
@pytest.mark.parametrize("settle_every", [200, 20])
def test_rows_touched_now_and_then_stay_close_to_adam(compiled, settle_every, monkeypatch):
    monkeypatch.setattr(kernels, "NATIVE", compiled)
    start, ours, theirs, forgetful, g = table().detach(), table(), table(), table(), generator(3)
    optimizer, reference = lazily("adam", ours), dense("adam", [theirs], 0.01, 0.0)
    sparse = torch.optim.SparseAdam([forgetful], lr=0.01)
    for step in range(200):
        rows = some_rows(g)
        grad = gradient(g, rows)
        theirs.grad = whole(rows, grad)
        forgetful.grad = torch.sparse_coo_tensor(rows[None], grad, forgetful.shape, check_invariants=True)
        optimizer.step({"time": (rows, grad)})
        reference.step()
        sparse.step()
        if (step + 1) % settle_every == 0:
            optimizer.settle_()
    moved, apart, without = (
        (x.detach() - y).flatten(1).norm(dim=1)
        for x, y in ((theirs, start), (ours, theirs.detach()), (forgetful, theirs.detach()))
    )
    assert moved.min() > 0.1
    assert apart.norm() < 0.05 * moved.norm()
    assert (apart / moved).max() < 0.1
    # what momentum does between touches is most of what rows would lack
    assert 3 * apart.norm() < without.norm()


def test_settling_moves_a_row_as_momentum_would():
    ours, theirs, g = table(), table(), generator(3)
    optimizer, reference = lazily("adam", ours), dense("adam", [theirs], 0.01, 0.0)
    rows = torch.arange(ROWS)
    for _ in range(200):
        theirs.grad = gradient(g, rows)
        optimizer.step({"time": (rows, theirs.grad.clone())})
        reference.step()
    before = ours.detach().clone()
    torch.testing.assert_close(before, theirs.detach())
    theirs.grad = torch.zeros_like(theirs)
    for _ in range(5):
        optimizer.step({})
        reference.step()
    assert torch.equal(ours, before)
    optimizer.settle_()
    expected = (theirs - before).detach()
    assert expected.abs().mean() > 0.01
    torch.testing.assert_close(ours.detach() - before, expected, rtol=0.05, atol=0)
    settled = ours.detach().clone()
    optimizer.settle_()
    assert torch.equal(ours, settled)


@NATIVE
@KIND
def test_rows_without_history_never_move(kind, compiled, monkeypatch):
    monkeypatch.setattr(kernels, "NATIVE", compiled)
    start, ours, g = table().detach(), table(), generator(3)
    optimizer = lazily(kind, ours, decay=0.1)
    for step in range(40):
        rows = some_rows(g, 0.5)
        rows = rows[rows >= 10]
        optimizer.step({"time": (rows, gradient(g, rows))})
        if step % 10 == 9:
            optimizer.settle_()
    assert torch.equal(ours[:10], start[:10])
    assert (ours[10:] != start[10:]).all()


@KIND
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.float64, 1e-12)])
def test_compiled_and_plain_rows_are_the_same(kind, dtype, tolerance, monkeypatch):
    found = []
    for compiled in (True, False):
        monkeypatch.setattr(kernels, "NATIVE", compiled)
        weight, g = table(dtype), generator(3)
        optimizer = lazily(kind, weight, decay=0.05)
        for step in range(60):
            rows = some_rows(g)
            # as a batch gives them: rows of a gradient that lies otherwise in memory
            grad = gradient(g, rows, dtype).mT.contiguous().mT
            optimizer.step({"time": (rows, grad)})
            if step % 25 == 24:
                optimizer.settle_()
        found.append({"weight": weight.detach(), **optimizer.moments["time"]})
    assert torch.equal(found[0].pop("last"), found[1].pop("last"))
    for name, value in found[0].items():
        torch.testing.assert_close(value, found[1][name], rtol=tolerance, atol=tolerance)


@NATIVE
@KIND
def test_the_penalty_of_untouched_steps_is_added_to_the_next_gradient(kind, compiled, monkeypatch):
    monkeypatch.setattr(kernels, "NATIVE", compiled)
    late, told = table(), table()
    optimizer, reference = lazily(kind, late, decay=0.1), lazily(kind, told, decay=0.0)
    rows = torch.tensor([5])
    for _ in range(7):
        for either in (optimizer, reference):
            either.step({})
    grad = gradient(generator(3), rows)
    optimizer.step({"time": (rows, grad)})
    reference.step({"time": (rows, grad + 8 * 0.1 * told.detach()[rows])})
    torch.testing.assert_close(late, told)


@KIND
@pytest.mark.parametrize("stop", [0, 1, 13, 20])
def test_a_state_continues_bit_for_bit(kind, stop):
    def run(steps: range, parameters: dict[str, nn.Parameter], optimizer: Optimizer) -> None:
        for step in steps:
            g = generator(step)
            rows = some_rows(g)
            entity = torch.randn(ROWS, *WIDTH, dtype=torch.float64, generator=g)
            core = torch.randn(3, dtype=torch.float64, generator=g)
            optimizer.step({"time": (rows, gradient(g, rows)), "entity": (None, entity), "core0": (None, core)})
            if step % 8 == 7:
                optimizer.settle_()

    def fresh() -> tuple[dict[str, nn.Parameter], Optimizer]:
        core = nn.Parameter(torch.ones(3, dtype=torch.float64))
        parameters = {"entity": table(seed=1), "time": table(), "core0": core}
        return parameters, Optimizer(kind, parameters, lr=0.01, decay=0.1, lazy=frozenset({"time"}))

    parameters, optimizer = fresh()
    run(range(stop), parameters, optimizer)
    kept = {name: value.clone() for name, value in optimizer.state().items()}
    assert all(isinstance(value, Tensor) for value in kept.values())
    weights = {name: value.detach().clone() for name, value in parameters.items()}
    run(range(stop, 30), parameters, optimizer)
    again, continued = fresh()
    for name, value in weights.items():
        again[name].data.copy_(value)
    continued.restore_(kept)
    run(range(stop, 30), again, continued)
    for name, value in parameters.items():
        assert torch.equal(value, again[name]), name
    assert optimizer.step_count == continued.step_count == 30


@KIND
def test_threads_share_whole_tables_and_settling(kind, monkeypatch):
    found = []
    for worth in (0, threads.WORTH):
        monkeypatch.setattr(threads, "WORTH", worth)
        named = {"entity": table(seed=1), "time": table()}
        optimizer = Optimizer(kind, named, lr=0.01, decay=0.1, lazy=frozenset({"time"}))
        for step in range(5):
            g = generator(step)
            grad, rows = gradient(g, torch.arange(ROWS)), some_rows(g)
            before = torch.get_num_threads()
            torch.set_num_threads(3)
            optimizer.step({"entity": (None, grad), "time": (rows, grad[rows])})
            optimizer.settle_()
            torch.set_num_threads(before)
        found.append([parameter.detach() for parameter in named.values()])
    for a, b in zip(*found, strict=True):
        assert torch.equal(a, b)
