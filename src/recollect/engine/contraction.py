"""Contraction of a batch of facts in the order that costs least: what facts share is contracted once.

The factors of an equation are contracted two at a time. A product of factors depends on the ids of its slots
only, so it is made for the *distinct* combinations of them in the batch: the core of a time meets each
predicate that occurs with it once, however many facts do, and a fact then costs a small matrix, not a core.
The order is searched with the counts of distinct combinations in hand; no model is known by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from recollect.engine import kernels as native
from recollect.engine.grouped import Groups, Product, grouped_matmul, is_large, product_rows
from recollect.engine.ops import gather_dot, gather_mul, is_compiled, matmul, take
from recollect.graph.facts import KINDS, ORDER, Facts, is_sorted
from recollect.models.equation import Equation

SMALL = 64  # facts: too few for sharing to pay
MOVED = 8  # flops that moving one number is worth
DENSE, MARKED = 64, 2**22  # bytes a number, and in all: with fewer, distinct numbers are marked, else sorted
LARGE_CORE = 2**20  # numbers
SWEPT = 2**14  # numbers of a matrix: with larger ones, rows are better multiplied together
CANDIDATES = "N"  # the axis of all candidates of an open slot


@dataclass(frozen=True)
class Part:
    """A product of factors: rows for the combinations of `slots`, and the row of each fact."""

    slots: str  # "" for a product of cores, which has no rows
    axes: str
    value: Tensor  # (rows, *axes), or (*axes) for a core
    index: Tensor | None  # (B,): the row of each fact; None for a core
    made: bool = False  # whether its rows are the distinct combinations of `slots`; else the rows of a table

    @property
    def width(self) -> int:
        """How many numbers a row has."""
        return math.prod(self.value.shape[1:])

    def stride(self, axis: str) -> int:
        """How far apart the numbers of an axis lie."""
        return self.value.stride(1 + self.axes.index(axis))


@dataclass(frozen=True)
class Level:
    """The distinct combinations of some slots in a batch."""

    first: Tensor  # (rows,): a fact that has the combination
    index: Tensor  # (B,): the combination of each fact


@dataclass(frozen=True)
class Between:
    """The matrices between subjects and objects, and the facts that share each."""

    axes: str  # of a row and of a column
    matrices: Tensor | Product
    groups: Groups


class Contraction:
    """A batch of facts on its way to scores; products are kept, so several open slots share them."""

    def __init__(
        self,
        indicator: Equation,
        facts: Facts,
        factor: Callable[[str, Tensor], tuple[Tensor, Tensor]],
        cores: Sequence[Tensor],
        counts: Mapping[str, int],
    ) -> None:
        """`factor` gives, for ids of a slot, rows (N, *axes) and which of them belong to the ids.

        `counts` tells the distinct combinations of slots, as `distinct_counts` does.
        """
        self.indicator, self.facts = indicator, facts
        self.terms = indicator.terms
        self.ids = {slot: facts.column(slot).contiguous() for slot in indicator.slots}
        self.counts = counts
        self._levels: dict[str, Level] = {}
        self._groups: dict[tuple[str, str], Groups] = {}
        self.factor, self._cores = factor, cores
        self._parts: dict[int, Part] = {}

    def score(self) -> Tensor:
        """θ of each fact: (B,)."""
        return self._of_facts(self._contract(self.terms, self._all))

    def query(self, open: str) -> Tensor:
        """What waits for the open slot: (B, axes of the slot); of several slots, what waits for all of them."""
        return self._of_facts(self._waiting(open))

    def query_rows(self, open: str) -> tuple[Tensor, Tensor | None]:
        """Rows, (N, axes of the slot), and which of them is the query of each fact, (B,); None if each has its own."""
        part = self._waiting(open)
        return part.value, None if self._is_own(part) else part.index

    def _waiting(self, open: str) -> Part:
        mask = without(self.terms, open)
        part = self._by_core(mask) or self._contract(self.terms, mask)
        wanted = dict.fromkeys("".join(self.indicator.axes(slot) for slot in open))
        axes = "".join(axis for axis in wanted if axis in part.axes)
        value = part.value.permute(0, *(1 + part.axes.index(axis) for axis in axes))
        return replace(part, axes=axes, value=value)

    def between(self) -> Between | None:
        """What stands between subject and object, a matrix that facts share.

        None where there is none, and where making it and two products of a row with it for each fact do not pay.
        """
        axes = [self.indicator.axes(slot) for slot in "so"]
        if set(map(len, axes)) != {1} or axes[0] == axes[1]:
            return None
        mask, sizes = without(self.terms, "so"), self._sizes(self.terms)
        matrix = math.prod(sizes[axis] for axis in axes)
        made = plan(self.terms, _key(sizes), _key(self.counts), mask, ())[0]
        if matrix > SWEPT or made + 2 * 2 * matrix * len(self.facts) > self.cost("so"):
            return None
        *before, last = self._plan(self.terms, mask)[1] or [(mask, 0)]  # a single term needs no product
        for left, right in before:
            self._multiply(self.terms, left, right)
        if last[1] and (product := self._product(*last)):
            return product
        part = self._contract(self.terms, mask)
        assert part.index is not None
        return Between(part.axes, part.value, Groups.of(part.index))

    def _product(self, left: int, right: int) -> Between | None:
        """The product of rows and of larger cores that they share, yet to be made; None where there are no such."""
        if not self._is_of_cores(left, right):
            return None
        x, y = sorted((self._part(left), self._part(right)), key=lambda part: part.width)
        slots = joined(x.slots, y.slots)
        level = self._level(slots)
        above, beside = sorted(y.axes.replace(x.axes, ""), key=lambda axis: -y.stride(axis))
        cores = y.value.permute(0, *(1 + y.axes.index(axis) for axis in (above, x.axes, beside)))
        product = Product.of(x.value, self._rows(x, level, slots), cores, self._rows(y, level, slots))
        return None if product is None else Between(above + beside, product, Groups.of(level.index))

    def _is_of_cores(self, left: int, right: int) -> bool:
        """Whether a step makes matrices that facts share, of rows and of large cores that several of them share."""
        sizes = self._sizes(self.terms)
        axes = {part: kept_axes(self.terms, part) for part in (left, right)}
        numbers = {part: math.prod(sizes[axis] for axis in axes[part]) for part in axes}
        rows, cores = sorted(axes, key=numbers.__getitem__)
        slots, of_cores = _slots(self.terms, left | right), _slots(self.terms, cores)
        # combinations are sorted: those of a core lie together if its slots come first
        few = 0 < len(of_cores) < len(slots) and slots.startswith(of_cores) and self._is_shared(slots)
        fit = len(axes[rows]) == 1 and axes[rows] in axes[cores] and len(axes[cores]) == 1 + 2
        return few and fit and bool(_slots(self.terms, rows)) and is_large(numbers[cores])

    def _by_core(self, mask: int) -> Part | None:
        """A product whose last but one step makes matrices of rows and cores, which rows of facts meet at once.

        They are never all there. None where the last steps are others, and where a gradient is wanted.
        """
        if (made := self._forgotten(mask)) is None:
            return None
        *before, make, _ = self._plan(self.terms, mask)[1]
        for step in before:
            self._multiply(self.terms, *step)
        x, between, slots = self._part(mask ^ made), self._product(*make), _slots(self.terms, mask)
        assert between is not None  # combinations are sorted
        assert isinstance(between.matrices, Product)
        rows, transposed = self._rows(x, self._level(slots), slots), between.axes[1] == x.axes
        value = product_rows(between.matrices, between.groups, x.value, rows, transposed=transposed)
        return Part(slots, between.axes.replace(x.axes, ""), value, self._level(slots).index, made=True)

    def _forgotten(self, mask: int) -> int | None:
        """The matrices that a product makes last but one, of rows and large cores, for rows of its facts alone."""
        steps = self._plan(self.terms, mask)[1]
        if torch.is_grad_enabled() or len(steps) < 2 or self._is_shared(_slots(self.terms, mask)):
            return None
        make, last = steps[-2:]
        made = make[0] | make[1]
        factors = [self._part(1 << bit).value for bit in range(len(self.terms)) if mask >> bit & 1]
        row, matrix = kept_axes(self.terms, mask ^ made), kept_axes(self.terms, made)
        fits = made in last and len(row) == 1 and row in matrix and bool(_slots(self.terms, mask ^ made))
        real = is_compiled(*factors) and not factors[0].is_complex()
        return made if fits and real and self._is_of_cores(*make) else None

    def against(self, open: str, candidates: Tensor) -> Tensor:
        """θ of each fact with the open slot replaced by each candidate, (N, axes of one occurrence): (B, N)."""
        part = self._contract(self._with_candidates(open, candidates), self._all)
        self._forget(open)
        return self._of_facts(part)

    def numbers(self, open: str | None, candidates: Tensor | None = None) -> int:
        """How many numbers the work on a score, a query or the scores of candidates makes on its way."""
        terms = self.terms if open is None or candidates is None else self._with_candidates(open, candidates)
        mask = self._all if open is None or candidates is not None else without(self.terms, open)
        forgotten = self._forgotten(mask) if open is not None and candidates is None else None
        numbers = work_numbers(terms, self._sizes(terms), self.counts, mask, forgotten)
        if terms is not self.terms:
            self._forget(open)
        return numbers

    @property
    def _all(self) -> int:
        return (1 << len(self.terms)) - 1

    def _with_candidates(self, open: str, candidates: Tensor) -> tuple[tuple[str, str], ...]:
        """The terms, with all candidates at once in the place of the open slot."""
        self._forget(open)
        terms = tuple(("", CANDIDATES + axes) if slot == open else (slot, axes) for slot, axes in self.terms)
        for bit, (slot, _) in enumerate(self.terms):
            if slot == open:
                self._parts[1 << bit] = Part("", terms[bit][1], candidates, None)
        return terms

    def _forget(self, open: str | None) -> None:
        """Drop the products that the open slot has a part in: with candidates they are others than with facts."""
        closed = without(self.terms, open or "")
        self._parts = {mask: part for mask, part in self._parts.items() if mask & closed == mask}

    def _of_facts(self, part: Part) -> Tensor:
        assert part.index is not None  # an equation has at least one slot beside the open one
        return part.value if self._is_own(part) else take(part.value, part.index)

    def _is_own(self, part: Part) -> bool:
        """Whether every fact has a row of its own, in their order."""
        return part.made and not self._is_shared(part.slots)

    def _contract(self, terms: tuple[tuple[str, str], ...], mask: int) -> Part:
        for left, right in self._plan(terms, mask)[1]:
            self._multiply(terms, left, right)
        return self._part(mask)

    def _multiply(self, terms: tuple[tuple[str, str], ...], left: int, right: int) -> None:
        axes = kept_axes(terms, left | right)
        self._parts[left | right] = self._pair(self._part(left), self._part(right), axes)

    def cost(self, opens: str) -> float:
        """Estimated flops of the queries of these slots, common work counted once."""
        return cost(self.terms, _key(self._sizes(self.terms)), _key(self.counts), opens)

    def _plan(self, terms: tuple[tuple[str, str], ...], mask: int) -> tuple[float, tuple[tuple[int, int], ...]]:
        found = tuple(sorted(part for part in self._parts if part & mask == part))
        return plan(terms, _key(self._sizes(terms)), _key(self.counts, _rounded), mask, found)

    def _sizes(self, terms: tuple[tuple[str, str], ...]) -> dict[str, int]:
        sizes: dict[str, int] = {}
        for bit, (_, axes) in enumerate(terms):
            if not set(axes) <= sizes.keys():
                part = self._part(1 << bit)
                sizes |= dict(zip(axes, part.value.shape[-len(axes) :], strict=True))
        return sizes

    def _part(self, mask: int) -> Part:
        """A product that is there, or the factor of a single term."""
        if mask not in self._parts:
            bit = mask.bit_length() - 1
            slot, axes = self.terms[bit]
            if slot:
                value, index = self.factor(slot, self.ids[slot])
                self._parts[mask] = Part(slot, axes, value, index)
            else:
                core = self._cores[bit - len(self.indicator.factors)]
                self._parts[mask] = Part("", axes, core, None)
        return self._parts[mask]

    def _is_shared(self, slots: str) -> bool:
        return self.counts[slots] < len(self.facts)

    def _level(self, slots: str) -> Level:
        """The distinct combinations of these slots; every fact its own where few are shared."""
        if slots not in self._levels:
            each = torch.arange(len(self.facts), device=self.facts.ids.device)
            self._levels[slots] = (
                combinations(self.ids, slots) if slots and self._is_shared(slots) else Level(each, each)
            )
        return self._levels[slots]

    def _rows(self, part: Part, level: Level, slots: str) -> Tensor:
        """The row of `part` for each combination of a level."""
        if part.made and part.slots == slots:
            return torch.arange(len(part.value), device=part.value.device)
        assert part.index is not None
        return part.index if level.first is level.index else part.index[level.first]

    def _pair(self, x: Part, y: Part, axes: str) -> Part:
        """The product of two parts, summed over the axes that nothing else needs."""
        if not x.slots:
            x, y = y, x
        slots = joined(x.slots, y.slots)
        if not slots:
            return Part("", axes, torch.einsum(f"{x.axes},{y.axes}->{axes}", x.value, y.value), None)
        if not y.slots and not x.made and len(x.value) <= 2 * self.counts[slots]:
            value, axes = _with_core(x.value, x.axes, y.value, y.axes, axes)
            return Part(slots, axes, value, x.index)  # a smaller table, multiplied whole
        level = self._level(slots)
        if not y.slots:
            rows = x.value if x.made else take(x.value, self._rows(x, level, slots))
            value, axes = _with_core(rows, x.axes, y.value, y.axes, axes)
            return Part(slots, axes, value, level.index, made=True)
        if (x.slots != slots and x.width > y.width) or y.slots == slots:
            x, y = y, x  # y is what several rows share, the larger one where both are
        i, j = self._rows(x, level, slots), self._rows(y, level, slots)
        both = set(x.axes) & set(y.axes)
        if not axes and set(x.axes) == set(y.axes) and not x.value.is_complex():
            aligned = y.value.permute(0, *(1 + y.axes.index(axis) for axis in x.axes)).flatten(1)
            value = gather_dot(take(x.value, i).flatten(1), aligned, j[:, None])[:, 0]
        elif x.axes == y.axes == axes:
            value = gather_mul(x.value.flatten(1), i, y.value.flatten(1), j).view(-1, *x.value.shape[1:])
        elif both and not both & set(axes) and y.slots != slots and not y.value.is_complex():
            value, axes = self._grouped(x, y, i, j, slots)
        else:
            value = torch.einsum(f"B{x.axes},B{y.axes}->B{axes}", take(x.value, i), take(y.value, j))
        return Part(slots, axes, value, level.index, made=True)

    def _grouped(self, x: Part, y: Part, i: Tensor, j: Tensor, slots: str) -> tuple[Tensor, str]:
        """Σ over common axes of x's row, times the matrix of y that several rows share."""
        summed = [axis for axis in y.axes if axis in x.axes]
        left = [axis for axis in x.axes if axis not in summed]
        right = [axis for axis in y.axes if axis not in summed]
        key = (slots, y.slots)
        if key not in self._groups:
            self._groups[key] = Groups.of(j)
        rows = x.value.permute(0, *(1 + x.axes.index(axis) for axis in [*left, *summed]))
        matrices = y.value.permute(0, *(1 + y.axes.index(axis) for axis in [*summed, *right]))
        value = grouped_matmul(rows.flatten(1 + len(left)), i, matrices, len(summed), self._groups[key])
        return value, "".join(left + right)


