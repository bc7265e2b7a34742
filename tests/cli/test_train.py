"""`recollect train` and `search`: defaults, settings, mistakes in one sentence, places that cannot be written."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

import pytest

from conftest import SMALL
from recollect import ModelConfig, Recipe, UserError, load
from recollect.cli import train
from recollect.training import auto
from recollect.training.run import training_bytes


def files_below(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*"))


def test_without_options_a_small_file_is_learned_whole_by_history(run, facts_csv, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, error = run("train", facts_csv, "--json")
    assert code == 0, error
    summary = json.loads(out)
    assert summary["out"] == "facts.memory"
    assert summary["chosen"].startswith("history: 248 facts are few; from 2,000 on, a model is tried too")
    assert f"chosen: {summary['chosen']}\n" in error
    memory = load("facts.memory")
    assert (memory.models, dict(memory.graph.counts)) == ((), {"train": summary["facts"]})


def test_intervals_are_counted_as_intervals_and_the_next_command_is_named(run, tmp_path):
    table, out = tmp_path / "terms.csv", tmp_path / "my terms.memory"
    table.write_text("who,office,since,until\nAnn,mayor,2001,2009\nBob,mayor,2010,2019\nBob,,2020,2021\n")
    words = ["train", table, "--columns", "subject=who,object=office", "--out", out]
    code, shown, error = run(*words, "--inclusive-end", "--allow-empty")
    assert code == 0, error
    assert f"{out}: history of 3 intervals, " in shown
    assert shown.endswith(f"next: recollect ask {shlex.quote(str(out))}\n")
    assert error.splitlines()[-1].startswith("chosen: history: 3 intervals of ")
    graph = load(out).graph
    assert "" in graph.entities.labels
    assert graph.times.labels[-1] == "2021"
    assert json.loads(run(*words, "--force", "--json")[1])["intervals"] == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [([], "weights are stored; history"), (SMALL, "weights multiply the loss of facts in training; ")],
)
def test_what_weights_do_is_said(run, facts_csv, tmp_path, words, said):
    lines = facts_csv.read_text().splitlines()
    table = tmp_path / "weighted.csv"
    table.write_text("\n".join([f"{lines[0]},count", *(f"{line},2" for line in lines[1:])]) + "\n")
    out = ["--out", tmp_path / "m", "--force"]
    code, _, error = run("train", table, "--columns", "weight=count", *words, *out)
    assert (code, said in error) == (0, True), error
    code, _, error = run("train", table, *words, *out)
    assert "columns not used: 'count'; --columns weight=count weights facts by it in training" in error
    assert said not in error


def test_a_named_model_is_trained_on_all_facts_after_its_epochs_were_chosen(run, facts_csv, tmp_path):
    code, out, error = run("train", facts_csv, *SMALL, "--out", tmp_path / "m", "--json")
    assert code == 0, error
    summary, memory = json.loads(out), load(tmp_path / "m")
    assert memory.model.config.to_dict() == summary["config"]
    assert list(memory.graph.splits) == ["train"]
    assert summary["epochs"] == summary["best_epoch"] <= 3
    assert summary["valid_mrr"] > 0


@pytest.mark.parametrize("words", [["--evaluate"], ["--split", "random"], ["--split", "time"]])
def test_a_split_is_asked_for_and_evaluated(run, facts_csv, tmp_path, words):
    code, out, error = run("train", facts_csv, *words, "--out", tmp_path / "m")
    assert code == 0, error
    assert "Filtered ranks of" in out
    assert "test facts" in out
    assert list(load(tmp_path / "m").graph.splits) == ["train", "valid", "test"]


def test_evaluation_needs_withheld_facts(run, facts_csv, tmp_path):
    code, _, error = run("train", facts_csv, "--evaluate", "--split", "none", "--out", tmp_path / "m")
    assert code == 2
    assert "--evaluate withholds facts and --split none withholds none; give one of them" in error


def test_a_random_split_of_facts_that_last_is_said_to_leak(run, tmp_path):
    rows = [f"e{i},r,f{i % 5},{2000 + t}" for i in range(30) for t in range(i % 4, 8)]
    (tmp_path / "lasting.csv").write_text("subject,predicate,object,time\n" + "\n".join(rows) + "\n")
    code, out, error = run("train", tmp_path / "lasting.csv", "--evaluate", "--out", tmp_path / "m", "--json")
    assert code == 0, error
    assert "times in a row on average, so a random split leaks" in error
    assert "--split time withholds the last times instead" in error
    assert json.loads(out)["test"]["split"] == "test"
    words = ["--split", "time", "--out", tmp_path / "n"]
    assert "leaks" not in run("train", tmp_path / "lasting.csv", *words)[2]


def test_what_was_chosen_is_printed(run, facts_csv, tmp_path, monkeypatch):
    config = ModelConfig(model="distmult", dim=2)
    monkeypatch.setattr(auto, "resolve_config", lambda *_, **options: (config, "DistMult, for it fits"))
    code, _, error = run("train", facts_csv, *SMALL, "--out", tmp_path / "m")
    assert code == 0
    assert "chosen: DistMult, for it fits\n" in error


def test_settings_reach_the_recipe_and_the_options_the_model(run, facts_csv, tmp_path):
    words = [
        "--model",
        "tucker",
        "--dim",
        4,
        "--set",
        "predicate_dim=3",
        "--set",
        "time_dim=2",
        "--set",
        "reciprocal=false",
        "--set",
        "static=true",
    ]
    words += ["--set", "time_levels=1,4", "--epochs", 1, "--set", "label-smoothing=0.2", "--set", "predict=s=1,o=0.5"]
    code, _, error = run("train", facts_csv, *words, "--set", "dtype=float64", "--out", tmp_path / "m")
    assert code == 0, error
    memory = load(tmp_path / "m")
    config = memory.model.config
    assert config.dims == {"entity": 4, "predicate": 3, "time": 2}
    assert (config.static, config.reciprocal, config.time_levels, config.dtype) == (True, False, (1, 4), "float64")
    recipe = memory.about["recipe"]
    assert (recipe["epochs"], recipe["label_smoothing"], recipe["predict"]) == (1, 0.2, {"s": 1.0, "o": 0.5})


def test_every_setting_of_a_recipe_is_shown_and_can_be_set(run):
    shown = json.loads(run("recipes", "show", "modern", "--model", "cont", "--json")[1])
    assert [row["setting"] for row in shown] == [field.name for field in fields(Recipe)] + [
        "form",
        "static",
        "reciprocal",
        "predicate_dim",
        "time_dim",
        "time_levels",
        "dtype",
    ]
    assert None not in [row["value"] for row in shown]
    assert {row["recipe"] for row in json.loads(run("recipes", "list", "--json")[1])} == {"paper", "modern"}
    table = run("recipes", "show", "paper")[1]
    assert "s=1,o=1" in table
    code, _, error = run("recipes", "show", "cake")
    assert code == 2
    assert "unknown recipe 'cake'; choose one of paper, modern" in error


BAD_DATA = {
    "missing.csv": (None, "missing.csv: no such file, folder or dataset; correct the path, or choose one of"),
    "empty.csv": ("", "empty.csv: the file is empty"),
    "column.csv": ("subject,deed,object,time\na,b,c,1\n", "column.csv, line 1: no column for the predicate"),
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
    before = files_below(tmp_path)
    for command in (["train", tmp_path / name, "--out", tmp_path / "m"], ["data", "show", tmp_path / name]):
        code, out, error = run(*command)
        assert code == 2
        assert out == ""
        assert message in error
        assert error.startswith("error: ")
        assert error.count("\n") == 1
        assert files_below(tmp_path) == before


def test_overlapping_splits_in_one_sentence(run, tmp_path):
    for split in ("train", "test"):
        (tmp_path / f"{split}.tsv").write_text("a\tb\tc\t2014\n")
    code, _, error = run("train", tmp_path, "--out", tmp_path / "m")
    assert code == 2
    assert "test.tsv, line 1: this fact is also in" in error
    assert files_below(tmp_path) == ["test.tsv", "train.tsv"]


BAD_OPTIONS = [
    ("--model magic", "unknown model 'magic'; choose one of distmult, hole"),
    ("--model tucker --dim 3000", "(1,620,00"),
    ("--model rescal --dim 4", "Rescal has no episodic form; it has semantic"),
    ("--set form=both", "unknown form 'both'; choose one of episodic, semantic"),
    ("--model complex --dim 0", "a dim is a whole number from 1"),
    ("--model complex --dim 4 --set time_dim=3", "ComplEx needs one dim"),
    ("--set static=maybe", "static must be true, false or auto; got 'maybe'"),
    ("--set predicate_dim=few", "predicate_dim must be a whole number from 1; got 'few'"),
    ("--set time_levels=1,week", "whole numbers from 0"),
    ("--recipe cake", "unknown recipe 'cake'; choose one of paper, modern, or give a .json file"),
    ("--set dropout", "cannot read --set 'dropout'; write name=value, like epochs=20"),
    ("--set color=red", "unknown setting 'color'; `recollect recipes show modern` explains all: loss, margin"),
    ("--epochs 3 --set epochs=4", "epochs is given by --epochs and by --set; give one of them"),
    ("--set predict=s=x", "cannot read predict 's=x'"),
    ("--set loss=hinge", "unknown loss 'hinge'"),
    ("--set dtype=int8", "unknown dtype 'int8'"),
    ("--set dropout=1", "dropout must be a number below 1"),
    ("--set epochs=many", "epochs must be a whole number from 1"),
    ("--set average=maybe", "average must be true or false; got 'maybe'"),
    ("--recipe paper --set negatives=q=1", "unknown slot 'q'"),
    ("--recipe paper --set negatives=s", "cannot read negatives 's'"),
    (
        "--recipe paper --set penalty=9",
        "penalty means nothing to the logistic loss; leave it out, or choose --set loss=one-vs-all",
    ),
    (
        "--set avoid_known=true",
        "avoid_known means nothing to the one-vs-all loss; leave it out, or choose --set loss=logistic or ranking",
    ),
    ("--epochs 0", "epochs must be a whole number from 1"),
    ("--set learning_rate=nan", "learning_rate must be a number above 0"),
    ("--recipe paper --model complex --dim 4 --set learning_rate=1e30 --epochs 9", "the loss became"),
    ("--grain decade", "unknown grain 'decade'"),
    ("--split odd", "unknown split 'odd'"),
    ("--device abacus", "device 'abacus' cannot be used here"),
    ("--device meta", "device 'meta' cannot be used here"),
    ("--columns who", "cannot read --columns 'who'"),
    ("--columns verb=p", "unknown column role 'verb'"),
    ("--resume --force", "give one of them"),
    ("--seed 99999999999999999999", "a seed is a whole number"),
]


def test_a_model_that_does_not_fit_is_trained_in_mapped_files(run, facts_csv, tmp_path, monkeypatch):
    words = ["train", facts_csv, *SMALL, "--set", "batch_size=1", "--dim", "2000", "--epochs", "1", "--json"]
    _, expected, _ = run(*words, "--out", tmp_path / "a")
    learned = load(tmp_path / "a")
    needed = training_bytes(learned.model.config, learned.graph.sizes)
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=needed))
    code, shown, error = run(*words, "--out", tmp_path / "b")
    assert code == 0, error
    assert f"so it is trained in memory-mapped files in {tmp_path}; --tables FOLDER chooses another place" in error
    assert json.loads(shown)["loss"] == json.loads(expected)["loss"]
    code, shown, error = run(*words, "--out", tmp_path / "c", "--tables", tmp_path / "tables")
    assert code == 0
    assert "does not fit" not in error
    assert json.loads(shown)["loss"] == json.loads(expected)["loss"]
    assert list((tmp_path / "tables").iterdir()) == []


@pytest.mark.parametrize(("options", "message"), BAD_OPTIONS, ids=[options for options, _ in BAD_OPTIONS])
def test_bad_options_in_one_sentence(run, facts_csv, tmp_path, options, message):
    code, _, error = run("train", facts_csv, "--out", tmp_path / "m", *options.split())
    assert code == 2
    sentence = error.splitlines()[-1]
    assert sentence.startswith("error: ")
    assert message in sentence
    assert files_below(tmp_path) == []


@pytest.mark.parametrize(
    "options", ["--set reciprocal=true --set loss=logistic", "--set reciprocal=true --set predict=t"]
)
def test_inverse_predicates_need_one_vs_all_of_subjects_and_objects(run, facts_csv, tmp_path, options):
    code, _, error = run("train", facts_csv, "--out", tmp_path / "m", "--model", "distmult", *options.split())
    assert code == 2
    assert "reciprocal" in error.splitlines()[-1]


def test_places_that_cannot_be_written_are_refused_before_training(run, facts_csv, tmp_path):
    for out, message in (
        (facts_csv / "m", "is not a directory"),
        (facts_csv, "is not a directory"),
        (facts_csv.parent, "exists and is not a memory"),
        (Path(), "names no directory"),
        (tmp_path / ("x" * 250), "cannot be made"),
    ):
        code, _, error = run("train", facts_csv, *SMALL, "--force", "--out", out)
        assert code == 2
        assert message in error
    assert files_below(tmp_path) == []


def test_a_memory_is_replaced_only_by_force(run, facts_csv, tmp_path):
    words = ["train", facts_csv, *SMALL, "--out", tmp_path / "m"]
    assert run(*words)[0] == 0
    code, _, error = run(*words)
    assert code == 2
    assert "exists; choose another --out, or replace it with --force" in error
    assert run(*words, "--force")[0] == 0


def test_a_dataset_takes_a_split_but_no_reading_options(run, tmp_path):
    code, _, error = run("data", "show", "world", "--grain", "year")
    assert code == 2
    assert "world is a dataset; leave out what tells how to read a file" in error
    words = ["--model", "distmult", "--epochs", 1, "--dim", 2, "--split", "time", "--out", tmp_path / "m"]
    assert run("train", "world", *words)[0] == 0
    splits = load(tmp_path / "m").graph.splits
    assert splits["train"].t.max() < splits["valid"].t.min() <= splits["valid"].t.max() < splits["test"].t.min()


def test_triples_without_time_are_read_by_grain_none(run, tmp_path):
    rows = [f"a{i % 9}\tr{i % 2}\ta{i * i % 8}" for i in range(60)]
    (tmp_path / "triples.tsv").write_text("\n".join(rows) + "\n")
    words = ["--grain", "none", "--set", "form=semantic", "--model", "rescal", "--dim", 3, "--epochs", 1]
    code, _, error = run("train", tmp_path / "triples.tsv", *words, "--out", tmp_path / "m")
    assert code == 0, error
    assert len(load(tmp_path / "m").graph.times) == 1


def test_a_search_continues_and_says_how_to_train_with_what_it_found(run, facts_csv, tmp_path):
    out = tmp_path / "study"
    words = ["search", facts_csv, "--model", "distmult", "--dim", 3, "--epochs", 1, "--set", "validate_every=1"]
    code, text, error = run(*words, "--budget", 0.1, "--out", out)
    assert code == 0, error
    command = re.search("learn with it: (recollect train .*)", text)
    code, _, error = run(*shlex.split(command[1])[1:], "--out", tmp_path / "m")
    assert code == 0, error
    assert load(tmp_path / "m").model.config.model == "distmult"


@pytest.mark.parametrize(
    ("data", "out"),
    [("my.csv", "my.memory"), ("/data/icews14/", "icews14.memory"), ("icews14/rare", "icews14-rare.memory")],
)
def test_the_default_place_is_named_after_the_data(data, out):
    assert train.default_out(data) == Path(out)


def test_user_errors_are_value_errors():
    assert issubclass(UserError, ValueError)
