"""Free memory: that of the machine, or what is left of the limit of a control group."""

from __future__ import annotations

import psutil
import pytest

from recollect.graph.free_memory import _free_in_groups, free_memory


def write_group(folder, limit: str, usage: str, names: tuple[str, str], cache: str) -> None:
    folder.mkdir(parents=True)
    (folder / names[0]).write_text(limit)
    (folder / names[1]).write_text(usage)
    (folder / "memory.stat").write_text(f"anon 7\n{cache} 30\nother 1\n")


@pytest.mark.parametrize(
    ("line", "folder", "names", "cache"),
    [
        ("0::/jobs/a", "jobs/a", ("memory.max", "memory.current"), "file"),
        ("0::/of/the/host", "", ("memory.max", "memory.current"), "file"),
        (
            "4:memory:/jobs/a",
            "memory/jobs/a",
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
            "total_cache",
        ),
    ],
)
def test_what_is_left_of_a_groups_limit_counts_cached_files_as_free(tmp_path, line, folder, names, cache):
    (tmp_path / "cgroup").write_text(f"9:cpu:/elsewhere\n{line}\n")
    write_group(tmp_path / "groups" / folder, "1000\n", "400\n", names, cache)
    assert _free_in_groups(tmp_path / "cgroup", tmp_path / "groups") == [630]


def test_a_group_without_a_limit_and_a_system_without_groups_have_none(tmp_path):
    (tmp_path / "cgroup").write_text("0::/a\n")
    write_group(tmp_path / "groups" / "a", "max\n", "400\n", ("memory.max", "memory.current"), "file")
    assert _free_in_groups(tmp_path / "cgroup", tmp_path / "groups") == []
    assert _free_in_groups(tmp_path / "missing", tmp_path / "groups") == []


def test_free_memory_is_at_most_that_of_the_machine():
    assert 0 < free_memory() <= psutil.virtual_memory().total
