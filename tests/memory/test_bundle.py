"""Bundles appear whole or not at all, and refuse to load when anything has changed."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import polars as pl
import pytest
import safetensors.torch
import torch

from recollect import Memory, Recipe, UserError, dataset, load
from recollect.memory.bundle import folder as bundle_module
from recollect.memory.bundle.folder import ABOUT, TABLES, WEIGHTS


@pytest.fixture(scope="module")
def memory() -> Memory:
    return Memory.learn(dataset("world", countries=4, years=1), model="cont", dim=3, recipe=Recipe(epochs=1))


@pytest.fixture
def saved(memory, tmp_path) -> Path:
    memory.save(tmp_path / "m")
    return tmp_path / "m"


def test_a_bundle_has_these_files_and_describes_itself(saved, memory):
    more = ["history.safetensors", "cells.safetensors", "forecasts.safetensors"]
    assert sorted(p.name for p in saved.iterdir()) == sorted([WEIGHTS, ABOUT, *TABLES, *more])
    about = json.loads((saved / ABOUT).read_text())
    assert {"format", "model", "ranks", "recipe", "seed", "training", "data", "versions", "files"} <= about.keys()
    assert about["data"]["fingerprint"] == memory.graph.fingerprint


@pytest.mark.skipif(os.name != "posix", reason="modes of files are of POSIX")
@pytest.mark.parametrize("umask", [0o022, 0o027])
def test_files_have_the_mode_of_the_umask(memory, tmp_path, umask):
    before = os.umask(umask)
    try:
        memory.save(tmp_path / "m")
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "m").iterdir()} == {0o666 & ~umask}
    assert (tmp_path / "m").stat().st_mode & 0o777 == 0o777 & ~umask


def test_the_same_memory_gives_the_same_bytes(saved, memory, tmp_path):
    memory.save(tmp_path / "again")
    for file in saved.iterdir():
        assert file.read_bytes() == (tmp_path / "again" / file.name).read_bytes()


@pytest.mark.parametrize("name", [WEIGHTS, ABOUT, *TABLES])
@pytest.mark.parametrize("damage", ["truncated", "flipped", "missing", "empty"])
def test_damage_to_any_file_is_reported(saved, name, damage):
    file = saved / name
    content = bytearray(file.read_bytes())
    if damage == "missing":
        file.unlink()
    else:
        content[len(content) // 2] ^= 1
        file.write_bytes({"truncated": content[: len(content) // 2], "flipped": content, "empty": b""}[damage])
    with pytest.raises(UserError, match=str(saved)) as caught:
        load(saved)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 99}, "format 99; this version reads format 1"),
        ({"model": "magic"}, "digest differs|unknown model"),
        ({"ranks": {"entity": 4, "predicate": 3, "time": 3}}, "digest differs"),
        ({"files": {}}, "digest differs"),
    ],
)
def test_a_changed_description_is_refused(saved, change, message):
    about = json.loads((saved / ABOUT).read_text())
    (saved / ABOUT).write_text(json.dumps(about | change))
    with pytest.raises(UserError, match=message):
        load(saved)


@pytest.mark.parametrize("text", ["[]", "3", "null", "{}", '"x"', '{"digest": 1}'])
def test_a_description_of_another_kind_is_refused(saved, text):
    (saved / ABOUT).write_text(text)
    with pytest.raises(UserError, match="restore it or train again|use a matching one"):
        load(saved)


def change_description(saved, change):
    """Change a description and its digest."""
    about = json.loads((saved / ABOUT).read_text())
    about.pop("digest")
    about |= change
    about["digest"] = bundle_module._digest_of(about)
    (saved / ABOUT).write_text(json.dumps(about))


@pytest.mark.parametrize(
    "change",
    [
        {"model": "magic"},
        {"model": "tucker"},
        {"ranks": {"entity": 4, "predicate": 3, "time": 3}},
        {"ranks": {"entity": "x"}},
        {"dtype": "int8"},
        {"form": "semantic"},
        {"calibration": 3},
        {"calibration": {"o": ["x", 0]}},
        {"calibration": {"o": 3}},
        {"data": {}},
        {"data": None},
        {"splits": ["train", "nothing"]},
        {"splits": 4},
        {"files": None},
    ],
)
def test_a_wrong_description_with_a_valid_digest_is_refused(saved, change):
    change_description(saved, change)
    with pytest.raises(UserError, match=str(saved)):
        load(saved)


def test_a_path_that_is_no_memory_is_refused(tmp_path):
    with pytest.raises(UserError, match="no such memory"):
        load(tmp_path / "nothing")
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="no such memory"):
        load(tmp_path / "file")
    with pytest.raises(UserError, match=r"not a memory, for it has no memory\.json"):
        load(tmp_path)


def test_nothing_is_overwritten_unless_requested(saved, memory, tmp_path):
    with pytest.raises(UserError, match="exists; choose another place or overwrite it"):
        memory.save(saved)
    memory.save(saved, overwrite=True)
    load(saved)
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.txt").write_text("x")
    with pytest.raises(UserError, match="is not a memory, so it is not replaced"):
        memory.save(tmp_path / "precious", overwrite=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m", "precious"]


def test_a_memory_whose_replacement_was_cut_is_not_overwritten_unless_requested(saved, memory, run, facts_csv):
    saved.rename(saved.with_name(".m.old"))
    with pytest.raises(UserError, match="exists; choose another place or overwrite it"):
        memory.save(saved)
    saved.rename(saved.with_name(".m.old"))
    code, _, error = run("train", facts_csv, "--model", "distmult", "--dim", "2", "--epochs", "1", "--out", saved)
    assert code == 2
    assert "m exists; choose another --out, or replace it with --force" in error
    assert load(saved).graph.fingerprint == memory.graph.fingerprint


class Killed(BaseException):
    """Simulate SIGKILL: afterwards the process changes nothing on disk, not even in its clean-up."""


def save_but_die_at(memory: Memory, path: Path, at: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Save, and raise Killed at the `at`-th call that changes the disk; return whether the save was completed."""
    calls = 0

    def counted(function):
        def wrapper(*args, **kwargs):
            nonlocal calls
            calls += 1
            if calls >= at:
                raise Killed
            return function(*args, **kwargs)

        return wrapper

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", counted(os.fsync))
        patch.setattr(shutil, "rmtree", counted(shutil.rmtree))
        patch.setattr(bundle_module, "digest_of_file", counted(bundle_module.digest_of_file))
        for name in ("rename", "mkdir", "write_bytes"):
            patch.setattr(Path, name, counted(getattr(Path, name)))
        patch.setattr(pl.DataFrame, "write_parquet", counted(pl.DataFrame.write_parquet))
        patch.setattr(safetensors.torch, "save_file", counted(safetensors.torch.save_file))
        try:
            memory.save(path, overwrite=True)
        except Killed:
            return False
        return True


