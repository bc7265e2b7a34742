"""Published files are found or downloaded: checked, whole or not at all, once for all processes."""

from __future__ import annotations

import hashlib
import io
import itertools
import os
import socket
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import requests

from recollect import UserError
from recollect.graph.facts import SPLITS
from recollect.io.datasets import download
from recollect.io.datasets.download import File, blob_sha1, cache_folder, fetch, locate
from recollect.io.datasets.registry import CAMEO, PUBLISHED
from recollect.io.datasets.variants import VARIANTS, variant

PATH = "some/train.txt"
BODY = b"".join(b"%d\t%d\t%d\t2014-01-%02d\n" % (n, n % 7, n % 11, n % 28 + 1) for n in range(10_000))
OTHER = BODY.replace(b"2014", b"2015")
CHUNK = 1 << 16  # what is written at a time
CUT = 50_000
REMEDY = f"put the file at '{PATH}' below the folder that RECOLLECT_DATA names"


@dataclass(kw_only=True)
class Answer:
    """How the server answers one request."""

    status: int = 200
    body: bytes = BODY
    location: str | None = None
    length: int | str | None = None  # Content-Length: the right one, or this number, "none", or "chunked"
    cut: int | None = None  # close the connection after so many bytes
    hold: int | None = None  # after so many bytes, wait until the test opens the gate


class Handler(BaseHTTPRequestHandler):
    server: Publisher

    def do_GET(self) -> None:
        answer = self.server.answer()
        body = answer.body
        parts = [body[: answer.hold], body[answer.hold :]] if answer.hold else [body[: answer.cut]]
        self.server.agents.append(self.headers["User-Agent"])
        self.send_response(answer.status)
        if answer.location:
            self.send_header("Location", answer.location)
        if answer.length == "chunked":
            self.send_header("Transfer-Encoding", "chunked")
            parts = [b"%x\r\n%s\r\n" % (len(part), part) for part in parts]
            parts += [b"0\r\n\r\n"] if answer.cut is None else []
        elif answer.length != "none":
            self.send_header("Content-Length", str(len(body) if answer.length is None else answer.length))
        self.end_headers()
        for n, part in enumerate(parts):
            if n and answer.hold:
                self.server.gate.wait(30)
            self.wfile.write(part)

    def log_message(self, *_: object) -> None:
        pass


