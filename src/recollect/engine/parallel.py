"""All cores, without two parties fighting for them, and memory that is used again.

PyTorch's threads meet after every operation, which on arrays of a batch's size costs more than it gains, and they
spin while they wait: on a machine that has other work to do, a step takes ten times as long. So a step of training
on sampled corruptions, the update of weights, and the ranking of facts give PyTorch one thread, and only what is long
enough is shared out here, to threads that sleep until they are called.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from queue import SimpleQueue
from threading import Thread, local

import torch

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, KEPT = -1, -3, 2**28  # of mallopt; bytes
WORTH = 2**23  # multiplications: about a millisecond, several times what it takes to wake a thread
Work = Callable[[int, int], None]
Tasks = SimpleQueue[tuple[Work, int, int, SimpleQueue[BaseException | None]]]
_given: list[int] = []  # threads taken from PyTorch, once for every `one_thread` that runs


@contextmanager
def one_thread() -> Iterator[None]:
    """PyTorch has one thread meanwhile, and `parallel_for` those that it had."""
    count = torch.get_num_threads()
    _given.append(_given[-1] if _given else count)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(count)
        _given.pop()


def parallel_for(work: Work, count: int, multiplications: int) -> None:
    """work(start, stop) over pieces that make up 0 … count, on several threads where it is long enough.

    What a piece would share out in turn, it does itself.
    """
    threads = 1 if _piece.running or not _given or multiplications <= WORTH else min(count, _given[-1])
    if threads <= 1:
        work(0, count)
        return
    bounds = [count * piece // threads for piece in range(threads + 1)]
    tasks, done, given = _crew(_given[-1] - 1, os.getpid()), SimpleQueue[BaseException | None](), 0
    try:
        _piece.running = True
        for piece in range(1, threads):
            tasks.put((work, bounds[piece], bounds[piece + 1], done))
            given += 1
        work(bounds[0], bounds[1])
    finally:
        _piece.running = False
        failed = [done.get() for _ in range(given)]  # all of them, as they write to the same arrays
    for error in failed:
        if error is not None:
            raise error


class _Piece(local):
    """Whether this thread is at work on a piece of something."""

    running = False


_piece = _Piece()


@cache
def _crew(workers: int, process: int) -> Tasks:
    """Threads of this process that sleep until a piece is put to them."""
    tasks: Tasks = SimpleQueue()
    for _ in range(workers):
        Thread(target=_serve, args=(tasks,), name="recollect", daemon=True).start()
    return tasks


def _serve(tasks: Tasks) -> None:
    _piece.running = True
    while True:
        work, start, stop, done = tasks.get()
        torch.set_num_threads(1)  # here too: for large products every thread has a count of its own
        try:
            with torch.no_grad():  # another thread does not know that nothing is differentiated here
                work(start, stop)
        except BaseException as error:
            done.put(error)
        else:
            done.put(None)
        del work, done  # and what they hold on to


def keep_freed_memory() -> None:
    """Ask the C library to keep freed arrays for the next ones, as training makes arrays of the same sizes again.

    Returning them to the system and touching new pages costs as much as the work on them. For commands, which are
    alone in their process; without effect where the library is another than GNU's.
    """
    try:
        library = ctypes.CDLL(None)
        library.mallopt(M_MMAP_THRESHOLD, KEPT)
        library.mallopt(M_TRIM_THRESHOLD, KEPT)
    except (OSError, AttributeError, TypeError):
        pass
