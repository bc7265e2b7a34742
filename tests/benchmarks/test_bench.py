"""The benchmark suite: what it measures and records; never how fast."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from functools import partial

import pytest
import torch
from benchmarks.bounds import Machine, Work, bare_products, one_vs_all_work, product_shape, scoring_flops, training_work
from benchmarks.contests import QUICK, Epochs, Paced, Subject, evaluate_contest, train_contest
from benchmarks.shapes import GDELT, GROWTH, ICEWS14, Shape, graph_of, skewed_facts
from benchmarks.workers import find_pykeen, peak_bytes

from benchmarks import bench, contests
from conftest import generator, random_facts
from recollect import Facts, Recipe, UserError
from recollect.graph.facts import distinct
from recollect.models.tensor_model import MODELS, Dims

TINY = GDELT.tiny()
SIZES = {"entity": 6, "predicate": 3, "time": 4}


def test_everything_is_measured():
    """Every case, everything tiny; one test, so that it is done once."""
    entries = list(bench.measure(bench.cases(quick=True), repeats=1))
    check_every_model_and_part(entries)
    check_records(entries)
    check_tables(entries)


def check_every_model_and_part(entries):
    parts = {part for part in bench.PARTS if part not in ("pykeen", "one-vs-all")}
    assert {entry["name"].split("/")[0] for entry in entries} >= parts
    for part in ("train/gdelt", "train/icews14", "load/icews14", "recall/icews14/p50", "recall/icews14/p99"):
        assert {entry["model"] for entry in entries if entry["name"] == part} == set(MODELS), part
    for slot in "spot":
        measured = {entry["model"] for entry in entries if entry["name"] == f"evaluate/gdelt/{slot}"}
        assert measured == set(MODELS) - ({"rescal"} if slot == "t" else set())


def check_records(entries):
    for entry in entries:
        assert entry.keys() >= set(bench.KEYS)
        json.dumps(entry)
        if entry["ours_s"] is not None:
            assert min(entry["ours_s"], entry["reference_s"], entry["bound_s"]) > 0
            assert entry["ratio"] == entry["reference_s"] / entry["ours_s"]
            assert entry["of_bound"] == entry["bound_s"] / entry["ours_s"]
            low, high = entry["spread"]["ours"]
            assert low <= entry["ours_s"] <= high
        assert bench.line(entry).startswith(entry["name"])
    (beside,) = [entry for entry in entries if entry["name"] == "train/beside-distmult"]
    assert (beside["model"], beside["reference"]) == ("cont", "our distmult")
    (memory,) = [entry for entry in entries if entry["name"] == "memory/gdelt"]
    assert memory["peak_bytes"] > memory["weight_bytes"]


def check_tables(entries):
    seconds, memory, growth = bench.tables(entries)
    assert seconds[0]["K80"] == "35.2 s"
    assert memory[0]["what"] == "memory/gdelt/distmult/4"
    assert {row["what"].split("/")[3] for row in growth} == {"exponent"}


def test_quick_bench_by_command(run, tmp_path):
    only = [word for part in ("train/gdelt", "load", "growth/train/rank") for word in ("--only", part)]
    code, out, err = run("bench", "--quick", "--repeats", 1, *only, "--figure", tmp_path / "growth.png", "--json")
    assert code == 0, err
    entries = json.loads(out)
    assert {entry["name"].split("/")[0] for entry in entries} == {"train", "load", "growth"}
    assert all(entry.keys() >= set(bench.KEYS) for entry in entries)
    assert (tmp_path / "growth.png").stat().st_size > 10_000
    assert "Gflop/s" in err
    code, out, err = run("bench", "--quick", "--repeats", 1, "--only", "train/gdelt/cont")
    assert code == 0, err
    assert "95.4 s" in out  # the paper's, beside ours
    assert "train/gdelt/cont/4" in out


def test_unknown_parts_and_pythons_are_refused(run):
    code, _, err = run("bench", "--only", "nothing")
    assert code == 2
    assert "unknown part 'nothing'; choose among train," in err
    code, _, err = run("bench", "--only", "train/gdelt/nothing")
    assert code == 2
    code, _, err = run("bench", "--quick", "--pykeen", "/no/such/python")
    assert code == 2
    assert "not a Python that can be run" in err


def test_the_papers_runtimes_stand_beside_ours():
    told = {(c.model, c.rank): c.told.get("paper_s") for c in bench.cases() if c.name == "train/gdelt"}
    assert told[("tucker", 60)] == 387.9
    assert told[("hole", 150)] == 59.0
    assert sum(seconds is not None for seconds in told.values()) == 15


def test_growth_is_measured_at_all_sizes():
    sizes = {c.told["size"] for c in bench.cases() if c.name == "growth/train/facts"}
    assert sizes == {50_000, 100_000, 200_000, 400_000}
    assert {c.rank for c in bench.cases() if c.name == "growth/evaluate/rank"} == {20, 40, 80, 160}
    assert {c.told["size"] for c in bench.cases() if c.name == "growth/memory/facts"} == {400_000}


def test_the_sizes_of_a_series_take_turns():
    ran: list[str] = []

    def case(size: int) -> bench.Case:
        @contextmanager
        def opened():
            def run(who: str) -> float:
                ran.append(f"{who} {size}")
                return float(size)

            reference = partial(run, "reference")
            yield contests.Contest(ours=partial(run, "ours"), work=1, unit="facts", reference=reference)

        told = {"axis": "facts", "size": size}
        return bench.Case(name="growth/train/facts", model="cont", dim=2, open=opened, told=told)

    entries = list(bench.measure([case(1), case(2)], repeats=2))
    assert ran == 2 * ["ours 1", "reference 1", "ours 2", "reference 2"]
    assert [entry["ours_s"] for entry in entries[:2]] == [1, 2]
    assert entries[2]["exponent"] == pytest.approx(1)


def test_growth_fit_recovers_a_planted_exponent():
    sizes = [20, 40, 80, 160]
    assert bench.exponent(sizes, [1e-3 * size**1.7 for size in sizes]) == pytest.approx(1.7)
    entries = [
        dict.fromkeys(bench.KEYS)
        | {"name": "growth/train/rank", "model": "cont", "rank": size, "axis": "rank", "size": size}
        | {"ours_s": 2.0 * size, "reference_s": size**3}
        for size in sizes
    ]
    (fit,) = bench.exponents(entries)
    assert fit["name"] == "growth/train/rank/exponent"
    assert fit["exponent"] == pytest.approx(1)
    assert fit["reference_exponent"] == pytest.approx(3)
    points = bench.growth_points([*entries, fit])
    assert [point["size"] for point in points] == sizes
    assert {point["task"] for point in points} == {"train"}


def test_skewed_facts_are_distinct_and_of_the_right_sizes():
    shape = Shape(name="x", entities=300, predicates=40, times=30, facts=20_000, test=0, batch_size=1)
    facts = skewed_facts(shape, shape.facts)
    assert len(facts) == len(distinct(facts, shape.sizes)) == shape.facts
    for slot, size in (("s", 300), ("p", 40), ("o", 300), ("t", 30)):
        assert int(facts.column(slot).min()) >= 0
        assert int(facts.column(slot).max()) < size
    share = torch.bincount(facts.s).sort(descending=True).values / len(facts)
    assert 0.03 < share[0] < 0.15
    assert share[:30].sum() > 0.4  # a tenth of the entities
    days = torch.bincount(facts.t)
    assert days.max() < 2 * days.min()


def test_skewed_facts_depend_on_their_seed_alone():
    first, again, other = (skewed_facts(TINY, 200, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first.ids, again.ids)
    assert not torch.equal(first.ids, other.ids)
    with pytest.raises(UserError, match="too many"):
        skewed_facts(TINY, 10**6)


def test_graphs_of_a_shape(monkeypatch):
    monkeypatch.delenv("RECOLLECT_DATA", raising=False)
    graph = graph_of(TINY)
    assert graph.sizes == TINY.sizes
    assert len(graph.split("train")) == TINY.facts
    assert len(distinct(graph.facts, graph.sizes)) == TINY.facts + TINY.test
    assert graph.entities.index("entity 000007") == 7


def test_icews14_is_the_real_one_where_it_is(real_data):
    graph = graph_of(ICEWS14)
    assert graph.name == "icews14"
    assert graph.sizes == ICEWS14.sizes


def test_work_is_paced_and_scaled():
    done = []
    paced = Paced(done.append, 50, limit=100.0)
    assert paced.count == 50
    assert paced.note("ours", "steps") is None
    assert done[0] == 1
    slow = Paced(lambda count: [None for _ in range(10**5 * count)], 10**6, limit=0.05)
    assert 1 <= slow.count < 10**6
    assert slow.note("ours", "steps").endswith("of 1,000,000 steps, scaled")


@pytest.mark.parametrize("limit", [0.0, 100.0])
def test_epochs_are_whole_or_scaled(limit):
    facts = random_facts(100, SIZES)
    model = MODELS["distmult"](SIZES, 2, generator=generator())
    epochs = Epochs(model, facts, Recipe(batch_size=30, epochs=10), limit)
    assert all(epochs() > 0 for _ in range(6))
    assert epochs.whole == (limit > 0)


def test_bounds_count_what_must_be_done():
    dims = Dims.of(10)
    facts = Facts.of([(0, 0, 1, 0), (0, 0, 2, 0), (1, 2, 2, 3)])
    assert scoring_flops("rescal", dims, facts=2, pairs=1, times=0) == 2 * (2 * 200 + 60)
    assert scoring_flops("cont", dims, facts=2, pairs=3, times=1) == 3 * 2000 + 2 * (2 * 200 + 60)
    work = training_work("distmult", facts, SIZES, dims, "episodic", {"s": 1, "o": 1}, steps=1)
    assert work.flops == 3 * 3 * (60 + 60)
    assert work.bytes == 2 * 4 * 10 * 3 * 6  # six rows a fact
    cores = training_work("cont", facts, SIZES, dims, "episodic", {"s": 1, "o": 1}, steps=1)
    assert cores.bytes == 2 * 4 * (10 * 3 * 5 + 1000 * (2 + 1))
    assert one_vs_all_work("complex", facts, SIZES, dims, "episodic").flops == 3 * 2 * (2 + 3) * 6 * 20
    assert product_shape("tree", "t", SIZES, dims, "episodic") == (100, 4)
    assert product_shape("cont", "t", SIZES, dims, "episodic") == (10, 40)
    assert product_shape("complex", "o", SIZES, dims, "episodic") == (20, 6)
    assert Machine(flops=10, bytes=100).seconds(Work(flops=30, bytes=200)) == 3
    assert bare_products(1000, 4, 30) > 0


def test_without_a_checkout_there_are_no_references(monkeypatch, tmp_path):
    monkeypatch.setattr(contests, "BENCHMARKS", tmp_path)
    contests.load_textbook.cache_clear()
    try:
        subject = Subject(shape=TINY, model="distmult", dim=2, effort=QUICK)
        for opened in (train_contest(subject), evaluate_contest(subject, "o")):
            with opened as contest:
                assert contest.reference is None
                assert contest.about["reference"] is None
        assert any("textbook" in told for told in bench.missing(pykeen=None))
    finally:
        contests.load_textbook.cache_clear()


def test_one_vs_all_is_measured_where_there_is_such_a_loss(monkeypatch):
    for module in (bench, contests):
        monkeypatch.setattr(module, "one_vs_all_recipe", contests.two_negatives_recipe)
    case = bench.chosen(bench.cases(quick=True), ["one-vs-all/icews14/cont"])[0]
    (entry,) = bench.measure([case], repeats=1)
    assert min(entry["ours_s"], entry["reference_s"], entry["bound_s"]) > 0


def test_pykeen_is_looked_for():
    with pytest.raises(UserError, match="has no PyKEEN|not a Python"):
        find_pykeen("/bin/false")
    assert find_pykeen(None) in (None, sys.executable)


def test_peak_bytes_are_those_of_this_process():
    before = peak_bytes()
    held = torch.ones(30 * 2**20)
    assert peak_bytes() >= max(before, held.numel() * 4)


def test_growth_shape_has_room_for_all_its_facts():
    assert GROWTH.entities**2 * GROWTH.predicates * GROWTH.times > 4 * 9 * GROWTH.facts
