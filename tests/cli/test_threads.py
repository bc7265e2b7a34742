"""Threads of a command: their number is an option, and they sleep while they wait. A host program is left alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch

from recollect.cli import threads

SHOWN = """
import json, os, sys
from recollect.cli import main, threads
main.app.command("threads")(lambda: print(json.dumps(seen())))

def seen():
    import torch
    names = (*threads.SLEEP, *threads.COUNTS)
    return {"torch": torch.get_num_threads()} | {name: os.environ.get(name) for name in names}

main.main()
"""


def threads_of(*words: str, **environment: str) -> dict[str, object]:
    """Return the number of threads and the variables that a command sees."""
    clean = {name: value for name, value in os.environ.items() if name not in (*threads.SLEEP, *threads.COUNTS)}
    command = [sys.executable, "-c", SHOWN, *words, "threads"]
    done = subprocess.run(command, capture_output=True, text=True, env=clean | environment, check=True)
    return json.loads(done.stdout)


def test_a_command_has_the_threads_that_were_asked_for_and_they_sleep():
    found = threads_of("--threads", "1")
    assert found["torch"] == 1
    assert {found[name] for name in threads.COUNTS} == {"1"}
    assert {name: found[name] for name in threads.SLEEP} == threads.SLEEP


def test_the_environment_of_the_user_wins():
    found = threads_of(OMP_WAIT_POLICY="ACTIVE", OMP_NUM_THREADS="1")
    assert (found["OMP_WAIT_POLICY"], found["torch"]) == ("ACTIVE", 1)


def test_a_process_that_has_loaded_the_libraries_changes_its_number_too(monkeypatch):
    before = torch.get_num_threads()
    for name in threads.COUNTS:
        monkeypatch.setenv(name, "7")  # restored afterwards
    try:
        threads.use_threads(2)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("count", [0, -3])
def test_no_threads_are_refused_in_one_sentence(run, count):
    code, out, error = run("--threads", count, "models")
    assert (code, out) == (2, "")
    assert "threads cannot compute; give --threads a whole number from 1" in error


def test_importing_the_library_changes_no_setting():
    code = "import os, recollect; recollect.Memory; print([name for name in os.environ if name.startswith('OMP_WAIT')])"
    clean = {name: value for name, value in os.environ.items() if name not in threads.SLEEP}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=clean, check=True)
    assert done.stdout == "[]\n"
