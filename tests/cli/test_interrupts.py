"""A run that is interrupted or killed at any moment continues to the same bits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from recollect import ModelConfig, Recipe, TrainingRun, read, split_randomly
from recollect.io.atomic import locked

SIGNALLED = """
import os
import sys

from recollect.cli import train
from recollect.cli.main import main

number, moment, nth, *sys.argv[1:] = sys.argv[1:]
left = int(nth)

def count():
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), int(number))

def audit(event, values):
    if event.startswith(("open", "os.", "shutil.")) and values and str(values[0]).startswith(moment):
        count()

def counted(run):
    for record in show_progress(run):
        count()
        yield record

if moment == "record":
    show_progress, train.show_progress = train.show_progress, counted
else:
    sys.addaudithook(audit)
main()
"""


def signalled(number: signal.Signals, moment: object, nth: int, *words: object) -> subprocess.CompletedProcess:
    """Run a command that gets a signal at its n-th training record, or at its n-th access to a folder on disk."""
    command = [sys.executable, "-c", SIGNALLED, *map(str, (int(number), moment, nth, *words))]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def assert_same_memory(a: Path, b: Path) -> None:
    for file in sorted(a.iterdir()):
        assert file.read_bytes() == (b / file.name).read_bytes(), file.name


@pytest.mark.parametrize("records", [pytest.param(1, marks=pytest.mark.long), 50])  # before the first checkpoint; after
def test_an_interrupted_run_is_kept_and_resumed(run, facts_csv, tmp_path, records):
    words = ["train", facts_csv, "--model", "tucker", "--dim", "8", "--epochs", "60", "--seed", "3"]
    words += ["--recipe", "paper", "--set", "patience=99"]
    assert run(*words, "--out", tmp_path / "whole")[0] == 0
    folder = tmp_path / "runs"
    folder.mkdir()
    words += ["--out", folder / "cut"]
    cut = signalled(signal.SIGINT, "record", records, *words)
    assert cut.returncode == 130, cut.stderr
    assert "the same command with --resume continues it" in cut.stderr
    assert [path.name for path in folder.iterdir()] == ["cut.partial"]
    code, _, error = run(*words)
    assert code == 2
    assert "is an unfinished run; continue it with --resume or discard it with --force" in error
    assert run(*words, "--resume")[0] == 0
    assert_same_memory(tmp_path / "whole", folder / "cut")
    assert [path.name for path in folder.iterdir()] == ["cut"]


LONG = pytest.mark.long


@pytest.mark.parametrize(("seed", "kills"), [(1, 2), pytest.param(2, 6, marks=LONG), pytest.param(3, 6, marks=LONG)])
def test_a_killed_run_resumes_bit_for_bit(run, facts_csv, tmp_path, seed, kills):
    """SIGKILL at random moments; the command that follows finishes the run, or finds it finished."""
    words = ["train", facts_csv, "--dim", "6", "--epochs", "40", "--seed", seed]
    words += ["--set", "validate_every=2", "--set", "patience=99", "--set", "batch_size=64"]
    assert run(*words, "--out", tmp_path / "whole")[0] == 0
    folder = tmp_path / "runs"
    folder.mkdir()
    words += ["--out", folder / "cut", "--resume"]
    generator = torch.Generator().manual_seed(seed)
    codes = []
    while 0 not in codes and len(codes) < kills:
        touches = int(torch.randint(1, 100, (), generator=generator)) if codes else seed  # at first, before training
        codes.append(signalled(signal.SIGKILL, folder, touches, *words).returncode)
    assert run(*words)[0] == 0
    assert codes[0] == -signal.SIGKILL
    assert set(codes) <= {-signal.SIGKILL, 0}
    assert_same_memory(tmp_path / "whole", folder / "cut")
    assert [path.name for path in folder.iterdir()] == ["cut"]


def test_a_run_that_replaces_a_memory_is_resumed_too(run, facts_csv, tmp_path):
    words = ["train", facts_csv, "--model", "distmult", "--dim", "2", "--recipe", "paper", "--epochs", "2"]
    assert run(*words, "--seed", "1", "--out", tmp_path / "whole")[0] == 0
    assert run(*words, "--seed", "2", "--out", tmp_path / "m")[0] == 0
    old = (tmp_path / "m" / "weights.safetensors").read_bytes()
    words += ["--seed", "1", "--out", tmp_path / "m"]
    assert signalled(signal.SIGINT, "record", 1, *words, "--force").returncode == 130
    assert (tmp_path / "m" / "weights.safetensors").read_bytes() == old
    assert run(*words, "--resume")[0] == 0
    assert_same_memory(tmp_path / "whole", tmp_path / "m")
    assert not (tmp_path / "m.partial").exists()


def test_a_second_run_to_the_same_place_gets_one_sentence(run, facts_csv, tmp_path):
    with ThreadPoolExecutor(1) as first_run:
        lock = locked(tmp_path / "m")
        first_run.submit(lock.__enter__).result()
        code, _, error = run(
            "train", facts_csv, "--model", "distmult", "--dim", "2", "--out", tmp_path / "m", "--force"
        )
        first_run.submit(lock.__exit__, None, None, None).result()
    assert code == 2
    assert "m is being written by another process; wait until it has finished, or choose another place" in error
    assert list(tmp_path.iterdir()) == []


def test_a_run_resumes_only_with_its_own_settings(run, facts_csv, tmp_path):
    graph = split_randomly(read(facts_csv))
    config = ModelConfig(model="complex", dim=4)
    TrainingRun(graph, config, recipe=Recipe(epochs=2)).save_checkpoint(tmp_path / "m.partial")
    words = ["train", facts_csv, "--recipe", "paper", "--epochs", "2", "--out", tmp_path / "m"]
    code, _, error = run(*words, "--dim", "5", "--resume")
    assert code == 2
    assert "was made with ranks" in error
    (tmp_path / "m.partial").write_bytes(b"garbage")
    code, _, error = run(*words, "--dim", "4", "--resume")
    assert code == 2
    assert "not a readable checkpoint" in error
    assert run(*words, "--model", "complex", "--dim", "4", "--force")[0] == 0
    assert not (tmp_path / "m.partial").exists()


def test_what_was_left_open_is_taken_from_the_interrupted_run(run, facts_csv, tmp_path):
    graph = split_randomly(read(facts_csv))
    run_of_distmult = TrainingRun(graph, ModelConfig(model="distmult", dim=3), recipe=Recipe(epochs=2))
    run_of_distmult.save_checkpoint(tmp_path / "m.partial")
    words = ["train", facts_csv, "--recipe", "paper", "--epochs", "2", "--split", "random"]
    code, out, error = run(*words, "--out", tmp_path / "m", "--resume", "--json")
    assert code == 0, error
    assert "distmult" in (out + error).lower()  # what was learned, or what adds nothing to the history
