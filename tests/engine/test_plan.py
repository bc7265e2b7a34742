"""Contraction plans: what an expert expects of the seven equations, and the optimum of all contraction trees."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import ALONE
from recollect.engine.plan import (
    Problem,
    Terms,
    contraction_plan,
    intermediate_elements,
    kept_axes,
    max_query_elements,
    queries_cost,
    slot_sets,
    slots_of,
    terms_without,
)
from recollect.models.zoo import MODELS

FACTS = 8192
DISTINCT = {"s": 512, "o": 512, "p": 16, "t": 64, "tp": 512}  # of a batch of FACTS; other sets are not shared
EACH = pytest.mark.parametrize(("name", "form"), ALONE)


def terms_of(name: str, form: str = "episodic") -> Terms:
    return getattr(MODELS[name], form).terms


def problem(terms: Terms, dim: int = 40, **distinct: int) -> Problem:
    counts = dict.fromkeys(slot_sets(terms), FACTS) | {k: v for k, v in distinct.items() if k in slot_sets(terms)}
    return Problem.of(terms, dict.fromkeys("".join(axes for _, axes in terms) + "N", dim), counts)


def everything(terms: Terms) -> int:
    return (1 << len(terms)) - 1


def products(terms: Terms, mask: int, **distinct: int) -> list[str]:
    """Return the slots of every product of a plan, core tensors as G, in order."""
    steps = contraction_plan(problem(terms, **distinct), mask).steps
    return [_names(terms, left | right) for left, right in steps]


def _names(terms: Terms, mask: int) -> str:
    return "".join(sorted(slot or "G" for bit, (slot, _) in enumerate(terms) if mask >> bit & 1))


# -- the seven equations


def test_cont_contracts_a_core_with_its_predicates_before_any_entity():
    found = products(terms_of("cont"), everything(terms_of("cont")), **DISTINCT)
    assert found[0] == "pt"
    assert found[1] in ("pst", "opt")


def test_cont_contracts_a_core_with_its_subjects_first_if_few_of_those_are_distinct():
    by_subject = {"t": 64, "s": 16, "ts": 512}  # no slot is known by its name
    assert products(terms_of("cont"), everything(terms_of("cont")), **by_subject)[0] == "st"


def test_cont_without_sharing_starts_with_an_entity_or_the_predicate_of_each_fact():
    shared = contraction_plan(problem(terms_of("cont"), **DISTINCT), 15)
    alone = contraction_plan(problem(terms_of("cont")), 15)
    assert alone.cost > 5 * shared.cost


def test_tucker_contracts_its_core_with_times_and_predicates_before_entities():
    found = products(terms_of("tucker"), everything(terms_of("tucker")), **DISTINCT)
    assert found[0] in ("Gp", "Gt")
    assert found[1] == "Gpt"


def test_tucker_contracts_its_core_with_the_predicates_of_a_semantic_form_first():
    assert products(terms_of("tucker", "semantic"), 15, **DISTINCT)[0] == "Gp"


def test_rescal_multiplies_an_entity_by_the_matrix_of_its_predicate():
    assert products(terms_of("rescal", "semantic"), 7, **DISTINCT)[0] in ("ps", "op")


def test_tree_contracts_both_cores_with_their_times_before_entities():
    found = products(terms_of("tree"), everything(terms_of("tree")), **DISTINCT)
    assert found[:2] == ["Gt", "Gt"]
    between = products(terms_of("tree"), terms_without(terms_of("tree"), "so"), **DISTINCT)
    assert between == ["Gt", "Gt", "Gpt", "GGptt"]  # a matrix per time and predicate


@pytest.mark.parametrize("name", ["distmult", "complex", "hole"])
def test_diagonal_models_multiply_predicates_and_times_first(name):
    found = products(terms_of(name), everything(terms_of(name)), **DISTINCT)
    assert set(found[0]) <= set("Gpt")


@EACH
def test_no_plan_multiplies_terms_that_share_no_axis(name, form):
    terms = terms_of(name, form)
    vectors = [slot for slot, axes in terms if slot and len(axes) == 1 and terms.count((slot, axes)) == 1]
    for slot in ("", *vectors):
        mask = terms_without(terms, slot)
        for left, right in contraction_plan(problem(terms, **DISTINCT), mask).steps:
            assert set(kept_axes(terms, left)) & set(kept_axes(terms, right)), (slot, left, right)


@EACH
def test_a_plan_makes_every_product_from_earlier_ones(name, form):
    terms = terms_of(name, form)
    made = {1 << bit for bit in range(len(terms))}
    steps = contraction_plan(problem(terms, **DISTINCT), everything(terms)).steps
    for left, right in steps:
        assert {left, right} <= made
        assert left & right == 0
        made.add(left | right)
    assert everything(terms) in made
    assert len(steps) == len(terms) - 1


@pytest.mark.parametrize("name", [name for name, form in ALONE if form == "episodic"])
def test_queries_of_two_slots_share_products(name):
    case = problem(terms_of(name), **DISTINCT)
    each, both = [queries_cost(case, slot) for slot in "so"], queries_cost(case, "so")
    assert max(each) < both < sum(each)


# -- all trees


def trees(mask: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """Yield the steps of every contraction tree over the terms of a mask."""
    if mask.bit_count() == 1:
        yield ()
        return
    for left in range(1, mask):
        right = mask ^ left
        if left & mask == left and left > right:
            for x in trees(left):
                for y in trees(right):
                    yield (*x, *y, (left, right))


def cost_of(case: Problem, steps: tuple[tuple[int, int], ...]) -> float:
    return sum(case.step_cost(left, right) for left, right in steps)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Return any terms of up to four slots, one perhaps twice, and up to two cores, with any sizes and counts."""
    slots = draw(st.permutations("spot"))[: draw(st.integers(1, 4))]
    slots = [*slots, *draw(st.sampled_from([[], [], slots[:1]]))]
    slots = [*slots, *draw(st.sampled_from([[], [""], ["", ""]]))][:5]
    axes = st.sets(st.sampled_from("abcd"), min_size=1, max_size=3).map(sorted).map("".join)
    terms = tuple((slot, draw(axes)) for slot in slots)
    sizes = {axis: draw(st.integers(1, 60)) for axis in "abcd"}
    counts = {"": 1}
    for subset in sorted(slot_sets(terms), key=len):
        least = max(counts[subset.replace(slot, "")] for slot in subset)
        counts[subset] = draw(st.integers(least, max(least, 10_000)))
    return Problem.of(terms, sizes, counts)


