"""The order in which facts are learned: at random, or in blocks of one time so that a batch shares its cores.

With blocks, the facts of each time are cut at random into pieces, the pieces are shuffled, and a batch is made
of several: the fewer times in a batch, the more of its work is shared, and the less each step sees of the whole.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from recollect.facts import Facts, stable_sort
from recollect.models import TensorModel

BLOCKS = (64, 32, 16)  # times in a batch, the most first; with fewer, validation MRR suffers
FEW = (8, 4)  # which suffice where every fact is compared with all candidates
SLACK = 1.2  # the most times whose batch costs no more than this, beside the cheapest
GAIN = 2.0  # how much cheaper a batch of blocks must be than a random one
WORTH = 1e8  # flops of a random batch, about a millisecond, below which order does not matter
STATE = 130  # flops that updating one number of a table is worth: it is copied, and its gradient and moments with it


def random_order(n: int, generator: torch.Generator) -> Tensor:
    return torch.randperm(n, generator=generator)


def block_order(times: Tensor, block: int, generator: torch.Generator) -> Tensor:
    """Facts in pieces of at most `block` of one time each, pieces in random order: (n,).

    >>> block_order(torch.tensor([0, 0, 1, 1]), 2, torch.Generator().manual_seed(0)).view(2, 2).sort().values.tolist()
    [[0, 1], [2, 3]]
    """
    shuffled = torch.randperm(len(times), generator=generator)
    order = shuffled.index_select(0, stable_sort(times.index_select(0, shuffled))[1])
    counts = times.bincount()
    pieces = -(-counts // block)  # of each time; the last one of a time may be smaller
    begin = torch.repeat_interleave(counts.cumsum(0) - counts - block * (pieces.cumsum(0) - pieces), pieces)
    begin += block * torch.arange(len(begin))
    sizes = torch.cat([begin[1:], counts.sum()[None]]) - begin
    place = torch.randperm(len(begin), generator=generator)  # of each piece
    first = place.argsort()  # the piece in each place
    sizes = sizes[first]
    shift = torch.repeat_interleave(begin[first] - (sizes.cumsum(0) - sizes), sizes)
    return order.index_select(0, shift + torch.arange(len(times)))


def choose_block(
    model: TensorModel, facts: Facts, batch_size: int, slots: str, counts: Sequence[int] = BLOCKS
) -> int | None:
    """How many facts of one time to keep together, by the estimated cost of a batch; None: a random order is as good.

    Drawn from facts by a generator of its own, so that the choice disturbs no other draw.
    """
    generator = torch.Generator().manual_seed(0)
    size = min(batch_size, len(facts))
    if "t" not in model.indicator.slots or model.indicator.is_diagonal or size < 2:
        return None

    def cost(order: Tensor) -> float:
        batch = facts[order[:size]]
        rows = {slot: len(batch.column(slot).unique()) for slot in "pt"}
        state = STATE * sum(rows[slot] * model.row_numbers(slot) for slot in rows)
        return state + sum(work.cost(slots) for work in model.works(batch).values())

    at_random = cost(random_order(len(facts), generator))
    if at_random < WORTH:
        return None
    by_block = {}
    for count in counts:
        block = -(-size // count)
        by_block[block] = cost(block_order(facts.t, block, generator))
    cheapest = min(by_block.values())
    block = next(block for block, price in by_block.items() if price <= SLACK * cheapest)
    return block if GAIN * by_block[block] <= at_random else None
