"""Kill, mix and damage: nothing is lost, nothing blocks, and nothing but a UserError is raised.

`make test` runs the short form, `make torture` the long one. To add a kind of torture, write a module beside this one
that prints what happened as JSON, and a test that starts it with `scaled` sizes.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from recollect import Memory, Recipe, dataset
from torture.scale import IS_LONG, result_of, scaled, start
from torture.system_calls import why_not

FIXTURES = Path(__file__).parents[1] / "fixtures"
SHORT = (70, ["train --force", "save", "export tsv"])  # (kill at every n-th change, of these)
CHANGES = ["remember", "remember first", "forget", "consolidate", "watch"]
LONG = [
    *((1, [case]) for case in ("train", "train --force", "save", "export parquet", "export tsv", "build")),
    *((1, [case]) for case in CHANGES),
    *((4, [case]) for case in ("search", "search again")),  # several hundred statements of SQLite
]
UNTRACED = why_not()
traced = pytest.mark.skipif(UNTRACED is not None, reason=UNTRACED or "")


@traced
@pytest.mark.parametrize(("every", "cases"), LONG if IS_LONG else [SHORT])
def test_a_kill_at_any_change_of_the_disk_loses_nothing_and_blocks_nothing(every, cases):
    found = result_of(start("kills", every, *cases))
    assert list(found) == cases
    for result in found.values():
        assert result["errors"] == []
        assert result["kills"] >= scaled(1, 20)


@traced
@pytest.mark.skipif(IS_LONG, reason="the long form has them")
def test_a_kill_during_a_change_of_a_memory_loses_nothing():
    found = result_of(start("kills", 40, *CHANGES))
    assert [result["errors"] for result in found.values()] == [[]] * len(CHANGES)
    assert all(result["kills"] for result in found.values())


def test_two_writers_and_two_readers_never_mix_or_refuse(tmp_path):
    seconds = scaled(2, 60)
    result_of(start("writers", tmp_path, 0.01, "write", 1))
    processes = [
        start("writers", tmp_path, seconds, *words) for words in (["write", 1], ["write", 2], ["read"], ["read"])
    ]
    results = [result_of(process) for process in processes]
    assert [result["errors"] for result in results] == [{}, {}, {}, {}]
    assert min(result["calls"] for result in results) > 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["g", "m"]


@pytest.mark.parametrize("batch", range(scaled(1, 24)))
def test_a_mutated_bundle_is_loaded_or_refused_within_bounds(tmp_path, batch):
    count, originals, mutants = scaled(100, 500), tmp_path / "originals", tmp_path / "mutants"
    shutil.copytree(FIXTURES, originals)
    graph = dataset("world", countries=4, years=1)
    Memory.learn(graph, model="distmult", dim=2, recipe=Recipe(epochs=1)).save(originals / "new")
    result_of(start("mutants", "make", originals, mutants, batch * count, count))
    found = result_of(start("mutants", "load", originals, mutants))
    assert found["errors"] == []
    assert found["loaded"] + found["refused"] == count
    assert found["slowest"] < 30  # seconds
    assert found["growth"] < 200e6  # bytes; the files have some 30,000
