"""Find, recognise and unpack raw event files."""

from __future__ import annotations

import glob
import gzip
import lzma
import shutil
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO

from recollect.errors import UserError

_SUFFIXES = (".tab", ".tsv", ".csv", ".gz", ".zip")  # files that are taken from a folder
_SAMPLE_LINES = 100  # lines of a file that are searched for its format
_SAMPLE_BYTES = 1 << 16  # of a line
_UNPACK_ERRORS = (zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError)


@dataclass(frozen=True)
class EventFormat:
    """Column positions and row widths of a publisher's raw event files (tab-separated text)."""

    name: str
    widths: tuple[int, ...]  # allowed numbers of columns
    header: str | None  # first cell of the header line, if there is one
    date: int
    code: int  # CAMEO code
    root: int | None  # CAMEO root code
    text: int | None  # name of the event
    actors: Mapping[str, tuple[int, int]]  # kind of actor -> columns of subject and object
    event: int = 0  # event id


ICEWS = EventFormat(
    "ICEWS",
    (20,),
    "Event ID",
    date=1,
    code=6,
    root=None,
    text=5,
    actors={"name": (2, 8), "country": (4, 10), "sector": (3, 9)},
)
GDELT_1 = EventFormat(
    "GDELT",
    (57, 58),  # 57 before April 2013: no addresses
    None,
    date=1,
    code=26,
    root=28,
    text=None,
    actors={"name": (6, 16), "country": (7, 17), "sector": (12, 22)},
)
GDELT_2 = replace(GDELT_1, widths=(61,))  # the first thirty columns are those of version 1


def event_files(sources: Sequence[str | Path]) -> list[Path]:
    """Return the files named by paths, folders and glob patterns, each once, sorted by file name."""
    found: dict[Path, Path] = {}
    for source in sources:
        matches = _matches(source)
        if not matches:
            raise UserError(f"{source}: no event files here; give ICEWS .tab or GDELT .CSV files, plain or zipped")
        for path in matches:  # of several names of one file, keep the first in order
            found[path.resolve()] = min(found.get(path.resolve(), path), path, key=_by_name)
    if not found:
        raise UserError("no event files were given; give ICEWS .tab or GDELT .CSV files, plain or zipped")
    return sorted(found.values(), key=_by_name)


def _matches(source: str | Path) -> list[Path]:
    """Return the files that a path, folder or glob pattern names; partitions, like year=2012, belong to a folder."""
    path = Path(source)
    if path.is_dir():
        files = [inside for inside in path.iterdir() if inside.suffix.lower() in _SUFFIXES and inside.is_file()]
        partitions = [inside for inside in path.iterdir() if "=" in inside.name and inside.is_dir()]
        return files + [file for partition in partitions for file in _matches(partition)]
    if path.is_file():
        return [path]
    if path.exists():
        raise UserError(f"{source}: a pipe or a device, which cannot be read twice; write it to a file first")
    return [Path(match) for match in glob.glob(str(source), recursive=True) if Path(match).is_file()]  # noqa: PTH207


def _by_name(path: Path) -> tuple[str, str]:
    return path.name, str(path)


def common_format(files: Sequence[Path]) -> EventFormat:
    """Return the one format of all files, with the row widths of all versions found in their first lines."""
    found: dict[str, tuple[EventFormat, Path]] = {}
    for path in files:
        with _opened(path) as streams:
            for stream in streams:
                for version in _versions(_first_lines(stream), path):
                    known, _ = found.get(version.name, (version, path))
                    widths = tuple(sorted({*known.widths, *version.widths}))
                    found[version.name] = (replace(version, widths=widths), path)
    if not found:
        raise UserError(f"{files[0]}: no rows; give ICEWS or GDELT event files")
    if len(found) > 1:
        both = " and ".join(f"{path} is {name}" for name, (_, path) in found.items())
        raise UserError(f"{both}; build a graph of each")
    ((event_format, _),) = found.values()
    return event_format


def _first_lines(stream: IO[bytes]) -> list[bytes]:
    """Return the first lines that are not blank."""
    lines = iter(partial(stream.readline, _SAMPLE_BYTES), b"")
    filled = (line.rstrip(b"\r\n") for line in lines if line.strip(b"\r\n"))
    return list(islice(filled, _SAMPLE_LINES))


def _versions(lines: list[bytes], path: Path) -> list[EventFormat]:
    """Return the format of every line that has one; raise a UserError if there are lines and none has."""
    found: list[EventFormat] = []
    for line in lines:
        cells = line.decode("utf-8-sig", "replace").split("\t")
        for version in (ICEWS, GDELT_1, GDELT_2):
            first = cells[version.event]
            if len(cells) in version.widths and (first.isdecimal() or first == version.header):
                found.append(version)
    if found or not lines:
        return found
    cells = lines[0].decode("utf-8", "replace").split("\t")
    raise UserError(
        f"{path}, line 1: {len(cells)} tab-separated columns that begin with {cells[0][:40]!r}; "
        "wanted ICEWS events (20 columns) or GDELT events (57, 58 or 61)"
    )


def unpack(files: Sequence[Path], folder: Path) -> list[Path]:
    """Return plain text files in the order of `files`; archives are unpacked into `folder`."""
    plain: list[Path] = []
    for path in files:
        if path.suffix.lower() not in (".zip", ".gz"):
            plain.append(path)
            continue
        with _opened(path) as streams:
            for stream in streams:
                plain.append(folder / f"{len(plain):06d}.tab")
                with plain[-1].open("wb") as out:
                    shutil.copyfileobj(stream, out, 1 << 20)
    return plain


@contextmanager
def _opened(path: Path) -> Iterator[Iterator[IO[bytes]]]:
    """Open a file as streams of plain text, one for each member of an archive; errors become a UserError."""
    try:
        with path.open("rb") as raw:
            yield _members(path, raw)
    except _UNPACK_ERRORS as error:
        raise UserError(f"{path}: cannot be unpacked ({error}); fetch it again or unpack it yourself") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error}); let this user read it") from error


def _members(path: Path, raw: IO[bytes]) -> Iterator[IO[bytes]]:
    """Yield a stream of plain text for each member of an archive, or the file itself."""
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
