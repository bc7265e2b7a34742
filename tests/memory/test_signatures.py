"""A memory passes each question on to a snapshot: both take the same options, with the same defaults."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from recollect import Memory
from recollect.memory.asking import Asking
from recollect.memory.snapshot import Snapshot

KNOWN_AT = "known_at"


def functions(cls: type) -> dict[str, Callable[..., Any]]:
    """Return the public methods that a class defines itself."""
    return {name: each for name, each in vars(cls).items() if inspect.isfunction(each) and not name.startswith("_")}


def parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(function).parameters)


QUESTIONS = [name for name in functions(Asking) if hasattr(Snapshot, name)]


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_has_the_options_of_the_snapshot_that_answers_it(name):
    asked, answered = parameters(getattr(Asking, name)), parameters(getattr(Snapshot, name))
    moment = asked.pop(KNOWN_AT, None)
    assert list(asked.items()) == list(answered.items())
    assert inspect.signature(getattr(Asking, name)).return_annotation == "pl.DataFrame" or moment is None
    assert moment is None or (moment.default is None and moment.kind is inspect.Parameter.KEYWORD_ONLY)


def test_every_question_that_the_store_answers_can_be_asked_about_a_moment():
    about_weights = {"evaluate", "embedding", "embeddings"}
    assert {name for name in QUESTIONS if KNOWN_AT not in parameters(getattr(Asking, name))} == about_weights


def test_what_is_no_question_is_the_snapshot_and_its_description():
    assert set(functions(Asking)) - set(QUESTIONS) == {"snapshot", "card"}


def test_a_memory_answers_nothing_itself():
    assert not set(functions(Memory)) & set(functions(Asking))
    shared = set(vars(Snapshot)) & set(functions(Memory))
    assert shared <= {"__init__"}


def test_remember_and_forget_take_facts_alike():
    remember, forget = parameters(Memory.remember), parameters(Memory.forget)
    assert {name: each for name, each in forget.items() if name in remember} == remember
    assert set(forget) - set(remember) == {"entity", "preview", "check"}
