"""Memories and checkpoints that version 0.1 wrote load, answer and continue as they did then (fixtures/README.md).

Neither the fixtures nor the answers that 0.1 gave (fixtures/answers.json) are ever rewritten.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import net
from test_golden import flat

FIXTURES = Path(__file__).parent / "fixtures"
ANSWERS = FIXTURES / "answers.json"
DATES = ("2000-07", "2001-12")
ALL = 10**6  # answers: more than there are

# the slots that a memory has, and the dates that it can be asked about; None: a semantic memory has no date
MEMORIES: dict[str, tuple[tuple[str, ...], tuple[str | None, ...]]] = {
    "memory-0.1": (("subject", "predicate", "object", "time"), DATES),
    "paper-memory-0.1": (("subject", "predicate", "object", "time"), DATES),
    "semantic-memory-0.1": (("subject", "predicate", "object"), (None,)),
}
# the settings that each run was started with, as `net.start_run` takes them
RUNS: dict[str, dict[str, Any]] = {
    "run-0.1.partial": {
        **{"model": "cont", "form": "both", "dim": 4, "recipe": "modern"},
        "options": {"epochs": 5, "validate_every": 1, "batch_size": 128, "levels": (1, 5)},
    },
    "paper-run-0.1.partial": {
        **{"model": "complex", "form": "episodic", "dim": 6, "recipe": "paper"},
        "options": {"epochs": 5, "validate_every": 2, "batch_size": 128, "learning_rate": 0.05, "order": "blocks"},
    },
}


def assert_same_answers(
    found: list[dict[str, Any]], wanted: list[dict[str, Any]], numbers: tuple[str, ...] = ("score", "probability")
) -> None:
    """Compare the answers that 0.1 gave with all of today's, by label; stored ones now come first and are certain."""
    by_label = {labels_of(row): row for row in found}
    for row in wanted:
        now = by_label[labels_of(row)]
        assert now["status"] == row["status"]
        if row["status"] == "predicted":
            assert [now[name] for name in numbers] == pytest.approx([row[name] for name in numbers], rel=1e-5)
        else:
            assert now["probability"] == 1.0


def labels_of(row: dict[str, Any]) -> tuple[str, ...]:
    return tuple(value for key, value in row.items() if key not in ("score", "probability", "status"))


def answers(name: str) -> dict[str, Any]:
    """Return what a memory recalls, knows and how it evaluates."""
    memory = net.load_memory(FIXTURES / name)
    slots, dates = MEMORIES[name]
    facts = [{slot: fact[slot] for slot in slots} for fact in net.facts_of(memory, "test", 2)]
    recalled = {}
    for number, fact in enumerate(facts):
        for slot in slots:
            given = {other: label for other, label in fact.items() if other != slot}
            recalled[f"{slot} of fact {number}"] = net.recall(memory, ALL, **given)
    predicate = facts[0]["predicate"]
    known = {f"as of {date}": net.know(memory, date, ALL) for date in dates}
    known |= {f"{predicate} as of {date}": net.know(memory, date, ALL, predicate=predicate) for date in dates}
    return {"facts": facts, "recall": recalled, "know": known, "evaluate": net.evaluate(memory, "test")}


def ending(name: str) -> dict[str, Any]:
    """Return how an interrupted run ends."""
    return net.resume_checkpoint(FIXTURES / name, net.small_world(), **RUNS[name])


def assert_alike(found: Any, wanted: Any) -> None:
    """Compare nested answers: numbers within 1e-5, all else equal."""
    found, wanted = flat(found), flat(wanted)
    assert found.keys() == wanted.keys()
    numbers = [path for path, value in wanted.items() if isinstance(value, int | float)]
    texts = wanted.keys() - set(numbers)
    assert {path: found[path] for path in texts} == {path: wanted[path] for path in texts}
    close = pytest.approx({path: wanted[path] for path in numbers}, rel=1e-5, abs=1e-9)
    assert {path: found[path] for path in numbers} == close


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    return json.loads(ANSWERS.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", MEMORIES)
def test_a_memory_of_version_0_1_answers_as_it_did(name, recorded):
    found, wanted = answers(name), recorded["memories"][name]
    for each in (found, wanted):  # 0.1 measured stored and predicted candidates together; now it is predicted ones
        del each["evaluate"]["calibration"]
    assert_alike(
        {key: found[key] for key in ("facts", "evaluate")}, {key: wanted[key] for key in ("facts", "evaluate")}
    )
    # what a projection knows is calibrated when it is asked: today for what is not stored
    numbers = {
        "recall": ("score", "probability"),
        "know": ("score", "probability") if "semantic" in name else ("score",),
    }
    for kind in ("recall", "know"):
        assert found[kind].keys() == wanted[kind].keys()
        for question, rows in wanted[kind].items():
            assert_same_answers(found[kind][question], rows, numbers[kind])


@pytest.mark.parametrize("name", RUNS)
def test_a_run_of_version_0_1_is_resumed_and_ends_as_it_would_have(name, recorded):
    assert_alike(ending(name), recorded["runs"][name])