def _with_core(rows: Tensor, axes: str, core: Tensor, core_axes: str, kept: str) -> tuple[Tensor, str]:
    """Rows times a core, and the axes of what comes out."""
    if len(axes) == 1 and axes not in kept and axes in core_axes[1:-1] and core.numel() > LARGE_CORE:
        # summed in the middle of a large core: one product for each leading index spares a copy of the core
        at = core_axes.index(axes)
        out = torch.matmul(rows, core.flatten(0, at - 1).flatten(2))  # (leading, B, trailing)
        shape = [*core.shape[:at], len(rows), *core.shape[at + 1 :]]
        return out.view(shape).movedim(at, 0), core_axes.replace(axes, "")
    summed = [axis for axis in axes if axis in core_axes]
    left, right = ([axis for axis in some if axis not in summed] for some in (axes, core_axes))
    if set(summed) & set(kept):
        return torch.einsum(f"B{axes},{core_axes}->B{kept}", rows, core), kept
    x = rows.permute(0, *(1 + axes.index(axis) for axis in (*left, *summed)))
    y = core.permute(*(core_axes.index(axis) for axis in (*summed, *right)))
    numbers = math.prod(y.shape[: len(summed)])
    out = matmul(x.reshape(-1, numbers), y.reshape(numbers, -1))
    return out.view(*x.shape[: 1 + len(left)], *y.shape[len(summed) :]), "".join(left + right)


