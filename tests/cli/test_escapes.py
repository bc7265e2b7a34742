"""Nothing in a label, a path or an argument steers the terminal; JSON gives labels back as they were."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import recollect.cli
from recollect import UserError, read
from recollect.cli.rendering import plain, print_json, print_line
from recollect.errors import escape_controls

CLEAR, TITLE, CSI, RTL = "\x1b[2J", "\x1b]0;owned\x07", "\x9b31m", "\u202e"
LABELS = [f"{CLEAR}a", f"b{TITLE}", f"c{CSI}", f"{RTL}d", "e\x7f\u2028", "f\U000e0041", "[bold]g\u200b"]
STEERING = ("Cc", "Cf", "Cs", "Zl", "Zp")


def steering(text: str) -> list[str]:
    """Return the control, format, surrogate and separator characters of a text, apart from its line ends."""
    return [each for each in text.replace("\n", "") if unicodedata.category(each) in STEERING]


@pytest.fixture
def hostile(tmp_path):
    """A file whose labels and name steer a terminal."""
    path = tmp_path / f"{CSI}facts.csv"
    rows = [f"{LABELS[i % 7]},p{CLEAR}{i % 2},{LABELS[(i * i + 1) % 7]},{2000 + i % 9}" for i in range(60)]
    path.write_text("subject,predicate,object,time\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return path


@given(st.text(st.characters()))
def test_escaped_text_steers_nothing_and_printable_text_stays(text):
    assert not steering(escape_controls(text))
    assert "\n" not in escape_controls(text)
    if not steering(text) and "\n" not in text:
        assert escape_controls(text) == text


@given(st.text(st.characters()))
def test_json_gives_any_label_back(text):
    line = escape_controls(json.dumps([text], ensure_ascii=False))
    assert json.loads(line) == [text]
    assert not steering(line)


def test_lines_and_json_are_escaped_on_every_stream(capsys):
    print_line(f"{CLEAR}x", err=True)
    print_json({"label": "\ud800\x9b"})
    captured = capsys.readouterr()
    assert captured.err == "\\u001b[2Jx\n"
    assert captured.out == '{"label": "\\ud800\\u009b"}\n'


def test_only_the_module_that_escapes_prints():
    for module in Path(recollect.cli.__path__[0]).glob("*.py"):
        if module.name != "rendering.py":
            assert "typer.echo" not in module.read_text(encoding="utf-8"), module.name


def test_markup_and_controls_are_escaped_together():
    assert plain(f"[red]{CLEAR}") == "\\[red]\\u001b[2J"


def test_tables_are_escaped(run, hostile):
    code, out, _ = run("data", "show", hostile)
    assert code == 0
    assert "\\u001b[2J" in out
    assert not steering(out)


def test_json_is_escaped_and_has_the_labels(run, hostile):
    code, out, _ = run("data", "show", hostile, "--json")
    assert code == 0
    assert not steering(out)
    assert set(json.loads(out)["busiest_entities"]) <= set(LABELS)


def test_error_messages_are_escaped(run, hostile):
    hostile.write_text(f"subject,predicate,object,time\na,b,c,{CLEAR}\n", encoding="utf-8")
    code, _, err = run("data", "show", hostile)
    assert code == 2
    assert "facts.csv, line 2: cannot read" in err
    assert not steering(err)


def test_a_user_error_in_python_is_escaped(tmp_path):
    with pytest.raises(UserError) as caught:
        read(tmp_path / f"{CLEAR}.csv")
    assert not steering(str(caught.value))


def test_answers_are_escaped(run, hostile, tmp_path):
    options = ("--model", "distmult", "--dim", "2", "--epochs", "1", "--split", "none", "--out", tmp_path / "m")
    code, out, err = run("train", hostile, *options)
    assert (code, steering(out + err)) == (0, [])
    question = ("recall", tmp_path / "m", "--predicate", f"p{CLEAR}0", "--object", LABELS[1], "--time", "2000")
    _, table, _ = run(*question)
    _, line, _ = run(*question, "--json")
    assert not steering(table + line)
    subjects = {row["subject"] for row in json.loads(line)}
    assert subjects
    assert subjects <= set(LABELS)
