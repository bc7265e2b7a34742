"""What a change really adds and removes, against sets of single times; and how facts are given."""

from __future__ import annotations

import pandas as pd
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from recollect import EpisodicGraph, Facts, TimeAxis, UserError, Vocabulary, read
from recollect.graph.runs import Runs, RunSplits, merge_runs
from recollect.memory.journal.changes import Delta
from recollect.memory.journal.effects import addition, erasure, matching, removal
from recollect.memory.journal.inputs import ASKED, FactParts, asked_fact, asked_facts

FIRST, HORIZON = 1500, 1540  # years that the oracle lists; an interval without an end covers all of them
ALWAYS = (("b", "q", "a"), (1500, 1502))  # is in every graph
Cell = tuple[str, str, str, int]

labels = st.tuples(st.sampled_from("abz"), st.sampled_from("pq"), st.sampled_from("abz"))
closed = st.tuples(st.integers(FIRST, FIRST + 20), st.integers(0, 6)).map(lambda pair: (pair[0], pair[0] + pair[1]))
intervals = st.one_of(closed, st.integers(FIRST, FIRST + 20).map(lambda first: (first, None)))
facts = st.lists(st.tuples(labels, intervals), min_size=1, max_size=6)


def graph_of(rows, *, as_runs: bool) -> EpisodicGraph:
    """Return the graph of intervals of years, as runs or as single facts; a last year may be None."""
    entities = Vocabulary.of("entity", [label for (s, _, o), _ in rows for label in (s, o)])
    predicates = Vocabulary.of("predicate", [p for (_, p, _), _ in rows])
    last_year = max(last or first for _, (first, last) in rows)
    axis = TimeAxis("year", FIRST, last_year - FIRST + 1)
    sizes = {"entity": len(entities), "predicate": len(predicates), "time": len(axis)}
    ids = [(entities.index(s), predicates.index(p), entities.index(o), first - FIRST) for (s, p, o), (first, _) in rows]
    ends = torch.tensor([(last_year if last is None else last) - FIRST for _, (_, last) in rows])
    ongoing = torch.tensor([last is None for _, (_, last) in rows])
    runs = merge_runs(Runs(Facts.of(ids), ends, ongoing), sizes)
    splits = RunSplits({"train": runs}, "year") if as_runs else {"train": runs.expand()}
    return EpisodicGraph(entities, predicates, axis, splits)


def tenures(rows) -> EpisodicGraph:
    return graph_of([*rows, ALWAYS], as_runs=True)


def points(rows) -> EpisodicGraph:
    return graph_of([*rows, ALWAYS], as_runs=False)


def cells(triple, first, last) -> set[Cell]:
    return {(*triple, time) for time in range(first or FIRST, (HORIZON if last is None else last) + 1)}


def all_cells(rows) -> set[Cell]:
    return {cell for triple, (first, last) in rows for cell in cells(triple, first, last)}


def asked(rows) -> pl.DataFrame:
    return pl.DataFrame([(*triple, *interval) for triple, interval in rows], schema=ASKED, orient="row")


def changed(delta: Delta, change: str) -> set[Cell]:
    rows = list(delta.frame.filter(change=change).drop("change").iter_rows())
    found = [cell for s, p, o, first, last in rows for cell in cells((s, p, o), first, last)]
    assert len(found) == len(set(found)), "rows overlap"
    return set(found)


@given(facts, facts)
def test_only_what_is_not_stored_is_added_and_only_what_is_stored_is_removed(stored, wanted):
    graph = tenures(stored)
    store = all_cells([*stored, ALWAYS])
    added, removed = addition(graph, asked(wanted)), removal(graph, asked(wanted))
    assert changed(added, "added") == all_cells(wanted) - store
    assert changed(removed, "removed") == all_cells(wanted) & store
    assert len(added) == len(added.frame.filter(change="added"))
    assert len(removed) == len(removed.frame.filter(change="removed"))


@given(
    st.lists(st.tuples(labels, closed), min_size=1, max_size=6),
    st.lists(st.tuples(labels, closed), min_size=1, max_size=6),
)
def test_facts_of_single_times_are_changed_as_intervals_are(stored, wanted):
    graph = points(stored)
    store = all_cells([*stored, ALWAYS])
    assert changed(addition(graph, asked(wanted)), "added") == all_cells(wanted) - store
    assert changed(removal(graph, asked(wanted)), "removed") == all_cells(wanted) & store


