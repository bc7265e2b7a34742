"""Files and folders are replaced in one step, on every platform, and a crash leaves the old content or the new."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest

from recollect import UserError
from recollect.io import atomic
from recollect.io.atomic import existing_folder, locked, read_folder, replaced_file, replaced_folder, write_text


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def fill(path: Path, text: str, overwrite: bool = True) -> None:
    with replaced_folder(path, overwrite=overwrite) as temporary:
        (temporary / "part").mkdir()
        (temporary / "part" / "text").write_text(text)


def content(path: Path) -> str:
    return (existing_folder(path) / "part" / "text").read_text()


def is_folder(handle: int) -> bool:
    return stat.S_ISDIR(os.fstat(handle).st_mode)


def test_a_file_is_created_with_its_folders_and_replaced(tmp_path):
    file = tmp_path / "new" / "page.md"
    write_text(file, "θ\n")
    write_text(file, "η\n")
    assert file.read_bytes() == "η\n".encode()
    assert names(file.parent) == ["page.md"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_while_writing_a_file_leaves_the_old_one(tmp_path, error):
    write_text(tmp_path / "page.md", "old")

    def write_half() -> None:
        with replaced_file(tmp_path / "page.md") as temporary:
            temporary.write_text("half")
            raise error

    with pytest.raises(error):
        write_half()
    assert (tmp_path / "page.md").read_text() == "old"
    assert names(tmp_path) == ["page.md"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_while_filling_a_folder_leaves_the_old_one(tmp_path, error):
    fill(tmp_path / "g", "old")

    def fill_half() -> None:
        with replaced_folder(tmp_path / "g", overwrite=True) as temporary:
            (temporary / "half").write_text("half")
            raise error

    with pytest.raises(error):
        fill_half()
    assert content(tmp_path / "g") == "old"
    assert names(tmp_path) == ["g"]


def test_a_folder_is_replaced_only_with_overwrite(tmp_path):
    fill(tmp_path / "g", "old", overwrite=False)
    with pytest.raises(UserError, match="g exists; choose another place or overwrite it"):
        fill(tmp_path / "g", "new", overwrite=False)
    assert content(tmp_path / "g") == "old"
    fill(tmp_path / "g", "new")
    assert content(tmp_path / "g") == "new"
    assert names(tmp_path) == ["g"]


def test_a_process_that_died_between_the_two_renames_loses_nothing(tmp_path):
    fill(tmp_path / "g", "old")
    (tmp_path / "g").rename(tmp_path / ".g.old")
    assert content(tmp_path / "g") == "old"
    with pytest.raises(UserError, match="g exists"):
        fill(tmp_path / "g", "new", overwrite=False)
    assert content(tmp_path / "g") == "old"
    assert names(tmp_path) == ["g"]


def test_a_process_that_died_after_both_renames_left_the_new_folder(tmp_path):
    fill(tmp_path / "g", "new")
    fill(tmp_path / ".g.old", "old")
    assert content(tmp_path / "g") == "new"
    fill(tmp_path / "g", "newer")
    assert names(tmp_path) == ["g"]


def test_links_are_followed(tmp_path):
    write_text(tmp_path / "page.md", "old")
    fill(tmp_path / "g", "old")
    (tmp_path / "file").symlink_to(tmp_path / "page.md")
    (tmp_path / "folder").symlink_to(tmp_path / "g")
    write_text(tmp_path / "file", "new")
    fill(tmp_path / "folder", "new")
    assert (tmp_path / "page.md").read_text() == content(tmp_path / "g") == "new"
    assert (tmp_path / "file").is_symlink()
    assert (tmp_path / "folder").is_symlink()


def test_what_killed_processes_left_is_removed(tmp_path):
    fill(tmp_path / ".g.123-0a.tmp", "half")
    write_text(tmp_path / f".page.md.{os.getpid()}-0a.tmp", "half")  # process ids are used again
    fill(tmp_path / ".g.tmp", "half")  # version 0.1
    fill(tmp_path / "g", "whole")
    write_text(tmp_path / "page.md", "whole")
    assert names(tmp_path) == ["g", "page.md"]


def test_one_thread_may_write_a_place_while_it_writes_it(tmp_path):
    with replaced_file(tmp_path / "page.md") as temporary:
        temporary.write_text("slow")
        write_text(tmp_path / "page.md", "fast")
    assert (tmp_path / "page.md").read_text() == "slow"
    with replaced_folder(tmp_path / "g", overwrite=True) as temporary:
        (temporary / "part").mkdir()
        (temporary / "part" / "text").write_text("slow")
        fill(tmp_path / "g", "fast")
    assert content(tmp_path / "g") == "slow"
    assert names(tmp_path) == ["g", "page.md"]


def test_a_second_writer_gets_one_sentence(tmp_path):
    with ThreadPoolExecutor(1) as other_thread, locked(tmp_path / "g"):
        lock = other_thread.submit(lambda: locked(tmp_path / "g", wait=0).__enter__())
        with pytest.raises(UserError, match="g is being written by another process; wait until it has finished"):
            lock.result()
    fill(tmp_path / "g", "whole")
    assert names(tmp_path) == ["g"]


def test_a_second_writer_waits_for_the_first(tmp_path):
    with ThreadPoolExecutor(1) as other_thread:
        with replaced_folder(tmp_path / "g") as temporary:
            second = other_thread.submit(fill, tmp_path / "g", "second")
            (temporary / "first").write_text("first")
        second.result()
    assert content(tmp_path / "g") == "second"
    assert names(tmp_path) == ["g"]


LOCK_FOR_EVER = """
import sys, time
from pathlib import Path
from recollect.io.atomic import replaced_folder
with replaced_folder(Path(sys.argv[1])) as temporary:
    print(flush=True)
    time.sleep(600)
