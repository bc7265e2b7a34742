"""File formats of exported graphs.

parquet     one compressed table of labels, for any data tool
partitioned the same in folders, split=train/year=2014/facts.parquet, for engines that read in parallel
tsv         labels separated by tabs, one file per split, as graphs are published
spreadsheet tsv in which no label is a formula
nquads      N-Quads, the time as the name of the graph
rdf-star    N-Triples-star, the time as a statement about the triple
ids         numbered labels and facts, as the scripts of temporal-graph papers read them

A graph of intervals has one row per run, with its start and end instead of a time; the end is the time after the last,
and empty for a run without an end.

A text format is a template of one fact with placeholders such as {subject}. Labels are escaped so that they cannot be
confused with the text around them. Writing fills in the template for whole columns; reading matches the same template.

To add a format, write a function that writes a graph into a folder and one that reads it, and list both in FORMATS.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote, unquote

import polars as pl

from recollect.errors import UserError
from recollect.graph.facts import SLOT_NAMES, EpisodicGraph
from recollect.graph.runs import has_runs, split_runs
from recollect.graph.times import TimeAxis
from recollect.graph.vocabulary import Vocabulary
from recollect.io.label_tables import (
    END,
    EXTRAS,
    GRAPH,
    RESTORE,
    RUNS,
    Metadata,
    extras_of,
    graph_from_cells,
    graph_from_labels,
    read_parquet,
    read_partitioned,
    run_table,
    write_parquet,
    write_partitioned,
    written_labels,
)
from recollect.io.table import Table, first_true

STAT = "stat.txt"
ID_FILES = {"entity": "entity2id.txt", "predicate": "relation2id.txt", "time": "time2id.txt"}

_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_LABEL_ID, _SIZES = "{label}\t{id}", "{entity}\t{predicate}\t{time}"
_UNESCAPES = {"\\\\": "\\", "\\t": "\t", "\\n": "\n", "\\r": "\r"}
_FORMULA_STARTS = ("=", "+", "-", "@", "'", "\uff1d", "\uff0b", "\uff0d", "\uff20")  # the last four are full-width
_ESCAPES = {ord(character): escape for escape, character in _UNESCAPES.items()}
_TRIPLE = "<urn:recollect:entity:{subject}> <urn:recollect:predicate:{predicate}> <urn:recollect:entity:{object}>"
_XSD = "http://www.w3.org/2001/XMLSchema#"
_XSD_TYPES = {
    **{"year": "gYear", "month": "gYearMonth", "day": "date", "ordinal": "integer"},  # other grains are plain text
    **{"value": "boolean", "weight": "float"},
}


@dataclass(frozen=True)
class Format:
    """How the facts of a graph are written into a folder and read from it with the metadata of its graph.json."""

    write: Callable[[EpisodicGraph, Path], None]
    read: Callable[[Path, Metadata], EpisodicGraph]
    extras: bool  # whether it can express values and weights


@dataclass(frozen=True)
class _TextFormat:
    """One text file per split, written and read by the template of a fact."""

    suffix: str
    cell: str  # regular expression that an escaped label matches
    template: Callable[[str, Sequence[str]], str]  # of a grain and the optional columns of a split
    escape: Callable[[str], str] = str
    unescape: Callable[[str], str] = str
    header: bool = False
    interval: str = "{start}/{end}"  # in the template of a graph of intervals, instead of {time}

    def write(self, graph: EpisodicGraph, folder: Path) -> None:
        """Write the facts of a graph by label."""
        self.write_splits(graph, folder, written_labels(graph, self.escape))

    def read(self, folder: Path, metadata: Metadata) -> EpisodicGraph:
        """Read what `write` wrote."""
        return graph_from_labels(self.read_splits(folder, metadata), metadata, self.unescape)

    def write_splits(self, graph: EpisodicGraph, folder: Path, written: Mapping[str, pl.Series]) -> None:
        """Write one file per split; `written` has the text of every id, by kind."""
        for split, runs in split_runs(graph).items():
            template = self._template(graph.times.grain, extras_of(runs.first), has_runs(graph))
            weight = pl.col(pl.Float32).cast(pl.String).str.to_uppercase()  # 1E+16 and INF, as in XML Schema
            frame = run_table(runs, written, has_runs(graph)).with_columns(weight, pl.col(pl.String).fill_null(""))
            _write_lines(folder / (split + self.suffix), template, frame, self.header)

    def read_splits(self, folder: Path, metadata: Metadata) -> dict[str, Table]:
        """Read the cells of every split."""
        tables = {}
        for split, expected in metadata["splits"].items():
            extras = [extra for extra in EXTRAS if expected[extra]]
            template = self._template(metadata["times"]["grain"], extras, metadata.get(RUNS, False))
            tables[split] = _read_lines(folder / (split + self.suffix), template, self.cell, self.header)
        return tables

    def _template(self, grain: str, extras: Sequence[str], is_runs: bool) -> str:
        """Return the template of a fact, or of an interval."""
        if not is_runs:
            return self.template(grain, extras)
        return self.template(RUNS, extras).replace("{time}", self.interval)


def _write_lines(file: Path, template: str, frame: pl.DataFrame, header: bool = False) -> None:
    """Write the template once per row of a frame, filled in with its columns."""
    rows = frame.select(pl.format(_PLACEHOLDER.sub("{}", template) + "\n", *_PLACEHOLDER.findall(template))).to_series()
    first = [_PLACEHOLDER.sub(r"\1", template) + "\n"] if header else []
    file.write_bytes("".join([*first, *rows]).encode())


def _read_lines(file: Path, template: str, cell: str, header: bool = False) -> Table:
    """Read the cells of the rows that `_write_lines` wrote; a row has as many lines as the template."""
    lines = _split_lines(file)
    first_line = 1
    if header:
        names = _PLACEHOLDER.sub(r"\1", template)
        if lines[:1] != [names]:
            raise UserError(f"{file}, line 1: wanted the header {names!r}; {RESTORE}")
        lines, first_line = lines[1:], 2
    height = template.count("\n") + 1
    rows = pl.Series(["\n".join(lines[i : i + height]) for i in range(0, len(lines), height)], dtype=pl.String)
    fixed_parts = _PLACEHOLDER.sub("{}", template).split("{}")
    pattern = f"({cell})".join(map(pl.escape_regex, fixed_parts))
    cells = rows.str.extract_groups(f"^{pattern}$").struct.unnest()
    table = Table(
        pl.DataFrame(dict(zip(_PLACEHOLDER.findall(template), cells, strict=True))),
        lambda row: f"{file}, line {first_line + (row - 1) * height}",
        str(file),
    )
    unmatched = cells["1"].is_null()
    if unmatched.any():
        row = first_true(unmatched)
        raise UserError(f"{table.where(row + 1)}: cannot read {rows[row][:99]!r} as {template!r}; {RESTORE}")
    return table


def _split_lines(file: Path) -> list[str]:
    """Return the lines of a UTF-8 file, separated by \\n only."""
    content = file.read_bytes()
    try:
        lines = content.decode().split("\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UserError(f"{file}, line {line}: not UTF-8 text; {RESTORE}") from error
    return lines if lines[-1] else lines[:-1]


def _escape(label: str) -> str:
    """Escape tabs, line ends and backslashes by backslashes."""
    return label.translate(_ESCAPES)


def _unescape(cell: str) -> str:
    """Invert `_escape`."""
    return re.sub(r"\\[\\tnr]", lambda match: _UNESCAPES[match[0]], cell)


def _escape_formula(label: str) -> str:
    """Escape as in TSV; an apostrophe goes before what a spreadsheet would calculate, and before an apostrophe.

    >>> [_escape_formula(label) for label in ("=1+2", "@a", "'tis", "a=b", "Ann")]
    ["'=1+2", "'@a", "''tis", 'a=b', 'Ann']
    """
    return ("'" if label.startswith(_FORMULA_STARTS) else "") + _escape(label)


def _unescape_formula(cell: str) -> str:
    """Invert `_escape_formula`."""
    return _unescape(cell.removeprefix("'"))


def _percent_encode(label: str) -> str:
    """Encode a label so that it can be part of an IRI."""
    return quote(label, safe="")


def _tabbed(grain: str, extras: Sequence[str]) -> str:
    """Return the template of TSV and id files."""
    return "\t".join(f"{{{name}}}" for name in (*SLOT_NAMES.values(), *extras))


def _quad(grain: str, extras: Sequence[str]) -> str:
    """Return the template of an N-Quad: the time is the name of the graph."""
    return f"{_TRIPLE} <urn:recollect:time:{{time}}> ."


def _star(grain: str, extras: Sequence[str]) -> str:
    """Return the template of N-Triples-star: a statement of the time, then one per optional column about the first."""
    time_type = f"^^<{_XSD}{_XSD_TYPES[grain]}>" if grain in _XSD_TYPES else ""
    fact = f'<< {_TRIPLE} >> <urn:recollect:at> "{{time}}"{time_type}'
    lines = [fact]
    for extra in extras:
        lines.append(f'<< {fact} >> <urn:recollect:{extra}> "{{{extra}}}"^^<{_XSD}{_XSD_TYPES[extra]}>')
    return "\n".join(f"{line} ." for line in lines)


def _write_ids(graph: EpisodicGraph, folder: Path) -> None:
    """Write a file of label and id per kind, a file of sizes, and the facts of every split by id."""
    labels = written_labels(graph, _escape)
    ids = {kind: pl.int_range(len(column), eager=True).cast(pl.String) for kind, column in labels.items()}
    ids[END] = pl.int_range(1, len(labels[END]) + 1, eager=True).cast(pl.String)
    for kind, name in ID_FILES.items():
        _write_lines(folder / name, _LABEL_ID, pl.DataFrame({"label": labels[kind], "id": ids[kind]}))
    _write_lines(folder / STAT, _SIZES, pl.DataFrame([graph.sizes]))
    _IDS.write_splits(graph, folder, ids)


def _read_ids(folder: Path, metadata: Metadata) -> EpisodicGraph:
    """Read what `_write_ids` wrote."""
    sizes = _read_lines(folder / STAT, _SIZES, _IDS.cell).frame
    labels = {}
    for kind, name in ID_FILES.items():
        table = _read_lines(folder / name, _LABEL_ID, _TSV.cell)
        height = table.frame.height
        if sizes[kind].to_list() != [str(height)]:
            raise UserError(f"{table.name}: {height:,} labels, which {STAT} tells otherwise; {RESTORE}")
        wrong_id = table.frame["id"] != pl.int_range(height, eager=True).cast(pl.String)
        if wrong_id.any():
            row = first_true(wrong_id)
            raise UserError(f"{table.where(row + 1)}: wanted the id {row}; {RESTORE}")
        labels[kind] = [_unescape(cell) for cell in table.frame["label"]]
    if labels["time"] != TimeAxis(**metadata["times"]).labels:
        raise UserError(f"{folder / ID_FILES['time']}: the times are not those that {GRAPH} tells; {RESTORE}")
    vocabularies = {kind: Vocabulary(kind, tuple(labels[kind])) for kind in ("entity", "predicate")}
    ids = {kind: {str(i): i for i in range(len(column))} for kind, column in labels.items()}
    ids[END] = {str(i + 1): i for i in range(len(labels["time"]))}
    return graph_from_cells(_IDS.read_splits(folder, metadata), metadata, vocabularies, ids)


_TABBED_INTERVAL = "{start}\t{end}"
_TSV = _TextFormat(".tsv", r"[^\t]*", _tabbed, _escape, _unescape, header=True, interval=_TABBED_INTERVAL)
_SPREADSHEET = replace(_TSV, escape=_escape_formula, unescape=_unescape_formula)
_NQUADS = _TextFormat(".nq", r"[A-Za-z0-9_.~%-]*", _quad, _percent_encode, unquote)
_STAR = _TextFormat(".nt", r"[A-Za-z0-9_.~%+-]*", _star, _percent_encode, unquote)
_IDS = _TextFormat(".txt", r"[0-9]*", _tabbed, interval=_TABBED_INTERVAL)
FORMATS: dict[str, Format] = {
    "parquet": Format(write_parquet, read_parquet, extras=True),
    "partitioned": Format(write_partitioned, read_partitioned, extras=True),
    "tsv": Format(_TSV.write, _TSV.read, extras=True),
    "spreadsheet": Format(_SPREADSHEET.write, _SPREADSHEET.read, extras=True),
    "nquads": Format(_NQUADS.write, _NQUADS.read, extras=False),
    "rdf-star": Format(_STAR.write, _STAR.read, extras=True),
    "ids": Format(_write_ids, _read_ids, extras=False),
}
