"""Several processes take the steps that a single one takes, for every model, objective and placement of tables."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conftest import FORMED, generator, model_config, random_facts
from recollect import Facts, Recipe, UserError
from recollect.models import parameters
from recollect.models.parameters import initial_parameter, initial_rows
from recollect.models.zoo import build_model
from recollect.training.distributed.placements import RowSharded, TimeSharded, balanced_ranges
from recollect.training.distributed.trainer import DistributedTrainer, empty_model
from recollect.training.trainer import Trainer
from threads_as_processes import Threads

SIZES = {"entity": 60, "predicate": 5, "time": 17}
FACTS = random_facts(70, SIZES)
LOGISTIC = Recipe(batch_size=20, epochs=1, learning_rate=0.05)
ONE_VS_ALL = Recipe(
    loss="one-vs-all", optimizer="adagrad", learning_rate=0.1, l2=1e-3, epochs=1, batch_size=20, average=True,
    penalty=0.01, dropout=0.2, label_smoothing=0.1, smoothness=0.5,
)  # fmt: skip
RECIPES = {
    "logistic": LOGISTIC,
    "ranking, one negative of every slot": replace(LOGISTIC, loss="ranking", negatives="s=1,p=1,o=1"),
    "adagrad, known facts avoided": replace(LOGISTIC, optimizer="adagrad", avoid_known=True, smoothness=0.5),
    "one-vs-all": ONE_VS_ALL,
    "one-vs-all, sampled candidates": replace(ONE_VS_ALL, candidates=8),
    "one-vs-all, predicates": replace(ONE_VS_ALL, predict={"s": 1.0, "p": 0.5, "o": 1.0}, candidates=8, batch_size=6),
}


def single(config, recipe, facts=FACTS) -> tuple[list, dict[str, torch.Tensor]]:
    """Return the records of a single process and the weights after its last step."""
    g = generator(3)
    trainer = Trainer(build_model(config, SIZES, generator=g), facts, recipe, generator=g)
    records = list(trainer)
    trainer.finish_()
    return records, trainer.weights


def several(count: int, config, recipe, facts=FACTS, shard: bool = False) -> list[tuple]:
    """Return the records of each process, its placements, and the weights in the first."""

    def train(processes):
        trainer = DistributedTrainer(
            empty_model(config, SIZES), facts, recipe, processes=processes, generator=generator(3), shard=shard
        )
        records = list(trainer)
        trainer.finish_()
        return records, trainer.placements, dict(trainer.model.state_dict()), processes.sent

    return Threads(count).run(train)


def assert_same(alone: tuple, together: list[tuple]) -> None:
    records, weights = alone
    for others, *_ in together:
        assert [type(record) for record in others] == [type(record) for record in records]
        for own, other in zip(records, others, strict=True):
            assert other.loss == pytest.approx(own.loss, rel=1e-9)
    for name, value in together[0][2].items():
        torch.testing.assert_close(value, weights[name], rtol=1e-6, atol=1e-8)


FAST = ("logistic", "one-vs-all, sampled candidates")
CASES = [
    pytest.param(name, form, recipe, marks=[] if recipe in FAST or name in ("complex", "cont") else pytest.mark.long)
    for name, form in FORMED
    for recipe in RECIPES
]


@pytest.mark.parametrize(("name", "form", "recipe"), CASES)
def test_three_processes_take_the_steps_of_one(name, form, recipe):
    levels = {} if form == "semantic" else {"time_levels": (0, 1, 5)}
    config = model_config(name, form, 2, dtype="float64", **levels)
    assert_same(single(config, RECIPES[recipe]), several(3, config, RECIPES[recipe]))


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_time_level_of_one_row_per_time_is_sharded_too(recipe):
    config = model_config("cont", "both", 2, dtype="float64")
    together = several(3, config, RECIPES[recipe])
    assert all(isinstance(placements["time"], TimeSharded) for _, placements, *_ in together)
    assert_same(single(config, RECIPES[recipe]), together)


@pytest.mark.parametrize("name", ["complex", "cont", "tucker"])
@pytest.mark.parametrize("reciprocal", [False, True])
@pytest.mark.parametrize("recipe", ["logistic", "one-vs-all, predicates"])
def test_sharded_rows_are_fetched_and_updated_as_in_one_process(name, reciprocal, recipe):
    if reciprocal and recipe == "logistic":
        pytest.skip("a reciprocal model learns by one-vs-all")
    recipe = replace(RECIPES[recipe], batch_size=2, candidates=2)
    config = model_config(name, "both", 2, dtype="float64", reciprocal=reciprocal)
    together = several(3, config, recipe, shard=True)
    assert all(isinstance(placements["entity"], RowSharded) for _, placements, *_ in together)
    assert_same(single(config, recipe), together)


@pytest.mark.parametrize("levels", [(1,), (1, 5), (0, 1, 3)])
def test_times_without_facts_are_interpolated_across_processes(levels):
    facts = Facts.concat([FACTS[FACTS.t < 3], FACTS[FACTS.t == 6], FACTS[FACTS.t > 14]])
    config = model_config("cont", "episodic", 2, dtype="float64", time_levels=levels)
    assert_same(single(config, ONE_VS_ALL, facts), several(4, config, ONE_VS_ALL, facts))


def test_rows_of_times_do_not_travel():
    config = model_config("cont", "both", 2, dtype="float64")
    for *_, sent in several(4, config, replace(ONE_VS_ALL, smoothness=0.0)):
        assert sent["time gradients"] == sent["time rows of gaps"] == 0
        assert sent["entity gradients"] > 0


def test_of_interpolated_times_only_the_knots_between_two_processes_travel():
    config = model_config("cont", "episodic", 2, dtype="float64", time_levels=(1, 5))
    recipe = replace(ONE_VS_ALL, smoothness=0.0)
    for _, placements, _, sent in several(2, config, recipe):
        time = placements["time"]
        assert int(time.shared.sum()) <= 2  # of the level of spacing 5, at the one boundary
        steps = recipe.epochs * -(-len(FACTS) // recipe.batch_size)
        assert 0 < sent["time gradients"] <= steps * 2 * 2**3 * 8


def test_sharding_small_tables_is_refused():
    with pytest.raises(UserError, match="nothing is gained by sharding"):
        several(2, model_config("complex", "episodic", 2), replace(ONE_VS_ALL, batch_size=60), shard=True)


def test_every_row_has_one_owner_who_holds_it():
    for shard, levels in ((False, (1, 5)), (True, (1,))):
        config = model_config("cont", "both", 2, time_levels=levels)
        together = several(4, config, replace(ONE_VS_ALL, candidates=2, batch_size=2, epochs=1), shard=shard)
        for kind, rows in (("entity", 60), ("predicate", 5), ("time", 17 if levels == (1,) else 22)):
            owned = torch.cat([together[0][1][kind].owned_by(rank) for rank in range(4)])
            assert owned.sort().values.tolist() == list(range(rows))
            for rank, (_, placements, *_) in enumerate(together):
                placement = placements[kind]
                assert set(placement.owned_by(rank).tolist()) <= set(placement.held.tolist())
                assert placement.local(placement.held).tolist() == list(range(len(placement.held)))


@given(st.lists(st.integers(0, 9), min_size=1, max_size=30), st.integers(1, 8))
def test_balanced_ranges_cover_everything_in_order(counts, parts):
    ranges = balanced_ranges(torch.tensor(counts), parts)
    assert len(ranges) == parts
    assert [i for first, last in ranges for i in range(first, last)] == list(range(len(counts)))
    sums = [sum(counts[first:last]) for first, last in ranges]
    assert max(sums) <= sum(counts) / parts + max(counts)


@given(st.integers(1, 40), st.integers(1, 5), st.data())
def test_some_initial_rows_are_those_of_the_whole_table(count, width, data):
    rows = torch.tensor(sorted(data.draw(st.sets(st.integers(0, count - 1)))), dtype=torch.int64)
    for dtype in (torch.float32, torch.float64):
        whole = initial_parameter((count, width, 2), dtype, None, generator(5)).detach()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(parameters, "BLOCK_ELEMENTS", 12)
            drawn = generator(5)
            assert torch.equal(initial_rows((count, width, 2), dtype, rows, drawn), whole[rows])
        same = generator(5)
        initial_parameter((count, width, 2), dtype, None, same)
        assert torch.equal(drawn.get_state(), same.get_state())
