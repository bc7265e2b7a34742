"""Bounds count the flops and bytes that the work needs; random graphs have the sizes and the skew of their shape."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from benchmarks.bounds import Machine, Work, bare_products, one_vs_all_work, product_shape, scoring_flops, training_work
from benchmarks.shapes import GDELT, GROWTH, ICEWS14, Shape, graph_of, skewed_facts
from recollect import Facts, ModelConfig, UserError
from recollect.graph.facts import distinct

TINY = GDELT.tiny()
SIZES = {"entity": 6, "predicate": 3, "time": 4}
FACTS = Facts.of([(0, 0, 1, 0), (0, 0, 2, 0), (1, 2, 2, 3)])
config = partial(ModelConfig, dim=10)


def test_flops_of_scoring():
    assert scoring_flops(config(model="rescal", form="semantic"), facts=2, pairs=1, times=0) == 2 * (2 * 200 + 60)
    assert scoring_flops(config(model="cont"), facts=2, pairs=3, times=1) == 3 * 2000 + 2 * (2 * 200 + 60)


def test_work_of_an_epoch_with_negatives():
    work = training_work(config(model="distmult"), FACTS, SIZES, {"s": 1, "o": 1}, steps=1)
    assert work.flops == 3 * 3 * (60 + 60)
    assert work.bytes == 2 * 4 * 10 * 3 * 6  # six rows per fact
    cores = training_work(config(model="cont"), FACTS, SIZES, {"s": 1, "o": 1}, steps=1)
    assert cores.bytes == 2 * 4 * (10 * 3 * 5 + 1000 * (2 + 1))


def test_work_of_a_one_vs_all_epoch():
    assert one_vs_all_work(config(model="complex"), FACTS, SIZES).flops == 3 * 2 * (2 + 3) * 6 * 20


@pytest.mark.parametrize(
    ("model", "slot", "shape"), [("tree", "t", (100, 4)), ("cont", "t", (10, 40)), ("complex", "o", (20, 6))]
)
def test_shape_of_the_product_that_scores_all_candidates(model, slot, shape):
    assert product_shape(config(model=model), slot, SIZES) == shape


def test_the_bound_is_the_larger_of_flops_and_bytes():
    assert Machine(flops=10, bytes=100).seconds(Work(flops=30, bytes=200)) == 3
    assert Machine(flops=100, bytes=10).seconds(Work(flops=30, bytes=200)) == 20
    assert bare_products(1000, 4, 30) > 0


def test_skewed_facts_are_distinct_and_of_the_right_sizes():
    shape = Shape(name="x", entities=300, predicates=40, times=30, facts=20_000, test=0, batch_size=1)
    facts = skewed_facts(shape, shape.facts)
    assert len(facts) == len(distinct(facts, shape.sizes)) == shape.facts
    for slot, size in (("s", 300), ("p", 40), ("o", 300), ("t", 30)):
        assert int(facts.column(slot).min()) >= 0
        assert int(facts.column(slot).max()) < size
    share = torch.bincount(facts.s).sort(descending=True).values / len(facts)
    assert 0.03 < share[0] < 0.15
    assert share[:30].sum() > 0.4  # a tenth of the entities
    days = torch.bincount(facts.t)
    assert days.max() < 2 * days.min()


def test_skewed_facts_depend_on_their_seed_alone():
    first, again, other = (skewed_facts(TINY, 200, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first.ids, again.ids)
    assert not torch.equal(first.ids, other.ids)
    with pytest.raises(UserError, match="too many"):
        skewed_facts(TINY, 10**6)


def test_a_graph_of_a_shape_has_its_sizes():
    graph = graph_of(TINY)
    assert graph.sizes == TINY.sizes
    assert len(graph.split("train")) == TINY.facts
    assert len(distinct(graph.facts, graph.sizes)) == TINY.facts + TINY.test
    assert graph.entities.index("entity 000007") == 7


def test_the_graph_of_icews14_is_the_dataset_if_its_files_are_present(real_data):
    graph = graph_of(ICEWS14)
    assert graph.name == "icews14"
    assert graph.sizes == ICEWS14.sizes


def test_the_growth_shape_has_room_for_all_its_facts():
    assert GROWTH.entities**2 * GROWTH.predicates * GROWTH.times > 4 * 9 * GROWTH.facts
