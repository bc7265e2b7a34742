"""Contract a batch of facts by a plan: every product is computed once per distinct combination of ids."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from recollect.engine.ops import Groups, gather, gather_dot, gather_mul, grouped_mm, matmul
from recollect.engine.plan import (
    CANDIDATES,
    Problem,
    Terms,
    contraction_plan,
    intermediate_elements,
    kept_axes,
    queries_cost,
    slot_sets,
    slots_of,
    terms_without,
)
from recollect.graph.facts import is_sorted

MIN_SHARED_FACTS = 64  # batches of fewer facts: finding distinct combinations costs more than it saves
MAX_SHARED_MATRIX = 2**14  # elements: facts with larger matrices are scored by queries, in one GEMM per group

Factor = Callable[[str, Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Part:
    """A product of terms: rows (R, *axes) and the row of each fact (B,); a core tensor has no rows."""

    slots: str  # "" for a product of core tensors
    axes: str
    value: Tensor  # (R, *axes), or (*axes) for a core tensor
    index: Tensor | None  # (B,); None for a core tensor
    distinct: bool = False  # rows are the distinct combinations of `slots`; else rows of a table

    @property
    def row_elements(self) -> int:
        return math.prod(self.value.shape[1:])


@dataclass(frozen=True)
class Combinations:
    """The distinct combinations of the ids of some slots."""

    first: Tensor  # (R,): a fact that has the combination
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
        factor: Factor,
        cores: Sequence[Tensor],
        counts: Mapping[str, int],
    ) -> None:
        """`ids` (B,) by slot; `factor(slot, ids)` returns rows (R, *axes) and the row of each id.

        `counts` holds the number of distinct combinations of each set of slots, as `distinct_counts` returns it.
        """
        self.terms, self.ids, self.factor, self.counts = terms, ids, factor, counts
        self._cores = cores
        self._own_problem: Problem | None = None
        self._facts = len(next(iter(ids.values())))
        self._parts: dict[int, Part] = {}
        self._combinations: dict[str, Combinations] = {}
        self._groups: dict[tuple[str, str], Groups] = {}

    # -- what callers ask for ---------------------------------------------------------------------------------------

    def score(self) -> Tensor:
        """Return θ of each fact: (B,)."""
        return self._per_fact(self._contract(self.terms, self._all))

    def query(self, open: str) -> Tensor:
        """Return the product of all terms but those of the open slots: (B, axes of the open slots)."""
        return self._per_fact(self._query_part(open))

    def query_rows(self, open: str) -> tuple[Tensor, Tensor | None]:
        """Return `query` as rows (R, axes) and the row of each fact (B,); None if row b belongs to fact b."""
        part = self._query_part(open)
        return part.value, None if self._one_row_per_fact(part) else part.index

    def matrices(self) -> Matrices | None:
        """Return the matrices between subject and object that facts share; None if queries cost less."""
        axes = {slot: "".join(axes for other, axes in self.terms if other == slot) for slot in "so"}
        if len(axes["s"]) != 1 or len(axes["o"]) != 1 or axes["s"] == axes["o"]:
            return None
        problem, mask = self._problem(self.terms), terms_without(self.terms, "so")
        elements = problem.size[axes["s"]] * problem.size[axes["o"]]
        bilinear = 2 * 2 * elements * self._facts
        if elements > MAX_SHARED_MATRIX or contraction_plan(problem, mask).cost + bilinear > self.cost("so"):
            return None
        part = self._contract(self.terms, mask)
        if part.index is None:
            return None
        key = (part.slots, part.slots)
        if key not in self._groups:
            self._groups[key] = Groups.of(part.index)
        return Matrices(part.axes, part.value, self._groups[key])

    def score_candidates(self, open: str, candidates: Tensor) -> Tensor:
        """Return θ of each fact with the open slot replaced by each candidate (N, axes of one occurrence): (B, N)."""
        terms = self._with_candidates(open, candidates)
        part = self._contract(terms, self._all)
        self._drop_products(open)
        return self._per_fact(part)

    def elements(self, open: str | None, candidates: Tensor | None = None) -> int:
        """Return the number of elements of all intermediate products of a score, a query or candidates' scores."""
        if open is None or candidates is None:
            mask = self._all if open is None else terms_without(self.terms, open)
            return intermediate_elements(self._problem(self.terms), mask, self.counts)
        terms = self._with_candidates(open, candidates)
        total = intermediate_elements(self._problem(terms), self._all, self.counts)
        self._drop_products(open)
        return total

    def cost(self, slots: str) -> float:
        """Return the estimated FLOPs of the queries of some slots; shared products count once."""
        return queries_cost(self._problem(self.terms), slots)

    # -- running a plan ---------------------------------------------------------------------------------------------

    @property
    def _all(self) -> int:
        return (1 << len(self.terms)) - 1

    def _problem(self, terms: Terms) -> Problem:
        """Return the planning problem of the equation, or of its terms with candidates."""
        if terms is self.terms and self._own_problem is not None:
            return self._own_problem
        sizes: dict[str, int] = {}
        for bit, (_, axes) in enumerate(terms):
            if not set(axes) <= sizes.keys():
                shape = self._part(1 << bit).value.shape
                sizes |= dict(zip(axes, shape[-len(axes) :], strict=True))
        problem = Problem.of(terms, sizes, self.counts)
        if terms is self.terms:
            self._own_problem = problem
        return problem

    def _contract(self, terms: Terms, mask: int) -> Part:
        done = tuple(sorted(subset for subset in self._parts if subset & mask == subset))
        for left, right in contraction_plan(self._problem(terms), mask, done).steps:
            axes = kept_axes(terms, left | right)
            self._parts[left | right] = self._multiply(self._part(left), self._part(right), axes)
        return self._part(mask)

    def _query_part(self, open: str) -> Part:
        part = self._contract(self.terms, terms_without(self.terms, open))
        wanted = dict.fromkeys("".join(axes for slot in open for other, axes in self.terms if other == slot))
        axes = "".join(axis for axis in wanted if axis in part.axes)
        return replace(part, axes=axes, value=_permuted(part.value, part.axes, axes))

    def _with_candidates(self, open: str, candidates: Tensor) -> Terms:
        """Return the terms with all candidates at once in the place of the open slot."""
        self._drop_products(open)
        terms = tuple(("", CANDIDATES + axes) if slot == open else (slot, axes) for slot, axes in self.terms)
        for bit, (slot, _) in enumerate(self.terms):
            if slot == open:
                self._parts[1 << bit] = Part("", terms[bit][1], candidates, None)
        return terms

    def _drop_products(self, open: str) -> None:
        """Forget products with the open slot: with candidates they differ from those with facts."""
        closed = terms_without(self.terms, open)
        self._parts = {mask: part for mask, part in self._parts.items() if mask & closed == mask}

    def _part(self, mask: int) -> Part:
        """Return a cached product, or the factor or core tensor of a single term."""
        if mask not in self._parts:
            bit = mask.bit_length() - 1
            slot, axes = self.terms[bit]
            if slot:
                value, index = self.factor(slot, self.ids[slot])
                self._parts[mask] = Part(slot, axes, value, index)
            else:
                factors = sum(1 for other, _ in self.terms if other)
                self._parts[mask] = Part("", axes, self._cores[bit - factors], None)
        return self._parts[mask]

    def _is_shared(self, slots: str) -> bool:
        return self.counts[slots] < self._facts

    def _one_row_per_fact(self, part: Part) -> bool:
        return part.distinct and not self._is_shared(part.slots)

    def _per_fact(self, part: Part) -> Tensor:
        assert part.index is not None  # an equation has at least one slot besides the open one
        return part.value if self._one_row_per_fact(part) else gather(part.value, part.index)

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
        return part.index[self._combine(slots).first] if self._is_shared(slots) else part.index

    # -- the product of two parts -----------------------------------------------------------------------------------

    def _multiply(self, x: Part, y: Part, axes: str) -> Part:
        """Return the product of two parts, summed over the axes that no other term needs."""
        if not x.slots:
            x, y = y, x
        if not x.slots:
            return Part("", axes, torch.einsum(f"{x.axes},{y.axes}->{axes}", x.value, y.value), None)
        if not y.slots:
            return self._multiply_core(x, y, axes)
        slots = "".join(slot for slot in slots_of(self.terms, self._all) if slot in x.slots + y.slots)
        if (x.slots != slots and x.row_elements > y.row_elements) or y.slots == slots:
            x, y = y, x  # y is the operand that several rows share; the larger one if both are shared
        i, j = self._rows(x, slots), self._rows(y, slots)
        common = set(x.axes) & set(y.axes)
        if not axes and set(x.axes) == set(y.axes) and not x.value.is_complex():
            aligned = _permuted(y.value, y.axes, x.axes).flatten(1)
            value = gather_dot(gather(x.value, i).flatten(1), aligned, j[:, None])[:, 0]
        elif x.axes == y.axes == axes:
            value = gather_mul(x.value.flatten(1), i, y.value.flatten(1), j).view(-1, *x.value.shape[1:])
        elif common and not common & set(axes) and y.slots != slots and not y.value.is_complex():
            value, axes = self._multiply_grouped(x, y, i, j, slots)
        else:
            value = torch.einsum(f"B{x.axes},B{y.axes}->B{axes}", gather(x.value, i), gather(y.value, j))
        return Part(slots, axes, value, self._combine(slots).index, distinct=True)

    def _multiply_core(self, x: Part, core: Part, axes: str) -> Part:
        """Return rows times a core tensor: of the whole table if it is small, else of the distinct rows."""
        whole_table = not x.distinct and len(x.value) <= 2 * self.counts[x.slots]
        rows = x.value if x.distinct or whole_table else gather(x.value, self._rows(x, x.slots))
        value, axes = _times_core(rows, x.axes, core.value, core.axes, axes)
        if whole_table:
            return Part(x.slots, axes, value, x.index)
        return Part(x.slots, axes, value, self._combine(x.slots).index, distinct=True)

    def _multiply_grouped(self, x: Part, y: Part, i: Tensor, j: Tensor, slots: str) -> tuple[Tensor, str]:
        """Return Σ over common axes of x's rows times the matrices of y, each shared by a group of rows."""
        summed = "".join(axis for axis in y.axes if axis in x.axes)
        left = "".join(axis for axis in x.axes if axis not in summed)
        right = "".join(axis for axis in y.axes if axis not in summed)
        key = (slots, y.slots)
        if key not in self._groups:
            self._groups[key] = Groups.of(j)
        rows = _permuted(x.value, x.axes, left + summed)
        matrices = _permuted(y.value, y.axes, summed + right)
        left_shape, right_shape = rows.shape[1 : 1 + len(left)], matrices.shape[1 + len(summed) :]
        per_row = math.prod(left_shape)
        index, groups = i, self._groups[key]
        if left:  # every left index is a row of its own
            index = (i[:, None] * per_row + torch.arange(per_row, device=i.device)).flatten()
            groups = groups.repeat(per_row)
        matrices = matrices.flatten(1, len(summed))
        value = grouped_mm(rows.reshape(-1, matrices.shape[1]), index, matrices, groups)
        return value.view(-1, *left_shape, *right_shape), left + right


