"""Contractions by a plan against one torch.einsum per fact: random equations, all models, shared products."""

from __future__ import annotations

from unittest import mock

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from backends import BACKENDS, EACH_BACKEND, running
from conftest import ALONE, generator, random_facts, random_model
from recollect.engine import Contraction, combinations, distinct_counts
from recollect.engine import contraction as contraction_module
from recollect.engine.plan import slot_sets
from recollect.graph.facts import KINDS, SLOTS, encode
from recollect.models.equation import Equation
from recollect.models.zoo import MODELS

SMALL = contraction_module.MIN_SHARED_FACTS


# -- random equations


@st.composite
def equations(draw: st.DrawFn) -> Equation:
    """Return any equation of two to four slots, one of them perhaps twice, and up to two cores."""
    slots = draw(st.permutations("spot").map(lambda order: order[: draw(st.integers(2, 4))]))
    slots = [*slots, *draw(st.sampled_from([[], [], slots[:1]]))]
    count = len(slots) + draw(st.integers(0, 2))
    axes = [""] * count
    for axis in "abcde"[: draw(st.integers(1, 5))]:
        for term in draw(st.sets(st.integers(0, count - 1), min_size=2)):
            axes[term] += axis
    assume(all(axes) and max(map(len, axes)) < 5)
    twice = [text for slot, text in zip(slots, axes, strict=False) if slots.count(slot) == 2]
    assume(not twice or len(twice[0]) == len(twice[1]))
    factors = " ".join(f"{slot}:{text}" for slot, text in zip(slots, axes, strict=False))
    try:
        return Equation.parse(f"{factors} | {' '.join(axes[len(slots) :])}")
    except ValueError:
        return assume(False)  # it falls apart


class Example:
    """An equation with random tables, cores and facts; axes differ in length unless a slot occurs twice."""

    def __init__(self, equation: Equation, n: int, entities: int, seed: int, dtype: torch.dtype) -> None:
        sizes, g = {"entity": entities, "predicate": 3, "time": 4}, generator(3)
        is_twice = len(equation.factors) > len(equation.slots)
        length = {axis: 2 if is_twice else 1 + k % 5 for k, axis in enumerate("bacdefijklr")}

        def random(*shape: int) -> Tensor:
            return torch.randn(shape, generator=g, dtype=dtype).requires_grad_()

        self.equation, self.facts = equation, random_facts(n, sizes, seed)
        shapes = {slot: [length[axis] for axis in axes] for slot, axes in equation.factors}
        self.tables = {slot: random(sizes[KINDS[slot]], *shape) for slot, shape in shapes.items()}
        self.cores = [random(*(length[axis] for axis in axes)) for axes in equation.cores]
        self.ids = {slot: self.facts.column(slot).contiguous() for slot in equation.slots}

    @property
    def weights(self) -> list[Tensor]:
        return [*self.tables.values(), *self.cores]

    def contraction(self, counts: dict[str, int] | None = None) -> Contraction:
        terms = self.equation.terms
        counts = counts or distinct_counts(terms, self.ids)
        return Contraction(terms, self.ids, lambda slot, ids: (self.tables[slot], ids), self.cores, counts)

    def rows(self, slot: str) -> Tensor:
        return self.tables[slot][self.ids[slot]]

    def score(self) -> Tensor:
        rows = [self.rows(slot) for slot, _ in self.equation.factors]
        return torch.einsum(self.equation.einsum(), *rows, *self.cores)

    def has_query(self, slot: str) -> bool:
        """Return whether every axis of the slot joins it to another term."""
        inputs = self.equation.einsum(slot).partition("->")[0]
        return set(self.equation.axes(slot)) <= set(inputs)

    def query(self, slot: str) -> Tensor:
        rows = [self.rows(other) for other, _ in self.equation.factors if other != slot]
        return torch.einsum(self.equation.einsum(slot), *rows, *self.cores)

    def score_candidates(self, slot: str, candidates: Tensor) -> Tensor:
        """Return θ of every fact with each candidate, one einsum per candidate."""
        scores = []
        for candidate in candidates:
            rows = [
                candidate.expand(len(self.facts), *candidate.shape) if other == slot else self.rows(other)
                for other, _ in self.equation.factors
            ]
            scores.append(torch.einsum(self.equation.einsum(), *rows, *self.cores))
        return torch.stack(scores, dim=1)


def assert_same(example: Example, found: list[Tensor], wanted: list[Tensor]) -> None:
    """Compare values, and gradients of the sum of their squares."""
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-8)
    totals = [torch.cat([x.abs().square().flatten() for x in values]).sum() for values in (found, wanted)]
    gradients = [torch.autograd.grad(total, example.weights, allow_unused=True) for total in totals]
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-6)


