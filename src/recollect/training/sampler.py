"""The order of facts in an epoch: random, or in blocks of one time so that a batch shares its cores.

With blocks, the facts of each time are cut at random into blocks, the blocks are shuffled, and a batch has several of
them. The fewer times in a batch, the more of its computation is shared, and the less representative is a step. Within a
time, facts of one predicate come in groups of `GROUP`, which share their matrix.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from recollect.graph.facts import ORDER, Facts, concat_ranges, encode, is_sorted, stable_sort
from recollect.models.tensor_model import TensorModel
from recollect.training.objectives import Objective
from recollect.training.recipe import Recipe

GROUP = 4  # facts of one time and predicate that stay together; with more, validation MRR suffers
SLACK = 1.2  # use the most times per batch whose cost is within this factor of the cheapest
MIN_GAIN = 2.0  # use blocks only if a batch of blocks is cheaper than a random one by this factor
MIN_FLOPS = 1e8  # FLOPs of a random batch, about a millisecond; below, the order does not matter
FLOPS_PER_UPDATE = 130  # cost model: updating a table element (gradient, moments, copies) costs 130 multiply-adds


class FactSampler:
    """Draw the order of each epoch and cut it into batches."""

    def __init__(self, model: TensorModel, facts: Facts, recipe: Recipe, objective: Objective) -> None:
        """Choose the order that the recipe names, or by the estimated cost of a batch if it names `auto`."""
        self.facts, self.batch_size = facts, recipe.batch_size
        self.block: int | None = None  # facts of one time that stay together; None for a random order
        if recipe.order != "random":
            self.block = choose_block(model, facts, self.batch_size, objective.slots, objective.times_per_batch)
        if recipe.order == "blocks" and self.block is None:
            self.block = -(-self.batch_size // objective.times_per_batch[0])
        if self.block is not None:  # sorted, so that a batch in ascending order has equal (time, predicate) together
            self.facts = facts[encode(facts, model.sizes, ORDER).argsort()]

    def draw_order(self, generator: torch.Generator) -> Tensor:
        """Return a new order of all facts: (n,)."""
        if self.block is None:
            return random_order(len(self.facts), generator)
        return block_order(self.facts, self.block, generator)

    def batch(self, order: Tensor, number: int) -> Facts:
        """Return batch `number` of an epoch; with blocks, its facts are in ascending order."""
        rows = order[number * self.batch_size : (number + 1) * self.batch_size]
        if self.block is not None:
            rows = torch.from_numpy(np.sort(rows.numpy()))
        return self.facts[rows]

    def typical_batch(self) -> Facts:
        """Return one batch drawn with a fixed seed, so that what is planned by it is the same in a resumed run."""
        return self.facts[self.draw_order(torch.Generator().manual_seed(0))[: self.batch_size]]


def random_order(n: int, generator: torch.Generator) -> Tensor:
    """Return a random permutation: (n,)."""
    return torch.randperm(n, generator=generator)


def block_order(facts: Facts, block: int, generator: torch.Generator) -> Tensor:
    """Return an order in blocks of at most `block` facts of one time, blocks shuffled: (n,).

    Within a time, groups of at most GROUP facts of one predicate are shuffled; the end of a block may cut a group.

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
    order = _shuffle_within(order, counts, generator)
    begin, sizes, owner = _cut(counts, GROUP)
    _, groups = torch.unique_consecutive((pairs // predicates)[owner], return_counts=True)  # per time
    shuffled = _shuffle_within(torch.arange(len(begin)), groups, generator)
    order = order.index_select(0, concat_ranges(begin[shuffled], sizes[shuffled]))
    ends = sizes.cumsum(0)[groups.cumsum(0) - 1]  # of the facts of each time
    begin, sizes, _ = _cut(ends.diff(prepend=ends.new_zeros(1)), block)
    shuffled = torch.randperm(len(begin), generator=generator)
    return order.index_select(0, concat_ranges(begin[shuffled], sizes[shuffled]))


def _shuffle_within(numbers: Tensor, counts: Tensor, generator: torch.Generator) -> Tensor:
    """Shuffle numbers (n,) in place within consecutive groups of `counts` (groups,) elements; return them.

    Fisher–Yates of all groups at once: step j swaps element j of every group that is long enough.
    """
    chances = torch.rand(len(numbers), dtype=torch.float64, generator=generator).numpy()
    values, sizes = numbers.numpy(), counts.numpy()
    first = sizes.cumsum() - sizes
    longest_first = np.argsort(-sizes, kind="stable")
    first, sizes = first[longest_first], sizes[longest_first]
    for j in range(int(sizes[0]) - 1, 0, -1):
        begin = first[: np.searchsorted(-sizes, -j)]  # of the groups with more than j elements
        last = begin + j
        other = begin + np.minimum(j, (chances[last] * (j + 1)).astype(np.int64))
        values[last], values[other] = values[other], values[last]
    return numbers


def _cut(counts: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Cut consecutive groups of `counts` elements into pieces of at most `size`; return their begin, size and group."""
    pieces = -(-counts // size)  # of each group; its last one may be smaller
    owner = torch.repeat_interleave(torch.arange(len(counts)), pieces)
    nth = torch.arange(len(owner)) - (pieces.cumsum(0) - pieces)[owner]
    begin = (counts.cumsum(0) - counts)[owner] + size * nth
    return begin, (counts[owner] - size * nth).clamp_max_(size), owner


def choose_block(
    model: TensorModel, facts: Facts, batch_size: int, slots: str, times_per_batch: Sequence[int]
) -> int | None:
    """Return how many facts of one time to keep together, by the estimated cost of a batch; None for a random order.

    `times_per_batch` are the numbers of blocks in a batch to choose from, most first. Random draws use a fixed seed, so
    that the choice affects no other draw.
    """
    generator = torch.Generator().manual_seed(0)
    size = min(batch_size, len(facts))
    if "t" not in model.slots or model.equation.is_diagonal or size < 2:
        return None

    def cost(order: Tensor) -> float:
        batch = facts[order[:size]]
        rows = {slot: len(batch.column(slot).unique()) for slot in "pt"}
        updated = sum(rows[slot] * model.row_size(slot) for slot in rows)
        return FLOPS_PER_UPDATE * updated + model.batch(batch).cost(slots)

    random_cost = cost(random_order(len(facts), generator))
    if random_cost < MIN_FLOPS:
        return None
    costs = {}
    for count in times_per_batch:
        block = -(-size // count)
        costs[block] = cost(block_order(facts, block, generator))
    cheapest = min(costs.values())
    block = next(block for block, block_cost in costs.items() if block_cost <= SLACK * cheapest)
    return block if MIN_GAIN * costs[block] <= random_cost else None
