"""The order of facts: blocks of one time, and when they are worth it."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conftest import FORMED, generator, random_facts
from recollect.graph.facts import Facts
from recollect.models.tensor_model import MODELS
from recollect.training import sampler as batches
from recollect.training.sampler import BLOCKS, HAND, block_order, choose_block, random_order

MANY = {"entity": 40, "predicate": 5, "time": 300}


def at(times, predicates=None) -> Facts:
    """Distinct facts of these times, of predicate 0 if not told."""
    return Facts.of([(n, 0 if predicates is None else predicates[n], 0, t) for n, t in enumerate(times)])


@given(times=st.lists(st.integers(0, 6), min_size=1, max_size=60), block=st.integers(1, 9), seed=st.integers(0, 1000))
def test_an_order_of_blocks_is_every_fact_once_in_pieces_of_one_time(times, block, seed):
    facts = at(times, [7 * n % 5 for n in range(len(times))])
    order = block_order(facts, block, generator(seed))
    assert sorted(order.tolist()) == list(range(len(times)))
    # as few pieces as the facts of each time allow: runs of one time are whole pieces, one of them perhaps short
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


def test_an_order_of_no_facts_is_empty():
    assert block_order(at([]), 3, generator(0)).tolist() == []


def test_a_batch_of_blocks_has_few_times():
    times = torch.arange(1000) % 50
    order = block_order(at(times.tolist()), 10, generator())
    assert [len(times[batch].unique()) for batch in order.split(10)] == [1] * 100
    assert max(len(times[batch].unique()) for batch in order.split(40)) <= 4
    # the pieces of a time are apart, and facts within it are drawn anew
    assert len({tuple(times[batch].unique().tolist()) for batch in order.split(40)}) > 20


@pytest.mark.parametrize(
    "draw", [lambda g: random_order(200, g), lambda g: block_order(at([n % 9 for n in range(200)]), 4, g)]
)
def test_orders_follow_the_generator(draw):
    g = generator(1)
    first, second = draw(g), draw(g)
    assert not torch.equal(first, second)
    assert torch.equal(first, draw(generator(1)))
    assert not torch.equal(first, draw(generator(2)))
    assert torch.equal(first.sort().values, torch.arange(200))


def test_a_block_is_made_of_a_times_facts_at_random():
    facts = at([n % 2 for n in range(40)])
    together = {frozenset(block_order(facts, 5, generator(seed))[:5].tolist()) for seed in range(10)}
    assert len(together) == 10


@given(predicates=st.lists(st.integers(0, 4), min_size=1, max_size=40), seed=st.integers(0, 1000))
def test_facts_of_one_time_and_predicate_come_in_hands(predicates, seed):
    order = block_order(at([3] * len(predicates), predicates), 100, generator(seed))
    runs = [(p, len(list(run))) for p, run in groupby(predicates[n] for n in order)]
    for p in set(predicates):
        lengths = [length % HAND for of, length in runs if of == p]
        assert sum(length != 0 for length in lengths) <= 1  # whole hands, and what is left over
        assert sum(lengths) == predicates.count(p) % HAND


def test_facts_of_a_hand_come_in_every_order_alike():
    facts, g = at([0, 0, 0, 1], [0, 0, 0, 0]), generator()
    drawn = Counter(tuple(fact for fact in block_order(facts, 9, g).tolist() if fact < 3) for _ in range(1200))
    assert len(drawn) == 6
    assert min(drawn.values()) > 150
    assert max(drawn.values()) < 250


def test_hands_are_drawn_anew_and_lie_apart():
    facts = at([0] * 400, [n % 10 for n in range(400)])
    drawn = {frozenset(block_order(facts, 400, generator(seed))[:HAND].tolist()) for seed in range(10)}
    assert len(drawn) == 10
    order = block_order(facts, 400, generator())
    runs = [len(list(run)) for _, run in groupby(facts.p[order].tolist())]
    assert len(runs) > 400 / HAND * 0.7  # two hands of a predicate come one after another by chance only


@pytest.mark.parametrize(("name", "form"), FORMED)
def test_diagonal_and_semantic_models_need_no_blocks(name, form, monkeypatch):
    monkeypatch.setattr(batches, "WORTH", 0)
    model = MODELS[name](MANY, 4, form=form, generator=generator())
    if model.indicator.is_diagonal or form == "semantic":
        assert choose_block(model, random_facts(500, MANY), 256, "so") is None


def test_small_work_needs_no_blocks():
    model = MODELS["cont"](MANY, 2, generator=generator())
    assert choose_block(model, random_facts(500, MANY), 256, "so") is None
    assert choose_block(model, random_facts(1, MANY), 256, "so") is None


def test_large_cores_are_kept_together():
    sizes = {"entity": 200, "predicate": 20, "time": 300}
    model, facts = MODELS["cont"](sizes, 20, generator=generator()), random_facts(20000, sizes)
    block = choose_block(model, facts, 1024, "so")
    assert block in [-(-1024 // count) for count in BLOCKS]
    assert choose_block(model, facts, 1024, "so") == block
    # one time: a random batch shares its core already
    assert choose_block(model, facts.with_slot("t", 0), 1024, "so") is None


def test_the_choice_draws_nothing(monkeypatch):
    monkeypatch.setattr(batches, "WORTH", 0)
    sizes = {"entity": 40, "predicate": 5, "time": 100}
    model, facts = MODELS["cont"](sizes, 12, generator=generator()), random_facts(4000, sizes)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    assert choose_block(model, facts, 256, "so") is not None
    assert torch.equal(torch.get_rng_state(), before)
