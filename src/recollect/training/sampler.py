"""The order in which facts are learned: at random, or in blocks of one time so that a batch shares its cores.

With blocks, the facts of each time are cut at random into pieces, the pieces are shuffled, and a batch is made
of several: the fewer times in a batch, the more of its work is shared, and the less each step sees of the whole.
The facts of one time and predicate are dealt in hands of a few, which share their matrix.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from recollect.engine.kernels import shuffle_groups
from recollect.graph.facts import Facts, concat_ranges, is_sorted, stable_sort
from recollect.models.tensor_model import TensorModel

HAND = 4  # facts of one time and predicate that are learned together; with more, validation MRR suffers
BLOCKS = (64, 32, 16)  # times in a batch, the most first; with fewer, validation MRR suffers
FEW = (8, 4)  # which suffice where every fact is compared with all candidates
SLACK = 1.2  # the most times whose batch costs no more than this, beside the cheapest
GAIN = 2.0  # how much cheaper a batch of blocks must be than a random one
WORTH = 1e8  # flops of a random batch, about a millisecond, below which order does not matter
STATE = 130  # flops that updating one number of a table is worth: it is copied, and its gradient and moments with it


def random_order(n: int, generator: torch.Generator) -> Tensor:
    return torch.randperm(n, generator=generator)


def block_order(facts: Facts, block: int, generator: torch.Generator) -> Tensor:
    """Facts in pieces of at most `block` of one time each, pieces in random order: (n,).

    The facts of a time come in hands, each of one predicate, that are drawn at random; where a piece ends, a hand may
    be cut.

    >>> facts = Facts.of([(0, 0, 1, 0), (1, 0, 0, 0), (0, 0, 1, 1), (1, 0, 0, 1)])
    >>> sorted(block_order(facts, 2, torch.Generator().manual_seed(0)).view(2, 2).sort().values.tolist())
    [[0, 1], [2, 3]]
    """
    if not len(facts):
        return torch.arange(0)
    predicates = int(facts.p.max()) + 1
    codes, order = facts.t * predicates + facts.p, torch.arange(len(facts))
    if not is_sorted(codes):
        codes, order = stable_sort(codes)
    pairs, counts = torch.unique_consecutive(codes, return_counts=True)
    order = _shuffled(order, counts, generator)
    begin, sizes, owner = _cut(counts, HAND)
    _, hands = torch.unique_consecutive((pairs // predicates)[owner], return_counts=True)
    drawn = _shuffled(torch.arange(len(begin)), hands, generator)  # the hands of a time together, in random order
    order = order.index_select(0, concat_ranges(begin[drawn], sizes[drawn]))
    ends = sizes.cumsum(0)[hands.cumsum(0) - 1]  # of the facts of each time
    begin, sizes, _ = _cut(ends.diff(prepend=ends.new_zeros(1)), block)
    drawn = torch.randperm(len(begin), generator=generator)
    return order.index_select(0, concat_ranges(begin[drawn], sizes[drawn]))


def _shuffled(numbers: Tensor, counts: Tensor, generator: torch.Generator) -> Tensor:
    """Groups of so many numbers, one after another, each in random order: (n,), (groups,) -> (n,); in their place."""
    chances = torch.rand(len(numbers), dtype=torch.float64, generator=generator)
    ends = counts.cumsum(0)
    shuffle_groups(numbers.numpy(), ends.numpy(), chances.numpy())
    return numbers


def _cut(counts: Tensor, most: int) -> tuple[Tensor, Tensor, Tensor]:
    """Groups that lie one after another, cut into pieces of at most `most`: where each begins, its size, its group."""
    pieces = -(-counts // most)  # of each group; its last one may be smaller
    owner = torch.repeat_interleave(torch.arange(len(counts)), pieces)
    nth = torch.arange(len(owner)) - (pieces.cumsum(0) - pieces)[owner]
    begin = (counts.cumsum(0) - counts)[owner] + most * nth
    return begin, (counts[owner] - most * nth).clamp_max_(most), owner


def choose_block(
    model: TensorModel, facts: Facts, batch_size: int, slots: str, counts: Sequence[int] = BLOCKS
) -> int | None:
    """How many facts of one time to keep together, by the estimated cost of a batch; None: a random order is as good.

    Drawn from facts by a generator of its own, so that the choice disturbs no other draw.
    """
    generator = torch.Generator().manual_seed(0)
    size = min(batch_size, len(facts))
    if "t" not in model.slots or model.equation.is_diagonal or size < 2:
        return None

    def cost(order: Tensor) -> float:
        batch = facts[order[:size]]
        rows = {slot: len(batch.column(slot).unique()) for slot in "pt"}
        state = STATE * sum(rows[slot] * model.row_size(slot) for slot in rows)
        return state + model.batch(batch).cost(slots)

    at_random = cost(random_order(len(facts), generator))
    if at_random < WORTH:
        return None
    by_block = {}
    for count in counts:
        block = -(-size // count)
        by_block[block] = cost(block_order(facts, block, generator))
    cheapest = min(by_block.values())
    block = next(block for block, price in by_block.items() if price <= SLACK * cheapest)
    return block if GAIN * by_block[block] <= at_random else None
