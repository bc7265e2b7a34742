"""The training loop: same bits with the same seed, exact resumption, early stopping, averaging, lazy rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from conftest import generator, model_config, random_facts, random_model
from recollect import Facts, Recipe, UserError
from recollect.engine import parallel
from recollect.models.time_knots import neighbours
from recollect.models.zoo import build_model
from recollect.training import objectives, rows
from recollect.training.rows import touched_rows
from recollect.training.trainer import Epoch, Step, Trainer

SIZES = {"entity": 9, "predicate": 3, "time": 20}
MANY_TIMES = {"entity": 12, "predicate": 3, "time": 400}
ONE_VS_ALL = Recipe(loss="one-vs-all", optimizer="adagrad", learning_rate=0.1, l2=0, epochs=1, batch_size=1000)


def assert_same_bits(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    assert a.keys() == b.keys()
    for name, value in a.items():
        assert torch.equal(value, b[name]), name


def many_times(order: str = "blocks", optimizer: str = "adam", epochs: int = 2, seed: int = 2, **changes) -> Trainer:
    """Return a trainer on few facts of each of many times, whose batches touch few rows of the time table."""
    settings = {"order": order, "optimizer": optimizer, "epochs": epochs, "batch_size": 80, "learning_rate": 0.05}
    model = build_model(model_config("cont", "episodic", 3), MANY_TIMES, generator=generator(1))
    return Trainer(model, random_facts(320, MANY_TIMES), Recipe(**(settings | changes)), generator=generator(seed))


def one_vs_all_run() -> Trainer:
    """Return a trainer with everything that draws random numbers or keeps a state in one-vs-all."""
    sizes = {"entity": 60, "predicate": 3, "time": 90}
    model = random_model("cont", "both", 2, sizes=sizes, reciprocal=True, time_levels=(1, 5))
    recipe = replace(
        ONE_VS_ALL, epochs=2, batch_size=30, candidates=7, dropout=0.2, smoothness=0.5, penalty=0.01, average=True,
        predict={"s": 1.0, "p": 0.3, "o": 1.0, "t": 0.2}, label_smoothing=0.1,
    )  # fmt: skip
    return Trainer(model, random_facts(90, sizes), recipe, generator=generator(2))


RUNS: dict[str, Callable[[], Trainer]] = {
    "blocks of one time, Adam": many_times,
    "blocks of one time, Adagrad": lambda: many_times(optimizer="adagrad"),
    "one-vs-all": one_vs_all_run,
}


@pytest.mark.parametrize("start", RUNS.values(), ids=RUNS)
def test_a_run_resumed_at_any_record_ends_with_the_same_bits(start):
    whole = start()
    records, states = [], []
    for record in whole:
        records.append(record)
        tensors, plain = whole.state()
        states.append(({name: value.clone() for name, value in tensors.items()}, plain))
    assert {type(record) for record in records} == {Step, Epoch}
    for done, state in list(enumerate(states, 1))[::2]:
        again = start()
        again.restore_(*state)
        assert list(again) == records[done:]
        assert_same_bits(dict(again.model.state_dict()), dict(whole.model.state_dict()))


@pytest.mark.parametrize("start", RUNS.values(), ids=RUNS)
def test_the_same_seed_gives_the_same_bits(start):
    first, second = start(), start()
    assert list(first) == list(second)
    assert_same_bits(dict(first.model.state_dict()), dict(second.model.state_dict()))


def test_the_same_seed_gives_the_same_bits_on_two_threads(monkeypatch):
    monkeypatch.setattr(parallel, "MIN_WORK", 0)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        first, second = one_vs_all_run(), one_vs_all_run()
        assert list(first) == list(second)
    finally:
        torch.set_num_threads(before)
    assert_same_bits(dict(first.model.state_dict()), dict(second.model.state_dict()))


def test_another_seed_gives_another_run():
    assert list(many_times(seed=3)) != list(many_times())


def test_a_state_can_be_continued_twice():
    trainer = one_vs_all_run()
    while next(iter(trainer)).epoch < 1:
        pass
    tensors, plain = trainer.state()
    stored = {name: value.clone() for name, value in tensors.items()}
    ends = []
    for _ in range(2):
        again = one_vs_all_run()
        again.restore_(stored, plain)
        list(again)
        ends.append(again.state()[0])
    assert_same_bits(ends[0], ends[1])


def test_a_batch_of_blocks_is_sorted_and_has_few_times():
    trainer = many_times(epochs=1)
    order = trainer.sampler.draw_order(generator())
    batches = [trainer.sampler.batch(order, number) for number in range(4)]
    assert [len(batch) for batch in batches] == [80] * 4
    assert sorted(Facts.concat(batches).ids.tolist()) == sorted(trainer.facts.ids.tolist())
    for batch in batches:
        ids = batch.ids[:, [3, 1, 0, 2]].tolist()
        assert ids == sorted(ids)


def test_the_order_that_was_asked_for_is_used():
    assert many_times("random").sampler.block is None
    assert many_times("auto").sampler.block is None  # too little work for the order to matter
    assert many_times("blocks").sampler.block == 2  # 64 times in a batch


# --- rows ---


def test_rows_that_no_batch_touches_stay():
    trainer = many_times(l2=0.1)
    before = trainer.model.time.detach().clone()
    list(trainer)
    touched = torch.zeros(400, dtype=torch.bool)
    touched[trainer.facts.t] = True
    moved = (trainer.model.time.detach() != before).flatten(1)
    assert 0 < touched.sum() < 400
    assert not moved[~touched].any()
    assert moved[touched].all()


@pytest.mark.parametrize("name", ["cont", "tree", "tucker", "complex", "hole", "distmult"])
@pytest.mark.parametrize("negatives", [{"s": 1, "o": 1}, {"o": 1, "t": 1}])
def test_lazy_tables_learn_as_whole_tables_do(name, negatives, monkeypatch):
    """Adagrad without weight decay is exact row by row."""
    sizes, ends = {"entity": 2000, "predicate": 3, "time": 1000}, []
    recipe = Recipe(
        optimizer="adagrad", l2=0, epochs=2, batch_size=80, learning_rate=0.05, order="blocks", negatives=negatives
    )
    for lazy in (frozenset({"entity", "time"}), frozenset()):
        model = build_model(model_config(name, "episodic", 3, dtype="float64"), sizes, generator=generator(1))
        with monkeypatch.context() as patch:
            if not lazy:
                patch.setattr(rows, "lazy_kinds", lambda *arguments: frozenset())
            trainer = Trainer(model, random_facts(300, sizes), recipe, generator=generator(2))
        assert trainer.optimizer.lazy == lazy
        ends.append(([record.loss for record in trainer], model.state_dict()))
    assert ends[0][0] == pytest.approx(ends[1][0])
    for key, value in ends[0][1].items():
        torch.testing.assert_close(value, ends[1][1][key])


def test_sampled_times_are_interpolated_from_their_own_knots(monkeypatch):
    sizes, levels = SIZES | {"time": 400}, (1, 5)
    recipe = Recipe(negatives={"s": 1, "o": 1, "t": 2}, optimizer="adagrad", l2=0, batch_size=16)
    ends = []
    for share in (rows.LAZY_SHARE, 10**9):  # lazy, and whole tables
        monkeypatch.setattr(rows, "LAZY_SHARE", share)
        model = random_model("distmult", "episodic", 3, sizes=sizes, time_levels=levels)
        trainer = Trainer(model, random_facts(32, sizes), recipe, generator=generator(3))
        assert ("time" in trainer.rows.kinds) == (share < 10**9)
        for _, _ in zip(range(2), trainer, strict=False):
            pass
        ends.append(model.state_dict())
    for name, value in ends[0].items():
        torch.testing.assert_close(value, ends[1][name])


@pytest.mark.parametrize("name", ["complex", "tree"])
def test_all_entities_and_predicates_are_candidates_and_only_a_large_time_table_is_lazy(monkeypatch, name):
    monkeypatch.setattr(objectives, "MAX_TIME_ELEMENTS", 1)
    sizes = {"entity": 900, "predicate": 300, "time": 400}
    model = random_model(name, "episodic", 2, sizes=sizes, reciprocal=True)
    recipe = replace(ONE_VS_ALL, predict={"s": 1, "p": 1, "o": 1, "t": 1}, batch_size=8)
    trainer = Trainer(model, random_facts(40, sizes), recipe, generator=generator(3))
    assert trainer.rows.kinds == {"time"}


def test_lazy_rows_have_caught_up_at_the_end_of_an_epoch():
    trainer, waiting = many_times(), []
    for record in trainer:
        before = trainer.model.time.detach().clone()
        if isinstance(record, Epoch):
            trainer.optimizer.catch_up_()
            assert torch.equal(trainer.model.time, before)
        else:
            last = trainer.optimizer.moments["time"]["last"]
            waiting.append(bool((last < trainer.optimizer.step_count).any()))
    assert all(waiting)  # within an epoch, some rows wait


# --- smoothness ---


@pytest.mark.parametrize("rowwise", [1, 2**12])
def test_an_epoch_of_lazy_batches_adds_one_whole_smoothness_gradient(rowwise, monkeypatch):
    monkeypatch.setattr("recollect.models.regularizers.ROWWISE_ELEMENTS", rowwise)
    sizes = {"entity": 9, "predicate": 3, "time": 200}
    facts = random_facts(900, sizes, seed=5)
    facts = facts.with_slot("t", torch.cat([torch.arange(200), facts.t[200:]]))  # every time has facts
    recipe = replace(ONE_VS_ALL, smoothness=0.5, batch_size=8, order="random")
    model = random_model("cont", "episodic", 2, sizes=sizes, reciprocal=True, time_levels=(1, 7))
    trainer = Trainer(model, facts, recipe, generator=generator(3))
    assert "time" in trainer.rows.kinds
    total = torch.zeros_like(model.time)
    for piece in trainer.sampler.draw_order(generator()).split(8):
        batch = facts[piece]
        touched = touched_rows(model, "time", batch, {})
        grad = torch.zeros_like(model.time[touched])
        trainer.smoothness.add_gradient_({"time": grad}, batch.t, touched)
        total[touched] += grad * len(batch)  # a step's loss is a mean, the objective a sum
    before, _ = neighbours(sizes["time"], (1, 7))
    has, table = before >= 0, model.time.detach().clone().requires_grad_()
    (0.5 * (table[has] - table[before[has]]).square().sum()).backward()
    torch.testing.assert_close(total.detach(), table.grad)


def test_times_without_facts_lie_between_their_neighbours():
    model = random_model("cont", "both", 3, sizes=SIZES, time_levels=(1, 4), reciprocal=True)
    facts = random_facts(60, SIZES)
    facts = facts[(facts.t < 8) | ((facts.t > 11) & (facts.t < 15))]
    list(Trainer(model, facts, replace(ONE_VS_ALL, smoothness=2.0, batch_size=16), generator=generator(3)))
    table = model.time.detach()
    torch.testing.assert_close(table[9], torch.lerp(table[7], table[12], 2 / 5))
    torch.testing.assert_close(table[15:20], table[14].expand(5, 3, 3, 3))
    fine, coarse = table[:20], table[20:]
    assert len(coarse) == 6
    torch.testing.assert_close(coarse[5], coarse[4])  # of times 16 to 19, which have no facts
    assert not torch.equal(fine[7], fine[8])


# --- parameters, averaging, stopping ---


def test_only_the_named_parameters_are_trained():
    sizes = {"entity": 40, "predicate": 3, "time": 400}
    model = random_model("cont", "both", 2, sizes=sizes, reciprocal=True, time_levels=(4,))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    recipe = replace(ONE_VS_ALL, batch_size=6, smoothness=0.1, order="random")
    trainer = Trainer(model, random_facts(150, sizes), recipe, generator=generator(1), learn={"time"})
    assert "time" in trainer.rows.kinds
    list(trainer)
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"time"}
    with pytest.raises(UserError, match="ConT has no parameter 'times' to learn; it has entity, predicate, time"):
        Trainer(model, random_facts(150, sizes), recipe, generator=generator(1), learn={"times"})


def test_only_core_tensors_of_times_have_a_learning_rate_of_their_own():
    recipe = replace(ONE_VS_ALL, time_rate=0.2)
    rates = {}
    for name in ("cont", "complex", "tree"):
        model = random_model(name, "episodic", 3, sizes=SIZES)
        rates[name] = Trainer(model, random_facts(20, SIZES), recipe, generator=generator()).optimizer.rates
    assert rates == {"cont": {"time": 0.2}, "complex": {}, "tree": {}}


def test_epoch_i_counts_i_times_in_the_averaged_weights():
    model = random_model("complex", "episodic", 3, sizes=SIZES)
    recipe = replace(ONE_VS_ALL, epochs=5, validate_every=9, batch_size=16, average=True)
    trainer = Trainer(model, random_facts(60, SIZES), recipe, generator=generator(), validate=lambda: 0.5)
    after = [model.entity.detach().clone() for record in trainer if isinstance(record, Epoch)]
    mean = sum(number * weights for number, weights in enumerate(after, 1)) / 15
    torch.testing.assert_close(trainer.average.mean["entity"], mean)
    assert torch.equal(trainer.stopping.weights["entity"], trainer.average.mean["entity"])  # what was validated
    assert torch.equal(model.entity, after[-1])
    trainer.finish_()
    assert torch.equal(model.entity, trainer.average.mean["entity"])


def test_early_stopping_keeps_the_best_weights():
    scores = iter([0.1, 0.5, 0.4, 0.3, 0.9])
    model = random_model("distmult", "episodic", 3, sizes=SIZES)
    validated = []

    def validate() -> float:
        validated.append({name: value.clone() for name, value in model.state_dict().items()})
        return next(scores)

    recipe = Recipe(epochs=100, validate_every=2, patience=2, batch_size=16)
    trainer = Trainer(model, random_facts(40, SIZES), recipe, generator=generator(), validate=validate)
    epochs = [record for record in trainer if isinstance(record, Epoch)]
    assert [(each.epoch, each.mrr, each.best) for each in epochs if each.mrr is not None] == [
        (2, 0.1, True),
        (4, 0.5, True),
        (6, 0.4, False),
        (8, 0.3, False),
    ]
    trainer.finish_()
    assert_same_bits(dict(model.state_dict()), validated[1])
    assert (trainer.best_epoch, trainer.best_mrr) == (4, 0.5)


def test_training_leaves_pytorchs_threads_as_they_were():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        list(many_times(epochs=1))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_loss_that_is_not_finite_changes_no_weights():
    trainer = many_times()
    with torch.no_grad():
        trainer.model.entity.fill_(float("nan"))
    before = trainer.model.time.detach().clone()
    with pytest.raises(UserError, match="the loss became nan in epoch 1"):
        next(iter(trainer))
    assert torch.equal(trainer.model.time, before)


def test_no_facts_are_refused():
    with pytest.raises(UserError, match="there are no training facts; give a graph with a non-empty train split"):
        Trainer(random_model("distmult", "episodic", 2), Facts.of([]), Recipe(), generator=generator())
