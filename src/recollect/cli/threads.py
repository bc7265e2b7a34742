"""Choose how many threads a command uses, and that they sleep while they wait. Only for a process that recollect owns.

Everything here works through the environment, which the libraries read when they are loaded: call it before they are.
"""

from __future__ import annotations

import os
import sys

from recollect.errors import UserError

# OpenMP threads of PyTorch and MKL spin between operations by default, and take a core from whatever else needs it
SLEEP = {"OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0"}
COUNTS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS", "NUMBA_NUM_THREADS")


def sleep_while_waiting() -> None:
    """Let threads of OpenMP sleep while they wait, unless the user's environment says otherwise."""
    for name, value in SLEEP.items():
        os.environ.setdefault(name, value)


def use_threads(count: int | None) -> None:
    """Compute with `count` threads; None leaves it to the libraries, which take one per core."""
    if count is None:
        return
    if count < 1:
        raise UserError(f"{count} threads cannot compute; give --threads a whole number from 1")
    os.environ |= dict.fromkeys(COUNTS, str(count))
    if "torch" in sys.modules:  # a process that runs several commands
        sys.modules["torch"].set_num_threads(count)
