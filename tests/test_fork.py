"""A forked process is refused what would hang in it; a spawned one, or one forked before the first use, works."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import multiprocessing
import sys

import recollect

METHOD, USED, TASK = sys.argv[1:]


def learn():
    graph = recollect.dataset("world", countries=4, years=1)
    return recollect.Memory.learn(graph, model="distmult", dim=2, recipe=recollect.Recipe(epochs=1))


TASKS = {
    "learn": lambda: learn(),
    "load": lambda: recollect.load("m"),
    "read": lambda: recollect.read("facts.csv"),
    "starts": lambda: recollect.starts(memory.graph),
    "recall": lambda: memory.recall(predicate="Visits", subject="x", object="y"),
    "probability": lambda: memory.probability({"subject": ["x"]}),
    "know": lambda: memory.know(),
    "project": lambda: memory.project(),
    "evaluate": lambda: memory.evaluate("train"),
    "embeddings": lambda: memory.embeddings(),
    "save": lambda: memory.save("m"),
    "export": lambda: recollect.write_graph(memory.graph, "g"),
}


def work(task):
    try:
        TASKS[task]()
    except recollect.UserError as error:
        return str(error)
    return "worked"


if __name__ == "__main__":
    memory = learn() if USED == "used" else None
    with multiprocessing.get_context(METHOD).Pool(1) as pool:
        for task in TASKS if TASK == "all" else [TASK]:
            print(task, pool.apply(work, [task]))
"""


@pytest.fixture
def run_script(tmp_path):
    """Run the script with a method to start processes; return its lines. What hangs fails after a minute."""
    file = tmp_path / "script.py"
    file.write_text(SCRIPT)

    def call(*words: str) -> list[str]:
        command = [sys.executable, "-W", "ignore", str(file), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return call


def test_a_process_forked_after_use_is_refused_in_one_sentence(run_script):
    lines = run_script("fork", "used", "all")
    assert len(lines) == 12
    for line in lines:
        assert "this process was forked from one that had used recollect" in line


@pytest.mark.long
def test_a_process_forked_before_the_first_use_works(run_script):
    assert run_script("fork", "unused", "learn") == ["learn worked"]


@pytest.mark.long
def test_a_spawned_process_works(run_script):
    assert run_script("spawn", "used", "learn") == ["learn worked"]
