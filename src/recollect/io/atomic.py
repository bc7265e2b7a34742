"""Replace files and folders in one step, so that a crash leaves the old content or the new, never a part of it.

One process at a time writes a place: it holds the lock `.NAME.lock` and owns every `.NAME.*.tmp` and `.NAME.old` beside
it. New content is written to a temporary sibling, flushed to disk and renamed. A file takes one rename. A folder takes
two: the old one moves to `.NAME.old`, the new one takes its place. If the process dies in between, readers find the old
content by `existing_folder`, and the next writer puts it back.

Readers take no lock. `read_folder` reads again what was replaced while it was read.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import polars as pl
from filelock import FileLock, Timeout
from safetensors import SafetensorError

from recollect.errors import UserError

T = TypeVar("T")

LOCK_SECONDS = 30.0  # how long to wait for another writer of the same place
MAX_READS = 100  # reads of a folder that is replaced during each of them


@contextmanager
def locked(path: Path, *, wait: float = LOCK_SECONDS) -> Iterator[None]:
    """Be the only writer of `path`, and put right what a killed one left; raise UserError if there is another.

    A thread may lock a path that it has locked already. The lock of a process that dies is free at once.
    """
    given, path = path, path.resolve()
    _make_folder(path.parent)
    lock = FileLock(path.with_name(f".{path.name}.lock"), is_singleton=True)
    try:
        lock.acquire(timeout=wait)
    except Timeout as error:
        raise UserError(
            f"{given} is being written by another process; wait until it has finished, or choose another place"
        ) from error
    is_outermost = lock.lock_counter == 1
    try:
        if is_outermost:
            _restore(path)
            _remove_temporaries(path)
        yield
    finally:
        if is_outermost:
            with suppress(OSError):  # Windows removes no open file
                Path(lock.lock_file).unlink()
        lock.release()


@contextmanager
def replaced_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write; on exit it replaces the file `path`, or is removed if there was an error.

    Missing parent folders are created. If `path` is a symbolic link, its target is replaced. The temporary path is in a
    folder of its own, so that what a library leaves next to it when it is killed is removed with it.
    """
    path = path.resolve()
    with locked(path):
        folder = _temporary_sibling(path)
        folder.mkdir()
        temporary = folder / path.name
        try:
            yield temporary
            _flush_file(temporary)
            os.replace(temporary, path)
            flush_folder(path.parent)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def replaced_folder(path: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Yield a temporary folder to fill; on exit it replaces the folder `path`, or is removed if there was an error.

    Raise UserError if `path` exists, unless `overwrite` is set. Missing parent folders are created. If `path` is a
    symbolic link, its target is replaced.
    """
    given, path = path, path.resolve()
    with locked(path):
        if path.exists() and not overwrite:
            raise UserError(f"{given} exists; choose another place or overwrite it (overwrite=True, --force)")
        temporary = _temporary_sibling(path)
        temporary.mkdir()
        try:
            yield temporary
            _flush_tree(temporary)
            if path.exists():
                path.rename(_old_folder(path))
            temporary.rename(path)
            flush_folder(path.parent)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
            _restore(path)


def remove_file(path: Path) -> None:
    """Delete a file, if there is one, and the temporary files that killed processes left beside it."""
    with locked(path):
        path.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Replace the file `path` by `text` in UTF-8."""
    with replaced_file(path) as temporary:
        temporary.write_bytes(text.encode("utf-8"))


@contextmanager
def explained_errors(path: Path, advice: str) -> Iterator[None]:
    """Raise UserError, with advice, for what the system and the libraries raise if `path` cannot be written."""
    try:
        yield
    except (OSError, SafetensorError, pl.exceptions.PolarsError) as error:
        reason = getattr(error, "strerror", None) or str(error).partition("\n")[0]
        raise UserError(f"{path}: cannot be written ({reason}); {advice}") from error


def existing_folder(path: Path) -> Path:
    """Return `path`, or the old folder that an interrupted `replaced_folder` left in its place."""
    try:
        if path.exists() or not path.name:
            return path
        old = _old_folder(path.resolve())
        return old if old.is_dir() else path
    except (OSError, ValueError):  # a name that no file can have
        return path


def read_folder(path: Path, read: Callable[[Path], T]) -> T:
    """Return `read(folder)`; it is called again if another process replaced the folder meanwhile."""
    for _ in range(MAX_READS - 1):
        before = folder_identity(path)
        try:
            found = read(existing_folder(path))
        except Exception:
            if folder_identity(path) == before:
                raise
        else:
            if folder_identity(path) == before:
                return found
    return read(existing_folder(path))


def folder_identity(path: Path) -> tuple[int, ...] | None:
    """Return numbers that change when `path` is renamed or replaced; None if there is nothing."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns


def _remove_temporaries(path: Path) -> None:
    """Remove the temporary siblings of `path`, which only killed processes leave."""
    pattern = re.compile(rf"\.{re.escape(path.name)}(?:\.[0-9]{{1,9}}-[0-9a-f]+)?\.tmp")  # 0.1: without process id
    for sibling in path.parent.glob(".*.tmp"):
        if not pattern.fullmatch(sibling.name):
            continue
        if sibling.is_dir() and not sibling.is_symlink():
            shutil.rmtree(sibling, ignore_errors=True)
        else:
            sibling.unlink(missing_ok=True)


def _temporary_sibling(path: Path) -> Path:
    """Return a path in the same folder that no other process or thread uses."""
    return path.with_name(f".{path.name}.{os.getpid()}-{uuid.uuid4().hex[:8]}.tmp")


def _old_folder(path: Path) -> Path:
    """Return the path to which the old folder is moved while it is replaced."""
    return path.with_name(f".{path.name}.old")


def _restore(path: Path) -> None:
    """Put the old folder back if no new one took its place; otherwise delete it."""
    old = _old_folder(path)
    if old.exists() and not path.exists():
        old.rename(path)
        flush_folder(path.parent)
    shutil.rmtree(old, ignore_errors=True)


def _make_folder(folder: Path) -> None:
    """Create a folder with its parents, and wait until their entries are on disk."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    flush_folder(folder.parent)


def _flush_tree(folder: Path) -> None:
    """Wait until a folder and everything below it is on disk."""
    for path in (*folder.rglob("*"), folder):
        if path.is_dir():
            flush_folder(path)
        else:
            _flush_file(path)


def _flush_file(file: Path) -> None:
    """Wait until the content of a file is on disk. Windows flushes only handles that are open for writing."""
    with file.open("r+b") as opened:
        os.fsync(opened.fileno())


def flush_folder(folder: Path) -> None:
    """Wait until the entries of a folder are on disk, where the platform can: Windows opens no folders."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except PermissionError:
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # what some network file systems answer
            raise
    finally:
        os.close(handle)
