"""Loops on several threads: ranges, errors, nesting, forks, and a host program whose settings stay as they were."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from backends import running
from recollect.engine import one_thread, parallel, parallel_for

Range = tuple[int, int, int, bool]  # start, stop, thread, whether gradients are recorded


@pytest.fixture
def three_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give PyTorch three threads, and let them share even the smallest loop inside `one_thread`."""
    before = torch.get_num_threads()
    monkeypatch.setattr(parallel, "MIN_WORK", 0)
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def ranges(count: int, work: int = 1, together: int = 1) -> list[Range]:
    """Return the ranges of a parallel loop in order; so many of them run at the same time."""
    found: list[Range] = []
    barrier = threading.Barrier(together)

    def body(start: int, stop: int) -> None:
        barrier.wait(timeout=60)
        found.append((start, stop, threading.get_ident(), torch.is_grad_enabled()))

    parallel_for(body, count, work)
    return sorted(found)


def run_script(text: str, **environment: str) -> str:
    """Run a script in a new process and return what it prints."""
    result = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=120, env=os.environ | environment
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


# -- ranges


@given(count=st.integers(0, 50), threads=st.integers(1, 5))
def test_ranges_cover_everything_once(count, threads):
    with running("compiled", threads):
        found = ranges(count)
    assert len(found) == max(1, min(count, threads))
    assert [row for start, stop, *_ in found for row in range(start, stop)] == list(range(count))
    sizes = [stop - start for start, stop, *_ in found]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.usefixtures("three_threads")
def test_the_first_range_runs_in_the_calling_thread_and_others_record_no_gradients():
    with one_thread():
        first, *others = ranges(10, together=3)
    assert first[2:] == (threading.get_ident(), True)
    assert len(others) == 2
    for _, _, thread, records in others:
        assert thread != threading.get_ident()
        assert not records


@pytest.mark.usefixtures("three_threads")
def test_ranges_that_no_other_thread_has_begun_run_in_the_calling_thread():
    release, begun = threading.Event(), threading.Barrier(4)

    def occupy(start: int, stop: int) -> None:
        begun.wait(timeout=60)
        assert release.wait(timeout=60)

    host = threading.Thread(target=parallel_for, args=(occupy, 3, 1))
    with one_thread():
        host.start()
        begun.wait(timeout=60)  # now both workers are occupied
        found = ranges(10)
        release.set()
        host.join()
    me = threading.get_ident()
    assert [(thread, records) for *_, thread, records in found] == [(me, True), (me, False), (me, False)]
    assert [row for start, stop, *_ in found for row in range(start, stop)] == list(range(10))


@pytest.mark.usefixtures("three_threads")
def test_a_loop_outside_one_thread_runs_in_the_calling_thread():
    assert [found[:3] for found in ranges(10)] == [(0, 10, threading.get_ident())]


@pytest.mark.usefixtures("three_threads")
def test_little_work_runs_in_the_calling_thread(monkeypatch):
    monkeypatch.setattr(parallel, "MIN_WORK", 100)
    with one_thread():
        assert [found[:3] for found in ranges(10, 100)] == [(0, 10, threading.get_ident())]
        assert len(ranges(10, 101)) == 3


@pytest.mark.usefixtures("three_threads")
def test_a_nested_loop_runs_in_the_thread_of_its_range():
    inside: list[tuple[int, int, bool]] = []

    def body(start: int, stop: int) -> None:
        inside.extend((begin, end, thread == threading.get_ident()) for begin, end, thread, _ in ranges(5))

    with one_thread():
        parallel_for(body, 3, 1)
        assert inside == [(0, 5, True)] * 3
        assert len(ranges(5)) == 3  # and the next loop is shared again


@pytest.mark.usefixtures("three_threads")
def test_more_threads_than_before_take_part_at_once():
    with one_thread():
        assert len(ranges(10)) == 3
    torch.set_num_threads(5)
    with one_thread():
        assert len(ranges(10)) == 5


# -- errors


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize("bad", [0, 4, 9])
def test_an_error_in_any_range_is_raised_after_all_have_finished(bad):
    finished: list[int] = []

    def body(start: int, stop: int) -> None:
        if start <= bad < stop:
            raise ValueError(f"range of {bad}")
        time.sleep(0.05)
        finished.append(start)

    with one_thread(), pytest.raises(ValueError, match=f"range of {bad}"):
        parallel_for(body, 10, 1)
    assert len(finished) == 2
    assert torch.get_num_threads() == 3
    with one_thread():
        assert len(ranges(10)) == 3


@pytest.mark.usefixtures("three_threads")
def test_an_interrupt_in_a_range_is_raised_too():
    def body(start: int, stop: int) -> None:
        raise KeyboardInterrupt

    with one_thread(), pytest.raises(KeyboardInterrupt):
        parallel_for(body, 10, 1)
    with one_thread():
        assert len(ranges(10)) == 3


# -- the host program's settings


@pytest.mark.usefixtures("three_threads")
def test_pytorch_has_one_thread_inside_and_all_of_them_afterwards():
    with one_thread():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 3
    with pytest.raises(ValueError, match="inside"), one_thread():
        raise ValueError("inside")
    assert torch.get_num_threads() == 3
    assert len(ranges(10)) == 1


