"""Questions in words and by slot: labels with blanks, question words, times, mistakes in one sentence, completion."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from recollect import UserError
from recollect.cli.sentences import FILLERS, QUESTION_WORDS, Grammar, fold

ENTITIES = ["France", "New Zealand", "Zealand", "Ann", "Republic of Arland", "1950", "In"]
PREDICATES = ["leads", "head of", "head of state of", "Make_a_visit", "Ann"]


def is_time(text: str) -> bool:
    return re.fullmatch(r"[0-9]{4}(-[0-9]{2})?(\.\.[0-9]{4})?", text) is not None


@pytest.fixture(scope="module")
def grammar() -> Grammar:
    return Grammar(ENTITIES, PREDICATES, is_time)


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("who leads France in 1950?", {"predicate": "leads", "object": "France", "time": "1950"}),
        ("Who LEADS new zealand", {"predicate": "leads", "object": "New Zealand"}),
        (
            "who was head of state of France, 1950",
            {"predicate": "head of state of", "object": "France", "time": "1950"},
        ),
        ("who head of Republic of Arland", {"predicate": "head of", "object": "Republic of Arland"}),
        ('who "leads" "1950" 1950', {"predicate": "leads", "object": "1950", "time": "1950"}),
        (
            "whom did Ann make a visit in 1950..1960",
            {"subject": "Ann", "predicate": "Make_a_visit", "time": "1950..1960"},
        ),
        ("what Ann France 1950-02", {"subject": "Ann", "object": "France", "time": "1950-02"}),
        ("when Ann leads France", {"subject": "Ann", "predicate": "leads", "object": "France"}),
        ("when did Ann Ann France", {"subject": "Ann", "predicate": "Ann", "object": "France"}),
        ("France", {"subject": "France"}),
        ("leads France", {"predicate": "leads", "object": "France"}),
        ("Ann leads 1951", {"subject": "Ann", "predicate": "leads", "time": "1951"}),
        ("Ann leads France 1951", {"subject": "Ann", "predicate": "leads", "object": "France", "time": "1951"}),
        ("? | leads | new zealand | 1950", {"predicate": "leads", "object": "New Zealand", "time": "1950"}),
        ("Ann || France", {"subject": "Ann", "object": "France"}),
        ("|leads|", {"predicate": "leads"}),
    ],
)
def test_lines_give_these_parts(grammar, line, parts):
    assert grammar.parse(line).given == parts


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("who leadz France", "do not understand 'leadz' here; did you mean 'leads'"),
        ("whom Anne leads", "do not understand 'Anne' here; did you mean 'Ann'"),
        ("when Ann leads France 1950", "do not understand '1950' here"),
        ("who leads France Zealand", "do not understand 'Zealand' here"),
        ("who leads France 1950 1951", "do not understand '1951' here"),
        ("? | leadz | France", "unknown predicate 'leadz'; did you mean 'leads'"),
        ("a | b | c | d | e", "5 parts; write subject | predicate | object | time"),
        ("whom qqqq", "do not understand 'qqqq' here; labels are like 'France' or 'leads'"),
    ],
)
def test_what_is_not_understood_is_one_sentence(grammar, line, message):
    with pytest.raises(UserError) as raised:
        grammar.parse(line)
    assert message in str(raised.value)


labels = st.text(st.characters(exclude_characters='|"?', exclude_categories=["Cc", "Cs", "Z"]), min_size=1).map(
    str.strip
)


@given(st.lists(st.tuples(labels, labels).map(" ".join), min_size=2, max_size=5, unique_by=fold), labels)
def test_any_labels_come_back_by_slot_and_in_quotes(entities, predicate):
    assume(predicate not in QUESTION_WORDS)
    grammar = Grammar(entities, [predicate], is_time)
    subject, object_ = entities[:2]
    wanted = {"subject": subject, "predicate": predicate, "object": object_}
    assert grammar.parse(f"{subject} | {predicate} | {object_} | ?").given == wanted
    assert grammar.parse(f'when "{subject}" "{predicate}" "{object_}"').given == wanted


@pytest.mark.parametrize(
    ("line", "slot", "tail", "found"),
    [
        ("who le", None, "le", ["leads"]),
        ("who leads new z", None, "new z", ["New Zealand"]),
        ("who leads zea", None, "zea", ["Zealand"]),
        ("who head of ", None, "head of ", ["head of state of"]),
        ('who "Repub', None, "Repub", ["Republic of Arland"]),
        ("? | hea", None, "hea", ["head of", "head of state of"]),
        ("? | leads | fra", None, "fra", ["France"]),
        ("fra", "object", "fra", ["France"]),
        ("fra", "predicate", "fra", []),
        ("195", "time", "195", []),
        ("who xyz", None, "", []),
        ("", None, "", []),
    ],
)
def test_completion_replaces_the_longest_tail_that_begins_a_label(grammar, line, slot, tail, found):
    assert grammar.complete(line, slot) == (len(tail), found)


def test_small_words_are_no_labels_unless_they_are(grammar):
    assert "in" in FILLERS
    assert grammar.parse("who leads In in 1950").given == {"predicate": "leads", "object": "In", "time": "1950"}
