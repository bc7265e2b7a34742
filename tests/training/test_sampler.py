"""The order of facts: blocks of one time, and when they pay off."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import FORMED, generator, model_config, random_facts
from recollect.graph.facts import Facts
from recollect.models.tensor_model import TensorModel
from recollect.models.zoo import build_model
from recollect.training import sampler
from recollect.training.sampler import GROUP, block_order, choose_block, random_order

MANY = {"entity": 40, "predicate": 5, "time": 300}
TIMES_PER_BATCH = (64, 32, 16)


def build(name: str, form: str, dim: int, sizes: dict[str, int]) -> TensorModel:
    return build_model(model_config(name, form, dim), sizes, generator=generator())


def at(times, predicates=None) -> Facts:
    """Return distinct facts of these times, of predicate 0 by default."""
    return Facts.of([(n, 0 if predicates is None else predicates[n], 0, t) for n, t in enumerate(times)])


@settings(max_examples=50)
@given(times=st.lists(st.integers(0, 6), min_size=1, max_size=60), block=st.integers(1, 9), seed=st.integers(0, 1000))
def test_a_block_order_has_every_fact_once_in_blocks_of_one_time(times, block, seed):
    facts = at(times, [7 * n % 5 for n in range(len(times))])
    order = block_order(facts, block, generator(seed))
    assert sorted(order.tolist()) == list(range(len(times)))
    # as few blocks as the facts of each time allow: at most one of them is short
    runs: list[list[int]] = []
    for fact in order.tolist():
        if runs and runs[-1][0] == times[fact]:
            runs[-1][1] += 1
        else:
            runs.append([times[fact], 1])
    for time in set(times):
        short = times.count(time) % block
        lengths = [length % block for at, length in runs if at == time]
        assert sum(length != 0 for length in lengths) <= 1
        assert sum(lengths) == short
    assert torch.equal(order, block_order(facts, block, generator(seed)))


def test_the_order_of_no_facts_is_empty():
    assert block_order(at([]), 3, generator(0)).tolist() == []


def test_a_batch_of_blocks_has_few_times():
    times = torch.arange(1000) % 50
    order = block_order(at(times.tolist()), 10, generator())
    assert [len(times[batch].unique()) for batch in order.split(10)] == [1] * 100
    assert max(len(times[batch].unique()) for batch in order.split(40)) <= 4
    # the blocks of a time are apart, and drawn again for every order
    assert len({tuple(times[batch].unique().tolist()) for batch in order.split(40)}) > 20


@pytest.mark.parametrize(
    "draw", [lambda g: random_order(200, g), lambda g: block_order(at([n % 9 for n in range(200)]), 4, g)]
)
def test_an_order_follows_from_its_generator(draw):
    g = generator(1)
    first, second = draw(g), draw(g)
    assert not torch.equal(first, second)
    assert torch.equal(first, draw(generator(1)))
    assert not torch.equal(first, draw(generator(2)))
    assert torch.equal(first.sort().values, torch.arange(200))


def test_a_block_has_random_facts_of_its_time():
    facts = at([n % 2 for n in range(40)])
    together = {frozenset(block_order(facts, 5, generator(seed))[:5].tolist()) for seed in range(10)}
    assert len(together) == 10


@settings(max_examples=50)
@given(predicates=st.lists(st.integers(0, 4), min_size=1, max_size=40), seed=st.integers(0, 1000))
def test_facts_of_one_time_and_predicate_come_in_groups(predicates, seed):
    order = block_order(at([3] * len(predicates), predicates), 100, generator(seed))
    runs = [(p, len(list(run))) for p, run in groupby(predicates[n] for n in order)]
    for p in set(predicates):
        lengths = [length % GROUP for of, length in runs if of == p]
        assert sum(length != 0 for length in lengths) <= 1  # whole groups and a remainder
        assert sum(lengths) == predicates.count(p) % GROUP


def test_all_orders_within_a_group_are_equally_likely():
    facts, g = at([0, 0, 0, 1], [0, 0, 0, 0]), generator()
    drawn = Counter(tuple(fact for fact in block_order(facts, 9, g).tolist() if fact < 3) for _ in range(1200))
    assert len(drawn) == 6
    assert min(drawn.values()) > 150
    assert max(drawn.values()) < 250


def test_groups_are_drawn_for_every_order_and_lie_apart():
    facts = at([0] * 400, [n % 10 for n in range(400)])
    drawn = {frozenset(block_order(facts, 400, generator(seed))[:GROUP].tolist()) for seed in range(10)}
    assert len(drawn) == 10
    order = block_order(facts, 400, generator())
    runs = [len(list(run)) for _, run in groupby(facts.p[order].tolist())]
    assert len(runs) > 400 / GROUP * 0.7  # two groups of a predicate are adjacent by chance only


@pytest.mark.parametrize(("name", "form"), FORMED)
def test_diagonal_and_semantic_models_need_no_blocks(name, form, monkeypatch):
    monkeypatch.setattr(sampler, "MIN_FLOPS", 0)
    model = build(name, form, 4, MANY)
    if model.equation.is_diagonal or form == "semantic":
        assert choose_block(model, random_facts(500, MANY), 256, "so", TIMES_PER_BATCH) is None


def test_cheap_batches_need_no_blocks():
    model = build("cont", "episodic", 2, MANY)
    assert choose_block(model, random_facts(500, MANY), 256, "so", TIMES_PER_BATCH) is None
    assert choose_block(model, random_facts(1, MANY), 256, "so", TIMES_PER_BATCH) is None


def test_facts_that_share_a_large_core_are_kept_together():
    sizes = {"entity": 200, "predicate": 20, "time": 300}
    model, facts = build("cont", "episodic", 20, sizes), random_facts(20000, sizes)
    block = choose_block(model, facts, 1024, "so", TIMES_PER_BATCH)
    assert block in [-(-1024 // count) for count in TIMES_PER_BATCH]
    assert choose_block(model, facts, 1024, "so", TIMES_PER_BATCH) == block
    # one time: a random batch shares its core already
    assert choose_block(model, facts.with_slot("t", 0), 1024, "so", TIMES_PER_BATCH) is None


def test_the_choice_of_blocks_draws_no_global_random_numbers(monkeypatch):
    monkeypatch.setattr(sampler, "MIN_FLOPS", 0)
    sizes = {"entity": 40, "predicate": 5, "time": 100}
    model, facts = build("cont", "episodic", 12, sizes), random_facts(4000, sizes)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    assert choose_block(model, facts, 256, "so", TIMES_PER_BATCH) is not None
    assert torch.equal(torch.get_rng_state(), before)


def test_groups_are_shuffled_as_fisher_and_yates_do_one_by_one():
    counts = torch.tensor([1, 7, 3, 7, 2, 12])
    found = sampler._shuffle_within(torch.arange(32), counts, generator(5)).tolist()
    chances = torch.rand(32, dtype=torch.float64, generator=generator(5)).tolist()
    expected, first = list(range(32)), 0
    for count in counts.tolist():
        for last in range(first + count - 1, first, -1):
            other = min(last, first + int(chances[last] * (last - first + 1)))
            expected[last], expected[other] = expected[other], expected[last]
        first += count
    assert found == expected
