"""Consolidation: a new bundle with all events, in one step, without a trace of what was erased."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from pathlib import Path

import polars as pl
import pytest

from recollect import Memory, Recipe, UserError, load, read
from recollect.io.atomic import locked

ROWS = [(f"e{i % 7}", f"r{i % 3}", f"e{i * i % 5}", str(2000 + i % 12)) for i in range(90)]
SECRET = "Rumpelstilzchen"


@pytest.fixture(scope="session", params=["history", "complex"])
def original(request, tmp_path_factory) -> Path:
    table = pl.DataFrame(ROWS, schema=["subject", "predicate", "object", "time"], orient="row")
    path = tmp_path_factory.mktemp("consolidate") / "original"
    Memory.learn(read(table), model=request.param, dim=4, recipe=Recipe(epochs=1)).save(path)
    return path


@pytest.fixture
def place(original, tmp_path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "m"))


def traces(folder: Path, label: str) -> list[str]:
    """Return the files below a folder that contain a label as bytes of UTF-8 or UTF-16."""
    forms = [label.encode(), label.encode("utf-16-le"), label[2:-1].encode()]
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path.name for path in files if any(form in path.read_bytes() for form in forms)]


def test_a_consolidated_memory_has_absorbed_its_events(place):
    memory, reader = load(place), load(place)
    first = memory.remember([("new", "r1", "e1", "2013"), ("new", "r2", "e2", "2001")])["known_at"][0]
    memory.forget(subject="e1", predicate="r1")
    before = memory.graph
    assert memory.consolidate()
    for each in (memory, reader, load(place)):
        assert each.about["journal"]["absorbed"] == 2
        assert each.graph.entities.labels == before.entities.labels
        assert each.graph.times == before.times
        assert sorted(each.graph.split("train").ids.tolist()) == sorted(before.split("train").ids.tolist())
        assert each.changes()["event"].n_unique() == 2
        assert each.recall(subject="new", predicate="r1", time="2013", include="stored").height == 1
        assert each.know(subject="e1", predicate="r1", as_of="2001", include="stored").is_empty()
        assert each.know(subject="e1", as_of="2001", include="stored", known_at=first).height >= 1
    assert not memory.consolidate()
    memory.remember(subject="newer", predicate="r1", object="new", time="2014")
    assert load(place).changes()["event"].unique().sort().to_list() == [1, 2, 3]
    assert load(place).recall(subject="newer", predicate="r1", time="2014", include="stored").height == 1


def test_what_was_erased_leaves_no_trace_on_disk(place):
    memory = load(place)
    memory.remember([(SECRET, "r1", "e1", "2013"), ("e2", "r1", SECRET, "2003"), ("new", "r1", "e1", "2013")])
    memory.forget(subject=SECRET)
    memory.remember(subject=SECRET, predicate="r2", object="e3", time="2005")
    memory.save(place, overwrite=True)  # the bundle has it too
    memory.remember(subject="e4", predicate="r2", object=SECRET, time="2006")
    assert len(traces(place.parent, SECRET)) >= 2
    memory.forget(entity=SECRET)
    with pytest.raises(UserError, match=SECRET):
        memory.recall(subject=SECRET, predicate="r1", time="2013")
    assert memory.consolidate()
    assert traces(place.parent, SECRET) == []
    assert SECRET not in memory.graph.entities.labels
    assert memory.recall(subject="new", predicate="r1", time="2013", include="stored").height == 1
    assert memory.changes()["subject"].to_list() == ["new"]


def test_an_entity_of_the_training_facts_leaves_no_trace_either(place):
    memory = load(place)
    memory.forget(entity="e6")
    assert memory.consolidate()
    labels = pl.read_parquet(place / "entities.parquet")["label"].to_list()
    assert "e6" not in labels
    assert len(labels) == 6
    assert all(parameter.shape[0] != 7 for model in load(place).models for parameter in model.parameters())


def test_a_kill_between_the_swap_and_the_purge_is_made_good(place, monkeypatch):
    from recollect.memory.journal.database import Journal

    memory = load(place)
    memory.remember(subject=SECRET, predicate="r1", object="e1", time="2013")
    memory.forget(entity=SECRET)
    with monkeypatch.context() as patched:
        patched.setattr(Journal, "purge", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            memory.consolidate()
    del memory
    again = load(place)
    assert traces(place.parent, SECRET) != []
    assert not again.consolidate()
    assert traces(place.parent, SECRET) == []


def test_a_save_that_waited_for_a_consolidation_does_not_bring_back_what_was_erased(place):
    saving, other = load(place), load(place)
    saving.remember(subject=SECRET, predicate="r1", object="e1", time="2013")
    with locked(place):
        thread = threading.Thread(target=saving.save, args=(place,), kwargs={"overwrite": True})
        thread.start()
        thread.join(0.2)
        other.forget(entity=SECRET)
        assert other.consolidate()
    thread.join()
    for each in (saving, other, load(place)):
        assert SECRET not in each.graph.entities.labels
    assert traces(place.parent, SECRET) == []


@pytest.mark.long
def test_a_second_consolidation_gets_one_sentence(place):
    memory = load(place)
    memory.remember(subject="new", predicate="r1", object="e1", time="2013")
    with locked(place):
        process = subprocess.run(
            [sys.executable, "-m", "recollect", "consolidate", str(place)], capture_output=True, text=True, check=False
        )
    assert process.returncode == 2
    assert "m is being written by another process; wait until it has finished" in process.stderr.replace("\n", " ")


READER = """
import sys
from pathlib import Path
from recollect import load
memory, stop, asked = load(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
while True:
    last = stop.exists()
    assert memory.recall(subject="new", predicate="r1", time="2013", include="stored").height == 1
    with asked.open("a") as file:
        file.write(".")
    if last:
        break
print(memory.about.get("journal", {}).get("absorbed"))
"""


@pytest.mark.long
def test_readers_answer_during_a_consolidation_and_after_it(place):
    memory = load(place)
    memory.remember(subject="new", predicate="r1", object="e1", time="2013")
    stop, asked = place.parent / "stop", place.parent / "asked"
    asked.touch()
    reader = subprocess.Popen(
        [sys.executable, "-c", READER, str(place), str(stop), str(asked)], stdout=subprocess.PIPE, text=True
    )
    consolidated = 0
    while reader.poll() is None and (consolidated < 5 or asked.stat().st_size < 5):
        assert memory.consolidate()
        consolidated += 1
        memory.remember(subject=f"new{consolidated}", predicate="r1", object="e1", time="2013")
    stop.touch()
    absorbed, _ = reader.communicate()
    assert reader.returncode == 0
    assert absorbed.strip() == str(consolidated)


def test_a_memory_in_main_memory_is_consolidated_there(original):
    memory = Memory.of(load(original)._at().learned)
    moment = memory.remember(subject="new", predicate="r1", object="e1", time="2013")["known_at"][0]
    memory.remember(subject="newer", predicate="r1", object="e1", time="2013")
    assert memory.consolidate()
    assert not memory.consolidate()
    asked = {"predicate": "r1", "object": "e1", "time": "2013", "include": "stored"}
    assert sorted(memory.recall(**asked)["subject"].to_list()) == ["new", "newer"]
    assert memory.recall(**asked, known_at=moment)["subject"].to_list() == ["new"]
    memory.remember(subject="newest", predicate="r1", object="e1", time="2013")
    assert memory.recall(**asked).height == 3
