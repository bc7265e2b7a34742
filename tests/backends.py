"""Run operations by one back end and on some threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from recollect.engine import compiled, one_thread, parallel

BACKENDS = ("compiled", "reference")
EACH_BACKEND = pytest.mark.parametrize("backend", BACKENDS)


@contextmanager
def running(backend: str, threads: int = 1) -> Iterator[None]:
    """Run by one back end, and on some threads, which share even the smallest loop."""
    before = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "COMPILED", backend == "compiled")
        patch.setattr(parallel, "MIN_WORK", 0)
        torch.set_num_threads(threads)
        try:
            with one_thread():
                yield
        finally:
            torch.set_num_threads(before)
