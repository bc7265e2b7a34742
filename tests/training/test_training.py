"""The loop: determinism, resumption at every record, early stopping, values and weights, golden losses."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest
import torch

from conftest import SIZES, generator, random_facts
from recollect import Facts, Recipe, TrainingRun, UserError
from recollect.graph.fact_index import FactIndex
from recollect.io.checkpoint import write_checkpoint
from recollect.models.tensor_model import MODELS
from recollect.training.losses import logistic, ranking
from recollect.training.negatives import sample_negatives
from recollect.training.trainer import Epoch, Trainer

FAST = Recipe(epochs=3, batch_size=64, validate_every=1, learning_rate=1e-2)


def weights_of(learning: TrainingRun) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in learning.model.state_dict().items()}


def assert_same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    assert a.keys() == b.keys()
    for name, value in a.items():
        assert torch.equal(value, b[name]), name


def test_a_seed_gives_the_same_run(small_world):
    first, second = (TrainingRun(small_world, model="tucker", dim=3, recipe=FAST, seed=5) for _ in range(2))
    assert list(first) == list(second)
    assert_same(weights_of(first), weights_of(second))
    other = TrainingRun(small_world, model="tucker", dim=3, recipe=FAST, seed=6)
    assert list(other) != list(first)


@pytest.mark.parametrize("name", ["complex", "cont", "distmult"])
def test_a_run_resumed_at_any_record_ends_the_same(small_world, tmp_path, name):
    whole = TrainingRun(small_world, model=name, dim=3, recipe=FAST)
    records = list(whole)
    whole.result()
    for stop in range(1, len(records), 5):
        broken = TrainingRun(small_world, model=name, dim=3, recipe=FAST)
        for _, _ in zip(range(stop), broken, strict=False):
            pass
        broken.keep(tmp_path / "run.partial")
        again = TrainingRun(small_world, model=name, dim=3, recipe=FAST)
        again.resume_(tmp_path / "run.partial")
        rest = list(again)
        assert rest == records[stop:]
        again.result()
        assert_same(weights_of(again), weights_of(whole))
        assert again.history == whole.history


MANY_TIMES = {"entity": 12, "predicate": 3, "time": 400}


def many_times(order: str = "blocks", optimizer: str = "adam", epochs: int = 2, seed: int = 2, **change) -> Trainer:
    """Few facts of each of many times, so that a batch touches few rows of the table of times."""
    settings = {"order": order, "optimizer": optimizer, "epochs": epochs, "batch_size": 80, "learning_rate": 0.05}
    model = MODELS["cont"](MANY_TIMES, 3, generator=generator(1))
    facts = random_facts(320, MANY_TIMES)
    return Trainer(model, facts, Recipe(**(settings | change)), generator=generator(seed))


@pytest.mark.parametrize("optimizer", ["adam", "adagrad"])
def test_blocks_of_one_time_resume_bit_for_bit(optimizer):
    whole = many_times(optimizer=optimizer)
    assert whole.optimizer.lazy == {"time"}
    assert whole.block is not None
    records, states = [], []
    for record in whole:
        records.append(record)
        tensors, plain = whole.state()
        states.append(({name: value.clone() for name, value in tensors.items()}, plain))
    assert len(records) == 2 * (4 + 1)
    for stop, state in enumerate(states, 1):
        again = many_times(optimizer=optimizer)
        again.restore_(*state)
        assert list(again) == records[stop:]
        assert_same(dict(again.model.state_dict()), dict(whole.model.state_dict()))


def test_a_seed_gives_the_same_blocks():
    first, second, other = many_times(), many_times(), many_times(seed=3)
    assert list(first) == list(second) != list(other)
    assert_same(dict(first.model.state_dict()), dict(second.model.state_dict()))


def test_a_batch_of_blocks_is_sorted_and_has_few_times(monkeypatch):
    training = many_times(epochs=1)
    batches: list[Facts] = []
    step = training._step
    monkeypatch.setattr(training, "_step", lambda batch: (batches.append(batch), step(batch))[1])
    for _ in training:
        pass
    assert [len(batch) for batch in batches] == [80] * 4
    seen = Facts.concat(batches)
    assert sorted(seen.ids.tolist()) == sorted(training.facts.ids.tolist())
    for batch in batches:
        rows = batch.ids[:, [3, 1, 0, 2]].tolist()
        assert rows == sorted(rows)


@pytest.mark.parametrize(("name", "form"), [("tree", "episodic"), ("tucker", "episodic"), ("rescal", "semantic")])
def test_facts_of_a_batch_in_another_order_learn_the_same(name, form, monkeypatch):
    """A batch is sorted once its corruptions are drawn, and they and the weights of facts with it."""
    facts = random_facts(300, MANY_TIMES)
    facts = replace(facts, weight=torch.rand(300, generator=generator(3)), value=torch.arange(300) % 3 > 0)
    recipe, learned, orders = Recipe(epochs=2, batch_size=100, order="random", learning_rate=0.01), [], []
    for sorts in (True, False):
        model = MODELS[name](MANY_TIMES, 3, form=form, generator=generator(1))
        training = Trainer(model, facts, recipe, generator=generator(2))
        in_order = training._in_order if sorts else lambda *given: given
        monkeypatch.setattr(
            training, "_in_order", lambda *given, to=in_order: (orders.append(to(*given)), orders[-1])[1]
        )
        for _ in training:
            pass
        learned.append(dict(model.state_dict()))
    assert len(orders) == 2 * 6
    assert not any(torch.equal(a.ids, b.ids) for (a, _), (b, _) in zip(orders[:6], orders[6:], strict=True))
    for key, value in learned[0].items():
        torch.testing.assert_close(value, learned[1][key], rtol=1e-3, atol=1e-4)


def test_rows_that_no_batch_touches_stay(monkeypatch):
    training = many_times(l2=0.1)
    before = training.model.time.detach().clone()
    for _ in training:
        pass
    seen = torch.zeros(400, dtype=torch.bool)
    seen[training.facts.t] = True
    moved = (training.model.time.detach() != before).flatten(1)
    assert 0 < seen.sum() < 400
    assert not moved[~seen].any()
    assert moved[seen].all()


@pytest.mark.parametrize("name", ["cont", "tree", "tucker", "complex", "hole", "distmult"])
@pytest.mark.parametrize("negatives", [{"s": 1, "o": 1}, {"o": 1, "t": 1}])
def test_rows_alone_learn_as_whole_tables_do(name, negatives, monkeypatch):
    """Adagrad without a penalty is exact row by row: the same run with the tables updated whole."""
    sizes, runs = {"entity": 2000, "predicate": 3, "time": 1000}, []
    recipe = Recipe(
        optimizer="adagrad", l2=0, epochs=2, batch_size=80, learning_rate=0.05, order="blocks", negatives=negatives
    )
    for lazy in (frozenset({"entity", "time"}), frozenset()):
        model = MODELS[name](sizes, 3, dtype=torch.float64, generator=generator(1))
        with monkeypatch.context() as patch:
            if not lazy:
                patch.setattr(Trainer, "_lazy", lambda self, sample: frozenset())
            training = Trainer(model, random_facts(300, sizes), recipe, generator=generator(2))
        assert training.optimizer.lazy == lazy
        losses = [record.loss for record in training]
        runs.append((losses, model.state_dict()))
    assert runs[0][0] == pytest.approx(runs[1][0])
    for key, value in runs[0][1].items():
        torch.testing.assert_close(value, runs[1][1][key])


def test_weights_are_settled_at_the_end_of_an_epoch():
    training, changed = many_times(), []
    for record in training:
        before = training.model.time.detach().clone()
        if isinstance(record, Epoch):
            training.optimizer.settle_()
            assert torch.equal(training.model.time, before)
        else:
            last = training.optimizer.moments["time"]["last"]
            changed.append(bool((last < training.optimizer.step_count).any()))
    assert all(changed)  # within an epoch some rows wait


def test_an_order_that_is_told_is_kept():
    assert many_times("random").block is None
    assert many_times("auto").block is None  # too little work for order to matter
    assert many_times("blocks").block == 2  # of 64 times in a batch


def test_keeping_a_run_does_not_change_it(small_world, tmp_path):
    plain, kept = (TrainingRun(small_world, model="hole", dim=4, recipe=FAST) for _ in range(2))
    for _ in plain:
        pass
    for _ in kept:
        kept.keep(tmp_path / "run.partial")
    assert_same(weights_of(plain), weights_of(kept))


def test_resuming_with_other_settings_is_refused_but_more_epochs_are_fine(small_world, tmp_path):
    run = TrainingRun(small_world, model="complex", dim=3, recipe=FAST)
    next(iter(run))
    run.keep(tmp_path / "p")
    other = TrainingRun(small_world, model="complex", dim=3, recipe=Recipe(**(asdict(FAST) | {"learning_rate": 0.5})))
    with pytest.raises(UserError, match=r"was made with learning_rate 0\.01, this run has 0\.5"):
        other.resume_(tmp_path / "p")
    with pytest.raises(UserError, match="was made with model complex, this run has hole"):
        TrainingRun(small_world, model="hole", dim=3, recipe=FAST).resume_(tmp_path / "p")
    longer = TrainingRun(small_world, model="complex", dim=3, recipe=Recipe(**(asdict(FAST) | {"epochs": 5})))
    longer.resume_(tmp_path / "p")
    assert [r.epoch for r in longer if isinstance(r, Epoch)] == [1, 2, 3, 4, 5]


def test_a_broken_checkpoint_is_told(small_world, tmp_path):
    run = TrainingRun(small_world, model="complex", dim=3, recipe=FAST)
    path = tmp_path / "p"
    run.keep(path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(UserError, match="not a readable checkpoint"):
        run.resume_(path)
    tensors, plain = run.training.state()
    kept = {"settings": run._settings(), "training": plain | {"epoch": "x"}, "history": []}
    write_checkpoint(path, tensors, kept)
    with pytest.raises(UserError, match="not a checkpoint that this version can continue"):
        run.resume_(path)
    write_checkpoint(path, {"x": torch.zeros(1)}, {"settings": {}})
    with pytest.raises(UserError, match="was made with model None|not a readable checkpoint"):
        run.resume_(path)


def test_early_stopping_keeps_the_best_weights():
    scores = iter([0.1, 0.5, 0.4, 0.3, 0.9])
    model = MODELS["distmult"](SIZES, 3, generator=generator())
    seen = []

    def validate() -> float:
        seen.append({name: value.clone() for name, value in model.state_dict().items()})
        return next(scores)

    recipe = Recipe(epochs=100, validate_every=2, patience=2, batch_size=16)
    training = Trainer(model, random_facts(40), recipe, generator=generator(), validate=validate)
    records = [record for record in training if isinstance(record, Epoch)]
    assert [(r.epoch, r.mrr, r.best) for r in records if r.mrr is not None] == [
        (2, 0.1, True),
        (4, 0.5, True),
        (6, 0.4, False),
        (8, 0.3, False),
    ]
    training.finish_()
    assert_same(dict(model.state_dict()), seen[1])
    assert (training.best_epoch, training.best_mrr) == (4, 0.5)


def test_validation_never_reads_test(small_world):
    withheld = small_world.splits["test"]
    scrambled = withheld.with_slot("o", withheld.o.flip(0)).with_slot("t", withheld.t.flip(0))
    changed = small_world.with_splits(dict(small_world.splits) | {"test": scrambled[:1]})
    runs = [TrainingRun(graph, model="complex", dim=3, recipe=FAST) for graph in (small_world, changed)]
    records = [list(run) for run in runs]
    assert records[0] == records[1]
    results = [run.result() for run in runs]
    assert_same(weights_of(runs[0]), weights_of(runs[1]))
    assert results[0][1:] == results[1][1:]  # calibration, and all that is told of the training


def test_false_facts_are_learned_as_false():
    facts = random_facts(60)
    marked = Facts(facts.ids, torch.arange(60) % 2 == 0)
    model = MODELS["tucker"](SIZES, 5, generator=generator())
    recipe = Recipe(epochs=200, learning_rate=0.05, batch_size=60, l2=0)
    for _ in Trainer(model, marked, recipe, generator=generator()):
        pass
    scores = model.score(facts).detach()
    assert scores[marked.truth].mean() > scores[~marked.truth].mean() + 2
    with pytest.raises(UserError, match="the ranking loss needs true facts only"):
        Trainer(model, marked, Recipe(loss="ranking"), generator=generator())


def test_all_true_values_go_with_the_ranking_loss():
    facts = random_facts(30)
    marked = Facts(facts.ids, torch.ones(30, dtype=torch.bool))
    model = MODELS["complex"](SIZES, 3, generator=generator())
    assert len(list(Trainer(model, marked, Recipe(loss="ranking", epochs=2), generator=generator()))) == 4


def test_the_order_in_which_negatives_are_told_does_not_matter(small_world):
    first, second = (
        TrainingRun(small_world, model="complex", dim=3, recipe=Recipe(epochs=1, negatives=told))
        for told in ({"s": 1, "o": 2}, {"o": 2, "s": 1})
    )
    assert list(first) == list(second)


def test_weights_weigh():
    facts = random_facts(30)
    ones, none = Facts(facts.ids, weight=torch.ones(30)), facts
    zero = Facts(facts.ids, weight=torch.zeros(30))
    losses = []
    for variant in (none, ones, zero):
        model = MODELS["complex"](SIZES, 3, generator=generator())
        run = Trainer(model, variant, Recipe(epochs=1, l2=0), generator=generator())
        losses.append(next(r.loss for r in run if isinstance(r, Epoch)))
    assert losses[0] == losses[1] > 0
    assert losses[2] == 0


def test_one_step_is_adam_on_the_papers_objective():
    """Against plain Adam, told nothing of penalties, on (Σ loss + λ‖P‖²) / n written out."""
    facts, lam = random_facts(20), 0.7
    ours, plain = (MODELS["tucker"](SIZES, 3, dtype=torch.float64, generator=generator()) for _ in range(2))
    recipe = Recipe(l2=lam, batch_size=20, epochs=3, negatives={"o": 2}, learning_rate=0.1)
    for _ in Trainer(ours, facts, recipe, generator=generator(7)):
        pass
    g, known = generator(7), FactIndex(facts, SIZES)
    adam = torch.optim.Adam(plain.parameters(), lr=0.1)
    for _ in range(3):
        batch = facts[torch.randperm(20, generator=g)]
        false = sample_negatives(batch, "o", 2, known=known, generator=g)
        scores = [plain.score(batch.with_slot("o", column)) for column in false.T]
        loss = logistic(plain.score(batch), torch.stack(scores, dim=1)).sum()
        penalty = lam * sum(p.square().sum() for p in plain.parameters())
        adam.zero_grad()
        ((loss + penalty) / 20).backward()
        adam.step()
    for a, b in zip(ours.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_losses_by_hand():
    true, false = torch.tensor([0.0, 2.0]), torch.tensor([[0.0, 1.0], [-1.0, 3.0]])
    softplus = torch.nn.functional.softplus
    expected = softplus(-true) + softplus(false).sum(1)
    torch.testing.assert_close(logistic(true, false), expected)
    half = logistic(true, false, torch.tensor([True, False]))
    torch.testing.assert_close(half, torch.stack([expected[0], softplus(true[1])]))
    torch.testing.assert_close(ranking(true, false, sigmoid=False), torch.tensor([1.0 + 2.0, 0.0 + 2.0]))
    s = torch.sigmoid
    first = (0.5 + s(false[0]) - s(true[0])).clamp(min=0).sum()
    torch.testing.assert_close(ranking(true, false, margin=0.5)[0], first)


@pytest.mark.parametrize("loss", ["logistic", "ranking"])
@pytest.mark.parametrize("negatives", [{"s": 1, "o": 1}, {"p": 2}, {"t": 1}, {"s": 1, "p": 1, "o": 1, "t": 1}])
def test_every_loss_learns_with_negatives_of_any_slot(small_world, loss, negatives):
    recipe = Recipe(loss=loss, negatives=negatives, epochs=30, learning_rate=0.05, batch_size=256)
    losses = [r.loss for r in TrainingRun(small_world, model="complex", dim=4, recipe=recipe) if isinstance(r, Epoch)]
    assert losses[-1] < 0.95 * losses[0]


def test_a_loss_that_blows_up_is_told(small_world):
    recipe = Recipe(learning_rate=1e30, epochs=5)
    with pytest.raises(UserError, match="the loss became (nan|inf) in epoch .; lower the learning rate"):
        for _ in TrainingRun(small_world, model="tucker", dim=4, recipe=recipe):
            pass


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loss": "hinge"}, "unknown loss 'hinge'; choose one of logistic, ranking"),
        ({"epochs": 0}, "epochs must be a whole number from 1; got 0"),
        ({"batch_size": 10.5}, "batch_size must be a whole number from 1"),
        ({"learning_rate": float("nan")}, "learning_rate must be a number above 0; got nan"),
        ({"l2": -1.0}, "l2 must be a number from 0"),
        ({"negatives": {}}, "corrupt nothing"),
        ({"negatives": {"s": 0}}, "corrupt nothing"),
        ({"negatives": {"x": 1}}, "unknown slot 'x'"),
        (
            {"negatives": {"s": 1.5}},
            r"cannot read negatives \{'s': 1.5\}; give slots whole numbers from 0, like s=1,o=1$",
        ),
        ({"negatives": {"s": -1}}, "cannot read negatives"),
        ({"negatives": 3}, "cannot read negatives 3"),
        ({"average": "no"}, "average must be true or false; got 'no'$"),
        ({"learning_rate": True}, "learning_rate must be a number above 0; got True$"),
        ({"dropout": "0.1"}, "dropout must be a number from 0; got '0.1'$"),
        ({"epochs": True}, "epochs must be a whole number from 1"),
        ({"levels": 5}, "levels are spacings of times, whole numbers from 0, each once, like 0,1,7; got 5$"),
        ({"predict": {"s": "x"}}, r"cannot read predict \{'s': 'x'\}; write it like so or s=1,o=1,t=0.1$"),
        ({"predict": 1}, "cannot read predict 1"),
        ({"order": "sorted"}, "unknown order 'sorted'; choose one of auto, random, blocks$"),
        ({"optimizer": "sgd"}, "unknown optimizer 'sgd'; choose one of adam, adagrad$"),
        ({"predict": ""}, "one-vs-all predicts at least one slot, like predict=so; none was given$"),
        ({"predict": "sx"}, "unknown slot 'x'; choose among spot or subject, predicate, object, time$"),
    ],
)
def test_bad_recipes(change, message):
    with pytest.raises(UserError, match=message):
        Recipe(**change)


def test_a_model_that_does_not_fit_is_refused_before_memory_is_taken(small_world):
    with pytest.raises(
        UserError, match=r"Tucker with Dims\(entity=5000.*needs [\d,]{16,} bytes .* choose a lower rank or batch size"
    ):
        TrainingRun(small_world, model="tucker", dim=5000)
    with pytest.raises(UserError, match=r"[\d,]{16,} for a batch"):
        TrainingRun(small_world, model="cont", dim=8, recipe=Recipe(negatives={"t": 10**9}))


def test_a_semantic_model_never_corrupts_into_a_known_triple(small_world):
    recipe = Recipe(avoid_known=True, epochs=1)
    training = TrainingRun(small_world, model="rescal", dim=2, form="semantic", recipe=recipe).training
    assert set(training.known.facts.t.tolist()) == {0}


def test_weights_that_are_no_numbers_are_not_kept(small_world):
    learning = TrainingRun(small_world, model="distmult", dim=2, recipe=Recipe(epochs=1))
    with torch.no_grad():
        learning.model.entity[0] = float("inf")
    with pytest.raises(UserError, match="the weights are no longer finite"):
        learning.result()
