"""Bins of the evidence that a stored fact gives for a time: its lag, whether it is the closest of its triple, its run.

As seen from t, a stored fact at t' is *past* (t' < t), *future* (t' > t) or at lag 0. It is the closest of its triple
on its side if the triple has no fact between. The bins of a side are

    closest, lag 1, by the length of the run that ends (begins) there        RUNS
    closest, lag 2 and more                                                   NEAR
    not the closest, lag 2 and more                                           OLDER

and bin 0 is lag 0. The past side comes first. Intervals on long axes last longer, and are farther apart, than these
bins tell. Each further level of a layout adds a bin of each sort, from twice the smallest length or lag of the last on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

RUNS = (1, 2, 3, 4, 6, 10, 20)  # smallest run length of each bin
NEAR = (2, 3, 4, 6, 9, 16, 32, 64, 128)  # smallest lag of each bin
OLDER = (2, 4, 9, 32, 128)
SIDE = len(RUNS) + len(NEAR) + len(OLDER)  # bins of a side, without further levels
COUNT = 1 + 2 * SIDE
MAX_LEVELS = 24  # lags of 128 · 2²⁴ steps, more than an axis has
LONGEST_CLOSE_LAG = 3  # lags up to here form a group of their own in the prior

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Layout:
    """The smallest run lengths and lags of the bins of a side."""

    runs: tuple[int, ...] = RUNS
    near: tuple[int, ...] = NEAR
    older: tuple[int, ...] = OLDER

    @property
    def side(self) -> int:
        """The number of bins of a side."""
        return len(self.runs) + len(self.near) + len(self.older)

    @property
    def count(self) -> int:
        """The number of all bins."""
        return 1 + 2 * self.side

    @property
    def firsts(self) -> Ints:
        """The first bin of the past side for the closest, for older facts, and the first of the future side: (3,)."""
        return np.array([1 + len(self.runs), 1 + len(self.runs) + len(self.near), 1 + self.side])

    @property
    def groups(self) -> Ints:
        """The group of each bin in the prior: lag 0; then, side by side, close lags, far lags and older facts."""
        near = [0 if lag <= LONGEST_CLOSE_LAG else 1 for lag in self.near]
        side = np.array([0] * len(self.runs) + near + [2] * len(self.older))
        return np.concatenate([[0], 1 + side, 4 + side])


def layout(levels: int = 0) -> Layout:
    """Return the layout with so many further levels.

    >>> layout(2).near[-3:], layout(2).count - layout().count
    ((128, 256, 512), 12)
    """
    return Layout(*((*part, *(part[-1] << level for level in range(1, levels + 1))) for part in (RUNS, NEAR, OLDER)))


def layout_of(count: int) -> Layout:
    """Return the layout with so many bins; raise ValueError if there is none."""
    levels, rest = divmod(count - COUNT, 2 * 3)  # three bins on each side
    if rest or not 0 <= levels <= MAX_LEVELS:
        raise ValueError(f"no kernel has {count} bins")
    return layout(levels)


def interval_layout(times: int) -> Layout:
    """Return the layout of a store of runs on an axis of `times` steps: at least two last bins fit in it."""
    levels = 0
    while NEAR[-1] << (levels + 2) <= times:
        levels += 1
    return layout(levels)


class Bins(NamedTuple):
    """Lookup tables of bins. Past lags are positive; lags beyond ± L count as L, twice the length of the axis."""

    by_lag: Ints  # (2, 2 L + 1): bin of a fact that is not the closest, and of the closest, by lag + L
    run: Ints  # (L + 1,): number of the run-length bin, from 0, by run length
    ranges: Ints  # (2, count): smallest and largest |lag| of a bin
    layout: Layout


def lag_bins(times: int, chosen: Layout | None = None) -> Bins:
    """Return the lookup tables for an axis of `times` steps, extended by as many steps into the future."""
    chosen = chosen or Layout()
    limit = max(2, 2 * times)
    lags = np.arange(-limit, limit + 1)
    first_near, first_older, _ = chosen.firsts - 1
    first = np.where(lags < 0, 1 + chosen.side, 1)
    near = first + first_near + np.searchsorted(chosen.near, np.abs(lags), side="right") - 1
    older = first + first_older + np.maximum(np.searchsorted(chosen.older, np.abs(lags), side="right") - 1, 0)
    near[limit] = older[limit] = 0
    run = np.maximum(np.searchsorted(chosen.runs, np.arange(limit + 1), side="right") - 1, 0)
    lowest = [1] * len(chosen.runs) + [*chosen.near, *chosen.older]
    highest = [1] * len(chosen.runs)
    for smallest in (chosen.near, chosen.older):
        highest += [*(lag - 1 for lag in smallest[1:]), limit]
    ranges = np.array([[0, *lowest, *lowest], [0, *highest, *highest]])
    return Bins(np.stack([older, near]), run, ranges, chosen)
