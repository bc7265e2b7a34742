"""Read inputs by number and report what came of each: python -m torture.read_worker FIRST STOP REPORT.

Or read one large file: python -m torture.read_worker large NAME REPORT.

One line of JSON per input: its number, kind and size, what came out, seconds, and the peak of memory in bytes above
what the process used before, after freed memory was given back. The number of an input is written before it is read,
so that the parent knows which one killed the process.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import json
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import pyarrow

from recollect import EpisodicGraph, UserError, read
from recollect.errors import DataWarning
from torture.read_inputs import LARGE, make_input

HANG_SECONDS = 120


def memory(field: str) -> int:
    """Return VmRSS (now) or VmHWM (peak) of this process in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(field)


def reset_peak() -> int:
    """Give freed memory back, let the peak VmHWM start again from what is in use, VmRSS, and return that."""
    gc.collect()
    pyarrow.default_memory_pool().release_unused()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return memory("VmRSS")


def outcome(source: Path, options: dict) -> tuple[str, int]:
    """Return "graph", "UserError" or the name of another exception, and how many facts the rows expanded to."""
    try:
        graph = read(source, **options)
    except UserError as error:
        return ("UserError" if str(error) and "\n" not in str(error) else f"UserError of many lines: {error}"), 0
    except BaseException as error:
        return f"{type(error).__name__}: {str(error)[:300]}", 0
    if not isinstance(graph, EpisodicGraph) or not len(graph.facts) or not graph.fingerprint:
        return f"no graph: {graph!r}", 0
    declares_duplicates = (source / "graph.json").exists()  # an export expands nothing, and may lie
    return "graph", len(graph.facts) + (0 if declares_duplicates else graph.duplicates)


def measured(source: Path, options: dict) -> dict[str, Any]:
    """Return what came of reading a file, in how many seconds, and at what peak of memory."""
    before = reset_peak()
    faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
    start = time.perf_counter()
    result, facts = outcome(source, options)
    seconds = time.perf_counter() - start
    faulthandler.cancel_dump_traceback_later()
    return {"result": result, "facts": facts, "seconds": seconds, "peak": memory("VmHWM") - before}


def read_large(name: str, report: Path) -> None:
    """Read a large file and report it."""
    with tempfile.TemporaryDirectory() as place:
        source = LARGE[name].write(Path(place))
        row = {"kind": name, "size": source.stat().st_size} | measured(source, {})
    report.write_text(json.dumps(row))


def read_inputs(first: int, stop: int, report: Path) -> None:
    """Read the inputs of these numbers and report every one."""
    with report.open("a", encoding="utf-8", buffering=1) as lines:
        for number in range(first, stop):
            lines.write(f'{{"started": {number}}}\n')
            made = make_input(number)
            with tempfile.TemporaryDirectory() as place:
                found = measured(made.write(Path(place)), made.options)
            lines.write(json.dumps({"number": number, "kind": made.kind, "size": made.size} | found) + "\n")


if __name__ == "__main__":
    warnings.simplefilter("ignore", DataWarning)
    with tempfile.TemporaryDirectory() as warm:  # libraries are loaded at the first read
        outcome(make_input(2).write(Path(warm)), {})
    gc.freeze()  # what was imported is not searched for garbage
    what, which, where = sys.argv[1:]
    if what == "large":
        read_large(which, Path(where))
    else:
        read_inputs(int(what), int(which), Path(where))
