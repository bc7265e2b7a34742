"""Read a question that a person typed: `who leads France in 1950`, or `? | leads | France | 1950`.

Labels may have blanks: the longest label that fits is taken, whatever its upper case, and `_` is a blank too.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from recollect.errors import UserError

SLOTS = ("subject", "predicate", "object", "time")
QUESTION_WORDS = {"who": "subject", "what": "predicate", "whom": "object", "when": "time"}
BAR, OPEN = "|", "?"
SHOWN = 50  # completions at most
FILLERS = {
    "a", "an", "and", "are", "at", "by", "did", "do", "does", "during", "for", "from", "had", "has", "have", "in", "is",
    "of", "on", "since", "the", "to", "was", "were", "with", "year",
}  # fmt: skip
_TOKEN = re.compile(r'"[^"]*"?|[^\s"]+')
_PUNCTUATION = "?!.,;:"


@dataclass(frozen=True)
class Question:
    """The parts of a fact that are given, by slot; the others are asked for."""

    given: dict[str, str]


def fold(text: str) -> str:
    """Return a text as labels are compared: lower case, with single blanks.

    >>> fold("Make_a  Visit")
    'make a visit'
    """
    return " ".join(text.casefold().replace("_", " ").split())


class LabelIndex:
    """The labels of a kind, found by their folded text or the beginning of it."""

    def __init__(self, kind: str, labels: Sequence[str]) -> None:
        self.kind, self.labels = kind, labels
        self._exact = frozenset(labels)
        self._by_text = {fold(label): label for label in reversed(labels)}
        self._texts = sorted(self._by_text)
        self.words = max((text.count(" ") + 1 for text in self._texts), default=0)  # of the longest label

    def find(self, text: str) -> str | None:
        """Return the label of a text, or None."""
        return text if text in self._exact else self._by_text.get(fold(text))

    def starting_with(self, text: str) -> Iterator[str]:
        """Yield the labels that begin with a text, in order."""
        prefix = fold(text) + (" " if text[-1:].isspace() else "")
        for place in range(bisect_left(self._texts, prefix), len(self._texts)):
            if not self._texts[place].startswith(prefix):
                return
            yield self._by_text[self._texts[place]]


class Grammar:
    """Reads questions about entities, predicates and times, and completes what is typed so far.

    >>> grammar = Grammar(["France", "New Zealand"], ["leads", "head of"], str.isdecimal)
    >>> grammar.parse("who leads new zealand in 1950?").given
    {'predicate': 'leads', 'object': 'New Zealand', 'time': '1950'}
    >>> grammar.parse("? | head of | France").given
    {'predicate': 'head of', 'object': 'France'}
    >>> grammar.complete("who leads new z")
    (5, ['New Zealand'])
    """

    def __init__(self, entities: Sequence[str], predicates: Sequence[str], is_time: Callable[[str], bool]) -> None:
        self.entities, self.predicates = LabelIndex("entity", entities), LabelIndex("predicate", predicates)
        self._is_time = is_time

    def index_of(self, slot: str) -> LabelIndex | None:
        """Return the labels of a slot; times have none."""
        return {"subject": self.entities, "predicate": self.predicates, "object": self.entities}.get(slot)

    def parse(self, line: str) -> Question:
        """Return the question of a line, or raise UserError that says which word is not understood."""
        return self._parse_parts(line) if BAR in line else _Words(self, line).parse()

    def resolve(self, slot: str, text: str) -> str:
        """Return the label of a slot that a text stands for, or raise UserError with similar labels."""
        index = self.index_of(slot)
        if index is None:
            return text
        label = index.find(text)
        if label is None:
            raise UserError(f"unknown {index.kind} {text!r}; {suggestion(text, [index])}")
        return label

    def is_time(self, text: str) -> bool:
        """Return whether a text can be read as a time, a period or a range."""
        return self._is_time(text)

    def _parse_parts(self, line: str) -> Question:
        parts = [part.strip() for part in line.split(BAR)]
        if len(parts) > len(SLOTS):
            raise UserError(f"{len(parts)} parts; write subject | predicate | object | time, with ? for what is asked")
        pairs = zip(SLOTS, parts, strict=False)
        return Question({slot: self.resolve(slot, part) for slot, part in pairs if part not in ("", OPEN)})

    def complete(self, line: str, slot: str | None = None) -> tuple[int, list[str]]:
        """Return the number of characters at the end of a line to replace, and the labels that may replace them.

        With `slot` the line is a label of that slot, without it a question.
        """
        if BAR in line:
            slot = SLOTS[min(line.count(BAR), 3)]
        if slot is not None:
            tail, index = line.rpartition(BAR)[2].lstrip(), self.index_of(slot)
            return len(tail), [] if index is None else list(islice(index.starting_with(tail), SHOWN))
        quoted = line.count('"') % 2 == 1
        starts = [line.rindex('"') + 1] if quoted else [match.start() for match in re.finditer(r"\S+", line)]
        for start in starts:  # the longest tail that some label begins with
            tail = line[start:]
            found = [*self.predicates.starting_with(tail), *islice(self.entities.starting_with(tail), SHOWN)]
            if found:
                return len(tail), list(dict.fromkeys(found))[:SHOWN]
        return 0, []


class _Words:
    """The words of one line, and what is understood of them so far."""

    def __init__(self, grammar: Grammar, line: str) -> None:
        self.grammar = grammar
        self.tokens = _TOKEN.findall(line)
        self.asked = QUESTION_WORDS.get(self.tokens[0].casefold()) if self.tokens else None
        self.given: dict[str, str] = {}
        self.place = 0 if self.asked is None else 1

    def parse(self) -> Question:
        while self.place < len(self.tokens):
            if not (self._take_label() or self._take_time() or self._skip_filler()):
                raise self._not_understood()
        return Question({slot: self.given[slot] for slot in SLOTS if slot in self.given})

    def _not_understood(self) -> UserError:
        """Return the error for the word at this place, with labels like it and the words after it."""
        words = [token.strip('"') for token in self.tokens[self.place : self.place + 3]]
        indexes = [index for _, index in self._wanted()]
        hint = "all parts are given already"
        for count in range(1, len(words) + 1) if indexes else ():
            hint = suggestion(" ".join(words[:count]), indexes)
            if hint.startswith("did you mean"):
                break
        return UserError(f"do not understand {words[0]!r} here; {hint}")

    def _wanted(self) -> list[tuple[str, LabelIndex]]:
        """Return the slots that the next label may fill, the likeliest first."""
        grammar, given = self.grammar, self.given
        free = [slot for slot in SLOTS[:3] if slot != self.asked and slot not in given]
        entity = [slot for slot in ("subject", "object") if slot in free]
        if self.asked is None and "predicate" in given and "object" in free:
            entity = ["object"]  # an entity after the predicate
        wanted: list[tuple[str, LabelIndex]] = [(slot, grammar.entities) for slot in entity[:1]]
        if "predicate" in free:
            is_predicate_next = "subject" in given or self.asked == "subject"
            wanted.insert(0 if is_predicate_next else len(wanted), ("predicate", grammar.predicates))
        return wanted

    def _take_label(self) -> bool:
        """Take the longest label at this place that a slot wants."""
        wanted = self._wanted()
        longest = max((index.words for _, index in wanted), default=0)
        for count in range(min(longest, len(self.tokens) - self.place), 0, -1):
            text = " ".join(self.tokens[self.place : self.place + count])
            for text_form in dict.fromkeys((text.strip('"'), text.rstrip(_PUNCTUATION).strip('"'))):
                for slot, index in wanted:
                    label = index.find(text_form)
                    if label is not None:
                        self.given[slot] = label
                        self.place += count
                        return True
        return False

    def _take_time(self) -> bool:
        text = self.tokens[self.place].rstrip(_PUNCTUATION).strip('"')
        if "time" in self.given or self.asked == "time" or not self.grammar.is_time(text):
            return False
        self.given["time"] = text
        self.place += 1
        return True

    def _skip_filler(self) -> bool:
        word = self.tokens[self.place].strip(_PUNCTUATION).casefold()
        if word and word not in FILLERS:
            return False
        self.place += 1
        return True


def suggestion(text: str, indexes: Sequence[LabelIndex]) -> str:
    """Return a hint with labels that are similar to a text, or some labels."""
    from recollect.graph.vocabulary import similar_labels

    close = [label for index in indexes for label in similar_labels(text, index.labels)][:3]
    if close:
        return f"did you mean {' or '.join(map(repr, close))}?"
    some = [repr(index.labels[0]) for index in indexes if index.labels]
    return f"labels are like {' or '.join(some)}"
