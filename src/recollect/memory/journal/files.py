"""Open the SQLite file of a journal, and explain what can go wrong with it."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from recollect.errors import UserError

BUSY_SECONDS = 60.0  # how long to wait for another process that writes
_WAL = "-wal"


def open_writer(path: Path) -> sqlite3.Connection:
    """Return a connection whose commits are on disk when they return; deleted content is overwritten."""
    connection = _connect(path, "mode=rw")
    try:
        _switch_to_wal(connection)
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA secure_delete=ON")
    except BaseException:
        connection.close()
        raise
    return connection


def open_reader(path: Path, application: int, version: int) -> sqlite3.Connection:
    """Return a connection for reading, also where nothing can be written; raise UserError if it is no journal."""
    with explained(path):
        connection = _connect(path, "mode=rw")
        try:
            found, number = _numbers(connection)
        except sqlite3.OperationalError:
            connection = open_in_read_only_folder(path)
            found, number = _numbers(connection)
    if found != application or number != version:
        connection.close()
        if found != application:
            raise UserError(f"{path}: this is no journal of recollect; move it away")
        raise UserError(f"{path}: version {number} of a journal; this version of recollect reads {version}: update it")
    return connection


def _numbers(connection: sqlite3.Connection) -> tuple[int, int]:
    """Return the application and the version that a database names; close it if it cannot be read."""
    try:
        application, version = (
            connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
        )
    except BaseException:
        connection.close()
        raise
    return application, version


def open_in_read_only_folder(path: Path) -> sqlite3.Connection:
    """Return a connection to a journal whose sidecar files cannot be created: to itself, or to a copy with its log."""
    log = path.with_name(path.name + _WAL)
    if not log.exists() or not log.stat().st_size:
        return _connect(path, "mode=ro&immutable=1")
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        shutil.copyfile(path, copy)
        shutil.copyfile(log, copy.with_name(copy.name + _WAL))
        inside = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        try:
            with closing(_connect(copy, "mode=rw")) as copied:
                copied.backup(inside)
        except BaseException:
            inside.close()
            raise
        return inside


def _connect(path: Path, options: str) -> sqlite3.Connection:
    address = f"file:{quote(str(path))}?{options}"
    return sqlite3.connect(
        address, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=64
    )


def _switch_to_wal(connection: sqlite3.Connection) -> None:
    """Use a write-ahead log, which takes a moment in which no other process uses the file."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def empty_log(connection: sqlite3.Connection) -> None:
    """Move the write-ahead log into the database and cut it to no bytes, in a moment in which nobody reads it."""
    deadline = time.monotonic() + BUSY_SECONDS
    while connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
        if time.monotonic() > deadline:
            raise sqlite3.OperationalError("the log is locked")
        time.sleep(0.01)


@contextmanager
def explained(path: Path | None) -> Iterator[None]:
    """Raise UserError, in one sentence, for what SQLite raises about a file."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if "locked" in str(error) or "busy" in str(error):
            raise UserError(f"{path} is being changed by another process; try again when it has finished") from error
        raise UserError(f"{path}: cannot be used ({error}); nothing was changed") from error
    except sqlite3.DatabaseError as error:
        raise UserError(
            f"{path}: the journal is damaged ({error}); restore it, or move it away to use the memory without its "
            "changes"
        ) from error


def file_identity(path: Path) -> tuple[int, int] | None:
    """Return numbers that tell a file from one that took its place; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
