"""`recollect evaluate`, `recall`, `models` and the `data` commands: results a person and a program can read."""

from __future__ import annotations

import io
import json
import re
import shlex
import shutil
import sys

import pytest

from conftest import SMALL


def test_evaluate_reports_every_slot_filtered_and_raw(run, trained_memory):
    code, out, _ = run("evaluate", trained_memory, "--split", "test", "--slots", "spot", "--json")
    report = json.loads(out)
    assert code == 0
    assert report["split"] == "test"
    for setting in ("filtered", "raw"):
        assert list(report[setting]) == ["subject", "predicate", "object", "time", "entity"]
        for figures in report[setting].values():
            assert {"mrr", "hits@1", "hits@3", "hits@10", "mean_rank", "optimistic", "pessimistic"} <= figures.keys()
            assert 0 < figures["pessimistic"]["mrr"] <= figures["mrr"] <= figures["optimistic"]["mrr"] <= 1
    assert {"before", "after"} == report["calibration"]["object"].keys()
    code, out, _ = run("evaluate", trained_memory)
    assert code == 0
    assert "Reliability" in out


def test_recall_fills_the_open_slot(run, trained_memory):
    words = ["recall", trained_memory, "--subject", "e1", "--predicate", "r1"]
    code, out, _ = run(*words, "--time", "2001", "--top", 2, "--json")
    assert code == 0
    assert [list(row) for row in json.loads(out)] == [["object", "score", "probability", "status"]] * 2
    code, out, _ = run(*words, "--object", "e1")
    assert code == 0
    assert "time" in out
    assert "probability" in out


def test_know_and_project_answer_as_of_a_time(run, trained_memory, tmp_path):
    code, out, _ = run("know", trained_memory, "--subject", "e1", "--as-of", "2005", "--json")
    assert code == 0
    assert json.loads(out)
    words = ["project", trained_memory, "--as-of", "2005", "--out", tmp_path / "then"]
    assert run(*words)[0] == 0
    code, _, error = run(*words)
    assert code == 2
    assert "exists; choose another --out, or replace it with --force" in error
    code, _, error = run("project", trained_memory, "--out", trained_memory, "--force")
    assert code == 2
    assert "is the memory that is projected, and would be lost" in error


def test_know_says_how_many_stored_facts_it_does_not_list(run, trained_memory):
    words = ["know", trained_memory, "--as-of", "2005"]
    stored = json.loads(run(*words, "--include", "stored", "--top", 1000, "--json")[1])
    code, out, error = run(*words, "--top", 2)
    assert code == 0
    assert f"2 of {len(stored)} stored facts; --top {len(stored)} shows all" in error
    assert "score" not in out
    for all_or_json in (["--top", len(stored)], ["--top", len(stored) + 1], ["--top", 2, "--json"]):
        assert "shows all" not in run(*words, *all_or_json)[2]
    assert "score" in run(*words, "--top", len(stored) + 1)[1]


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
def test_bad_questions_in_one_sentence(run, trained_memory, words, message):
    code, out, error = run("recall", trained_memory, *words)
    assert (code, out) == (2, "")
    assert message in error
    assert error.count("\n") == 1


def test_bad_evaluations_in_one_sentence(run, trained_memory, tmp_path):
    for words, message in (
        ([trained_memory, "--slots", "x"], "unknown slot 'x'; choose among spot or subject, predicate"),
        ([trained_memory, "--split", "dev"], "has no 'dev' split; it has train, valid, test"),
        ([tmp_path / "nothing"], "no such memory"),
        ([tmp_path], "not a memory"),
    ):
        code, out, error = run("evaluate", *words)
        assert (code, out) == (2, "")
        assert message in error


def test_a_changed_file_of_a_memory_in_one_sentence(run, trained_memory, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(trained_memory, copy)
    weights = copy / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])
    code, _, error = run("evaluate", copy)
    assert code == 2
    assert "weights.safetensors: the content is not what was saved" in error
    assert error.count("\n") == 1


def test_models_lists_equations_and_forms(run):
    code, out, _ = run("models", "--json")
    assert code == 0
    assert {row["model"]: row["forms"] for row in json.loads(out)}["cont"] == "episodic semantic"
    assert "G_t[i,j,k]" in run("models")[1]


