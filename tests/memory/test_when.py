"""When facts held: stored runs, predicted intervals, and their metrics in an evaluation."""

from __future__ import annotations

import polars as pl
import pytest
import torch

from recollect import Memory, UserError, load, read
from recollect.evaluation.intervals import interval_metrics
from recollect.graph.facts import EpisodicGraph
from recollect.memory.answering.intervals import from_dict, interval_runs


def terms(seed: int, count: int) -> list[tuple[str, str, str, int]]:
    """Return offices held for five years each, one after another, by people who are ambassadors in the same years."""
    rows = []
    for person in range(count):
        start = (7 * person + seed) % 50
        for year in range(start, start + 5):
            rows.append((f"x{person}", "leads", f"c{person % 6}", 1950 + year))
            rows.append((f"x{person}", "speaks for", f"c{person % 6}", 1950 + year))
    return rows


@pytest.fixture(scope="module")
def graph() -> EpisodicGraph:
    """Of some people one of the two offices is withheld, as a whole."""
    frame = pl.DataFrame(terms(0, 90), schema=["subject", "predicate", "object", "time"], orient="row")
    number = pl.col("subject").str.slice(1).cast(pl.Int64)
    leads = pl.col("predicate") == "leads"
    split = (
        pl.when(leads & (number % 5 == 0)).then(pl.lit("valid")).when(leads & (number % 5 == 1)).then(pl.lit("test"))
    )
    frame = frame.with_columns(split=split.otherwise(pl.lit("train")))
    whole = read(frame.drop("split"))
    parts = {}
    for name in ("train", "valid", "test"):
        rows = frame.filter(split=name)
        ids = [whole.entities.ids(rows["subject"]), whole.predicates.ids(rows["predicate"])]
        ids += [whole.entities.ids(rows["object"]), torch.tensor([whole.times.index(t) for t in rows["time"]])]
        parts[name] = type(whole.facts).from_columns(*ids)
    return whole.with_splits(parts)


@pytest.fixture(scope="module")
def memory(graph) -> Memory:
    return Memory.learn(graph, model="history")


def test_stored_runs_come_first_and_the_predicted_interval_last(memory):
    found = memory.when("x2", "leads", "c2")
    assert found.columns == ["start", "end", "probability", "status"]
    assert found.row(0) == ("1964", "1968", 1.0, "stored")
    assert found["status"].to_list() == ["stored", "predicted"]
    predicted = memory.when("x1", "leads", "c1")
    assert predicted["status"].to_list() == ["predicted"]
    assert predicted.row(0)[:2] == ("1957", "1961")  # the years in which x1 speaks for c1
    assert predicted["probability"].item() > 0.5


def test_the_predicted_interval_has_no_stored_times(memory):
    for row in memory.graph.table(interval_runs(memory.graph, "train").first).rows(named=True)[:60]:
        found = memory.when(row["subject"], row["predicate"], row["object"])
        times = memory.graph.times
        spans = [(times.index(start), times.index(end)) for start, end in found.select("start", "end").rows()]
        *held, (first, last) = spans
        assert first <= last
        assert all(last < start or end < first for start, end in held)


def test_the_probability_of_an_interval_is_the_mean_over_its_times(memory):
    (start, end, probability, _) = memory.when("x1", "leads", "c1").row(0)
    each = memory.probabilities("x1", "leads", "c1").filter(pl.col("time").is_between(pl.lit(start), pl.lit(end)))
    assert probability == pytest.approx(each["probability"].mean())


def test_an_evaluation_compares_predicted_with_true_intervals(memory):
    evaluation = memory.evaluate("test", slots="t")
    runs = interval_runs(memory.graph, "test")
    found = []
    for row in memory.graph.table(runs.first).rows(named=True):
        best = memory.when(row["subject"], row["predicate"], row["object"]).filter(status="predicted")
        found.append([memory.graph.times.index(best[side].item()) for side in ("start", "end")])
    true = torch.stack([runs.first.t, runs.last], dim=1)
    expected = interval_metrics(true, torch.tensor(found))
    assert evaluation.intervals == pytest.approx({"intervals": len(runs), **expected})
    assert evaluation.intervals["aeiou"] > 0.8
    frame = evaluation.to_frame().filter(metric="aeiou")
    assert frame.select("slot", "filter").row(0) == ("time", None)
    assert memory.evaluate("test", slots="so").intervals == {}


def test_thresholds_are_saved_and_loaded(memory, tmp_path):
    memory.save(tmp_path / "m")
    again = load(tmp_path / "m")
    assert again.intervals == memory.intervals
    assert again.when("x1", "leads", "c1").equals(memory.when("x1", "leads", "c1"))


@pytest.mark.parametrize("mass", [float("nan"), -0.5, 9.0, "much"])
def test_damaged_thresholds_are_refused(mass):
    with pytest.raises(ValueError, match="probabilities|convert"):
        from_dict({"default": 0.5, "thresholds": {"0": mass}})


def test_facts_that_are_split_one_by_one_are_no_intervals(small_world):
    memory = Memory.learn(small_world, model="history")
    assert memory.intervals is None
    assert memory.evaluate("test", slots="t").intervals == {}
    fact = memory.graph.table(memory.graph.split("test")).row(0, named=True)
    found = memory.when(fact["subject"], fact["predicate"], fact["object"])
    times = memory.recall(
        **{name: fact[name] for name in ("subject", "predicate", "object")}, include="predicted", top=1
    )
    (predicted,) = found.filter(status="predicted").rows()
    assert predicted[:3] == (times["time"][0], times["time"][0], pytest.approx(times["probability"][0]))


def test_a_semantic_memory_has_no_when(small_world):
    memory = Memory.learn(small_world, model="distmult", dim=4, form="semantic", recipe="paper", history=False)
    with pytest.raises(UserError, match="a semantic memory has no time"):
        memory.when("a", "b", "c")
