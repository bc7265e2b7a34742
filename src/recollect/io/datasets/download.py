"""Find published files below RECOLLECT_DATA or in the cache, or download them with pooch, and check their content.

A file appears in the cache only after its content was checked. No more bytes are written than the registry allows, no
symbolic link is followed, and a redirection never leaves https.
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
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, TypeAlias
from urllib.parse import urljoin, urlsplit

import platformdirs
from filelock import FileLock

from recollect.errors import UserError
from recollect.io.atomic import replaced_file
from recollect.io.datasets.variants import count_rows, published_split, variant
from recollect.io.label_tables import digest_of_file

if TYPE_CHECKING:
    from requests import Response

Progress: TypeAlias = Callable[[int, int | None], None]  # bytes received, bytes in all if known

PAUSES = (0.5, 1.0, 2.0, 4.0)  # seconds before each further attempt
TIMEOUT = 30.0  # seconds without a byte
GITHUB_BYTES = 100 << 20  # of a file at most that is published on GitHub
_CHUNK = 1 << 16  # bytes
_UNPACK_ERRORS = (tarfile.TarError, zipfile.BadZipFile, BadGzipFile, zlib.error, EOFError, RuntimeError)


@dataclass(frozen=True, kw_only=True)
class File:
    """A published file: its path below a data folder, its address and its checksum.

    `sha256` is checked, or where it is not known `sha1`, git's blob SHA-1 (`git hash-object FILE`). If both are unknown
    the number of lines, `rows`, is checked, and the file is downloaded only if the caller asks for unverified files.
    Without a `url` the file cannot be downloaded. With a `member`, the url is a .tar.gz or .zip archive and the file is
    its member of that base name. The file has at most `max_bytes`, its archive at most `max_archive_bytes`.
    """

    path: str
    sha256: str | None = None
    sha1: str | None = None
    url: str | None = None
    member: str | None = None
    rows: int | None = None
    max_bytes: int = GITHUB_BYTES
    max_archive_bytes: int = GITHUB_BYTES

    @property
    def checked_by(self) -> str:
        """What tells whether the content is right: "sha256", "sha1" or "rows"."""
        return "sha256" if self.sha256 else "sha1" if self.sha1 else "rows"


def blob_sha1(path: Path) -> str:
    """Return the SHA-1 that git computes for the content of a file."""
    size = path.stat().st_size
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, lambda: hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)).hexdigest()


def cache_folder() -> Path:
    """Return the folder of downloads: $RECOLLECT_CACHE, else the user's cache folder of this system."""
    return Path(os.environ.get("RECOLLECT_CACHE") or platformdirs.user_cache_dir("recollect"))


def locate(file: File) -> Path | None:
    """Return the file below $RECOLLECT_DATA or in the cache, its content checked; None if it is in neither."""
    try:
        cached = cache_folder() / file.path
        return _in_data_folder(file) or (cached if _is_right(file, cached) else None)
    except OSError as error:
        raise UserError(
            f"{error.filename or file.path}: cannot be read ({error.strerror or error}); "
            "let this user read it, or set RECOLLECT_DATA or RECOLLECT_CACHE to another folder"
        ) from error


def fetch(file: File, progress: Progress | None = None, *, unverified: bool = False) -> Path:
    """Return the path of a file; download it into the cache if `locate` does not find it.

    A file without a known checksum is downloaded only if `unverified` files are asked for.
    """
    found = locate(file)
    if found is not None:
        return found
    if file.url is None:
        raise UserError(f"{file.path!r} is published nowhere that it could be downloaded from; {_remedy(file)}")
    if not file.url.lower().startswith(("http://", "https://")):
        raise UserError(f"{file.url} is neither http nor https, so it is not downloaded; {_remedy(file)}")
    if file.checked_by == "rows" and not unverified:
        raise UserError(
            f"{file.url} has no known checksum, so a download cannot be verified; download it all the same with "
            f"unverified=True (recollect data fetch --unverified), or {_remedy(file)}"
        )
    cached = cache_folder() / file.path
    try:
        cached.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(cached.with_name(f"{cached.name}.lock")):
            if not _is_right(file, cached):  # another process may have downloaded it in the meantime
                with replaced_file(cached) as fresh:
                    _download_checked(file, file.url, fresh, progress)
    except OSError as error:
        raise UserError(
            f"{file.url} cannot be kept at {cached} ({error.strerror or error}); "
            f"set RECOLLECT_CACHE to a folder that can be written and has room, or {_remedy(file)}"
        ) from error
    return cached


def _in_data_folder(file: File) -> Path | None:
    folder = os.environ.get("RECOLLECT_DATA")
    if not folder:
        return None
    if not Path(folder).is_dir():
        raise UserError(f"RECOLLECT_DATA names {folder!r}, which is no folder; correct it or unset it")
    path = Path(folder, file.path)
    if not path.is_file():
        return None
    if not _is_right(file, path):
        raise UserError(
            f"{path} holds {variant(path, file.rows)}; wanted {_wanted(file)}: move it away, or read it by its own path"
        )
    return path


def _is_right(file: File, path: Path) -> bool:
    """Return whether a file exists and has the published content."""
    if not path.is_file():
        return False
    if file.sha256 is not None:
        return digest_of_file(path) == file.sha256
    if file.sha1 is not None:
        return blob_sha1(path) == file.sha1
    return file.rows is None or count_rows(path) == file.rows


