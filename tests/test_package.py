"""The package: built twice it has the same bytes; it has what it needs and nothing else; its extras are documented."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

import recollect

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def build(folder: Path) -> Path:
    """Return the wheel of this tree, built into a folder."""
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation"]
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", folder, ROOT], check=True, timeout=120
    )
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.mark.long
def test_a_wheel_that_is_built_twice_has_the_same_bytes(tmp_path):
    first, second = build(tmp_path / "first"), build(tmp_path / "second")
    assert first.read_bytes() == second.read_bytes()
    names = zipfile.ZipFile(first).namelist()
    assert "recollect/py.typed" in names
    assert "recollect/io/datasets/published.toml" in names
    page = [name for name in names if name.startswith("recollect/serve/page/")]
    assert any(name.endswith(".js") for name in page)
    assert any("licen" in name.lower() for name in page), "vendored JavaScript keeps its licence"
    assert all(name.startswith(("recollect/", "recollect-")) for name in names)


def test_the_version_is_the_same_everywhere():
    assert PROJECT["version"] == recollect.__version__


def test_every_extra_is_in_the_readme_or_the_documents():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    for extra in PROJECT["optional-dependencies"]:
        assert re.search(rf"recollect\[[\w,]*\b{extra}\b|`{extra}`", text), extra


def test_workflows_call_targets_that_exist():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    for file in (ROOT / ".github" / "workflows").glob("*.yml"):
        jobs = yaml.safe_load(file.read_text(encoding="utf-8"))["jobs"]
        runs = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
        assert {run.split()[1] for run in runs if run.startswith("make ")} <= targets
        assert all(run.startswith("make ") for run in runs), "a workflow does what make does"
