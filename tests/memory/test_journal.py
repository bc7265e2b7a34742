"""Remember and forget on disk: durable, seen by all readers, idempotent, all or nothing, refused with a sentence."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from recollect import Memory, UserError, load, read
from recollect.graph.times import TimeAxis
from recollect.memory.journal.database import Journal, journal_path
from recollect.memory.journal.files import open_in_read_only_folder, open_reader
from recollect.memory.journal.moments import parse_moment

ROWS = [("Ann", "visits", f"City {i % 5}", f"2014-{i % 9 + 1:02}-{i % 27 + 1:02}") for i in range(60)]
ROWS += [("Bob", "calls", "Ann", f"2014-{i + 1:02}-05") for i in range(9)]
NEW = {"subject": "Zoe", "predicate": "calls", "object": "Ann", "time": "2014-10-03"}


@pytest.fixture(scope="session")
def original(tmp_path_factory) -> Path:
    table = pl.DataFrame(ROWS, schema=["subject", "predicate", "object", "time"], orient="row")
    path = tmp_path_factory.mktemp("journal") / "original"
    Memory.learn(read(table, name="visits"), model="history").save(path)
    return path


@pytest.fixture
def place(original, tmp_path) -> Path:
    """A saved memory without a journal."""
    return Path(shutil.copytree(original, tmp_path / "m"))


def stored(memory: Memory, **question: object) -> list[tuple[str, ...]]:
    """Return the stored objects of Zoe, by time."""
    asked = {"subject": "Zoe", "predicate": "calls", "time": "2014-10-03"} | question
    return memory.recall(**asked, include="stored").rows()


def test_a_change_is_seen_by_every_reader_and_survives_them(place):
    writer, reader = load(place), load(place)
    added = writer.remember(**NEW)
    assert added.select("event", "change", "subject", "from", "to").rows() == [
        (1, "added", "Zoe", "2014-10-03", "2014-10-03")
    ]
    for memory in (writer, reader, load(place)):
        assert [row[0] for row in stored(memory)] == ["Ann"]
    assert "Zoe" in reader.graph.entities.labels
    assert reader.graph.times.labels[-1] == "2014-10-03"
    removed = reader.forget(**NEW)
    assert removed["change"].to_list() == ["removed"]
    for memory in (writer, reader, load(place)):
        assert stored(memory) == []


def test_nothing_is_recorded_twice(place):
    memory = load(place)
    assert len(memory.remember([ROWS[0], ROWS[1]])) == 0
    memory.remember(**NEW)
    assert len(memory.remember(**NEW)) == 0
    assert len(memory.forget(subject="Nobody")) == 0
    memory.forget(**NEW)
    assert len(memory.forget(**NEW)) == 0
    assert memory.changes()["change"].to_list() == ["added", "removed"]
    assert memory.changes()["event"].to_list() == [1, 2]


def test_a_batch_is_all_or_nothing(place, tmp_path):
    file = tmp_path / "new.csv"
    file.write_text("subject,predicate,object,time\nZoe,calls,Ann,2014-10-03\nZoe,calls,Bob,2914-10-03\n")
    memory = load(place)
    with pytest.raises(UserError, match=r"new.csv, line 3: time 2914-10-03 is more than 1,000 steps"):
        memory.remember(file)
    assert "Zoe" not in memory.graph.entities.labels
    assert memory.changes().is_empty()
    file.write_text("subject,predicate,object,time\nZoe,calls,Ann,2014-10-03\nZoe,calls,Bob,2014-10-03\n")
    assert memory.remember(file)["event"].to_list() == [1, 1]


def test_a_check_sees_what_would_be_forgotten_and_can_refuse_it(place):
    memory = load(place)
    seen: list[pl.DataFrame] = []

    def refuse(changes: pl.DataFrame) -> None:
        seen.append(changes)
        raise UserError("too many")

    with pytest.raises(UserError, match="too many"):
        memory.forget(subject="Bob", check=refuse)
    assert [table["change"].to_list() for table in seen] == [["removed"] * 9]
    assert memory.changes().is_empty()
    assert memory.forget(subject="Bob", check=seen.append).height == 9
    assert seen[1].drop("event", "known_at").equals(seen[0].drop("event", "known_at"))


def test_answers_can_be_asked_as_of_a_time_and_as_known_at_a_moment(place):
    memory = load(place)
    before = datetime.now(UTC)
    first = memory.remember(**NEW)["known_at"][0]
    second = memory.forget(subject="Zoe")["known_at"][0]
    assert before <= first < second
    assert len(stored(memory, known_at=first)) == 1
    assert len(stored(memory, known_at=first.isoformat())) == 1
    assert len(stored(memory, known_at=first.replace(tzinfo=None))) == 1  # UTC
    assert stored(memory, known_at=second) == []
    assert stored(memory, known_at=date(2999, 1, 1)) == []
    with pytest.raises(UserError, match="unknown entity 'Zoe'"):
        stored(memory, known_at=first - timedelta(microseconds=1))
    known = memory.know(as_of="2014-10-03", include="stored", known_at=first)
    assert known.select("subject", "predicate", "object").rows() == [("Zoe", "calls", "Ann")]
    assert memory.know(as_of="2014-09-05", include="stored", known_at=before).height >= 1


def test_changes_are_listed_between_moments(place):
    memory = load(place)
    moments = [memory.remember(**(NEW | {"subject": name}))["known_at"][0] for name in ("Zoe", "Yan", "Xia")]
    assert memory.changes(since=moments[1])["subject"].to_list() == ["Yan", "Xia"]
    assert memory.changes(until=moments[1])["subject"].to_list() == ["Zoe", "Yan"]
    today = moments[0].date()
    assert memory.changes(since=today, until=moments[2].date()).height == 3
    assert memory.changes(until=today - timedelta(days=1)).is_empty()
    assert memory.changes().columns == ["event", "known_at", "change", "subject", "predicate", "object", "from", "to"]


def test_transaction_times_increase_even_if_the_clock_goes_back(place, monkeypatch):
    import recollect.memory.journal.events as events

    class Stopped(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime(2026, 3, 1, tzinfo=UTC)

    memory = load(place)
    monkeypatch.setattr(events, "datetime", Stopped)
    moments = [memory.remember(**(NEW | {"subject": name}))["known_at"][0] for name in ("Zoe", "Yan")]
    assert moments == [datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 3, 1, 0, 0, 0, 1, tzinfo=UTC)]


def test_an_erased_entity_is_gone_at_every_moment(place):
    memory, reader = load(place), load(place)
    memory.remember(**NEW)
    moment = memory.remember([("Zoe", "calls", "Bob", "2014-10-04"), ("Yan", "calls", "Bob", "2014-10-04")])[
        "known_at"
    ][0]
    assert memory.forget(entity="Zoe").select("change", "subject").rows() == [("erased", "Zoe")]
    assert len(memory.forget(entity="Zoe")) == 0
    for each in (memory, reader, load(place)):
        for known_at in (None, moment):
            with pytest.raises(UserError, match="unknown entity 'Zoe'"):
                stored(each, known_at=known_at)
            assert len(stored(each, subject="Yan", time="2014-10-04", known_at=known_at)) == 1
    assert memory.changes()["subject"].to_list() == ["Yan", "Zoe"]
    memory.remember(**NEW)
    assert len(stored(reader)) == 1


def test_the_only_entity_is_not_erased(place):
    memory = load(place)
    labels = memory.graph.entities.labels
    for label in labels[1:]:
        memory.forget(entity=label)
    with pytest.raises(UserError, match=f"{labels[0]} is the only entity of this memory; delete the memory, or"):
        memory.forget(entity=labels[0])
    assert memory.consolidate()
    assert load(place).graph.entities.labels == labels[:1]


def test_a_memory_that_was_not_loaded_changes_in_main_memory(original):
    memory = Memory.of(load(original)._at().learned)
    moment = memory.remember(**NEW)["known_at"][0]
    memory.forget(subject="Zoe")
    assert stored(memory) == []
    assert len(stored(memory, known_at=moment)) == 1
    assert not journal_path(original).exists()


def test_an_interval_that_is_to_end_later_holds_until_then_for_every_reader(tmp_path):
    rows = [("Ann", "leads", "Rome", "2001", None), ("Bob", "leads", "Oslo", "2001", "2005")]
    table = pl.DataFrame(rows, schema=["subject", "predicate", "object", "start", "end"], orient="row")
    Memory.learn(read(table, grain="year", inclusive_end=True), model="history").save(tmp_path / "m")
    memory, late = load(tmp_path / "m"), load(tmp_path / "m")
    event = memory.forget(subject="Ann", time="2010..")["event"][0]
    for year, held in (("2005", 1), ("2009", 1), ("2010", 0)):
        for each in (memory, load(tmp_path / "m")):
            assert each.know(subject="Ann", as_of=year, include="stored").height == held
    memory.undo(event)
    for each in (memory, late, load(tmp_path / "m")):
        assert each.when("Ann", "leads", "Rome").row(0)[:2] == ("2001", None)
        assert each.graph.times.labels[-1] == "2010"


# -- several processes and threads ------------------------------------------------------------------------------------

WRITER = """
import sys
from recollect import load
memory, name = load(sys.argv[1]), sys.argv[2]
for i in range(int(sys.argv[3])):
    memory.remember(subject=f"{name}{i}", predicate="calls", object="Ann", time="2014-10-03")
