"""Choose the order in which the terms of an equation are contracted. Pure Python: no tensors.

A product of factors depends only on the ids of its slots, so it is computed once per *distinct combination* of ids in
a batch: the core tensor of a time is contracted once with each predicate that occurs with it, however many facts share
both. The order is found by dynamic programming over subsets of terms; a subset is a bit mask.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

from recollect.graph.facts import ORDER

Terms = tuple[tuple[str, str], ...]  # (slot, axes) of each factor, ("", axes) of each core tensor

MOVE_WORK = 4  # multiply-adds that reading or writing one element costs
CANDIDATES = "N"  # the axis that all candidates of an open slot share


@dataclass(frozen=True)
class Problem:
    """Terms, the length of each axis, and the number of distinct id combinations of each set of slots."""

    terms: Terms
    sizes: tuple[tuple[str, int], ...]
    counts: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, terms: Terms, sizes: Mapping[str, int], counts: Mapping[str, int]) -> Problem:
        """Return a hashable problem; counts are rounded up to powers of two, so that similar batches share a plan."""
        rounded = {slots: 1 << max(0, count - 1).bit_length() for slots, count in counts.items()}
        return cls(terms, tuple(sorted(sizes.items())), tuple(sorted(rounded.items())))

    @cached_property
    def size(self) -> dict[str, int]:
        return dict(self.sizes)

    @cached_property
    def count(self) -> dict[str, int]:
        return dict(self.counts) | {"": 1}

    def elements(self, axes: str) -> int:
        """Return the number of elements of a tensor with these axes."""
        return math.prod(self.size[axis] for axis in axes)

    def step_cost(self, left: int, right: int) -> float:
        """Return the FLOPs of one product: per distinct combination its arithmetic and the elements it moves.

        Approximation: the larger operand is read once per combination of the more widely shared operand.
        """
        terms = self.terms
        x, y, product = kept_axes(terms, left), kept_axes(terms, right), kept_axes(terms, left | right)
        rows = self.count[slots_of(terms, left | right)]
        shared = min(self.count[slots_of(terms, left)], self.count[slots_of(terms, right)], rows)
        small, large = sorted((self.elements(x), self.elements(y)))
        flops = 2 * self.elements("".join(dict.fromkeys(x + y)))
        moves = rows * (small + self.elements(product)) + shared * large
        return rows * flops + 2 * MOVE_WORK * moves


@dataclass(frozen=True)
class Plan:
    """The cost of a product in FLOPs, and the pairs of subsets to multiply for it, in order."""

    cost: float
    steps: tuple[tuple[int, int], ...]


@lru_cache(maxsize=4096)
def contraction_plan(problem: Problem, mask: int, done: tuple[int, ...] = ()) -> Plan:
    """Return the cheapest plan for the product of the terms in `mask`; subsets in `done` are free."""
    best: dict[int, tuple[float, tuple[int, int] | None]] = {}
    for subset in sorted(_submasks(mask), key=int.bit_count):
        if subset.bit_count() == 1 or subset in done:
            best[subset] = (0.0, None)
            continue
        options = []
        for left in _submasks(subset):
            right = subset ^ left
            if right and left > right:
                cost = best[left][0] + best[right][0] + problem.step_cost(left, right)
                options.append((cost, (left, right)))
        best[subset] = min(options)

    def steps(subset: int) -> list[tuple[int, int]]:
        pair = best[subset][1]
        return [] if pair is None else [*steps(pair[0]), *steps(pair[1]), pair]

    return Plan(best[mask][0], tuple(steps(mask)))


@lru_cache(maxsize=4096)
def queries_cost(problem: Problem, slots: str) -> float:
    """Return the FLOPs of the queries of some open slots; products that they share count once."""
    total = 0.0
    done: set[int] = set()
    for slot in slots:
        mask = terms_without(problem.terms, slot)
        usable = tuple(sorted(subset for subset in done if subset & mask == subset))
        plan = contraction_plan(problem, mask, usable)
        total += plan.cost
        done |= {left | right for left, right in plan.steps}
    return total


def intermediate_elements(problem: Problem, mask: int, counts: Mapping[str, int]) -> int:
    """Return the number of elements of all products on the way to that of `mask`, by unrounded counts."""
    total = 0
    for left, right in contraction_plan(problem, mask).steps:
        slots = slots_of(problem.terms, left | right)
        rows = counts[slots] if slots else 1
        total += rows * problem.elements(kept_axes(problem.terms, left | right))
    return total


def max_query_elements(terms: Terms, sizes: Mapping[str, int], ids: Mapping[str, int], facts: int, open: str) -> int:
    """Return the largest possible number of elements of all products on the way to the queries of some open slots.

    `sizes` holds the length of each axis, `ids` the number of ids of each slot.
    """
    counts = {slots: min(facts, math.prod(ids[slot] for slot in slots)) for slots in slot_sets(terms)}
    problem = Problem.of(terms, sizes, counts)
    return sum(intermediate_elements(problem, terms_without(terms, slot), counts) for slot in open if slot in ids)


def slot_sets(terms: Terms) -> list[str]:
    """Return every non-empty set of slots of an equation, each in the canonical order."""
    present = {slot for slot, _ in terms if slot}
    slots = [slot for slot in ORDER if slot in present]
    masks = range(1, 1 << len(slots))
    return ["".join(slot for bit, slot in enumerate(slots) if mask >> bit & 1) for mask in masks]


@lru_cache(maxsize=4096)
def slots_of(terms: Terms, mask: int) -> str:
    """Return the slots of a subset of terms in the canonical order."""
    present = {slot for bit, (slot, _) in enumerate(terms) if mask >> bit & 1}
    return "".join(slot for slot in ORDER if slot in present)


@lru_cache(maxsize=4096)
def kept_axes(terms: Terms, mask: int) -> str:
    """Return the axes of a product that terms outside the subset, or the candidates, still need."""
    inside = dict.fromkeys("".join(axes for bit, (_, axes) in enumerate(terms) if mask >> bit & 1))
    outside = set("".join(axes for bit, (_, axes) in enumerate(terms) if not mask >> bit & 1)) | {CANDIDATES}
    return "".join(axis for axis in inside if axis in outside)


def terms_without(terms: Terms, slots: str) -> int:
    """Return the subset of all terms but those of the given slots."""
    return sum(1 << bit for bit, (slot, _) in enumerate(terms) if not slot or slot not in slots)


def _submasks(mask: int) -> list[int]:
    found, sub = [], mask
    while sub:
        found.append(sub)
        sub = (sub - 1) & mask
    return found
