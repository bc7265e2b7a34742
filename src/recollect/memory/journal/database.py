"""The journal of a memory: every change with its transaction time, in an SQLite database that is a sibling of the bundle.

The journal of `world.memory` is `world.memory.journal`. A change is appended inside one transaction that has read all
changes before it, and is on disk when the transaction ends (write-ahead log, synchronous=FULL). Readers take no lock.
"""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import RLock
from typing import Any
from urllib.parse import quote

import polars as pl

from recollect.errors import UserError
from recollect.io.atomic import flush_folder
from recollect.memory.changes import SCHEMA, Delta

APPLICATION, VERSION = 0x52434C4A, 1  # of the file: recollect's journal, and the version of its tables
BUSY_SECONDS = 60.0  # how long to wait for another process that writes
SUFFIX = ".journal"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ROLES = ("entity", "predicate", "erased")  # of the labels of an event
_TABLES = """
CREATE TABLE journal (id TEXT NOT NULL, base TEXT NOT NULL, step INTEGER NOT NULL);
CREATE TABLE events (event INTEGER PRIMARY KEY, known_at INTEGER NOT NULL, first INTEGER, last INTEGER);
CREATE TABLE changes (event INTEGER NOT NULL, change TEXT NOT NULL, subject TEXT NOT NULL, predicate TEXT NOT NULL,
                      object TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER);
CREATE TABLE labels (event INTEGER NOT NULL, role TEXT NOT NULL, label TEXT NOT NULL);
CREATE TABLE files (name TEXT NOT NULL, digest TEXT NOT NULL, event INTEGER, PRIMARY KEY (name, digest));
CREATE INDEX changes_of_events ON changes (event);
CREATE INDEX labels_of_events ON labels (event);
"""


@dataclass(frozen=True, eq=False)
class Event:
    """One change of a memory: its number, from 1, its transaction time, and what it did."""

    number: int
    known_at: datetime  # in UTC, later than that of all events before
    delta: Delta


class Journal:
    """The changes of one memory, in order. One thread at a time uses it."""

    def __init__(self, writer: sqlite3.Connection, reader: sqlite3.Connection, path: Path | None) -> None:
        self._writer, self._reader, self.path = writer, reader, path
        self._lock = RLock()
        self._version = -1  # of the content that was read last
        self._identity = None if path is None else _identity(path)
        self.id, self.base, self.step = "", "", 1
        with self._explained():
            row = reader.execute("SELECT id, base, step FROM journal").fetchone()
            if row is not None:
                self.id, self.base, self.step = row

    @classmethod
    def in_memory(cls, base: str, step: int) -> Journal:
        """Return the journal of a memory that has no place on disk."""
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        _create_tables(connection, base, step)
        return cls(connection, connection, None)

    @classmethod
    def open(cls, path: Path) -> Journal:
        """Return the journal at a path, which exists."""
        with _explained(path):
            writer, reader = _connect(path), _connect(path)
            try:
                _check_kind(reader, path)
                return cls(writer, reader, path)
            except BaseException:
                writer.close()
                reader.close()
                raise

    @classmethod
    def create(cls, path: Path, base: str, step: int) -> Journal:
        """Return the journal at a path, which is created if there is none; `base` is the fingerprint of the graph."""
        with _explained(path):
            if not path.exists() or not path.stat().st_size:
                connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
                try:
                    connection.execute("PRAGMA journal_mode=WAL")
                    connection.execute("PRAGMA synchronous=FULL")
                    _create_tables(connection, base, step)
                finally:
                    connection.close()
                flush_folder(path.parent)
        return cls.open(path)
