"""Whatever is given to `read`, it returns a graph or raises a UserError, never another exception."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from recollect import DataWarning, EpisodicGraph, UserError, read

NAMES = st.sampled_from(["a.csv", "a.tsv", "a.txt", "a.parquet"])
CELLS = st.one_of(
    st.text(max_size=8),
    st.sampled_from(
        ["subject", "predicate", "object", "time", "2014", "2014-01-01", "7", "", '"', '""', "a\nb", "\ufeff"]
    ),
    st.dates().map(str),
    st.integers().map(str),
)
ROWS = st.lists(st.lists(CELLS, min_size=1, max_size=6), max_size=8)
BYTES = {"name": NAMES, "content": st.binary(max_size=200), "static": st.booleans()}
TEXTS = {
    "rows": ROWS,
    "header": st.sampled_from(["", "s,p,o,t", "subject,predicate,object,start,end", "head,relation,tail", "s,s,p,o,t"]),
    "delimiter": st.sampled_from([",", "\t", ";", "|"]),
    "end": st.sampled_from(["\n", "\r\n", "\r", "\n\n"]),
    "encoding": st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "latin-1"]),
    "quote": st.booleans(),
    "name": NAMES,
}
TABLES = {
    "rows": st.lists(st.tuples(CELLS, CELLS, CELLS, CELLS), min_size=1, max_size=10),
    "grain": st.sampled_from([None, "year", "day", "ordinal"]),
}


def read_with_warnings(source, **options) -> EpisodicGraph:
    """Read a source; rows that are left out are named by a warning, which is no failure."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        return read(source, **options)


def check_file(name: str, content: bytes, static: bool = False) -> None:
    """Read a file of this content: a graph, or an error of one line."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        try:
            graph = read_with_warnings(path, static=static)
        except UserError as error:
            assert str(error)
            assert "\n" not in str(error)
        else:
            assert isinstance(graph, EpisodicGraph)
            assert len(graph.facts) > 0
            assert graph.fingerprint


def check_text(rows, header, delimiter, end, encoding, quote, name) -> None:
    """Read a text file of these rows, written in some way."""
    cells = [[f'"{cell}"' if quote else cell for cell in row] for row in rows]
    lines = [header.replace(",", delimiter), *(delimiter.join(row) for row in cells)]
    check_file(name, end.join(lines).encode(encoding, "replace"))


def check_table(rows, grain) -> None:
    """Read a table of these rows: a graph of their labels but those of rows left out, or an error that names a row."""
    frame = pl.DataFrame(rows, schema=["s", "p", "o", "t"], orient="row")
    try:
        graph = read_with_warnings(frame, grain=grain, allow_empty=True)
    except UserError as error:
        assert "row" in str(error) or "span" in str(error)
    else:
        found, given = {row[:3] for row in graph.table(graph.facts).rows()}, {row[:3] for row in rows}
        assert found <= given if graph.dropped else found == given
        assert 2 * sum(graph.dropped.values()) < len(rows)


@settings(max_examples=60)
@given(**BYTES)
@example(name="a.csv", content=b"s,p,o,t\n\x00,\x00,\x00,1\n", static=False)
@example(name="a.csv", content=b'"', static=False)
@example(name="a.txt", content=b"\xff\xfe", static=False)
@example(name="a.txt", content=b"\xff\xfea", static=True)
@example(name="a.csv", content=b"a,b,c,2014\r\r\n,,,1\n", static=False)
def test_random_bytes_are_a_graph_or_an_error(name, content, static):
    check_file(name, content, static)


@settings(max_examples=60)
@given(**TEXTS)
def test_mangled_text_is_a_graph_or_an_error(**text):
    check_text(**text)


@settings(max_examples=60)
@given(**TABLES)
def test_tables_of_any_labels_and_times_are_a_graph_or_an_error(**table):
    check_table(**table)


@pytest.mark.long
@settings(max_examples=1000)
@given(**BYTES)
def test_random_bytes_in_a_long_run(name, content, static):
    check_file(name, content, static)


@pytest.mark.long
@settings(max_examples=1000)
@given(**TEXTS)
def test_mangled_text_in_a_long_run(**text):
    check_text(**text)


@pytest.mark.long
@settings(max_examples=1000)
@given(**TABLES)
def test_tables_of_any_labels_and_times_in_a_long_run(**table):
    check_table(**table)
