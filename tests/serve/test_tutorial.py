"""The tutorial of the service runs from top to bottom, in one folder, and shows what is really answered."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import recollect
from tests.serve.test_process import server
from tests.test_docs import blocks

PAGE = "docs/tutorials/serve.md"
ADDRESS = "http://127.0.0.1:8000"  # as the page writes it; here the port is any free one
PROGRAMS = ("recollect", "python", "curl")
SHELL = f"""
python() {{ {shlex.quote(sys.executable)} "$@"; }}
recollect() {{ python -m recollect "$@"; }}
curl() {{ command curl --silent --show-error "$@"; }}
"""
# what differs from one run to the next: moments, states of the memory, seconds
VARIES = (r'(?<="known_at":")[^"]+', r'(?<="state":")[0-9a-f]+', r"[\d.]+(?= s$)")
TOLERANCE = 0.01  # of predicted probabilities and scores, whose parameters are fitted


def is_run(language: str, content: str) -> bool:
    """Return whether a reader runs a block; other blocks of text are outputs and settings."""
    return language == "python" or content.split()[0] in PROGRAMS


def steps() -> Iterator[tuple[str, str, str | None]]:
    """Yield (language, code, output) of every block that is run; the output is None if the page shows none."""
    found = blocks(PAGE)
    for (language, code), (_, following) in zip(found, [*found[1:], ("", PROGRAMS[0])], strict=True):
        if is_run(language, code):
            yield language, code, None if is_run("", following) else following


def pieces(output: str) -> list[str]:
    """Return the words, numbers and signs of an output; how it is broken into lines does not count."""
    for varies in VARIES:
        output = re.sub(varies, "…", output, flags=re.MULTILINE)
    return re.findall(r"\d+\.\d+(?:e-?\d+)?|\w+|[^\w\s]", output)


def assert_same(output: str, shown: str) -> None:
    """Assert that an output is the one that the page shows, up to rounding."""
    found, expected = pieces(output), pieces(shown)
    assert len(found) == len(expected), output
    for piece, wanted in zip(found, expected, strict=True):
        if re.match(r"\d+\.", wanted):
            assert float(piece) == pytest.approx(float(wanted), abs=TOLERANCE), output
        else:
            assert piece == wanted, output


def run_shell(code: str) -> str:
    """Run commands in bash; return what they print."""
    done = subprocess.run(["bash", "-c", SHELL + code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (code, done.stderr)
    return done.stdout


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A working directory in which commands find this version of recollect."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(recollect.__file__).parents[1]), prepend=os.pathsep)
    return tmp_path


@pytest.mark.long
@pytest.mark.skipif(shutil.which("curl") is None or shutil.which("bash") is None, reason="commands: curl and bash")
def test_the_tutorial_of_the_service_shows_what_is_answered(folder, capsys):
    names: dict[str, object] = {}
    address = ADDRESS
    with ExitStack() as running:
        for language, written, shown in steps():
            code = written.replace(ADDRESS, address)
            *before, last = code.strip().splitlines()
            if last.startswith("recollect serve"):
                running.close()  # the service that was started before
                run_shell("\n".join(before))
                _, _, memory, *options = shlex.split(last)
                address, _ = running.enter_context(server(memory, *options))
                output = f"{memory} is served at {address} (Ctrl-C ends)"
            elif language == "python":
                exec(compile(code, PAGE, "exec"), names)
                output = capsys.readouterr().out
            else:
                output = run_shell(code)
            if shown is None:
                assert last.startswith("recollect"), f"the page does not show what this prints: {written}"
            else:
                assert_same(output.replace(address, ADDRESS), shown)
