"""Tables with start and end are read as runs: merged, checked, and equal to what one fact for every time would be."""

from __future__ import annotations

import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect import UserError, dataset, read
from recollect.errors import DataWarning
from recollect.graph.facts import EpisodicGraph
from recollect.graph.runs import has_runs, stored
from recollect.io.assembly import assemble
from recollect.io.table import Table

ROWS = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from("xy"), st.integers(2000, 2012), st.integers(1, 6)),
    min_size=1,
    max_size=12,
)


def frame(rows, **more) -> pl.DataFrame:
    """Return a table of rows (subject, object, first year, number of years)."""
    columns = {
        "subject": [row[0] for row in rows],
        "predicate": ["leads"] * len(rows),
        "object": [row[1] for row in rows],
        "start": [str(row[2]) for row in rows],
        "end": [str(row[2] + row[3]) for row in rows],
    }
    return pl.DataFrame(columns | more)


def expanded(table: pl.DataFrame, **splits: pl.DataFrame) -> EpisodicGraph:
    tables = {name: Table(each, lambda row: f"row {row}", name) for name, each in {"train": table, **splits}.items()}
    return assemble(tables, expand=True, name="table")


@settings(max_examples=40)
@given(rows=ROWS)
def test_a_table_of_intervals_has_the_facts_of_the_expanded_one(rows):
    graph, facts = read(frame(rows)), expanded(frame(rows))
    assert torch.equal(graph.facts.ids, facts.facts.ids)
    assert (graph.times, graph.duplicates, dict(graph.rows)) == (facts.times, facts.duplicates, dict(facts.rows))
    assert has_runs(graph) == any(row[3] > 1 for row in rows)


@settings(max_examples=40)
@given(rows=ROWS, data=st.data())
def test_weights_are_added_where_intervals_overlap(rows, data):
    numbers = data.draw(st.lists(st.integers(0, 5), min_size=len(rows), max_size=len(rows)))
    table = frame(rows, weight=[str(number) for number in numbers])
    graph, facts = read(table, columns={"weight": "weight"}), expanded(table)
    assert torch.equal(graph.facts.ids, facts.facts.ids)
    assert torch.equal(graph.facts.weight, facts.facts.weight)


def test_intervals_that_overlap_or_follow_each_other_are_one():
    rows = [("a", "x", 2000, 4), ("a", "x", 2002, 3), ("a", "x", 2005, 2), ("a", "x", 2008, 1)]
    graph = read(frame(rows))
    runs = stored(graph, "train")
    assert graph.times.take(runs.first.t) == ["2000", "2008"]
    assert graph.times.take(runs.last) == ["2006", "2008"]
    assert graph.duplicates == 2


def test_points_and_published_graphs_stay_facts():
    assert not has_runs(read(frame([("a", "x", 2000, 1), ("b", "x", 2001, 1)])))
    assert not has_runs(dataset("world", countries=4, years=1))


def test_intervals_that_contradict_each_other_are_refused():
    table = frame([("b", "y", 2000, 2), ("a", "x", 2000, 4), ("a", "x", 2003, 3)], value=["true", "true", "false"])
    with pytest.raises(UserError, match="row 2 of the table: this fact is True in one row and False in another"):
        read(table, columns={"value": "value"})
    apart = frame([("a", "x", 2000, 3), ("a", "x", 2003, 3)], value=["true", "false"])
    assert read(apart, columns={"value": "value"}).facts.truth.tolist() == [True] * 3 + [False] * 3


def test_weights_that_add_up_to_infinity_are_refused():
    table = frame([("a", "x", 2000, 4), ("a", "x", 2003, 3)], weight=["3e38", "3e38"])
    with pytest.raises(UserError, match=r"row 1 of the table: the weights of this fact add up to more than 3.4e\+38"):
        read(table, columns={"weight": "weight"})


def test_an_interval_in_two_splits_is_refused():
    splits = {"train": frame([("a", "x", 2000, 4)]), "test": frame([("b", "x", 2000, 4), ("a", "x", 2003, 4)])}
    with pytest.raises(UserError, match=r"row 2 of the test table: this fact is also in the train table, at least for"):
        read(splits)
    disjoint = {"train": frame([("a", "x", 2000, 3)]), "test": frame([("a", "x", 2003, 4)])}
    assert read(disjoint).counts == {"train": 3, "test": 4}


@pytest.mark.parametrize("end", [None, "", "present", "9999-12-31", "∞"])
def test_an_interval_without_an_end_is_ongoing(end):
    table = pl.DataFrame(
        {
            "subject": ["a", "b", "c"],
            "predicate": "leads",
            "object": "x",
            "start": ["2000-01", "2001-02", "2003-05"],
            "end": ["2001-02", "2003-05", end],
        }
    )
    graph = read(table)
    runs = stored(graph, "train")
    assert has_runs(graph)
    assert runs.ongoing.tolist() == [False, False, True]
    assert graph.times.take(runs.last) == ["2001-01", "2003-04", "2003-05"]
    assert stored(read(table.filter(pl.col("subject") != "c")), "train").ongoing is None


def test_open_ends_before_a_stray_start_are_not_ongoing():
    rows = [("a", "x", 1950 + i % 50, 3) for i in range(300)]
    table = frame([*rows, ("b", "y", 9000, 1)])
    ends = [None if i == 0 else end for i, end in enumerate(table["end"])]
    with pytest.warns(DataWarning, match="far from all other times"):
        runs = stored(read(table.with_columns(end=pl.Series(ends)), grain="year"), "train")
    assert not runs.has_ongoing
