"""How the facts of an exported graph are written and read: Parquet, TSV, N-Quads, N-Triples-star, id files.

A text format is the template of a fact, with a hole for every cell; labels are escaped so that they fit into it. So
writing fills the holes of whole columns, and reading matches the same template.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import polars as pl
import torch
from torch import Tensor

from recollect.errors import UserError
from recollect.graph.facts import KINDS, SLOT_NAMES, EpisodicGraph, Facts, Vocabulary
from recollect.graph.times import TimeAxis
from recollect.io.assembly import Table, first_true

GRAPH, FACTS, STAT = "graph.json", "facts.parquet", "stat.txt"
ID_FILES = {"entity": "entity2id.txt", "predicate": "relation2id.txt", "time": "time2id.txt"}
EXTRAS = ("value", "weight")
RESTORE = "restore it or export the graph again"
_HOLE = re.compile(r"\{(\w+)\}")
_LABEL_ID, _SIZES = "{label}\t{id}", "{entity}\t{predicate}\t{time}"
_UNESCAPES = {"\\\\": "\\", "\\t": "\t", "\\n": "\n", "\\r": "\r"}
_ESCAPES = {ord(plain): escape for escape, plain in _UNESCAPES.items()}
_TRIPLE = "<urn:recollect:entity:{subject}> <urn:recollect:predicate:{predicate}> <urn:recollect:entity:{object}>"
_XSD = "http://www.w3.org/2001/XMLSchema#"
_TYPES = {
    **{"year": "gYear", "month": "gYearMonth", "day": "date", "ordinal": "integer"},  # other grains are plain text
    **{"value": "boolean", "weight": "float"},
}


@dataclass(frozen=True)
class Format:
    """How a graph is written into a folder, and read from it by what its `graph.json` tells."""

    write: Callable[[EpisodicGraph, Path], None]
    read: Callable[[Path, Mapping[str, Any]], EpisodicGraph]
    extras: bool  # whether it can say the value and the weight of a fact
    about: str


def extras_of(facts: Facts) -> list[str]:
    return [extra for extra in EXTRAS if getattr(facts, extra) is not None]


def digest_of_file(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _cells(graph: EpisodicGraph, escape: Callable[[str], str]) -> dict[str, pl.Series]:
    """How each label is written, by kind."""
    return {KINDS[slot]: pl.Series(map(escape, graph.axis(slot).labels), dtype=pl.String) for slot in "spt"}


def _frame(facts: Facts, cells: Mapping[str, pl.Series]) -> pl.DataFrame:
    """A column a slot, as its kind is written, then the value and the weight if there are any."""
    slots = {name: cells[KINDS[slot]].gather(facts.column(slot).numpy()) for slot, name in SLOT_NAMES.items()}
    return pl.DataFrame(slots | {extra: pl.Series(getattr(facts, extra).numpy()) for extra in extras_of(facts)})


def _labelled(tables: Mapping[str, Table], about: Mapping[str, Any], unescape: Callable[[str], str]) -> EpisodicGraph:
    """The graph of facts whose cells are written labels."""
    labels: dict[str, dict[str, str]] = {kind: {} for kind in KINDS.values()}
    for slot, name in SLOT_NAMES.items():
        for table in tables.values():
            labels[KINDS[slot]] |= {cell: unescape(cell) for cell in table.frame[name].unique().drop_nulls()}
    entities, predicates = (
        Vocabulary.of(kind, [*labels[kind].values(), *about["unused"][kind]]) for kind in ("entity", "predicate")
    )
    ids = {v.kind: {cell: v.index(label) for cell, label in labels[v.kind].items()} for v in (entities, predicates)}
    ids["time"] = {label: i for i, label in enumerate(TimeAxis(**about["times"]).labels)}
    return _numbered(tables, about, entities, predicates, ids)


def _numbered(
    tables: Mapping[str, Table],
    about: Mapping[str, Any],
    entities: Vocabulary,
    predicates: Vocabulary,
    ids: Mapping[str, Mapping[str, int]],
) -> EpisodicGraph:
    """The graph of facts whose cells stand for these ids."""
    splits = {}
    for split, told in about["splits"].items():
        table, n = tables[split], tables[split].frame.height
        if n != told["facts"]:
            raise UserError(f"{table.name}: {n:,} facts of {split}, where {GRAPH} tells {told['facts']:,}; {RESTORE}")
        slots = [_look_up(table, name, ids[KINDS[slot]]) for slot, name in SLOT_NAMES.items()]
        value = _look_up(table, "value", {"true": 1, "false": 0}).bool() if told["value"] else None
        weight = _tensor(table, table.frame["weight"].cast(pl.Float32, strict=False)) if told["weight"] else None
        splits[split] = Facts(Facts.from_columns(*slots).ids, value, weight)
    return EpisodicGraph(
        entities,
        predicates,
        TimeAxis(**about["times"]),
        splits,
        str(about["name"]),
        int(about["duplicates"]),
        dict(about["rows"]),
        dict(about["dropped"]),
    )


def _look_up(table: Table, column: str, numbers: Mapping[str, int]) -> Tensor:
    cells = table.frame[column].cast(pl.String)
    return _tensor(table, cells.replace_strict(numbers, default=None, return_dtype=pl.Int64))


def _tensor(table: Table, read: pl.Series) -> Tensor:
    """A column that was read from the table's column of that name; null is what could not be."""
    if read.null_count():
        row = first_true(read.is_null())
        given = table.frame[read.name][row]
        raise UserError(f"{table.where(row + 1)}: cannot read {given!r} as the {read.name}; {RESTORE}")
    return torch.from_numpy(read.to_numpy(writable=True))


