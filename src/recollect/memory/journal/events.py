"""Read the events of a journal, and append to them in a transaction."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import RLock
from typing import Any

import polars as pl

from recollect.errors import UserError
from recollect.graph.times import TimeAxis
from recollect.memory.journal.changes import SCHEMA, Delta, net
from recollect.memory.journal.files import explained

APPLICATION, VERSION = 0x52434C4A, 1  # of the file: a journal of recollect, and the version of its tables
TABLES = f"""
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {VERSION};
CREATE TABLE journal (id TEXT NOT NULL, base TEXT NOT NULL, next TEXT NOT NULL);
CREATE TABLE events (event INTEGER PRIMARY KEY, known_at INTEGER NOT NULL, first INTEGER, last INTEGER);
CREATE TABLE changes (event INTEGER NOT NULL, change TEXT NOT NULL, subject TEXT NOT NULL, predicate TEXT NOT NULL,
                      object TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER);
CREATE TABLE labels (event INTEGER NOT NULL, role TEXT NOT NULL, label TEXT NOT NULL);
CREATE TABLE files (name TEXT NOT NULL, digest TEXT NOT NULL, PRIMARY KEY (name, digest));
CREATE INDEX changes_of_events ON changes (event);
CREATE INDEX labels_of_events ON labels (event);
"""
ENTITY, PREDICATE, ERASED = "entity", "predicate", "erased"  # roles of the labels of an event
CHANGES = pl.Schema([("event", pl.Int64), ("known_at", pl.Int64), *SCHEMA.items()])
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ALWAYS = 2**63 - 1


@dataclass(frozen=True)
class Identity:
    """Which memory a journal belongs to."""

    id: str
    base: str  # the fingerprint of the graph to which the first event was applied
    next: str  # that of a memory that is about to be saved in its place, else ""


class Events:
    """The events of a journal as one connection sees them, numbered from 1; event 0 stands for what was there before.

    The bins of an event are the first and the last that it has on the axis, even if their facts are removed later.
    """

    def __init__(self, connection: sqlite3.Connection, lock: RLock, path: Path | None) -> None:
        self.connection, self.lock, self.path = connection, lock, path

    @contextmanager
    def explained(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection to one thread at a time; raise UserError for errors of the database."""
        with self.lock, explained(self.path):
            yield self.connection

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """See one state of the journal throughout."""
        with self.explained() as connection:
            if connection.in_transaction:
                yield
                return
            connection.execute("BEGIN")
            try:
                yield
            finally:
                connection.execute("COMMIT")

    def version(self) -> int:
        """Return a number that changes when another connection changes the journal."""
        with self.explained() as connection:
            return int(connection.execute("PRAGMA data_version").fetchone()[0])

    @property
    def identity(self) -> Identity:
        """Which memory the journal belongs to."""
        with self.explained() as connection:
            return Identity(*connection.execute("SELECT id, base, next FROM journal").fetchone())

    def last(self, known_at: datetime | None = None) -> int:
        """Return the number of the last event, or of the last until a moment; 0 if there is none."""
        moment = _ALWAYS if known_at is None else _microseconds(known_at)
        with self.explained() as connection:
            query = "SELECT event FROM events WHERE known_at <= ? ORDER BY event DESC LIMIT 1"
            found = connection.execute(query, (moment,)).fetchone()
            return 0 if found is None else int(found[0])

    def between(self, after: int, until: int, step: int) -> Delta:
        """Return the effect of the events after one number until another, together."""
        limits, chosen = (after, until), "WHERE event > ? AND event <= ?"
        with self.explained() as connection:
            columns = ", ".join(SCHEMA)
            rows = connection.execute(f"SELECT {columns} FROM changes {chosen} ORDER BY event, rowid", limits)
            frame = net(_frame(rows, SCHEMA), step)
            labels = connection.execute(f"SELECT role, label FROM labels {chosen} ORDER BY event, rowid", limits)
            of_role: dict[str, dict[str, None]] = {ENTITY: {}, PREDICATE: {}, ERASED: {}}
            for role, label in labels:
                of_role[role][label] = None
        erased, entities, predicates = (tuple(of_role[role]) for role in (ERASED, ENTITY, PREDICATE))
        return Delta(frame, erased, entities, predicates, self.reach(until), step)

    def reach(self, event: int) -> tuple[int, int] | None:
        """Return the first and last bin of the time axis after an event."""
        with self.explained() as connection:
            query = "SELECT min(first), max(last) FROM events WHERE event <= ?"
            first, last = connection.execute(query, (event,)).fetchone()
        return None if first is None else (first, last)

    def erased_after(self, event: int) -> tuple[str, ...]:
        """Return the labels that were erased after an event."""
        with self.explained() as connection:
            query = "SELECT DISTINCT label FROM labels WHERE role = ? AND event > ?"
            return tuple(label for (label,) in connection.execute(query, (ERASED, event)))

    def changes(self, since: datetime | None = None, until: datetime | None = None, after: int = 0) -> pl.DataFrame:
        """Return all changes of events in [since, until], with `known_at` in UTC; an erased entity is a subject."""
        low = 0 if since is None else _microseconds(since)
        high = _ALWAYS if until is None else _microseconds(until)
        with self.explained() as connection:
            rows = connection.execute(
                "SELECT event, known_at, change, subject, predicate, object, c.first, c.last, c.rowid AS position "
                "FROM events JOIN changes AS c USING (event) WHERE known_at BETWEEN ?1 AND ?2 AND event > ?3 "
                "UNION ALL SELECT event, known_at, role, label, NULL, NULL, NULL, NULL, 0 "
                "FROM events JOIN labels USING (event) WHERE known_at BETWEEN ?1 AND ?2 AND event > ?3 AND role = ?4 "
                "ORDER BY event, position", (low, high, after, ERASED),
            )  # fmt: skip
            frame = _frame((row[:-1] for row in rows), CHANGES)
        return frame.with_columns(pl.from_epoch("known_at", "us").dt.replace_time_zone("UTC"))

    def has_file(self, name: str, digest: str) -> bool:
        """Return whether the facts of a file were remembered."""
        with self.explained() as connection:
            query = "SELECT 1 FROM files WHERE name = ? AND digest = ?"
            return connection.execute(query, (name, digest)).fetchone() is not None

    def has_name(self, name: str) -> bool:
        """Return whether a file of this name was remembered, whatever its content."""
        with self.explained() as connection:
            return connection.execute("SELECT 1 FROM files WHERE name = ?", (name,)).fetchone() is not None


