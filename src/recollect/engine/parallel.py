"""Run loops on several threads that sleep while there is nothing to do.

PyTorch's own threads synchronise after every operation and spin while they wait: on arrays of a batch's size that
costs more than it gains, and on a machine with other work a step takes ten times as long. So inside `one_thread()`
PyTorch computes with one thread, and `parallel_for` splits what is long enough over a pool of sleeping threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from threading import Lock, local

import torch

MIN_WORK = 2**23  # multiply-adds, about a millisecond: several times the cost of waking a thread
Body = Callable[[int, int], None]


class _ThreadState(local):
    inside = False  # whether this thread runs the body of a parallel_for
    blocks = 0  # nested `one_thread` blocks of this thread


class _Borrowed:
    """The thread count that PyTorch had before the first active `one_thread` block of any host thread."""

    lock, blocks, threads = Lock(), 0, 0


_thread = _ThreadState()
_borrowed = _Borrowed()


@contextmanager
def one_thread() -> Iterator[None]:
    """Give PyTorch one thread and `parallel_for` the threads it had; restore the setting afterwards."""
    with _borrowed.lock:
        if not _borrowed.blocks:
            _borrowed.threads = torch.get_num_threads()
        _borrowed.blocks += 1
        _thread.blocks += 1
        torch.set_num_threads(1)  # PyTorch keeps a count per host thread
    try:
        yield
    finally:
        with _borrowed.lock:
            _borrowed.blocks -= 1
            _thread.blocks -= 1
            if not _thread.blocks:
                torch.set_num_threads(_borrowed.threads)


def parallel_for(body: Body, count: int, work: int) -> None:
    """Run body(start, stop) over contiguous ranges that cover 0 … count, in parallel inside `one_thread()`.

    `work` is the total number of multiply-adds; less than MIN_WORK runs in the calling thread, and so does a nested
    call. All ranges have finished when this returns or raises. The calling thread also runs the ranges that no other
    thread has begun by the time its own is done: a busy machine may not wake one for several milliseconds.
    """
    threads = 1 if _thread.inside or not _borrowed.blocks or work <= MIN_WORK else min(count, _borrowed.threads)
    if threads <= 1:
        body(0, count)
        return
    bounds = [count * part // threads for part in range(threads + 1)]
    pool, others = _pool(_borrowed.threads - 1, os.getpid()), dict[Future[None], _Range]()
    try:
        _thread.inside = True
        for start, stop in pairwise(bounds[1:]):
            part = _Range(body, start, stop)
            others[pool.submit(_run, part)] = part
        body(bounds[0], bounds[1])
        for other, part in reversed(others.items()):
            if other.cancel():
                part.run()
    finally:
        _thread.inside = False
        begun = [other for other in others if not other.cancelled()]
        wait(begun)  # they write to the same arrays
    for other in begun:
        other.result()


@cache
def _pool(workers: int, process: int) -> ThreadPoolExecutor:
    """Return this process's pool of worker threads; a forked child starts its own."""
    return ThreadPoolExecutor(workers, thread_name_prefix="recollect")


@dataclass
class _Range:
    """A range of a loop, which one thread runs."""

    body: Body | None
    start: int
    stop: int

    def run(self) -> None:
        """Run the body and forget it: a cancelled range stays in the queue of the pool until a worker is awake."""
        body, self.body = self.body, None
        assert body is not None
        with torch.no_grad():
            body(self.start, self.stop)


def _run(part: _Range) -> None:
    """Run a range in a worker thread, whose thread count and grad mode are its own."""
    _thread.inside = True
    torch.set_num_threads(1)
    part.run()
