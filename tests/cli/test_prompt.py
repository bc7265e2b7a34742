"""`recollect ask`: at a terminal (a pseudo-terminal here) and from a pipe."""

from __future__ import annotations

import io
import json
import os
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

pty = pytest.importorskip("pty")
termios = pytest.importorskip("termios")

ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07|[()=>][A-Za-z0-9]?)")
SECONDS = 60  # at most, until an answer: a busy machine is no failure
CTRL_C, CTRL_D, TAB, UP = "\x03", "\x04", "\t", "\x1b[A"


@pytest.fixture(scope="module")
def leaders(tmp_path_factory) -> Path:
    """A memory of history alone, with labels that have blanks."""
    from recollect import Memory, read

    folder = tmp_path_factory.mktemp("ask")
    rows = ["Ann Arne,head of,New Arland,1949-03-01,1950-02-10", "Bob Bern,head of,New Arland,1950-02-10,1951-01-01"]
    rows += ["Dan Dorn,head of,Borland,1949-01-01,1951-12-31", "Ann Arne,visits,Borland,1950-05-05,1950-05-06"]
    (folder / "facts.csv").write_text("subject,predicate,object,start,end\n" + "\n".join(rows) + "\n", encoding="utf-8")
    Memory.learn(read(folder / "facts.csv", grain="day"), model="history").save(folder / "m")
    return folder / "m"