EXAMPLES = {
    "equation": equations(),
    "n": st.sampled_from([120, 3, 70]),
    "entities": st.sampled_from([3, 40]),
    "seed": st.integers(0, 99),
    "backend": st.sampled_from(BACKENDS),
    "threads": st.sampled_from([1, 3]),
    "dtype": st.sampled_from([torch.float64, torch.float64, torch.complex128]),
    "is_shared": st.booleans(),
}


def check_equation(equation, n, entities, seed, backend, threads, dtype, is_shared) -> None:
    example = Example(equation, n, entities, seed, dtype)
    unshared = None if is_shared else dict.fromkeys(slot_sets(equation.terms), n)
    work = example.contraction(unshared)
    open_slots = [slot for slot in equation.slots if example.has_query(slot)]
    with running(backend, threads):
        found = [work.score(), *(work.query(slot) for slot in open_slots)]
        wanted = [example.score(), *(example.query(slot) for slot in open_slots)]
        for slot in equation.slots:
            candidates = example.tables[slot][:2]
            found.append(work.with_candidates(slot, candidates).score())
            wanted.append(example.score_candidates(slot, candidates))
        found.append(work.score())  # candidates have left nothing behind
        wanted.append(wanted[0])
        assert_same(example, found, wanted)


@settings(max_examples=40)
@given(**EXAMPLES)
def test_any_equation_is_contracted_as_one_einsum_does(**example):
    check_equation(**example)


@pytest.mark.long
@settings(max_examples=1500, derandomize=False)
@given(**EXAMPLES)
def test_many_equations_are_contracted_as_one_einsum_does(**example):
    check_equation(**example)


def test_groups_by_rows_of_a_table_are_not_those_of_distinct_rows():
    equation = Equation.parse("p:a s:ab o:b")
    check_equation(equation, 3, 40, 0, backend="reference", threads=1, dtype=torch.float64, is_shared=False)


@EACH_BACKEND
def test_a_part_that_is_summed_away_whole_may_have_several_axes(backend):
    example = Example(Equation.parse("s:ab p:a o:cd t:bcd"), 120, 3, 0, torch.float64)  # b has length 1
    with running(backend):
        torch.testing.assert_close(example.contraction().score(), example.score())


@EACH_BACKEND
def test_rows_and_a_core_without_a_common_axis_are_an_outer_product(backend):
    example = Example(Equation.parse("s:ab p:b | a"), 120, 3, 0, torch.float64)
    with running(backend):
        torch.testing.assert_close(example.contraction().query("s"), example.query("s"))


@EACH_BACKEND
@pytest.mark.parametrize("text", ["s:i p:j o:k t:ijk", "s:i p:j o:k t:l | lijk", "t:a s:b p:cd o:e t:f | abc def"])
def test_no_facts_have_no_scores_and_no_queries(backend, text):
    example = Example(Equation.parse(text), 0, 5, 0, torch.float64)
    with running(backend):
        assert example.contraction().score().shape == (0,)
        assert len(example.contraction().query("o")) == 0


# -- sharing


def test_a_product_is_computed_once_per_distinct_combination():
    example = Example(MODELS["cont"].episodic, 150, 40, 0, torch.float64)
    with mock.patch.object(contraction_module, "grouped_mm", wraps=contraction_module.grouped_mm) as grouped:
        example.contraction().score()
    pairs = len(set(zip(example.ids["t"].tolist(), example.ids["p"].tolist(), strict=True)))
    assert len(grouped.call_args_list[0].args[1]) == pairs == 12
    assert len(grouped.call_args_list[1].args[1]) == 150


def test_a_batch_of_few_facts_shares_nothing():
    example = Example(MODELS["cont"].episodic, SMALL, 40, 0, torch.float64)
    assert set(distinct_counts(example.equation.terms, example.ids).values()) == {SMALL}


def test_queries_of_several_slots_share_products():
    example = Example(MODELS["cont"].episodic, 150, 40, 0, torch.float64)
    with mock.patch.object(contraction_module, "grouped_mm", wraps=contraction_module.grouped_mm) as grouped:
        work = example.contraction()
        queries = [work.query(slot) for slot in "so"]
        calls = grouped.call_count
        work.query("s")
        assert grouped.call_count == calls == 3  # the matrices of (t, p), and one product per slot
    for query, slot in zip(queries, "so", strict=True):
        torch.testing.assert_close(query, example.query(slot))


def test_candidates_do_not_take_the_place_of_a_factor():
    example = Example(MODELS["cont"].episodic, 90, 5, 0, torch.float64)
    work = example.contraction()
    for count in (4, 2, 3):
        candidates = example.tables["t"][:count]
        torch.testing.assert_close(
            work.with_candidates("t", candidates).score(), example.score_candidates("t", candidates)
        )
    torch.testing.assert_close(work.score(), example.score())


