"""Forecasts: questions about times after the last stored one read the past only."""

from __future__ import annotations

import json

import polars as pl
import pytest
import torch

from recollect import Memory, Recipe, UserError, load, read, split_by_time
from recollect.evaluation.forecasting import SingleStep
from recollect.graph.fact_index import FactIndex
from recollect.memory.answering.forecasts import far_steps


@pytest.fixture(scope="module")
def memory(small_world) -> Memory:
    return Memory.learn(small_world, model="history")


@pytest.fixture(scope="module")
def by_time(small_world) -> Memory:
    return Memory.learn(split_by_time(small_world), model="history")


@pytest.fixture(scope="module")
def persistent() -> Memory:
    """Pairs that meet in every one of 40 steps, pairs that met in the first 20, and pairs that met once."""
    rows = [(f"a{i}", "meets", f"b{i}", t) for i in range(8) for t in range(40 if i < 4 else 20)]
    rows += [(f"c{t}", "meets", f"d{t}", t) for t in range(40)]
    return Memory.learn(read(pl.DataFrame(rows, schema=list("spot"), orient="row")), model="history")


def test_times_after_the_last_are_recalled_with_what_was_stored_before(persistent):
    found = persistent.recall(subject="a0", predicate="meets", time=40, explain=1)
    assert found["object"][0] == "b0"
    assert set(found["status"]) == {"predicted"}
    assert found["why"][0][0] | {"share": 1} == {
        "subject": "a0", "predicate": "meets", "object": "b0", "time": "39", "share": 1,
    }  # fmt: skip
    assert persistent.recall(subject="a0", predicate="meets", time=40, include="stored").is_empty()
    assert persistent.recall(subject="a0", object="b0", time=41)["predicate"][0] == "meets"


def test_what_goes_on_is_likelier_than_what_ended_and_less_likely_the_farther_ahead(persistent):
    def probability(i: int, step: int) -> float:
        found = persistent.forecast(subject=f"a{i}", object=f"b{i}", horizon=step)
        return found.filter(time=str(39 + step))["probability"].item()

    assert probability(0, 1) > 0.8
    assert probability(4, 1) < 0.3
    assert probability(0, 1) >= probability(0, 30) > probability(4, 30)


def test_a_forecast_lists_the_likeliest_facts_of_each_step(memory):
    subject = memory.graph.entities.labels[0]
    found = memory.forecast(subject=subject, horizon=3, top=4)
    assert found.columns == ["subject", "predicate", "object", "time", "probability"]
    assert found["time"].unique(maintain_order=True).to_list() == ["2002-01", "2002-02", "2002-03"]
    for _, step in found.group_by("time"):
        assert step.height <= 4
        assert step["probability"].is_sorted(descending=True)
        assert set(step["subject"]) == {subject}
    assert memory.forecast(horizon=1, top=3).height == 3
    assert memory.forecast(horizon=1, top=0).is_empty()


def test_what_is_forecast_is_what_will_be_known(memory):
    forecast = memory.forecast(predicate="President of", horizon=2, top=5).filter(time="2002-02")
    known = memory.know(predicate="President of", as_of="2002-02", top=5)
    assert known.select("subject", "object", "probability").equals(forecast.select("subject", "object", "probability"))
    assert set(known["status"]) == {"predicted"}
    assert memory.know(as_of="2002-02", include="stored").is_empty()


def test_reasons_of_a_forecast_are_stored_facts_whose_shares_add_up(memory):
    stored = {row[:4] for row in memory.graph.table(memory.graph.split("train")).rows()}
    for answer in memory.forecast(horizon=2, top=5, explain=10**6).rows(named=True):
        assert sum(fact["share"] for fact in answer["why"]) == pytest.approx(1, abs=1e-5)
        assert all((f["subject"], f["predicate"], f["object"], f["time"]) in stored for f in answer["why"])


def test_recalled_probabilities_of_future_facts_are_those_of_given_facts(memory):
    fact = memory.graph.table(memory.graph.split("train")).row(0, named=True) | {"time": "2003-06"}
    asked = {name: label for name, label in fact.items() if name != "object"}
    recalled = memory.recall(**asked, top=10**6).filter(object=fact["object"])["probability"].item()
    now = memory.graph.table(memory.graph.split("train")[:1])
    both = pl.concat([now, pl.DataFrame([fact])])
    found = memory.probability(both)
    assert found["status"].to_list() == ["stored", "predicted"]
    assert found["probability"][1] == pytest.approx(recalled)


def test_questions_about_now_and_later_are_answered_together(memory):
    fact = memory.graph.table(memory.graph.split("train")).row(0, named=True)
    asked = pl.DataFrame([fact, fact | {"time": "2002-03"}, fact | {"time": "2002-01"}]).drop("object")
    together = memory.recall_many(asked, top=3, explain=1)
    for query, row in enumerate(asked.rows(named=True)):
        alone = memory.recall(**row, top=3, explain=1)
        assert together.filter(query=query).select(alone.columns).equals(alone)


