"""Compiled loops behind the operations of `ops`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit


def compiled(**options: Any) -> Callable[[Any], Any]:
    """Compile a function without the GIL; cache the machine code on disk where there is a folder for it."""

    def decorate(function: Any) -> Any:
        try:
            return njit(nogil=True, cache=True, **options)(function)
        except RuntimeError:  # no folder to write the cache to
            return njit(nogil=True, **options)(function)

    return decorate


@compiled()
def shuffle_groups(numbers: Any, ends: Any, chances: Any) -> None:
    """Shuffle each group numbers[ends[g − 1] : ends[g]] in place (Fisher–Yates); chances are uniform in [0, 1)."""
    first = 0
    for end in ends:
        for last in range(end - 1, first, -1):
            other = min(last, first + int(chances[last] * (last - first + 1)))
            numbers[last], numbers[other] = numbers[other], numbers[last]
        first = end
