"""Published files: found below RECOLLECT_DATA or in the cache, else downloaded; checked; whole or not at all.

A download grows in `<path>.part`, goes on where a cut one ended, and is renamed into place once its content is right.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from gzip import BadGzipFile
from http.client import HTTPException, HTTPResponse
from pathlib import Path, PurePosixPath
from typing import IO, TypeAlias
from urllib import request
from urllib.error import HTTPError, URLError

import platformdirs
from filelock import FileLock

from recollect.errors import UserError
from recollect.io.datasets.variants import count_rows, published, variant

__all__ = ["File", "Progress", "blob_sha1", "cache_folder", "fetch", "locate", "variant"]

Progress: TypeAlias = Callable[[int, int | None], None]  # bytes had, bytes in all if known

PAUSES = (0.5, 1.0, 2.0, 4.0)  # seconds before each further attempt
TIMEOUT = 30.0  # seconds without a byte
_UNREADABLE = (tarfile.TarError, zipfile.BadZipFile, BadGzipFile, zlib.error, EOFError, RuntimeError)
_CHUNK = 1 << 16


@dataclass(frozen=True, kw_only=True)
class File:
    """A published file: where it lies below a data folder, where it is published, and its checksum.

    `sha1` is that of git (`git hash-object FILE`), None where the publisher gives none; then `rows`, the number of
    lines, is checked. Without a `url` the file cannot be downloaded. With a `member` the url is a .tar.gz or .zip
    archive, and the file is the one of that base name in it.
    """

    path: str
    sha1: str | None
    url: str | None = None
    member: str | None = None
    rows: int | None = None


class _CutError(Exception):
    """The answer did not come whole: another attempt may go on from what came."""


def blob_sha1(path: Path) -> str:
    """The SHA-1 that git gives the content of a file."""
    size = path.stat().st_size
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, lambda: hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)).hexdigest()


def cache_folder() -> Path:
    """Where downloads are kept: $RECOLLECT_CACHE, else the user's cache folder of this system."""
    return Path(os.environ.get("RECOLLECT_CACHE") or platformdirs.user_cache_dir("recollect"))


def locate(file: File) -> Path | None:
    """The file below $RECOLLECT_DATA, or else in the cache, its content checked; None if it is in neither."""
    try:
        return _given(file) or _cached(file)
    except OSError as error:
        raise UserError(
            f"{error.filename or file.path}: cannot be read ({error.strerror or error}); "
            "let this user read it, or set RECOLLECT_DATA or RECOLLECT_CACHE to another folder"
        ) from error


def fetch(file: File, progress: Progress | None = None) -> Path:
    """The file where `locate` finds it, else downloaded into the cache; `progress` is told the bytes as they arrive."""
    if found := locate(file):
        return found
    if file.url is None:
        raise UserError(f"{file.path!r} is published nowhere that it could be downloaded from; {_remedy(file)}")
    if not file.url.lower().startswith(("http://", "https://")):
        raise UserError(f"{file.url} is neither http nor https, so it is not downloaded; {_remedy(file)}")
    place = cache_folder() / file.path
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(_beside(place, "lock")):
            if not _is_right(file, place):  # another process may have brought it while this one waited
                _bring(file, file.url, place, progress)
    except OSError as error:
        raise UserError(
            f"{file.url} cannot be kept at {place} ({error.strerror or error}); "
            f"set RECOLLECT_CACHE to a folder that can be written and has room, or {_remedy(file)}"
        ) from error
    return place


def _given(file: File) -> Path | None:
    folder = os.environ.get("RECOLLECT_DATA")
    if folder and not Path(folder).is_dir():
        raise UserError(f"RECOLLECT_DATA names {folder!r}, which is no folder; correct it or unset it")
    if not folder or not (path := Path(folder, file.path)).is_file():
        return None
    if not _is_right(file, path):
        raise UserError(
            f"{path} holds {variant(path, file.rows)}; wanted {_wanted(file)}: move it away, or read it by its own path"
        )
    return path


def _cached(file: File) -> Path | None:
    """The file in the cache; what is wrong there stays until a download takes its place."""
    place = cache_folder() / file.path
    return place if _is_right(file, place) else None


def _is_right(file: File, path: Path) -> bool:
    if not path.is_file():
        return False
    if file.sha1 is not None:
        return blob_sha1(path) == file.sha1
    return file.rows is None or count_rows(path) == file.rows


def _bring(file: File, url: str, place: Path, progress: Progress | None) -> None:
    """Download into place; what was pieced together and turns out wrong is downloaded once more, in one piece."""
    part = _beside(place, "part")
    if _download(file, url, part, progress):
        try:
            _settle(file, url, part, place)
        except UserError:
            _download(file, url, part, progress)
        else:
            return
    _settle(file, url, part, place)


