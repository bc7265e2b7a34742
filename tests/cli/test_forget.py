"""`recollect remember` and `recollect forget`: what is printed, and what is refused before anything is removed."""

from __future__ import annotations

import io
import json
import shutil
import sys

import pytest

from recollect import load

HEAD = "subject,predicate,object,time\n"
ROWS = "new,r1,e1,2003\nnew,r2,e2,2004\n"


@pytest.fixture
def memory(trained_memory, tmp_path):
    return shutil.copytree(trained_memory, tmp_path / "m")


@pytest.fixture
def give(monkeypatch):
    """Return a function that makes a text the standard input, which can be read once."""

    def give_text(text: str) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))

    return give_text


def test_facts_of_several_triples_are_forgotten_only_if_that_is_confirmed(run, memory, give):
    give(HEAD + ROWS)
    assert run("remember", memory, "-")[0] == 0
    give(HEAD + ROWS)
    code, _, error = run("forget", memory, "-")
    assert code == 2
    assert "2 runs of 2 triples would be forgotten; if so, add --yes" in error
    assert load(memory).changes().height == 2
    give(HEAD + ROWS)
    code, out, _ = run("forget", memory, "-", "--yes", "--json")
    assert code == 0
    assert [row["change"] for row in json.loads(out)] == ["removed", "removed"]
    assert load(memory).changes().height == 4


def test_a_file_is_read_once(run, memory, give):
    give(HEAD + ROWS)
    run("remember", memory, "-")
    give(HEAD + "new,r1,e1,2003\n")
    code, out, _ = run("forget", memory, "-", "--json")
    assert code == 0
    assert [row["subject"] for row in json.loads(out)] == ["new"]


def test_an_entity_is_erased_only_if_that_is_confirmed(run, memory):
    run("remember", memory, "--subject", "new", "--predicate", "r1", "--object", "new", "--time", "2003")
    code, _, error = run("forget", memory, "--entity", "new")
    assert code == 2
    assert "new would be removed altogether, with 1 run of facts; if so, add --yes" in error
    assert run("forget", memory, "--entity", "new", "--yes")[0] == 0
    assert "new" not in load(memory).graph.entities.labels
