"""`recollect show`: what a memory is, and what to do next."""

from __future__ import annotations

import json
import shlex

from recollect import load


def test_show_describes_a_memory_and_names_commands_that_run(run, trained_memory):
    code, out, _ = run("show", trained_memory, "--json")
    about, graph = json.loads(out), load(trained_memory).graph
    assert code == 0
    assert about["facts"] == {name: len(facts) for name, facts in graph.splits.items()}
    assert (about["entities"], about["predicates"], about["times"]) == (7, 3, 12)
    assert (about["grain"], about["from"], about["to"]) == ("year", "2000", "2011")
    assert about["answers_by"] == "ComplEx, episodic, dim 4 + history"
    assert about["training"]["epochs"] == 3
    assert about["calibrated"] == ["subject", "predicate", "object", "time"]
    assert about["bytes"] == sum(file.stat().st_size for file in trained_memory.iterdir())
    for command in about["next"]:
        if " ask " not in command:
            assert run(*shlex.split(command)[1:])[0] == 0, command


def test_show_fits_a_small_screen(run, trained_memory):
    code, out, _ = run("show", trained_memory)
    assert code == 0
    assert len(out.splitlines()) <= 24
    for part in ("ComplEx", "2000 to 2011", "validation MRR", "next:", "recollect recall"):
        assert part in out


def test_show_of_a_semantic_memory_and_of_history_alone(run, trained_memory, facts_csv, tmp_path):
    assert run("project", trained_memory, "--as-of", "2005", "--out", tmp_path / "then")[0] == 0
    about = json.loads(run("show", tmp_path / "then", "--json")[1])
    assert about["as_of"] == "2005"
    assert all("--time" not in command and "--as-of" not in command for command in about["next"])
    assert run("train", facts_csv, "--model", "history", "--out", tmp_path / "h")[0] == 0
    about = json.loads(run("show", tmp_path / "h", "--json")[1])
    assert (about["answers_by"], about["history"], about["training"]) == ("history", True, None)
    assert "no training" in run("show", tmp_path / "h")[1]


def test_what_is_no_memory_is_refused_in_one_sentence(run, tmp_path):
    code, out, error = run("show", tmp_path)
    assert (code, out) == (2, "")
    assert "not a memory" in error
