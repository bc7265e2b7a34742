"""Imports between folders go one way, and nothing unsafe gets in."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import recollect

ROOT = Path(recollect.__file__).parent
FOLDERS = [
    "cli",
    "serve",
    "memory",
    "training",
    "history",
    "evaluation",
    "io",
    "models",
    "engine",
    "graph",
]  # each imports those after it
FILES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
UNSAFE = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}


def imported(path: Path) -> set[str]:
    """Return the dotted names of all modules that a file imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_folder_imports_only_folders_after_it(path):
    own = FOLDERS.index(path.relative_to(ROOT).parts[0])
    used = {name.split(".")[1] for name in imported(path) if name.startswith("recollect.")}
    assert used <= {*FOLDERS[own:], "errors"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_that_executes_what_it_reads_is_imported(path):
    assert not UNSAFE & {name.split(".")[0] for name in imported(path)}