def test_counts_of_another_batch_change_no_score():
    for other in (10, 300):
        example = Example(MODELS["tucker"].episodic, 120, 5, 0, torch.float64)
        counts = distinct_counts(example.equation.terms, Example(example.equation, other, 5, 1, torch.float64).ids)
        work = Contraction(
            example.equation.terms,
            example.ids,
            lambda slot, ids, e=example: (e.tables[slot], ids),
            example.cores,
            counts,
        )
        torch.testing.assert_close(work.score(), example.score())


@pytest.mark.parametrize("name", ["cont", "tucker", "tree", "rescal"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_matrices_are_those_between_subject_and_object(name, backend):
    form = "semantic" if name == "rescal" else "episodic"
    example = Example(getattr(MODELS[name], form), 400, 60, 0, torch.float64)
    with running(backend), mock.patch.object(Contraction, "cost", return_value=float("inf")):
        matrices = example.contraction().matrices()
    assert matrices is not None
    group = matrices.groups.unsort(matrices.groups.matrix.repeat_interleave(matrices.groups.offsets.diff()))
    sides = {example.equation.axes(slot): example.rows(slot) for slot in "so"}
    x, y = (sides[axis] for axis in matrices.axes)
    torch.testing.assert_close(torch.einsum("bi,bij,bj->b", x, matrices.values[group], y), example.score())


def test_no_matrices_where_queries_cost_less():
    example = Example(MODELS["cont"].episodic, 400, 60, 0, torch.float64)
    with mock.patch.object(Contraction, "cost", return_value=0.0):
        assert example.contraction().matrices() is None
    assert Example(MODELS["distmult"].episodic, 400, 60, 0, torch.float64).contraction().matrices() is None


# -- memory


class Allocations(TorchDispatchMode):
    """Count the elements that operations allocate, ids left out; views allocate nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        given = {x.untyped_storage().data_ptr() for x in args if isinstance(x, Tensor)}
        for x in out if isinstance(out, list | tuple) else [out]:
            if isinstance(x, Tensor) and x.dtype != torch.int64 and x.untyped_storage().data_ptr() not in given:
                self.elements += x.numel()
        return out


@EACH_BACKEND
@pytest.mark.parametrize(("name", "form"), ALONE)
def test_elements_say_how_much_a_score_allocates(name, form, backend):
    sizes = {"entity": 60, "predicate": 6, "time": 9}
    model, facts = random_model(name, form, 8, sizes=sizes), random_facts(500, sizes)
    tables = sum(parameter.numel() for parameter in model.parameters())  # they may be lifted
    for slot in (None, *(slot for slot in model.slots if not model.has_matrix_rows(slot))):
        said, batch = model.batch(facts).elements(slot), model.batch(facts)
        with torch.no_grad(), running(backend), Allocations() as found:
            batch.score() if slot is None else batch.query(slot)
        # operands are gathered before they are multiplied: several times as much, never less
        assert said <= found.elements <= 8 * (said + tables), slot


# -- combinations


@pytest.mark.parametrize("skipped", ["", "s", "t", "so"])
def test_counts_are_those_of_every_set_without_an_open_slot(skipped):
    equation, facts = MODELS["tucker"].episodic, random_facts(300, {"entity": 40, "predicate": 5, "time": 9})
    ids = {slot: facts.column(slot) for slot in "spot"}
    found = distinct_counts(equation.terms, ids, skipped)
    assert len(found) == 15
    for slots, count in found.items():
        distinct = len({tuple(row[SLOTS.index(slot)] for slot in slots) for row in facts.ids.tolist()})
        pays = 2 * distinct <= len(facts) and not set(slots) & set(skipped)
        assert count == (distinct if pays else len(facts)), slots


@given(
    seed=st.integers(0, 200),
    n=st.integers(0, 40),
    slots=st.sampled_from(["t", "tp", "ps", "tpso"]),
    is_sorted=st.booleans(),
)
def test_combinations_are_distinct_sorted_and_belong_to_their_facts(seed, n, slots, is_sorted):
    facts = random_facts(n, seed=seed)
    if is_sorted:
        facts = facts[encode(facts, {"entity": 5, "predicate": 3, "time": 4}, slots).argsort()]
    ids = {slot: facts.column(slot) for slot in slots}
    found = combinations(ids, slots)
    rows = list(zip(*(ids[slot].tolist() for slot in slots), strict=True))
    distinct = [rows[first] for first in found.example.tolist()]
    assert distinct == sorted(set(rows))
    assert [distinct[at] for at in found.index.tolist()] == rows