def test_data_commands_list_and_describe(run, facts_csv):
    listed = {row["name"]: row for row in json.loads(run("data", "list", "--json")[1])}
    assert listed["world"]["here"] == "here"
    assert listed["icews14"]["rows"] == {"train": 72826, "valid": 8941, "test": 8963}
    assert "icews-countries" in run("data", "list")[1]
    shown = json.loads(run("data", "show", facts_csv, "--json")[1])
    assert (shown["entities"], shown["predicates"], shown["times"], shown["grain"]) == (7, 3, 12, "year")
    assert sum(shown["facts"].values()) + shown["duplicates"] == 400
    assert "e1" in run("data", "show", facts_csv)[1]
    assert "nquads" in run("data", "formats")[1]


def test_an_export_may_keep_the_most_frequent_entities(run, facts_csv, tmp_path):
    code, _, error = run("data", "export", facts_csv, "--entities", 5, "--out", tmp_path / "g")
    assert code == 0, error
    assert json.loads(run("data", "show", tmp_path / "g", "--json")[1])["entities"] == 5
    code, _, error = run("data", "export", facts_csv, "--entities", -3, "--out", tmp_path / "h")
    assert code == 2
    assert "wanted at least 1" in error


COMMANDS_WITH_RUNNABLE_EXAMPLES = [
    *(
        ["recall"],
        ["show"],
        ["ask"],
        ["evaluate"],
        ["know"],
        ["when"],
        ["forecast"],
        ["project"],
        ["models"],
        ["baseline"],
        ["recipes", "list"],
    ),
    *(["recipes", "show"], ["data", "list"], ["data", "show"], ["data", "export"], ["data", "formats"]),
]


def test_the_examples_of_the_help_pages_run(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "events.csv").write_text("subject,predicate,object,time\na,r,b,2001-02-03\na,r,c,2001-03-04\n")
    assert run("train", "world", *SMALL, "--epochs", 1)[0] == 0
    monkeypatch.setattr(sys, "stdin", io.StringIO("help\n"))  # of `ask`
    for command in COMMANDS_WITH_RUNNABLE_EXAMPLES:
        page = run(*command, "--help")[1]
        shown = re.findall(r"^  (recollect .*)$", page, flags=re.MULTILINE)
        assert shown, page
        for example in shown:
            code, _, error = run(*shlex.split(example.split("   ")[0])[1:])
            assert code == 0, (example, error)


def test_a_period_is_asked_as_a_whole_and_known_as_of_its_end(run, tmp_path):
    rows = ["subject,predicate,object,start,end", "Ann,leads,Arland,1949-03-01,1950-02-10"]
    rows += ["Bob,leads,Arland,1950-02-10,1951-01-01", "Dan,leads,Borland,1949-01-01,1951-12-31"]
    (tmp_path / "leaders.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    memory = tmp_path / "m"
    words = ["--grain", "day", "--split", "none", "--model", "history", "--out", memory]
    assert run("train", tmp_path / "leaders.csv", *words)[0] == 0
    asked = ["--predicate", "leads", "--object", "Arland", "--include", "stored", "--json"]
    for time, leaders in (("1950", ["Bob", "Ann"]), ("1949-12..1950-01", ["Ann"]), ("1950-02-10", ["Bob"])):
        code, out, _ = run("recall", memory, *asked, "--time", time)
        assert code == 0
        assert [row["subject"] for row in json.loads(out)] == leaders
    code, out, error = run("know", memory, *asked, "--as-of", "1950-01")
    assert [row["subject"] for row in json.loads(out)] == ["Ann"]
    assert error == "as of 1950-01-31, the end of 1950-01\n"


def test_when_lists_intervals_and_evaluate_draws_a_reliability_diagram(run, trained_memory, tmp_path):
    code, shown, _ = run("when", trained_memory, "--subject", "e1", "--predicate", "r1", "--object", "e1", "--json")
    rows = json.loads(shown)
    assert (code, list(rows[0])) == (0, ["start", "end", "probability", "status"])
    assert [row["status"] for row in rows] == sorted((row["status"] for row in rows), reverse=True)
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    code, shown, _ = run("evaluate", trained_memory, "--slots", "so", "--figure", tmp_path / "r.png")
    assert (code, "Reliability" in shown, (tmp_path / "r.png").stat().st_size > 1000) == (0, True, True)
    code, _, error = run("evaluate", trained_memory, "--figure", tmp_path / "r.txt")
    assert (code, "cannot be drawn" in error) == (2, True)
