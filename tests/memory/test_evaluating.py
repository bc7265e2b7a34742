"""Evaluation of memories: forecasts where the split is by time, and the reliability of what is shown."""

from __future__ import annotations

import pytest

from recollect import Memory, UserError, split_by_time
from recollect.evaluation.forecasting import SingleStep
from recollect.evaluation.metrics import evaluate


@pytest.fixture(scope="module")
def memory(small_world) -> Memory:
    return Memory.learn(split_by_time(small_world), model="history")


def test_a_split_by_time_is_evaluated_one_step_ahead(memory):
    found = memory.evaluate("test")
    assert found.protocol == "single step"
    assert set(found.filtered) == {"subject", "predicate", "object", "entity"}
    history, graph = memory.forecaster.history, memory.graph
    scorer = SingleStep(history.with_facts, graph.facts)
    expected = evaluate(scorer, graph.split("test"), known=memory.known, slots="spo")["filtered"]
    for slot, metrics in expected.items():
        assert found.filtered[slot]["mrr"] == pytest.approx(metrics["mrr"], abs=1e-4)
    assert set(found.calibration) == {"subject", "predicate", "object"}


def test_stored_facts_are_evaluated_as_they_are_recalled(memory):
    found = memory.evaluate("train")
    assert found.protocol == "interpolation"
    assert "time" in found.filtered


def test_times_of_forecasts_are_not_evaluated(memory):
    with pytest.raises(UserError, match="the test split is after all stored times, so times are given; evaluate slots"):
        memory.evaluate("test", slots="ot")


def test_the_reliability_by_tenth_is_reported(memory):
    for report in memory.evaluate("test", slots="so").calibration.values():
        after = report["after"]
        assert 0 <= after["likely_error"] <= 1
        assert [row["from"] for row in after["bins"]] == sorted(row["from"] for row in after["bins"])