def _download_checked(file: File, url: str, fresh: Path, progress: Progress | None) -> None:
    """Download a file, or the archive that holds it, to `fresh` and check its content."""
    if file.member is None:
        _download(file, url, fresh, file.max_bytes, progress)
    else:
        archive = fresh.with_name(f"{fresh.name}.archive")
        try:
            _download(file, url, archive, file.max_archive_bytes, progress)
            _extract(file, url, archive, fresh)
        finally:
            archive.unlink(missing_ok=True)
    if not _is_right(file, fresh):
        raise UserError(f"{url} gave {variant(fresh, file.rows)}; wanted {_wanted(file)}: {_remedy(file)}")


def _download(file: File, url: str, target: Path, limit: int, progress: Progress | None) -> None:
    """Download at most `limit` bytes to a new file; try again after errors of the server or the connection."""
    from requests import HTTPError, RequestException

    trouble = ""
    for pause in (0.0, *PAUSES):
        time.sleep(pause)
        target.unlink(missing_ok=True)
        try:
            with target.open("xb") as opened:  # x: a file or link that is there is never written through
                _transfer(file, url, _LimitedFile(opened, limit, f"{url} gives more than {limit:,} bytes"), progress)
        except HTTPError as error:
            response = error.response
            assert response is not None  # an HTTPError comes with its response
            trouble = f"HTTP {response.status_code} {response.reason}"
            if response.status_code < 500 and response.status_code not in (408, 429):
                raise UserError(f"{url} cannot be downloaded ({trouble}); {_remedy(file)}") from error
        except RequestException as error:
            trouble = str(error)
        else:
            return
    raise UserError(f"{url} cannot be downloaded ({trouble}); try again later, or {_remedy(file)}")


def _transfer(file: File, url: str, out: _LimitedFile, progress: Progress | None) -> None:
    """Write what a URL gives to `out` with pooch, and close all connections."""
    import pooch

    responses: list[Response] = []

    def on_response(response: Response, **_: object) -> None:
        responses.append(response)
        _refuse_downgrade(file, response)

    downloader = pooch.HTTPDownloader(
        _ProgressBar(progress) if progress else False,
        _CHUNK,
        timeout=TIMEOUT,
        headers={"User-Agent": "recollect", "Accept-Encoding": "identity"},
        hooks={"response": on_response},
    )
    try:
        downloader(url, out, None)
    finally:
        for response in responses:
            response.close()


def _refuse_downgrade(file: File, response: Response) -> None:
    """Raise UserError if a response redirects from https to anything else, or from http to neither."""
    if not response.is_redirect:
        return
    target = urljoin(response.url, response.headers["location"])
    allowed = ("https",) if urlsplit(response.url).scheme == "https" else ("https", "http")
    if urlsplit(target).scheme not in allowed:
        raise UserError(
            f"{response.url} redirects to {target}, which is not {' or '.join(allowed)}, so it is not downloaded; "
            f"{_remedy(file)}"
        )


@dataclass
class _LimitedFile:
    """A file to write to; past `limit` bytes it raises UserError with a complaint."""

    file: IO[bytes]
    limit: int
    complaint: str

    def write(self, content: bytes) -> int:
        self.limit -= len(content)
        if self.limit < 0:
            raise UserError(f"{self.complaint}, which is not what was published; try again later")
        return self.file.write(content)

    def flush(self) -> None:
        self.file.flush()


class _ProgressBar:
    """Adapt a `Progress` function to the progress bar that pooch calls."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._done = 0
        self.total = 0  # set by pooch; 0 if the server does not say

    def update(self, size: int) -> None:
        self._done += size
        if self.total:
            self._done = min(self._done, self.total)
        self._progress(self._done, self.total or None)

    def reset(self) -> None:
        self._done = 0

    def close(self) -> None:
        pass


def _extract(file: File, url: str, archive: Path, fresh: Path) -> None:
    """Copy the member of an archive to `fresh`; no name in the archive is used as a path."""
    try:
        for name, content in _members(archive):
            if PurePosixPath(name).name == file.member:
                complaint = f"{url} gave an archive whose {name!r} has more than {file.max_bytes:,} bytes"
                with fresh.open("xb") as out:
                    shutil.copyfileobj(content, _LimitedFile(out, file.max_bytes, complaint))
                return
    except _UNPACK_ERRORS as error:
        raise UserError(
            f"{url} gave {variant(archive)}, which cannot be unpacked ({error}); {_remedy(file)}"
        ) from error
    raise UserError(f"{url} gave an archive without {file.member!r}; {_remedy(file)}")


def _members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield name and content of every file in a .zip or .tar.gz archive."""
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
    """Describe the published file by its rows and checksum."""
    parts = []
    if file.rows is not None:
        parts.append(f"{published_split(file.rows) or 'a file'} of {file.rows:,} rows")
    if file.sha256 is not None:
        parts.append(f"SHA-256 {file.sha256}")
    elif file.sha1 is not None:
        parts.append(f"blob SHA-1 {file.sha1}")
    return ", ".join(parts)


def _remedy(file: File) -> str:
    return f"put the file at {file.path!r} below the folder that RECOLLECT_DATA names"
