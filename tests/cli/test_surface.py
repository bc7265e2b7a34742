"""The commands: their help, their options, and what they import to start fast."""

from __future__ import annotations

import subprocess
import sys

import typer.main

import net
from recollect.cli.main import app

HEAVY = ("torch", "polars", "numba", "numpy", "pandas", "pyarrow", "matplotlib", "optuna")


def modules_after(*words: str) -> set[str]:
    """Return the modules that a new interpreter has loaded after `python words…`."""
    command = [sys.executable, "-X", "importtime", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}


def test_help_and_version_import_nothing_heavy():
    for words in (["--help"], ["--version"], ["train", "--help"]):
        loaded = modules_after("-m", "recollect", *words)
        assert "recollect.cli.main" in loaded
        assert loaded.isdisjoint(HEAVY)


def test_importing_the_package_imports_nothing_heavy():
    loaded = modules_after("-c", "import recollect")
    assert "recollect" in loaded
    assert loaded.isdisjoint({*HEAVY, "typer", "rich"})


def leaf_commands() -> dict[str, typer.core.TyperCommand]:
    """Return every command by its words."""
    found = {}
    for name, command in typer.main.get_command(app).commands.items():
        inner = getattr(command, "commands", None)
        found |= {f"{name} {each}": inner[each] for each in inner} if inner else {name: command}
    return found


def examples(page: str) -> list[str]:
    """Return the commands that a help page shows, without the comments after them."""
    return [line.strip().split("   ")[0] for line in page.splitlines() if line.strip().startswith("recollect ")]


def test_every_help_fits_a_screen_of_80_columns(monkeypatch):
    monkeypatch.setattr(net, "HELP_COLUMNS", 80)
    for words in net.commands():
        lines = net.run_command(*words, "--help")[1].strip("\n").splitlines()
        longest = {(): 44, ("train",): 36, ("search",): 36, ("data", "build"): 30}.get(words, 28)
        assert len(lines) <= longest, words
        assert max(map(len, lines)) <= 90, words  # examples are not wrapped


def test_no_sentence_about_a_command_is_cut():
    for name, command in {"": app, **{group.name: group.typer_instance for group in app.registered_groups}}.items():
        group = typer.main.get_command(command)
        for each in group.commands.values():
            assert "..." not in each.get_short_help_str(80 - 6 - max(map(len, group.commands))), (name, each.name)


def test_the_commonest_commands_show_three_uses():
    for name in ("train", "ask", "recall", "know", "forecast", "evaluate", "baseline", "data show", "data export"):
        assert len(examples(leaf_commands()[name].help)) == 3, name


def test_every_command_has_help_with_an_example():
    for name, command in leaf_commands().items():
        assert examples(command.help), name
        assert "Next: " in command.help, name
        for parameter in command.params:
            assert getattr(parameter, "help", None), f"{name} {parameter.name}"


def test_train_has_at_most_twenty_options():
    options = [p for p in leaf_commands()["train"].params if p.param_type_name == "option" and p.name != "help"]
    assert len(options) <= 20


def test_search_takes_the_data_and_model_options_of_train():
    commands = leaf_commands()
    options = {name: {p.name: p.help for p in commands[name].params} for name in ("train", "search")}
    shared = options["train"].keys() - {"out", "device", "resume", "force", "evaluate", "tables", "shard"}
    assert {name: options["search"].get(name) for name in shared} == {name: options["train"][name] for name in shared}


def test_shell_completion_is_offered():
    assert {p.name for p in typer.main.get_command(app).params} >= {"install_completion", "show_completion", "version"}