def _write_parquet(graph: EpisodicGraph, folder: Path) -> None:
    cells = _cells(graph, str)
    empty = pl.DataFrame(schema=dict.fromkeys((*SLOT_NAMES.values(), "split"), pl.String))
    frames = [_frame(facts, cells).with_columns(split=pl.lit(split)) for split, facts in graph.splits.items()]
    whole = pl.concat([empty, *frames], how="diagonal", rechunk=True)
    extras = [extra for extra in EXTRAS if extra in whole.columns]
    whole.select(*empty.columns, *extras).write_parquet(folder / FACTS, compression="zstd")


def _read_parquet(folder: Path, about: Mapping[str, Any]) -> EpisodicGraph:
    file = folder / FACTS
    if digest_of_file(file) != about["files"][FACTS]:  # a damaged Parquet file can bring its reader down
        raise UserError(f"{file}: the content is not what was exported (its digest differs); {RESTORE}")
    whole = pl.read_parquet(file).with_row_index("row", offset=1)
    parts = {split: whole.filter(pl.col("split") == split) for split in about["splits"]}

    def table(part: pl.DataFrame) -> Table:
        return Table(part, lambda row: f"{file}, row {part['row'][row - 1]}", str(file))

    return _labelled({split: table(part) for split, part in parts.items()}, about, str)


@dataclass(frozen=True)
class _Text:
    """A file a split: the template of a fact, with holes for its cells, and how labels are written in them."""

    suffix: str
    cell: str  # a written label, as a regular expression
    template: Callable[[str, Sequence[str]], str]  # of a grain, and of the extras that a split has
    escape: Callable[[str], str] = str
    unescape: Callable[[str], str] = str
    header: bool = False

    def write(self, graph: EpisodicGraph, folder: Path) -> None:
        self.write_splits(graph, folder, _cells(graph, self.escape))

    def read(self, folder: Path, about: Mapping[str, Any]) -> EpisodicGraph:
        return _labelled(self.read_splits(folder, about), about, self.unescape)

    def write_splits(self, graph: EpisodicGraph, folder: Path, cells: Mapping[str, pl.Series]) -> None:
        for split, facts in graph.splits.items():
            template = self.template(graph.times.grain, extras_of(facts))
            weight = pl.col(pl.Float32).cast(pl.String).str.to_uppercase()  # 1E+16, INF: as XML Schema has them
            frame = _frame(facts, cells).with_columns(weight)
            _write_lines(folder / (split + self.suffix), template, frame, self.header)

    def read_splits(self, folder: Path, about: Mapping[str, Any]) -> dict[str, Table]:
        tables = {}
        for split, told in about["splits"].items():
            template = self.template(about["times"]["grain"], [extra for extra in EXTRAS if told[extra]])
            tables[split] = _read_lines(folder / (split + self.suffix), template, self.cell, self.header)
        return tables


def _write_lines(file: Path, template: str, frame: pl.DataFrame, header: bool = False) -> None:
    rows = frame.select(pl.format(_HOLE.sub("{}", template) + "\n", *_HOLE.findall(template))).to_series()
    first = [_HOLE.sub(r"\1", template) + "\n"] if header else []
    file.write_bytes("".join([*first, *rows]).encode())


def _read_lines(file: Path, template: str, cell: str, header: bool = False) -> Table:
    """The cells of the rows that `_write_lines` wrote, each over as many lines as the template."""
    lines, high = _lines(file), template.count("\n") + 1
    if header and lines[:1] != [names := _HOLE.sub(r"\1", template)]:
        raise UserError(f"{file}, line 1: wanted the header {names!r}; {RESTORE}")
    lines = lines[header:]
    rows = pl.Series(["\n".join(lines[i : i + high]) for i in range(0, len(lines), high)], dtype=pl.String)
    pattern = f"({cell})".join(map(pl.escape_regex, _HOLE.sub("{}", template).split("{}")))
    cells = rows.str.extract_groups(f"^{pattern}$").struct.unnest()
    table = Table(
        pl.DataFrame(dict(zip(_HOLE.findall(template), cells, strict=True))),
        lambda row: f"{file}, line {header + (row - 1) * high + 1}",
        str(file),
    )
    if (unread := cells["1"].is_null()).any():
        row = first_true(unread)
        raise UserError(f"{table.where(row + 1)}: cannot read {rows[row][:99]!r} as {template!r}; {RESTORE}")
    return table


