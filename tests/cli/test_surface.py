"""The commands and their options, frozen."""

from __future__ import annotations

import typer.main

from recollect.cli.main import app

COMMANDS = {
    "demo": {"out", "seed"},
    "train": {
        *(
            "data",
            "out",
            "model",
            "rank",
            "predicate_dim",
            "time_dim",
            "form",
            "recipe",
            "loss",
            "margin",
            "negatives",
        ),
        *("predict", "reciprocal", "average", "levels", "smoothness", "penalty", "dropout", "label_smoothing"),
        "candidates",
        *(
            "avoid_known",
            "optimizer",
            "learning_rate",
            "l2",
            "batch_size",
            "order",
            "epochs",
            "validate_every",
            "patience",
            "split",
            "entities",
        ),
        *("seed", "dtype", "device", "columns", "grain", "static", "inclusive_end", "resume", "force", "as_json"),
    },
    "evaluate": {"memory", "split", "slots", "as_json"},
    "search": {
        *("data", "out", "budget", "model", "rank", "predicate_dim", "time_dim", "form", "recipe", "epochs"),
        *("validate_every", "split", "seed", "columns", "grain", "as_json"),
    },
    "baseline": {"data", "split", "slots", "columns", "grain", "as_json"},
    "recall": {"memory", "subject", "predicate", "object", "time", "top", "as_json"},
    "know": {"memory", "subject", "predicate", "object", "as_of", "top", "as_json"},
    "project": {"memory", "out", "as_of", "force", "as_json"},
    "models": {"as_json"},
    "reproduce": {"names", "out", "quick", "data", "rank", "as_json"},
    "bench": {"only", "quick", "repeats", "pykeen", "figure", "as_json"},
    "data": {},
}


READING = {"columns", "grain", "static", "inclusive_end"}
DATA_COMMANDS = {
    "list": {"as_json"},
    "show": {"data", *READING, "figure", "as_json"},
    "fetch": {"names", "as_json"},
    "build": {
        *("sources", "out", "actors", "predicates", "grain", "since", "until", "entities", "self_loops", "counts"),
        *("force", "as_json"),
    },
    "export": {"data", "out", "format", *READING, "force", "as_json"},
}


def test_the_command_line_is_frozen():
    group = typer.main.get_command(app)
    assert set(group.commands) == set(COMMANDS)
    for name, parameters in COMMANDS.items():
        if name != "data":
            assert {p.name for p in group.commands[name].params} - {"help"} == parameters
    data = group.commands["data"].commands
    assert set(data) == set(DATA_COMMANDS)
    for name, parameters in DATA_COMMANDS.items():
        assert {p.name for p in data[name].params} - {"help"} == parameters


def test_every_command_has_help_with_an_example():
    group = typer.main.get_command(app)
    commands = [c for n, c in group.commands.items() if n != "data"] + list(group.commands["data"].commands.values())
    for command in commands:
        assert "Example: `recollect " in command.help
        for parameter in command.params:
            assert getattr(parameter, "help", None), f"{command.name} {parameter.name}"


def test_shell_completion_is_offered():
    assert {p.name for p in typer.main.get_command(app).params} >= {"install_completion", "show_completion"}
