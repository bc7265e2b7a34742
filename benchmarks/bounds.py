"""What no implementation can beat by much: the flops and bytes that the work needs, at the machine's measured rates.

The bound of an epoch with two negatives is the larger of two times. One is its flops in the cheapest order that is
known, three times those of scoring (forward, and the gradient of either side), at the rate of a plain float32 matrix
product. The other is the bytes that must move, every gathered row read once and its gradient written once, at the
rate of a plain copy. Rows that are matrices or cores count once for all facts that share them, plus once a batch.
What stays in a processor's cache moves faster than that, so a bound by bytes can be beaten where tables are small.

The bound of a one-vs-all epoch is three products of queries × entities (forward, the gradient of the queries, the
gradient of the table) over the distinct queries of both directions. The bound of an evaluation is not computed but
run: the bare product of queries and candidates in cache-sized pieces, without filter and comparison.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from recollect.evaluation.ranking import BYTES
from recollect.graph.facts import KINDS, Facts, encode
from recollect.models.tensor_model import MODELS, Dims

NUMBER = 4  # bytes of a float32
PASSES = 3  # of the flops of a score: forward, and the gradient of either side
COPIED = 64 * 2**20  # bytes, beyond any cache's share
TRIES = 3


@dataclass(frozen=True)
class Work:
    """What must be done, whoever does it."""

    flops: float
    bytes: float = 0.0


@dataclass(frozen=True)
class Machine:
    """Flops a second of a float32 matrix product and bytes a second of a copy, both directions counted."""

    flops: float
    bytes: float

    @classmethod
    def measure(cls, size: int = 1024, copied: int = COPIED) -> Machine:
        """The best of a few tries, now."""
        a, b, c = torch.randn(3, size, size)
        source = torch.zeros(copied, dtype=torch.uint8)
        target = torch.empty_like(source)
        product = min(seconds(lambda: torch.mm(a, b, out=c)) for _ in range(TRIES))
        copy = min(seconds(lambda: target.copy_(source)) for _ in range(TRIES))
        return cls(flops=2 * size**3 / product, bytes=2 * copied / copy)

    def seconds(self, work: Work) -> float:
        return max(work.flops / self.flops, work.bytes / self.bytes)


def seconds(run: Callable[[], object]) -> float:
    """How long it takes."""
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def training_work(
    model: str,
    facts: Facts,
    sizes: Mapping[str, int],
    dims: Dims,
    form: str,
    negatives: Mapping[str, int],
    steps: int,
) -> Work:
    """An epoch in so many steps of facts and their corruptions."""
    pairs = len(torch.unique(encode(facts, sizes, "pt"))) if form == "episodic" else len(torch.unique(facts.p))
    times = len(torch.unique(facts.t)) if form == "episodic" else 0
    flops = scoring_flops(model, dims, facts=len(facts), pairs=pairs, times=times)
    kind = MODELS[model]
    shapes, indicator = kind.shapes(sizes, dims, form), kind.equation(form)
    numbers = 0
    for slot in indicator.slots:
        table = shapes[KINDS[slot]]
        shared = len(indicator.occurrences(slot)[0]) > 1
        rows = len(torch.unique(facts.column(slot))) + steps if shared else len(facts) * (1 + negatives.get(slot, 0))
        numbers += rows * math.prod(table[1:])
    return Work(flops=PASSES * flops, bytes=2 * NUMBER * numbers)


def scoring_flops(model: str, dims: Dims, *, facts: int, pairs: int, times: int) -> float:
    """Flops to score facts, a corrupted subject and a corrupted object each, in the cheapest order that is known.

    A fact costs two queries, one for either side, and three dot products. The models with a core first contract it
    with the distinct times and with the distinct `pairs` of predicate and time (predicates alone, without times):
    the matrix of a pair then serves all facts that share it.
    """
    r, p, t = dims.entity, dims.predicate, dims.time
    dots = 3 * 2 * r
    matrices = facts * (2 * 2 * r * r + dots)  # two queries, each a vector times the matrix of its pair
    match model:
        case "distmult":
            return facts * (2 * 3 * r + dots)
        case "complex":  # a complex product has six flops, the real part of one four
            return facts * (2 * 2 * 6 * r + 3 * 4 * r)
        case "hole":  # the same on half as many bins; transforming the tables is not counted
            return facts * (2 * 2 * 6 * r + 3 * 4 * r) / 2
        case "rescal":
            return matrices
        case "tucker":
            return times * 2 * t * r * p * r + pairs * 2 * r * p * r + matrices
        case "tree":
            by_time = times * 2 * 2 * t * r * p  # both subtrees meet their time
            by_pair = pairs * (2 * r * p * p + 2 * r * p * r) + matrices
            by_fact = facts * (2 * (2 * r * p + 2 * p * p + 2 * p * r) + dots)
            return by_time + min(by_pair, by_fact)
    return pairs * 2 * r * p * r + matrices


def one_vs_all_work(model: str, facts: Facts, sizes: Mapping[str, int], dims: Dims, form: str) -> Work:
    """Three products of the distinct queries for subjects and for objects with all entities."""
    given = ("spt", "pot") if form == "episodic" else ("sp", "po")
    queries = sum(len(torch.unique(encode(facts, sizes, slots))) for slots in given)
    count, *row = MODELS[model].shapes(sizes, dims, form)["entity"]
    return Work(flops=PASSES * 2.0 * queries * count * math.prod(row))


def product_shape(model: str, slot: str, sizes: Mapping[str, int], dims: Dims, form: str) -> tuple[int, int]:
    """Inner length and columns of the product that scores all candidates of a slot, in the cheapest order known."""
    kind = MODELS[model]
    candidates, *row = kind.shapes(sizes, dims, form)[KINDS[slot]]
    if model == "cont" and slot == "t":
        # the subject meets the matrices of its predicate at all times; not r³ products a time
        return dims.entity, dims.entity * candidates
    return math.prod(row) ** len(kind.equation(form).occurrences(slot)), candidates


def bare_products(count: int, inner: int, columns: int) -> float:
    """Seconds of the product (count × inner) · (inner × columns), in cache-sized pieces into one buffer."""
    rows = max(1, min(count, BYTES // (16 * columns)))
    query, table, buffer = torch.randn(rows, inner), torch.randn(columns, inner), torch.empty(rows, columns)
    began = time.perf_counter()
    for start in range(0, count, rows):
        piece = min(rows, count - start)
        torch.mm(query[:piece], table.T, out=buffer[:piece])
    return time.perf_counter() - began