print(len(memory.graph.entities.labels))
"""


@pytest.mark.long
def test_processes_that_remember_at_once_lose_nothing(place):
    memory = load(place)
    command = [sys.executable, "-c", WRITER, str(place)]
    writers = [subprocess.Popen([*command, name, "5"], stdout=subprocess.PIPE) for name in ("p", "q", "r")]
    assert [process.wait() for process in writers] == [0, 0, 0]
    for process in writers:
        process.stdout.close()
    changes = memory.changes()
    assert sorted(changes["subject"].to_list()) == sorted(f"{name}{i}" for name in "pqr" for i in range(5))
    assert changes["event"].to_list() == list(range(1, 16))
    assert changes["known_at"].is_sorted()
    assert changes["known_at"].n_unique() == 15
    callers = memory.recall(predicate="calls", object="Ann", time="2014-10-03", include="stored", top=99)
    assert sorted(callers["subject"].to_list()) == sorted(changes["subject"].to_list())


def test_threads_ask_while_another_remembers(place):
    memory = load(place)
    failures: list[str] = []
    is_done = threading.Event()

    def ask() -> None:
        seen = 0
        while not is_done.is_set():
            found = memory.recall(predicate="calls", object="Ann", time="2014-10-03", include="stored", top=99).height
            if found < seen:
                failures.append(f"{found} after {seen}")
            seen = found

    memory.remember(**NEW)
    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for i in range(10):
        memory.remember(**(NEW | {"subject": f"n{i}"}))
    is_done.set()
    for thread in threads:
        thread.join()
    assert failures == []
    assert memory.recall(predicate="calls", object="Ann", time="2014-10-03", include="stored", top=99).height == 11


def test_questions_during_a_batch_are_answered_by_all_of_it_or_by_nothing(place):
    memory = load(place)
    batch = [(f"n{i}", "calls", "Ann", f"2014-11-{i % 28 + 1:02}") for i in range(3000)]
    answers: list[tuple[int, int, int]] = []
    is_done = threading.Event()

    def ask() -> None:
        while not is_done.is_set():
            snapshot = memory.snapshot()
            found = [
                snapshot.know(as_of=day, include="stored", top=9999).height for day in ("2014-11-01", "2014-11-28")
            ]
            answers.append((*found, snapshot.know(as_of="2014-03-05", include="stored").height))

    memory.remember(subject="Ann", predicate="calls", object="Bob", time="2014-11-28")  # so that all times are there
    before = memory.know(as_of="2014-03-05", include="stored").height
    thread = threading.Thread(target=ask)
    thread.start()
    memory.remember(batch)
    is_done.set()
    thread.join()
    assert set(answers) <= {(0, 1, before), (108, 108, before)}
    assert answers == sorted(answers)


# -- saving -----------------------------------------------------------------------------------------------------------


def test_saving_elsewhere_keeps_the_changes_and_leaves_the_journal(place, tmp_path):
    memory = load(place)
    memory.remember(**NEW)
    memory.save(tmp_path / "copy")
    assert not journal_path(tmp_path / "copy").exists()
    assert len(stored(load(tmp_path / "copy"))) == 1
    assert load(tmp_path / "copy").changes().is_empty()


def test_saving_in_its_own_place_absorbs_the_events(place):
    memory, reader = load(place), load(place)
    first = memory.remember(**NEW)["known_at"][0]
    memory.remember(**(NEW | {"subject": "Yan"}))
    memory.save(place, overwrite=True)
    assert memory.about["journal"]["absorbed"] == 2
    memory.remember(**(NEW | {"subject": "Xia"}))
    for each in (memory, reader, load(place)):
        assert each.changes()["event"].to_list() == [1, 2, 3]
        callers = each.recall(predicate="calls", object="Ann", time="2014-10-03", include="stored")
        assert sorted(callers["subject"].to_list()) == ["Xia", "Yan", "Zoe"]
        then = each.recall(predicate="calls", object="Ann", time="2014-10-03", include="stored", known_at=first)
        assert then["subject"].to_list() == ["Zoe"]
        assert "Yan" not in each._at(first).graph.entities.labels


def test_another_memory_in_the_place_starts_the_journal_anew(place, tmp_path):
    memory = load(place)
    memory.remember(**NEW)
    table = pl.DataFrame(ROWS[:30], schema=["subject", "predicate", "object", "time"], orient="row")
    other = Memory.learn(read(table, name="other"), model="history")
    other.save(place, overwrite=True)
    for each in (memory, load(place)):
        assert each.graph.name == "other"
        assert each.changes().is_empty()
        assert "Zoe" not in each.graph.entities.labels
    memory.remember(**NEW)
    assert load(place).changes()["event"].to_list() == [1]


def test_a_save_that_died_before_it_started_the_journal_anew(place, monkeypatch):
    memory = load(place)
    memory.remember(**NEW)
    table = pl.DataFrame(ROWS[:30], schema=["subject", "predicate", "object", "time"], orient="row")
    other = Memory.learn(read(table, name="other"), model="history")
    from recollect.memory.journal.events import Transaction

    with monkeypatch.context() as patched:
        patched.setattr(Transaction, "restart", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            other.save(place, overwrite=True)
    loaded = load(place)
    assert "Zoe" not in loaded.graph.entities.labels
    loaded.remember(**(NEW | {"subject": "Yan"}))
    assert load(place).changes()["subject"].to_list() == ["Yan"]


# -- what can be wrong with a journal ---------------------------------------------------------------------------------


def test_a_journal_of_another_memory_is_refused(place, tmp_path):
    load(place).remember(**NEW)
    table = pl.DataFrame(ROWS[:30], schema=["subject", "predicate", "object", "time"], orient="row")
    Memory.learn(read(table), model="history").save(tmp_path / "other")
    shutil.copyfile(journal_path(place), journal_path(tmp_path / "other"))
    with pytest.raises(UserError, match=r"other.journal is the journal of another memory than .*other; move it away"):
        load(tmp_path / "other")


def test_a_file_that_is_no_journal_is_refused(place):
    path = journal_path(place)
    path.write_text("this is no database, and long enough to have the header of one " * 40)
    with pytest.raises(UserError, match="m.journal: the journal is damaged .*; restore it, or move it away"):
        load(place)
    path.unlink()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE other (x)")
    connection.close()
    with pytest.raises(UserError, match="m.journal: this is no journal of recollect; move it away"):
        load(place)
    path.unlink()
    assert load(place).changes().is_empty()


def test_a_journal_of_a_later_version_is_refused(place):
    load(place).remember(**NEW)
    connection = sqlite3.connect(journal_path(place))
    connection.execute("PRAGMA user_version = 9")
    connection.close()
    with pytest.raises(UserError, match="m.journal: version 9 of a journal; this version of recollect reads 1"):
        load(place)


def test_damaged_rows_are_one_sentence(place):
    load(place).remember(**NEW)
    connection = sqlite3.connect(journal_path(place))
    connection.execute("UPDATE changes SET first = 'never'")
    connection.commit()
    connection.close()
    with pytest.raises(UserError, match="the journal is damaged"):
        load(place)


def test_a_truncated_journal_is_one_sentence(place):
    memory = load(place)
    memory.remember([(f"n{i}", "calls", "Ann", "2014-10-03") for i in range(500)])
    del memory
    path = journal_path(place)
    content = path.read_bytes()
    for size in (len(content) // 2, 5000, 100):
        path.write_bytes(content[:size])
        with pytest.raises(UserError, match="m.journal"):
            load(place)
    path.write_bytes(content)
    assert load(place).changes().height == 500


def test_a_journal_that_another_process_writes_for_long_is_one_sentence(place, monkeypatch):
    load(place).remember(**NEW)
    monkeypatch.setattr("recollect.memory.journal.files.BUSY_SECONDS", 0.05)
    other = sqlite3.connect(journal_path(place), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    memory = load(place)
    with pytest.raises(UserError, match="m.journal is being changed by another process; try again"):
        memory.forget(**NEW)
    assert len(stored(memory)) == 1  # questions wait for nobody
    other.close()
    assert memory.forget(**NEW).height == 1


def test_a_journal_can_be_read_where_nothing_can_be_written(place, tmp_path):
    memory = load(place)
    memory.remember(**NEW)
    with_log = tmp_path / "with log"
    with_log.mkdir()
    for suffix in ("", "-wal"):
        shutil.copyfile(f"{journal_path(place)}{suffix}", with_log / f"m.journal{suffix}")
    del memory
    without_log = tmp_path / "without log"
    without_log.mkdir()
    shutil.copyfile(journal_path(place), without_log / "m.journal")

    for folder in (with_log, without_log):
        files_before = sorted(path.name for path in folder.iterdir())
        connection = open_in_read_only_folder(folder / "m.journal")
        assert connection.execute("SELECT max(event) FROM events").fetchone() == (1,)
        connection.close()
        assert sorted(path.name for path in folder.iterdir()) == files_before


def test_a_journal_that_is_removed_or_replaced_is_noticed(place):
    memory = load(place)
    memory.remember(**NEW)
    for file in place.parent.glob("m.journal*"):
        file.unlink()
    assert memory.changes().is_empty()
    assert "Zoe" not in memory.graph.entities.labels
    memory.remember(**(NEW | {"subject": "Yan"}))
    assert load(place).changes()["subject"].to_list() == ["Yan"]


def test_moments():
    assert parse_moment("2026-03-01", at_end=True).isoformat() == "2026-03-01T23:59:59.999999+00:00"
    assert parse_moment(date(2026, 3, 1), at_end=False).isoformat() == "2026-03-01T00:00:00+00:00"
    with pytest.raises(UserError, match="cannot read 'soon' as a moment; write it like 2026-03-01"):
        parse_moment("soon", at_end=True)


def test_a_journal_is_created_once(place):
    one, two = (Journal.create(journal_path(place), "base", TimeAxis("day", 0, 9)) for _ in range(2))
    assert one.identity == two.identity
    assert one.identity.base == "base"
    with closing(open_reader(journal_path(place), 0x52434C4A, 1)) as connection:
        assert connection.execute("SELECT count(*) FROM events").fetchone() == (1,)
