"""Contract a batch of facts by a plan: every product is computed once per distinct combination of ids."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from recollect.engine import plan
from recollect.engine.ops import Groups, gather_dot, gather_mul, grouped_mm
from recollect.engine.plan import Problem, Terms
from recollect.graph.facts import is_sorted

MIN_SHARED_FACTS = 64  # batches of fewer facts: finding distinct combinations costs more than it saves


@dataclass(frozen=True)
class Part:
    """A product of terms: rows (R, *axes) and the row of each fact (B,); a product of core tensors has no rows."""

    slots: str  # "" for a product of core tensors
    axes: str
    value: Tensor  # (R, *axes), or (*axes) for core tensors
    index: Tensor | None  # (B,); None for core tensors
    distinct: bool = False  # rows are the distinct combinations of `slots`; else rows of a table


@dataclass(frozen=True)
class Combinations:
    """The distinct combinations of the ids of some slots."""

    example: Tensor  # (R,): one of the facts that have the combination
    index: Tensor  # (B,): the combination of each fact


@dataclass(frozen=True)
class Matrices:
    """The matrices M of the bilinear form x M y between subject and object, shared by groups of facts."""

    axes: str  # of a row and of a column of M
    values: Tensor  # (G, R, C)
    groups: Groups


class Contraction:
    """A batch of facts and one equation; products are cached, so several open slots share them."""

    def __init__(
        self,
        terms: Terms,
        ids: Mapping[str, Tensor],
        factor: Callable[[str, Tensor], tuple[Tensor, Tensor]],
        cores: Sequence[Tensor],
        counts: Mapping[str, int],
    ) -> None:
        """`ids` (B,) by slot; `factor(slot, ids)` returns rows (R, *axes) and the row of each id.

        `counts` holds the number of distinct combinations of each set of slots, as `distinct_counts` returns it.
        """
        self.terms, self.ids, self.factor, self.cores, self.counts = terms, ids, factor, cores, counts
        self._facts = len(next(iter(ids.values())))
        self._all = (1 << len(terms)) - 1
        self._parts: dict[int, Part] = {}
        self._combinations: dict[str, Combinations] = {}
        self._groups: dict[tuple[str, str, bool], Groups] = {}

    def score(self) -> Tensor:
        """Return θ of each fact: (B,)."""
        return self._per_fact(self._contract(self._all))

    def query(self, open: str) -> Tensor:
        """Return the product of all terms but those of the open slots: (B, axes of the open slots)."""
        part = self._contract(plan.terms_without(self.terms, open))
        wanted = dict.fromkeys("".join(axes for slot in open for other, axes in self.terms if other == slot))
        axes = "".join(axis for axis in wanted if axis in part.axes)
        return self._per_fact(replace(part, value=_permuted(part.value, part.axes, axes)))

    def matrices(self) -> Matrices | None:
        """Return the matrices between subject and object that facts share; None if queries cost less."""
        axes = {slot: "".join(axes for other, axes in self.terms if other == slot) for slot in "so"}
        if len(axes["s"]) != 1 or len(axes["o"]) != 1 or axes["s"] == axes["o"]:
            return None
        problem, mask = self._problem, plan.terms_without(self.terms, "so")
        bilinear = 2 * 2 * problem.elements(axes["s"] + axes["o"]) * self._facts
        if plan.contraction_plan(problem, mask).cost + bilinear > self.cost("so"):
            return None
        part = self._contract(mask)
        assert part.index is not None
        return Matrices(part.axes, part.value, Groups.of(part.index))

    def with_candidates(self, open: str, candidates: Tensor) -> Contraction:
        """Return a contraction with candidates (N, axes of one occurrence) in the open slot; its score is (B, N)."""
        terms = tuple(("", plan.CANDIDATES + axes) if slot == open else (slot, axes) for slot, axes in self.terms)
        occurrences = sum(1 for slot, _ in self.terms if slot == open)
        return Contraction(terms, self.ids, self.factor, [candidates] * occurrences + [*self.cores], self.counts)

    def elements(self, open: str = "") -> int:
        """Return the number of elements of all intermediate products of the query of some open slots, or of a score."""
        return plan.intermediate_elements(self._problem, plan.terms_without(self.terms, open), self.counts)

    def cost(self, slots: str) -> float:
        """Return the estimated FLOPs of the queries of some slots; shared products count once."""
        return plan.queries_cost(self._problem, slots)

    @cached_property
    def _problem(self) -> Problem:
        sizes: dict[str, int] = {}
        for bit, (_, axes) in enumerate(self.terms):
            sizes |= dict(zip(reversed(axes), reversed(self._part(1 << bit).value.shape), strict=False))
        return Problem.of(self.terms, sizes, self.counts)

    def _contract(self, mask: int) -> Part:
        done = tuple(sorted(subset for subset in self._parts if subset & mask == subset))
        for left, right in plan.contraction_plan(self._problem, mask, done).steps:
            axes = plan.kept_axes(self.terms, left | right)
            self._parts[left | right] = self._multiply(self._part(left), self._part(right), axes)
        return self._part(mask)

    def _part(self, mask: int) -> Part:
        """Return a cached product, or the factor or core tensor of a single term."""
        if mask not in self._parts:
            bit = mask.bit_length() - 1
            slot, axes = self.terms[bit]
            if slot:
                self._parts[mask] = Part(slot, axes, *self.factor(slot, self.ids[slot]))
            else:
                number = sum(1 for other, _ in self.terms[:bit] if not other)
                self._parts[mask] = Part("", axes, self.cores[number], None)
        return self._parts[mask]

    def _is_shared(self, slots: str) -> bool:
        """Return whether facts share combinations of slots; counts only steer cost, no result depends on them."""
        return self.counts[slots] < self._facts

    def _per_fact(self, part: Part) -> Tensor:
        """Return the row of each fact: (B, *axes)."""
        assert part.index is not None  # an equation has at least one slot besides the open one
        one_row_per_fact = part.distinct and not self._is_shared(part.slots)
        return part.value if one_row_per_fact else part.value.index_select(0, part.index)

    def _combine(self, slots: str) -> Combinations:
        """Return the distinct combinations of slots; one per fact where too few are shared."""
        if slots not in self._combinations:
            each = torch.arange(self._facts, device=self.ids[slots[0]].device)
            shared = self._is_shared(slots)
            self._combinations[slots] = combinations(self.ids, slots) if shared else Combinations(each, each)
        return self._combinations[slots]

    def _rows(self, part: Part, slots: str) -> Tensor:
        """Return the row of `part` for each distinct combination of `slots`."""
        if part.distinct and part.slots == slots:
            return torch.arange(len(part.value), device=part.value.device)
        assert part.index is not None
        return part.index[self._combine(slots).example] if self._is_shared(slots) else part.index

    def _multiply(self, x: Part, y: Part, axes: str) -> Part:
        """Return the product of two parts, summed over the axes that no other term needs."""
        if not x.slots:
            x, y = y, x
        if not x.slots:
            return Part("", axes, torch.einsum(f"{x.axes},{y.axes}->{axes}", x.value, y.value), None)
        if not y.slots:
            return self._multiply_core(x, y, axes)
        slots = "".join(slot for slot in plan.slots_of(self.terms, self._all) if slot in x.slots + y.slots)
        if (x.slots != slots and x.value[:1].numel() > y.value[:1].numel()) or y.slots == slots:
            x, y = y, x  # y is the operand that several rows share; the larger one if both are
        i, j = self._rows(x, slots), self._rows(y, slots)
        common = set(x.axes) & set(y.axes)
        if not axes and set(x.axes) == set(y.axes) and not x.value.is_complex():  # dot product
            aligned = _permuted(y.value, y.axes, x.axes).flatten(1)
            value = gather_dot(x.value.index_select(0, i).flatten(1), aligned, j[:, None])[:, 0]
        elif x.axes == y.axes == axes:  # elementwise product
            value = gather_mul(x.value.flatten(1), i, y.value.flatten(1), j).view(-1, *x.value.shape[1:])
        elif common and not common & set(axes) and y.slots != slots and not y.value.is_complex():  # grouped GEMM
            value, axes = self._multiply_grouped(x, y, i, j, slots)
        else:
            rows = x.value.index_select(0, i), y.value.index_select(0, j)
            value = torch.einsum(f"B{x.axes},B{y.axes}->B{axes}", *rows)
        return Part(slots, axes, value, self._combine(slots).index, distinct=True)

    def _multiply_core(self, x: Part, core: Part, axes: str) -> Part:
        """Return x (R, *x.axes) times a core tensor (*core.axes), summed over the axes that no other term needs."""
        whole_table = not x.distinct and len(x.value) <= 2 * self.counts[x.slots]
        rows = x.value if x.distinct or whole_table else x.value.index_select(0, self._rows(x, x.slots))
        left, summed, right = _split_axes(x.axes, core.axes)
        if not summed or set(summed) & set(axes):
            value = torch.einsum(f"B{x.axes},{core.axes}->B{axes}", rows, core.value)
        else:
            axes = left + right
            matrix = _permuted(core.value[None], core.axes, summed + right)[0].flatten(0, len(summed) - 1)
            rows = _permuted(rows, x.axes, left + summed)
            product = rows.reshape(-1, len(matrix)) @ matrix.reshape(len(matrix), -1)
            value = product.view(*rows.shape[: 1 + len(left)], *matrix.shape[1:])
        if whole_table:
            return Part(x.slots, axes, value, x.index)
        return Part(x.slots, axes, value, self._combine(x.slots).index, distinct=True)

    def _multiply_grouped(self, x: Part, y: Part, i: Tensor, j: Tensor, slots: str) -> tuple[Tensor, str]:
        """Return x's rows times the matrices of y, each shared by a group of rows, and the axes of the product."""
        left, summed, right = _split_axes(x.axes, y.axes)
        key = (slots, y.slots, y.distinct)
        if key not in self._groups:
            self._groups[key] = Groups.of(j)
        groups = self._groups[key]
        rows = _permuted(x.value, x.axes, left + summed)
        matrices = _permuted(y.value, y.axes, summed + right)
        left_shape = rows.shape[1 : 1 + len(left)]
        if left:  # every left index is a row of its own
            count = math.prod(left_shape)
            i = (i[:, None] * count + torch.arange(count, device=i.device)).flatten()
            groups = groups.repeat(count)
        value = grouped_mm(rows.flatten(0, len(left)).flatten(1), i, matrices, groups)
        return value.view(-1, *left_shape, *matrices.shape[1 + len(summed) :]), left + right


