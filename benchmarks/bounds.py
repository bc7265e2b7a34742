"""Lower bounds: the flops and bytes that the work needs, at the machine's measured rates.

The bound of an epoch with two negatives is the larger of two times. One is its flops in the cheapest known order, three
times those of scoring (forward, and the gradient of either factor), at the rate of a plain float32 matrix product. The
other is the bytes that must move, every gathered row read once and its gradient written once, at the rate of a plain
copy. Rows that are matrices or cores count once for all facts that share them, plus once per batch. Data in a
processor's cache moves faster than that, so a bound by bytes can be beaten where tables are small.

The bound of a one-vs-all epoch is three products of queries × entities (forward, the gradient of the queries, the
gradient of the table) over the distinct queries of both directions. The bound of an evaluation is not computed but
run: the bare product of queries and candidates in cache-sized blocks, without filter and comparison.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.timing import seconds
from recollect import MODELS, Facts, ModelConfig
from recollect.graph.facts import KINDS
from recollect.models.parameters import equations_of, parameter_shapes

FLOAT_BYTES = 4
PASSES = 3  # multiples of the flops of a score: forward, and the gradient of either factor
COPIED_BYTES = 64 * 2**20  # larger than caches
BLOCK_BYTES = 8 * 2**20  # of a block of scores: stays in a processor's cache
TRIES = 3


@dataclass(frozen=True)
class Work:
    """The flops and bytes of some work."""

    flops: float
    bytes: float = 0.0


@dataclass(frozen=True)
class Machine:
    """Flops per second of a float32 matrix product and bytes per second of a copy, reads and writes counted."""

    flops: float
    bytes: float

    @classmethod
    def measure(cls, size: int = 1024, copied: int = COPIED_BYTES) -> Machine:
        """Return the best rates of a few tries."""
        a, b, c = torch.randn(3, size, size)
        source = torch.zeros(copied, dtype=torch.uint8)
        target = torch.empty_like(source)
        product = min(seconds(lambda: torch.mm(a, b, out=c)) for _ in range(TRIES))
        copy = min(seconds(lambda: target.copy_(source)) for _ in range(TRIES))
        return cls(flops=2 * size**3 / product, bytes=2 * copied / copy)

    def seconds(self, work: Work) -> float:
        """Return the least seconds that the work takes."""
        return max(work.flops / self.flops, work.bytes / self.bytes)


def count_distinct(facts: Facts, sizes: Mapping[str, int], slots: str) -> int:
    """Return the number of distinct id combinations of some slots."""
    codes: Tensor = torch.zeros(len(facts), dtype=torch.int64)
    for slot in slots:
        codes = codes * sizes[KINDS[slot]] + facts.column(slot)
    return len(torch.unique(codes))


def training_work(
    config: ModelConfig, facts: Facts, sizes: Mapping[str, int], negatives: Mapping[str, int], steps: int
) -> Work:
    """Return the work of an epoch of `steps` steps with negatives per slot."""
    model = MODELS[config.model]
    equation, shapes = equations_of(model, config)[""], parameter_shapes(model, config, sizes)
    is_episodic = config.form == "episodic"
    pairs = count_distinct(facts, sizes, "pt" if is_episodic else "p")
    times = count_distinct(facts, sizes, "t") if is_episodic else 0
    elements = 0
    for slot in equation.slots:
        if equation.order(slot) > 1:  # a matrix or core is shared by the facts of a batch
            rows = count_distinct(facts, sizes, slot) + steps
        else:
            rows = len(facts) * (1 + negatives.get(slot, 0))
        elements += rows * math.prod(shapes[KINDS[slot]][1:])
    flops = scoring_flops(config, facts=len(facts), pairs=pairs, times=times)
    return Work(flops=PASSES * flops, bytes=2 * FLOAT_BYTES * elements)


def scoring_flops(config: ModelConfig, *, facts: int, pairs: int, times: int) -> float:
    """Return the flops to score facts with a negative subject and a negative object each, in the cheapest known order.

    A fact costs two queries, one for either side, and three dot products. Models with a core contract it first with
    the distinct times, then with the distinct `pairs` of predicate and time (predicates alone, without times). The
    matrix of a pair then serves all facts that share it.
    """
    r, p, t = config.dims["entity"], config.dims["predicate"], config.dims["time"]
    dots = 3 * 2 * r
    matrices = facts * (2 * 2 * r * r + dots)  # two queries, each a vector times the matrix of its pair
    match config.model:
        case "distmult":
            return facts * (2 * 3 * r + dots)
        case "complex":  # a complex product has six flops, the real part of one four
            return facts * (2 * 2 * 6 * r + 3 * 4 * r)
        case "hole":  # the same on half as many bins; the FFT of the tables is not counted
            return facts * (2 * 2 * 6 * r + 3 * 4 * r) / 2
        case "rescal":
            return matrices
        case "tucker":
            return times * 2 * t * r * p * r + pairs * 2 * r * p * r + matrices
        case "tree":
            by_time = times * 2 * 2 * t * r * p  # both subtrees are contracted with their time
            by_pair = pairs * (2 * r * p * p + 2 * r * p * r) + matrices
            by_fact = facts * (2 * (2 * r * p + 2 * p * p + 2 * p * r) + dots)
            return by_time + min(by_pair, by_fact)
    return pairs * 2 * r * p * r + matrices


def one_vs_all_work(config: ModelConfig, facts: Facts, sizes: Mapping[str, int]) -> Work:
    """Return the work of three products of the distinct queries for subjects and for objects with all entities."""
    given = ("spt", "pot") if config.form == "episodic" else ("sp", "po")
    queries = sum(count_distinct(facts, sizes, slots) for slots in given)
    count, *row = parameter_shapes(MODELS[config.model], config, sizes)["entity"]
    return Work(flops=PASSES * 2.0 * queries * count * math.prod(row))


def product_shape(config: ModelConfig, slot: str, sizes: Mapping[str, int]) -> tuple[int, int]:
    """Return inner length and columns of the product that scores all candidates of a slot, in the cheapest order."""
    model = MODELS[config.model]
    candidates, *row = parameter_shapes(model, config, sizes)[KINDS[slot]]
    if config.model == "cont" and slot == "t":
        # subject times the matrices of its predicate at all times; not a dot product of dim³ elements per time
        return config.dim, config.dim * candidates
    return math.prod(row) ** len(equations_of(model, config)[""].occurrences(slot)), candidates


def bare_products(count: int, inner: int, columns: int) -> float:
    """Return the seconds of the product (count × inner) · (inner × columns), in blocks into one buffer."""
    rows = max(1, min(count, BLOCK_BYTES // (16 * columns)))
    query, table, buffer = torch.randn(rows, inner), torch.randn(columns, inner), torch.empty(rows, columns)

    def multiply() -> None:
        for start in range(0, count, rows):
            block = min(rows, count - start)
            torch.mm(query[:block], table.T, out=buffer[:block])

    return seconds(multiply)
