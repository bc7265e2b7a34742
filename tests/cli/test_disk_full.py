"""A full disk is one sentence: the old content stays, and a run says how to go on from its last checkpoint."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

WORDS = [
    "--model",
    "distmult",
    "--dim",
    "8",
    "--recipe",
    "paper",
    "--set",
    "validate_every=1",
    "--set",
    "patience=9999",
]
LIMITED = """
import resource, sys
limit, *sys.argv[1:] = sys.argv[1:]
from recollect.cli.main import main
resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
main()
"""


INTERRUPTED = """
import os, signal, sys
from recollect.cli import train
from recollect.cli.main import main
show = train.show_progress

def stop_after_an_epoch(run):
    for record in show(run):
        if record.epoch == 1 and not hasattr(record, "seen"):
            os.kill(os.getpid(), signal.SIGINT)
        yield record

train.show_progress = stop_after_an_epoch
main()
"""


def limited(limit: int, *words: object) -> subprocess.CompletedProcess[str]:
    """Run a command that can write no file of more than `limit` bytes."""
    command = [sys.executable, "-c", LIMITED, str(limit), *map(str, words)]
    environment = os.environ | {"COLUMNS": "500", "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def assert_one_sentence(done: subprocess.CompletedProcess[str], *parts: str) -> None:
    message = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert message.startswith("error: ")
    for part in ("cannot be written (", *parts):
        assert part in message, message


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_run_keeps_its_last_checkpoint_and_says_how_to_go_on(run, facts_csv, tmp_path):
    words = ["train", facts_csv, *WORDS, "--epochs", "3", "--out", tmp_path / "m"]
    command = [sys.executable, "-c", INTERRUPTED, *map(str, words)]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 130
    before = files(tmp_path)
    assert list(before) == ["m.partial"]
    full = limited(1000, *words, "--resume")
    assert_one_sentence(full, "m.partial is kept: the same command with --resume continues it")
    assert files(tmp_path) == before
    assert run(*words, "--resume")[0] == 0


@pytest.mark.long
def test_a_run_without_room_for_a_checkpoint_says_so(facts_csv, tmp_path):
    full = limited(1000, "train", facts_csv, *WORDS, "--epochs", "1", "--out", tmp_path / "m")
    assert_one_sentence(full, "no checkpoint of this run could be written, so start it again")
    assert files(tmp_path) == {}


def test_an_old_memory_stays(run, trained_memory, tmp_path):
    shutil.copytree(trained_memory, tmp_path / "then")
    before = files(tmp_path)
    full = limited(700, "project", trained_memory, "--out", tmp_path / "then", "--force")
    assert_one_sentence(full, "a memory that was there is unchanged")
    assert files(tmp_path) == before


@pytest.mark.parametrize("format", ["parquet", "tsv"])
def test_an_old_export_stays(run, facts_csv, tmp_path, format):
    words = ["data", "export", facts_csv, "--format", format, "--out", tmp_path / "g"]
    assert run(*words)[0] == 0
    before = files(tmp_path)
    full = limited(700, *words, "--force")
    assert_one_sentence(full, "a graph that was there is unchanged")
    assert files(tmp_path) == before


SEARCH = """
import resource, sys
from pathlib import Path
from recollect import ModelConfig, Recipe, UserError, read, split_randomly
from recollect.training.search import Search

graph, recipe = split_randomly(read(sys.argv[1])), Recipe(epochs=1, validate_every=1)
search = Search(graph, ModelConfig(model="distmult", dim=4), recipe, Path(sys.argv[2]))
search.run(60, runs=1)
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
try:
    search.run(60, runs=1)
except UserError as error:
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    print(error)
print(len(search.run(60, runs=1)["trials"]), "runs")
"""


@pytest.mark.long
def test_a_search_keeps_its_finished_runs(facts_csv, tmp_path):
    pytest.importorskip("optuna")
    command = [sys.executable, "-c", SEARCH, facts_csv, tmp_path / "s"]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    error, runs = done.stdout.splitlines()
    assert "cannot be written (" in error
    assert "finished runs are kept: the same command continues the search" in error
    assert runs == "2 runs"


def is_mountable(folder: Path) -> bool:
    """Return whether a small file system can be mounted in a name space of its own."""
    if not shutil.which("unshare"):
        return False
    command = ["unshare", "-rm", "mount", "-t", "tmpfs", "-o", "size=64k", "none", str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_no_space_left_on_the_device_is_one_sentence(facts_csv, tmp_path):
    if not is_mountable(tmp_path):
        pytest.skip("needs a kernel that lets users mount a file system")
    words = ["train", facts_csv, *WORDS, "--dim", "300", "--epochs", "2", "--out", tmp_path / "m"]
    script = 'mount -t tmpfs -o size=64k none "$1" && shift && "$@"'
    command = ["unshare", "-rm", "sh", "-c", script, "sh", tmp_path, sys.executable, "-m", "recollect", *words]
    environment = os.environ | {"COLUMNS": "500", "OMP_NUM_THREADS": "1"}
    full = subprocess.run([*map(str, command)], capture_output=True, text=True, env=environment, check=False)
    assert_one_sentence(full, "No space left on device", "no checkpoint of this run could be written")