def _download(file: File, url: str, part: Path, progress: Progress | None) -> bool:
    """Bring the body of `url` to `part`, going on where an earlier attempt was cut; True if it was pieced together."""
    etag, trouble, most, tries = None, "", 0, 0
    while tries <= len(PAUSES):
        time.sleep(PAUSES[tries - 1] if tries else 0.0)
        tries += 1
        certain = etag or file.sha1  # the server or the checksum can tell whether the pieces belong together
        start = part.stat().st_size if certain and part.exists() else 0
        try:
            with _ask(url, start, etag) as answer:
                etag = _strong(answer.headers["ETag"])
                resumed = answer.status == 206
                _receive(answer, part, start if resumed else 0, progress)
                return resumed
        except HTTPError as error:
            error.close()
            trouble = f"HTTP {error.code} {error.reason}"
            if error.code == 416:
                part.unlink(missing_ok=True)
            elif error.code < 500 and error.code not in (408, 429):
                raise UserError(f"{url} cannot be downloaded ({trouble}); {_remedy(file)}") from error
        except _CutError as cut:
            trouble = str(cut)
            had = part.stat().st_size if part.exists() else 0
            most, tries = max(most, had), 1 if had > most else tries  # whoever gets on may go on
    raise UserError(f"{url} cannot be downloaded ({trouble}); try again later, or {_remedy(file)}")


def _ask(url: str, start: int, etag: str | None) -> HTTPResponse:
    """The server's answer: what follows byte `start` (206) if the file is still that of the ETag, else all (200)."""
    headers = {"User-Agent": "recollect"}
    if start:
        headers["Range"] = f"bytes={start}-"
        if etag:
            headers["If-Range"] = etag
    try:
        answer = request.urlopen(request.Request(url, headers=headers), timeout=TIMEOUT)
    except HTTPError:
        raise
    except (OSError, HTTPException) as error:
        raise _CutError(str(error.reason if isinstance(error, URLError) else error)) from error
    if not isinstance(answer, HTTPResponse):
        answer.close()
        raise _CutError(f"it leads to {answer.url}, which is neither http nor https")
    return answer


def _strong(etag: str | None) -> str | None:
    """An ETag that vouches for every byte, as a weak one does not."""
    return None if etag is None or etag.startswith("W/") else etag


def _receive(answer: HTTPResponse, part: Path, start: int, progress: Progress | None) -> None:
    """Write the body of an answer to `part` from byte `start` on."""
    done, total = start, None if answer.length is None else start + answer.length
    with part.open("ab" if start else "wb") as out:
        while chunk := _read(answer):
            out.write(chunk)
            done += len(chunk)
            if progress:
                progress(done, total)
    if total is not None and done < total:
        raise _CutError(f"the connection was cut after {done:,} of {total:,} bytes")


def _read(answer: HTTPResponse) -> bytes:
    try:
        return answer.read(_CHUNK)
    except (OSError, HTTPException) as error:
        raise _CutError(f"the connection was cut: {error}") from error


def _settle(file: File, url: str, part: Path, place: Path) -> None:
    """Rename what was downloaded, or the member of it, into place if it is right; else leave nothing."""
    fresh = _beside(place, "member") if file.member else part
    try:
        if file.member:
            _extract(file, url, part, fresh)
        if not _is_right(file, fresh):
            raise UserError(f"{url} gave {variant(fresh, file.rows)}; wanted {_wanted(file)}: {_remedy(file)}")
        with fresh.open("rb+") as opened:
            os.fsync(opened.fileno())
        os.replace(fresh, place)
    finally:
        fresh.unlink(missing_ok=True)
        part.unlink(missing_ok=True)


def _extract(file: File, url: str, archive: Path, fresh: Path) -> None:
    """Copy the member of an archive to `fresh`; no name in the archive is ever used as a path."""
    try:
        for name, content in _members(archive):
            if PurePosixPath(name).name == file.member:
                with fresh.open("wb") as out:
                    shutil.copyfileobj(content, out)
                return
    except _UNREADABLE as error:
        raise UserError(
            f"{url} gave {variant(archive)}, which cannot be unpacked ({error}); {_remedy(file)}"
        ) from error
    raise UserError(f"{url} gave an archive without {file.member!r}; {_remedy(file)}")


def _members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Name and content of every file in a .zip or .tar.gz archive."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as packed:
            for info in packed.infolist():
                if not info.is_dir():
                    with packed.open(info) as content:
                        yield info.filename, content
    else:
        with tarfile.open(archive, "r:gz") as tape:
            for entry in tape:
                if entry.isfile() and (extracted := tape.extractfile(entry)):
                    with extracted:
                        yield entry.name, extracted


def _wanted(file: File) -> str:
    rows = "" if file.rows is None else f"{published(file.rows) or 'a file'} of {file.rows:,} rows"
    return ", ".join(filter(None, (rows, file.sha1 and f"blob SHA-1 {file.sha1}")))


def _remedy(file: File) -> str:
    return f"put the file at {file.path!r} below the folder that RECOLLECT_DATA names"


def _beside(place: Path, kind: str) -> Path:
    return place.with_name(f"{place.name}.{kind}")
