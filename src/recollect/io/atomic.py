"""Replace files and folders in one step, so that a crash leaves the old content or the new, never a part of it.

New content is written to a temporary sibling, flushed to disk and renamed. A file takes one rename. A folder takes two:
the old one moves to `.NAME.old`, the new one takes its place. If the process dies in between, `existing_folder` finds
the old content and the next replacement restores it.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from recollect.errors import UserError


@contextmanager
def replaced_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write; on exit it replaces the file `path`, or is removed if there was an error.

    Missing parent folders are created. If `path` is a symbolic link, its target is replaced.
    """
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_temporaries(path)
    temporary = _temporary_sibling(path)
    try:
        yield temporary
        _flush_file(temporary)
        os.replace(temporary, path)
        _flush_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def replaced_folder(path: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Yield a temporary folder to fill; on exit it replaces the folder `path`, or is removed if there was an error.

    Raise UserError if `path` exists, unless `overwrite` is set. Missing parent folders are created. If `path` is a
    symbolic link, its target is replaced.
    """
    given, path = path, path.resolve()
    _restore(path)
    if path.exists() and not overwrite:
        raise UserError(f"{given} exists; choose another place or overwrite it (overwrite=True, --force)")
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_temporaries(path)
    temporary, old = _temporary_sibling(path), _old_folder(path)
    temporary.mkdir()
    try:
        yield temporary
        _flush_tree(temporary)
        if path.exists():
            path.rename(old)
        temporary.rename(path)
        _flush_folder(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        _restore(path)


def existing_folder(path: Path) -> Path:
    """Return `path`, or the old folder that an interrupted `replaced_folder` left in its place."""
    if path.exists() or not path.name:
        return path
    old = _old_folder(path)
    return old if old.is_dir() else path


def write_text(path: Path, text: str) -> None:
    """Replace the file `path` by `text` in UTF-8."""
    with replaced_file(path) as temporary:
        temporary.write_bytes(text.encode("utf-8"))


def remove_temporaries(path: Path) -> None:
    """Remove temporary siblings of `path` that were left by processes that no longer run."""
    pattern = re.compile(rf"\.{re.escape(path.name)}(?:\.([0-9]{{1,9}})-[0-9a-f]+)?\.tmp")  # 0.1: without process id
    for sibling in path.parent.glob(".*.tmp"):
        match = pattern.fullmatch(sibling.name)
        if match is None or (match[1] and _is_in_use(sibling, int(match[1]))):
            continue
        if sibling.is_dir():
            shutil.rmtree(sibling, ignore_errors=True)
        else:
            sibling.unlink(missing_ok=True)


def _is_in_use(temporary: Path, pid: int) -> bool:
    """Return whether process `pid` runs and is old enough to have written `temporary`; process ids are reused."""
    try:
        return psutil.Process(pid).create_time() <= temporary.stat().st_mtime
    except (psutil.NoSuchProcess, FileNotFoundError):
        return False
    except psutil.AccessDenied:
        return True


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
    shutil.rmtree(old, ignore_errors=True)


def _flush_tree(folder: Path) -> None:
    """Wait until a folder and everything below it is on disk."""
    for path in (*folder.rglob("*"), folder):
        if path.is_dir():
            _flush_folder(path)
        else:
            _flush_file(path)


def _flush_file(file: Path) -> None:
    """Wait until the content of a file is on disk. Windows flushes only handles that are open for writing."""
    with file.open("r+b") as opened:
        os.fsync(opened.fileno())


def _flush_folder(folder: Path) -> None:
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