def _permuted(value: Tensor, axes: str, wanted: str) -> Tensor:
    """Return (R, *axes) with its axes in the wanted order."""
    return value.permute(0, *(1 + axes.index(axis) for axis in wanted))


def _split_axes(x: str, y: str) -> tuple[str, str, str]:
    """Return the axes of x alone, of both in the order of y, and of y alone."""
    left = "".join(axis for axis in x if axis not in y)
    summed = "".join(axis for axis in y if axis in x)
    return left, summed, "".join(axis for axis in y if axis not in x)


def combinations(ids: Mapping[str, Tensor], slots: str) -> Combinations:
    """Return the distinct combinations of ids, sorted by the slots in the order given."""
    codes = _codes(ids, slots)
    unique = torch.unique_consecutive if is_sorted(codes) else torch.unique
    index = unique(codes, return_inverse=True)[1]
    example = torch.empty(int(index.max()) + 1 if len(index) else 0, dtype=torch.int64, device=codes.device)
    example[index] = torch.arange(len(index), device=codes.device)
    return Combinations(example, index)


def distinct_counts(terms: Terms, ids: Mapping[str, Tensor], open: str = "") -> dict[str, int]:
    """Return the number of distinct combinations of each set of slots; the number of facts where sharing cannot pay.

    Sets with an `open` slot are not counted: no product needs them.
    """
    sets, facts = plan.slot_sets(terms), len(next(iter(ids.values())))
    if facts <= MIN_SHARED_FACTS:
        return dict.fromkeys(sets, facts)
    if len({axes for _, axes in terms}) == 1:  # a diagonal equation gains only from a table smaller than the batch
        return {slots: min(facts, int(ids[slots].max()) + 1) if slots in ids else facts for slots in sets}
    counts: dict[str, int] = {}
    for slots in sorted(sets, key=len):
        # a superset has at least as many combinations; where most are distinct, sharing saves nothing
        subsets = (slots.replace(slot, "") for slot in slots)
        if set(open) & set(slots) or any(counts.get(subset) == facts for subset in subsets):
            counts[slots] = facts
        else:
            ordered = np.sort(_codes(ids, slots).cpu().numpy())  # several times as fast as torch.unique
            count = 1 + int(np.count_nonzero(ordered[1:] != ordered[:-1]))
            counts[slots] = count if 2 * count <= facts else facts
    return counts


def _codes(ids: Mapping[str, Tensor], slots: str) -> Tensor:
    """Return one integer per combination of ids, the first slot most significant: (B,)."""
    codes = ids[slots[0]]
    for slot in slots[1:]:
        column = ids[slot]
        codes = codes * (int(column.max()) + 1 if len(column) else 1) + column
    return codes