"""


def test_the_lock_of_a_killed_process_is_free(tmp_path):
    with subprocess.Popen([sys.executable, "-c", LOCK_FOR_EVER, tmp_path / "g"], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        process.kill()
    assert len(names(tmp_path)) == 2  # the lock and a temporary folder
    fill(tmp_path / "g", "whole", overwrite=False)
    assert names(tmp_path) == ["g"]


def test_a_folder_that_is_replaced_while_it_is_read_is_read_again(tmp_path):
    fill(tmp_path / "g", "old")

    def read_slowly(folder: Path) -> str:
        text = (folder / "part" / "text").read_text()
        if text == "old":
            fill(tmp_path / "g", "new")
        assert (folder / "part" / "text").read_text() == text
        return text

    assert read_folder(tmp_path / "g", read_slowly) == "new"


def test_a_folder_that_cannot_be_read_is_read_once(tmp_path):
    fill(tmp_path / "g", "old")
    read = Mock(side_effect=ValueError("damaged"))
    with pytest.raises(ValueError, match="damaged"):
        read_folder(tmp_path / "g", read)
    read.assert_called_once()


def test_the_entries_of_new_parent_folders_are_flushed(tmp_path, monkeypatch):
    flushed = []
    monkeypatch.setattr(atomic, "flush_folder", flushed.append)
    write_text(tmp_path / "a" / "b" / "page.md", "whole")
    assert flushed == [tmp_path, tmp_path / "a", tmp_path / "a" / "b"]


def test_files_of_similar_names_are_left_alone(tmp_path):
    for name in (".g", ".g.x.tmp", "g.tmp", ".gg.tmp"):
        (tmp_path / name).write_text("mine")
    fill(tmp_path / "g", "whole")
    assert names(tmp_path) == [".g", ".g.x.tmp", ".gg.tmp", "g", "g.tmp"]


def test_every_file_is_flushed_through_a_writable_handle(tmp_path, monkeypatch):
    """Windows refuses to flush a handle that is open for reading only."""
    fcntl = pytest.importorskip("fcntl")
    flushed = []

    def fsync(handle: int) -> None:
        if not is_folder(handle):
            assert fcntl.fcntl(handle, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
            flushed.append(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    fill(tmp_path / "g", "whole")
    write_text(tmp_path / "page.md", "whole")
    assert len(flushed) == 2


def test_folders_are_not_flushed_where_the_platform_opens_none(tmp_path, monkeypatch):
    """Windows refuses to open a folder; `shutil.rmtree` opens none there, and here names `dir_fd`."""
    open_file = os.open

    def refuse_folders(path, *rest, **options):
        if Path(path).is_dir() and "dir_fd" not in options:
            raise PermissionError(errno.EACCES, "Permission denied")
        return open_file(path, *rest, **options)

    monkeypatch.setattr(os, "open", refuse_folders)
    fill(tmp_path / "g", "whole")
    write_text(tmp_path / "page.md", "whole")
    assert names(tmp_path) == ["g", "page.md"]


@pytest.mark.parametrize(("number", "harmless"), [(errno.EINVAL, True), (errno.EIO, False)])
def test_only_a_refusal_to_flush_a_folder_is_harmless(tmp_path, monkeypatch, number, harmless):
    def fsync(handle: int) -> None:
        if is_folder(handle):
            raise OSError(number, os.strerror(number))

    fill(tmp_path / "g", "old")
    monkeypatch.setattr(os, "fsync", fsync)
    if harmless:
        fill(tmp_path / "g", "new")
    else:
        with pytest.raises(OSError, match="Input/output error"):
            fill(tmp_path / "g", "new")
    assert content(tmp_path / "g") == ("new" if harmless else "old")
