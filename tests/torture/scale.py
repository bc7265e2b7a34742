"""How large the fault injection is: `make test` runs the short form, `make torture` the long one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

IS_LONG = bool(os.environ.get("RECOLLECT_TORTURE"))


def scaled(short: int, long: int) -> int:
    """Return the size of the short or of the long form."""
    return long if IS_LONG else short


def start(module: str, *words: object) -> subprocess.Popen[str]:
    """Start `python -m torture.MODULE` in a process of its own, on one thread."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1", "COLUMNS": "200"}
    command = [sys.executable, "-m", f"torture.{module}", *map(str, words)]
    return subprocess.Popen(command, cwd=Path(__file__).parents[1], env=environment, stdout=-1, stderr=-1, text=True)


def result_of(process: subprocess.Popen[str]) -> Any:
    """Return what a process printed as JSON; `make torture` shows it."""
    out, errors = process.communicate()
    assert process.returncode == 0, errors[-3000:]
    found = json.loads(out) if out else None
    if IS_LONG:
        print(process.args, {**found, "errors": len(found["errors"])} if "errors" in (found or ()) else found)  # noqa: T201
    return found
