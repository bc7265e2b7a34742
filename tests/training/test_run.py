"""Training runs: checkpoints, validation, memory limits, and what every model learns."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from conftest import model_config
from recollect import ModelConfig, Recipe, TrainingRun, UserError
from recollect.io.checkpoint import write_checkpoint
from recollect.models.zoo import MODELS
from recollect.training.recipe import RECIPES
from recollect.training.trainer import Epoch

FAST = Recipe(epochs=3, batch_size=128, validate_every=1, learning_rate=1e-2)
EPISODIC = [name for name, model in MODELS.items() if model.has_form("episodic")]


def start(graph, name: str = "complex", form: str = "episodic", dim: int = 3, recipe=FAST, **options) -> TrainingRun:
    seed = options.pop("seed", 0)
    return TrainingRun(graph, model_config(name, form, dim, **options), recipe=recipe, seed=seed)


def weights_of(run: TrainingRun) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in run.model.state_dict().items()}


def assert_same_bits(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    assert a.keys() == b.keys()
    for name, value in a.items():
        assert torch.equal(value, b[name]), name


def test_facts_of_weight_zero_alone_are_refused(small_world):
    train = small_world.split("train")
    splits = {"train": replace(train, weight=torch.zeros(len(train)))}
    with pytest.raises(UserError, match="every training fact has weight 0, so there is nothing to learn"):
        start(small_world.with_splits(splits))
    splits["train"].weight[3] = 1.0
    next(iter(start(small_world.with_splits(splits))))


def test_the_same_seed_gives_the_same_run(small_world):
    first, second = (start(small_world, "tucker", seed=5) for _ in range(2))
    assert list(first) == list(second)
    assert_same_bits(weights_of(first), weights_of(second))
    assert list(start(small_world, "tucker", seed=6)) != list(first)


@pytest.mark.parametrize(("name", "recipe"), [("complex", FAST), ("cont", "modern")])
def test_a_run_resumed_from_a_checkpoint_ends_with_the_same_bits(small_world, tmp_path, name, recipe):
    if recipe == "modern":
        recipe = replace(RECIPES["modern"], epochs=2, validate_every=1, batch_size=256)

    def fresh() -> TrainingRun:
        return start(small_world, name, "both", recipe=recipe)

    whole = fresh()
    records = list(whole)
    whole.result()
    for stop in (1, len(records) // 2, len(records) - 1):
        interrupted = fresh()
        for _, _ in zip(range(stop), interrupted, strict=False):
            pass
        interrupted.save_checkpoint(tmp_path / "run.partial")
        again = fresh()
        again.load_checkpoint_(tmp_path / "run.partial")
        assert list(again) == records[stop:]
        again.result()
        assert_same_bits(weights_of(again), weights_of(whole))
        assert again.history == whole.history


def test_saving_checkpoints_does_not_change_a_run(small_world, tmp_path):
    plain, saved = (start(small_world, "hole", recipe=replace(FAST, epochs=1)) for _ in range(2))
    list(plain)
    for _ in saved:
        saved.save_checkpoint(tmp_path / "run.partial")
    assert_same_bits(weights_of(plain), weights_of(saved))


def test_resuming_with_other_settings_is_refused_but_more_epochs_are_fine(small_world, tmp_path):
    run = start(small_world)
    next(iter(run))
    run.save_checkpoint(tmp_path / "p")
    other = start(small_world, recipe=replace(FAST, learning_rate=0.5))
    with pytest.raises(UserError, match=r"was made with learning_rate 0\.01, this run has 0\.5"):
        other.load_checkpoint_(tmp_path / "p")
    with pytest.raises(UserError, match="was made with model complex, this run has hole"):
        start(small_world, "hole").load_checkpoint_(tmp_path / "p")
    with pytest.raises(UserError, match=r"was made with levels \[1\], this run has \[1, 5\]"):
        start(small_world, time_levels=(1, 5)).load_checkpoint_(tmp_path / "p")
    longer = start(small_world, recipe=replace(FAST, epochs=5))
    longer.load_checkpoint_(tmp_path / "p")
    assert [record.epoch for record in longer if isinstance(record, Epoch)] == [1, 2, 3, 4, 5]


def test_an_option_that_is_newer_than_the_checkpoint_has_its_default(small_world, tmp_path):
    run = start(small_world)
    tensors, plain = run.trainer.state()
    settings = run._settings()
    del settings["label_smoothing"]
    write_checkpoint(tmp_path / "p", tensors, {"settings": settings, "training": plain, "history": []})
    start(small_world).load_checkpoint_(tmp_path / "p")


def test_a_broken_checkpoint_is_refused(small_world, tmp_path):
    run, path = start(small_world), tmp_path / "p"
    run.save_checkpoint(path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(UserError, match="not a readable checkpoint"):
        run.load_checkpoint_(path)
    tensors, plain = run.trainer.state()
    write_checkpoint(path, tensors, {"settings": run._settings(), "training": plain | {"epoch": "x"}, "history": []})
    with pytest.raises(UserError, match="not a checkpoint that this version can continue"):
        run.load_checkpoint_(path)
    write_checkpoint(path, {"x": torch.zeros(1)}, {"settings": {}})
    with pytest.raises(UserError, match="was made with model None|not a readable checkpoint"):
        run.load_checkpoint_(path)


def test_validation_never_reads_the_test_split(small_world):
    withheld = small_world.splits["test"]
    scrambled = withheld.with_slot("o", withheld.o.flip(0)).with_slot("t", withheld.t.flip(0))
    changed = small_world.with_splits(dict(small_world.splits) | {"test": scrambled[:1]})
    runs = [start(graph) for graph in (small_world, changed)]
    assert list(runs[0]) == list(runs[1])
    results = [run.result() for run in runs]
    assert_same_bits(weights_of(runs[0]), weights_of(runs[1]))
    assert results[0][1] == results[1][1]  # report


def test_the_order_in_which_negatives_are_given_does_not_matter(small_world):
    given = ({"s": 1, "o": 2}, {"o": 2, "s": 1})
    first, second = (start(small_world, recipe=Recipe(epochs=1, negatives=each)) for each in given)
    assert list(first) == list(second)


@pytest.mark.parametrize("loss", ["logistic", "ranking"])
@pytest.mark.parametrize("negatives", [{"p": 2}, {"t": 1}, {"s": 1, "p": 1, "o": 1, "t": 1}])
def test_sampled_losses_learn_with_negatives_of_any_slot(small_world, loss, negatives):
    recipe = Recipe(loss=loss, negatives=negatives, epochs=12, validate_every=99, learning_rate=0.1, batch_size=256)
    losses = [record.loss for record in start(small_world, dim=4, recipe=recipe) if isinstance(record, Epoch)]
    assert losses[-1] < 0.95 * losses[0]


@pytest.mark.long
@pytest.mark.parametrize("name", EPISODIC)
def test_every_model_learns_the_world_with_the_modern_recipe(small_world, name):
    recipe = replace(RECIPES["modern"], epochs=20, validate_every=10, batch_size=256)
    run = start(small_world, name, "both", 8, recipe=recipe, reciprocal=True, time_levels=(1, 5, 25))
    list(run)
    assert run.trainer.best_mrr > 0.75


def test_a_loss_that_diverges_is_an_error(small_world):
    with pytest.raises(UserError, match=r"the loss became (nan|inf) in epoch .; lower the learning rate \(now 1e"):
        list(start(small_world, "tucker", dim=4, recipe=Recipe(learning_rate=1e30, epochs=5)))


def test_weights_that_are_not_finite_are_an_error(small_world):
    run = start(small_world, "distmult", dim=2)
    with torch.no_grad():
        run.model.entity[0] = float("inf")
    with pytest.raises(UserError, match="the weights are no longer finite"):
        run.result()


def test_a_model_that_does_not_fit_is_refused_before_memory_is_allocated(small_world):
    with pytest.raises(
        UserError,
        match=r"Tucker with dims \{'entity': 5000.*needs [\d,]{16,} bytes .* choose a lower dim or batch",
    ):
        TrainingRun(small_world, ModelConfig(model="tucker", dim=5000))
    with pytest.raises(UserError, match=r"[\d,]{16,} for a batch"):
        start(small_world, "cont", dim=8, recipe=Recipe(negatives={"t": 10**9}))


def test_a_semantic_model_knows_facts_without_times(small_world):
    run = start(small_world, "rescal", "semantic", 2, recipe=Recipe(avoid_known=True, epochs=1))
    assert set(run.trainer.known.facts.t.tolist()) == {0}


def test_an_unknown_device_is_refused(small_world):
    with pytest.raises(UserError, match="device 'nowhere' cannot be used here"):
        TrainingRun(small_world, ModelConfig(model="distmult", dim=2), device="nowhere")