class Transaction(Events):
    """The events inside a transaction of the only writer: what is appended is on disk when it ends."""

    def append(self, delta: Delta, after: int = 0) -> int:
        """Append an event and return its number, which is more than `after`.

        What is erased is erased from all events before, too.
        """
        number, before = self.connection.execute("SELECT max(event), max(known_at) FROM events").fetchone()
        event = max(number or 0, after) + 1
        known_at = max(_microseconds(datetime.now(UTC)), (before or 0) + 1)
        for label in delta.erased:
            self.connection.execute("DELETE FROM changes WHERE subject = ?1 OR object = ?1", (label,))
            self.connection.execute("DELETE FROM labels WHERE label = ? AND role != ?", (label, PREDICATE))
        first, last = delta.reach or (None, None)
        self.connection.execute("INSERT INTO events VALUES (?, ?, ?, ?)", (event, known_at, first, last))
        self.connection.executemany(
            f"INSERT INTO changes VALUES ({event}, ?, ?, ?, ?, ?, ?)", delta.frame.select(SCHEMA.names()).iter_rows()
        )
        labels = {ERASED: delta.erased, ENTITY: delta.entities, PREDICATE: delta.predicates}
        pairs = [(event, role, label) for role, each in labels.items() for label in each]
        self.connection.executemany("INSERT INTO labels VALUES (?, ?, ?)", pairs)
        return event

    def add_file(self, name: str, digest: str) -> None:
        """Record that the facts of a file were remembered."""
        self.connection.execute("INSERT OR IGNORE INTO files VALUES (?, ?)", (name, digest))

    def announce(self, fingerprint: str) -> None:
        """Record that the memory is about to be replaced by one of another graph, to which no event belongs."""
        self.connection.execute("UPDATE journal SET next = ?", (fingerprint,))

    def restart(self, base: str, axis: TimeAxis, identity: str | None = None) -> None:
        """Forget all events: the journal then belongs to a memory whose graph has this fingerprint and these times."""
        for table in ("journal", "events", "changes", "labels", "files"):
            self.connection.execute(f"DELETE FROM {table}")
        self.connection.execute("INSERT INTO journal VALUES (?, ?, '')", (identity or uuid.uuid4().hex, base))
        last = axis.first + (len(axis) - 1) * axis.step
        self.connection.execute("INSERT INTO events VALUES (0, 0, ?, ?)", (axis.first, last))

    def remove_erased(self, until: int) -> None:
        """Remove the labels that events until a number erased."""
        self.connection.execute("DELETE FROM labels WHERE role = ? AND event <= ?", (ERASED, until))


def _frame(rows: Iterable[tuple[Any, ...]], schema: pl.Schema) -> pl.DataFrame:
    """Return rows as a table; raise UserError if one of them is not of its types."""
    try:
        return pl.DataFrame(list(rows), schema=schema, orient="row", strict=True)
    except (pl.exceptions.PolarsError, TypeError, OverflowError) as error:
        raise UserError(f"the journal is damaged ({str(error).partition(chr(10))[0]}); restore it") from error


def _microseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)
