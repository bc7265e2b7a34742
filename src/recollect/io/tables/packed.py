"""Unpack compressed files into temporary ones, and refuse what would fill the memory."""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
import shutil
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from recollect.errors import UserError
from recollect.graph.free_memory import free_memory
from recollect.io.merging import check_memory

MEMORY_SHARE = 4  # reading takes up to so many bytes per byte of an unpacked file
MAX_RATIO = 500  # unpacked bytes per packed one, after the first MAX_START
MAX_START = 1 << 26
_CHUNK = 1 << 20
_CELL_BYTES = 100  # of a sheet, which is loaded with all cells between the first and the last
_MAGIC = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PK\x03\x04": "zip",
}
_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    OSError,
    RuntimeError,
    NotImplementedError,
    ValueError,
)
_CELL = re.compile(rb'<(?:\w+:)?(?:c|row) [^>]{0,200}?\br="([A-Z]{0,3})([0-9]{1,9})"')
_OVERLAP = 256  # bytes of a chunk that the next one begins with, more than a match has


def packing(head: bytes) -> str | None:
    """Return how a file that begins so is compressed; None if it is not."""
    return next((how for magic, how in _MAGIC.items() if head.startswith(magic)), None)


@contextmanager
def unpacked(path: Path, how: str, name: str) -> Iterator[tuple[Path, str]]:
    """Yield a temporary file with the content of a compressed one, and the suffix of the name inside, if it has one."""
    with tempfile.TemporaryDirectory() as folder:
        content = Path(folder) / "content"
        try:
            with _opened(path, how, name) as (stream, inside):
                copy_bounded(stream, content, path.stat().st_size, name)
        except _ERRORS as error:
            if isinstance(error, UserError):
                raise
            raise UserError(f"{name}: cannot be unpacked as {how} ({error}); pack it again") from error
        if content.stat().st_size == 0:
            raise UserError(f"{name}: the file inside is empty; wanted rows of facts")
        yield content, Path(inside).suffix


@contextmanager
def _opened(path: Path, how: str, name: str) -> Iterator[tuple[IO[bytes], str]]:
    """Yield the unpacked stream of a file, and the name of the file inside an archive."""
    if how == "zip":
        with zipfile.ZipFile(path) as archive:
            members = [member for member in archive.infolist() if not member.is_dir()]
            members = [member for member in members if not member.filename.startswith("__MACOSX/")]
            if len(members) != 1:
                raise UserError(
                    f"{name}: {len(members)} files inside; give an archive of one, or unpack it to a folder"
                )
            with archive.open(members[0]) as stream:
                yield stream, members[0].filename
        return
    openers: dict[str, Any] = {"gzip": gzip.open, "bzip2": bz2.open, "xz": lzma.open}
    with openers[how](path) if how in openers else pa.input_stream(str(path), compression=how) as stream:
        yield stream, ""


def copy_bounded(stream: IO[bytes], to: Path, packed_bytes: int, name: str) -> None:
    """Copy a stream to a file; raise UserError as soon as it is more than memory could hold, or absurdly long."""
    limit = free_memory() // MEMORY_SHARE
    absurd = MAX_START + MAX_RATIO * packed_bytes
    size = 0
    with to.open("wb") as file:
        while chunk := stream.read(_CHUNK):
            size += len(chunk)
            if size > min(limit, absurd):
                raise UserError(
                    f"{name}: {packed_bytes:,} bytes unpack to more than {size:,}, and at most {min(limit, absurd):,} "
                    "are read; give a smaller file, or unpack it if it is what it should be"
                )
            file.write(chunk)


@contextmanager
def standard_input() -> Iterator[Path]:
    """Yield a temporary file with what standard input holds."""
    with tempfile.TemporaryDirectory() as folder:
        content = Path(folder) / "stdin"
        stream = getattr(sys.stdin, "buffer", None)
        if stream is None:
            raise UserError("standard input has no bytes to read; give a path")
        copy_bounded(stream, content, shutil.disk_usage(folder).free, "standard input")
        if content.stat().st_size == 0:
            raise UserError("standard input is empty; wanted rows of facts")
        yield content


def check_sheet_sizes(path: Path, name: str) -> None:
    """Raise UserError for an Excel file that would fill the memory: its parts when unpacked, or far apart cells."""
    size = path.stat().st_size
    try:
        with zipfile.ZipFile(path) as archive:
            total = 0
            for member in archive.infolist():
                with archive.open(member) as stream:
                    total += _scan_part(stream, member.filename, size, name)
                check_memory(total, MEMORY_SHARE, f"{name}: the number of bytes unpacked is")
    except _ERRORS as error:
        if isinstance(error, UserError):
            raise
        raise UserError(
            f"{name}: not a readable Excel file ({error}); save it again, or save the sheet as CSV"
        ) from error


def _scan_part(stream: IO[bytes], part: str, packed_bytes: int, name: str) -> int:
    """Return the unpacked bytes of a part of a workbook; check the extent of the cells if it is a sheet."""
    size, last_row, last_column = 0, 0, 0
    rest = b""
    is_sheet = "sheets/" in part and part.endswith(".xml")
    while chunk := stream.read(_CHUNK):
        size += len(chunk)
        if size > MAX_START + MAX_RATIO * packed_bytes:
            raise UserError(f"{name}: {part} unpacks to more than {size:,} bytes; give a smaller file")
        if is_sheet:
            for letters, digits in set(_CELL.findall(rest + chunk)):
                column = 0
                for letter in letters:
                    column = column * 26 + letter - 64
                last_row, last_column = max(last_row, int(digits)), max(last_column, column)
            rest = chunk[-_OVERLAP:]
    check_memory(last_row * max(1, last_column), _CELL_BYTES, f"{name}: the number of cells of {part} is")
    return size