@given(facts, st.integers(0, 7), labels, st.one_of(st.just((None, None)), intervals))
def test_a_pattern_removes_all_that_match(stored, mask, triple, limits):
    graph = tenures(stored)
    names = ("subject", "predicate", "object")
    parts = {name: triple[i] for i, name in enumerate(names) if mask >> i & 1}
    low, high = limits
    expected = {
        cell
        for cell in all_cells([*stored, ALWAYS])
        if all(cell[names.index(name)] == label for name, label in parts.items())
        and (low or FIRST) <= cell[3] <= (HORIZON if high is None else high)
    }
    assert changed(matching(graph, parts, limits), "removed") == expected


def test_new_labels_come_in_the_order_of_the_rows_and_times_reach_as_far_as_the_rows():
    graph = tenures([(("a", "p", "b"), (1503, 1504))])
    rows = [(("y", "r", "a"), (1509, None)), (("a", "p", "b"), (1503, 1503)), (("x", "p", "y"), (1501, 1502))]
    delta = addition(graph, asked(rows))
    assert (delta.entities, delta.predicates, delta.reach) == (("y", "x"), ("r",), (1501, 1509))


def test_a_hole_at_the_end_of_the_axis_extends_it_if_an_interval_goes_on_after_it():
    graph = tenures([(("a", "p", "b"), (1503, None)), (("b", "p", "c"), (1503, 1510))])
    end = 1510  # of the axis
    hole = [(("a", "p", "b"), (end, end + 2))]
    assert removal(graph, asked(hole)).reach == (end + 3, end + 3)
    assert matching(graph, {"subject": "a"}, (end, end)).reach == (end + 1, end + 1)
    assert matching(graph, {"subject": "a"}, (end, None)).reach is None
    assert matching(graph, {"subject": "a"}, (end - 1, end - 1)).reach is None
    assert matching(graph, {"subject": "a"}, (end + 5, None)).reach == (end + 4, end + 4)
    assert matching(graph, {"subject": "a"}, (end + 5, end + 6)).reach == (end + 4, end + 7)
    assert matching(graph, {"subject": "b"}, (end, end)).reach is None


def test_an_entity_is_erased_if_there_is_one():
    graph = tenures([(("a", "p", "b"), (1503, 1504))])
    assert erasure(graph, "a").erased == ("a",)
    assert erasure(graph, "nobody").is_empty


def test_steps_of_ordinals_are_kept():
    rows = [("a", "p", "b", str(time)) for time in (0, 10, 20, 50)]
    graph = read(pl.DataFrame(rows, schema=["subject", "predicate", "object", "time"], orient="row"), grain="ordinal")
    assert graph.times.step == 10
    parts = FactParts(subject="a", predicate="p", object="b", time="0..50")
    delta = addition(graph, asked_fact(graph, parts))
    assert delta.added.rows() == [("a", "p", "b", 30, 40)]
    with pytest.raises(UserError, match="time 35 is between two times of this memory, which go by 10 from 0"):
        asked_fact(graph, FactParts(subject="a", predicate="p", object="b", time=35))


# -- how facts are given ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def days():
    rows = [("Ann", "visits", "Rome", f"2014-{month:02}-{day:02}") for month in (1, 2, 3) for day in (1, 15, 28)]
    return read(pl.DataFrame(rows, schema=["subject", "predicate", "object", "time"], orient="row"))


@pytest.fixture(scope="module")
def offices():
    rows = [("Ann", "leads", "Rome", "2001-02-03", "2005-06-07"), ("Bob", "leads", "Rome", "2005-06-07", None)]
    return read(pl.DataFrame(rows, schema=["subject", "predicate", "object", "start", "end"], orient="row"))


def span(graph, frame) -> list[tuple[str | None, str | None]]:
    """Return the first and last time of each row as dates."""
    epoch = pl.date(1970, 1, 1)
    return frame.select((epoch + pl.duration(days=pl.col(c))).dt.to_string().alias(c) for c in ("first", "last")).rows()


def parts(**time):
    return FactParts(subject="Ann", predicate="visits", object="Rome", **time)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"time": "2014-02-03"}, ("2014-02-03", "2014-02-03")),
        ({"time": "2014-02-03T14:30"}, ("2014-02-03", "2014-02-03")),
        ({"time": "2014-02-03..2014-02-05"}, ("2014-02-03", "2014-02-05")),
        ({"start": "2014-02-03", "end": "2014-02-05"}, ("2014-02-03", "2014-02-04")),
        ({"start": "2014-02-03", "end": "2014-02-03"}, ("2014-02-03", "2014-02-03")),
        ({"start": "2014-02", "end": "2014-03"}, ("2014-02-01", "2014-02-28")),
        ({"end": "2014-01-05"}, ("2014-01-01", "2014-01-04")),
    ],
)
def test_times_of_one_fact(days, given, expected):
    assert span(days, asked_fact(days, parts(**given))) == [expected]


