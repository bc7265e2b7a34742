"""Files and folders are replaced in one step, on every platform, and a crash leaves the old content or the new."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from recollect import UserError
from recollect.io.atomic import existing_folder, replaced_file, replaced_folder, write_text


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def fill(path: Path, text: str, overwrite: bool = True) -> None:
    with replaced_folder(path, overwrite=overwrite) as temporary:
        (temporary / "part").mkdir()
        (temporary / "part" / "text").write_text(text)


def content(path: Path) -> str:
    return (existing_folder(path) / "part" / "text").read_text()


def dead_process() -> int:
    """Return the id of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


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


def test_what_dead_processes_left_is_removed(tmp_path):
    fill(tmp_path / f".g.{dead_process()}-0a.tmp", "half")
    write_text(tmp_path / f".page.md.{dead_process()}-0a.tmp", "half")
    fill(tmp_path / ".g.tmp", "half")  # version 0.1
    fill(tmp_path / "g", "whole")
    write_text(tmp_path / "page.md", "whole")
    assert names(tmp_path) == ["g", "page.md"]


def test_what_a_process_of_the_same_id_left_is_removed(tmp_path):
    left = tmp_path / f".page.md.{os.getpid()}-0a.tmp"
    left.write_text("half")
    os.utime(left, (0, 0))  # before this process started
    write_text(tmp_path / "page.md", "whole")
    assert names(tmp_path) == ["page.md"]


def test_two_writers_of_one_place_do_not_disturb_each_other(tmp_path):
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
    """Windows refuses to open a folder."""
    open_file = os.open

    def refuse_folders(path, *rest):
        if Path(path).is_dir():
            raise PermissionError(errno.EACCES, "Permission denied")
        return open_file(path, *rest)

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
