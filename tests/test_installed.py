"""The installed wheel: a first answer on one's own table, types for a user's script, the bill of materials.

`make test-wheel` installs it with the newest dependencies in an environment of its own and names that Python in
RECOLLECT_WHEEL_PYTHON. Otherwise the wheel is installed next to the dependencies of this environment.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
from datetime import date, timedelta
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from test_package import PROJECT, ROOT, build_wheel

pytestmark = pytest.mark.long

FIRST_ANSWER = """\
import recollect

columns = {"subject": "customer", "predicate": "action", "object": "city", "time": "date"}
memory = recollect.Memory.learn(recollect.read("orders.csv", columns=columns))
print(memory.recall(subject="Ada", predicate="visits", time="2024-07-19"))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """Return a Python that has the wheel of this tree, and no other recollect before it."""
    if chosen := os.environ.get("RECOLLECT_WHEEL_PYTHON"):
        return Path(chosen).absolute()
    folder = tmp_path_factory.mktemp("installed")
    wheel = build_wheel(folder / "dist")
    venv.create(folder / "venv", symlinks=os.name == "posix")
    paths = {"base": str(folder / "venv"), "platbase": str(folder / "venv")}
    packages = Path(sysconfig.get_path("purelib", scheme="venv", vars=paths))
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", packages, wheel], check=True
    )
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    return Path(sysconfig.get_path("scripts", scheme="venv", vars=paths)) / "python"


def run(*words: str | Path, cwd: Path) -> str:
    """Return what a command prints; this tree is not on its path."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "MYPY"))}
    done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_installed_package_is_that_of_the_wheel(installed, tmp_path):
    script = "import recollect, importlib.metadata as m; print(recollect.__file__, m.version('recollect'))"
    file, version = run(installed, "-c", script, cwd=tmp_path).split()
    assert Path(file).is_relative_to(installed.parents[1])
    assert version == PROJECT["version"]


def test_five_lines_give_a_first_answer_on_an_own_table(installed, tmp_path):
    lines = [line for line in FIRST_ANSWER.splitlines() if line]
    assert len(lines) <= 5
    start, cities = date(2024, 1, 1), ["Oslo", "Riga", "Kiel", "Turku"]
    rows = [
        f"{start + timedelta(days=i // 3)},{('Ada', 'Ben', 'Cleo', 'Dan')[i % 4]},{('visits', 'calls')[i % 3 % 2]},"
        f"{cities[(i % 4 + (i % 7 == 0)) % 4]}"
        for i in range(600)
    ]
    (tmp_path / "orders.csv").write_text("\n".join(["date,customer,action,city", *rows]) + "\n", encoding="utf-8")
    (tmp_path / "first.py").write_text(FIRST_ANSWER, encoding="utf-8")
    answers = run(installed, "-X", "utf8", "first.py", cwd=tmp_path)
    assert "Oslo" in answers
    assert "predicted" in answers


def test_the_command_line_starts(installed, tmp_path):
    command = installed.with_name("recollect")
    program = [command] if command.exists() else [installed, "-m", "recollect"]
    assert run(*program, "--version", cwd=tmp_path).strip() == PROJECT["version"]


def test_the_types_of_the_installed_package_pass_mypy_strict_in_a_script_of_a_user(installed, tmp_path):
    script = tmp_path / "user_script.py"
    script.write_bytes((ROOT / "tests" / "fixtures" / "user_script.py").read_bytes())
    mypy = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", tmp_path / "cache"]
    run(*mypy, "--python-executable", installed, script, cwd=tmp_path)
    script.write_text(script.read_text(encoding="utf-8").replace("horizon=3", "horizon='3'"), encoding="utf-8")
    with pytest.raises(AssertionError, match='incompatible type "str"; expected "int"'):
        run(*mypy, "--python-executable", installed, script, cwd=tmp_path)


def test_examples_pass_mypy_strict_without_relaxations(tmp_path):
    run(sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", tmp_path, "examples", cwd=ROOT)


@pytest.mark.skipif("RECOLLECT_WHEEL_PYTHON" not in os.environ, reason="make test-wheel writes the bill of materials")
def test_the_bill_of_materials_lists_what_the_wheel_installs(installed, tmp_path):
    bill = json.loads((ROOT / "build" / "recollect.cdx.json").read_text(encoding="utf-8"))
    assert bill["bomFormat"] == "CycloneDX"
    root = bill["metadata"]["component"]
    assert (root["name"], root["version"], root["type"]) == ("recollect", PROJECT["version"], "library")
    script = "import importlib.metadata as m, json; print(json.dumps([[d.name, d.version] for d in m.distributions()]))"
    found = {(name, version) for name, version in json.loads(run(installed, "-c", script, cwd=tmp_path))}
    components = {(component["name"], component["version"]): component for component in bill["components"]}
    assert found - {("recollect", PROJECT["version"])} == set(components)
    assert all(component["purl"].startswith("pkg:pypi/") for component in components.values())
    edges = {edge["ref"]: edge.get("dependsOn", []) for edge in bill["dependencies"]}
    direct = {canonicalize_name(ref.split("==")[0]) for ref in edges[root["bom-ref"]]}
    assert {canonicalize_name(Requirement(line).name) for line in PROJECT["dependencies"]} <= direct
