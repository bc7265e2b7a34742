"""A workspace computes every piece of work once, and continues interrupted training."""

from __future__ import annotations

import pytest
import torch

from paper import leaderboards, workspace
from paper.workspace import Workspace
from recollect import ModelConfig, Recipe, split_randomly

CONFIG = ModelConfig(model="complex", dim=2)
RECIPE = Recipe(epochs=2, batch_size=4096)


def refuse(*_: object, **__: object) -> None:
    raise AssertionError("must not be computed")


def test_work_is_computed_once_for_its_settings(tmp_path):
    first_space = Workspace(tmp_path / "work", expected=10)
    first = first_space.cached("a name/of work", {"dim": 2, "b": 1}, lambda: {"value": 7})
    again = Workspace(tmp_path / "work").cached("a name/of work", {"b": 1, "dim": 2}, refuse)
    assert first == again == {"value": 7, "seconds": again["seconds"]}
    assert (first_space.done, first_space.seconds) == (1, first["seconds"])
    assert first_space.cached("a name/of work", {"dim": 3, "b": 1}, lambda: {"value": 8}, cost=4)["value"] == 8
    assert first_space.cached("another", {"dim": 2, "b": 1}, lambda: {"value": 9}, cost=0)["value"] == 9
    assert first_space.cached("a name/of work", {"dim": 2, "b": 1}, refuse)["value"] == 7
    assert first_space.done == 6


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
def test_work_that_fails_leaves_no_file(tmp_path, kind):
    space = Workspace(tmp_path)

    def fail():
        raise kind

    with pytest.raises(kind):
        space.cached("work", {}, fail)
    assert (list(tmp_path.iterdir()), space.done) == ([], 0)
    assert space.cached("work", {}, lambda: {"value": 1})["value"] == 1


@pytest.mark.parametrize("stop", [1, 3])
def test_interrupted_training_continues_from_its_checkpoint(small_world, tmp_path, monkeypatch, stop):
    monkeypatch.setattr(workspace, "CHECKPOINT_SECONDS", -1)
    monkeypatch.setattr(workspace, "CHECKPOINT_FACTOR", -1)
    recipe = Recipe(epochs=4, validate_every=1, batch_size=200)
    whole = Workspace(tmp_path).train(small_world, CONFIG, recipe, seed=5)
    checkpoint = Workspace(tmp_path / "work").checkpoint("complex", {})
    shares = []

    def interrupt(_what, share):
        if share >= stop / 4:
            raise KeyboardInterrupt

    def train(report):
        space = Workspace(tmp_path / "work", report=report)
        return space.train(small_world, CONFIG, recipe, seed=5, checkpoint=checkpoint)

    with pytest.raises(KeyboardInterrupt):
        train(interrupt)
    for expected in ([epoch / 4 for epoch in range(stop, 5)], []):  # the rest; then nothing is left to train
        shares.clear()
        continued = train(lambda _, share: shares.append(share))
        assert shares == expected
        ours, theirs = continued.trainer.state()[0], whole.trainer.state()[0]
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)
        assert continued.history == whole.history


def test_a_checkpoint_that_cannot_be_continued_is_ignored(small_world, tmp_path):
    space = Workspace(tmp_path)
    checkpoint = space.checkpoint("complex", {})
    space.train(small_world, ModelConfig(model="complex", dim=3), RECIPE, checkpoint=checkpoint)
    again = space.train(small_world, CONFIG, RECIPE, checkpoint=checkpoint)
    fresh = Workspace(tmp_path / "other").train(small_world, CONFIG, RECIPE)
    assert again.trainer.epoch == 2
    for ours, theirs in zip(again.model.parameters(), fresh.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_the_time_of_an_interrupted_training_counts(small_world, tmp_path, monkeypatch):
    monkeypatch.setattr(workspace, "CHECKPOINT_SECONDS", -1)
    space = Workspace(tmp_path)
    checkpoint = space.checkpoint("complex", {})
    space.train(small_world, CONFIG, RECIPE, checkpoint=checkpoint)
    (seconds,) = tmp_path.glob("*.run-seconds")
    assert float(seconds.read_text()) > 0
    seconds.write_text("1000")

    def compute():
        return {"epochs": space.train(small_world, CONFIG, RECIPE, checkpoint=checkpoint).trainer.epoch}

    assert 1000 < space.cached("again", {}, compute)["seconds"] < 1100
    space.remove_checkpoints()
    assert [file.suffix for file in tmp_path.iterdir()] == [".json"]


def test_checkpoints_of_a_leaderboard_differ_between_datasets(tmp_path, monkeypatch, small_world):
    monkeypatch.setattr(leaderboards, "evaluate", refuse)
    graphs = {"one": small_world, "other": split_randomly(small_world)}
    monkeypatch.setattr(Workspace, "graph", lambda _, name: graphs[name])
    for data in graphs:
        with pytest.raises(AssertionError, match="must not be computed"):
            leaderboards.run("icews05-15", Workspace(tmp_path, quick=True, data=data))
    assert len(list(tmp_path.glob("*.run"))) == 2