def test_an_interval_may_have_no_end_where_intervals_are_stored(days, offices):
    given = {"subject": "Cleo", "predicate": "leads", "object": "Rome"}
    assert span(offices, asked_fact(offices, FactParts(**given, start="2009-01-01"))) == [("2009-01-01", None)]
    assert span(offices, asked_fact(offices, FactParts(**given, time="2009-01-01.."))) == [("2009-01-01", None)]
    assert span(offices, asked_fact(offices, FactParts(**given, start="2004-05-06", end="present"))) == [
        ("2004-05-06", None)
    ]
    assert span(offices, asked_fact(offices, FactParts(**given, time="2004"))) == [("2004-01-01", "2004-12-31")]
    with pytest.raises(UserError, match="the end is open, and this memory stores facts of single times; give the end"):
        asked_fact(days, parts(start="2014-02-03"))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, "no time; give subject, predicate, object and time"),
        ({"time": "2014-02"}, "'2014-02' is not one day, and this memory stores facts of single ones"),
        ({"time": "soon"}, "cannot read time 'soon' as a day; write it like '2014-01-01'"),
        ({"time": "2014-03-01..2014-02-01"}, "ends before it begins"),
        ({"start": "2014-03-01", "end": "2014-02-01"}, "the end 2014-02-01 is before the start 2014-03-01"),
        (
            {"time": "2041-02-03"},
            "time 2041-02-03 is more than 1,000 steps from the times of this memory, 2014-01-01 to",
        ),
    ],
)
def test_times_that_are_refused(days, given, sentence):
    with pytest.raises(UserError, match=sentence):
        asked_fact(days, parts(**given))


def test_parts_that_are_refused(days):
    with pytest.raises(UserError, match="no predicate; give"):
        asked_fact(days, FactParts(subject="Ann", object="Rome", time="2014-02-03"))
    with pytest.raises(UserError, match="a time, or a start and an end, not both"):
        parts(time="2014-02-03", end="2014-02-04")
    with pytest.raises(UserError, match="the subject is a text that is not empty; got 7"):
        FactParts(subject=7)


def test_rows_tables_and_files_give_the_same(days, tmp_path):
    rows = [("Ann", "visits", "Oslo", "2014-02-03"), ("Ann", "visits", "Bonn", "2014-02-04")]
    table = pl.DataFrame(rows, schema=["subject", "predicate", "object", "time"], orient="row")
    table.write_csv(tmp_path / "new.csv")
    table.write_parquet(tmp_path / "new.parquet")
    expected = asked_facts(days, rows)
    assert span(days, expected) == [("2014-02-03", "2014-02-03"), ("2014-02-04", "2014-02-04")]
    given = [table, table.to_pandas(), table.to_dicts(), tmp_path / "new.csv", str(tmp_path / "new.parquet")]
    assert isinstance(given[1], pd.DataFrame)
    for each in given:
        assert asked_facts(days, each).equals(expected)


def test_a_bad_row_of_a_file_is_named(days, tmp_path):
    file = tmp_path / "new.csv"
    file.write_text("subject,predicate,object,time\nAnn,visits,Rome,2014-02\nAnn,visits,Rome,2014-02-03\n")
    with pytest.raises(UserError, match=r"new.csv, line 2: cannot read '2014-02' as the time; wanted a day or finer"):
        asked_facts(days, file)
    assert span(days, asked_facts(days, file, forget=True))[0] == ("2014-02-01", "2014-02-28")
    file.write_text("subject,predicate,object,time\nAnn,visits,Rome,2099-02-03\n")
    with pytest.raises(UserError, match=r"new.csv, line 2: time 2099-02-03 is more than 1,000 steps"):
        asked_facts(days, file)
    file.write_text("subject,predicate,object,time,value\nAnn,visits,Rome,2014-02-03,false\n")
    with pytest.raises(
        UserError, match=r"new.csv, line 2: the value is 'false'; a memory remembers and forgets true facts"
    ):
        asked_facts(days, file, columns={"value": "value"})
    with pytest.raises(UserError, match="what is remembered has weight 1, and a column of weights is given; leave it"):
        asked_facts(days, file, columns={"weight": "value"})
    with pytest.raises(UserError, match=r"a row is \(subject, predicate, object, time\)"):
        asked_facts(days, [("Ann", "visits")])
