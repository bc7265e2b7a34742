"""The journal of a memory: every change with its transaction time, in an SQLite file that is a sibling of the bundle.

The journal of `world.memory` is `world.memory.journal`. A change is appended in one transaction that has read all
changes before it, and is on disk when that ends (write-ahead log, synchronous=FULL). Readers wait for nobody.
"""

from __future__ import annotations

import sqlite3
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import RLock

from recollect.graph.times import TimeAxis
from recollect.io.atomic import explained_errors, locked, replaced_file
from recollect.memory.journal.events import APPLICATION, TABLES, VERSION, Events, Transaction
from recollect.memory.journal.files import empty_log, explained, file_identity, open_reader, open_writer

SUFFIX = ".journal"


def journal_path(memory: Path) -> Path:
    """Return the path of the journal of a saved memory."""
    resolved = memory.resolve()
    return resolved.with_name(resolved.name + SUFFIX)


class Journal(Events):
    """The committed events of one memory, and the transactions that append to them."""

    def __init__(self, connection: sqlite3.Connection, path: Path | None = None) -> None:
        """Without a `path`, the connection is to a database in main memory."""
        super().__init__(connection, RLock(), path)
        self._writer = Transaction(connection, self.lock, None) if path is None else None
        self._file = None if path is None else file_identity(path)
        weakref.finalize(self, _close, connection)

    @classmethod
    def open(cls, path: Path) -> Journal:
        """Return the journal at a path."""
        return cls(open_reader(path, APPLICATION, VERSION), path)

    @classmethod
    def in_main_memory(cls, axis: TimeAxis) -> Journal:
        """Return the journal of a memory that is not saved, whose graph has these times."""
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        connection.executescript(TABLES)
        journal = cls(connection)
        with journal.writing() as transaction:
            transaction.restart("", axis)
        return journal

    @classmethod
    def create(cls, path: Path, base: str, axis: TimeAxis, identity: str | None = None) -> Journal:
        """Return the journal at a path, started where there is none: `base` fingerprints a graph with these times."""
        with explained_errors(path, "choose a place that can be written"), explained(path), locked(path):
            if not path.exists():
                with replaced_file(path) as temporary:
                    connection = sqlite3.connect(temporary, isolation_level=None)
                    try:
                        connection.execute("PRAGMA journal_mode=MEMORY")  # what is not in place yet needs no log
                        connection.executescript(TABLES)
                        Transaction(connection, RLock(), temporary).restart(base, axis, identity)
                    finally:
                        connection.close()
        return cls.open(path)

    def is_in_place(self) -> bool:
        """Return whether the file is still the one that was opened."""
        return self.path is None or file_identity(self.path) == self._file

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        """Yield the transaction of the only writer; it is undone if there is an error."""
        if self._writer is None:
            assert self.path is not None
            with explained(self.path):
                self._writer = Transaction(open_writer(self.path), RLock(), self.path)
            weakref.finalize(self, _close, self._writer.connection)
        with self._writer.explained() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._writer
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    def purge(self, until: int) -> None:
        """Remove the labels that events until a number erased, and every trace of them in the files."""
        with self.writing() as transaction:
            transaction.remove_erased(until)
        with transaction.explained() as connection:
            connection.execute("VACUUM")
            empty_log(connection)


def _close(connection: sqlite3.Connection) -> None:
    with suppress(sqlite3.Error):
        connection.close()
