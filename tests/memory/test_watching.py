"""A folder of events is remembered file by file, each exactly once, whatever happens in between."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

from recollect import Memory, UserError, load, read
from recollect.memory.journal import watching
from recollect.memory.journal.watching import Watcher
from recollect.memory.timeline import Timeline

ROWS = [(f"e{i % 7}", f"r{i % 3}", f"e{i * i % 5}", str(2000 + i % 12)) for i in range(60)]
HEADER = "subject,predicate,object,time\n"


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    table = pl.DataFrame(ROWS, schema=["subject", "predicate", "object", "time"], orient="row")
    path = tmp_path_factory.mktemp("watch") / "original"
    Memory.learn(read(table), model="history").save(path)
    return path


@pytest.fixture
def place(original, tmp_path) -> Path:
    (tmp_path / "events").mkdir()
    return Path(shutil.copytree(original, tmp_path / "m"))


def write(place: Path, name: str, text: str, *, age: float = 60) -> None:
    """Write a file that was last changed some seconds ago."""
    path = place.with_name("events") / name
    path.write_text(HEADER + text)
    os.utime(path, (time.time() - age, time.time() - age))


def look(place: Path, watcher: Watcher | None = None) -> list[tuple[str, int | None]]:
    """Return the files that a look finds, with the number of runs that each added."""
    watcher = watcher or Watcher(Timeline.load(place), place.with_name("events"))
    return [(found.name, None if found.changes is None else found.changes.height) for found in watcher.look()]


def test_every_file_is_remembered_once_and_in_the_order_of_names(place):
    write(place, "b.csv", "new,r1,e1,2003\nnew,r1,e1,2004\n")
    write(place, "a.csv", "new,r1,e1,2003\n")
    write(place, "a.csv.tmp", "hidden,r1,e1,2003\n")
    write(place, ".c.csv", "hidden,r1,e1,2003\n")
    write(place, "notes.md", "hidden,r1,e1,2003\n")
    assert look(place) == [("a.csv", 1), ("b.csv", 1)]
    assert look(place) == []
    write(place, "c.csv", "newer,r1,e1,2003\n")
    assert look(place) == [("c.csv", 1)]
    assert load(place).changes()["event"].to_list() == [1, 2, 3]


def test_a_file_with_nothing_new_is_looked_at_once_too(place):
    write(place, "a.csv", ",".join(ROWS[0]) + "\n")
    assert look(place) == [("a.csv", 0)]
    assert look(place) == []


def test_a_file_that_changed_is_remembered_again(place):
    write(place, "a.csv", "new,r1,e1,2003\n")
    watcher = Watcher(Timeline.load(place), place.with_name("events"))
    assert look(place, watcher) == [("a.csv", 1)]
    write(place, "a.csv", "new,r1,e1,2003\nnew,r1,e1,2004\n", age=30)
    assert look(place, watcher) == [("a.csv", 1)]
    assert look(place, watcher) == []


def test_what_is_still_written_waits(place):
    watcher = Watcher(Timeline.load(place), place.with_name("events"))
    write(place, "a.csv", "new,r1,e1,2003\n", age=0)
    assert look(place, watcher) == []
    assert watcher.is_waiting
    write(place, "a.csv", "new,r1,e1,2003\nnew,r1,e1,2004\n", age=0)
    assert look(place, watcher) == []
    assert look(place, watcher) == [("a.csv", 1)]
    assert not watcher.is_waiting


def test_a_file_that_changes_while_it_is_read_is_not_remembered(place, monkeypatch):
    write(place, "a.csv", "new,r1,e1,2003\n")
    digests = iter(["one", "two"])
    monkeypatch.setattr(watching, "digest_of_file", lambda path: next(digests))
    watcher = Watcher(Timeline.load(place), place.with_name("events"))
    (found,) = watcher.look()
    assert "it was changed while it was read" in found.error
    assert load(place).changes().is_empty()


def test_a_bad_file_is_reported_and_the_others_are_remembered(place):
    write(place, "a.csv", "new,r1,e1,soon\n")
    write(place, "b.csv", "new,r1,e1,2003\n")
    watcher = Watcher(Timeline.load(place), place.with_name("events"))
    found = list(watcher.look())
    assert [each.name for each in found] == ["a.csv", "b.csv"]
    assert "a.csv, line 2: cannot read 'soon'" in found[0].error
    assert found[1].changes.height == 1
    assert list(watcher.look()) == []


def test_a_folder_that_is_not_there_is_one_sentence(place):
    with pytest.raises(UserError, match="nowhere: no such folder; give one whose files are to be remembered"):
        Watcher(Timeline.load(place), place / "nowhere")


@pytest.mark.long
def test_the_command_goes_on_until_it_is_interrupted_and_where_it_stopped(place):
    events = place.with_name("events")
    command = [sys.executable, "-m", "recollect", "watch", str(place), str(events), "--interval", "0.1", "--json"]
    for number in range(2):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        write(place, f"{number}.csv", f"new{number},r1,e1,2003\n")
        assert f'"{number}.csv", "added": 1' in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait() == 0
        process.stdout.close()
    assert load(place).changes()["subject"].to_list() == ["new0", "new1"]
