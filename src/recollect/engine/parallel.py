"""Run loops on several threads that sleep while there is nothing to do.

PyTorch's own threads synchronise after every operation and spin while they wait: on arrays of a batch's size that
costs more than it gains, and on a machine with other work a step takes ten times as long. So inside `one_thread()`
PyTorch computes with one thread, and `parallel_for` splits what is long enough over a pool of sleeping threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from queue import SimpleQueue
from threading import Thread, local

import torch

MIN_WORK = 2**23  # multiply-adds, about a millisecond: several times the cost of waking a thread
Body = Callable[[int, int], None]
Tasks = SimpleQueue[tuple[Body, int, int, SimpleQueue[BaseException | None]]]
_available: list[int] = []  # thread counts taken from PyTorch, one per active `one_thread`


@contextmanager
def one_thread() -> Iterator[None]:
    """Give PyTorch one thread and `parallel_for` the threads it had; restore the setting afterwards."""
    count = torch.get_num_threads()
    _available.append(_available[-1] if _available else count)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(count)
        _available.pop()


def parallel_for(body: Body, count: int, work: int) -> None:
    """Run body(start, stop) over contiguous ranges that cover 0 … count, in parallel inside `one_thread()`.

    `work` is the total number of multiply-adds; less than MIN_WORK runs in the calling thread, and so does a nested
    call. All ranges have finished when this returns or raises.
    """
    threads = 1 if _thread.inside or not _available or work <= MIN_WORK else min(count, _available[-1])
    if threads <= 1:
        body(0, count)
        return
    bounds = [count * part // threads for part in range(threads + 1)]
    tasks, results, started = _pool(_available[-1] - 1, os.getpid()), SimpleQueue[BaseException | None](), 0
    try:
        _thread.inside = True
        for part in range(1, threads):
            tasks.put((body, bounds[part], bounds[part + 1], results))
            started += 1
        body(bounds[0], bounds[1])
    finally:
        _thread.inside = False
        errors = [results.get() for _ in range(started)]  # wait for all: they write to the same arrays
    for error in errors:
        if error is not None:
            raise error


class _ThreadState(local):
    inside = False  # whether this thread runs the body of a parallel_for


_thread = _ThreadState()


@cache
def _pool(workers: int, process: int) -> Tasks:
    """Return the task queue of this process's worker threads; a forked child starts its own."""
    tasks: Tasks = SimpleQueue()
    for _ in range(workers):
        Thread(target=_serve, args=(tasks,), name="recollect", daemon=True).start()
    return tasks


def _serve(tasks: Tasks) -> None:
    _thread.inside = True
    while True:
        body, start, stop, results = tasks.get()
        torch.set_num_threads(1)  # the setting is per thread for BLAS
        try:
            with torch.no_grad():  # grad mode is per thread
                body(start, stop)
        except BaseException as error:
            results.put(error)
        else:
            results.put(None)
        del body, results  # release what they refer to while waiting
