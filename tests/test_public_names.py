"""The public names of the package, and what importing them costs."""

from __future__ import annotations

import ast
import doctest
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import recollect

ALL = [
    *("MODELS", "RECIPES"),
    *("DataWarning", "EpisodicGraph", "Epoch", "Evaluation", "EventRecipe", "Facts", "Memory", "ModelConfig"),
    *("Recipe", "Step"),
    *("TimeAxis", "TrainingRun", "UserError", "Vocabulary"),
    *("aggregate", "current", "dataset", "ends", "load", "rare", "read", "read_events", "runs", "split_by_time"),
    *("split_randomly", "starts", "write_graph"),
]
HEAVY = ["typer", "matplotlib", "numba", "pandas"]


def test_the_public_names_are_these():
    assert recollect.__all__ == ALL
    assert set(ALL) <= set(dir(recollect))


def test_every_public_name_is_imported_from_the_module_that_type_checkers_see():
    tree = ast.parse(Path(recollect.__file__).read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    declared = {alias.name: node.module for node in block.body for alias in node.names}
    assert sorted(declared) == sorted(ALL)
    for name, module in declared.items():
        assert getattr(recollect, name) is getattr(sys.modules[module], name)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'recollect' has no attribute 'remember_everything'"):
        _ = recollect.remember_everything


CONSTANTS = ["MODELS", "RECIPES"]  # which have no docstring; the reference shows them in blocks that are executed


@pytest.mark.parametrize("name", [name for name in ALL if name not in CONSTANTS])
def test_every_public_name_has_an_example_that_is_executed(name):
    thing = getattr(recollect, name)
    module = inspect.getmodule(thing)
    found = doctest.DocTestFinder(recurse=False).find(getattr(thing, "__func__", thing), name, module=module)
    executed = [example for test in found for example in test.examples if not example.options.get(doctest.SKIP)]
    assert executed, f"the docstring of {name} has no example"
    assert Path(inspect.getfile(module)).is_relative_to(Path(recollect.__file__).parent), "pytest runs those of src"


def docstrings(name: str) -> dict[str, str]:
    """Return the docstrings that the reference shows for a public name: its own, and those of its public members."""
    thing = getattr(recollect, name)
    found = {name: thing.__doc__}
    for kind in thing.__mro__ if inspect.isclass(thing) else ():
        members = vars(kind) if kind.__module__.startswith("recollect") else {}
        public = {key: member for key, member in members.items() if not key.startswith("_")}
        own = {key: member for key, member in public.items() if callable(member) or hasattr(member, "__get__")}
        found |= {f"{name}.{key}": member.__doc__ for key, member in own.items()}
    return {key: inspect.cleandoc(text) for key, text in found.items() if text}


@pytest.mark.parametrize("name", [name for name in ALL if name not in CONSTANTS])
def test_examples_are_in_a_section_of_their_own_which_the_reference_shows_as_code(name):
    for key, text in docstrings(name).items():
        assert ">>>" not in text.partition("\nExamples:\n")[0], key


@pytest.mark.parametrize("name", CONSTANTS)
def test_every_public_constant_is_in_an_executed_block_of_the_reference(name):
    pages = (Path(__file__).parents[1] / "docs" / "reference").glob("*.md")
    blocks = [part for page in pages for part in page.read_text(encoding="utf-8").split("```python\n")[1:]]
    assert any(name in block.partition("```")[0] for block in blocks)


def modules_after(code: str) -> set[str]:
    """Return the names of all modules that are loaded after a fresh interpreter has run some code."""
    command = [sys.executable, "-c", f"{code}; import sys; print(*sys.modules)"]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def test_importing_the_package_imports_no_other_library():
    assert not {"torch", "polars", "numpy", *HEAVY} & modules_after("import recollect")


@pytest.fixture(scope="module")
def modules_of_the_api() -> set[str]:
    return modules_after("from recollect import *")


@pytest.mark.parametrize("library", HEAVY)
def test_importing_every_public_name_does_not_import(modules_of_the_api, library):
    assert library not in modules_of_the_api
    assert "torch" in modules_of_the_api
