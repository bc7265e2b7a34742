"""Columns are found by name and content; what is missing is proposed as an option; nothing is ignored silently."""

from __future__ import annotations

import shlex

import polars as pl
import pytest

from recollect import DataWarning, UserError, read
from recollect.cli.options import parse_columns
from recollect.io.tables.columns import find_columns, fold


def labelled(graph):
    return set(graph.table(graph.facts).rows())


def proposed(message):
    """Return the columns that an error proposes, as they are copied to a shell."""
    words = shlex.split(str(message))
    return parse_columns(words[words.index("--columns") + 1].rstrip(";"))


TABLES = {
    "managers": (
        "manager_name,date_from,date_to,role\nCooke,1921-08-27,1935-04-30,Secretary\nJack Carr,1935-07-02,,Manager\n",
        {"subject": "manager_name", "object": "role", "start": "date_from", "end": "date_to"},
        ("Jack Carr", "role", "Manager", "1935-07-02"),
    ),
    "alliances": (
        "country,enter,exit,is_ally\nBelgium,8/4/1914,11/11/1918,1\nOttoman Empire,10/29/1914,10/30/1918,0\n",
        {"subject": "country", "object": "is_ally", "start": "enter", "end": "exit"},
        ("Belgium", "is_ally", "1", "1914-08-04"),
    ),
    "matches": (
        '"","HomeTeam","AwayTeam","Goals","Year","Date"\n"1","Bremen","Dortmund",3,1963,1963-08-24\n'
        '"2","Berlin","Bremen",1,1963,1963-08-25\n',
        {"subject": "HomeTeam", "object": "AwayTeam", "time": "Date"},
        ("Bremen", "AwayTeam", "Dortmund", "1963-08-24"),
    ),
    "winners": (
        "yearID,round,teamIDwinner,teamIDloser,wins\n1884,WS,PRO,NY4,3\n1885,WS,CHN,SL4,3\n",
        {"subject": "teamIDwinner", "object": "teamIDloser", "time": "yearID"},
        ("PRO", "teamIDloser", "NY4", "1884"),
    ),
    "releases, some rows short": (
        "version,codename,series,created,release,eol,eol-lts\n1.1,Buzz,buzz,1993-08-16,1996-06-17,1997-06-05\n"
        "13,Trixie,trixie,2023-06-10\n",
        {"subject": "codename", "object": "series", "start": "created", "end": "eol"},
        ("Trixie", "series", "trixie", "2023-06-10"),
    ),
    "storms, the date in parts": (
        "rownames,name,year,month,day,hour,status\n1,Amy,1975,6,27,0,depression\n2,Amy,1975,6,27,6,storm\n",
        {"subject": "name", "object": "status", "time": "year+month+day+hour"},
        ("Amy", "status", "storm", "1975-06-27T06"),
    ),
    "tenures in From and To": (
        "Image,Name,Nationality,From,To,P\n,A. H. Albut,England,1889,26 May 1900,3\n,J,Wales,27 May 1900,Present,1\n",
        {"subject": "Name", "object": "Nationality", "start": "From", "end": "To"},
        ("A. H. Albut", "Nationality", "England", "1889"),
    ),
    "nothing but names and dates": (
        "state,start,end\nBavaria,1806,1871\nSaxony,1806,1871\n",
        {"subject": "state", "predicate": "=is", "object": "=there", "start": "start", "end": "end"},
        ("Bavaria", "is", "there", "1806"),
    ),
    "blanks in names": (
        "Airport Name,Flight Date,Origin State\nBARKSDALE,1990-01-08,Louisiana\nATLANTA,1990-01-09,Georgia\n",
        {"subject": "Airport Name", "object": "Origin State", "time": "Flight Date"},
        ("ATLANTA", "Origin State", "Georgia", "1990-01-09"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", TABLES)
def test_an_error_about_columns_proposes_an_option_that_reads_the_table(tmp_path, case):
    text, columns, fact = TABLES[case]
    path = tmp_path / "a.csv"
    path.write_text(text)
    with pytest.raises(
        UserError, match=r"a\.csv, line 1: no column for the .*; say which, for example --columns"
    ) as caught:
        read(path)
    assert proposed(caught.value) == columns
    assert fact in labelled(read(path, columns=proposed(caught.value)))


def test_a_table_without_a_predicate_has_the_names_of_its_objects():
    frame = pl.DataFrame(
        {
            "s": ["Ann", "Bob"],
            "p": 0,
            "who": ["Ann", "Bob"],
            "party": ["A", "B"],
            "office": ["mayor", None],
            "year": 2001,
        }
    )
    graph = read(frame.drop("s", "p"), columns={"subject": "who", "object": "party+office"})
    assert labelled(graph) == {
        ("Ann", "party", "A", "2001"),
        ("Bob", "party", "B", "2001"),
        ("Ann", "office", "mayor", "2001"),
    }
    assert graph.dropped == {"empty cell of several objects": 1}
    assert graph.notes[0].startswith("the predicate is the name of the object's column, 'party', 'office'")


def test_a_flag_called_event_is_no_predicate_of_objects_that_were_given():
    frame = pl.DataFrame({"id": [1, 2], "event": [0, 1], "transplant": ["no", "yes"], "start": [0, 0], "stop": [6, 9]})
    given = {"subject": "id", "object": "transplant"}
    graph = read(frame, columns=given)
    assert set(graph.predicates.labels) == {"transplant"}
    assert graph.notes[1] == "columns not used: 'event'"
    actions = frame.with_columns(event=pl.Series(["gets", "lacks"]))
    graph = read(actions, columns=given)
    assert set(graph.predicates.labels) == {"gets", "lacks"}
    assert graph.notes[0].startswith("the predicate is the column 'event'; predicate==TEXT")
    codes = pl.DataFrame({"actor1": ["a"], "event": [42], "actor2": ["b"], "year": [2001]})
    assert labelled(read(codes)) == {("a", "42", "b", "2001")}


@pytest.mark.parametrize("suffix", ["csv", "json", "jsonl", "parquet"])
def test_most_objects_of_a_given_column_may_be_missing(tmp_path, suffix):
    frame = pl.DataFrame(
        {"key": [f"v{i}" for i in range(6)], "codename": ["Argon", None, None, None, None, "Boron"], "year": 2001}
    )
    path = tmp_path / f"a.{suffix}"
    {"csv": frame.write_csv, "json": frame.write_json, "jsonl": frame.write_ndjson, "parquet": frame.write_parquet}[
        suffix
    ](path)
    with pytest.warns(DataWarning, match=r"(line|record|row) \d.*object.*this row and 3 more are left out, of 6"):
        graph = read(path, columns={"subject": "key", "object": "codename"})
    assert labelled(graph) == {("v0", "codename", "Argon", "2001"), ("v5", "codename", "Boron", "2001")}
    assert graph.dropped == {"no object": 4}
    with pytest.raises(UserError, match=r"object.*; fill it in or drop the row, .*--allow-empty"):
        read(frame.with_columns(codename=pl.lit("")), columns={"subject": "key", "object": "codename"})
    with pytest.raises(UserError, match=r"no object; fill it in"):  # a column found by its name is a table of facts
        read(frame.rename({"key": "subject", "codename": "object"}).with_columns(predicate=pl.lit("is")))


def test_a_text_may_stand_for_a_column(tmp_path, run):
    path = tmp_path / "a.csv"
    path.write_text("state,start,end\nBavaria,1806,1871\nSaxony,1806,1871\n")
    code, out, _ = run("data", "show", path, "--columns", "subject=state,predicate==is,object==independent", "--json")
    assert (code, '"busiest_predicates": {"is": 130}' in out) == (0, True)
    frame = pl.DataFrame({"=a": ["x"], "o": ["y"], "year": [2000]})
    assert labelled(read(frame, columns={"subject": "=a", "predicate": "=p", "object": "o"})) == {
        ("x", "p", "y", "2000")
    }


def test_from_and_to_are_times_if_they_are_dates_and_labels_if_not():
    dated = pl.DataFrame({"s": ["a"], "p": ["r"], "o": ["b"], "From": ["2001-05-06"], "To": ["2003-01-02"]})
    assert read(dated).times.label(0) == "2001-05-06"
    edges = pl.DataFrame({"from": ["a", "b"], "relation": "r", "to": ["b", "c"], "year": 2001})
    assert labelled(read(edges)) == {("a", "r", "b", "2001"), ("b", "r", "c", "2001")}
    numbered = pl.DataFrame({"from": ["1001", "1002"], "relation": "r", "to": ["1002", "1003"], "year": 2001})
    assert ("1001", "r", "1002", "2001") in labelled(read(numbered))


def test_columns_that_are_not_used_are_named_and_weights_too():
    frame = pl.DataFrame({"s": ["a"], "p": ["r"], "o": ["b"], "t": [1], "weight": [2.0], "entry": ["x"]})
    graph = read(frame)
    assert graph.notes == (
        "columns not used: 'weight', 'entry'; --columns weight=weight weights facts by it in training",
    )
    assert read(frame, columns={"weight": "weight"}).facts.weight.tolist() == [2.0]
    assert read(frame.drop("weight", "entry")).notes == ()


def test_the_command_line_prints_notes_on_standard_error(tmp_path, run):
    path = tmp_path / "a.csv"
    path.write_text("s,p,o,t,confidence\na,r,b,2014-01-01,0.5\na,r,c,2014-02-01,0.5\na,r,d,2014-03-01,0.5\n")
    code, out, err = run("data", "show", path, "--json")
    assert (code, out.count("\n")) == (0, 1)
    assert err.splitlines() == [
        "note: columns not used: 'confidence'; --columns weight=confidence weights facts by it in training",
        "note: every date is the first of a month, so the time grain is month; --grain day keeps days",
    ]


def test_two_columns_of_one_name_are_refused_unless_given_by_position(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("subject,subject,predicate,object,time\na,b,r,c,2001\n")
    with pytest.raises(UserError, match=r"line 1: two columns called 'subject'; .*--columns subject=0"):
        read(path)
    assert labelled(read(path, columns={"subject": 1})) == {("b", "r", "c", "2001")}


def test_labels_that_differ_in_blanks_only_are_reported():
    frame = pl.DataFrame({"s": ["USA", "x", "USA "], "p": "r", "o": ["y", " USA", "z"], "t": 1})
    with pytest.warns(DataWarning, match=r"row 2 of the table: ' USA' is another label than 'USA', and so are 1 more"):
        assert len(read(frame).entities) == 6


def test_numbers_that_became_floats_are_reported():
    frame = pl.DataFrame({"s": ["4741.0", "850.0"], "p": "r", "o": ["x", "y"], "t": 1})
    with pytest.warns(DataWarning, match=r"row 1 of the table: every subject is a number with \.0, like '4741\.0'"):
        assert "4741.0" in read(frame).entities.labels


def test_a_few_rows_without_a_label_or_time_are_left_out_counted_and_reported(tmp_path):
    rows = "".join(f"e{i},r,x,{2000 + i % 9},{2010 + i % 9}\n" for i in range(96))
    path = tmp_path / "a.csv"
    path.write_text(f"s,p,o,start,end\n{rows}w,r,x,2001,soon\n,r,x,2001,2002\ny,r,x,,\nz,r,x,2005,2003\n")
    with pytest.warns(DataWarning) as caught:
        graph = read(path)
    assert [str(warning.message).partition(", ")[2] for warning in caught] == [
        "line 99: the subject is empty; this row is left out, of 100",
        "line 98: cannot read 'soon' as the end; this row is left out, of 99",
        "line 100: neither start nor end is known; this row is left out, of 98",
        "line 101: the end 2003 is before the start 2005; this row is left out, of 97",
    ]
    assert graph.dropped == {
        "no subject": 1,
        "unreadable time": 1,
        "neither start nor end known": 1,
        "end before start": 1,
    }
    assert graph.rows == {"train": 100}
    assert not {"w", "y", "z"} & set(graph.entities.labels)


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["h", "r", "t", "timestamp"], {"subject": 0, "predicate": 1, "time": 3}),
        (["s", "p", "o", "year", "date"], {"time": 4}),
        (["s", "p", "o", "year", "month"], {"time": (3, 4)}),
        (["who", "Subject", "verb", "OBJECT", "Start Date", "endDate"], {"subject": 1, "start": 4, "end": 5}),
        (["s", "p", "o", "year", "start"], {"start": 4}),
    ],
)
def test_columns_are_found_by_their_folded_names(names, found):
    given = {"object": 2} if names[0] == "h" else {}
    columns = find_columns(names, given, False, "here").columns
    for role, position in found.items():
        assert columns[role] == (position if isinstance(position, tuple) else (position,))


@pytest.mark.parametrize(
    ("name", "folded"),
    [("startDate", "start_date"), (" Flight  Date ", "flight_date"), ("entry.dt", "entry_dt"), ("", "")],
)
def test_names_are_folded(name, folded):
    assert fold(name) == folded