def distinct_counts(indicator: Equation, facts: Facts, open: str = "") -> dict[str, int]:
    """How many distinct combinations of each set of slots the facts have; all of them where sharing cannot pay.

    Sets that have an `open` slot are not counted: no product needs them.
    """
    sets = _slot_sets(indicator)
    ids = {slot: facts.column(slot).contiguous() for slot in indicator.slots}
    if len(facts) <= SMALL:
        return dict.fromkeys(sets, len(facts))
    if indicator.is_diagonal:  # nothing is gained but by a table smaller than the batch
        return {slots: min(len(facts), int(ids[slots].max()) + 1) if slots in ids else len(facts) for slots in sets}
    counts: dict[str, int] = {}
    for slots in sorted(sets, key=len):
        # where most combinations are distinct, finding them costs more than it saves; more slots make no fewer
        fewer = (slots.replace(slot, "") for slot in slots)
        if set(open) & set(slots) or any(counts.get(some) == len(facts) for some in fewer):
            counts[slots] = len(facts)
        else:
            count = _distinct(_codes(ids, slots))
            counts[slots] = count if 2 * count <= len(facts) else len(facts)
    return counts


def most_counts(indicator: Equation, sizes: Mapping[str, int], facts: int) -> dict[str, int]:
    """How many distinct combinations so many facts can have at most."""
    return {slots: min(facts, math.prod(sizes[KINDS[slot]] for slot in slots)) for slots in _slot_sets(indicator)}


