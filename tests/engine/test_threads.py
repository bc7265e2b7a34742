"""Who has the cores: PyTorch, or what is shared out while PyTorch has one thread."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from recollect.engine.grouped import Groups, Product, grouped_matmul, matrix_scores
from torch import Tensor

from conftest import generator
from recollect.engine import grouped
from recollect.engine import ops as kernels
from recollect.engine import parallel as threads
from recollect.engine.ops import gather_dot, gather_mul, matmul, pair_scores
from recollect.engine.parallel import one_thread, parallel_for


@pytest.fixture
def three_threads(monkeypatch):
    """PyTorch has three threads to lend, and the least work is worth sharing."""
    monkeypatch.setattr(threads, "WORTH", 0)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def pieces(count: int, multiplications: int = 1) -> list[tuple[int, int, int, bool]]:
    """(start, stop, thread, whether gradients are on) of each piece of work, in order."""
    found: list[tuple[int, int, int, bool]] = []

    def work(start: int, stop: int) -> None:
        found.append((start, stop, threading.get_ident(), torch.is_grad_enabled()))

    parallel_for(work, count, multiplications)
    return sorted(found)


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize("count", [0, 1, 2, 3, 10])
def test_pieces_make_up_the_whole(count):
    with one_thread():
        found = pieces(count)
    assert len(found) == max(1, min(count, 3))
    assert [start for start, *_ in found] == [0, *(stop for _, stop, *_ in found[:-1])]
    assert found[-1][1] == count
    assert found[0][2] == threading.get_ident()
    assert all(thread != threading.get_ident() and not grad for _, _, thread, grad in found[1:])


def test_short_work_and_work_outside_a_step_stay_where_they_are(three_threads, monkeypatch):
    here = threading.get_ident()
    assert [piece[:3] for piece in pieces(10)] == [(0, 10, here)]
    monkeypatch.setattr(threads, "WORTH", 100)
    with one_thread():
        assert [piece[:3] for piece in pieces(10, 100)] == [(0, 10, here)]
        assert len(pieces(10, 101)) == 3


@pytest.mark.usefixtures("three_threads")
def test_threads_are_lent_and_given_back():
    with one_thread():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 3
    with pytest.raises(ValueError, match="inside"), one_thread():
        raise ValueError("inside")
    assert torch.get_num_threads() == 3
    assert len(pieces(10)) == 1


@pytest.mark.usefixtures("three_threads")
def test_what_lends_again_lends_the_same():
    with one_thread():
        with one_thread():
            assert len(pieces(10)) == 3
        assert torch.get_num_threads() == 1
        assert len(pieces(10)) == 3


@pytest.mark.usefixtures("three_threads")
def test_a_piece_does_itself_what_it_would_share_out():
    inside: list[tuple[int, int, int]] = []

    def work(start: int, stop: int) -> None:
        here = threading.get_ident()
        found = pieces(5)
        inside.extend((begin, end, int(thread == here)) for begin, end, thread, _ in found)

    with one_thread():
        parallel_for(work, 3, 1)
        assert inside == [(0, 5, 1)] * 3
        assert len(pieces(5)) == 3  # and afterwards it is shared out again


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize("bad", [0, 4, 9])
def test_an_error_in_any_piece_is_told_when_all_are_done(bad):
    done: list[int] = []

    def work(start: int, stop: int) -> None:
        if start <= bad < stop:
            raise ValueError(f"piece of {bad}")
        done.append(start)

    with one_thread(), pytest.raises(ValueError, match=f"piece of {bad}"):
        parallel_for(work, 10, 1)
    assert len(done) == 2
    with one_thread():
        assert len(pieces(10)) == 3


def random(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, dtype=dtype, generator=generator(sum(shape)))


def ids(n: int, size: int, seed: int = 0) -> Tensor:
    return torch.randint(size, (n,), generator=generator(seed))


def value_and_gradients(function: Callable[..., Tensor], *leaves: Tensor) -> list[Tensor]:
    given = [leaf.clone().requires_grad_() for leaf in leaves]
    out = function(*given)
    return [out.detach(), *torch.autograd.grad(out, given, random(*out.shape, dtype=out.dtype))]


GROUPS = Groups.of(ids(200, 11, 3))  # in any order
EACH_GROUP = Groups.of(torch.cat([torch.arange(11), ids(189, 11, 3)]))  # none is without facts
OWN, OTHERS = ids(100, 9, 4).view(2, 50), ids(200, 9, 5).view(2, 50, 2)
CASES = {
    "gather_mul": (lambda a, b: gather_mul(a, ids(50, 7), b, ids(50, 9)), random(7, 150), random(9, 150)),
    "complex": (
        lambda a, b: gather_mul(a, ids(50, 7), b, ids(50, 9)),
        random(7, 19, dtype=torch.complex64),
        random(9, 19, dtype=torch.complex64),
    ),
    "gather_dot": (lambda q, x: gather_dot(q, x, ids(150, 7).view(50, 3)), random(50, 150), random(7, 150)),
    "pairs": (
        lambda c, x, y: pair_scores(c, ids(50, 6), x, OWN[0], y, OWN[1], *OTHERS),
        random(6, 150),
        random(9, 150),
        random(9, 150),
    ),
    "own pairs": (
        lambda c, x: pair_scores(c, None, x, OWN[0], x, OWN[1], *OTHERS),
        random(50, 150),
        random(9, 150),
    ),
    "complex pairs": (
        lambda c, x: pair_scores(c, ids(50, 6), x, OWN[0], x, OWN[1], *OTHERS),
        random(6, 150, dtype=torch.complex64),
        random(9, 150, dtype=torch.complex64),
    ),
    "matrices": (
        lambda m, x, y: matrix_scores(m, GROUPS, x, ids(400, 60).view(200, 2), y, ids(400, 9, 1).view(200, 2)),
        random(12, 13, 20),
        random(60, 13),
        random(9, 20),
    ),
    "cores": (
        lambda x, g, y, z: matrix_scores(
            Product(x, ids(11, 7), g, torch.tensor([0, 4, 4, 9, 11])),
            EACH_GROUP,
            y,
            ids(400, 60).view(200, 2),
            z,
            ids(400, 9, 1).view(200, 2),
        ),
        random(7, 18),
        random(4, 13, 18, 20),
        random(60, 13),
        random(9, 20),
    ),
    "product": (matmul, random(60, 20), random(20, 9)),
    "wide product": (lambda a, b: matmul(a, b.mT), random(9, 20), random(60, 20)),
    "grouped": (lambda x, m: grouped_matmul(x, ids(200, 60), m, 1, GROUPS), random(60, 13), random(12, 13, 10)),
    "swapped": (lambda x, m: grouped_matmul(x, ids(200, 60), m.mT, 1, GROUPS), random(60, 13), random(12, 10, 13)),
}


@pytest.mark.parametrize("large", [grouped.LARGE, 0])
@pytest.mark.parametrize("case", CASES)
def test_several_threads_give_the_same_numbers(case, large, three_threads, monkeypatch):
    """Every row of a result is one thread's, in the order that one thread alone would take."""
    monkeypatch.setattr(grouped, "LARGE", large)
    monkeypatch.setattr(kernels, "COLUMNS", 16)
    monkeypatch.setattr(kernels, "PIECE", 2000)
    alone = value_and_gradients(*CASES[case])
    calls: list[int] = []
    crew = threads._crew
    monkeypatch.setattr(threads, "_crew", lambda workers, process: (calls.append(workers), crew(workers, process))[1])
    with one_thread():
        together = value_and_gradients(*CASES[case])
    assert calls
    for a, b in zip(together, alone, strict=True):
        assert torch.equal(a, b)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="this system does not tell of a process's threads")
def test_large_products_in_a_piece_start_no_threads_of_their_own():
    script = """
import os, torch
from recollect.engine import parallel as threads
threads.WORTH = 0
torch.set_num_threads(2)
x = torch.randn(600, 600)
found = []
def work(start, stop):
    found.append(len(os.listdir("/proc/self/task")))
    x @ x
    found.append(len(os.listdir("/proc/self/task")))
for _ in range(2):
    with threads.one_thread():
        threads.parallel_for(work, 2, 1)
    assert torch.get_num_threads() == 2
assert len(found) == 8 and len(set(found[1:])) == 1, found
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_has_threads_of_its_own():
    """Those of its parent are not there: to wait for them would be to wait for ever."""
    script = """
import os, torch
from recollect.engine import parallel as threads
threads.WORTH = 0
torch.set_num_threads(3)
def run():
    found = []
    with threads.one_thread():
        threads.parallel_for(lambda start, stop: found.append(start), 3, 1)
    return sorted(found) == [0, 1, 2]
assert run()
child = os.fork()
if child == 0:
    os._exit(0 if run() else 1)
assert os.waitpid(child, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
