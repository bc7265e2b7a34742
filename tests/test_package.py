"""The package: the same bytes when built twice, documented extras, licences, the ranges of its dependencies."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterable
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import recollect

ROOT = Path(__file__).parents[1]
VENDORED = ROOT / "src" / "recollect" / "serve" / "page" / "vendor"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

TESTED_EXTRAS = ("plots", "matlab", "excel", "search", "serve", "hub", "dev")  # those that `make test` installs
PERMISSIVE = re.compile(r"MIT|BSD|Apache|ISC|PSF|Python Software Foundation|MPL|Mozilla")
COPYLEFT = re.compile(r"GPL|MPL|Mozilla|EUPL|SSPL|CDDL")
FILE_LEVEL = {"certifi", "tqdm"}  # MPL 2.0: it covers their own files, whatever uses them


def build_wheel(folder: Path) -> Path:
    """Return the wheel of this tree, built into a folder."""
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation"]
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", folder, ROOT], check=True, timeout=120
    )
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.mark.long
def test_a_wheel_that_is_built_twice_has_the_same_bytes(tmp_path):
    first, second = build_wheel(tmp_path / "first"), build_wheel(tmp_path / "second")
    assert first.read_bytes() == second.read_bytes()
    names = zipfile.ZipFile(first).namelist()
    assert "recollect/py.typed" in names
    assert "recollect/io/datasets/published.toml" in names
    page = [name for name in names if name.startswith("recollect/serve/page/")]
    assert any(name.endswith(".js") for name in page)
    for licence in VENDORED.glob("LICENSE-*"):
        assert f"recollect/serve/page/vendor/{licence.name}" in names, "vendored JavaScript keeps its licence"
        assert any(name.endswith(f".dist-info/licenses/{licence.relative_to(ROOT)}") for name in names)
    assert all(name.startswith(("recollect/", "recollect-")) for name in names)


def test_the_version_is_the_same_everywhere():
    assert PROJECT["version"] == recollect.__version__


def test_every_extra_is_in_the_readme_or_the_documents():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    for extra in PROJECT["optional-dependencies"]:
        assert re.search(rf"recollect\[[\w,]*\b{extra}\b|`{extra}`", text), extra


def test_every_vendored_file_has_its_version_and_its_licence():
    table = (VENDORED / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+) \| \S+ [\d.]+ \| .+ \((LICENSE-\S+)\) \|$", table, flags=re.MULTILINE)
    named = {file: licence for files, licence in rows for file in files.split(", ")}
    files = {path.name for path in VENDORED.iterdir()}
    assert set(named) | set(named.values()) | {"README.md"} == files
    for licence in set(named.values()):
        text = (VENDORED / licence).read_text(encoding="utf-8")
        assert "Copyright" in text
        assert "Permission is hereby granted" in text or "Apache License" in text


def licences(distribution: Distribution) -> str:
    """Return what a distribution says of its licence: an expression, classifiers, or the first line of a text."""
    metadata = distribution.metadata
    classifiers = [line for line in metadata.get_all("Classifier") or [] if line.startswith("License ::")]
    text = (metadata.get("License") or "").strip().partition("\n")[0]
    return metadata.get("License-Expression") or " AND ".join(classifiers) or text


def required(name: str, extras: Iterable[str], found: dict[str, Distribution]) -> None:
    """Add the installed distributions that one needs, with some of its extras, to those that were found."""
    for line in distribution(name).requires or []:
        requirement = Requirement(line)
        key = canonicalize_name(requirement.name)
        wanted = requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in extras)
        if wanted and key not in found:
            found[key] = distribution(key)
            required(key, {"", *requirement.extras}, found)


def test_every_dependency_has_a_permissive_licence():
    found: dict[str, Distribution] = {}
    required("recollect", {"", "plots", "matlab", "excel", "search", "serve", "hub"}, found)
    assert len(found) > 40
    for name, one in found.items():
        if name.startswith(("nvidia-", "cuda-")):
            continue  # of PyTorch's build for CUDA, under NVIDIA's own terms; the CPU build has none
        assert PERMISSIVE.search(licences(one)), (name, licences(one))
        if COPYLEFT.search(licences(one)):
            assert name in FILE_LEVEL, (name, licences(one))


def lower_bounds(lines: Iterable[str]) -> dict[str, Version]:
    """Return the oldest version that each requirement admits."""
    bounds = {}
    for requirement in map(Requirement, lines):
        (bound,) = [Version(part.version) for part in requirement.specifier if part.operator == ">="]
        bounds[canonicalize_name(requirement.name)] = bound
    return bounds


def pins(file: str) -> dict[str, Version]:
    """Return the version of each package in a file of constraints."""
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    pairs = [line.partition("==")[::2] for line in lines if "==" in line and not line.startswith("#")]
    return {canonicalize_name(name): Version(version) for name, version in pairs}


def test_the_lowest_versions_that_are_tested_are_those_that_are_admitted():
    extras = PROJECT["optional-dependencies"]
    lines = [*PROJECT["dependencies"], *(line for name in TESTED_EXTRAS for line in extras[name])]
    bounds = lower_bounds(line for line in lines if not line.startswith("recollect["))
    lowest = pins("constraints-lowest.txt")
    assert {name: lowest[name] for name in bounds} == bounds


def test_workflows_call_targets_that_exist():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    for file in (ROOT / ".github" / "workflows").glob("*.yml"):
        jobs = yaml.safe_load(file.read_text(encoding="utf-8"))["jobs"]
        runs = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
        assert {run.split()[1] for run in runs if run.startswith("make ")} <= targets
        assert all(run.startswith("make ") for run in runs), "a workflow does what make does"
