"""`read` takes anything: a graph or one UserError comes out, never another exception."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from recollect import EpisodicGraph, UserError, read

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


def attempt(name: str, content: bytes, **options) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        try:
            graph = read(path, **options)
        except UserError as error:
            assert str(error)
            assert "\n" not in str(error)
        else:
            assert isinstance(graph, EpisodicGraph)
            assert len(graph.facts) > 0
            assert graph.fingerprint


@settings(max_examples=300)
@given(name=NAMES, content=st.binary(max_size=200), static=st.booleans())
@example(name="a.csv", content=b"s,p,o,t\n\x00,\x00,\x00,1\n", static=False)
@example(name="a.csv", content=b'"', static=False)
@example(name="a.txt", content=b"\xff\xfe", static=False)
@example(name="a.txt", content=b"\xff\xfea", static=True)
@example(name="a.csv", content=b"a,b,c,2014\r\r\n,,,1\n", static=False)
def test_random_bytes(name, content, static):
    attempt(name, content, static=static)


@settings(max_examples=300)
@given(
    rows=ROWS,
    header=st.sampled_from(["", "s,p,o,t", "subject,predicate,object,start,end", "head,relation,tail", "s,s,p,o,t"]),
    mark=st.sampled_from([",", "\t", ";", "|"]),
    end=st.sampled_from(["\n", "\r\n", "\r", "\n\n"]),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "latin-1"]),
    quote=st.booleans(),
    name=NAMES,
)
def test_mangled_tables(rows, header, mark, end, encoding, quote, name):
    cells = [[f'"{c}"' if quote else c for c in row] for row in rows]
    text = end.join([header.replace(",", mark), *(mark.join(row) for row in cells)])
    attempt(name, text.encode(encoding, "replace"))


@settings(max_examples=200)
@given(
    rows=st.lists(st.tuples(CELLS, CELLS, CELLS, CELLS), min_size=1, max_size=10),
    grain=st.sampled_from([None, "year", "day", "ordinal"]),
)
def test_any_labels_and_times(rows, grain):
    import polars as pl

    try:
        graph = read(pl.DataFrame(rows, schema=["s", "p", "o", "t"], orient="row"), grain=grain)
    except UserError as error:
        assert "row" in str(error) or "span" in str(error)
    else:
        given_labels = {(s, p, o) for s, p, o, _ in rows}
        assert {row[:3] for row in graph.table(graph.facts).rows()} == given_labels
