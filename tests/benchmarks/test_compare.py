"""Comparing two checkouts: which cases there are, how ratios are computed, and that two processes take turns."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from benchmarks import cli
from benchmarks.compare import all_cases, geometric_means, select_cases, summarise
from command import run_main
from recollect import MODELS, UserError

ROOT = Path(__file__).parents[2]


@pytest.fixture
def run(monkeypatch, capsys):
    return partial(run_main, cli.main, monkeypatch, capsys)


def test_cases_are_those_that_the_speed_of_a_change_is_judged_by():
    names = [case.name for case in all_cases()]
    assert len(set(names)) == len(names)
    train = {name for name in names if name.startswith("train/")}
    assert train == {
        f"train/{case}"
        for case in (
            "distmult/40",
            "distmult/150",
            "hole/60",
            "complex/60",
            "tree/40",
            "cont/40",
            "cont/60",
            "tucker/40",
            "rescal/40",
        )
    }
    assert {name for name in names if name.startswith("one-vs-all/")} == {
        "one-vs-all/complex/100",
        "one-vs-all/cont/40",
    }
    assert {name.split("/")[1] for name in names if name.startswith("evaluate/")} == set(MODELS)
    gdelt = all_cases()[0]
    assert (gdelt.shape.batch_size, gdelt.shape.facts) == (8192, 2_050_000)


def test_cases_are_selected_by_the_beginning_of_their_name():
    cases = all_cases()
    assert [case.name for case in select_cases(cases, ["train/cont"])] == ["train/cont/40", "train/cont/60"]
    assert select_cases(cases, []) == cases
    with pytest.raises(UserError, match="no case is named 'train/con'"):
        select_cases(cases, ["train/con"])


def test_a_ratio_is_the_median_over_rounds():
    rounds = [
        {"old": {"wall": 1.0, "cpu": 2.0}, "new": {"wall": 1.5, "cpu": 2.0}},
        {"old": {"wall": 9.0, "cpu": 2.0}, "new": {"wall": 1.0, "cpu": 4.0}},
        {"old": {"wall": 1.0, "cpu": 2.0}, "new": {"wall": 2.0, "cpu": 1.0}},
    ]
    record = summarise("train/cont/40", 10, 251, rounds)
    assert record["wall_ratio"] == 1.5
    assert record["cpu_ratio"] == 1.0
    assert record["old_wall_ms"] == 100.0
    (mean,) = geometric_means([record, record | {"case": "train/cont/60", "wall_ratio": 6.0}])
    assert mean["wall_mean"] == pytest.approx(3.0)
    assert mean["wall_max"] == 6.0


def test_a_checkout_is_compared_with_itself(run):
    only = [word for case in ("train/distmult/40", "evaluate/distmult/o") for word in ("--only", case)]
    options = ("--quick", "--repeats", 2, "--seconds", 0.01, "--threads", 1, "--json")
    code, out, err = run("compare", ROOT, ROOT, *only, *options)
    assert code == 0, err
    found = json.loads(out)
    assert found["machine"]["settings"] == {}
    assert found["machine"]["old"]["threads"] == found["machine"]["new"]["threads"] == 1
    assert [record["case"] for record in found["cases"]] == ["train/distmult/40", "evaluate/distmult/o"]
    for record in found["cases"]:
        assert record["wall_ratio"] > 0
        assert record["cpu_ratio"] > 0
    assert "geometric mean" in err


def test_a_folder_without_sources_is_refused(run, tmp_path):
    code, _, err = run("compare", tmp_path, ROOT, "--quick", "--only", "train/distmult")
    assert code == 2
    assert "no checkout of recollect; wanted a folder that has src/recollect" in err
