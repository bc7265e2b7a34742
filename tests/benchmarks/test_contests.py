"""The contests: what they measure and record, never how fast."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import pytest
import torch

from benchmarks import cli
from benchmarks.cases import PARTS, Case, all_cases, select_cases
from benchmarks.contests import Contest
from benchmarks.measure import KEYS, fit_exponent, growth_exponents, growth_points, measure
from benchmarks.peak_memory import peak_bytes
from benchmarks.pykeen_contests import find_pykeen
from benchmarks.report import format_record, tables
from benchmarks.timing import EpochTimer, ScaledTimer
from command import run_main
from conftest import random_facts
from recollect import MODELS, RECIPES, EpisodicGraph, ModelConfig, TimeAxis, UserError, Vocabulary


@pytest.fixture
def run(monkeypatch, capsys):
    return partial(run_main, cli.main, monkeypatch, capsys)


@pytest.mark.long
def test_every_case_is_measured_at_tiny_sizes():
    records = list(measure(all_cases(quick=True), repeats=1))
    check_every_model_and_part(records)
    for record in records:
        check_record(record)
    check_tables(records)


def check_every_model_and_part(records):
    assert {record["name"].split("/")[0] for record in records} >= set(PARTS) - {"pykeen"}
    for part in ("train/gdelt", "train/icews14", "load/icews14", "recall/icews14/p50", "recall/icews14/p99"):
        assert {record["model"] for record in records if record["name"] == part} == set(MODELS), part
    for slot in "spot":
        measured = {record["model"] for record in records if record["name"] == f"evaluate/gdelt/{slot}"}
        assert measured == set(MODELS) - ({"rescal"} if slot == "t" else set())
    (against,) = [record for record in records if record["name"] == "train/against-distmult"]
    assert (against["model"], against["reference"]) == ("cont", "our distmult")


def check_record(record):
    assert record.keys() >= set(KEYS)
    json.dumps(record)
    assert format_record(record).startswith(record["name"])
    if record["ours_s"] is not None:
        assert min(record["ours_s"], record["reference_s"], record["bound_s"]) > 0
        assert record["ratio"] == record["reference_s"] / record["ours_s"]
        assert record["of_bound"] == record["bound_s"] / record["ours_s"]
        low, high = record["spread"]["ours"]
        assert low <= record["ours_s"] <= high


def check_tables(records):
    seconds, memory, growth = tables(records)
    assert seconds[0]["K80"] == "35.2 s"
    assert memory[0]["what"] == "memory/gdelt/distmult/4"
    assert {row["what"].split("/")[3] for row in growth} == {"exponent"}


@pytest.mark.parametrize(
    "name", ["train/gdelt/complex", "one-vs-all/icews14/distmult", "evaluate/gdelt/o/cont", "load/icews14/hole"]
)
def test_one_case_of_a_part_is_measured(name):
    case = select_cases(all_cases(quick=True), [name])[0]
    (record,) = measure([case], repeats=1)
    check_record(record)
    assert record["reference"] == "textbook PyTorch"


def test_recall_is_measured():
    case = select_cases(all_cases(quick=True), ["recall/icews14/p50/distmult"])[0]
    (record,) = measure([case], repeats=1)
    check_record(record)


@pytest.mark.long
def test_peak_memory_is_at_least_that_of_the_weights():
    case = select_cases(all_cases(quick=True), ["memory"])[0]
    (record,) = measure([case], repeats=1)
    assert record["peak_bytes"] > record["weight_bytes"] > 0


def test_the_command_prints_the_papers_seconds_next_to_ours(run):
    code, out, err = run("contests", "--quick", "--repeats", 1, "--only", "train/gdelt/distmult")
    assert code == 0, err
    assert "35.2 s" in out
    assert "train/gdelt/distmult/4" in out
    assert "Gflop/s" in err


def test_the_command_writes_json_and_a_figure_of_growth(run, tmp_path):
    only = ("--only", "growth/train/facts/distmult")
    code, out, err = run("contests", "--quick", "--repeats", 1, *only, "--figure", tmp_path / "growth.png", "--json")
    assert code == 0, err
    records = json.loads(out)
    assert [record["name"] for record in records] == 2 * ["growth/train/facts"] + ["growth/train/facts/exponent"]
    assert (tmp_path / "growth.png").stat().st_size > 10_000


def test_unknown_parts_and_pythons_are_refused(run):
    code, _, err = run("contests", "--only", "nothing")
    assert code == 2
    assert "unknown part 'nothing'; choose among train," in err
    code, _, err = run("contests", "--only", "train/gdelt/nothing")
    assert code == 2
    code, _, err = run("contests", "--quick", "--pykeen", "/no/such/python")
    assert code == 2
    assert "not a Python that can be run" in err


def test_all_runtimes_of_the_paper_are_measured():
    paper = {(case.model, case.dim): case.fields.get("paper_s") for case in all_cases() if case.name == "train/gdelt"}
    assert paper["tucker", 60] == 387.9
    assert paper["hole", 150] == 59.0
    assert sum(seconds is not None for seconds in paper.values()) == 15


def test_growth_is_measured_at_all_sizes():
    cases = all_cases()
    sizes = {case.fields["size"] for case in cases if case.name == "growth/train/facts"}
    assert sizes == {50_000, 100_000, 200_000, 400_000}
    assert {case.dim for case in cases if case.name == "growth/evaluate/dim"} == {20, 40, 80, 160}
    assert {case.fields["size"] for case in cases if case.name == "growth/memory/facts"} == {400_000}


def test_the_sizes_of_a_series_take_turns():
    calls: list[str] = []

    def run(contender: str, size: int) -> float:
        calls.append(f"{contender} {size}")
        return float(size)

    @contextmanager
    def opened(size: int):
        ours, reference = partial(run, "ours", size), partial(run, "reference", size)
        yield Contest(ours=ours, work=1, unit="facts", reference=reference)

    cases = [
        Case(
            name="growth/train/facts",
            model="cont",
            dim=2,
            open=partial(opened, size),
            fields={"axis": "facts", "size": size},
        )
        for size in (1, 2)
    ]
    first, second, fit = measure(cases, repeats=2)
    assert calls == 2 * ["ours 1", "reference 1", "ours 2", "reference 2"]
    assert (first["ours_s"], second["ours_s"]) == (1, 2)
    assert fit["exponent"] == pytest.approx(1)


def test_a_planted_exponent_is_recovered():
    sizes = [20, 40, 80, 160]
    assert fit_exponent(sizes, [1e-3 * size**1.7 for size in sizes]) == pytest.approx(1.7)
    records = [
        dict.fromkeys(KEYS)
        | {"name": "growth/train/dim", "model": "cont", "dim": size, "axis": "dim", "size": size}
        | {"ours_s": 2.0 * size, "reference_s": size**3}
        for size in sizes
    ]
    (fit,) = growth_exponents(records)
    assert fit["name"] == "growth/train/dim/exponent"
    assert fit["exponent"] == pytest.approx(1)
    assert fit["reference_exponent"] == pytest.approx(3)
    points = growth_points([*records, fit])
    assert [point["size"] for point in points] == sizes
    assert {point["task"] for point in points} == {"train"}


def test_work_that_is_too_long_is_timed_in_part_and_scaled():
    counts = []
    timer = ScaledTimer(counts.append, 50, limit=100.0)
    assert timer.count == 50
    assert timer.note("ours", "steps") is None
    assert counts[0] == 1
    slow = ScaledTimer(lambda count: [None for _ in range(10**5 * count)], 10**6, limit=0.05)
    assert 1 <= slow.count < 10**6
    assert slow.note("ours", "steps").endswith("of 1,000,000 steps, scaled")


@pytest.mark.parametrize("limit", [0.0, 100.0])
def test_epochs_are_timed_whole_or_in_part(limit):
    sizes = {"entity": 6, "predicate": 3, "time": 4}
    graph = EpisodicGraph(
        entities=Vocabulary("entity", tuple("abcdef")),
        predicates=Vocabulary("predicate", tuple("pqr")),
        times=TimeAxis("ordinal", 0, 4),
        splits={"train": random_facts(100, sizes)},
    )
    recipe = replace(RECIPES["paper"], batch_size=30)
    timer = EpochTimer(graph, ModelConfig(model="distmult", dim=2), recipe, limit)
    assert all(timer() > 0 for _ in range(6))
    assert timer.is_whole == (limit > 0)


def test_pykeen_is_looked_for():
    with pytest.raises(UserError, match="has no PyKEEN|not a Python"):
        find_pykeen("/bin/false")
    assert find_pykeen(None) in (None, sys.executable)


def test_peak_bytes_are_those_of_this_process():
    before = peak_bytes()
    held = torch.ones(30 * 2**20)
    assert peak_bytes() >= max(before, held.numel() * 4)