def _slot_sets(indicator: Equation) -> list[str]:
    """Every set of slots of an equation, each in the order of ORDER."""
    slots = [slot for slot in ORDER if slot in indicator.slots]
    return ["".join(slot for bit, slot in enumerate(slots) if mask >> bit & 1) for mask in range(1, 1 << len(slots))]


def combinations(ids: Mapping[str, Tensor], slots: str) -> Level:
    """The distinct combinations of the ids of some slots, sorted in the order of `slots`."""
    codes = _codes(ids, slots)
    if is_sorted(codes):
        index = torch.unique_consecutive(codes, return_inverse=True)[1]
    else:
        index = torch.unique(codes, return_inverse=True)[1]
    first = torch.empty(int(index.max()) + 1 if len(index) else 0, dtype=torch.int64, device=codes.device)
    first[index] = torch.arange(len(index), device=codes.device)
    return Level(first, index)


def _codes(ids: Mapping[str, Tensor], slots: str) -> Tensor:
    """One number for the ids of some slots, the first most significant: (B,)."""
    codes = ids[slots[0]]
    for slot in slots[1:]:
        column = ids[slot]
        codes = codes * (int(column.max()) + 1 if len(column) else 1) + column
    return codes


def _distinct(codes: Tensor) -> int:
    """How many different numbers there are, at least one."""
    if codes.device.type != "cpu":
        return len(codes.unique())
    numbers = codes.numpy()
    low, high = map(int, codes.aminmax())  # what is below 0 is refused later
    if low >= 0 and high < min(DENSE * len(numbers), MARKED):
        return int(native.count_distinct(numbers, high))
    ordered = np.sort(numbers)  # several times as fast as PyTorch's
    return 1 + int(np.count_nonzero(ordered[1:] != ordered[:-1]))