def test_forecasts_are_saved_and_loaded(memory, tmp_path):
    memory.save(tmp_path / "m")
    again = load(tmp_path / "m")
    assert again.forecast(horizon=9, top=20, explain=2).equals(memory.forecast(horizon=9, top=20, explain=2))
    fact = memory.graph.table(memory.graph.split("train")).row(0, named=True) | {"time": "2002-02"}
    del fact["subject"]
    assert again.recall(**fact).equals(memory.recall(**fact))


def test_one_history_that_reads_the_past_equals_a_store_that_grows(by_time):
    graph, history = by_time.graph, by_time.forecaster.history
    facts, asked = graph.facts, graph.split("test")
    for slot in "spo":
        at_once = history.with_facts(facts).score_against(asked, slot)
        step_by_step = SingleStep(history.with_facts, facts).score_against(asked, slot)
        torch.testing.assert_close(at_once, step_by_step)


def test_a_far_question_reads_what_the_next_step_reads(by_time):
    asked = by_time.graph.split("test")
    forecaster = by_time.forecaster
    near = forecaster.score_against(asked.with_slot("t", forecaster.last + 1), "o")
    assert torch.equal(forecaster.score_against(asked, "o"), near)
    assert torch.equal(forecaster.score(asked), near.gather(1, asked.o[:, None])[:, 0])


def test_a_memory_split_by_time_forecasts_after_its_last_stored_time(by_time):
    graph = by_time.graph
    assert by_time.forecaster.last == int(graph.split("train").t.max()) < len(graph.times) - 1
    assert by_time.forecast(horizon=1)["time"][0] == graph.times.label(by_time.forecaster.last + 1)
    latest = graph.times.label(by_time.forecaster.last)
    assert by_time.know(include="stored").equals(by_time.know(as_of=latest, include="stored"))
    assert by_time.know(include="stored").height


def test_forecast_probabilities_are_reliable(by_time):
    graph = by_time.graph
    times = sorted(graph.split("valid").t.unique().tolist())
    truth = FactIndex(graph.facts, graph.sizes)
    said = true = 0.0
    for time in times[:2]:
        found = by_time.forecaster.ask(time, {}, 40)
        said += found.probabilities.sum().item()
        true += truth.contains(found.facts).sum().item()
    assert said == pytest.approx(true, rel=0.35)


@pytest.mark.parametrize("horizon", [0, 25])
def test_a_horizon_is_at_least_one_step_and_at_most_as_long_as_the_record(memory, horizon):
    with pytest.raises(UserError, match=f"cannot forecast {horizon} steps ahead; wanted 1 to 24"):
        memory.forecast(horizon=horizon)


def test_a_time_beyond_all_forecasts_is_refused(memory):
    with pytest.raises(UserError, match="runs from 2000-01 to 2001-12, and forecasts reach to 2003-12"):
        memory.know(as_of="2004-01")


def test_a_memory_without_history_says_that_it_cannot_forecast(small_world):
    memory = Memory.learn(small_world, model="distmult", dim=4, recipe=Recipe(epochs=1), history=False)
    with pytest.raises(UserError, match=r"time '2002-02' is after the last, 2001-12.*train it again, with history"):
        memory.recall(predicate="President of", object=memory.graph.entities.labels[0], time="2002-02")
    with pytest.raises(UserError, match="cannot forecast; train it again, with history"):
        memory.forecast()


def test_an_axis_of_a_few_times_has_one_kernel_of_cells():
    assert (far_steps(1), far_steps(7), far_steps(12), far_steps(365)) == (1, 1, 3, 8)
    rows = [("a", "p", "b", 0), ("a", "p", "c", 1), ("b", "q", "a", 2)]
    memory = Memory.learn(read(pl.DataFrame(rows, schema=list("spot"), orient="row")), model="history")
    assert memory.forecast(horizon=3, top=2).height == 6


@pytest.mark.parametrize("damage", ["shape", "negative", "missing", "dtype"])
def test_damaged_kernels_are_refused(memory, damage):
    tensors = memory.forecaster.tensors()
    if damage == "shape":
        tensors["near"] = tensors["near"][:, :, 1:]
    elif damage == "negative":
        tensors["o.kernel"][0, 0, 0] = -1
    elif damage == "missing":
        del tensors["far"]
    else:
        tensors["p.weights"] = tensors["p.weights"].double()
    with pytest.raises((ValueError, KeyError)):
        type(memory.forecaster).from_tensors(tensors, memory.scorer.history, memory.forecaster.calibration)


def test_forecasts_by_command(run, memory, tmp_path):
    memory.save(tmp_path / "m")
    subject = memory.graph.entities.labels[0]
    code, shown, _ = run("forecast", tmp_path / "m", "--subject", subject, "--horizon", 2, "--top", 3, "--json")
    rows = json.loads(shown)
    assert (code, len(rows)) == (0, 6)
    assert list(rows[0]) == ["subject", "predicate", "object", "time", "probability"]
    code, shown, _ = run("forecast", tmp_path / "m", "--subject", subject, "--horizon", 1, "--why")
    assert (code, "why" in shown, "2002-01" in shown) == (0, True, True)
    code, _, error = run("forecast", tmp_path / "m", "--horizon", 99)
    assert (code, "cannot forecast 99 steps ahead" in error) == (2, True)