def _permuted(value: Tensor, axes: str, wanted: str) -> Tensor:
    """Return (R, *axes) with its axes in the wanted order."""
    return value.permute(0, *(1 + axes.index(axis) for axis in wanted))


def _times_core(rows: Tensor, axes: str, core: Tensor, core_axes: str, kept: str) -> tuple[Tensor, str]:
    """Return rows (R, *axes) times a core tensor, and the axes of the result."""
    summed = "".join(axis for axis in axes if axis in core_axes)
    if set(summed) & set(kept):
        return torch.einsum(f"B{axes},{core_axes}->B{kept}", rows, core), kept
    left = "".join(axis for axis in axes if axis not in summed)
    right = "".join(axis for axis in core_axes if axis not in summed)
    x = _permuted(rows, axes, left + summed)
    y = core.permute(*(core_axes.index(axis) for axis in summed + right))
    elements = math.prod(y.shape[: len(summed)])
    product = matmul(x.reshape(-1, elements), y.reshape(elements, -1))
    return product.view(*x.shape[: 1 + len(left)], *y.shape[len(summed) :]), left + right


def combinations(ids: Mapping[str, Tensor], slots: str) -> Combinations:
    """Return the distinct combinations of ids, sorted by the slots in the order given."""
    codes = _codes(ids, slots)
    unique = torch.unique_consecutive if is_sorted(codes) else torch.unique
    index = unique(codes, return_inverse=True)[1]
    first = torch.empty(int(index.max()) + 1 if len(index) else 0, dtype=torch.int64, device=codes.device)
    first[index] = torch.arange(len(index), device=codes.device)
    return Combinations(first, index)


def distinct_counts(terms: Terms, ids: Mapping[str, Tensor], open: str = "") -> dict[str, int]:
    """Return the number of distinct combinations of each set of slots; the number of facts where sharing cannot pay.

    Sets with an `open` slot are not counted: no product needs them.
    """
    sets, facts = slot_sets(terms), len(next(iter(ids.values())))
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
            count = _count_distinct(_codes(ids, slots))
            counts[slots] = count if 2 * count <= facts else facts
    return counts


def _codes(ids: Mapping[str, Tensor], slots: str) -> Tensor:
    """Return one integer per combination of ids, the first slot most significant: (B,)."""
    codes = ids[slots[0]]
    for slot in slots[1:]:
        column = ids[slot]
        codes = codes * (int(column.max()) + 1 if len(column) else 1) + column
    return codes


def _count_distinct(codes: Tensor) -> int:
    ordered = np.sort(codes.cpu().numpy())  # several times as fast as torch.unique
    return 1 + int(np.count_nonzero(ordered[1:] != ordered[:-1]))
