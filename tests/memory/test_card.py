"""The card of a memory: its figures are those of the evaluation, its head is YAML, and nothing in a name breaks it."""

from __future__ import annotations

import polars as pl
import pytest
import yaml

import recollect
from recollect import Memory, UserError, dataset, split_by_time, split_randomly


@pytest.fixture(scope="module")
def memory() -> Memory:
    return Memory.learn(split_randomly(dataset("world", countries=5, years=1)), model="history")


def head(text: str) -> dict:
    assert text.startswith("---\n")
    return yaml.safe_load(text.split("---\n")[1])


def test_its_figures_are_those_of_the_evaluation(memory):
    text, found = memory.card(), memory.evaluate("test")
    for slot, figures in found.filtered.items():
        assert f"| {slot} | {figures['mrr']:.3f} | {figures['hits@1']:.3f} |" in text
    (entry,) = head(text)["model-index"]
    values = [metric["value"] for metric in entry["results"][0]["metrics"]]
    assert values == [round(figures["mrr"], 4) for figures in found.filtered.values()]


def test_it_names_the_data_by_its_fingerprint_and_licence(memory):
    text = memory.card()
    assert memory.graph.fingerprint in text
    assert "| licence | MIT |" in text  # of the synthetic world
    assert "| licence | CC BY 4.0 |" in memory.card(licence="CC BY 4.0")
    assert ", ".join(f"{count:,} {name}" for name, count in memory.graph.counts.items()) in text


def test_the_split_can_be_chosen(memory):
    assert f"{memory.graph.counts['valid']:,} valid facts" in memory.card(split="valid")
    with pytest.raises(UserError, match="no later facts; choose one of train, valid, test"):
        memory.card(split="later")


def test_of_own_data_that_was_learned_whole_nothing_is_invented():
    rows = [(f"person {i % 3}", "knows | likes", f"person {i % 2}", f"2020-{1 + i:02}") for i in range(9)]
    frame = pl.DataFrame(rows, schema=["subject", "predicate", "object", "time"], orient="row")
    text = Memory.learn(recollect.read(frame, name='my "own" | data\n---'), model="history").card()
    assert "Not evaluated" in text
    assert "not recorded: ask who made the memory" in text
    assert "model-index" not in head(text)
    assert r'my "own" \| data ---' in text


def test_forecasts_are_said_to_be_forecasts():
    memory = Memory.learn(split_by_time(dataset("world", countries=5, years=2)), model="history")
    assert "one step ahead, with all facts before the asked time stored" in memory.card()


def test_a_diagram_is_drawn_and_shown(memory, tmp_path):
    text = memory.card(figure=tmp_path / "reliability.png")
    assert (tmp_path / "reliability.png").stat().st_size > 1000
    assert "](reliability.png)" in text
    with pytest.raises(UserError, match="png"):
        memory.card(figure=tmp_path / "reliability.xyz")
