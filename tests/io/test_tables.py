"""Tables are read whatever their columns, times, intervals and splits; every error names the file and line."""

from __future__ import annotations

import random
import string
from datetime import date, datetime

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from recollect import UserError, read, split_randomly

ROWS = [("Turkey", "Fight", "Syria", "2014-12-25"), ("Iran", "Consult", "China", "2014-12-26")]


def labelled(graph):
    return set(graph.table(graph.facts).rows())


def write(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding))
    return path


def lines(rows, mark):
    return "\n".join(mark.join(row) for row in rows) + "\n"


@pytest.mark.parametrize(
    "names",
    [
        "subject predicate object time",
        "s p o t",
        "head relation tail timestamp",
        "Source Event Target Date",
        "Source-Name,Event Text,Target Name,Event Date".replace(",", "|"),
    ],
)
def test_columns_are_found_by_name(tmp_path, names):
    header = names.split("|") if "|" in names else names.split()
    graph = read(write(tmp_path / "a.csv", lines([header, *ROWS], ",")))
    assert labelled(graph) == set(ROWS)
    shuffled = pl.DataFrame(ROWS, schema=header, orient="row").select(reversed(header))
    assert labelled(read(shuffled)) == set(ROWS)


@pytest.mark.parametrize("mark", [",", ";", "|", "\t"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_delimiters_encodings_and_line_ends_are_recognised(tmp_path, mark, encoding, end):
    rows = [("Curaçao", "Fight", "Ελλάδα", "2014-12-25"), *ROWS]
    text = lines([("s", "p", "o", "t"), *rows], mark).replace("\n", end)
    assert labelled(read(write(tmp_path / "a.txt", text, encoding))) == set(rows)


def test_published_files_have_no_header_and_no_quoting(tmp_path):
    rows = [('"Big" Joe', "Arrest, detain", 'say "no', "2014-01-01"), *ROWS]
    assert labelled(read(write(tmp_path / "train.txt", lines(rows, "\t")))) == set(rows)


def test_quoted_csv_may_have_commas_quotes_and_newlines(tmp_path):
    text = 's,p,o,t\n"a, b","say ""x""","line\nbreak",2014\n"",p,o,2015\n'
    assert labelled(read(write(tmp_path / "a.csv", text), allow_empty=True)) == {
        ("a, b", 'say "x"', "line\nbreak", "2014"),
        ("", "p", "o", "2015"),
    }


@pytest.mark.parametrize("kind", ["polars", "lazy", "pandas", "arrow"])
def test_polars_pandas_and_arrow_tables_are_read(kind):
    frame = pl.DataFrame(ROWS, schema=["head", "relation", "tail", "date"], orient="row")
    source = {
        "polars": frame,
        "lazy": frame.lazy(),
        "pandas": frame.to_pandas(),
        "arrow": frame.to_arrow(),
    }[kind]
    assert labelled(read(source)) == set(ROWS)


@pytest.mark.parametrize(
    ("times", "labels"),
    [
        ([date(2014, 3, 5)], ["2014-03-05"]),
        ([datetime(2014, 3, 5), datetime(2014, 3, 7)], ["2014-03-05", "2014-03-07"]),
        ([datetime(2014, 3, 5, 13, 59)], ["2014-03-05T13"]),
        ([1999, 2001], ["1999", "2001"]),
        ([3, 7], ["3", "7"]),
        ([3.0, 7.0], ["3", "7"]),
        ([-5, 5], ["-5", "5"]),
        (["2014-W02"], ["2014-W02"]),
    ],
)
def test_times_may_be_dates_numbers_or_text(times, labels):
    for frame in (pd.DataFrame, pl.DataFrame):
        graph = read(frame({"s": "a", "p": "r", "o": "b", "time": times}))
        assert sorted(graph.times.take(graph.facts.t), key=labels.index) == labels


def test_a_coarser_grain_merges_facts():
    frame = pl.DataFrame({"s": "a", "p": "r", "o": "b", "t": ["2014-01-01", "2014-01-31", "2015-03-01"]})
    graph = read(frame, grain="month")
    assert graph.times.labels[0] == "2014-01"
    assert len(graph.times) == 15
    assert (len(graph.facts), graph.duplicates) == (2, 1)
    assert read(frame, grain="year").times.labels == ["2014", "2015"]


def test_interval_facts_hold_from_start_to_before_end():
    frame = pl.DataFrame(
        {
            "s": ["a", "b", "c", "d", "e"],
            "p": "r",
            "o": "x",
            "start": ["2000", "2001", None, "2002", "2003"],
            "end": ["2003", None, "2002", "2002", "2005"],
        }
    )
    graph = read(frame)
    held = {label: [] for label in "abcde"}
    for s, _, _, t in sorted(labelled(graph)):
        held[s].append(t)
    assert held == {
        "a": ["2000", "2001", "2002"],
        "b": ["2001", "2002", "2003", "2004"],  # no known end: to the edge of the record
        "c": ["2000", "2001"],  # no known start: from the edge of the record
        "d": ["2002"],  # an instant
        "e": ["2003", "2004"],
    }
    inclusive = read(frame, inclusive_end=True)
    assert ("a", "r", "x", "2003") in labelled(inclusive)
    assert ("d", "r", "x", "2003") not in labelled(inclusive)


def test_duplicates_are_merged_and_counted():
    frame = pl.DataFrame([*ROWS, *ROWS, ROWS[0]], schema=["s", "p", "o", "t"], orient="row")
    graph = read(frame)
    assert (len(graph.facts), graph.duplicates) == (2, 3)


def test_weights_add_up_and_values_are_read_if_their_columns_are_given():
    frame = pl.DataFrame(
        {"s": "a", "p": "r", "o": ["x", "x", "y"], "t": 0, "count": [2, 3, 4], "ok": ["true", "true", "false"]}
    )
    graph = read(frame, columns={"weight": "count", "value": "ok"})
    assert graph.facts.weight.tolist() == [5.0, 4.0]
    assert graph.facts.truth.tolist() == [True, False]
    plain = read(frame)
    assert plain.facts.weight is None
    assert plain.facts.value is None


def test_static_triples_have_one_time(tmp_path):
    path = write(tmp_path / "a.tsv", "a\tr\tb\nb\tr\tc\n")
    graph = read(path, static=True)
    assert (len(graph.facts), len(graph.times)) == (2, 1)
    write(path, "h\tr\tt\na\tr\tb\n")
    assert labelled(read(path, static=True)) == {("a", "r", "b", "0")}


def test_a_folder_of_split_files_is_one_graph(tmp_path):
    for split, rows in {"train": ROWS[:1], "valid": ROWS[1:], "test": [("a", "b", "c", "2014-01-01")]}.items():
        write(tmp_path / f"icews_2014_{split}.txt", lines(rows, "\t"))
    write(tmp_path / "entity2id.txt", "a\t0\n")
    graph = read(tmp_path)
    assert {name: len(facts) for name, facts in graph.splits.items()} == {"train": 1, "valid": 1, "test": 1}
    assert len(graph.times) == 360
    assert graph.name == tmp_path.name


def test_parquet_files_are_read(tmp_path):
    pl.DataFrame(ROWS, schema=["s", "p", "o", "t"], orient="row").write_parquet(tmp_path / "a.parquet")
    assert labelled(read(tmp_path / "a.parquet")) == set(ROWS)


def test_ids_do_not_depend_on_the_order_of_rows():
    rows = [(f"e{i % 7}", f"r{i % 3}", f"e{i % 5}", str(2000 + i % 11)) for i in range(60)]
    schema = ["s", "p", "o", "t"]
    first = read(pl.DataFrame(rows, schema=schema, orient="row"))
    random.Random(0).shuffle(rows)
    second = read(pl.DataFrame(rows, schema=schema, orient="row"))
    assert first.fingerprint == second.fingerprint
    assert split_randomly(first).fingerprint == split_randomly(second).fingerprint


def test_odd_labels_are_read_as_they_are(tmp_path):
    odd = ["", " ", "\t", "a\nb", "ünï", "🦜", "'", '"', "NA", "null", "nan", "0", "é", string.printable]
    frame = pl.DataFrame({"s": odd, "p": "r", "o": odd[::-1], "t": 0})
    graph = read(frame, allow_empty=True)
    assert set(graph.entities.labels) == set(odd)
    frame.write_csv(tmp_path / "odd.csv")
    assert read(tmp_path / "odd.csv", allow_empty=True).fingerprint == graph.fingerprint


HEADER = "subject,predicate,object,time\n"
ERRORS = {
    "empty file": ("", r"bad\.csv: the file is empty"),
    "blank lines only": ("\n\n\n", r"bad\.csv: the file is empty"),
    "header only": (HEADER, r"bad\.csv: no rows"),
    "missing column": ("who,predicate,object,time\na,b,c,2014\n", r"line 1: no column for the subject among 'who'"),
    "missing time": ("subject,predicate,object\na,b,c\n", r"line 1: no column for the time .*static=True"),
    "unparsable date": (
        HEADER + "a,b,c,2014-01-01\n\na,b,c,someday\n",
        r"bad\.csv, line 4: cannot read 'someday' as the time",
    ),
    "no such day": (HEADER + "a,b,c,2014-02-30\n", r"line 2: cannot read '2014-02-30'"),
    "no time": (HEADER + 'a,"b\nb",c,2014\na,b,c,\n', r"line 4: cannot read nothing as the time"),
    "ragged": (HEADER + "a,b,c,2014\na,b,c\n", r"line 3: 3 columns where the first row has 4"),
    "not UTF-8": (HEADER.encode() + b"a,b,c,2014\n\xff\xfe\xfd,b,c,2014\n", r"line 3: not UTF-8"),
    "end before start": (
        "s,p,o,start,end\na,b,c,2001,2003\na,b,c,2005,2003\n",
        r"line 3: the end 2003 is before the start 2005",
    ),
    "end before start within a bin": (
        "s,p,o,start,end\na,b,c,2001-03-20,2001-03-05\n",
        r"line 2: the end 2001-03-05 is before the start 2001-03-20",
    ),
    "no start nor end": ("s,p,o,start,end\na,b,c,,\n", r"line 2: neither start nor end is known|cannot read"),
    "three columns": ("a,b,c\nd,e,f\n", r"line 1: 3 columns without a header; .* need static=True"),
    "six columns": ("1,2,3,4,5,6\n", r"line 1: 6 columns without a header"),
    "bad date in the first row": ("a,b,c,2014-13-45\n", r"line 1: cannot read '2014-13-45' as the time"),
    "date and start": ("s,p,o,date,start\na,b,c,2014,2001\n", r"line 1: columns 'date' and 'start' both tell the time"),
    "end at the beginning of time": (
        "s,p,o,start,end\na,b,c,,0001-01-01\n",
        r"line 2: cannot read '0001-01-01' as the end",
    ),
    "empty subject": (
        HEADER + "a,b,c,2014\n\n,b,c,2014\n",
        r"bad\.csv, line 4: the subject is empty; .*allow_empty=True",
    ),
    "empty predicate": (HEADER + 'a,"",c,2014\n', r"bad\.csv, line 2: the predicate is empty"),
    "empty object": ("a\tb\t\t2014\n", r"bad\.csv, line 1: the object is empty"),
    "too many columns": ("s,p,o,t" + ",x" * 20_000, r"line 1: 20,004 columns; wanted at most 10,000"),
    "a long first line": ("x" * 5_000_000, r"line 1: more than 4,194,304 characters"),
    "not UTF-8, old line ends": (b"s,p,o,t\ra,b,c,1\r\xe9,b,c,2\r", r"line 3: not UTF-8"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors_name_file_and_line(tmp_path, case):
    content, message = ERRORS[case]
    path = tmp_path / "bad.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=message) as caught:
        read(path)
    assert "\n" not in str(caught.value)


def test_labels_coarser_than_the_grain_that_was_asked_for_are_refused(tmp_path):
    path = write(tmp_path / "bad.csv", HEADER + "a,b,c,2014-01-01\na,b,c,2014-01\n")
    with pytest.raises(
        UserError, match="line 3: cannot read '2014-01' as the time; wanted a day or finer, .*another grain"
    ):
        read(path, grain="day")
    assert len(read(path, grain="month").times) == 1


def test_facts_in_two_splits_are_refused(tmp_path):
    write(tmp_path / "train.txt", lines(ROWS, "\t"))
    write(tmp_path / "test.txt", lines([("x", "y", "z", "2014-12-25"), ROWS[1]], "\t"))
    with pytest.raises(UserError, match=r"test\.txt, line 2: this fact is also in .*train\.txt"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: read(p / "nothing.csv"), r"nothing\.csv: no such file"),
        (lambda p: read(p), "no train file here"),
        (lambda p: read(42), "cannot read a int"),
        (lambda p: read({}), "no tables to read"),
        (lambda p: read("x" * 5000), "cannot be read"),
        (lambda p: read(pd.DataFrame({"s": [1, "a"], "p": "r", "o": "b", "t": 0})), "the table cannot be read|text"),
        (lambda p: read(pd.DataFrame([[1, 2]], columns=["s", "s"])), "the table cannot be read"),
        (lambda p: read({"dev": pl.DataFrame()}), "unknown split 'dev'"),
        (
            lambda p: read(pl.DataFrame(ROWS, schema=list("spot"), orient="row"), grain="decade"),
            "unknown grain 'decade'",
        ),
        (lambda p: read(pl.DataFrame(), columns={"verb": "x"}), "unknown column role 'verb'"),
        (
            lambda p: read(pl.DataFrame({"s": ["a"], "p": ["b"], "o": [None], "t": [1]})),
            "row 1 of the table: no object",
        ),
        (lambda p: read(pl.DataFrame({"s": [[1]], "p": ["b"], "o": ["c"], "t": [1]})), "wanted text, numbers or dates"),
        (
            lambda p: read(pa.table({"s": ["a"], "p": ["b"], "o": ["c"], "t": [0.5]})),
            "row 1 of the table: cannot read '0.5'",
        ),
        (lambda p: read(pl.DataFrame({"s": ["a"]}), columns={"subject": "x"}), "no column 'x' for the subject"),
        (lambda p: read(pl.DataFrame({"s": ["a"]}), columns={"subject": 3}), "there is no column 3 for the subject"),
    ],
)
def test_errors_without_a_line_name_what_was_given(tmp_path, call, message):
    with pytest.raises(UserError, match=message):
        call(tmp_path)


def test_the_delimiter_is_the_one_that_gives_equal_columns(tmp_path):
    rows = [("Washington, DC", "visits", "a, b", "2014"), ("x", "visits", "y", "2015")]
    assert labelled(read(write(tmp_path / "a.csv", lines(rows, "\t")))) == set(rows)


def test_nan_is_a_missing_value():
    frame = pl.DataFrame({"s": "a", "p": "r", "o": "b", "start": [2000.0, 2001.0], "end": [2003.0, float("nan")]})
    assert len(read(frame).facts) == 3
    with pytest.raises(UserError, match="row 2 of the table: no subject"):
        read(pd.DataFrame({"s": [1.0, None], "p": "r", "o": "b", "t": 0}))


def test_columns_may_be_given_by_position_with_and_without_a_header(tmp_path):
    path = write(tmp_path / "a.csv", "subject,predicate,object,time\na,r,b,1\n")
    positions = {"subject": 0, "predicate": 1, "object": 2, "time": 3}
    assert labelled(read(path, columns=positions)) == {("a", "r", "b", "1")}
    headerless = write(tmp_path / "b.txt", "a\tr\tb\t24\t0\n")
    assert labelled(read(headerless, columns=positions)) == {("a", "r", "b", "24")}


def test_splits_must_have_the_same_time_columns():
    train = pl.DataFrame({"s": ["a"], "p": ["r"], "o": ["b"], "start": [1]})
    valid = train.with_columns(end=3, s=pl.lit("c"))
    with pytest.raises(UserError, match="the train table: no column for the end, which another split has"):
        read({"train": train, "valid": valid})


@pytest.mark.parametrize(
    ("names", "given", "message"),
    [
        ("s p o month day", {}, "columns 'month' and 'day' all look like the time"),
        ("s p o date date", {}, "columns 'date' and 'date' all look like the time"),
        ("source relation target date", {"subject": "target"}, "no column for the object"),
    ],
)
def test_columns_that_could_be_misread_are_refused(tmp_path, names, given, message):
    values = ["a", "b", "c", "2014", "3", "5"][: len(names.split())]
    path = write(tmp_path / "a.csv", lines([names.split(), values], ","))
    with pytest.raises(UserError, match=message):
        read(path, columns=given)


def test_a_column_t_may_be_given_as_the_object(tmp_path):
    path = write(tmp_path / "a.csv", "h,r,t,timestamp\na,b,c,2014\n")
    assert labelled(read(path, columns={"object": "t"})) == {("a", "b", "c", "2014")}


def test_a_dev_file_is_the_validation_split(tmp_path):
    write(tmp_path / "train.txt", lines(ROWS[:1], "\t"))
    write(tmp_path / "dev.txt", lines(ROWS[1:], "\t"))
    assert set(read(tmp_path).splits) == {"train", "valid"}


def test_ordinal_intervals_keep_their_step():
    graph = read(pl.DataFrame({"s": ["a", "b"], "p": "r", "o": "x", "start": [0, 24], "end": [24, 72]}))
    assert graph.times.labels == ["0", "24", "48"]
    assert len(graph.facts) == 3


def test_a_csv_may_be_separated_by_semicolons(tmp_path):
    rows = [("Doe, J", "knows", "Roe, R", "2014"), ("x, y", "knows", "z, z", "2015")]
    assert labelled(read(write(tmp_path / "a.csv", lines(rows, ";")))) == set(rows)


def test_durations_and_periods_are_refused():
    frame = pd.DataFrame({"s": ["a"], "p": "r", "o": "b", "t": pd.period_range("2014-01", periods=1, freq="M")})
    with pytest.raises(UserError, match="column 't' holds .*; wanted text, numbers or dates"):
        read(frame)
    with pytest.raises(UserError, match="column 't' holds duration"):
        read(frame.assign(t=pd.Timedelta(days=1)))
    with pytest.raises(UserError, match="cannot be read"):
        read(pl.scan_csv("nowhere.csv"))


def test_clashing_values_and_negative_weights_are_refused():
    frame = pl.DataFrame({"s": "a", "p": "r", "o": "b", "t": 1, "ok": [True, False]})
    with pytest.raises(UserError, match="row 2 of the table: this fact is True in one row and False in another"):
        read(frame, columns={"value": "ok"})
    with pytest.raises(UserError, match="row 1 of the table: cannot read '-1' as a weight; wanted a number from 0 to"):
        read(frame.with_columns(w=-1), columns={"weight": "w"})
