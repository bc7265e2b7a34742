"""`python -m benchmarks leaders`: what a memory says of who led which country when, against the table itself."""

from __future__ import annotations

import polars as pl
import pytest

from benchmarks.leaders import Tenures, format_report, known_in, measure, recall_all
from recollect import Memory, read

ROWS = [
    ("Ash", "leader of", "ALD", "1990-02-01", "1994-06-30"),
    ("Birch", "leader of", "ALD", "1994-07-01", ""),
    ("Cedar", "leader of", "BOR", "1991-01-01", "1992-01-01"),
    ("Doe", "leader of", "BOR", "1993-05-05", "1996-12-31"),
    ("Cedar", "leader of", "BOR", "1997-01-01", ""),
]


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "leaders.csv"
    frame = pl.DataFrame(ROWS, schema=["subject", "predicate", "object", "start", "end"], orient="row")
    frame.write_csv(path)
    return path


def test_country_years_are_those_of_a_loop_over_rows_and_years(table):
    expected: dict[tuple[str, int], set[str]] = {}
    for leader, _, country, start, end in ROWS:
        for year in range(int(start[:4]), int(end[:4] or 1997) + 1):
            expected.setdefault((country, year), set()).add(leader)
    found = Tenures.read(table).country_years()
    assert {(row["country"], row["year"]): set(row["leaders"]) for row in found.iter_rows(named=True)} == expected


def test_a_leader_holds_in_years_of_the_tenure_and_is_near_around_it(table):
    tenures = Tenures.read(table)
    assert tenures.holds("Ash", "ALD", 1994)
    assert not tenures.holds("Ash", "ALD", 1995)
    assert not tenures.holds("Ash", "BOR", 1992)
    assert tenures.is_near("Ash", "ALD", 2010)
    assert not tenures.is_near("Ash", "ALD", 2050)


def test_a_memory_of_all_rows_is_right_and_one_that_withholds_rows_is_not(table):
    tenures = Tenures.read(table)
    whole = read(table, grain="year", inclusive_end=True)
    memory = Memory.learn(whole, model="history")
    assert recall_all(memory, tenures)["right"] == 1
    known = known_in(memory, tenures, 1994)
    assert (known["stored"], known["precision of stored"]) == (3, 1.0)
    facts = whole.split("train")
    part = Memory.learn(whole.with_splits({"train": facts[facts.t != 4]}), model="history")
    report = recall_all(part, tenures)
    assert report["right"] < 1
    assert {row["year"] for row in report["wrong"]} == {1994}


def test_the_report_names_figures_and_predictions(table):
    years = pl.read_csv(table, infer_schema=False).with_columns(pl.col("start", "end").str.slice(0, 4))
    years.write_csv(table)
    lines = format_report(measure(table, years=(1994,)))
    assert lines[0].startswith("Memory(")
    assert "right" in lines[1]
    assert any(line.startswith("as of 1994: ") for line in lines)
