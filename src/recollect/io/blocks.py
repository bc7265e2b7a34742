"""Delimited files of any size as blocks of whole rows: mapped into memory where plain, unpacked where packed."""

from __future__ import annotations

import glob
import gzip
import lzma
import mmap
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from recollect.errors import UserError
from recollect.io.fields import PADDING

BLOCK_BYTES = 1 << 25
_TAIL_BYTES = 1 << 16
_FIRST_BYTES = 1 << 22  # of a file, to see what it is
_MARK = b"\xef\xbb\xbf"
_MOST_ROW_BYTES = 1 << 26
_PACKED_WRONG = (
    *(zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, lzma.LZMAError),
    *(EOFError, NotImplementedError, RuntimeError),
)
_SUFFIXES = (".tab", ".tsv", ".csv", ".gz", ".zip")  # that a folder is searched for


def event_files(sources: Sequence[str | Path]) -> list[Path]:
    """The files that paths, folders and patterns name, each once, ordered by name."""
    found: dict[Path, Path] = {}
    for source in sources:
        if Path(source).is_dir():
            inside = [path for path in Path(source).iterdir() if path.suffix.lower() in _SUFFIXES]
            matches = [path for path in inside if path.is_file()]
        elif Path(source).exists() and not Path(source).is_file():
            raise UserError(f"{source}: a pipe or a device, which cannot be read twice; write it to a file first")
        elif Path(source).exists():
            matches = [Path(source)]
        else:
            matches = [path for path in map(Path, glob.glob(str(source), recursive=True)) if path.is_file()]  # noqa: PTH207
        if not matches:
            raise UserError(f"{source}: no event files here; give ICEWS .tab or GDELT .CSV files, plain or zipped")
        for path in matches:  # of several names for a file the first in order
            known = found.setdefault(path.resolve(), path)
            found[path.resolve()] = min(known, path, key=_by_name)
    if not found:
        raise UserError("no event files were given; give ICEWS .tab or GDELT .CSV files, plain or zipped")
    return sorted(found.values(), key=_by_name)


def _by_name(path: Path) -> tuple[str, str]:
    return path.name, str(path)


@dataclass(frozen=True)
class Block:
    """Whole rows: bytes that are here already, or a span of a file that the worker maps into memory."""

    path: Path
    advance: int  # bytes of the file that it takes
    data: bytes | None = None
    start: int = 0
    end: int = 0

    def bytes(self) -> tuple[npt.NDArray[np.uint8], int]:
        """The rows with padding behind them, and their size."""
        if self.data is not None:
            return np.frombuffer(self.data, np.uint8), len(self.data) - PADDING
        first = self.start - self.start % mmap.ALLOCATIONGRANULARITY
        with _unpacking(self.path), self.path.open("rb") as file:
            window = mmap.mmap(file.fileno(), self.end + PADDING - first, offset=first, access=mmap.ACCESS_READ)
        return np.frombuffer(window, np.uint8, offset=self.start - first), self.end - self.start


def first_lines(path: Path, count: int = 100) -> Iterator[list[bytes]]:
    """The first lines of a file, or of every member of an archive, without blank ones."""
    with _unpacking(path), path.open("rb") as raw:
        for stream in _members(path, raw):
            lines: list[bytes] = []
            left = _FIRST_BYTES
            while left > 0 and len(lines) < count and (line := stream.readline(left)):
                left -= len(line)
                if line := line.rstrip(b"\r\n"):
                    lines.append(line)
            yield lines


@contextmanager
def _unpacking(path: Path) -> Iterator[None]:
    """What goes wrong with a file or an archive, in one sentence."""
    try:
        yield
    except UserError:
        raise
    except _PACKED_WRONG as error:
        raise UserError(f"{path}: cannot be unpacked ({error}); fetch it again or unpack it yourself") from error
    except ValueError as error:
        raise UserError(f"{path}: changed while it was read ({error}); build again when it is whole") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error})") from error


def _members(path: Path, raw: IO[bytes]) -> Iterator[IO[bytes]]:
    """The content of a file, or of every member of an archive, unpacked."""
    if path.suffix.lower() == ".zip":
        with zipfile.ZipFile(raw) as archive:
            for member in sorted(archive.infolist(), key=lambda info: info.filename):
                hidden = member.filename.startswith("__MACOSX/") or Path(member.filename).name.startswith(".")
                if not member.is_dir() and not hidden:
                    with archive.open(member) as stream:
                        yield stream
    elif path.suffix.lower() == ".gz":
        with gzip.GzipFile(fileobj=raw) as stream:
            yield stream  # type: ignore[misc]
    else:
        yield raw


def blocks(files: Sequence[Path], header: str | None) -> Iterator[Block]:
    """The rows of all files in blocks, without the header lines that begin with `header`."""
    marked = None if header is None else header.encode()
    for path in files:
        packed = path.suffix.lower() in (".zip", ".gz")
        with _unpacking(path):
            yield from _unpacked_blocks(path, marked) if packed else _mapped_blocks(path, marked)


def _mapped_blocks(path: Path, header: bytes | None) -> Iterator[Block]:
    """Spans of whole rows; the last one comes as bytes, for there is nothing behind it to map."""
    size = path.stat().st_size
    with path.open("rb") as file:
        first = file.readline(_MOST_ROW_BYTES)
        start = len(first) if _is_header(first, header) else len(_MARK) * first.startswith(_MARK)
        while start < size:
            end = _last_row_end(file, start, min(size, start + BLOCK_BYTES), path)
            if end + PADDING > size:
                file.seek(start)
                yield Block(path, size - start, _padded(file.read(size - start)))
                return
            yield Block(path, end - start, start=start, end=end)
            start = end


def _last_row_end(file: IO[bytes], start: int, end: int, path: Path) -> int:
    """The end of the last row that ends in [start, end), or of the one that reaches beyond."""
    at = end
    while at > start:
        at = max(start, at - _TAIL_BYTES)
        file.seek(at)
        if (found := file.read(min(_TAIL_BYTES, end - at)).rfind(b"\n")) >= 0:
            return at + found + 1
    file.seek(end)
    rest = file.readline(_MOST_ROW_BYTES)
    if len(rest) == _MOST_ROW_BYTES:
        raise UserError(f"{path}: a row of more than {len(rest):,} bytes from byte {start:,}; wanted event files")
    return end + len(rest)


def _unpacked_blocks(path: Path, header: bytes | None) -> Iterator[Block]:
    size = path.stat().st_size
    with path.open("rb") as raw:
        told = 0  # bytes of the packed file that blocks were said to take
        for stream in _members(path, raw):
            first = stream.readline(_MOST_ROW_BYTES)
            rest = b"" if _is_header(first, header) else first.removeprefix(_MARK)
            while data := stream.read(BLOCK_BYTES):
                if len(rest) > _MOST_ROW_BYTES:
                    raise UserError(f"{path}: a row of more than {len(rest):,} bytes; wanted event files")
                cut = data.rfind(b"\n") + 1
                if cut:
                    taken = min(raw.tell(), size)  # an archive is read out of order
                    yield Block(path, max(0, taken - told), _padded(rest + data[:cut]))
                    told, rest = max(told, taken), b""
                rest += data[cut:]
            if rest:
                yield Block(path, 0, _padded(rest))
        yield Block(path, size - told, _padded(b""))


def _padded(rows: bytes) -> bytes:
    return rows + (b"" if rows.endswith(b"\n") else b"\n") + bytes(PADDING)  # a blank line is no row


def _is_header(line: bytes, header: bytes | None) -> bool:
    return header is not None and line.removeprefix(_MARK).startswith(header + b"\t")
