"""All cores, without two parties fighting for them.

PyTorch's threads meet after every operation, which on arrays of a batch's size costs more than it gains, and they
spin while they wait, in the way of others. So a step of training on sampled corruptions gives PyTorch one thread,
and the few heavy kernels use the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

import numba
import torch

# without OpenMP numba's threads take longer to wake than a kernel runs, and may not be called by two of ours at once
CAN_SPREAD = find_spec("numba.np.ufunc.omppool") is not None
_given: list[int] = []  # threads taken from PyTorch, innermost last


@contextmanager
def one_thread() -> Iterator[None]:
    """PyTorch has one thread meanwhile, and the heavy kernels have those that it had."""
    count = torch.get_num_threads()
    _given.append(count)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(count)
        _given.pop()


def threads_given() -> int:
    """How many threads a heavy kernel may use."""
    return min(_given[-1], numba.config.NUMBA_NUM_THREADS) if _given and CAN_SPREAD else 1


@contextmanager
def all_threads() -> Iterator[None]:
    """PyTorch has its threads back meanwhile, for a few large products."""
    if not _given:
        yield
        return
    torch.set_num_threads(_given[-1])
    try:
        yield
    finally:
        torch.set_num_threads(1)
