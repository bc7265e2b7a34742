"""Cards and the Hub on the command line; the Hub is a folder here."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from recollect import Memory, dataset, load, split_randomly
from recollect.memory import hub


class FolderHub:
    """The three calls of `HfApi` that are used, on a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.private, self.commits = folder, {}, 0

    def create_repo(self, repository, *, private, exist_ok):
        (self.folder / repository).mkdir(parents=True, exist_ok=exist_ok)
        self.private[repository] = private
        return f"https://hub.example/{repository}"

    def create_commit(self, repository, operations, *, commit_message):
        assert commit_message
        self.commits += 1
        for operation in operations:
            with operation.as_file() as content:
                (self.folder / repository / operation.path_in_repo).write_bytes(content.read())

    def snapshot_download(self, repository, *, local_dir, allow_patterns):
        if not (self.folder / repository).is_dir():
            raise ConnectionError("404: no such repository\nwith more lines")
        for file in (self.folder / repository).iterdir():
            if any(file.match(pattern) for pattern in allow_patterns):
                shutil.copy(file, Path(local_dir) / file.name)


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """A saved memory and a hub."""
    graph = split_randomly(dataset("world", countries=4, years=1))
    Memory.learn(graph, model="history").save(tmp_path / "world.memory")
    place = FolderHub(tmp_path / "hub")
    monkeypatch.setattr(hub, "_api", lambda: place)
    monkeypatch.chdir(tmp_path)
    return place


def test_a_pushed_memory_is_pulled_with_what_it_remembered(run, shared):
    load("world.memory").remember(subject="Norland", predicate="Visits", object="Sudland", time="2000-03")
    code, out, _ = run("hub", "push", "world.memory", "me/world")
    assert (code, out.strip()) == (0, "https://hub.example/me/world")
    assert shared.private == {"me/world": True}
    assert shared.commits == 1
    assert "library_name: recollect" in (shared.folder / "me/world/README.md").read_text(encoding="utf-8")
    run("hub", "pull", "me/world", "copy.memory")
    assert (
        load("copy.memory").recall(subject="Norland", predicate="Visits", time="2000-03", top=1)["status"][0]
        == "stored"
    )


def test_a_memory_is_public_only_if_asked_for(run, shared):
    run("hub", "push", "world.memory", "me/world", "--public")
    assert shared.private == {"me/world": False}


def test_what_is_pulled_is_checked_and_replaces_nothing_unasked(run, shared):
    run("hub", "push", "world.memory", "me/world")
    code, _, err = run("hub", "pull", "me/world", "world.memory")
    assert code == 2
    assert "exists" in err
    facts = shared.folder / "me/world/facts.parquet"
    facts.write_bytes(facts.read_bytes() + b"x")
    code, _, err = run("hub", "pull", "me/world", "other.memory")
    assert code == 2
    assert "digest differs" in err
    assert not Path("other.memory").exists()


def test_what_the_hub_refuses_is_one_sentence(run, shared):
    code, _, err = run("hub", "pull", "me/nothing", "other.memory")
    assert code == 2
    assert "me/nothing: the Hub cannot serve this (404: no such repository)" in err


def test_a_card_is_printed_or_written(run, shared):
    printed = run("card", "world.memory")[1]
    run("card", "world.memory", "--out", "card.md")
    assert Path("card.md").read_text(encoding="utf-8").strip() == printed.strip()
