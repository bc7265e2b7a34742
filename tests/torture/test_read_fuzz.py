"""Whatever file is given to `read`, a graph or a UserError comes out, soon and in little memory.

The ordinary suite reads a few inputs of every kind. With RECOLLECT_TORTURE=1 (`make torture`) there are 20,800, each
timed and its memory measured, in processes of their own: one that dies is a failure.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from recollect.errors import DataWarning
from recollect.io.merging import FACT_BYTES
from torture.read_inputs import LARGE, MAKERS, make_input
from torture.read_worker import outcome

INPUTS, PROCESS_INPUTS = 1_600 * len(MAKERS), 5_200
MAX_SECONDS = 30
SPARE_BYTES, LABEL_BYTES, PARQUET_ROW_BYTES = 200_000_000, 500, 400  # as docs/data.md says
TESTS = Path(__file__).parents[1]
LONG = pytest.mark.skipif(not os.environ.get("RECOLLECT_TORTURE"), reason="takes minutes: make torture")


@pytest.mark.parametrize("kind", MAKERS)
def test_inputs_of_every_kind_are_a_graph_or_an_error(tmp_path, kind):
    for n in range(8):
        made = make_input(n * len(MAKERS) + list(MAKERS).index(kind))
        folder = tmp_path / str(n)
        folder.mkdir()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)
            result, _ = outcome(made.write(folder), made.options)
        assert made.kind == kind
        assert result in ("graph", "UserError"), n


def test_the_same_number_gives_the_same_input():
    for number in range(len(MAKERS)):
        assert make_input(number) == make_input(number)


def run_inputs(first: int, stop: int, report: Path) -> list[dict]:
    """Return the reports of inputs `first` to `stop`; the process is started again after an input that kills it."""
    while first < stop:
        command = [sys.executable, "-m", "torture.read_worker", str(first), str(stop), report]
        done = subprocess.run(command, cwd=TESTS, capture_output=True, text=True)
        if not done.returncode:
            break
        first = [json.loads(line) for line in report.read_text().splitlines()][-1]["started"]
        with report.open("a") as lines:
            row = {"number": first, "kind": make_input(first).kind, "size": 0, "facts": 0, "seconds": 0.0, "peak": 0}
            killed = f"the process ended with {done.returncode}: {done.stderr[-300:]}"
            lines.write(json.dumps(row | {"result": killed}) + "\n")
        first += 1
    return [row for row in map(json.loads, report.read_text().splitlines()) if "number" in row]


@LONG
@pytest.mark.parametrize("name", LARGE)
def test_a_large_file_takes_memory_by_its_size_its_facts_and_its_labels(tmp_path, name):
    large, report = LARGE[name], tmp_path / "report.json"
    subprocess.run([sys.executable, "-m", "torture.read_worker", "large", name, report], cwd=TESTS, check=True)
    found = json.loads(report.read_text())
    row_bytes = PARQUET_ROW_BYTES if large.packed else FACT_BYTES
    limit = 4 * found["size"] + SPARE_BYTES + row_bytes * large.rows + LABEL_BYTES * large.distinct
    assert (found["result"], found["facts"]) == ("graph", large.rows)
    assert found["peak"] < limit


@LONG
@pytest.mark.parametrize("first", range(0, INPUTS, PROCESS_INPUTS))
def test_many_inputs_are_a_graph_or_an_error_soon_and_in_little_memory(tmp_path, first):
    rows = run_inputs(first, min(first + PROCESS_INPUTS, INPUTS), tmp_path / "report.jsonl")
    assert len(rows) == min(PROCESS_INPUTS, INPUTS - first)
    assert [row for row in rows if row["result"] not in ("graph", "UserError")] == []
    assert [row for row in rows if row["seconds"] > MAX_SECONDS] == []
    assert [row for row in rows if row["peak"] > 4 * row["size"] + SPARE_BYTES + FACT_BYTES * row["facts"]] == []
