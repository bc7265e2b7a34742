"""Bins of the evidence that a stored fact gives for a time: its lag, whether it is the closest of its triple, its run.

As seen from t, a stored fact at t' is *past* (t' < t), *future* (t' > t) or at lag 0. It is the closest of its triple
on its side if the triple has no fact between. The bins of a side are

    closest, lag 1, by the length of the run that ends (begins) there        RUNS
    closest, lag 2 and more                                                   NEAR
    not the closest, lag 2 and more                                           OLDER

and bin 0 is lag 0. The past side comes first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

RUNS = (1, 2, 3, 4, 6, 10, 20)  # smallest run length of each bin
NEAR = (2, 3, 4, 6, 9, 16, 32, 64, 128)  # smallest lag of each bin
OLDER = (2, 4, 9, 32, 128)
SIDE = len(RUNS) + len(NEAR) + len(OLDER)  # bins of a side
COUNT = 1 + 2 * SIDE
LONGEST_CLOSE_LAG = 3  # lags up to here form a group of their own in the prior

Ints = npt.NDArray[np.int64]


class Bins(NamedTuple):
    """Lookup tables of bins. Past lags are positive; lags beyond ± L count as L, twice the length of the axis."""

    by_lag: Ints  # (2, 2 L + 1): bin of a fact that is not the closest, and of the closest, by lag + L
    run: Ints  # (L + 1,): number of the run-length bin, from 0, by run length
    ranges: Ints  # (2, COUNT): smallest and largest |lag| of a bin


def lag_bins(times: int) -> Bins:
    """Return the lookup tables for an axis of `times` steps, extended by as many steps into the future."""
    limit = max(2, 2 * times)
    lags = np.arange(-limit, limit + 1)
    first = np.where(lags < 0, 1 + SIDE, 1)
    near = first + len(RUNS) + np.searchsorted(NEAR, np.abs(lags), side="right") - 1
    older = first + len(RUNS) + len(NEAR) + np.maximum(np.searchsorted(OLDER, np.abs(lags), side="right") - 1, 0)
    near[limit] = older[limit] = 0
    run = np.maximum(np.searchsorted(RUNS, np.arange(limit + 1), side="right") - 1, 0)
    lowest = [1] * len(RUNS) + [*NEAR, *OLDER]
    highest = [1] * len(RUNS) + [*(lag - 1 for lag in NEAR[1:]), limit, *(lag - 1 for lag in OLDER[1:]), limit]
    ranges = np.array([[0, *lowest, *lowest], [0, *highest, *highest]])
    return Bins(np.stack([older, near]), run, ranges)


def bin_groups() -> Ints:
    """Return the group of each bin in the prior: lag 0; then, side by side, close lags, far lags and older facts."""
    near = [0 if lag <= LONGEST_CLOSE_LAG else 1 for lag in NEAR]
    side = np.array([0] * len(RUNS) + near + [2] * len(OLDER))
    return np.concatenate([[0], 1 + side, 4 + side])