class Publisher(ThreadingHTTPServer):
    """A local server that gives the listed answers in turn, and then the last one for ever."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers, self.agents, self.gate, self.turn = [Answer()], [], threading.Event(), threading.Lock()
        self.url = f"http://127.0.0.1:{self.server_address[1]}/train.txt"

    def answer(self) -> Answer:
        with self.turn:
            return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def handle_error(self, *_: object) -> None:  # a reader that was killed
        pass


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    with Publisher() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.gate.set()
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "127.0.0.1")
    monkeypatch.delenv("RECOLLECT_DATA", raising=False)
    monkeypatch.setenv("RECOLLECT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(download, "PAUSES", (0.0,) * 4)
    return tmp_path / "cache"


def sha1_of(body: bytes, folder: Path) -> str:
    (folder / "sum").write_bytes(body)
    return blob_sha1(folder / "sum")


@pytest.fixture
def file(publisher, tmp_path) -> File:
    return File(path=PATH, sha256=hashlib.sha256(BODY).hexdigest(), url=publisher.url, rows=10_000)


def left(cache: Path) -> list[str]:
    """Return the files in the cache, without locks."""
    files = (path for path in cache.rglob("*") if path.is_file() and path.suffix != ".lock")
    return sorted(path.relative_to(cache).as_posix() for path in files)


def put(folder: Path, body: bytes, path: str = PATH) -> Path:
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_bytes(body)
    return folder / path


def complaint(file: File) -> str:
    """Return the error message of a download that must fail."""
    with pytest.raises(UserError) as caught:
        fetch(file)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_checksum_is_git_blob_sha1(tmp_path):
    assert sha1_of(b"", tmp_path) == "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
    assert sha1_of(b"hello\n", tmp_path) == "ce013625030ba8dba906f756967f9e9ca394464a"


def test_the_cache_folder_can_be_chosen(monkeypatch, cache):
    assert cache_folder() == cache
    for unset in (lambda: monkeypatch.setenv("RECOLLECT_CACHE", ""), lambda: monkeypatch.delenv("RECOLLECT_CACHE")):
        unset()
        assert "recollect" in cache_folder().parts


def test_a_file_is_downloaded_once(publisher, file, cache):
    heard = []
    assert locate(file) is None
    assert fetch(file, lambda *bytes: heard.append(bytes)) == cache / PATH == locate(file) == fetch(file)
    assert (cache / PATH).read_bytes() == BODY
    assert left(cache) == [PATH]
    assert publisher.agents == ["recollect"]
    assert heard == sorted(heard)
    assert heard[0] == (CHUNK, len(BODY))
    assert heard[-1] == (len(BODY), len(BODY))


def test_a_file_below_the_data_folder_comes_first(publisher, file, cache, tmp_path, monkeypatch):
    fetch(file)
    monkeypatch.setenv("RECOLLECT_DATA", str(tmp_path / "data"))
    with pytest.raises(UserError, match="data', which is no folder; correct it or unset it"):
        locate(file)
    (tmp_path / "data").mkdir()
    assert locate(file) == cache / PATH
    put(tmp_path / "data", BODY)
    assert fetch(file) == tmp_path / "data" / PATH


def test_a_changed_file_in_the_cache_is_replaced(publisher, file, cache):
    put(cache, OTHER)
    assert locate(file) is None
    assert left(cache) == [PATH]  # looking removes nothing
    assert fetch(file).read_bytes() == BODY


def test_a_cut_connection_is_tried_again(publisher, file, cache):
    publisher.answers = [Answer(cut=CUT), Answer(length="chunked", cut=CUT), Answer()]
    assert fetch(file).read_bytes() == BODY
    assert len(publisher.agents) == 3
    assert left(cache) == [PATH]


def test_a_silent_server_is_tried_again(publisher, file, monkeypatch):
    monkeypatch.setattr(download, "TIMEOUT", 0.2)
    publisher.answers = [Answer(hold=CUT), Answer()]
    assert fetch(file).read_bytes() == BODY


def test_a_body_of_unknown_length_is_downloaded(publisher, file):
    publisher.answers = [Answer(length="none")]
    heard = []
    assert fetch(file, lambda *bytes: heard.append(bytes)).read_bytes() == BODY
    assert heard[0] == (CHUNK, None)


def test_server_errors_are_tried_again(publisher, file):
    publisher.answers = [Answer(status=500), Answer(status=429), Answer(status=503), Answer()]
    assert fetch(file).read_bytes() == BODY


def test_a_wrong_checksum_is_refused_and_nothing_is_left(publisher, file, cache):
    publisher.answers = [Answer(body=b"".join(BODY.splitlines(keepends=True)[:43]))]
    message = complaint(file)
    assert message.startswith(f"{publisher.url} gave 43 rows of 4 columns, ids and dates; ")
    assert message.endswith(f"wanted a file of 10,000 rows, SHA-256 {file.sha256}: {REMEDY}")
    assert left(cache) == []
    assert len(publisher.agents) == 1


def test_a_file_is_checked_by_blob_sha1_where_sha256_is_not_known(publisher, cache, tmp_path):
    file = File(path=PATH, sha1=sha1_of(BODY, tmp_path), url=publisher.url)
    publisher.answers = [Answer(body=OTHER), Answer()]
    assert f"wanted blob SHA-1 {file.sha1}" in complaint(file)
    assert fetch(file).read_bytes() == BODY


def test_a_file_without_a_checksum_is_downloaded_only_knowingly(publisher, cache):
    file = File(path=PATH, url=publisher.url, rows=10_000)
    assert complaint(file) == (
        f"{publisher.url} has no known checksum, so a download cannot be verified; download it all the same with "
        f"unverified=True (recollect data fetch --unverified), or {REMEDY}"
    )
    assert publisher.agents == []
    assert fetch(file, unverified=True).read_bytes() == BODY
    assert fetch(file) == cache / PATH  # from the cache, where it was put knowingly


def test_the_files_without_a_sha256_are_these_and_every_download_has_a_limit():
    files = [(name, file) for name, entry in PUBLISHED.items() for file in entry.files.values()] + [("cameo", CAMEO)]
    without = {name: file.checked_by for name, file in files if file.sha256 is None}
    assert without == {"gdelt500": "sha1", "icews-schein": "sha1", "icews-schein-2013": "sha1", "yago11k": "rows"}
    assert all(0 < file.max_bytes <= download.GITHUB_BYTES for _, file in files)


def test_a_body_larger_than_the_registry_says_is_not_kept(publisher, file, cache):
    limited = replace(file, max_bytes=len(BODY) - 1)
    for length in (None, "none", "chunked"):
        publisher.answers = [Answer(length=length)]
        assert complaint(limited) == (
            f"{publisher.url} gives more than {len(BODY) - 1:,} bytes, which is not what was published; try again later"
        )
    assert left(cache) == []
    assert len(publisher.agents) == 3


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
def test_a_packed_bomb_is_not_unpacked(publisher, packed, cache, kind):
    publisher.answers = [Answer(body=archive(kind, {"train.txt": bytes(50 << 20)}))]
    message = complaint(replace(packed, max_bytes=len(BODY)))
    assert f"gave an archive whose 'train.txt' has more than {len(BODY):,} bytes, which is not what" in message
    assert left(cache) == []


def test_a_symbolic_link_in_the_way_of_a_download_is_not_followed(publisher, file, tmp_path):
    victim, link = tmp_path / "victim", tmp_path / "link"
    victim.write_text("precious")
    link.symlink_to(victim)
    download._download(file, publisher.url, link, file.max_bytes, None)
    assert victim.read_text() == "precious"
    assert link.read_bytes() == BODY


@pytest.mark.parametrize(
    ("url", "location", "allowed"),
    [
        ("https://a.org/x", "https://b.org/y", True),
        ("https://a.org/x", "/y", True),
        ("https://a.org/x", "http://a.org/x", False),
        ("https://a.org/x", "ftp://a.org/x", False),
        ("http://a.org/x", "http://b.org/x", True),
        ("http://a.org/x", "https://b.org/x", True),
        ("http://a.org/x", "file:///etc/passwd", False),
    ],
)
def test_a_redirection_may_not_leave_https(file, url, location, allowed):
    response = requests.Response()
    response.status_code, response.url, response.headers["location"] = 302, url, location
    if allowed:
        download._refuse_downgrade(file, response)
    else:
        with pytest.raises(UserError, match=f"{url} redirects to {location}, which is not http"):
            download._refuse_downgrade(file, response)


def test_a_wrong_number_of_rows_is_refused(publisher, cache):
    file = File(path=PATH, url=publisher.url, rows=8_514)
    with pytest.raises(UserError) as caught:
        fetch(file, unverified=True)
    assert str(caught.value) == (
        f"{publisher.url} gave 10,000 rows of 4 columns, ids and dates; "
        f"wanted ICEWS14 as RE-GCN splits it (valid) of 8,514 rows: {REMEDY}"
    )
    assert left(cache) == []


def test_a_content_length_that_is_too_short_is_refused(publisher, file, cache):
    publisher.answers = [Answer(length=100)]
    assert "gave 6 rows of" in complaint(file)
    assert left(cache) == []


def archive(kind: str, members: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as opened:
            opened.writestr("train.txt/", b"")
            for name, body in members.items():
                opened.writestr(name, body)
    else:
        with tarfile.open(fileobj=packed, mode="w:gz") as tape:
            link = tarfile.TarInfo("train.txt")
            link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
            tape.addfile(link)
            for name, body in members.items():
                info = tarfile.TarInfo(name)
                info.size = len(body)
                tape.addfile(info, io.BytesIO(body))
    return packed.getvalue()


@pytest.fixture
def packed(file) -> File:
    return replace(file, member="train.txt")


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
@pytest.mark.parametrize("name", ["data/train.txt", "../../train.txt", "/train.txt"])
def test_a_member_of_an_archive_is_extracted_without_using_its_path(publisher, packed, cache, tmp_path, kind, name):
    before = {path for path in tmp_path.rglob("*") if cache not in path.parents}
    body = archive(kind, {"data/train.txt.md": b"read me", "../evil.txt": b"evil", name: BODY})
    publisher.answers = [Answer(body=body, cut=1_000), Answer(body=body)]
    assert fetch(packed).read_bytes() == BODY
    assert left(cache) == [PATH]
    assert {path for path in tmp_path.rglob("*") if cache not in path.parents} - before == {cache}


ZIP, TAR = (archive(kind, {"train.txt": OTHER, "valid.txt": BODY}) for kind in ("zip", "tar.gz"))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (ZIP, "gave 10,000 rows of 4 columns, ids and dates, the right number of rows but other bytes"),
        (TAR, "gave 10,000 rows of 4 columns, ids and dates, the right number of rows but other bytes"),
        (archive("zip", {"test.txt": BODY}), "gave an archive without 'train.txt'; "),
        (archive("tar.gz", {"test.txt": BODY}), "gave an archive without 'train.txt'; "),
        (ZIP[:1_000], "gave a zip archive of 1,000 bytes, which cannot be unpacked (not a gzip file); "),
        (TAR[:1_000], "gave a gzip archive of 1,000 bytes, which cannot be unpacked (Compressed file ended before"),
        (ZIP[:500] + b"spoilt" + ZIP[506:], f"gave a zip archive of {len(ZIP):,} bytes, which cannot be unpacked ("),
        (TAR[:500] + b"spoilt" + TAR[506:], f"gave a gzip archive of {len(TAR):,} bytes, which cannot be unpacked ("),
        (b"<!DOCTYPE html>\n<p>log in", "gave a web page of 25 bytes, which cannot be unpacked (not a gzip file); "),
        (b"", "gave nothing, which cannot be unpacked (empty file); "),
    ],
    ids=[
        *("other zip", "other tar", "zip without the file", "tar without the file", "cut zip", "cut tar"),
        *("spoilt zip", "spoilt tar", "web page", "nothing"),
    ],  # archives have the moment in which they are made
)
def test_bad_archives_leave_nothing_behind(publisher, packed, cache, body, expected):
    publisher.answers = [Answer(body=body)]
    message = complaint(packed)
    assert message.startswith(f"{publisher.url} {expected}")
    assert message.endswith(REMEDY)
    assert left(cache) == []


def test_error_messages_about_the_server(publisher, file, cache):
    def message(**answer) -> str:
        publisher.answers = [Answer(**answer)]
        return complaint(file).replace(publisher.url, "URL")

    assert message(status=404) == f"URL cannot be downloaded (HTTP 404 Not Found); {REMEDY}"
    assert message(status=403) == f"URL cannot be downloaded (HTTP 403 Forbidden); {REMEDY}"
    assert len(publisher.agents) == 2
    assert message(status=500) == (
        f"URL cannot be downloaded (HTTP 500 Internal Server Error); try again later, or {REMEDY}"
    )
    assert len(publisher.agents) == 7
    assert f"URL cannot be downloaded (('Connection broken: IncompleteRead(0 bytes read, {len(BODY)} more" in message(
        cut=0
    )
    assert left(cache) == []


@pytest.mark.parametrize("location", ["file:///etc/passwd", "ftp://127.0.0.1/train.txt"])
def test_a_redirection_out_of_http_is_not_followed(publisher, file, cache, location):
    publisher.answers = [Answer(status=302, location=location)]
    assert complaint(file) == (
        f"{publisher.url} redirects to {location}, which is not https or http, so it is not downloaded; {REMEDY}"
    )
    assert len(publisher.agents) == 1
    assert left(cache) == []


def test_an_unreachable_host_is_reported():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/train.txt"
        message = complaint(File(path=PATH, sha256="0", url=url))
    assert message.startswith(f"{url} cannot be downloaded (")
    assert "Connection refused" in message
    assert message.endswith(f"; try again later, or {REMEDY}")


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://127.0.0.1/train.txt", "train.txt"])
def test_only_http_is_downloaded(url, cache):
    message = complaint(File(path=PATH, sha1=None, url=url))
    assert message == f"{url} is neither http nor https, so it is not downloaded; {REMEDY}"
    assert not cache.exists()


def test_a_file_without_an_address_must_be_given(tmp_path, monkeypatch):
    file = File(path=PATH, sha1=None)
    assert complaint(file) == f"'{PATH}' is published nowhere that it could be downloaded from; {REMEDY}"
    monkeypatch.setenv("RECOLLECT_DATA", str(tmp_path / "data"))
    path = put(tmp_path / "data", BODY)
    assert fetch(file) == path


def kept(file: File, cache: Path, why: str) -> str:
    return (
        f"{file.url} cannot be kept at {cache / PATH} ({why}); "
        f"set RECOLLECT_CACHE to a folder that can be written and has room, or {REMEDY}"
    )


def test_a_cache_that_is_a_file(file, cache):
    cache.write_text("a file")
    assert complaint(file) == kept(file, cache, "Not a directory")


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_cache_that_cannot_be_written(file, cache):
    cache.mkdir(mode=0o500)
    assert complaint(file) == kept(file, cache, "Permission denied")


def test_a_folder_where_the_file_should_be(file, cache):
    (cache / PATH).mkdir(parents=True)
    assert complaint(file) == kept(file, cache, "Is a directory")


def test_no_space_left(file, cache, monkeypatch):
    def write(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(download, "_download", write)
    assert complaint(file) == kept(file, cache, "No space left on device")
    assert left(cache) == []


def test_a_file_appears_in_one_step_or_not_at_all(file, cache, monkeypatch):
    def refuse(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("os.replace", refuse)
    assert complaint(file) == kept(file, cache, "Input/output error")
    assert left(cache) == []


def test_a_data_file_that_cannot_be_read(file, tmp_path, monkeypatch):
    path = put(tmp_path / "data", BODY)
    monkeypatch.setenv("RECOLLECT_DATA", str(tmp_path / "data"))

    def refuse(path: Path) -> str:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(download, "digest_of_file", refuse)
    assert complaint(file) == (
        f"{path}: cannot be read (Permission denied); "
        "let this user read it, or set RECOLLECT_DATA or RECOLLECT_CACHE to another folder"
    )


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (
            b"0\t1\t2\t3\n" * 74_845,
            "74,845 rows of 4 columns, ids and ordinals, like ICEWS14 as RE-GCN splits it (train)",
        ),
        (
            b"0\t1\t2\t48\t0\n" * 323_895,
            "323,895 rows of 5 columns, ids and hours, like ICEWS14 as Know-Evolve and RE-NET split it (train)",
        ),
        (
            b"South Korea\tConsult\tIran\t2014-05-13\r\n" * 72_826,
            "72,826 rows of 4 columns, names and dates, with Windows line ends, "
            "the right number of rows but other bytes (edited, or other line ends)",
        ),
    ],
)
def test_another_variant_in_the_data_folder_is_refused(tmp_path, monkeypatch, publisher, cache, body, found):
    monkeypatch.setenv("RECOLLECT_DATA", str(tmp_path / "data"))
    path = put(tmp_path / "data", body)
    file = File(path=PATH, sha1="c11643a07a2dd70c26131a6c660f9c4115fb0f0b", url=publisher.url, rows=72_826)
    assert complaint(file) == (
        f"{path} holds {found}; wanted ICEWS14 as García-Durán et al. 2018 split it (train) of 72,826 rows, "
        "blob SHA-1 c11643a07a2dd70c26131a6c660f9c4115fb0f0b: move it away, or read it by its own path"
    )
    assert path.read_bytes() == body
    assert not publisher.agents


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "nothing"),
        (b"\n", "1 row of 1 column"),
        (b"a", "1 row of 1 column"),
        (b"a,b,c\nd,e,f", "2 rows of 3 columns, names"),
        (b"1\t2\t3\t0\n" * 2, "2 rows of 4 columns, ids and ordinals"),
        (b"1\t2\t3\t0\n1\t2\t3\t24\n", "2 rows of 4 columns, ids and hours"),
        (b"1\t2\t3\t98-##-##\t####-##-##\n", "1 row of 5 columns, ids and dates"),
        (b'a\tb\tc\t<since>\t"1926-##-##"\na\tb\tc\n', "2 rows of 3 to 5 columns, names and dates"),
        (b"1\t2\t3\tyesterday\n", "1 row of 4 columns, ids"),
        (b"1\t2\t3\t" + b"9" * 9_999, "1 row of 4 columns, ids"),
        (b"\xff\xfe\x00\x01" * 300_000, "binary data of 1,200,000 bytes"),
        (b"x" * 3_000_000, "1 row of 1 column"),
        (b"  <html>", "a web page of 8 bytes"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "a Git LFS pointer of 56 bytes"),
        (
            b"a\tb\xff\tc\xfe\td\n" * 4_062,
            "4,062 rows of 4 columns, names, like Wikidata12k as HyTE splits it (valid or test)",
        ),
        (b"1\t2\t3\t0\n" * 2_000 + b"1\t2\t3\t1\n" * 2_000, "4,000 rows of 4 columns, ids and ordinals"),
    ],
)
def test_variants_are_recognised_by_content(tmp_path, body, words):
    (tmp_path / "file").write_bytes(body)
    assert variant(tmp_path / "file") == words


def test_no_two_datasets_have_splits_of_the_same_size():
    sizes = [{(name, rows) for rows in counts if rows} for name, counts in VARIANTS.items()]
    assert all(len(counts) == len(SPLITS) for counts in VARIANTS.values())
    rows = [rows for _, rows in itertools.chain.from_iterable(sizes)]
    assert len(rows) == len(set(rows))


def test_threads_download_once(publisher, file):
    publisher.answers = [Answer(hold=CUT)]
    found = []
    threads = [threading.Thread(target=lambda: found.append(fetch(file))) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    publisher.gate.set()
    for thread in threads:
        thread.join()
    assert [path.read_bytes() for path in found] == [BODY] * 4
    assert len(publisher.agents) == 1


HOLD_LOCK = """
import pathlib, sys
from filelock import FileLock
path, body = map(pathlib.Path, sys.argv[1:])
with FileLock(f"{path}.lock"):
    print("locked", flush=True)
    sys.stdin.readline()
    path.write_bytes(body.read_bytes())
"""


def test_a_file_that_another_process_is_downloading_is_not_downloaded_again(publisher, file, cache, tmp_path):
    (cache / PATH).parent.mkdir(parents=True)
    (tmp_path / "body").write_bytes(BODY)
    words = [sys.executable, "-c", HOLD_LOCK, str(cache / PATH), str(tmp_path / "body")]
    found = []
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "locked\n"
        waiting = threading.Thread(target=lambda: found.append(fetch(file)))
        waiting.start()
        waiting.join(0.1)
        assert found == []
        other.communicate("\n")
        waiting.join()
    assert found == [cache / PATH]
    assert publisher.agents == []
