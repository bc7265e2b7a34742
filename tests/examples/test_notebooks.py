"""The notebooks of examples/ carry no outputs and no paths of a machine; they run, and their code is typed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:work|home|root|tmp|Users|mnt|opt)/|[A-Z]:\\\\")
RUN = """
import sys

import nbformat
from nbclient import NotebookClient

notebook = nbformat.read(sys.argv[1], as_version=4)
NotebookClient(notebook, timeout=600, resources={"metadata": {"path": sys.argv[2]}}).execute()
"""


def cells(path: Path, kind: str = "code") -> list[dict]:
    found = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in found if cell["cell_type"] == kind]


def source(path: Path) -> str:
    """Return the code of a notebook as a module."""
    return "\n".join("".join(cell["source"]) for cell in cells(path)) + "\n"


def test_there_are_notebooks():
    assert len(NOTEBOOKS) >= 4


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_has_no_outputs_and_no_paths_of_a_machine(path):
    for cell in cells(path):
        assert cell["outputs"] == []
        assert cell["execution_count"] is None
    assert not MACHINE_PATH.search(path.read_text(encoding="utf-8"))
    assert set(json.loads(path.read_text(encoding="utf-8"))["metadata"]) == {"kernelspec", "language_info"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_begins_with_a_heading_and_is_in_the_list(path):
    assert "".join(cells(path, "markdown")[0]["source"]).startswith("# ")
    assert f"(../../examples/{path.name})" in (ROOT / "docs/tutorials/notebooks.md").read_text(encoding="utf-8")


@pytest.mark.long
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_cell_of_a_notebook_runs(path, tmp_path):
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    command = [sys.executable, "-c", RUN, str(path), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.long
def test_the_code_of_notebooks_passes_mypy_strict(tmp_path):
    for path in NOTEBOOKS:
        (tmp_path / f"{path.stem}.py").write_text(source(path), encoding="utf-8")
    files = [str(tmp_path / f"{path.stem}.py") for path in NOTEBOOKS]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", *files], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
