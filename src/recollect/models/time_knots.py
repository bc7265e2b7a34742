"""Times at several resolutions: a time's row is a sum of knots, fine ones of its own and coarse ones it shares.

    a_t = Σ_w (1 − f) K_w[k] + f K_w[k + 1],    k + f = t / w,

over spacings w. Spacing 1 gives every time a knot, 0 gives all times the same one. So what holds for a month is learned
from all its days, a day adds what is its own, and thousands of times cost no more than the knots that they need.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from recollect.errors import UserError


@dataclass(frozen=True, eq=False)
class TimeKnots:
    """Which knots each time is made of, and how much of each.

    >>> levels = TimeKnots.of(5, (0, 4))
    >>> levels.count, levels.knot[2].tolist(), levels.weight[2].tolist()
    (3, [0, 1, 2], [1.0, 0.5, 0.5])
    """

    knot: Tensor  # (times, m): knots, the levels one after another
    weight: Tensor  # (times, m)
    count: int  # of all knots

    @classmethod
    def of(cls, times: int, spacings: Sequence[int]) -> TimeKnots:
        at = torch.arange(times)
        knots, weights, count = [], [], 0
        for spacing in spacings:
            if spacing < 2:
                knots.append(count + at * spacing)
                weights.append(torch.ones(times, dtype=torch.float64))
                count += times if spacing else 1
                continue
            below, over = at // spacing, (at % spacing).double() / spacing
            # a time that lies on its knot needs no other: the second is the first again, and counts nothing
            knots += [count + below, count + below + (over > 0)]
            weights += [1 - over, over]
            count += -(-(times - 1) // spacing) + 1
        return cls(torch.stack(knots, dim=1), torch.stack(weights, dim=1), count)

    def touched(self, times: Tensor) -> Tensor:
        """The knots of some times, sorted."""
        mark = torch.zeros(self.count, dtype=torch.bool)
        mark[self.knot[times].reshape(-1)] = True
        return mark.nonzero()[:, 0]

    def part(self, times: Tensor, knots: Tensor) -> TimeKnots:
        """The same for some times only, by their place among some knots."""
        place = torch.zeros(self.count, dtype=torch.int64)
        place[knots] = torch.arange(len(knots))
        return TimeKnots(place[self.knot[times]], self.weight[times], len(knots))

    def gather(self, part: Tensor, there: Tensor) -> Tensor:
        """What part of each knot some parts of the times that are there make: (times,), (times,) -> (knots,)."""
        knot, both = self.knot.T.reshape(-1), torch.stack([self.weight * there[:, None], self.weight * part[:, None]])
        totals = both.new_zeros(2, self.count)
        whole, some = totals.index_add_(1, knot, both.transpose(1, 2).reshape(2, -1))
        return some / whole.clamp(min=1e-12)

    def mixing(self, times: Tensor, like: Tensor) -> Tensor:
        """The weight of every knot in some times: (times, knots)."""
        weights = like.new_zeros(len(times), self.count)
        knot, weight = self.knot.to(like.device)[times], self.weight.to(like)[times]
        return weights.scatter_add_(1, knot, weight)

    def rows(self, knots: Tensor, times: Tensor) -> Tensor:
        """The rows of some times: (knots, …), (n,) -> (n, …)."""
        used = self.touched(times.cpu()).to(knots.device)
        if 2 * len(used) > self.count:
            mixed = self.mixing(times, knots) @ knots.flatten(1)
        else:
            mixed = self.mixing(times, knots)[:, used] @ knots.flatten(1)[used]
        return mixed.view(len(times), *knots.shape[1:])


def neighbours(times: int, spacings: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The knot before and the knot after each, on its level; −1 where there is none."""
    before, after, count = [], [], 0
    for spacing in spacings:
        knots = torch.arange(TimeKnots.of(times, (spacing,)).count)
        before.append((knots - 1 + count).where(knots > 0, -1))
        after.append((knots + 1 + count).where(knots < len(knots) - 1, -1))
        count += len(knots)
    return torch.cat(before), torch.cat(after)


@dataclass(frozen=True, eq=False)
class Bridges:
    """Knots that no fact touches, each on the line between the nearest that facts do touch."""

    knot: Tensor  # (n,)
    before: Tensor  # (n,)
    after: Tensor  # (n,): the same as before where a level ends
    share: Tensor  # (n,): of the way from before to after

    @classmethod
    def of(cls, times: Tensor, count: int, spacings: Sequence[int]) -> Bridges:
        """Of the times that have facts, among so many.

        >>> bridges = Bridges.of(torch.tensor([1, 4]), 6, (1,))
        >>> bridges.knot.tolist(), bridges.before.tolist(), bridges.after.tolist(), bridges.share.tolist()
        ([0, 2, 3, 5], [1, 1, 1, 4], [1, 4, 4, 4], [0.0, 0.3333333333333333, 0.6666666666666666, 1.0])
        """
        found, start = [], 0
        for spacing in spacings:
            level = TimeKnots.of(count, (spacing,))
            touched, knots = level.touched(times), torch.arange(level.count)
            idle = knots[~torch.isin(knots, touched)]
            place = torch.searchsorted(touched, idle)
            before, after = touched[(place - 1).clamp(min=0)], touched[place.clamp(max=len(touched) - 1)]
            share = (idle - before).double() / (after - before).clamp(min=1)
            found.append(torch.stack([idle + start, before + start, after + start, share.clamp(0, 1)]))
            start += level.count
        knot, before, after, share = torch.cat(found, dim=1)
        return cls(knot.long(), before.long(), after.long(), share)

    @torch.no_grad()
    def lay_(self, table: Tensor) -> None:
        """Put the knots where smoothness alone would."""
        for knot, before, after, share in zip(self.knot, self.before, self.after, self.share.tolist(), strict=True):
            table[knot] = torch.lerp(table[before], table[after], share)  # rows may be long: one at a time


def parse_levels(text: str) -> tuple[int, ...]:
    """Spacings from text.

    >>> parse_levels("5, 1,25")
    (1, 5, 25)
    """
    words = text.replace(" ", "").split(",")
    return check_levels([int(word) if word.isdecimal() else -1 for word in words])


def check_levels(spacings: Sequence[int]) -> tuple[int, ...]:
    """Spacings, each once, the coarsest last but for 0, which is first."""
    given = tuple(spacings) if isinstance(spacings, Sequence) else ()
    if not given or any(not isinstance(w, int) or w < 0 for w in given) or len(set(given)) < len(given):
        raise UserError(f"levels are spacings of times, whole numbers from 0, each once, like 0,1,7; got {spacings}")
    return tuple(sorted(given))