@settings(max_examples=50)
@given(problems())
def test_no_contraction_tree_costs_less_than_the_plan(case):
    whole = everything(case.terms)
    found = contraction_plan(case, whole)
    assert found.cost == pytest.approx(cost_of(case, found.steps))
    assert found.cost == pytest.approx(min(cost_of(case, steps) for steps in trees(whole)))


@settings(max_examples=50)
@given(problems(), st.data())
def test_products_that_are_done_are_free(case, data):
    whole = everything(case.terms)
    done = data.draw(st.sets(st.integers(1, whole), max_size=2).map(sorted).map(tuple))
    found = contraction_plan(case, whole, done)
    assert found.cost == pytest.approx(cost_of(case, found.steps))
    assert not {left | right for left, right in found.steps} & set(done)
    used = [(left, right) for steps in trees(whole) for left, right in [steps[-1]]] if whole.bit_count() > 1 else []
    for left, right in [] if whole in done else used:
        parts = contraction_plan(case, left, done).cost + contraction_plan(case, right, done).cost
        assert found.cost <= (parts + case.step_cost(left, right)) * (1 + 1e-12)
    assert found.cost <= contraction_plan(case, whole).cost
    assert (found.cost == 0) == (whole in done or whole.bit_count() == 1)


@settings(max_examples=50)
@given(problems(), st.data())
def test_cost_grows_with_counts_and_sizes(case, data):
    whole = everything(case.terms)
    factor = 2 ** data.draw(st.integers(0, 4))
    more = {slots: factor * count for slots, count in case.counts}
    longer = {axis: factor * size for axis, size in case.sizes}
    cost = contraction_plan(case, whole).cost
    assert contraction_plan(Problem.of(case.terms, dict(case.sizes), more), whole).cost >= cost
    assert contraction_plan(Problem.of(case.terms, longer, dict(case.counts)), whole).cost >= cost


# -- the parts of a plan


def test_similar_batches_have_one_problem():
    terms = terms_of("cont")
    counts = dict.fromkeys(slot_sets(terms), 900)
    assert Problem.of(terms, {"i": 4}, counts) == Problem.of(terms, {"i": 4}, dict.fromkeys(counts, 1000))
    assert Problem.of(terms, {"i": 4}, counts) != Problem.of(terms, {"i": 4}, dict.fromkeys(counts, 1025))
    assert set(dict(Problem.of(terms, {"i": 4}, dict.fromkeys(counts, 0)).counts).values()) == {1}


def test_kept_axes_are_those_that_other_terms_or_candidates_need():
    terms = terms_of("tree")  # t:a s:b p:cd o:e t:f | abc def
    assert kept_axes(terms, 0b0100011) == "c"
    assert kept_axes(terms, 0b1111111) == ""
    assert kept_axes((("", "Na"), ("s", "a")), 0b11) == "N"


def test_slots_are_in_one_order_whatever_the_order_of_terms():
    terms = (("o", "i"), ("t", "i"), ("", "i"), ("p", "i"))
    assert slots_of(terms, 0b1111) == "tpo"
    assert slots_of(terms, 0b0100) == ""
    assert set(slot_sets(terms)) == {"t", "p", "o", "tp", "to", "po", "tpo"}


def test_terms_without_open_slots_keep_all_cores():
    terms = terms_of("tree")
    assert terms_without(terms, "t") == 0b1101110
    assert terms_without(terms, "so") == 0b1110101
    assert terms_without(terms, "") == 0b1111111


def test_elements_are_those_of_all_products_on_the_way():
    terms = terms_of("cont")
    sizes, counts = {"i": 3, "j": 4, "k": 5}, dict.fromkeys(slot_sets(terms), 1000) | {"t": 2, "p": 10, "tp": 20}
    without_object = terms_without(terms, "o")
    # the matrix of each time and predicate, then a query of each fact
    assert intermediate_elements(Problem.of(terms, sizes, counts), without_object, counts) == 20 * 3 * 5 + 1000 * 5


def test_at_most_as_many_combinations_as_facts_or_as_there_can_be():
    terms, sizes, ids = terms_of("cont"), {"i": 3, "j": 4, "k": 5}, {"s": 50, "p": 3, "o": 50, "t": 4}
    # the matrix of each of 3 · 4 times and predicates, then a query of each fact
    assert max_query_elements(terms, sizes, ids, 100, "o") == 12 * 3 * 5 + 100 * 5
    assert max_query_elements(terms, sizes, ids, 60, "o") == 12 * 3 * 5 + 60 * 5
    assert max_query_elements(terms, sizes, ids, 100, "") == 0
