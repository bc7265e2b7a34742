"""`torchrun -m recollect train`: one memory, one voice, and a killed process that torchrun starts again."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

TRAIN = [
    *("--model", "cont", "--dim", "3", "--epochs", "4", "--split", "random"),
    *("--set", "dtype=float64", "--set", "batch_size=64", "--set", "validate_every=1"),
]
KILLED = """
import os, signal, sys
from pathlib import Path
from recollect.cli import train
from recollect.cli.main import main

mark, *sys.argv[1:] = sys.argv[1:]

def killed_once(run):
    for number, record in enumerate(show_progress(run)):
        yield record
        if os.environ["RANK"] == "1" and number == 12 and not Path(mark).exists():
            Path(mark).touch()
            os.kill(os.getpid(), signal.SIGKILL)

show_progress, train.show_progress = train.show_progress, killed_once
main()
"""


def torchrun(processes: int, *words: object, restarts: int = 0) -> subprocess.CompletedProcess:
    """Run a command by torchrun in new processes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", processes, "--master-port", port]
    command = [*launch, "--max-restarts", restarts, "--monitor-interval", "0.1", *words]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment, check=False)


def assert_same_weights(a: Path, b: Path) -> None:
    weights, others = (load_file(folder / "weights.safetensors") for folder in (a, b))
    assert weights.keys() == others.keys()
    for name, value in weights.items():
        torch.testing.assert_close(others[name], value, rtol=1e-6, atol=1e-8)


def test_two_processes_learn_the_memory_of_one(run, facts_csv, tmp_path):
    words = ["train", facts_csv, *TRAIN, "--out"]
    code, out, _ = run(*words, tmp_path / "alone")
    assert code == 0
    together = torchrun(2, "-m", "recollect", *words, tmp_path / "together")
    assert together.returncode == 0, together.stderr
    assert together.stdout == out.replace("alone", "together")
    assert_same_weights(tmp_path / "alone", tmp_path / "together")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alone", "together"]


def test_a_mistake_is_one_sentence_for_all_processes(tmp_path):
    stopped = torchrun(2, "-m", "recollect", "train", tmp_path / "missing.csv", "--out", tmp_path / "m")
    assert stopped.returncode != 0
    assert stopped.stderr.count("error: ") == 1
    assert "missing.csv: no such file, folder or dataset" in stopped.stderr


def test_one_process_cannot_shard(run, facts_csv, tmp_path):
    code, _, error = run("train", facts_csv, *TRAIN, "--shard", "--out", tmp_path / "m")
    assert code == 2
    assert "start several with torchrun" in error


@pytest.mark.long
def test_a_killed_process_is_started_again_and_gives_the_same_memory(facts_csv, tmp_path):
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    done = torchrun(2, "-m", "recollect", "train", facts_csv, *TRAIN, "--out", whole)
    assert done.returncode == 0, done.stderr
    again = torchrun(2, script, tmp_path / "mark", "train", facts_csv, *TRAIN, "--out", cut, restarts=1)
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "mark").exists()
    assert load_file(whole / "weights.safetensors").keys() == load_file(cut / "weights.safetensors").keys()
    for name, value in load_file(whole / "weights.safetensors").items():
        assert torch.equal(load_file(cut / "weights.safetensors")[name], value)
