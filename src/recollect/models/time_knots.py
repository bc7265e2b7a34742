"""Interpolate time embeddings from knots at several resolutions.

    a_t = Σ_w (1 − f) K_w[k] + f K_w[k + 1],    k + f = t / w,

over the spacings w. Spacing 1 gives every time a knot of its own, 0 gives all times one common knot. A coarse level is
learned from all days of a month, a fine one adds what differs from day to day.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from recollect.errors import UserError
from recollect.graph.times import MAX_TIMES

MAX_LEVELS = 16


@dataclass(frozen=True, eq=False)
class TimeKnots:
    """The knots of each time and their weights.

    >>> knots = TimeKnots.of(5, (0, 4))
    >>> knots.count, knots.knot[2].tolist(), knots.weight[2].tolist()
    (3, [0, 1, 2], [1.0, 0.5, 0.5])
    """

    knot: Tensor  # (times, m): knot ids, one level after another
    weight: Tensor  # (times, m)
    count: int  # number of knots

    @classmethod
    def of(cls, times: int, spacings: Sequence[int]) -> TimeKnots:
        """Return the knots of `times` consecutive times at some spacings."""
        time = torch.arange(times)
        knots, weights, count = [], [], 0
        for spacing in spacings:
            if spacing < 2:
                knots.append(count + time * spacing)
                weights.append(torch.ones(times, dtype=torch.float64))
                count += times if spacing else 1
                continue
            below, fraction = time // spacing, (time % spacing).double() / spacing
            # a time on a knot needs no second one: it is the first again, with weight 0
            knots += [count + below, count + below + (fraction > 0)]
            weights += [1 - fraction, fraction]
            count += -(-(times - 1) // spacing) + 1
        return cls(torch.stack(knots, dim=1), torch.stack(weights, dim=1), count)

    @property
    def times(self) -> int:
        return len(self.knot)

    def touched(self, times: Tensor) -> Tensor:
        """Return the sorted knots that some times are interpolated from."""
        mark = torch.zeros(self.count, dtype=torch.bool)
        mark[self.knot[times].reshape(-1)] = True
        return mark.nonzero()[:, 0]

    def restrict(self, times: Tensor, knots: Tensor) -> TimeKnots:
        """Return the interpolation of some times (n,) from some knots (m,), both renumbered from 0."""
        place = torch.zeros(self.count, dtype=torch.int64)
        place[knots] = torch.arange(len(knots))
        return TimeKnots(place[self.knot[times]], self.weight[times], len(knots))

    def shares(self, part: Tensor, present: Tensor) -> Tensor:
        """Return the share of each knot's weight that parts of the present times make up: two (times,) -> (knots,)."""
        knot = self.knot.T.reshape(-1)
        whole = part.new_zeros(self.count).index_add_(0, knot, (self.weight * present[:, None]).T.reshape(-1))
        partial = part.new_zeros(self.count).index_add_(0, knot, (self.weight * part[:, None]).T.reshape(-1))
        return partial / whole.clamp(min=1e-12)

    def mixing(self, times: Tensor, like: Tensor) -> Tensor:
        """Return the weight of every knot in some times: (times, knots), with the dtype and device of `like`."""
        weights = like.new_zeros(len(times), self.count)
        knot, weight = self.knot.to(like.device)[times], self.weight.to(like)[times]
        return weights.scatter_add_(1, knot, weight)

    def rows(self, table: Tensor, times: Tensor) -> Tensor:
        """Return the interpolated embeddings of some times: (knots, …), (n,) -> (n, …)."""
        used = self.touched(times.cpu()).to(table.device)
        mixing, knots = self.mixing(times, table), table.flatten(1)
        if 2 * len(used) <= self.count:
            mixing, knots = mixing[:, used], knots[used]
        return (mixing @ knots).view(len(times), *table.shape[1:])


def neighbours(times: int, spacings: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return the knot before and the knot after each knot of its level, −1 at the ends: two of (knots,)."""
    before, after, first = [], [], 0
    for spacing in spacings:
        count = TimeKnots.of(times, (spacing,)).count
        knots = torch.arange(count)
        before.append((first + knots - 1).where(knots > 0, -1))
        after.append((first + knots + 1).where(knots < count - 1, -1))
        first += count
    return torch.cat(before), torch.cat(after)


@torch.no_grad()
def interpolate_untouched_(table: Tensor, touched_times: Tensor, times: int, spacings: Sequence[int]) -> None:
    """Interpolate the rows of knots that no time of `touched_times` uses between the nearest used ones of their level.

    At the ends of a level, copy the nearest used row.

    >>> table = torch.tensor([0.0, 1, 0, 0, 4, 0])[:, None]
    >>> interpolate_untouched_(table, torch.tensor([1, 4]), 6, (1,))
    >>> table[:, 0].tolist()
    [1.0, 1.0, 2.0, 3.0, 4.0, 4.0]
    """
    idle, before, after, share = untouched_knots(touched_times, times, spacings)
    for knot, low, high, weight in zip(idle, before, after, share.tolist(), strict=True):
        table[knot] = torch.lerp(table[low], table[high], weight)  # rows may be large: one at a time


def untouched_knots(
    touched_times: Tensor, times: int, spacings: Sequence[int]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the knots that no time of `touched_times` uses, the used ones before and after each, and its position.

    The position is 0 at the knot before and 1 at the one after. At the ends of a level both are the nearest used one.
    """
    found, first = [], 0
    for spacing in spacings:
        level = TimeKnots.of(times, (spacing,))
        touched, knots = level.touched(touched_times), torch.arange(level.count)
        idle = knots[~torch.isin(knots, touched)]
        place = torch.searchsorted(touched, idle)
        before, after = touched[(place - 1).clamp(min=0)], touched[place.clamp(max=len(touched) - 1)]
        share = ((idle - before).double() / (after - before).clamp(min=1)).clamp(0, 1)
        found.append((first + idle, first + before, first + after, share))
        first += level.count
    idle, before, after, share = (torch.cat(column) for column in zip(*found, strict=True))
    return idle, before, after, share


def parse_time_levels(text: str) -> tuple[int, ...]:
    """Return spacings from text.

    >>> parse_time_levels("5, 1,25")
    (1, 5, 25)
    """
    words = text.replace(" ", "").split(",")
    return check_time_levels([int(word) if word.isdecimal() else -1 for word in words])


def check_time_levels(spacings: Sequence[int]) -> tuple[int, ...]:
    """Return spacings in ascending order; raise UserError unless they are a few distinct whole numbers from 0."""
    given = tuple(spacings) if isinstance(spacings, Sequence) else ()
    if not given or any(not isinstance(w, int) or w < 0 for w in given) or len(set(given)) < len(given):
        raise UserError(f"time_levels are spacings of times, distinct whole numbers from 0, like 0,1,7; got {spacings}")
    if len(given) > MAX_LEVELS or max(given) > MAX_TIMES:
        raise UserError(
            f"time_levels are at most {MAX_LEVELS} spacings of at most {MAX_TIMES:,} times; got {len(given)}"
        )
    return tuple(sorted(given))
