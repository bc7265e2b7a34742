"""Inputs for `read`: random bytes, mutated files of every format, and files built to be expensive, by number."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import random
import sqlite3
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from recollect import dataset, write_graph
from recollect.graph.facts import SPLITS

TEXT_NAMES = ("a.csv", "a.tsv", "a.txt", "a.csv.gz", "a.csv.bz2", "a.json", "a.jsonl", "a")
HEADERS = (
    "",
    "subject,predicate,object,time",
    "s,p,o,start,end",
    "head,relation,tail",
    "s,p,o,t,weight,value",
    "s,s,p,o,t",
    "year,month,s,p,o",
    "\ufeffs,p,o,t",
)
DATES = (
    *("05/03/2014", "16 May 2025", "2014Q3", "1394000000", "41703", "present", "∞", "-9", "2014-##-##"),
    *("2014", "2014-03", "2014-W09", "2014-03-05", "20140305", "2014-03-05T13:30Z", "2014-03-05 13:30:00+02:00"),
    *("0001-01-01", "9999-12-31", "0000", "2014-13-45", "12", "-5", "999999999999999", "9" * 30, "1e9", "", "nan"),
)
CELLS = (
    *("a", "b", "Turkey", "", " ", '"', '""', "a,b", "a\tb", "a\nb", "a\r\nb", "\x00", "\ufeff", "é", "🦜", "\u202e"),
    *("1e39", "-1", "inf", "nan", "true", "False", "0", "=1+1", "x" * 300, "#" * 5_000),
)
ODD_VALUES = (
    *(None, True, 0, -1, 2, 2**31, 2**63, 10**30, 0.5, 1e308, "", "day", "../../etc/passwd", "\ud800", "x" * 9_999),
    *([], {}, [[]], {"a": 1}, ["a"] * 1_000, [0] * 1_000),
)
ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32", "latin-1", "cp1252")
ENDS = ("\n", "\r\n", "\r", "\n\n", "\x0b", "\u2028")
OPTIONS = (
    *({},) * 20,
    *({"static": True}, {"inclusive_end": True}, {"allow_empty": True}),
    *({"grain": grain} for grain in ("year", "month", "week", "day", "hour", "ordinal")),
    {"columns": {"subject": 0, "predicate": 1, "object": 2, "time": 3}},
    *({"dates": dates} for dates in ("dmy", "mdy", "unix", "excel", "%d/%m/%Y")),
    {"columns": {"subject": "s", "predicate": "=x", "object": "o"}},
    {"columns": {"subject": "s", "object": "p+o"}},
    {"columns": {"weight": "weight"}},
    {"columns": {"weight": 4, "value": 5}},
)


@dataclass(frozen=True)
class Input:
    """Files by name, written to a folder; the one to read, or "" for the folder; and the options of `read`."""

    kind: str
    files: dict[str, bytes]
    target: str
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return sum(map(len, self.files.values()))

    def write(self, folder: Path) -> Path:
        """Write the files and return what is to be read."""
        for name, content in self.files.items():
            (folder / name).write_bytes(content)
        return folder / self.target


@dataclass(frozen=True)
class Large:
    """A large file of rows made by a function of their number, and how many distinct labels and times it has."""

    row: Callable[[int], str]
    rows: int
    distinct: int
    packed: bool = False  # as Parquet

    def write(self, folder: Path) -> Path:
        """Write the file and return its path."""
        path = folder / "large.csv"
        with path.open("w") as file:
            file.write("s,p,o,t\n")
            file.writelines(self.row(i) + "\n" for i in range(self.rows))
        if not self.packed:
            return path
        pl.read_csv(path).write_parquet(path.with_suffix(".parquet"))
        return path.with_suffix(".parquet")


LARGE = {
    "usual": Large(
        lambda i: f"Member {i * 7919 % 9973},Make a statement,State {i % 97},2014-{i % 12 + 1:02d}", 10**6, 10_100
    ),
    "distinct labels": Large(lambda i: f"e{i},p{i % 9},o{i},{2000 + i % 9}", 500_000, 1_000_000),
    "distinct times": Large(lambda i: f"a,b,c,{i}", 500_000, 500_000),
    "equal rows, packed": Large(lambda i: "a,b,c,2014", 10**6, 4, packed=True),
}


def make_input(number: int) -> Input:
    """Return the input of a number; the same number always gives the same input."""
    draw = random.Random(number)
    kind = list(MAKERS)[number % len(MAKERS)]
    files, target = MAKERS[kind](draw)
    return Input(kind, files, target, {} if "graph.json" in files else draw.choice(OPTIONS))


def random_bytes(draw: random.Random) -> tuple[dict[str, bytes], str]:
    name = draw.choice((*TEXT_NAMES, "a.parquet"))
    return {name: draw.randbytes(draw.randrange(1, 3_000))}, name


def random_tokens(draw: random.Random) -> tuple[dict[str, bytes], str]:
    tokens = (*CELLS, *DATES, *HEADERS, *ENDS, ",", "\t", ";", "|", '"', "'", "{", "}", "[", "]", ":")
    text = "".join(draw.choices(tokens, k=draw.randrange(1, 200)))
    name = draw.choice(TEXT_NAMES)
    return {name: text.encode(draw.choice(ENCODINGS), "replace")}, name


def table_text(draw: random.Random, rows: int) -> bytes:
    """Return a table that is nearly right: cells and rows are odd with a small probability."""
    header, delimiter, end = draw.choice(HEADERS), draw.choice(",,\t\t;|"), draw.choice(ENDS[:3])
    width = header.count(",") + 1 if header else draw.choice((3, 4, 4, 5, 6))
    oddity = draw.choice((0.0, 0.0, 0.01, 0.3))
    dates = [*draw.sample(DATES, k=2), "2014-03-05", "2015-01-01"]
    lines = [header.replace(",", delimiter)] if header else []
    for i in range(rows):
        cells = [f"e{i % 7}", f"p{i % 3}", f"e{i % 5}", "2014-01-01", "2014-02-01", "true", "x"][:width]
        for column in range(width):
            if draw.random() < oddity:
                cells[column] = draw.choice(CELLS) if column < 3 else draw.choice((*CELLS, *dates))
        if draw.random() < oddity / 4:
            cells = cells * draw.choice((0, 2, 50))
        lines.append(delimiter.join(f'"{cell}"' if draw.random() < oddity else cell for cell in cells))
    return end.join(lines).encode(draw.choice((*ENCODINGS, "utf-8", "utf-8")), "replace")


def tables(draw: random.Random) -> tuple[dict[str, bytes], str]:
    name = draw.choice(TEXT_NAMES)
    return {name: table_text(draw, draw.choice((0, 1, 2, 30, 300)))}, name


def mutated_tables(draw: random.Random) -> tuple[dict[str, bytes], str]:
    name = draw.choice(TEXT_NAMES)
    return {name: mutate(draw, table_text(draw, draw.choice((2, 30, 300))))}, name


def mutate(draw: random.Random, content: bytes) -> bytes:
    """Flip, insert, delete, repeat, splice and cut bytes, a few times."""
    changed = bytearray(content)
    for _ in range(draw.choice((1, 1, 2, 5, 20))):
        if not changed:
            break
        at = draw.randrange(len(changed))
        length = draw.choice((1, 2, 8, 100))
        match draw.randrange(7):
            case 0:
                changed[at] ^= 1 << draw.randrange(8)
            case 1:
                changed[at] = draw.choice(b'\x00\xff\x7f\x80",\t\n\r')
            case 2:
                changed[at:at] = draw.randbytes(length)
            case 3:
                del changed[at : at + length]
            case 4:
                changed[at:at] = changed[at : at + length] * draw.choice((1, 10, 1_000))
            case 5:
                other = draw.randrange(len(changed))
                changed[at : at + length] = changed[other : other + length]
            case 6:
                del changed[at:]
    return bytes(changed)


def parquet_table(draw: random.Random) -> bytes:
    """Return a Parquet file of facts: other types, encodings, codecs, row groups and nulls."""
    n = draw.choice((1, 5, 200))
    times = draw.choice(
        (
            pa.array(["2014-01-01"] * n),
            pa.array([2014 + i % 5 for i in range(n)]),
            pa.array([i * 86_400_000_000_000 for i in range(n)], pa.timestamp("ns")),
            pa.array([float(i) for i in range(n)]),
            pa.array([None] * n),
            pa.array([[1]] * n),
            pa.array([i * 1_000 for i in range(n)], pa.duration("ms")),
        )
    )
    labels = [f"e{i % 9}" for i in range(n)]
    columns = {"s": labels, "p": pa.array(labels).dictionary_encode(), "o": [label.encode() for label in labels]}
    if draw.random() < 0.3:
        columns["weight"] = pa.array(np.arange(n, dtype=draw.choice((np.float16, np.float64))))
    if draw.random() < 0.2:
        columns["struct"] = [{"s": 1, "t": {"x": [label]}} for label in labels]
    out = io.BytesIO()
    pq.write_table(
        pa.table(columns | {"t": times}),
        out,
        compression=draw.choice(("none", "snappy", "gzip", "zstd")),
        use_dictionary=draw.random() < 0.5,
        row_group_size=draw.choice((3, 1_000)),
        data_page_version=draw.choice(("1.0", "2.0")),
        write_statistics=draw.random() < 0.5,
    )
    return out.getvalue()


def parquets(draw: random.Random) -> tuple[dict[str, bytes], str]:
    return {"a.parquet": parquet_table(draw)}, "a.parquet"


def mutated_parquets(draw: random.Random) -> tuple[dict[str, bytes], str]:
    return {"a.parquet": mutate(draw, parquet_table(draw))}, "a.parquet"


def mutated_footers(draw: random.Random) -> tuple[dict[str, bytes], str]:
    """Change only the footer of a Parquet file: numbers of rows, offsets, sizes, types."""
    content = bytearray(parquet_table(draw))
    footer = int.from_bytes(content[-8:-4], "little")
    for _ in range(draw.choice((1, 2, 4))):
        at = len(content) - 8 - draw.randrange(1, footer + 1)
        content[at] = draw.choice((content[at] ^ (1 << draw.randrange(8)), 0xFF, 0x7F, 0x80, 0))
    return {"a.parquet": bytes(content)}, "a.parquet"


def packed(draw: random.Random) -> tuple[dict[str, bytes], str]:
    """Pack a table, and give it a name that may promise otherwise."""
    text = table_text(draw, 30)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as opened:
        opened.writestr(zipfile.ZipInfo("a.csv"), text)
    content = draw.choice(
        (gzip.compress(text, mtime=0), bz2.compress(text), archive.getvalue(), gzip.compress(bytes(5 << 20), mtime=0))
    )
    name = draw.choice((*TEXT_NAMES, "a.csv.zst", "a.csv.lz4", "a.parquet", "a.zip"))
    return {name: draw.choice((content, mutate(draw, content)))}, name


def jsons(draw: random.Random) -> tuple[dict[str, bytes], str]:
    rows = [{"s": "a", "p": "b", "o": draw.choice(CELLS), "t": draw.choice(DATES)} for _ in range(20)]
    text = draw.choice((json.dumps(rows), "\n".join(map(json.dumps, rows)), "[" * 10_000, '{"s":' * 500))
    name = draw.choice(("a.json", "a.jsonl", "a.csv", "a.txt", "graph.json"))
    return {name: mutate(draw, text.encode())}, name


def workbook(rows: list[tuple[str, ...]], last: str = "A1") -> bytes:
    """Return an Excel file of these rows and a cell `last`."""
    schemas = "http://schemas.openxmlformats.org"
    office = f"{schemas}/officeDocument/2006/relationships"
    main = f'xmlns="{schemas}/spreadsheetml/2006/main"'
    lines = "".join(
        f'<row r="{n}">'
        + "".join(f'<c r="{"ABCDEF"[i]}{n}" t="str"><v>{cell}</v></c>' for i, cell in enumerate(row))
        + "</row>"
        for n, row in enumerate(rows, 1)
    )

    def related(kind: str, target: str) -> str:
        relation = f'<Relationship Id="r1" Type="{office}/{kind}" Target="{target}"/>'
        return f'<Relationships xmlns="{schemas}/package/2006/relationships">{relation}</Relationships>'

    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in {
            "[Content_Types].xml": "<Types/>",
            "_rels/.rels": related("officeDocument", "xl/workbook.xml"),
            "xl/workbook.xml": f'<workbook {main} xmlns:r="{office}"><sheets>'
            '<sheet name="a" sheetId="1" r:id="r1"/></sheets></workbook>',
            "xl/_rels/workbook.xml.rels": related("worksheet", "worksheets/sheet1.xml"),
            "xl/worksheets/sheet1.xml": f'<worksheet {main}><sheetData>{lines}<row><c r="{last}"><v>1</v></c></row>'
            "</sheetData></worksheet>",
        }.items():
            archive.writestr(zipfile.ZipInfo(name), text)
    return out.getvalue()


def workbooks(draw: random.Random) -> tuple[dict[str, bytes], str]:
    """Return an Excel file: right, mutated, or with a cell far away."""
    rows = [("s", "p", "o", "date"), *(("a", "b", draw.choice("cde"), f"2014-03-{i + 1:02d}") for i in range(20))]
    content = workbook(rows, draw.choice(("E1", "E1", "E1", "XFD1048576", "ZZZ999999999", "A1048577")))
    return {"a.xlsx": draw.choice((content, mutate(draw, content)))}, "a.xlsx"


def databases(draw: random.Random) -> tuple[dict[str, bytes], str]:
    """Return an SQLite or DuckDB file with a table of facts, mutated or not."""
    name = draw.choice(("a.db", "a.duckdb"))
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / name
        connection: Any = sqlite3.connect(path) if name == "a.db" else duckdb.connect(str(path))
        for table in draw.choice((["facts"], ["facts"], ["facts", "others"])):
            connection.execute(f"CREATE TABLE {table} (s TEXT, p TEXT, o TEXT, t TEXT)")
            rows = [("a", "b", str(i % 5), draw.choice(("2014-03-05", "2015-01-02"))) for i in range(20)]
            connection.executemany(f"INSERT INTO {table} VALUES (?, ?, ?, ?)", rows)
        connection.commit()
        connection.close()
        content = path.read_bytes()
    return {name: draw.choice((content, mutate(draw, content)))}, name


def costly(draw: random.Random) -> tuple[dict[str, bytes], str]:
    """Build a file that is cheap to make: wide, long, deep, or far apart in time."""
    many = draw.choice((1_000, 100_000, 1_000_000))
    facts = "".join(f"e{i},p,o,2014-01-{i % 28 + 1:02d}\n" for i in range(200))
    text = draw.choice(
        (
            lambda: "s,p,o,t" + ",x" * many,
            lambda: "s,p,o,t\na,b,c,2014" + ",x" * many,
            lambda: "s,p,o,t\n" + facts + "," * many,
            lambda: 's,p,o,t\n"' + "x" * many,
            lambda: 's,p,o,t\n"' + "x\n" * many + '",b,c,2014\n',
            lambda: '"' * many,
            lambda: "\n" * many + "a,b,c,2014\n",
            lambda: "a" * many + ",b,c,2014\n" + facts,
            lambda: "s,p,o,t\n" + facts + "a,b,c,0001-01-01\na,b,c,9999-12-31\n",
            lambda: "s,p,o,t\n" + facts + "a,b,c,0001-01-01T05\na,b,c,9999-12-31T05\n",
            lambda: "s,p,o,t\na,b,c,0\na,b,c,999999999999999\n",
            lambda: "s,p,o,start,end\na,b,c,0001,9999\n" + "d,b,c,2000,\n" * 50,
            lambda: "s,p,o,start,end\n" + f"a,b,c,1,{many}\n" * 5,
            lambda: "s,p,o,start,end\n" + f"a,b,c,1,{many}\n" * 3 + "a,b,d,1,2\n",
            lambda: "s,p,o,start,end\n" + "a,b,c,0,999999999999999\n" * 5,
            lambda: "s\tp\to\tt\n" + "\t" * many + "\n",
            lambda: "s,p,o,t\n" + "".join(f"{i},{i},{i},{i}\n" for i in range(many // 20)),
            lambda: "\n".join(["s,p,o,t"] + [f"a,b,c,{i}" for i in range(many // 20)] + ["a,b"]),
        )
    )()
    name = draw.choice(("a.csv", "a.txt"))
    return {name: text.encode()}, name


def split_folders(draw: random.Random) -> tuple[dict[str, bytes], str]:
    """Return a folder with files of splits, one of them odd."""
    files = {f"{split}.txt": f"a\tb\t{split}\t2014-01-0{i}\n".encode() * 9 for i, split in enumerate(SPLITS, 1)}
    name = draw.choice((*files, "dev.txt", "train.csv", "train.parquet", "notes.txt", "entity2id.txt"))
    content = parquet_table(draw) if name.endswith(".parquet") else draw.choice((files.get(name), table_text(draw, 5)))
    files[name] = mutate(draw, content or b"a\tb\tc\t2014\n") if draw.random() < 0.7 else content or b"x"
    return files, ""


def mutated_exports(draw: random.Random) -> tuple[dict[str, bytes], str]:
    """Return an exported graph with one file mutated."""
    files = dict(draw.choice(_exported()))
    name = draw.choice(sorted(files))
    files[name] = mutate(draw, files[name])
    return files, ""


def signed_exports(draw: random.Random) -> tuple[dict[str, bytes], str]:
    """Return an exported graph whose description says something else, under a digest that is right."""
    files = dict(draw.choice(_exported()))
    about = json.loads(files["graph.json"])
    del about["digest"]
    for _ in range(draw.choice((1, 1, 2))):
        holder: Any = about
        while True:
            key = draw.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
            if not isinstance(holder[key], dict | list) or not holder[key] or draw.random() < 0.1:
                break
            holder = holder[key]
        holder[key] = draw.choice((*ODD_VALUES, json.loads(json.dumps(about))))
    about["digest"] = hashlib.sha256(json.dumps(about).encode()).hexdigest()
    files["graph.json"] = json.dumps(about).encode()
    return files, ""


MAKERS: dict[str, Callable[[random.Random], tuple[dict[str, bytes], str]]] = {
    "random bytes": random_bytes,
    "random tokens": random_tokens,
    "tables": tables,
    "mutated tables": mutated_tables,
    "Parquet": parquets,
    "mutated Parquet": mutated_parquets,
    "mutated Parquet footers": mutated_footers,
    "packed": packed,
    "JSON": jsons,
    "workbooks": workbooks,
    "databases": databases,
    "costly": costly,
    "folders of splits": split_folders,
    "mutated exports": mutated_exports,
    "signed exports": signed_exports,
}
_EXPORTS: list[dict[str, bytes]] = []


def _exported() -> list[dict[str, bytes]]:
    """Return the files of a small graph in every format."""
    if not _EXPORTS:
        graph = dataset("world", countries=4, years=1)
        for each in ("parquet", "tsv", "nquads", "rdf-star", "ids"):
            with tempfile.TemporaryDirectory() as place:
                folder = Path(place) / "graph"
                write_graph(graph, folder, each)
                _EXPORTS.append({path.name: path.read_bytes() for path in folder.iterdir()})
    return _EXPORTS
