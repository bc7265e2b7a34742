"""Tune the C allocator of a process that recollect owns: the commands, never a host program."""

from __future__ import annotations

import ctypes

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # parameters of mallopt(3)
KEPT_BYTES = 2**28


def keep_freed_memory() -> None:
    """Ask glibc to reuse freed arrays: training allocates arrays of the same sizes again and again.

    Returning them to the system and touching new pages costs as much as the arithmetic on them. Without effect where
    the C library is not glibc.
    """
    try:
        library = ctypes.CDLL(None)
        library.mallopt(M_MMAP_THRESHOLD, KEPT_BYTES)
        library.mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
    except (OSError, AttributeError, TypeError):
        pass
