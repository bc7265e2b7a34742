"""A run of several processes: validation, checkpoints that any number of processes continue, memory per process."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from conftest import model_config
from recollect import Facts, Recipe, UserError, dataset
from recollect.training.distributed import run as distributed_run
from recollect.training.distributed import streamed
from recollect.training.distributed.placements import RowSharded
from recollect.training.distributed.run import DistributedRun, held_bytes
from recollect.training.distributed.validation import SharedValidation
from recollect.training.run import TrainingRun, training_bytes
from recollect.training.trainer import Epoch, Step
from recollect.training.validation import Validation
from threads_as_processes import Threads

RECIPE = Recipe(
    loss="one-vs-all", optimizer="adagrad", learning_rate=0.1, l2=0, epochs=3, batch_size=200, average=True,
    candidates=2, smoothness=0.5, dropout=0.2, validate_every=1,
)  # fmt: skip
CONFIGS = {
    "replicated": model_config("complex", "both", 3, dtype="float64"),
    "by time": model_config("cont", "both", 3, dtype="float64", time_levels=(1, 5)),
}
STOP = 8  # records after which a run is stopped: in its second epoch


@pytest.fixture(scope="module")
def graph():
    return dataset("world", countries=6, years=2)


def alone(graph, config) -> tuple[list, dict]:
    run = TrainingRun(graph, config, recipe=RECIPE)
    records = list(run)
    return records, dict(run.result()[0].state_dict())


def several(count: int, graph, config, *, resume=None, stop: int | None = None, checkpoint=None, **options) -> list:
    """Return the records of each process and the weights of the first; stop after some records with a checkpoint."""

    def train(processes):
        run = DistributedRun(graph, config, processes=processes, **({"recipe": RECIPE} | options))
        if resume is not None:
            run.load_checkpoint_(resume)
        records = []
        for record in run:
            records.append(record)
            if len(records) == stop:
                run.save_checkpoint(checkpoint)
                return records, None, run
        return records, dict(run.result()[0].state_dict()), run

    return Threads(count).run(train)


def assert_equal(records, weights, together, skipped: int = 0) -> None:
    for others, *_ in together:
        for own, other in zip(records[skipped:], others, strict=True):
            assert other.loss == pytest.approx(own.loss, rel=1e-9)
            if isinstance(own, Epoch):
                assert (other.mrr, other.best) == (pytest.approx(own.mrr, abs=1e-12), own.best)
    for name, value in together[0][1].items():
        torch.testing.assert_close(value, weights[name], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_validation_and_result_are_those_of_one_process(graph, config):
    assert_equal(*alone(graph, config), several(3, graph, config))


@pytest.mark.parametrize(("config", "counts"), [("replicated", (2, 3)), ("by time", (4, 2)), ("by time", (2, 3))])
def test_a_checkpoint_is_continued_by_another_number_of_processes(graph, config, counts, tmp_path):
    checkpoint = tmp_path / "m.partial"
    records, weights = alone(graph, CONFIGS[config])
    assert {type(record) for record in records[:STOP]} == {Step, Epoch}
    several(counts[0], graph, CONFIGS[config], stop=STOP, checkpoint=checkpoint)
    assert_equal(records, weights, several(counts[1], graph, CONFIGS[config], resume=checkpoint), STOP)
    run = TrainingRun(graph, CONFIGS[config], recipe=RECIPE)  # one process continues it as well
    run.load_checkpoint_(checkpoint)
    assert_equal(records, weights, [(list(run), dict(run.result()[0].state_dict()))], STOP)


def crowded(reciprocal: bool):
    """Return a graph with so many entities that a batch touches few, and a model of them."""
    graph = dataset("world", countries=60, years=1)
    return graph, model_config("cont", "both", 2, dtype="float64", reciprocal=reciprocal, time_levels=(1, 5))


@pytest.mark.parametrize("reciprocal", [False, True])
def test_no_process_needs_all_entities_to_train_and_validate(reciprocal, tmp_path, monkeypatch):
    monkeypatch.setattr(streamed, "BLOCK_BYTES", 1500)
    monkeypatch.setattr(streamed, "SCORE_BYTES", 200_000)
    graph, config = crowded(reciprocal)
    few = graph.with_splits({"train": graph.split("train")[:60], "valid": graph.split("valid")[:150]})
    recipe = replace(RECIPE, batch_size=10, candidates=5)
    single = TrainingRun(few, config, recipe=recipe)
    records, weights = list(single), dict(single.result()[0].state_dict())
    together = several(3, few, config, shard=True, recipe=recipe)
    assert all(isinstance(run.trainer.placements["entity"], RowSharded) for _, _, run in together)
    assert sum(len(run.trainer.local["entity"]) for _, _, run in together) == few.sizes["entity"]
    assert_equal(records, weights, together)
    several(4, few, config, shard=True, recipe=recipe, stop=10, checkpoint=tmp_path / "m")
    resumed = several(2, few, config, shard=True, recipe=recipe, resume=tmp_path / "m")
    assert_equal(records, weights, resumed, 10)


@pytest.mark.parametrize("shard", [False, True])
def test_a_sample_of_many_entities_is_ranked_as_by_one_process(shard):
    graph, config = crowded(reciprocal=True)
    train, valid = graph.split("train")[:60], graph.split("valid")[:80]
    few = graph.with_splits({"train": train})
    options = {"recipe": replace(RECIPE, batch_size=10, candidates=5, epochs=1)}
    model = TrainingRun(few, config, **options).model
    known = Facts.concat([train, valid])
    expected = Validation(model, valid, known, most=9, sampled=40).mrr()

    def validate(processes):
        run = DistributedRun(few, config, processes=processes, shard=shard, **options)
        assert shard == ("entity" in run.trainer.sharded)
        sampled = Validation(run.model, valid, known, most=9, sampled=40)
        return SharedValidation(sampled, valid, run.trainer).mrr()

    assert Threads(3).run(validate) == [pytest.approx(expected, abs=1e-12)] * 3


def test_tables_of_several_processes_are_mapped_too(tmp_path):
    graph, config = crowded(reciprocal=False)
    few = graph.with_splits({"train": graph.split("train")[:60], "valid": graph.split("valid")[:20]})
    options = {"recipe": replace(RECIPE, batch_size=10, candidates=5, epochs=1)}
    single = TrainingRun(few, config, **options)
    records, weights = list(single), dict(single.result()[0].state_dict())
    assert_equal(records, weights, several(2, few, config, shard=True, tables=tmp_path, **options))


def test_several_processes_continue_the_checkpoint_of_one(graph, tmp_path):
    records, weights = alone(graph, CONFIGS["by time"])
    run = TrainingRun(graph, CONFIGS["by time"], recipe=RECIPE)
    for _, _record in zip(range(STOP), run, strict=False):
        pass
    run.save_checkpoint(tmp_path / "m.partial")
    assert_equal(records, weights, several(2, graph, CONFIGS["by time"], resume=tmp_path / "m.partial"), STOP)


def test_a_new_checkpoint_removes_the_shards_of_the_old_one(graph, tmp_path):
    for stop in (2, 3):
        several(2, graph, CONFIGS["by time"], stop=stop, checkpoint=tmp_path / "m.partial")
    names = sorted(path.name for path in tmp_path.iterdir())
    assert len(names) == 3
    assert names[0] == "m.partial"
    assert all(name.startswith("m.partial.shard-") for name in names[1:])


def test_a_checkpoint_without_its_shards_is_refused(graph, tmp_path):
    several(2, graph, CONFIGS["by time"], stop=2, checkpoint=tmp_path / "m.partial")
    next(tmp_path.glob("*.shard-*-1")).unlink()
    with pytest.raises(UserError, match="not a readable checkpoint"):
        several(2, graph, CONFIGS["by time"], resume=tmp_path / "m.partial")


def test_a_process_holds_its_part_of_sharded_tables(graph):
    config, sizes = CONFIGS["by time"], graph.sizes
    assert held_bytes(config, sizes, 1, shard=False) == training_bytes(config, sizes)
    assert held_bytes(config, sizes, 4, shard=True) < held_bytes(config, sizes, 4, shard=False)
    assert 4 * held_bytes(config, sizes, 4, shard=False) > training_bytes(config, sizes)


def test_a_model_that_fits_no_process_is_refused(graph, monkeypatch):
    monkeypatch.setattr(distributed_run, "free_memory", lambda: 1000)
    with pytest.raises(UserError, match="and 500 are free"):
        several(2, graph, CONFIGS["replicated"])
