"""The command line end to end: results a person and a program can read, and mistakes in one sentence."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from recollect import UserError, load

TRAIN = ["--model", "complex", "--dim", "4", "--epochs", "3", "--validate-every", "1", "--batch-size", "128"]


@pytest.fixture(scope="module")
def events(tmp_path_factory) -> Path:
    """A file of facts, small enough to learn at once."""
    path = tmp_path_factory.mktemp("data") / "events.csv"
    rows = [f"e{i % 7},r{i % 3},e{(i * i) % 5},{2000 + i % 12}" for i in range(400)]
    path.write_text("subject,predicate,object,time\n" + "\n".join(rows) + "\n")
    return path


@pytest.fixture(scope="module")
def memory(events, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("memory") / "m"
    process = recollect("train", events, *TRAIN, "--out", out)
    assert process.returncode == 0, process.stderr
    return out


def recollect(*words: object, **options) -> subprocess.CompletedProcess:
    """Run a command as a user does, in a process of its own."""
    return python("-m", "recollect", *words, **options)


def python(*words: object, **options) -> subprocess.CompletedProcess:
    command = [sys.executable, *map(str, words)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, **options)


def test_train_evaluate_recall(run, memory):
    code, out, _ = run("evaluate", memory, "--split", "test", "--slots", "spot", "--json")
    report = json.loads(out)
    assert code == 0
    assert report["split"] == "test"
    for setting in ("filtered", "raw"):
        assert list(report[setting]) == ["subject", "predicate", "object", "time", "entity"]
        for figures in report[setting].values():
            assert {"mrr", "hits@1", "hits@3", "hits@10", "mean_rank", "optimistic", "pessimistic"} <= figures.keys()
            assert 0 < figures["pessimistic"]["mrr"] <= figures["mrr"] <= figures["optimistic"]["mrr"] <= 1
    assert {"before", "after"} == report["calibration"]["object"].keys()
    code, out, _ = run("recall", memory, "--subject", "e1", "--predicate", "r1", "--time", "2001", "--top", 2, "--json")
    rows = json.loads(out)
    assert code == 0
    assert [list(row) for row in rows] == [["object", "score", "probability", "status"]] * 2
    code, out, _ = run("recall", memory, "--subject", "e1", "--predicate", "r1", "--object", "e1")
    assert code == 0
    assert "time" in out
    assert "probability" in out
    code, out, _ = run("evaluate", memory)
    assert code == 0
    assert "Reliability" in out


def test_models_and_data(run, events):
    code, out, _ = run("models", "--json")
    assert code == 0
    assert {row["model"]: row["forms"] for row in json.loads(out)}["cont"] == "episodic semantic both"
    assert "G_t[i,j,k]" in run("models")[1]
    listed = {row["name"]: row for row in json.loads(run("data", "list", "--json")[1])}
    assert listed["world"]["here"] == "here"
    assert listed["icews14"]["rows"] == {"train": 72826, "valid": 8941, "test": 8963}
    assert "icews-countries" in run("data", "list")[1]
    shown = json.loads(run("data", "show", events, "--json")[1])
    assert (shown["entities"], shown["predicates"], shown["times"], shown["grain"]) == (7, 3, 12, "year")
    assert sum(shown["facts"].values()) + shown["duplicates"] == 400
    assert "e1" in run("data", "show", events)[1]


def test_every_help_page(run):
    for command in (
        [],
        ["demo"],
        ["data"],
        ["data", "list"],
        ["data", "show"],
        ["data", "fetch"],
        ["data", "build"],
        ["data", "export"],
        ["train"],
        ["evaluate"],
        ["recall"],
        ["models"],
    ):
        code, out, _ = run(*command, "--help")
        assert code == 0
        assert "Usage" in out


def test_a_time_ordered_split_and_fewer_entities(run, events, tmp_path):
    out = tmp_path / "m"
    code, text, error = run("train", events, *TRAIN, "--split", "time", "--entities", 5, "--out", out, "--json")
    assert code == 0, error
    assert json.loads(text)["parameters"] == 2 * 4 * (5 + 3 + 12)


def leave_nothing(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.rglob("*"))


BAD_DATA = {
    "missing.csv": (None, "missing.csv: neither a file or folder nor a dataset"),
    "empty.csv": ("", "empty.csv: the file is empty"),
    "column.csv": ("subject,verb,object,time\na,b,c,1\n", "column.csv, line 1: no column for the predicate"),
    "date.csv": ("s,p,o,t\na,b,c,2014-01-01\na,b,c,soon\n", "date.csv, line 3: cannot read 'soon' as the time"),
    "reversed.csv": (
        "s,p,o,start,end\na,b,c,2005,2001\n",
        "reversed.csv, line 2: the end 2001 is before the start 2005",
    ),
}


@pytest.mark.parametrize("name", BAD_DATA)
def test_bad_data_in_one_sentence(run, tmp_path, name):
    content, message = BAD_DATA[name]
    if content is not None:
        (tmp_path / name).write_text(content)
    before = leave_nothing(tmp_path)
    for command in (["train", tmp_path / name, "--out", tmp_path / "m"], ["data", "show", tmp_path / name]):
        code, out, error = run(*command)
        assert code == 2
        assert out == ""
        assert message in error
        assert error.startswith("error: ")
        assert error.count("\n") == 1
        assert leave_nothing(tmp_path) == before


def test_overlapping_splits_in_one_sentence(run, tmp_path):
    for split in ("train", "test"):
        (tmp_path / f"{split}.tsv").write_text("a\tb\tc\t2014\n")
    code, _, error = run("train", tmp_path, "--out", tmp_path / "m")
    assert code == 2
    assert "test.tsv, line 1: this fact is also in" in error
    assert leave_nothing(tmp_path) == ["test.tsv", "train.tsv"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--model", "magic"], "unknown model 'magic'; choose one of distmult, hole"),
        (
            ["--model", "tucker", "--dim", "3000"],
            "(1,620,00",
        ),
        (["--model", "rescal", "--form", "both"], "Rescal has no both form"),
        (["--predict", "s=x"], "cannot read predict 's=x'"),
        (["--levels", "1,week"], "levels are spacings of times, whole numbers from 0, each once"),
        (["--recipe", "modern", "--loss", "logistic"], "reciprocal predicates are for one-vs-all"),
        (["--recipe", "modern", "--predict", "t"], "leave them out (--no-reciprocal)"),
        (["--penalty", "9"], "--penalty means nothing to the logistic loss; leave it out, or choose --loss one-vs-all"),
        (
            ["--recipe", "modern", "--avoid-known"],
            "--avoid-known means nothing to the one-vs-all loss; leave it out, or choose --loss logistic or ranking",
        ),
        (["--recipe", "modern", "--dropout", "1"], "dropout must be a number below 1"),
        (["--dim", "0"], "a rank is a whole number from 1"),
        (["--dim", "4", "--time-dim", "3"], "ComplEx needs one rank"),
        (["--loss", "hinge"], "unknown loss 'hinge'"),
        (["--negatives", "q=1"], "unknown slot 'q'"),
        (["--negatives", "s"], "cannot read negatives 's'"),
        (["--recipe", "cake"], "unknown recipe 'cake'; choose one of paper, modern, or give a .json file"),
        (["--grain", "decade"], "unknown grain 'decade'"),
        (["--split", "odd"], "unknown split 'odd'"),
        (["--dtype", "int8"], "unknown dtype 'int8'"),
        (["--device", "abacus"], "device 'abacus' cannot be used here"),
        (["--device", "meta"], "device 'meta' cannot be used here"),
        (["--epochs", "0"], "epochs must be a whole number from 1"),
        (["--learning-rate", "nan"], "learning_rate must be a number above 0"),
        (["--learning-rate", "1e30", "--epochs", "9"], "the loss became"),
        (["--columns", "who"], "cannot read --columns 'who'"),
        (["--columns", "verb=p"], "unknown column role 'verb'"),
        (["--resume", "--force"], "give one of them"),
        (["--entities", "-3"], "wanted at least 1"),
        (["--seed", "99999999999999999999"], "a seed is a whole number"),
    ],
)
def test_bad_options_in_one_sentence(run, events, tmp_path, options, message):
    code, _, error = run("train", events, "--out", tmp_path / "m", *options)
    assert code == 2
    assert message in error
    assert error.count("\n") == 1
    assert leave_nothing(tmp_path) == []


def test_places_that_cannot_be_written_are_refused_before_training(run, events, tmp_path):
    for out, message in (
        (events / "m", "is not a directory"),
        (events, "is not a directory"),
        (events.parent, "exists and is not a memory"),
        (Path(), "names no directory"),
    ):
        code, _, error = run("train", events, *TRAIN, "--force", "--out", out)
        assert code == 2
        assert message in error
    code, _, error = run("demo", "--out", events)
    assert code == 2
    assert "is not a directory" in error
    assert leave_nothing(tmp_path) == []


def test_what_a_dataset_cannot_take_is_refused_and_a_split_that_is_told_is_made(run, tmp_path):
    code, _, error = run("data", "show", "world", "--grain", "year")
    assert code == 2
    assert "world is a dataset; leave out what tells how to read a file" in error
    words = ["--epochs", 1, "--dim", 2, "--split", "time", "--out", tmp_path / "m"]
    assert run("train", "world", *words)[0] == 0
    splits = load(tmp_path / "m").graph.splits
    assert splits["train"].t.max() < splits["valid"].t.min() <= splits["valid"].t.max() < splits["test"].t.min()


def test_a_name_too_long_for_the_disk_is_refused_before_training(run, events, tmp_path):
    code, _, error = run("train", events, *TRAIN, "--out", tmp_path / ("x" * 250))
    assert code == 2
    assert "cannot be made" in error
    assert leave_nothing(tmp_path) == []


def test_the_examples_of_the_help_pages_run(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run("train", "world", "--epochs", 1, "--dim", 2, "--out", "world.memory")[0] == 0
    for command in (["recall"], ["evaluate"], ["models"], *(["data", name] for name in ("list", "show", "export"))):
        page = run(*command, "--help")[1]
        example = re.search(r"Example: (recollect .*)", page)
        assert example, page
        code, _, error = run(*shlex.split(example[1].rstrip(" │"))[1:])
        assert code == 0, error


def test_what_exists_is_not_overwritten(run, events, memory):
    code, _, error = run("train", events, *TRAIN, "--out", memory)
    assert code == 2
    assert "exists; choose another --out, or replace it with --force" in error
    assert run("train", events, *TRAIN, "--out", memory, "--force")[0] == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--subject", "e11", "--predicate", "r1", "--time", "2001"], "unknown entity 'e11'; did you mean 'e1'"),
        (["--subject", "e1", "--predicate", "r1", "--time", "soon"], "cannot read time 'soon' as a year"),
        (["--subject", "e1", "--predicate", "r1", "--time", "1066"], "time '1066' is not on this axis"),
        (["--subject", "e1"], "recall fills one slot, and 3 are open"),
        (["--subject", ":smile:", "--predicate", "[red]r1", "--time", "2001"], "unknown entity ':smile:'"),
    ],
)
def test_bad_questions_in_one_sentence(run, memory, words, message):
    code, out, error = run("recall", memory, *words)
    assert (code, out) == (2, "")
    assert message in error
    assert error.count("\n") == 1


def test_bad_evaluations_in_one_sentence(run, memory, tmp_path):
    for words, message in (
        ([memory, "--slots", "x"], "unknown slot 'x'; choose among spot or subject, predicate"),
        ([memory, "--split", "dev"], "has no 'dev' split; it has train, valid, test"),
        ([tmp_path / "nothing"], "no such memory"),
        ([tmp_path], "not a memory"),
    ):
        code, out, error = run("evaluate", *words)
        assert (code, out) == (2, "")
        assert message in error


def test_a_tampered_bundle_in_one_sentence(run, memory, tmp_path):
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(memory, copy)
    weights = copy / "weights.safetensors"
    original = weights.read_bytes()
    weights.write_bytes(original[:-10])
    code, _, error = run("evaluate", copy)
    assert code == 2
    assert "weights.safetensors: the content is not what was saved" in error
    assert error.count("\n") == 1


SIGNALLED = """
import os
import sys

