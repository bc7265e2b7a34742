"""Train tables larger than a memory limit in memory-mapped files, compared with smaller ones in memory."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from recollect import UserError

ROOT = Path(__file__).parents[1]
GROUPS = Path("/sys/fs/cgroup")
LIMITS = {"memory/": ("memory.limit_in_bytes", "memory.max_usage_in_bytes"), "": ("memory.max", "memory.peak")}
UNITS = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def parse_bytes(text: str) -> int:
    """Return a number of bytes.

    >>> parse_bytes("6GiB") == 6 * 2**30
    True
    """
    found = re.fullmatch(r"([0-9.]+) ?(KiB|MiB|GiB|)", text)
    if found is None:
        raise UserError(f"cannot read {text!r} as a size; write it like 6GiB")
    return int(float(found[1]) * UNITS[found[2]])


@contextmanager
def memory_group(limit: int) -> Iterator[tuple[Path, Path]]:
    """Yield the files of a control group with a memory limit: its processes, and its peak; remove it at the end."""
    for controller, (limit_file, peak_file) in LIMITS.items():
        group = GROUPS / controller / f"recollect-tables-{os.getpid()}"
        try:
            group.mkdir()
            (group / limit_file).write_text(str(limit))
        except OSError:
            with suppress(OSError):
                group.rmdir()
            continue
        try:
            yield group / "cgroup.procs", group / peak_file
        finally:
            group.rmdir()
        return
    raise UserError("no memory limit can be set here: control groups cannot be written; run as root on Linux")


def measure_tables(
    *, entities: int, small: int, dim: int, facts: int, batch_size: int, limit: int, seconds: float, folder: Path | None
) -> Iterator[dict[str, Any]]:
    """Yield one row for each run, in turns: the small table in memory, the large one in files under the limit."""
    shared = {"dim": dim, "facts": facts, "batch_size": batch_size, "seconds": seconds}
    for distribution in ("zipf", "uniform"):
        request = {**shared, "distribution": distribution, "entities": small, "tables": None}
        in_memory = _run(request)
        yield _row(request, in_memory, in_memory, None, None)
        with tempfile.TemporaryDirectory(dir=folder) as tables, memory_group(limit) as (processes, peak):
            request |= {"entities": entities, "tables": tables}
            mapped = _run(request, processes)
            yield _row(request, mapped, in_memory, limit, int(peak.read_text()))


def _run(request: dict[str, Any], processes: Path | None = None) -> dict[str, Any]:
    """Return what a worker measured, as a member of a control group if its file of processes is given."""
    join = "" if processes is None else f"open({str(processes)!r}, 'w').write('0'); "
    code = f"import sys; {join}from benchmarks.tables_worker import main; main(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(request)], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        raise UserError(f"the worker ended with {done.returncode} (-9: it ran out of the memory limit)")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _row(
    request: dict[str, Any], run: dict[str, Any], in_memory: dict[str, Any], limit: int | None, peak: int | None
) -> dict[str, Any]:
    """Return the figures of a run; those per second are of its second half."""
    return {
        "tables": "memory" if limit is None else "files",
        "entities": request["entities"],
        "facts": request["distribution"],
        "weights and state GB": run["table_bytes"] / 1e9,
        "limit GB": None if limit is None else limit / 1e9,
        "peak of group GB": None if peak is None else peak / 1e9,
        "own memory GB": run["anonymous_bytes"] / 1e9,
        "start s": run["start_seconds"],
        "facts/s": run["facts_per_second"],
        "of memory": run["facts_per_second"] / in_memory["facts_per_second"],
        "CPU ms/fact": 1000 * run["cpu_seconds"] / run["counted_facts"],
        "pages read/fact": run["blocks_read"] / run["counted_facts"],
    }
