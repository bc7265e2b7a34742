"""Adam and Adagrad by rows against torch.optim on whole tables."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from backends import BACKENDS, EACH_BACKEND, running
from conftest import generator
from recollect.engine import OPTIMIZERS, RowOptimizer
from recollect.engine.row_optim import ADAGRAD_EPSILON

ROWS, SHAPE = 30, (3, 2)
ALL = torch.arange(ROWS)
KIND = pytest.mark.parametrize("kind", OPTIMIZERS)


@pytest.fixture(params=BACKENDS)
def backend(request):
    with running(request.param):
        yield request.param


def table(dtype: torch.dtype = torch.float64, seed: int = 0) -> nn.Parameter:
    return nn.Parameter(torch.randn(ROWS, *SHAPE, dtype=dtype, generator=generator(seed)))


def torch_optimizer(kind: str, parameters: list[nn.Parameter], lr: float, decay: float) -> torch.optim.Optimizer:
    if kind == "adam":
        return torch.optim.Adam(parameters, lr=lr, weight_decay=decay)
    return torch.optim.Adagrad(parameters, lr=lr, weight_decay=decay, eps=ADAGRAD_EPSILON)


def lazy_optimizer(kind: str, weight: nn.Parameter, lr: float = 0.01, decay: float = 0.0) -> RowOptimizer:
    return RowOptimizer(kind, {"time": weight}, lr=lr, decay=decay, lazy=frozenset({"time"}))


def gradient(g: torch.Generator, rows: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
    """Return gradients with a direction of their own in every row, and noise."""
    direction = torch.randn(ROWS, *SHAPE, dtype=dtype, generator=generator(99))
    return direction[rows] + torch.randn(len(rows), *SHAPE, dtype=dtype, generator=g)


def whole(rows: Tensor, grad: Tensor) -> Tensor:
    return grad.new_zeros(ROWS, *SHAPE).index_copy(0, rows, grad)


def some_rows(g: torch.Generator, share: float = 0.2) -> Tensor:
    return (torch.rand(ROWS, generator=g) < share).nonzero()[:, 0]


# -- exact


@pytest.mark.usefixtures("backend")
@KIND
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-6), (torch.float64, 1e-13)])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_whole_tables_are_updated_as_by_torch_optim(kind, dtype, tolerance, decay):
    ours, theirs = ([table(dtype), table(dtype, 1)] for _ in range(2))
    named = dict(zip(("entity", "time"), ours, strict=True))
    optimizer = RowOptimizer(kind, named, lr=0.05, decay=decay, lazy=frozenset())
    reference, g = torch_optimizer(kind, theirs, 0.05, decay), generator(3)
    for _ in range(20):
        for x in theirs:
            x.grad = torch.randn(x.shape, dtype=dtype, generator=g)
        optimizer.step({name: (None, x.grad) for name, x in zip(named, theirs, strict=True)})
        reference.step()
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.usefixtures("backend")
def test_lazy_adagrad_is_adagrad():
    ours, theirs, g = table(), table(), generator(3)
    optimizer, reference = lazy_optimizer("adagrad", ours), torch_optimizer("adagrad", [theirs], 0.01, 0.0)
    for step in range(100):
        rows = some_rows(g)
        grad = gradient(g, rows)
        theirs.grad = whole(rows, grad)
        optimizer.step({"time": (rows, grad)})
        reference.step()
        if step % 10 == 9:
            optimizer.catch_up_()
            torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.usefixtures("backend")
@KIND
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_lazy_rows_that_every_step_touches_are_updated_as_by_torch_optim(kind, decay):
    ours, theirs, g = table(), table(), generator(3)
    optimizer, reference = lazy_optimizer(kind, ours, decay=decay), torch_optimizer(kind, [theirs], 0.01, decay)
    always = torch.tensor([2, 7, 29])
    for step in range(60):
        rows = torch.cat([always, torch.tensor([step % 2])]).unique()
        grad = gradient(g, rows)
        theirs.grad = whole(rows, grad)
        optimizer.step({"time": (rows, grad)})
        reference.step()
        if step == 30:
            optimizer.catch_up_()  # changes nothing of rows that are up to date
    torch.testing.assert_close(ours[always], theirs[always], rtol=1e-10, atol=1e-10)


@pytest.mark.usefixtures("backend")
@KIND
def test_the_order_of_rows_does_not_matter(kind):
    found = []
    for order in (torch.arange(10), torch.randperm(10, generator=generator(4))):
        weight, g = table(), generator(3)
        optimizer = lazy_optimizer(kind, weight, decay=0.1)
        for _ in range(5):
            rows = torch.randperm(ROWS, generator=g)[:10]
            grad = gradient(g, rows)
            optimizer.step({"time": (rows[order], grad[order])})
        found.append(weight.detach())
    assert torch.equal(*found)


@pytest.mark.usefixtures("backend")
@KIND
def test_rates_scale_the_learning_rate_of_a_table(kind):
    scaled, plain, g = table(), table(), generator(3)
    optimizers = [
        RowOptimizer(kind, {"time": scaled}, lr=0.01, decay=0.1, lazy=frozenset(), rates={"time": 0.5}),
        RowOptimizer(kind, {"time": plain}, lr=0.005, decay=0.1, lazy=frozenset()),
    ]
    for _ in range(5):
        grad = gradient(g, ALL)
        for optimizer in optimizers:
            optimizer.step({"time": (None, grad)})
    torch.testing.assert_close(scaled, plain, rtol=1e-13, atol=1e-13)


# -- lazy Adam


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("catch_up_every", [200, 20])
def test_lazy_adam_differs_from_adam_by_a_few_percent_of_a_rows_path(catch_up_every):
    start, ours, theirs, forgetful, g = table().detach(), table(), table(), table(), generator(3)
    optimizer, reference = lazy_optimizer("adam", ours), torch_optimizer("adam", [theirs], 0.01, 0.0)
    sparse = torch.optim.SparseAdam([forgetful], lr=0.01)
    for step in range(200):
        rows = some_rows(g)
        grad = gradient(g, rows)
        theirs.grad = whole(rows, grad)
        forgetful.grad = torch.sparse_coo_tensor(rows[None], grad, forgetful.shape, check_invariants=True)
        optimizer.step({"time": (rows, grad)})
        reference.step()
        sparse.step()
        if (step + 1) % catch_up_every == 0:
            optimizer.catch_up_()
    path = (theirs.detach() - start).flatten(1).norm(dim=1)
    apart = (ours - theirs).detach().flatten(1).norm(dim=1)
    without_catch_up = (forgetful - theirs).detach().flatten(1).norm(dim=1)
    assert path.min() > 0.1
    assert apart.norm() < 0.05 * path.norm()
    assert (apart / path).max() < 0.1
    assert 3 * apart.norm() < without_catch_up.norm()


@pytest.mark.usefixtures("backend")
def test_catching_up_moves_a_row_as_momentum_does():
    ours, theirs, g = table(), table(), generator(3)
    optimizer, reference = lazy_optimizer("adam", ours), torch_optimizer("adam", [theirs], 0.01, 0.0)
    for _ in range(200):
        theirs.grad = gradient(g, ALL)
        optimizer.step({"time": (ALL, theirs.grad.clone())})
        reference.step()
    before = ours.detach().clone()
    torch.testing.assert_close(before, theirs.detach())
    theirs.grad = torch.zeros_like(theirs)
    for _ in range(5):
        optimizer.step({})
        reference.step()
    assert torch.equal(ours, before)
    optimizer.catch_up_()
    torch.testing.assert_close(ours.detach() - before, theirs.detach() - before, rtol=0.05, atol=0)
    caught_up = ours.detach().clone()
    optimizer.catch_up_()
    assert torch.equal(ours, caught_up)


@pytest.mark.usefixtures("backend")
@KIND
def test_rows_that_were_never_touched_never_move(kind):
    start, ours, g = table().detach(), table(), generator(3)
    optimizer = lazy_optimizer(kind, ours, decay=0.1)
    for step in range(40):
        rows = some_rows(g, 0.5)
        rows = rows[rows >= 10]
        optimizer.step({"time": (rows, gradient(g, rows))})
        if step % 10 == 9:
            optimizer.catch_up_()
    assert torch.equal(ours[:10], start[:10])
    assert (ours[10:] != start[10:]).all()


# -- weight decay of skipped steps


@pytest.mark.usefixtures("backend")
@KIND
def test_the_decay_of_skipped_steps_is_added_to_the_next_gradient(kind):
    late, plain = table(), table()
    with_decay, without = lazy_optimizer(kind, late, decay=0.1), lazy_optimizer(kind, plain)
    rows = torch.tensor([5])
    for _ in range(7):
        with_decay.step({})
        without.step({})
    grad = gradient(generator(3), rows)
    with_decay.step({"time": (rows, grad)})
    without.step({"time": (rows, grad + 8 * 0.1 * plain.detach()[rows])})
    torch.testing.assert_close(late, plain)


@pytest.mark.usefixtures("backend")
def test_catching_up_forgets_no_decay():
    rows, moments = torch.tensor([0]), []
    for catches_up in (False, True):
        weight = nn.Parameter(torch.ones(2, 1, dtype=torch.float64))
        optimizer = lazy_optimizer("adam", weight, lr=1e-9, decay=0.1)
        for _ in range(9):
            optimizer.step({})
        if catches_up:
            optimizer.catch_up_()
        optimizer.step({"time": (rows, torch.zeros(1, 1, dtype=torch.float64))})
        moments.append(optimizer.moments["time"]["exp_avg"][0].item())
    assert moments[0] == pytest.approx(0.1 * 10 * 0.1)
    assert moments[1] == pytest.approx(moments[0])


@pytest.mark.usefixtures("backend")
@KIND
def test_a_step_without_rows_changes_nothing(kind):
    weight = nn.Parameter(torch.ones(4, 2))
    optimizer = lazy_optimizer(kind, weight, lr=0.1)
    optimizer.step({"time": (torch.zeros(0, dtype=torch.int64), torch.zeros(0, 2))})
    optimizer.step({})
    assert torch.equal(weight, torch.ones(4, 2))


# -- back ends, state, threads


@KIND
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.float64, 1e-12)])
def test_compiled_updates_equal_the_reference(kind, dtype, tolerance):
    found = []
    for backend in BACKENDS:
        weight, g = table(dtype), generator(3)
        optimizer = lazy_optimizer(kind, weight, decay=0.05)
        with running(backend):
            for step in range(60):
                rows = some_rows(g)
                grad = gradient(g, rows, dtype).mT.contiguous().mT  # a gradient in another memory order
                optimizer.step({"time": (rows, grad)})
                if step % 25 == 24:
                    optimizer.catch_up_()
        found.append({"weight": weight.detach(), **optimizer.moments["time"]})
    for name, value in found[0].items():
        torch.testing.assert_close(value, found[1][name], rtol=tolerance, atol=tolerance)


@pytest.mark.usefixtures("backend")
@KIND
@pytest.mark.parametrize("stop", [0, 1, 13])
def test_a_restored_state_continues_with_the_same_bits(kind, stop):
    def fresh() -> tuple[dict[str, nn.Parameter], RowOptimizer]:
        core = nn.Parameter(torch.ones(3, dtype=torch.float64))
        parameters = {"entity": table(seed=1), "time": table(), "core0": core}
        return parameters, RowOptimizer(kind, parameters, lr=0.01, decay=0.1, lazy=frozenset({"time"}))

    def run(steps: range, optimizer: RowOptimizer) -> None:
        for step in steps:
            g = generator(step)
            rows, core = some_rows(g), torch.randn(3, dtype=torch.float64, generator=g)
            entity = gradient(g, ALL)
            optimizer.step({"time": (rows, gradient(g, rows)), "entity": (None, entity), "core0": (None, core)})
            if step % 8 == 7:
                optimizer.catch_up_()

    parameters, optimizer = fresh()
    run(range(stop), optimizer)
    state = {name: value.clone() for name, value in optimizer.state().items()}
    weights = {name: value.detach().clone() for name, value in parameters.items()}
    run(range(stop, 20), optimizer)
    again, continued = fresh()
    for name, value in weights.items():
        again[name].data.copy_(value)
    continued.restore_(state)
    run(range(stop, 20), continued)
    for name, value in parameters.items():
        assert torch.equal(value, again[name]), name
    assert optimizer.step_count == continued.step_count == 20


@EACH_BACKEND
@KIND
def test_several_threads_update_as_one_does(kind, backend):
    found = []
    for threads in (1, 3):
        named = {"entity": table(seed=1), "time": table()}
        optimizer = RowOptimizer(kind, named, lr=0.01, decay=0.1, lazy=frozenset({"time"}))
        with running(backend, threads):
            for step in range(5):
                g = generator(step)
                grad, rows = gradient(g, ALL), some_rows(g)
                optimizer.step({"entity": (None, grad), "time": (rows, grad[rows])})
                optimizer.catch_up_()
        found.append([parameter.detach() for parameter in named.values()])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b)