def joined(left: str, right: str) -> str:
    return "".join(slot for slot in ORDER if slot in left or slot in right)


def kept_axes(terms: Sequence[tuple[str, str]], mask: int) -> str:
    """The axes of a product that other terms, or the candidates, still need."""
    inside = dict.fromkeys("".join(axes for bit, (_, axes) in enumerate(terms) if mask >> bit & 1))
    outside = set("".join(axes for bit, (_, axes) in enumerate(terms) if not mask >> bit & 1)) | {CANDIDATES}
    return "".join(axis for axis in inside if axis in outside)


@lru_cache(maxsize=4096)
def plan(
    terms: tuple[tuple[str, str], ...],
    sizes: tuple[tuple[str, int], ...],
    counts: tuple[tuple[str, int], ...],
    mask: int,
    done: tuple[int, ...],
) -> tuple[float, tuple[tuple[int, int], ...]]:
    """What the product of all terms of `mask` costs at least, and the pairs to multiply for it, in order.

    Products that are `done` cost nothing. A step costs, for each distinct combination of its slots, its flops
    and the numbers it reads and writes.
    """
    size, count = dict(sizes), dict(counts) | {"": 1}

    def numbers(axes: str) -> int:
        return math.prod(size[axis] for axis in axes)

    def step(left: int, right: int) -> float:
        x, y = kept_axes(terms, left), kept_axes(terms, right)
        rows = count[_slots(terms, left | right)]
        small, large = sorted((x, y), key=numbers)
        made = numbers(kept_axes(terms, left | right))
        shared = min(count[_slots(terms, left)], count[_slots(terms, right)], rows)
        flops = 2 * numbers("".join(dict.fromkeys(x + y)))
        return rows * (flops + MOVED * (numbers(small) + made)) + shared * MOVED * numbers(large)

    best: dict[int, tuple[float, tuple[int, int] | None]] = {}
    for part in sorted((sub for sub in _submasks(mask)), key=int.bit_count):
        if part.bit_count() == 1 or part in done:
            best[part] = (0.0, None)
            continue
        options = []
        for left in _submasks(part):
            right = part ^ left
            if right and left > right:
                options.append((best[left][0] + best[right][0] + step(left, right), (left, right)))
        best[part] = min(options)

    def steps(part: int) -> list[tuple[int, int]]:
        pair = best[part][1]
        return [] if pair is None else [*steps(pair[0]), *steps(pair[1]), pair]

    return best[mask][0], tuple(steps(mask))