def _lines(file: Path) -> list[str]:
    content = file.read_bytes()
    try:
        lines = content.decode().split("\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UserError(f"{file}, line {line}: not UTF-8 text; {RESTORE}") from error
    return lines if lines[-1] else lines[:-1]


def _escape(label: str) -> str:
    return label.translate(_ESCAPES)


def _unescape(cell: str) -> str:
    return re.sub(r"\\[\\tnr]", lambda found: _UNESCAPES[found[0]], cell)


def _percent(label: str) -> str:
    return quote(label, safe="")


def _tabbed(grain: str, extras: Sequence[str]) -> str:
    return "\t".join(f"{{{name}}}" for name in (*SLOT_NAMES.values(), *extras))


def _quad(grain: str, extras: Sequence[str]) -> str:
    return f"{_TRIPLE} <urn:recollect:time:{{time}}> ."


def _star(grain: str, extras: Sequence[str]) -> str:
    """The time said of the triple; then, a line each, the value and the weight said of that."""
    time = f"^^<{_XSD}{_TYPES[grain]}>" if grain in _TYPES else ""
    fact = f'<< {_TRIPLE} >> <urn:recollect:at> "{{time}}"{time}'
    more = [f'<< {fact} >> <urn:recollect:{extra}> "{{{extra}}}"^^<{_XSD}{_TYPES[extra]}>' for extra in extras]
    return "\n".join(f"{line} ." for line in (fact, *more))


def _write_ids(graph: EpisodicGraph, folder: Path) -> None:
    labels = _cells(graph, _escape)
    numbers = {kind: pl.int_range(len(column), eager=True).cast(pl.String) for kind, column in labels.items()}
    for kind, name in ID_FILES.items():
        _write_lines(folder / name, _LABEL_ID, pl.DataFrame({"label": labels[kind], "id": numbers[kind]}))
    _write_lines(folder / STAT, _SIZES, pl.DataFrame([graph.sizes]))
    _IDS.write_splits(graph, folder, numbers)


def _read_ids(folder: Path, about: Mapping[str, Any]) -> EpisodicGraph:
    labels, sizes = {}, _read_lines(folder / STAT, _SIZES, _IDS.cell).frame
    for kind, name in ID_FILES.items():
        table = _read_lines(folder / name, _LABEL_ID, _TSV.cell)
        if sizes[kind].to_list() != [str(table.frame.height)]:
            raise UserError(f"{table.name}: {table.frame.height:,} labels, which {STAT} tells otherwise; {RESTORE}")
        labels[kind] = [_unescape(cell) for cell in table.frame["label"]]
        if (other := table.frame["id"] != pl.int_range(len(labels[kind]), eager=True).cast(pl.String)).any():
            row = first_true(other)
            raise UserError(f"{table.where(row + 1)}: wanted the id {row}; {RESTORE}")
    if labels["time"] != TimeAxis(**about["times"]).labels:
        raise UserError(f"{folder / ID_FILES['time']}: the times are not those that {GRAPH} tells; {RESTORE}")
    entities, predicates = (Vocabulary(kind, tuple(labels[kind])) for kind in ("entity", "predicate"))
    ids = {kind: {str(i): i for i in range(len(column))} for kind, column in labels.items()}
    return _numbered(_IDS.read_splits(folder, about), about, entities, predicates, ids)


_TSV = _Text(".tsv", r"[^\t]*", _tabbed, _escape, _unescape, header=True)
_NQUADS = _Text(".nq", r"[A-Za-z0-9_.~%-]*", _quad, _percent, unquote)
_STAR = _Text(".nt", r"[A-Za-z0-9_.~%+-]*", _star, _percent, unquote)
_IDS = _Text(".txt", r"[0-9]+", _tabbed)
FORMATS: dict[str, Format] = {
    "parquet": Format(_write_parquet, _read_parquet, True, "one compressed table of labels, for any data tool"),
    "tsv": Format(_TSV.write, _TSV.read, True, "labels between tabs, a file a split, as graphs are published"),
    "nquads": Format(_NQUADS.write, _NQUADS.read, False, "N-Quads, the time as the name of the graph"),
    "rdf-star": Format(_STAR.write, _STAR.read, True, "N-Triples-star, the time said of the triple"),
    "ids": Format(_write_ids, _read_ids, False, "numbered labels and facts, as other temporal-graph tools read them"),
}
