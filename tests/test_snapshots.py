"""Snapshots of the command line: the text of every --help, and the keys and types of every --json.

`python tests/test_snapshots.py` rewrites both; the difference then shows what a change means for users.
"""

from __future__ import annotations

import json
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import net

GOLDEN = Path(__file__).parent / "golden"
HELP, KEYS = GOLDEN / "help.txt", GOLDEN / "json_keys.json"
FIXTURES = Path(__file__).parent / "fixtures"
OPEN = {"importance", "dropped", "busiest_entities", "busiest_predicates"}  # dictionaries whose keys are data
PINS = (Path(__file__).parents[1] / "constraints.txt").read_text(encoding="utf-8").split()
HAS_PINNED_TYPER = f"typer=={version('typer')}" in PINS
NAMES = {type(None): "null", bool: "bool", int: "int", float: "float", str: "str"}


def help_text() -> str:
    """Return what every command prints for --help, one after another."""
    pages = []
    for words in net.commands():
        code, text = net.run_command(*words, "--help")
        assert code == 0, words
        lines = [line.rstrip() for line in text.strip("\n").splitlines()]
        pages.append("\n".join([f"$ {' '.join(['recollect', *words, '--help'])}", *lines]).rstrip() + "\n")
    return "\n".join(pages)


def shape(value: Any) -> Any:
    """Return the keys and types of a JSON value; the elements of a list are described together.

    >>> shape({"a": 1, "b": [{"c": None}, {"c": 0.5}], "dropped": {"x": 1}})
    {'a': 'int', 'b': [{'c': 'float|null'}], 'dropped': 'object'}
    """
    if isinstance(value, dict):
        return {key: "object" if key in OPEN else shape(each) for key, each in value.items()}
    if isinstance(value, list):
        described: list[Any] = []
        for each in value:
            described = [together(described[0], shape(each)) if described else shape(each)]
        return described
    return NAMES[type(value)]


def together(one: Any, other: Any) -> Any:
    """Return the shape of what has either shape; the key "?" tells what else may be in the place of a dictionary.

    >>> together({"a": "int"}, "null")
    {'a': 'int', '?': 'null'}
    """
    if one == other:
        return one
    if isinstance(one, str) and isinstance(other, dict):
        one, other = other, one
    if isinstance(one, dict) and isinstance(other, str):
        return one | {"?": together(one.get("?", other), other)}
    if isinstance(one, dict) and isinstance(other, dict):
        merged = {key: together(one.get(key, "absent"), other.get(key, "absent")) for key in {**one, **other}}
        if "?" in merged:
            merged["?"] = together(one.get("?", other.get("?")), other.get("?", one.get("?")))
        return merged
    if isinstance(one, str) and isinstance(other, str):
        return "|".join(sorted({*one.split("|"), *other.split("|")}))
    if isinstance(one, list) and isinstance(other, list):
        return [together(one[0], other[0])] if one and other else one or other
    return [one, other]


def json_keys(folder: Path) -> dict[str, Any]:
    """Return the shape of what every command with --json prints."""
    shapes = {}
    for name, words in net.json_commands(folder, FIXTURES).items():
        code, text = net.run_command(*words, data=folder)
        assert code == 0, name
        shapes[name] = shape(json.loads(text))
    return shapes


@pytest.mark.skipif(not HAS_PINNED_TYPER, reason="other versions of typer lay out help in another way")
def test_every_help_is_as_it_was():
    assert help_text().splitlines() == HELP.read_text(encoding="utf-8").splitlines()


def test_every_json_has_the_keys_and_types_that_it_had(tmp_path):
    assert json_keys(tmp_path) == json.loads(KEYS.read_text(encoding="utf-8"))


def test_every_command_with_json_is_called(tmp_path):
    having = {" ".join(words) for words in net.commands() if "--json" in net.run_command(*words, "--help")[1]}
    assert net.json_commands(tmp_path, FIXTURES).keys() == having


def write() -> None:
    """Rewrite both snapshots from the command line as it is."""
    net.use_one_thread()
    HELP.write_text(help_text(), encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        KEYS.write_text(json.dumps(json_keys(Path(folder)), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
