"""Compilation in a new process: several at once, and without a folder for machine code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = "import json; from benchmarks.compile_time import use_all_kernels; print(json.dumps(use_all_kernels()))"


def start(**environment: str | None) -> subprocess.Popen[str]:
    """Start a process that uses all kernels and prints a sum of scores per model; None unsets a variable."""
    given = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "src", ROOT)))}
    variables = {key: value for key, value in (given | environment).items() if value is not None}
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT], env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def results(process: subprocess.Popen[str]) -> list[float]:
    output, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    return json.loads(output)


@pytest.mark.long
def test_four_processes_that_start_cold_at_once_compute_the_same(tmp_path):
    processes = [start(NUMBA_CACHE_DIR=str(tmp_path)) for _ in range(4)]
    found = [results(process) for process in processes]
    assert found == found[:1] * 4
    assert any(tmp_path.rglob("*.nbi"))
    assert results(start(NUMBA_CACHE_DIR=str(tmp_path))) == found[0]  # by the machine code that they left
    assert results(start(RECOLLECT_COMPILED="0")) == pytest.approx(found[0], rel=1e-3, abs=1e-2)


@pytest.mark.long
@pytest.mark.parametrize("place", ["file", "missing", "read-only"])
def test_kernels_compile_without_a_writable_cache_folder(place, tmp_path):
    folder = tmp_path / "folder"
    if place == "file":
        folder.write_text("not a folder")
    if place == "read-only":
        folder.mkdir(mode=0o500)
    cache = folder / "below" if place == "missing" else folder
    folders = {"NUMBA_CACHE_DIR": str(cache), "HOME": str(folder), "XDG_CACHE_HOME": None}
    found = results(start(**folders))
    assert len(found) == 7


@pytest.mark.long
def test_kernels_compile_without_a_home_folder():
    assert len(results(start(HOME=None, XDG_CACHE_HOME=None))) == 7
