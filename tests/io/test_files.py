"""Files as people have them: JSON, Excel, packed, several, standard input, databases; hostile ones are refused."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import sqlite3
import sys
import zipfile
from datetime import datetime
from types import SimpleNamespace

import duckdb
import ibis
import polars as pl
import pyarrow as pa
import pytest
import xlsxwriter

from recollect import UserError, read

ROWS = [("Turkey", "Fight", "Syria", "2014-12-25"), ("Iran", "Consult", "China", "2014-12-26")]
NAMES = ["subject", "predicate", "object", "time"]
FRAME = pl.DataFrame(ROWS, schema=NAMES, orient="row")
RECORDS = FRAME.to_dicts()
CSV = FRAME.write_csv().encode()
LINES = "\n".join(map(json.dumps, RECORDS)).encode()


def labelled(graph):
    return set(graph.table(graph.facts).rows())


def zipped(**files):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name.replace("_", "."), content)
    return out.getvalue()


FILES = {
    "a.json": json.dumps(RECORDS).encode(),
    "records by name.json": json.dumps({f"fact {i}": record for i, record in enumerate(RECORDS)}).encode(),
    "records under a key.json": json.dumps({"facts": RECORDS}).encode(),
    "one record per line.json": LINES,
    "a.jsonl": LINES + b"\n\n",
    "a.ndjson": b"\xef\xbb\xbf" + LINES,
    "no suffix": LINES,
    "a.csv.gz": gzip.compress(CSV, mtime=0),
    "called otherwise.csv": gzip.compress(CSV, mtime=0),
    "a.csv.bz2": bz2.compress(CSV),
    "a.csv.xz": lzma.compress(CSV),
    "a.csv.zst": pa.compress(CSV, codec="zstd", asbytes=True),
    "a.jsonl.gz": gzip.compress(LINES, mtime=0),
    "a.zip": zipped(facts_csv=CSV),
    "b.zip": zipped(facts_jsonl=LINES),
    "c.csv.gz.bz2": bz2.compress(gzip.compress(CSV, mtime=0)),
}


@pytest.mark.parametrize("name", FILES)
def test_json_and_packed_files_are_read(tmp_path, name):
    (tmp_path / name).write_bytes(FILES[name])
    assert labelled(read(tmp_path / name)) == set(ROWS)


def test_the_name_of_a_graph_is_that_of_the_file_without_suffixes(tmp_path):
    (tmp_path / "events.csv.gz").write_bytes(FILES["a.csv.gz"])
    assert read(tmp_path / "events.csv.gz").name == "events"


def test_errors_in_packed_files_name_the_file_and_the_line(tmp_path):
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(CSV + b"a,b,c,someday\n"))
    with pytest.raises(UserError, match=r"a\.csv\.gz, line 4: cannot read 'someday'"):
        read(tmp_path / "a.csv.gz")
    (tmp_path / "a.jsonl").write_bytes(
        LINES + b'\n{"subject": "a", "predicate": "b", "object": "c", "time": "someday"}'
    )
    with pytest.raises(UserError, match=r"a\.jsonl, line 3: cannot read 'someday'"):
        read(tmp_path / "a.jsonl")


def test_values_of_json_are_text(tmp_path):
    records = [
        {"s": 1, "p": True, "o": 2.5, "t": 2001},
        {"s": "x", "p": "y", "o": "z", "t": 2002, "more": {"deep": []}},
    ]
    (tmp_path / "a.json").write_text(json.dumps(records))
    assert labelled(read(tmp_path / "a.json")) == {("1", "true", "2.5", "2001"), ("x", "y", "z", "2002")}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", b"[" * 100_000, r"a\.json.*(too deep|not JSON)"),
        ("a.jsonl", LINES + b'\n{"a":' * 5, r"a\.jsonl, line 3: not JSON"),
        ("a.jsonl", LINES + b"\n7", r"line 3: no record"),
        ("a.json", b"7", r"no records in this JSON"),
        ("a.json", b'{"a": [1, 2]}', r"no records in this JSON"),
        ("a.json", b"[]", r"no records in this JSON"),
        ("a.json", b'[{"s": "a", "p": "b", "o": ["c"], "t": 1}]', r"record 1: 'o' is no plain value"),
        ("a.json", b"\xff\xfe\xfd", r"not UTF-8"),
        ("a.json", b"[" + b"9" * 5000 + b"]", r"not readable JSON|no records"),
        ("a.csv.gz", gzip.compress(CSV, mtime=0)[:-9], r"cannot be unpacked as gzip"),
        ("a.csv.xz", lzma.compress(CSV)[:-9], r"cannot be unpacked as xz"),
        ("a.csv.zst", b"\x28\xb5\x2f\xfd123456789", r"cannot be unpacked as zstd"),
        ("a.csv.gz", gzip.compress(b"", mtime=0), r"the file inside is empty"),
        ("a.zip", zipped(a_csv=CSV, b_csv=CSV), r"2 files inside"),
        ("a.zip", b"PK\x03\x04 no zip", r"cannot be unpacked as zip"),
        ("a.xlsx", b"PK\x03\x04 no zip", r"not a readable Excel file"),
        ("a.db", b"SQLite format 3\0 no database", r"cannot be read as an SQLite file"),
        ("a.duckdb", b"12345678DUCK no database", r"cannot be read as a DuckDB file"),
    ],
)
def test_files_that_are_not_what_they_seem_are_refused(tmp_path, name, content, message):
    pytest.importorskip("fastexcel")
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message) as caught:
        read(tmp_path / name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress, lambda content: zipped(a_csv=content)])
def test_a_packed_file_that_would_fill_the_memory_is_refused_while_it_is_unpacked(tmp_path, monkeypatch, pack):
    (tmp_path / "a.csv.gz").write_bytes(pack(b"a,b,c,2014\n" * 500_000))
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=8_000_000))
    with pytest.raises(
        UserError, match=r"a\.csv\.gz: [0-9,]+ bytes unpack to more than [0-9,]+, and at most 2,000,000"
    ):
        read(tmp_path / "a.csv.gz")


def test_a_packed_file_of_nothing_but_repetition_is_refused(tmp_path):
    (tmp_path / "a.csv.bz2").write_bytes(bz2.compress(bytes(80 << 20)))
    with pytest.raises(UserError, match=r"bytes unpack to more than"):
        read(tmp_path / "a.csv.bz2")


def test_several_files_folders_and_patterns_of_the_same_columns_are_one_table(tmp_path, run):
    (tmp_path / "2014.csv").write_bytes(CSV)
    (tmp_path / "2015.jsonl").write_text(json.dumps({"s": "a", "p": "b", "o": "c", "t": "2015-01-09"}))
    (tmp_path / "notes.md").write_text("not a table")
    expected = {*ROWS, ("a", "b", "c", "2015-01-09")}
    assert labelled(read(tmp_path)) == expected
    assert labelled(read(f"{tmp_path}/201*")) == expected
    assert labelled(read([tmp_path / "2014.csv", tmp_path / "2015.jsonl"])) == expected
    assert labelled(read([FRAME[:1], FRAME[1:]])) == set(ROWS)
    code, out, _ = run("data", "show", f"{tmp_path}/201*", "--json")
    assert (code, json.loads(out)["facts"]) == (0, {"train": 3})
    (tmp_path / "2016.csv").write_text("s,p,o,t\na,b,c,someday\n")
    with pytest.raises(UserError, match=r"2016\.csv, line 2: cannot read 'someday'"):
        read(tmp_path)
    (tmp_path / "2016.csv").write_text("s,p,o,start,end\na,b,c,2001-01-02,2002-03-04\n")
    with pytest.raises(
        UserError, match=r"2016\.csv has .*start, end.*, and .*2014\.csv has .*time.*; give tables of the same"
    ):
        read(tmp_path)
    with pytest.raises(UserError, match="no tables to read"):
        read([])


@pytest.mark.parametrize("content", [CSV, LINES, gzip.compress(CSV, mtime=0), FRAME.write_csv(separator="\t").encode()])
def test_standard_input_is_read(monkeypatch, run, content):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))
    graph = read("-")
    assert (labelled(graph), graph.name) == (set(ROWS), "stdin")
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content + b"")))
    code, out, _ = run("data", "show", "-", "--json")
    assert (code, json.loads(out)["facts"]) == (0, {"train": 2})
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"")))
    with pytest.raises(UserError, match="standard input is empty"):
        read("-")


def database(path, kind, tables):
    """Write tables of the same facts, with a number and a null in a further column, to a database."""
    connection = sqlite3.connect(path) if kind == "sqlite" else duckdb.connect(str(path))
    for table in (name.replace('"', '""') for name in tables):
        connection.execute(f'CREATE TABLE "{table}" (subject TEXT, predicate TEXT, object TEXT, time TEXT, n INTEGER)')
        connection.executemany(f'INSERT INTO "{table}" VALUES (?, ?, ?, ?, ?)', [(*ROWS[0], 7), (*ROWS[1], None)])
    connection.commit()
    connection.close()
    return path


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_a_table_of_a_database_is_read_and_several_are_listed(tmp_path, run, kind):
    one = database(tmp_path / "one.db", kind, ["facts"])
    assert labelled(read(one)) == labelled(read(f"{one}::facts")) == set(ROWS)
    two = database(tmp_path / "two.db", kind, ["facts", 'odd "name"'])
    with pytest.raises(
        UserError, match=r"two\.db: several tables; there are 'facts', 'odd \"name\"'; write .*two\.db::facts"
    ):
        read(two)
    assert labelled(read(f'{two}::odd "name"')) == set(ROWS)
    with pytest.raises(UserError, match="no table 'x'; there are 'facts'"):
        read(f"{one}::x")
    code, out, _ = run("data", "show", f"{two}::facts", "--json")
    assert (code, json.loads(out)["facts"], json.loads(out)["name"]) == (0, {"train": 2}, "facts")
    empty = database(tmp_path / "empty.db", kind, [])
    with pytest.raises(UserError, match="no tables|the file is empty"):
        read(empty)


def test_a_table_of_ibis_and_a_url_are_read(tmp_path):
    path = database(tmp_path / "one.duckdb", "duckdb", ["facts"])
    assert labelled(read(f"duckdb://{path}::facts")) == set(ROWS)
    with pytest.raises(UserError, match=r"one\.duckdb: cannot be read .*x"):
        read(f"duckdb://{path}::x")
    with pytest.raises(UserError, match="nowhere://x: cannot be read"):
        read("nowhere://x::facts")
    table = ibis.memtable(FRAME)
    assert labelled(read(table.filter(table.subject == "Iran"))) == {ROWS[1]}


def test_sheets_of_excel_are_read(tmp_path):
    pytest.importorskip("fastexcel")
    book = xlsxwriter.Workbook(str(tmp_path / "a.xlsx"))
    book.add_worksheet("empty")
    for sheet in ("facts", "more"):
        page = book.add_worksheet(sheet)
        for i, row in enumerate([NAMES, *ROWS]):
            page.write_row(i, 0, row)
    book.close()
    assert labelled(read(tmp_path / "a.xlsx")) == labelled(read(f"{tmp_path}/a.xlsx::more")) == set(ROWS)
    with pytest.raises(UserError, match=r"no sheet 'x'; there are 'empty', 'facts', 'more'"):
        read(f"{tmp_path}/a.xlsx::x")
    (tmp_path / "a.csv").write_bytes(CSV)
    with pytest.raises(UserError, match=r"has no tables inside; leave out ::x"):
        read(f"{tmp_path}/a.csv::x")


def test_dates_and_numbers_of_excel_are_read_as_they_are_shown(tmp_path):
    pytest.importorskip("fastexcel")
    book = xlsxwriter.Workbook(str(tmp_path / "a.xlsx"))
    page, day = book.add_worksheet(), book.add_format({"num_format": "dd.mm.yyyy"})
    page.write_row(0, 0, ["s", "p", "o", "start", "end"])
    page.write_row(1, 0, [4741, True, 2.5])
    page.write_datetime(1, 3, datetime(2014, 3, 5), day)
    page.write(1, 4, "present")
    page.write_row(2, 0, [475, "r", "x"])
    page.write_datetime(2, 3, datetime(2014, 3, 6), day)
    page.write_datetime(2, 4, datetime(2014, 3, 8), day)
    book.close()
    graph = read(tmp_path / "a.xlsx")
    assert ("4741", "true", "2.5", "2014-03-05") in labelled(graph)
    assert graph.times.span == "day, 2014-03-05 to 2014-03-07"


def sheet(cells: str) -> bytes:
    """Return the smallest workbook that has one sheet of these cells."""
    schemas = "http://schemas.openxmlformats.org"
    office = f"{schemas}/officeDocument/2006/relationships"

    def related(kind: str, target: str) -> str:
        relation = f'<Relationship Id="r1" Type="{office}/{kind}" Target="{target}"/>'
        return f'<Relationships xmlns="{schemas}/package/2006/relationships">{relation}</Relationships>'

    main = f'xmlns="{schemas}/spreadsheetml/2006/main"'
    sheets = '<sheets><sheet name="a" sheetId="1" r:id="r1"/></sheets>'
    parts = {
        "[Content_Types].xml": "<Types/>",
        "_rels/.rels": related("officeDocument", "xl/workbook.xml"),
        "xl/workbook.xml": f'<workbook {main} xmlns:r="{office}">{sheets}</workbook>',
        "xl/_rels/workbook.xml.rels": related("worksheet", "worksheets/sheet1.xml"),
        "xl/worksheets/sheet1.xml": f"<worksheet {main}><sheetData>{cells}</sheetData></worksheet>",
    }
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return out.getvalue()


def row(number, *cells):
    texts = "".join(f'<c r="{place}{number}" t="inlineStr"><is><t>{text}</t></is></c>' for place, text in cells)
    return f'<row r="{number}">{texts}</row>'


def test_cells_far_apart_are_refused_before_the_sheet_is_loaded(tmp_path):
    pytest.importorskip("fastexcel")
    header = row(1, *zip("ABCD", NAMES, strict=True))
    (tmp_path / "a.xlsx").write_bytes(sheet(header + row(2, *zip("ABCD", ROWS[0], strict=True))))
    assert labelled(read(tmp_path / "a.xlsx")) == {ROWS[0]}
    (tmp_path / "a.xlsx").write_bytes(sheet(header + row(1_048_576, ("XFD", "x"))))
    with pytest.raises(UserError, match=r"the number of cells of xl/worksheets/sheet1\.xml is 17,179,869,184"):
        read(tmp_path / "a.xlsx")


def test_a_workbook_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    pytest.importorskip("fastexcel")
    (tmp_path / "a.xlsx").write_bytes(sheet(" " * 5_000_000))
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=8_000_000))
    with pytest.raises(UserError, match="the number of bytes unpacked is"):
        read(tmp_path / "a.xlsx")
    monkeypatch.undo()
    monkeypatch.setattr("recollect.io.tables.packed.MAX_START", 1 << 20)
    with pytest.raises(UserError, match="unpacks to more than"):
        read(tmp_path / "a.xlsx")


def test_excel_without_its_package_says_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "a.xlsx").write_bytes(sheet(""))
    monkeypatch.setitem(sys.modules, "fastexcel", None)
    with pytest.raises(UserError, match=r"an Excel file needs fastexcel, .*pip install 'recollect\[excel\]'"):
        read(tmp_path / "a.xlsx")