@lru_cache(maxsize=4096)
def cost(
    terms: tuple[tuple[str, str], ...],
    sizes: tuple[tuple[str, int], ...],
    counts: tuple[tuple[str, int], ...],
    opens: str,
) -> float:
    """What the queries of these slots cost at least, common work counted once."""
    total, done = 0.0, set[int]()
    for slot in opens:
        mask = without(terms, slot)
        price, steps = plan(terms, sizes, counts, mask, tuple(sorted(part for part in done if part & mask == part)))
        total, done = total + price, done | {left | right for left, right in steps}
    return total


def work_numbers(
    terms: tuple[tuple[str, str], ...],
    sizes: Mapping[str, int],
    counts: Mapping[str, int],
    mask: int,
    forgotten: int | None = None,
) -> int:
    """How many numbers are made on the way to the product of the terms of `mask`, and kept."""
    made = 0
    for left, right in plan(terms, _key(sizes), _key(counts, _rounded), mask, ())[1]:
        if left | right == forgotten:
            continue
        slots = _slots(terms, left | right)
        made += (counts[slots] if slots else 1) * math.prod(sizes[axis] for axis in kept_axes(terms, left | right))
    return made


def without(terms: Sequence[tuple[str, str]], open: str) -> int:
    """All terms but those of the open slots."""
    return sum(1 << bit for bit, (slot, _) in enumerate(terms) if not slot or slot not in open)


def _key(values: Mapping[str, int], of: Callable[[int], int] = int) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((name, of(value)) for name, value in values.items()))


def _slots(terms: Sequence[tuple[str, str]], mask: int) -> str:
    return joined("".join(slot for bit, (slot, _) in enumerate(terms) if mask >> bit & 1), "")


def _submasks(mask: int) -> list[int]:
    found, sub = [], mask
    while sub:
        found.append(sub)
        sub = (sub - 1) & mask
    return found


def _rounded(count: int) -> int:
    """The next power of two: batches that differ little share one plan."""
    return 1 << max(0, count - 1).bit_length()
