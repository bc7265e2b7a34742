"""The interactive prompt: questions in words or by slot, with completion of labels and a history of questions."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recollect.cli import options as opt
from recollect.cli.rendering import print_json, print_line
from recollect.cli.sentences import SLOTS, Grammar, Question
from recollect.cli.show import example_fact
from recollect.errors import UserError, escape_controls

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import Completer
    from prompt_toolkit.history import History

    from recollect.memory.memory import Memory

PROMPT = "? "
HIDDEN = ("score", "probability", "status", "model_share", "why")  # columns that are no labels
REASONS = 3  # stored facts that `why` names for each answer
HELP = """\
who PREDICATE OBJECT TIME        who leads France 1950
whom SUBJECT PREDICATE TIME      whom Turkey visits 2014-12
what SUBJECT OBJECT TIME         what Turkey Syria 2014
when SUBJECT PREDICATE OBJECT    when Turkey visits Syria
LABELS [TIME]                    France        all that holds, as of the last time
A | B | C | TIME                 by slot: subject | predicate | object | time, ? is asked
Enter                            asks for each part in turn
then 1944 / then                 sets the time of questions without one / resets it
why, more                        reasons for the last answers, more answers
Tab completes labels. Small words such as in and of may be left out. Ctrl-D quits."""


def ask(
    memory: opt.MemoryDir,
    top: opt.Top = 10,
    as_json: opt.Json = False,
) -> None:
    """Ask question after question at a prompt. Tab completes, `help` explains.

    \b
    recollect ask world.memory
    recollect ask world.memory --top 3
    recollect ask world.memory --json     answers lines of standard input
    Next: recollect show world.memory
    """
    from recollect.memory.memory import load

    conversation = Conversation(load(memory), top=top, as_json=as_json)
    if sys.stdin.isatty() and sys.stdout.isatty():
        talk(conversation, memory)
    else:
        read_lines(conversation, sys.stdin)


class Conversation:
    """Questions to one memory, which may refer to the one before."""

    def __init__(self, memory: Memory, *, top: int, as_json: bool = False) -> None:
        self.memory, self.top, self.as_json = memory, top, as_json
        self.then: str | None = None  # the time of questions without one; None: the last time
        self.last: Question | None = None
        self.grammar = Grammar(memory.graph.entities.labels, memory.graph.predicates.labels, self._is_time)

    @property
    def has_times(self) -> bool:
        """Whether the memory is episodic."""
        return "t" in self.memory.scorer.slots

    def handle(self, line: str) -> bool:
        """Answer a line; return whether the conversation goes on."""
        word, _, rest = line.strip().partition(" ")
        match word.casefold():
            case "quit" | "exit" | "bye":
                return False
            case "help" | "?" if not rest:
                for row in HELP.splitlines():
                    print_line(row)
            case "then" | "now":
                self._set_time(rest.strip() if word.casefold() == "then" else "")
            case "why" if not rest:
                self.answer(self._previous(), explain=REASONS)
            case "more" if not rest:
                self.answer(self._previous(), top=5 * self.top)
            case _:
                self.answer(self.grammar.parse(line))
        return True

    def answer(self, question: Question, *, top: int | None = None, explain: int = 0) -> None:
        """Print the answers to a question."""
        if not question.given:
            raise UserError("nothing is given; name a subject, a predicate or an object, like: who leads France 1950")
        self.last = question
        rows = self.find(question, top or self.top, explain)
        if self.as_json:
            print_json({"question": question.given, "answers": rows})
        else:
            print_found(rows)

    def find(self, question: Question, top: int, explain: int = 0) -> list[dict[str, Any]]:
        """Return the answers: those of `recall` if one part is open, else of `know` as of the time."""
        given = dict(question.given)
        is_open = [slot for slot in SLOTS[:3] if slot not in given]
        if not self.has_times and "time" in given:
            raise UserError("this is a semantic memory, which has no times; leave the time out")
        if not is_open and not self.has_times:
            return self.memory.probability({slot: [label] for slot, label in given.items()}).to_dicts()
        if len(is_open) == 1 or (not is_open and "time" not in given):
            if is_open and self.has_times:
                given.setdefault("time", self._time())
            return self.memory.recall(**given, top=top, explain=explain).to_dicts()
        if not is_open:
            wanted = given.pop("object")
            every = self.memory.recall(**given, top=len(self.memory.graph.entities), explain=explain)
            return every.filter(every["object"] == wanted).to_dicts()
        return self._know(given, top)

    def _know(self, given: dict[str, str], top: int) -> list[dict[str, Any]]:
        """Return what holds as of a time; an entity alone may be the subject or the object."""
        as_of = given.pop("time", self.then) if self.has_times else None
        subject, predicate, object_ = (given.get(slot) for slot in SLOTS[:3])
        found = self.memory.know(subject=subject, predicate=predicate, object=object_, as_of=as_of, top=top).to_dicts()
        if given.keys() == {"subject"}:
            found += self.memory.know(object=subject, as_of=as_of, top=top).to_dicts()
        found.sort(key=lambda row: (row["status"] != "stored", -row["probability"]))
        return found[:top]

    def _time(self) -> str:
        times = self.memory.graph.times
        return self.then or times.label(len(times) - 1)

    def _previous(self) -> Question:
        if self.last is None:
            raise UserError("there is no question yet; ask one first")
        return self.last

    def _set_time(self, text: str) -> None:
        """Set the time of questions without one; "" resets it to the last time."""
        from recollect.memory.answering.periods import parse_period
        from recollect.memory.answering.questions import steps_ahead

        if text:
            parse_period(self.memory.graph.times, text, ahead=steps_ahead(self.memory.graph))
        self.then = text or None
        if not self.as_json:
            print_line(f"questions without a time are about {self._time()}")

    def _is_time(self, text: str) -> bool:
        from recollect.graph.times import coarser_grain, time_bin

        grain = self.memory.graph.times.grain
        ends = text.split("..") if ".." in text else [text]
        return all(time_bin(end, coarser_grain(grain, end)) is not None for end in ends)


def print_found(rows: list[dict[str, Any]]) -> None:
    """Print answers in lines: stored or the probability, the labels, and the reasons below them."""
    if not rows:
        print_line("no answers")
    columns = [name for name in (rows[0] if rows else ()) if name not in HIDDEN]
    width = {name: max(len(escape_controls(row[name])) for row in rows) for name in columns}
    for row in rows:
        sure = "stored" if row["status"] == "stored" else f"{row['probability']:.1%}"
        labels = (escape_controls(row[name]).ljust(width[name]) for name in columns)
        print_line(f"{sure:>7}  {'   '.join(labels)}".rstrip())
        for fact in row.get("why") or ():
            print_line(f"         {fact['share']:4.0%} {' · '.join(fact[slot] for slot in SLOTS)}")


def read_lines(conversation: Conversation, lines: Iterable[str]) -> None:
    """Answer every line of a stream; a line that is not understood is an error, and the others are answered."""
    failed = False
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            if not conversation.handle(line):
                break
        except UserError as error:
            failed = True
            print_line(f"error: line {number}: {error}", err=True)
    if failed:
        sys.exit(2)


# -- the terminal ------------------------------------------------------------------------------------------------------


def talk(conversation: Conversation, folder: Path) -> None:
    """Ask for questions at the terminal until Ctrl-D or `quit`; Ctrl-C drops a line or an answer."""
    from prompt_toolkit import PromptSession

    memory = conversation.memory
    print_line(f"{folder}: {memory.graph.name}, {memory.graph.times.span}; {memory.scorer}")
    fact = example_fact(memory)
    if fact is not None:
        slots = SLOTS[1:] if conversation.has_times else SLOTS[1:3]
        print_line(f"Ask, for example: who {' '.join(fact[slot] for slot in slots)}")
    print_line("Tab completes labels, Enter asks part by part, help explains, Ctrl-D quits.")
    session: PromptSession[str] = PromptSession(
        history=question_history(), completer=label_completer(conversation.grammar), complete_while_typing=False
    )
    while True:
        try:
            line = session.prompt(PROMPT)
            if line.strip():
                if not conversation.handle(line):
                    return
            else:
                conversation.answer(ask_by_slot(conversation))
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        except UserError as error:
            print_line(f"error: {error}", err=True)


def ask_by_slot(conversation: Conversation) -> Question:
    """Ask for every part of a fact in turn; Enter leaves one open."""
    from prompt_toolkit import PromptSession

    given = {}
    session: PromptSession[str] = PromptSession()  # parts are no questions, so they have no history
    for slot in SLOTS if conversation.has_times else SLOTS[:3]:
        completer = label_completer(conversation.grammar, slot)
        text = session.prompt(f"{slot} (Enter if unknown): ", completer=completer, complete_while_typing=False).strip()
        if text:
            given[slot] = conversation.grammar.resolve(slot, text)
    return Question(given)


def question_history() -> History:
    """Return the history of questions in the user's state folder; only of this session if that cannot be written."""
    from platformdirs import user_state_path
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    file = user_state_path("recollect") / "questions"
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file.open("a").close()
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(file))


def label_completer(grammar: Grammar, slot: str | None = None) -> Completer:
    """Return a completer of questions, or of the labels of one slot."""
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document

    class LabelCompleter(Completer):
        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
            length, labels = grammar.complete(document.text_before_cursor, slot)
            for label in labels:
                yield Completion(label, start_position=-length, display=escape_controls(label))

    return LabelCompleter()
