"""The planned contraction, which does once what facts share, against one plain einsum over gathered rows."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from recollect.engine.grouped import Product
from torch import Tensor

from conftest import ALONE, UNEQUAL, generator, random_facts, random_model
from recollect import Facts
from recollect.engine import contraction as contraction_module
from recollect.engine import grouped as grouped_module
from recollect.engine import parallel as threads_module
from recollect.engine.contraction import (
    SMALL,
    Contraction,
    combinations,
    distinct_counts,
    kept_axes,
    plan,
    work_numbers,
)
from recollect.graph.facts import KINDS, SLOTS, encode
from recollect.models import tensor_model as models_module
from recollect.models.equation import Equation
from recollect.models.tensor_model import MODELS, Dims, TensorModel

EACH = pytest.mark.parametrize(("name", "form"), ALONE)
DIRECTED = pytest.mark.parametrize(
    ("name", "form", "slot"), [(n, f, s) for n, f in ALONE for s in ("spot" if f == "episodic" else "spo")]
)
FEW = settings(max_examples=3)  # of each model, form and slot

cases = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 1000),
        "n": st.sampled_from([150, 1, 65, 200]),  # 150 and 200: enough for sharing, 1: one row
        "entities": st.sampled_from([5, 60]),  # 60: subjects and objects are mostly a fact's own
        "ordered": st.booleans(),
        "unequal": st.booleans(),
    }
)


def build(name: str, form: str, case: dict) -> tuple[TensorModel, Facts]:
    """A model and facts that share few predicates and times."""
    sizes = {"entity": case["entities"], "predicate": 3, "time": 4}
    rank = UNEQUAL.get((name, form), 3) if case["unequal"] else 3
    model, facts = random_model(name, form, rank, sizes=sizes), random_facts(case["n"], sizes, case["seed"])
    return model, facts[encode(facts, sizes, "tpso").argsort()] if case["ordered"] else facts


def plain_scores(model: TensorModel, facts: Facts) -> Tensor:
    """θ of each fact by one einsum: (B,)."""
    values = [model.lift(slot, model.get_parameter(KINDS[slot])[facts.column(slot)]) for slot, _ in _factors(model)]
    return _real(torch.einsum(model.indicator.equation(), *values, *_cores(model)))


def plain_against(model: TensorModel, facts: Facts, slot: str, own: Tensor) -> Tensor:
    """θ of each fact with its own candidates by one einsum: (B, K)."""
    terms, values = [], []
    for other, axes in _factors(model):
        ids = own if other == slot else facts.column(other)
        terms.append(("BN" if other == slot else "B") + axes)
        values.append(model.lift(other, model.get_parameter(KINDS[other])[ids]))
    return _real(torch.einsum(",".join([*terms, *model.indicator.cores]) + "->BN", *values, *_cores(model)))


def _factors(model: TensorModel) -> tuple[tuple[str, str], ...]:
    return model.indicator.factors


def _cores(model: TensorModel) -> list[Tensor]:
    return [model.get_parameter(f"core{number}") for number in range(len(model.indicator.cores))]


def _real(theta: Tensor) -> Tensor:
    return theta.real if theta.is_complex() else theta


def assert_same(model: TensorModel, got: Tensor, want: Tensor) -> None:
    """Equal scores, and equal gradients of an uneven sum of them."""
    torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9)
    uneven = torch.randn(want.shape, generator=generator(9), dtype=want.dtype)
    parameters = list(model.parameters())
    for a, b in zip(
        torch.autograd.grad((got * uneven).sum(), parameters),
        torch.autograd.grad((want * uneven).sum(), parameters),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-8)


def some_ids(model: TensorModel, slot: str, *shape: int) -> Tensor:
    return torch.randint(model.sizes[KINDS[slot]], shape, generator=generator(5))


@EACH
@FEW
@given(case=cases)
def test_scores_are_the_plain_sum(name, form, case):
    model, facts = build(name, form, case)
    assert_same(model, model.score(facts), plain_scores(model, facts))


@DIRECTED
@FEW
@given(case=cases)
def test_scores_of_all_candidates_are_the_plain_sum(name, form, slot, case):
    model, facts = build(name, form, case)
    everything = torch.arange(model.sizes[KINDS[slot]]).expand(len(facts), -1)
    assert_same(model, model.score_against(facts, slot), plain_against(model, facts, slot, everything))


@DIRECTED
@FEW
@given(case=cases)
def test_scores_of_shared_and_of_own_candidates_are_the_plain_sum(name, form, slot, case):
    model, facts = build(name, form, case)
    shared, own = some_ids(model, slot, 4), some_ids(model, slot, len(facts), 3)
    want = plain_against(model, facts, slot, shared.expand(len(facts), -1))
    assert_same(model, model.score_against(facts, slot, shared), want)
    assert_same(model, model.score_against(facts, slot, own), plain_against(model, facts, slot, own))


@EACH
@FEW
@given(case=cases, first=st.integers(0, 3), told=st.sampled_from([None, 10, 300]))
def test_scores_of_corruptions_are_the_plain_sum(name, form, case, first, told):
    """Also with counts of another batch: they change the way, not the sum."""
    model, facts = build(name, form, case)
    slots = model.indicator.slots[first % len(model.indicator.slots) :] + model.indicator.slots[: first % 3]
    corrupted = {slot: some_ids(model, slot, len(facts), 1 + k % 2) for k, slot in enumerate(dict.fromkeys(slots))}
    counts = None if told is None else distinct_counts(model.indicator, random_facts(told, model.sizes))
    true, false = model.score_with_negatives(facts, corrupted, counts)
    want = [plain_against(model, facts, slot, ids) for slot, ids in corrupted.items()]
    assert_same(
        model, torch.cat([true[:, None], false], dim=1), torch.cat([plain_scores(model, facts)[:, None], *want], 1)
    )


MATRICES = [(name, form) for name, form in ALONE if not MODELS[name].equation(form).is_diagonal]


@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
@pytest.mark.parametrize(("name", "form"), MATRICES)
@settings(max_examples=8)
@given(
    case=cases, others=st.tuples(st.integers(1, 3), st.integers(1, 3)), slots=st.sampled_from(["so", "os", "s", "o"])
)
def test_matrices_that_facts_share_give_the_plain_sum(name, form, large, case, others, slots):
    """In one sweep, whether it pays or not; large cores are multiplied one by one, some by nothing."""
    model, facts = build(name, form, case)
    facts = facts[(facts.t != 1) & ~((facts.t == 2) & (facts.p == 0))] if len(facts) > 1 else facts
    corrupted = {slot: some_ids(model, slot, len(facts), count) for slot, count in zip(slots, others, strict=False)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grouped_module, "LARGE", 0 if large else 10**9)
        patch.setattr(Contraction, "cost", lambda *_: math.inf)  # of queries, slot by slot
        work = model.works(facts)[""]
        between = work.between()
        assert between is not None
        by_core = large and name == "cont" and form == "episodic" and len(facts) > SMALL
        assert isinstance(between.matrices, Product) >= by_core
        assert isinstance(between.matrices, Product) <= large
        true, false = model._score_by_matrix(work, between, corrupted)
        want = [plain_against(model, facts, slot, ids) for slot, ids in corrupted.items()]
        got = torch.cat([true[:, None], false], dim=1)
        assert_same(model, got, torch.cat([plain_scores(model, facts)[:, None], *want], 1))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("rank", [26, 37])
@pytest.mark.parametrize("name", ["cont", "tucker"])
def test_cores_of_times_meet_their_predicates_one_by_one(name, rank, threads, monkeypatch):
    """The way that training takes at ranks that are used, with predicates that not all times have."""
    sizes = {"entity": 60, "predicate": 9, "time": 4}
    ranks = Dims.of(rank, time=6 if name == "tucker" else rank)
    model, facts = random_model(name, "episodic", ranks, sizes=sizes), random_facts(300, sizes)
    facts = facts[(facts.p < 7) | (facts.t == 0)]
    facts = facts[encode(facts, sizes, "tpso").argsort()]
    between = model.works(facts)[""].between()
    assert between is not None
    assert isinstance(between.matrices, Product)
    assert between.matrices.places.diff().tolist() == [9, 7, 7, 7]
    corrupted = {slot: some_ids(model, slot, len(facts), 1) for slot in "so"}
    monkeypatch.setattr(threads_module, "_given", [threads])
    monkeypatch.setattr(threads_module, "WORTH", 0)
    true, false = model.score_with_negatives(facts, corrupted)
    want = [plain_scores(model, facts)[:, None], *(plain_against(model, facts, s, x) for s, x in corrupted.items())]
    assert_same(model, torch.cat([true[:, None], false], dim=1), torch.cat(want, dim=1))


@pytest.mark.parametrize(("threads", "entities"), [(1, 20), (3, 20), (1, 200)])  # 200: few share a subject and a time
@pytest.mark.parametrize(("rank", "dtype"), [(3, torch.float64), (37, torch.float32)])
@pytest.mark.parametrize("name", ["cont", "tucker"])
def test_queries_by_matrices_that_are_forgotten(name, rank, threads, entities, dtype, monkeypatch):
    """Without gradients, in one pass; by a matrix and by its transpose, of facts in any order.

    Memory is left out of the plan where they are, and only there.
    """
    sizes = {"entity": entities, "predicate": 6, "time": 5}
    model = random_model(name, "episodic", Dims.of(rank, time=5 if name == "tucker" else rank), dtype, sizes)
    facts = random_facts(400, sizes)
    monkeypatch.setattr(grouped_module, "LARGE", 0)
    monkeypatch.setattr(threads_module, "_given", [threads])
    monkeypatch.setattr(threads_module, "WORTH", 0)
    met: list[bool] = []
    rows = contraction_module.product_rows
    monkeypatch.setattr(
        contraction_module,
        "product_rows",
        lambda *a, transposed: (met.append(transposed), rows(*a, transposed=transposed))[1],
    )
    found = set()
    for slot in (slot for slot in model.indicator.slots if not model.is_wide(slot)):
        some = torch.arange(3).expand(20, -1)
        with torch.no_grad():
            work = model.works(facts)[""]
            planned = work._forgotten(contraction_module.without(work.terms, slot)) is not None
            met.clear()
            torch.testing.assert_close(
                model.score_against(facts, slot)[::20, :3],
                plain_against(model, facts[::20], slot, some),
                rtol=1e-3 if dtype == torch.float32 else 1e-7,
                atol=1e-2 if dtype == torch.float32 else 1e-7,
            )
        assert planned == bool(met)
        found |= set(met)
    if entities == 20:
        assert True in found
        assert False in found or name == "tucker"  # another order is cheaper


@pytest.mark.parametrize(("name", "form"), MATRICES)
def test_more_corruptions_than_one_each_are_met_by_queries(name, form, monkeypatch):
    model, facts = random_model(name, form), random_facts(150)
    monkeypatch.setattr(Contraction, "between", lambda _: pytest.fail("queries are cheaper"))
    model.score_with_negatives(facts, {"s": some_ids(model, "s", 150, 2), "o": some_ids(model, "o", 150, 1)})
    model.score_with_negatives(facts, {"o": some_ids(model, "o", 150, 1)})


@EACH
def test_no_facts_have_no_corruptions(name, form):
    model, none = random_model(name, form), torch.empty(0, 1, dtype=torch.int64)
    true, false = model.score_with_negatives(Facts.of([]), {"s": none, "o": none})
    assert (true.shape, false.shape) == ((0,), (0, 2))


@pytest.mark.parametrize(
    ("name", "form", "slot"), [("cont", "episodic", "t"), ("tree", "episodic", "t"), ("tree", "episodic", "p")]
)
@FEW
@given(case=cases, size=st.integers(1, 7))
def test_a_wide_slot_meets_its_candidates_before_a_query_is_made(name, form, slot, case, size):
    model, facts = build(name, form, case)
    ids = some_ids(model, slot, size)
    got = model.works(facts)[""].against(slot, model.get_parameter(KINDS[slot])[ids])
    assert_same(model, got, plain_against(model, facts, slot, ids.expand(len(facts), -1)))


@EACH
def test_queries_of_several_slots_share_their_work(name, form):
    model = random_model(name, form)
    facts = random_facts(150)
    works = model.works(facts)
    for slot in model.indicator.slots:
        if not model.is_wide(slot):
            query = model.query(works, slot)
            alone = model.query(model.works(facts), slot)
            torch.testing.assert_close(query, alone)
    torch.testing.assert_close(_real(works[""].score()), plain_scores(model, facts))


@pytest.mark.parametrize("name", ["tucker", "cont"])
def test_the_middle_of_a_large_core_is_summed_where_it_lies(name, monkeypatch):
    sizes = {"entity": 60, "predicate": 3, "time": 4}
    model, facts = random_model(name, "episodic", UNEQUAL[name, "episodic"], sizes=sizes), random_facts(150, sizes)
    monkeypatch.setattr(contraction_module, "LARGE_CORE", 0)
    for slot in "spot":
        everything = torch.arange(sizes[KINDS[slot]]).expand(len(facts), -1)
        assert_same(model, model.score_against(facts, slot), plain_against(model, facts, slot, everything))


@DIRECTED
def test_pieces_of_shared_work_give_the_same_scores(name, form, slot, monkeypatch):
    model, facts = random_model(name, form), random_facts(150)
    own = some_ids(model, slot, 150, 3)
    with torch.no_grad():
        whole = model.score(facts), model.score_against(facts, slot), model.score_against(facts, slot, own)
        monkeypatch.setattr(models_module, "WORK_BYTES", 2000)
        pieces = model.score(facts), model.score_against(facts, slot), model.score_against(facts, slot, own)
    for a, b in zip(pieces, whole, strict=True):
        torch.testing.assert_close(a, b)


def test_a_piece_is_as_small_as_its_work_must_be(monkeypatch):
    """The work of a piece, counted again for its own facts, fits."""
    sizes = {"entity": 300, "predicate": 40, "time": 50}
    model, facts = random_model("cont", "episodic", 4, sizes=sizes), random_facts(400, sizes)
    numbers = model.works(facts)[""].numbers("o")
    made: list[int] = []
    monkeypatch.setattr(models_module, "WORK_BYTES", numbers * 8 // 5)
    works = model.works

    def counted(facts: Facts, counts: None = None) -> dict[str, Contraction]:
        made.append(len(facts))
        return works(facts, counts)

    monkeypatch.setattr(model, "works", counted)
    with torch.no_grad():
        model.score_against(facts, "o")
    assert made[0] == sum(made[1:]) == 400
    assert 5 <= len(made[1:]) <= 7
    assert max(made[1:]) * numbers / 400 * 8 <= models_module.WORK_BYTES * 1.02
    made.clear()
    model.score_against(facts, "o")  # with gradients, all at once
    assert made == [400]


def is_connected(terms: tuple[tuple[str, str], ...]) -> bool:
    reached = set(terms[0][1])
    for _ in terms:
        for _, axes in terms:
            reached |= set(axes) if reached & set(axes) else set()
    return all(set(axes) <= reached for _, axes in terms)


@st.composite
def equations(draw: st.DrawFn) -> Equation:
    """Any equation of two to four slots, one of them perhaps twice, and up to two cores, all joined."""
    slots = draw(st.permutations("spot").map(lambda order: order[: draw(st.integers(2, 4))]))
    slots = [*slots, *draw(st.sampled_from([[], [], slots[:1]]))]
    terms = [*slots, *["|"] * draw(st.integers(0, 2))]
    axes: list[str] = [""] * len(terms)
    for axis in "abcde"[: draw(st.integers(1, 5))]:
        for term in draw(st.sets(st.sampled_from(range(len(terms))), min_size=2, max_size=len(terms))):
            axes[term] += axis
    assume(all(axes) and max(map(len, axes)) < 5)
    twice = [text for slot, text in zip(slots, axes, strict=False) if slots.count(slot) == 2]
    assume(not twice or len(twice[0]) == len(twice[1]))
    factors = " ".join(f"{slot}:{text}" for slot, text in zip(slots, axes, strict=False))
    indicator = Equation.parse(f"{factors} | {' '.join(axes[len(slots) :])}")
    assume(is_connected(indicator.terms))
    return indicator


def tables_of(indicator: Equation, sizes: dict[str, int]) -> tuple[dict[str, Tensor], list[Tensor]]:
    """Random tables and cores; axes differ in length unless a slot that occurs twice joins them."""
    g = generator(3)
    twice = len(indicator.factors) > len(indicator.slots)
    length = {axis: 2 if twice else 1 + k for k, axis in enumerate("bacde")}

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=g, dtype=torch.float64).requires_grad_()

    tables = {slot: random(sizes[KINDS[slot]], *map(length.__getitem__, axes)) for slot, axes in indicator.factors}
    return tables, [random(*map(length.__getitem__, axes)) for axes in indicator.cores]


@settings(max_examples=60)
@given(indicator=equations(), n=st.sampled_from([120, 3, 70]), size=st.sampled_from([3, 40]), seed=st.integers(0, 99))
def test_any_equation_is_contracted_right(indicator, n, size, seed):
    sizes = {"entity": size, "predicate": 3, "time": 4}
    tables, cores = tables_of(indicator, sizes)
    facts = random_facts(n, sizes, seed)
    counts = distinct_counts(indicator, facts)
    work = Contraction(indicator, facts, lambda slot, ids: (tables[slot], ids), cores, counts)
    rows = {slot: tables[slot][facts.column(slot)] for slot in indicator.slots}
    wanted = [torch.einsum(indicator.equation(), *(rows[slot] for slot, _ in indicator.factors), *cores)]
    got = [work.score()]
    for slot in indicator.slots:
        if not set(indicator.axes(slot)) <= set(indicator.equation(slot).partition("->")[0]):
            continue  # an axis that joins the slot with itself only: there is no query
        operands = [*(rows[other] for other, _ in indicator.factors if other != slot), *cores]
        wanted.append(torch.einsum(indicator.equation(slot), *operands))
        got.append(work.query(slot))
    weights = [*tables.values(), *cores]
    for a, b in zip(got, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-8)
    gradients = [torch.autograd.grad(sum(x.square().sum() for x in found), weights) for found in (got, wanted)]
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-6)


def key(values: dict[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(values.items()))


def counts_of(indicator: Equation, n: int, distinct: dict[str, int]) -> dict[str, int]:
    return dict.fromkeys(distinct_counts(indicator, random_facts(1)), n) | distinct


@settings(max_examples=60)
@given(indicator=equations(), n=st.integers(1, 5000), done=st.booleans())
def test_a_plan_multiplies_every_term_once(indicator, n, done):
    terms = indicator.terms
    sizes, whole = key(dict.fromkeys("abcde", 7)), (1 << len(terms)) - 1
    cost, steps = plan(terms, sizes, key(counts_of(indicator, n, {})), whole, ())
    there = {1 << bit for bit in range(len(terms))}
    for left, right in steps:
        assert left in there
        assert right in there
        assert left & right == 0
        there.add(left | right)
    assert len(steps) == len(terms) - 1
    assert whole in there
    assert cost > 0
    if done:
        first = steps[0][0] | steps[0][1]
        less, fewer = plan(terms, sizes, key(counts_of(indicator, n, {})), whole, (first,))
        assert less < cost or len(terms) == 2
        assert len(fewer) == len(steps) - 1


def test_a_core_meets_the_predicates_of_its_time_first_where_facts_share_them():
    indicator = MODELS["cont"].equation("episodic")
    sizes = key(dict.fromkeys("ijk", 20))
    bit = {slot: 1 << at for at, (slot, _) in enumerate(indicator.terms)}
    shared = counts_of(indicator, 1000, {"t": 2, "p": 10, "tp": 20})
    cheap, steps = plan(indicator.terms, sizes, key(shared), 15, ())
    assert set(steps[0]) == {bit["p"], bit["t"]}
    dear, _ = plan(indicator.terms, sizes, key(counts_of(indicator, 1000, {})), 15, ())
    assert dear > 5 * cheap
    # subjects that occur with few times are worth it as well: no slot is known by name
    by_subject = counts_of(indicator, 1000, {"t": 2, "s": 10, "ts": 20})
    assert set(plan(indicator.terms, sizes, key(by_subject), 15, ())[1][0]) == {bit["s"], bit["t"]}


def test_the_cost_of_facts_falls_with_what_they_share():
    sizes = {"entity": 200, "predicate": 20, "time": 500}
    model, facts = random_model("cont", "episodic", 8, sizes=sizes), random_facts(400, sizes)
    few = facts.with_slot("t", facts.t % 4)
    assert model.works(few)[""].cost("so") < model.works(facts)[""].cost("so") / 2
    # what one slot's query has made, the next one's finds
    both, each = model.works(few)[""].cost("so"), [model.works(few)[""].cost(slot) for slot in "so"]
    assert max(each) < both < sum(each)


def test_work_is_counted_by_the_numbers_that_are_made():
    indicator = MODELS["cont"].equation("episodic")
    sizes, counts = {"i": 3, "j": 4, "k": 5}, counts_of(indicator, 1000, {"t": 2, "p": 10, "tp": 20})
    # the core of each (t, p) without j, then a query without i
    without_object = 0b1011
    assert work_numbers(indicator.terms, sizes, counts, without_object) == 20 * 3 * 5 + 1000 * 5


def test_sharing_goes_through_grouped_products(monkeypatch):
    calls: list[int] = []
    grouped = contraction_module.grouped_matmul

    def counted(rows: Tensor, index: Tensor, *others: object) -> Tensor:
        calls.append(len(index))
        return grouped(rows, index, *others)

    monkeypatch.setattr(contraction_module, "grouped_matmul", counted)
    model = random_model("cont", "episodic", 3)
    model.score(random_facts(150))
    # 3 predicates meet 4 times once; then every (t, p) meets its subjects; then the objects
    assert calls[0] == 3 * 4
    assert len(calls) > 1
    calls.clear()
    model.score(random_facts(SMALL))
    assert calls[0] == SMALL


@pytest.mark.parametrize("open", ["", "s", "t", "so"])
def test_counts_are_those_of_every_set_that_an_open_slot_leaves(open):
    indicator = MODELS["tucker"].equation("episodic")
    facts = random_facts(300, {"entity": 40, "predicate": 5, "time": 9})  # most sets of three slots are distinct
    assert len(distinct_counts(indicator, facts)) == 15
    for slots, count in distinct_counts(indicator, facts, open).items():
        distinct = len({tuple(row[SLOTS.index(slot)] for slot in slots) for row in facts.ids.tolist()})
        few = 2 * distinct <= len(facts) and not set(slots) & set(open)
        assert count == (distinct if few else len(facts)), slots


def test_counts_tell_distinct_combinations_where_sharing_pays():
    indicator = MODELS["cont"].equation("episodic")
    rows = [(k % 50, k % 2, k % 50, k % 3) for k in range(100)]
    counts = distinct_counts(indicator, Facts.of(rows))
    assert (counts["t"], counts["p"], counts["tp"], counts["s"], counts["so"]) == (3, 2, 6, 50, 50)
    assert counts["tpso"] == 100  # 50 · 3 are more than half of all
    assert set(distinct_counts(indicator, Facts.of(rows[:SMALL])).values()) == {SMALL}


@given(
    seed=st.integers(0, 200),
    n=st.integers(0, 40),
    slots=st.sampled_from(["t", "tp", "ps", "tpso"]),
    ordered=st.booleans(),
)
def test_combinations_are_distinct_and_belong_to_their_facts(seed, n, slots, ordered):
    facts = random_facts(n, seed=seed)
    if ordered:
        facts = facts[encode(facts, {"entity": 5, "predicate": 3, "time": 4}, slots).argsort()]
    ids = {slot: facts.column(slot) for slot in slots}
    level = combinations(ids, slots)
    rows = list(zip(*(ids[slot].tolist() for slot in slots), strict=True))
    found = [rows[first] for first in level.first.tolist()]
    assert found == sorted(set(rows))
    assert [found[at] for at in level.index.tolist()] == rows


def test_kept_axes_are_those_that_others_need():
    terms = MODELS["tree"].equation("episodic").terms  # t:a s:b p:cd o:e t:f | abc def
    assert kept_axes(terms, 0b0100011) == "c"
    assert kept_axes(terms, 0b1111111) == ""
    assert kept_axes((("", "Na"), ("s", "a")), 0b11) == "N"


def test_a_part_that_is_summed_away_whole_may_have_several_axes():
    """Of two parts of one size, the one that is summed over all its axes may be what rows share."""
    indicator, sizes = Equation.parse("s:ab p:a o:cd t:bcd"), {"entity": 3, "predicate": 3, "time": 4}
    tables, _ = tables_of(indicator, sizes)  # b has one number
    facts = random_facts(120, sizes, 0)
    counts = distinct_counts(indicator, facts)
    work = Contraction(indicator, facts, lambda slot, ids: (tables[slot], ids), [], counts)
    rows = [tables[slot][facts.column(slot)] for slot, _ in indicator.factors]
    torch.testing.assert_close(work.score(), torch.einsum(indicator.equation(), *rows))