@pytest.mark.parametrize("existing", [False, True])
def test_a_kill_during_save_never_leaves_a_wrong_bundle(memory, tmp_path, existing, monkeypatch):
    old = Memory.learn(memory.graph, model="distmult", dim=2, recipe=Recipe(epochs=1))
    outcomes = []
    for at in range(1, 80):
        path = tmp_path / str(at) / "m"
        path.parent.mkdir()
        if existing:
            old.save(path)
        whole = save_but_die_at(memory, path, at, monkeypatch)
        if existing or path.exists():
            found = type(load(path).model)  # loads, and is one or the other, whole
            assert found in ((type(old.model), type(memory.model)) if existing else (type(memory.model),))
            outcomes.append(found)
        else:
            with pytest.raises(UserError, match="no such memory"):
                load(path)
        if at % 5 == 0:
            memory.save(path, overwrite=True)  # and the path can be used again
            assert type(load(path).model) is type(memory.model)
        if whole:
            break
    assert whole
    assert at > 20
    assert type(memory.model) in outcomes
    assert (type(old.model) in outcomes) == existing


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda weights: weights | {"entity": torch.zeros(2, 2)}, "its weights do not have the shapes of its model"),
        (lambda weights: weights | {"entity": weights["entity"] * torch.nan}, "its weights are not all finite numbers"),
    ],
)
def test_wrong_weights_with_a_valid_digest_are_refused(saved, change, message):
    weights = safetensors.torch.load_file(saved / WEIGHTS)
    safetensors.torch.save_file(change(weights), saved / WEIGHTS)
    files = json.loads((saved / ABOUT).read_text())["files"]
    change_description(saved, {"files": files | {WEIGHTS: bundle_module.digest_of_file(saved / WEIGHTS)}})
    with pytest.raises(UserError, match=message):
        load(saved)


def test_a_memory_behind_a_link_is_replaced_where_it_is(saved, memory, tmp_path):
    (tmp_path / "link").symlink_to(saved)
    for _ in range(2):
        memory.save(tmp_path / "link", overwrite=True)
    assert (tmp_path / "link").is_symlink()
    assert load(tmp_path / "link").graph.fingerprint == memory.graph.fingerprint


def test_weights_of_a_large_file_are_mapped_and_checked(tmp_path, small_world, monkeypatch):
    memory = Memory.learn(small_world, model="complex", dim=4, recipe=Recipe(epochs=1), tables=tmp_path)
    memory.save(tmp_path / "a.memory")
    read = memory.load(tmp_path / "a.memory")
    monkeypatch.setattr("recollect.memory.bundle.folder.MAPPED_BYTES", 100)
    mapped = memory.load(tmp_path / "a.memory")
    for name, value in read.model.state_dict().items():
        assert torch.equal(mapped.model.state_dict()[name], value)
    question = {"subject": small_world.entities.labels[0], "predicate": "Visits", "time": "2000-05"}
    assert mapped.recall(**question).equals(read.recall(**question))
    (tmp_path / "a.memory").rename(tmp_path / "b.memory")
    assert mapped.recall(**question).equals(read.recall(**question))
    file = tmp_path / "b.memory" / "weights.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(UserError, match=r"weights.safetensors: the content is not what was saved"):
        memory.load(tmp_path / "b.memory")