from recollect.cli.main import main
from recollect.training.trainer import Trainer

number, moment, nth, *sys.argv[1:] = sys.argv[1:]
left = int(nth)

def count(*_):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), int(number))

def heard(event, values):
    if event.startswith(("open", "os.", "shutil.")) and values and str(values[0]).startswith(moment):
        count()

if moment == "step":
    step = Trainer._step
    Trainer._step = lambda *given: (count(), step(*given))[1]
else:
    sys.addaudithook(heard)
main()
"""


def signalled(number: signal.Signals, moment: object, nth: int, *words: object) -> subprocess.CompletedProcess:
    """Run a command that gets a signal at its n-th step, or access to a folder on disk, however fast it is."""
    return python("-c", SIGNALLED, int(number), moment, nth, *words)


@pytest.mark.parametrize("steps", [1, 100])  # before anything was kept, and after
def test_an_interrupted_run_is_kept_and_resumed(events, tmp_path, steps):
    words = ["train", events, "--model", "tucker", "--dim", "8", "--epochs", "300", "--patience", "99", "--seed", "3"]
    assert recollect(*words, "--out", tmp_path / "whole").returncode == 0
    folder = tmp_path / "runs"
    folder.mkdir()
    words += ["--out", folder / "cut"]
    cut = signalled(signal.SIGINT, "step", steps, *words)
    assert cut.returncode == 130
    assert "the same command with --resume continues it" in cut.stderr
    assert [path.name for path in folder.iterdir()] == ["cut.partial"]
    refused = recollect(*words)
    assert refused.returncode == 2
    assert "is an unfinished run; continue it with --resume or discard it with --force" in refused.stderr
    assert recollect(*words, "--resume").returncode == 0
    assert_same_memory(tmp_path / "whole", folder / "cut")
    assert [path.name for path in folder.iterdir()] == ["cut"]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_killed_run_resumes_bit_for_bit(events, tmp_path, seed):
    """SIGKILL at random moments, again and again, until the run gets through."""
    words = ["train", events, "--model", "cont", "--dim", "6", "--epochs", "150", "--patience", "99"]
    words += ["--validate-every", "2", "--batch-size", "32", "--seed", seed]
    assert recollect(*words, "--out", tmp_path / "whole").returncode == 0
    folder = tmp_path / "runs"
    folder.mkdir()
    words += ["--out", folder / "cut", "--resume"]
    g = torch.Generator().manual_seed(seed)
    codes = []
    while 0 not in codes and len(codes) < 6:
        touches = int(torch.randint(1, 300, (), generator=g)) if codes else seed  # first while it looks around
        codes.append(signalled(signal.SIGKILL, folder, touches, *words).returncode)
    # finishes what is not finished yet, and is content with what is
    assert recollect(*words).returncode == 0
    assert codes[0] == -signal.SIGKILL
    assert set(codes) <= {-signal.SIGKILL, 0}
    assert_same_memory(tmp_path / "whole", folder / "cut")
    assert [path.name for path in folder.iterdir()] == ["cut"]


def assert_same_memory(a: Path, b: Path) -> None:
    for file in sorted(a.iterdir()):
        assert file.read_bytes() == (b / file.name).read_bytes(), file.name


def test_resuming_with_other_settings_is_told(run, events, tmp_path):
    from recollect import Recipe, TrainingRun, read, split_randomly

    learning = TrainingRun(split_randomly(read(events)), model="complex", dim=4, recipe=Recipe(epochs=2))
    learning.keep(tmp_path / "m.partial")
    code, _, error = run("train", events, "--dim", "5", "--epochs", "2", "--out", tmp_path / "m", "--resume")
    assert code == 2
    assert "was made with ranks" in error
    (tmp_path / "m.partial").write_bytes(b"garbage")
    code, _, error = run("train", events, "--dim", "4", "--epochs", "2", "--out", tmp_path / "m", "--resume")
    assert code == 2
    assert "not a readable checkpoint" in error
    code, _, _ = run("train", events, "--dim", "4", "--epochs", "1", "--out", tmp_path / "m", "--force")
    assert code == 0
    assert not (tmp_path / "m.partial").exists()


def test_the_demo_writes_a_report_with_figures(tmp_path, monkeypatch):
    from recollect import Recipe
    from recollect.cli import demo
    from recollect.memory.memory import Memory

    monkeypatch.setattr(demo, "RECIPE", Recipe(epochs=2, validate_every=1, learning_rate=3e-3))
    learning = demo.start()
    for _ in learning:
        pass
    memory = Memory.from_run(learning)
    asked = list(demo.questions(memory))
    assert [q.word for q in asked] == ["Who?", "What?", "Whom?", "When?"]
    assert all(q.truth for q in asked)
    files = demo.write_report(memory, memory.evaluate("test").to_dict(), asked, tmp_path / "demo")
    assert [f.name for f in files] == ["report.md", "learning.png", "fact-over-time.png"]
    assert all(f.stat().st_size > 1000 for f in files)
    text = files[0].read_text(encoding="utf-8")
    for part in ("## Questions about withheld facts", "| entity |", "fact-over-time.png", "## Now"):
        assert part in text


def test_user_errors_are_value_errors():
    assert issubclass(UserError, ValueError)
