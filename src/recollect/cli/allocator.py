"""Tune the C allocator of a process that recollect owns: the commands, never a host program."""

from __future__ import annotations

import ctypes

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # parameters of mallopt(3)
THRESHOLD_BYTES = 2**28  # larger than any array of a training step; smaller blocks stay with the process


def keep_freed_memory() -> None:
    """Let glibc reuse freed arrays: training allocates arrays of the same sizes again and again.

    Returning them to the system and touching new pages costs as much as the arithmetic on them. Does nothing if the C
    library is not glibc.
    """
    try:
        library = ctypes.CDLL(None)
        library.mallopt(M_MMAP_THRESHOLD, THRESHOLD_BYTES)
        library.mallopt(M_TRIM_THRESHOLD, THRESHOLD_BYTES)
    except (OSError, AttributeError, TypeError):
        pass
