"""The memory that this process can still use: that of the machine, or of its control group if that is less."""

from __future__ import annotations

from pathlib import Path

import psutil

GROUPS = Path("/sys/fs/cgroup")
FILES = {  # version of control groups -> folder of the controller, limit, usage, key of the page cache in memory.stat
    2: ("", "memory.max", "memory.current", "file"),
    1: ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache"),
}


def free_memory() -> int:
    """Return the bytes of memory that are free, or hold parts of files that the system can drop."""
    free = psutil.virtual_memory().available
    return min([free, *_free_in_groups(Path("/proc/self/cgroup"), GROUPS)])


def _free_in_groups(membership: Path, groups: Path) -> list[int]:
    """Return what is left of the memory limit of each control group of this process that has one."""
    try:
        lines = [line.split(":", 2) for line in membership.read_text().splitlines()]
    except OSError:  # no Linux
        return []
    found = []
    for _, controllers, path in lines:
        if controllers not in ("", "memory"):
            continue
        folder, limit, usage, cache = FILES[1 if controllers else 2]
        # in a container the path may be that of the host, and the files those of the group itself
        for group in dict.fromkeys((groups / folder / path.lstrip("/"), groups / folder)):
            try:
                most, used = int((group / limit).read_text()), int((group / usage).read_text())
                cached = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())[cache]
            except (OSError, ValueError, KeyError):  # "max" is no limit
                continue
            found.append(max(0, most - used + int(cached)))
    return found
