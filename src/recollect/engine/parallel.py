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
from threading import Lock, Thread, local

import torch

MIN_WORK = 2**23  # multiply-adds, about a millisecond: several times the cost of waking a thread
Body = Callable[[int, int], None]
Tasks = SimpleQueue[tuple[Body, int, int, SimpleQueue[BaseException | None]]]


class _ThreadState(local):
    inside = False  # whether this thread runs the body of a parallel_for
    blocks = 0  # nested `one_thread` blocks of this thread


class _Borrowed:
    """The thread count that PyTorch had before the first active `one_thread` block of any host thread."""

    def __init__(self) -> None:
        self.lock, self.blocks, self.threads = Lock(), 0, 0

    def take(self) -> None:
        with self.lock:
            if not self.blocks:
                self.threads = torch.get_num_threads()
            self.blocks += 1
            _thread.blocks += 1
            torch.set_num_threads(1)  # PyTorch keeps a count per host thread

    def give_back(self) -> None:
        with self.lock:
            self.blocks -= 1
            _thread.blocks -= 1
            if not _thread.blocks:
                torch.set_num_threads(self.threads)


_thread = _ThreadState()
_borrowed = _Borrowed()


@contextmanager
def one_thread() -> Iterator[None]:
    """Give PyTorch one thread and `parallel_for` the threads it had; restore the setting afterwards."""
    _borrowed.take()
    try:
        yield
    finally:
        _borrowed.give_back()


def parallel_for(body: Body, count: int, work: int) -> None:
    """Run body(start, stop) over contiguous ranges that cover 0 … count, in parallel inside `one_thread()`.

    `work` is the total number of multiply-adds; less than MIN_WORK runs in the calling thread, and so does a nested
    call. All ranges have finished when this returns or raises.
    """
    threads = 1 if _thread.inside or not _borrowed.blocks or work <= MIN_WORK else min(count, _borrowed.threads)
    if threads <= 1:
        body(0, count)
        return
    bounds = [count * part // threads for part in range(threads + 1)]
    tasks, results, started = _pool(_borrowed.threads - 1, os.getpid()), SimpleQueue[BaseException | None](), 0
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
