"""Read inputs by number and report what came of each: python -m torture.read_worker FIRST STOP REPORT.

One line of JSON per input: its number, kind and size, what came out, seconds, and the peak of memory in bytes above
what the process used before, after freed memory was given back. The number of an input is written before it is read,
so that the parent knows which one killed the process.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import json
import os
import sys
import tempfile
import time
import warnings
from pathlib import Path

import pyarrow

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
    from recollect import EpisodicGraph, UserError, read

    try:
        graph = read(source, **options)
    except UserError as error:
        return ("UserError" if str(error) and "\n" not in str(error) else f"UserError of many lines: {error}"), 0
    except BaseException as error:
        return f"{type(error).__name__}: {str(error)[:300]}", 0
    if not isinstance(graph, EpisodicGraph) or not len(graph.facts) or not graph.fingerprint:
        return f"no graph: {graph!r}", 0
    return "graph", len(graph.facts) + graph.duplicates


def main() -> None:
    first, stop, report = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    from recollect.errors import DataWarning
    from torture.read_inputs import make_input

    warnings.simplefilter("ignore", DataWarning)
    make_input(11)  # the exported graphs
    with tempfile.TemporaryDirectory() as place:  # warm up: libraries that are loaded at the first read
        outcome(make_input(2).write(Path(place)), {})
    gc.freeze()  # what was imported is not searched for garbage
    with report.open("a", encoding="utf-8", buffering=1) as lines:
        for number in range(first, stop):
            lines.write(f'{{"started": {number}}}\n')
            made = make_input(number)
            with tempfile.TemporaryDirectory() as place:
                source = made.write(Path(place))
                before = reset_peak()
                faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
                start = time.perf_counter()
                result, facts = outcome(source, made.options)
                seconds = time.perf_counter() - start
                faulthandler.cancel_dump_traceback_later()
                peak = memory("VmHWM") - before
            row = {"number": number, "kind": made.kind, "size": made.size, "result": result, "facts": facts}
            lines.write(json.dumps(row | {"seconds": seconds, "peak": peak}) + "\n")


if __name__ == "__main__":
    os.environ.setdefault("POLARS_MAX_THREADS", "2")
    main()
