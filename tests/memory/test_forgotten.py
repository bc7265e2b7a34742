"""What is forgotten is in no stored answer and is no reason: here, in another process, after consolidations."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from recollect import Memory, Recipe, load, read
from tests.memory.everything import NAMES, SOME, Fact, everything

ROWS = [(f"e{i % 5}", f"r{i % 3}", f"e{i * i % 4}", str(2000 + i % 7)) for i in range(60)]


def seen_elsewhere(place: Path) -> dict[str, set[Fact]]:
    """Return what another process finds."""
    command = [sys.executable, "-m", "tests.memory.everything", str(place)]
    out = subprocess.run(command, capture_output=True, check=True, cwd=Path(__file__).parents[2]).stdout
    return {name: {tuple(fact) for fact in facts} for name, facts in json.loads(out).items()}


def assert_stored(found: dict[str, set[Fact]], store: set[Fact]) -> None:
    for name in (*NAMES, "know"):
        assert found[name] == store, name
    for name in ("when", "timeline"):
        assert found[name] == {fact for fact in store if {fact[0], fact[2]} <= set(SOME)}, name
    assert found["reasons"] <= store


@pytest.mark.parametrize("model", ["history", pytest.param("complex", marks=pytest.mark.long)])
def test_a_forgotten_fact_is_never_stored_again(tmp_path, model):
    table = pl.DataFrame(ROWS, schema=NAMES, orient="row")
    Memory.learn(read(table, grain="year"), model=model, dim=4, recipe=Recipe(epochs=1)).save(tmp_path / "m")
    memory = load(tmp_path / "m")
    store = set(ROWS)
    new = [("new", "r1", "e1", "2005"), ("new", "r2", "e2", "2003"), ("e0", "r0", "new", "2006")]
    memory.remember(new)
    memory.forget([*new[:2], ROWS[0], ROWS[7]])
    memory.forget(subject="e1", time="2004..2006")
    store = (store | set(new)) - {*new[:2], ROWS[0], ROWS[7]}
    store = {fact for fact in store if fact[0] != "e1" or fact[3] < "2004"}
    assert_stored(everything(memory), store)
    assert_stored(seen_elsewhere(tmp_path / "m"), store)
    assert memory.consolidate()
    assert_stored(everything(memory), store)
    memory.forget(entity="e2")
    store = {fact for fact in store if "e2" not in fact}
    memory.consolidate()
    memory.save(tmp_path / "copy")
    assert_stored(everything(memory), store)
    assert_stored(everything(load(tmp_path / "copy")), store)
    assert_stored(seen_elsewhere(tmp_path / "m"), store)