class Terminal:
    """A program at a pseudo-terminal."""

    def __init__(self, *words: object, state: Path) -> None:
        self.master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (30, 100))
        environment = os.environ | {
            "TERM": "xterm",
            "COLUMNS": "100",
            "LINES": "30",
            "XDG_STATE_HOME": str(state),
            "PROMPT_TOOLKIT_NO_CPR": "1",
            "OMP_NUM_THREADS": "1",
        }
        command = [sys.executable, "-m", "recollect", *map(str, words)]
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True, close_fds=True
        )
        os.close(slave)
        self.raw, self.seen = b"", 0  # all that was printed, and how much of it, without escapes, was read

    def send(self, text: str) -> None:
        os.write(self.master, text.encode())

    def read_until(self, wanted: str) -> str:
        """Return what is printed, without escapes, from the last call to a text."""
        deadline = time.monotonic() + SECONDS
        while True:
            text = re.sub(" +", " ", ESCAPES.sub("", self.raw.decode("utf-8", "replace")))[self.seen :]
            if wanted in text:
                found = text[: text.index(wanted) + len(wanted)]
                self.seen += len(found)
                return found
            ready, _, _ = select.select([self.master], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"{wanted!r} did not come; got {text!r}"
            part = os.read(self.master, 65536)
            assert part, f"the program ended before {wanted!r}; got {text!r}"
            self.raw += part

    def ask(self, line: str, wanted: str) -> str:
        """Return what is printed from a line to a text in its answer, and wait for the next prompt."""
        self.send(f"{line}\r")
        return self.read_until(wanted) + self.read_until("\n?")

    def fill_in(self, label: str, wanted: str) -> None:
        """Answer the question for a slot and wait for a text."""
        self.send(f"{label}\r")
        self.read_until(wanted)

    def leave(self) -> int:
        """Return the exit code after Ctrl-D at a prompt."""
        self.send(CTRL_D)
        return self.close()

    def close(self) -> int:
        """Return the exit code, after everything that is printed was read."""
        deadline = time.monotonic() + SECONDS
        while select.select([self.master], [], [], max(0.0, deadline - time.monotonic()))[0]:
            try:
                if not os.read(self.master, 65536):
                    break
            except OSError:  # what Linux raises at the end
                break
        os.close(self.master)
        return self.process.wait(SECONDS)


@pytest.fixture
def terminal(leaders, tmp_path):
    started = []

    def start() -> Terminal:
        started.append(Terminal("ask", leaders, state=tmp_path))
        started[-1].read_until("Ctrl-D quits.")
        started[-1].read_until("\n?")
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
            each.process.wait()


def test_a_conversation_at_a_terminal(terminal, tmp_path):
    screen = terminal()
    answer = screen.ask("who head of New Arland 1950", "Ann Arne 1950-02-09")
    assert "stored Bob Bern 1950-12-31" in answer
    screen.ask("who head of New Arlant", "error: do not understand 'New' here; did you mean 'New Arland'")
    screen.send(f"when ann{TAB}")  # Tab completes labels with blanks; what is new on the line is printed
    screen.read_until("Arne")
    answer = screen.ask(" visits Borland", "1950-05-05")
    assert "? when Ann Arne visits Borland" in answer
    screen.ask("then 1950-01", "questions without a time are about 1950-01")
    screen.ask("who head of New Arland", "stored Ann Arne 1950-01-31")
    screen.send(f"half a line{CTRL_C}")  # drops it
    screen.read_until("\n?")
    screen.ask("help", "Ctrl-D quits.")
    assert screen.leave() == 0
    kept = (tmp_path / "recollect" / "questions").read_text(encoding="utf-8")
    assert "+who head of New Arland 1950\n" in kept
    assert "half a line" not in kept


def test_the_history_of_questions_outlives_the_program(terminal):
    first = terminal()
    first.ask("who head of Borland 1950", "Dan Dorn")
    first.send("quit\r")
    assert first.close() == 0
    second = terminal()
    second.send(UP)
    second.read_until("quit")
    second.send(UP)
    second.read_until("who head of Borland 1950")
    second.ask("", "stored Dan Dorn")
    assert second.leave() == 0


def test_enter_asks_part_by_part(terminal):
    screen = terminal()
    screen.fill_in("", "subject (Enter if unknown):")
    screen.fill_in("", "predicate (Enter if unknown):")
    screen.fill_in("HEAD OF", "object (Enter if unknown):")
    screen.send(f"new{TAB}")
    screen.read_until("Arland")
    screen.fill_in("", "time (Enter if unknown):")
    screen.ask("1950-03", "stored Bob Bern 1950-03-31")
    assert screen.leave() == 0


def test_lines_of_a_pipe_are_answered_and_mistakes_named(run, leaders, monkeypatch):
    lines = "who head of New Arland 1950-03\n\nwho heat of Borland\nthen 1950\nAnn Arne\nquit\nnot read\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
    code, out, error = run("ask", leaders, "--top", 1)
    assert code == 2
    assert error == "error: line 3: do not understand 'heat' here; did you mean 'head of'?\n"
    assert out.splitlines()[0] == " stored  Bob Bern   1950-03-31"
    assert "not read" not in out


def test_json_has_a_line_for_every_question(run, leaders, monkeypatch):
    lines = [
        "who head of New Arland 1950",
        "? | visits | ? | 1950-05-05",
        "Ann Arne visits Borland 1950-05",
        "when Ann Arne visits Borland",
        "why",
        "more",
    ]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(lines)))
    code, out, error = run("ask", leaders, "--json", "--top", 2)
    assert (code, error) == (0, "")
    who, know, sure, when, why, more = map(json.loads, out.splitlines())
    assert who["question"] == {"predicate": "head of", "object": "New Arland", "time": "1950"}
    assert [row["subject"] for row in who["answers"]] == ["Bob Bern", "Ann Arne"]
    assert (know["answers"][0]["subject"], know["answers"][0]["status"]) == ("Ann Arne", "stored")
    assert [(row["object"], row["status"]) for row in sure["answers"]] == [("Borland", "stored")]
    assert when["answers"][0]["time"] == "1950-05-05"
    assert all("why" in row for row in why["answers"])
    assert len(more["answers"]) == 10


def test_mistakes_about_the_question_are_one_sentence(run, leaders, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("why\n? | ?\nthen 1066\nwho head of Borland 1066\n"))
    code, out, error = run("ask", leaders)
    assert (code, out) == (2, "")
    for line, message in zip(
        error.splitlines(),
        (
            "line 1: there is no question yet",
            "line 2: nothing is given",
            "line 3: time '1066' is not on this axis",
            "line 4: time '1066' is not on this axis",
        ),
        strict=True,
    ):
        assert message in line


def test_a_semantic_memory_is_asked_without_times(run, trained_memory, tmp_path, monkeypatch):
    assert run("project", trained_memory, "--as-of", "2005", "--out", tmp_path / "then")[0] == 0
    monkeypatch.setattr(sys, "stdin", io.StringIO("who r1 e1\ne1 r1 e1\ne1\nwho r1 e1 2005\n"))
    code, out, error = run("ask", tmp_path / "then", "--json")
    assert code == 2
    assert len(out.splitlines()) == 3
    assert "line 4: this is a semantic memory" in error