@pytest.mark.usefixtures("three_threads")
def test_one_thread_may_be_nested():
    with one_thread():
        with one_thread():
            assert len(ranges(10)) == 3
        assert torch.get_num_threads() == 1
        assert len(ranges(10)) == 3
    assert torch.get_num_threads() == 3


def test_importing_and_computing_change_no_setting_of_the_process():
    run_script("""
import gc, os, signal, sys, threading
import numba, polars, torch  # dependencies may set what they like

def settings():
    return {
        "threads": (torch.get_num_threads(), torch.get_num_interop_threads(), threading.active_count()),
        "torch": (torch.get_default_dtype(), torch.is_grad_enabled(), torch.are_deterministic_algorithms_enabled(),
                  torch.get_float32_matmul_precision(), torch.initial_seed()),
        "random": torch.get_rng_state().tolist(),
        "environment": dict(os.environ),
        "signals": [signal.getsignal(number) for number in signal.valid_signals()],
        "python": (gc.isenabled(), gc.get_threshold(), sys.getswitchinterval(), sys.getrecursionlimit()),
    }

torch.set_num_threads(2)
before = settings()
import recollect
from recollect import engine
assert settings() == before, "import"
x = torch.randn(50, 8, generator=torch.Generator().manual_seed(0)).requires_grad_()
ids = torch.arange(50)
engine.gather_dot(x, x, ids[:, None]).sum().backward()
engine.RowOptimizer("adam", {"x": torch.nn.Parameter(x.detach())}, lr=0.1, decay=0, lazy=frozenset()).step(
    {"x": (None, x.grad)})
assert settings() == before, "call"
""")


def test_host_threads_that_overlap_leave_the_number_of_threads_as_it_was():
    run_script("""
import threading
import torch
from recollect.engine import one_thread

torch.set_num_threads(3)
first_inside, second_inside, first_left = (threading.Event() for _ in range(3))

def first():
    with one_thread():
        first_inside.set()
        second_inside.wait()
    first_left.set()

def second():
    first_inside.wait()
    with one_thread():
        second_inside.set()
        first_left.wait()

for thread in (hosts := [threading.Thread(target=body) for body in (first, second)]):
    thread.start()
for thread in hosts:
    thread.join()
found = [torch.get_num_threads()]
(thread := threading.Thread(target=lambda: found.append(torch.get_num_threads()))).start()
thread.join()
assert found == [3, 3], found
""")


@pytest.mark.usefixtures("three_threads")
def test_loops_of_several_host_threads_do_not_mix():
    found: dict[int, list[Range]] = {}

    def host(count: int) -> None:
        for _ in range(50):
            found[count] = ranges(count)

    with one_thread():
        hosts = [threading.Thread(target=host, args=(count,)) for count in (10, 20, 30)]
        for thread in hosts:
            thread.start()
        for thread in hosts:
            thread.join()
    for count, pieces in found.items():
        assert [row for start, stop, *_ in pieces for row in range(start, stop)] == list(range(count))


# -- the pool


@pytest.mark.usefixtures("three_threads")
def test_idle_threads_use_no_processor_time():
    with one_thread():
        assert len(ranges(10)) == 3
        before = time.process_time()
        time.sleep(0.3)
        assert time.process_time() - before < 0.15  # one spinning thread would use 0.3


@pytest.mark.long
@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="no list of a process's threads")  # noqa: PTH110
def test_products_inside_a_range_start_no_threads():
    run_script("""
import os, torch
from recollect.engine import parallel
parallel.MIN_WORK = 0
torch.set_num_threads(2)
x = torch.randn(600, 600)
found = []

def body(start, stop):
    found.append(len(os.listdir("/proc/self/task")))
    x @ x
    found.append(len(os.listdir("/proc/self/task")))

for _ in range(2):
    with parallel.one_thread():
        parallel.parallel_for(body, 2, 1)
    assert torch.get_num_threads() == 2
assert len(found) == 8 and len(set(found[1:])) == 1, found
""")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_has_threads_of_its_own():
    run_script("""
import os, torch
from recollect.engine import parallel
parallel.MIN_WORK = 0
torch.set_num_threads(3)

def is_complete():
    found = []
    with parallel.one_thread():
        parallel.parallel_for(lambda start, stop: found.append(start), 3, 1)
    return sorted(found) == [0, 1, 2]

assert is_complete()
child = os.fork()
if child == 0:
    os._exit(0 if is_complete() and is_complete() else 1)
assert os.waitpid(child, 0)[1] == 0
assert is_complete()
""")


@pytest.mark.usefixtures("three_threads")
def test_what_a_loop_refers_to_is_released_after_it():
    x = torch.zeros(10)
    seen = weakref.ref(x)
    with one_thread():
        parallel_for(lambda start, stop, x=x: x[start:stop].add_(1), 10, 1)
    del x
    for _ in range(100):  # a thread releases it just after the loop has returned
        gc.collect()
        if seen() is None:
            break
        time.sleep(0.01)
    assert seen() is None
