"""Read tables of labelled facts as an episodic graph: CSV, TSV, Parquet, polars, pandas, Arrow.

Columns are found by name or given by the caller. Every error names the file and the line.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, TypeAlias

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from recollect.errors import UserError, check_process
from recollect.graph.facts import SPLITS, EpisodicGraph
from recollect.graph.times import GRAINS
from recollect.io.assembly import assemble
from recollect.io.atomic import read_folder
from recollect.io.columns import TRIPLE, WIDTHS, Given, check_roles, find_columns, headerless_names, is_header
from recollect.io.exchange import GRAPH, is_export, read_graph
from recollect.io.id_folders import IdTables, has_id_files, read_id_tables
from recollect.io.merging import check_memory
from recollect.io.table import Table, first_true
from recollect.io.times.dates import check_dates

Source: TypeAlias = Any  # a path, or a table: polars, pandas, Arrow, or any object with Arrow's C stream

_SAMPLE_BYTES = 1 << 16  # read to guess encoding and delimiter
_SAMPLE_LINES = 12
_ROW_BYTES = 400  # peak memory per row of a Parquet file, which may be packed into less than a bit
MAX_COLUMNS = 10_000  # of a text file: a table of facts has a few, and parsers need memory for each
_BLOCK_BYTES = 1 << 22  # parsed at a time; a row is shorter
_MAX_LINE = 1 << 22  # characters of a line, where lines are read one by one
_LINE_END = re.compile("\r\n|\n|\r")
_BYTE_LINE_END = re.compile(b"\r\n|\n|\r")
_SPLIT_NAMES = {"train": ("train",), "valid": ("valid", "validation", "val", "dev"), "test": ("test",)}
_SUFFIXES = (".csv", ".tsv", ".tab", ".txt", ".parquet")


def read(
    source: Source,
    *,
    columns: Mapping[str, str | int] | None = None,
    grain: str | None = None,
    dates: str | None = None,
    static: bool = False,
    inclusive_end: bool = False,
    allow_empty: bool = False,
    name: str | None = None,
) -> EpisodicGraph:
    """Read an episodic graph from a file, a folder with train/valid/test files, a table, or a dict of those by split.

    A folder that holds `graph.json` is an exported graph and takes no other options. One with facts by id,
    `entity2id.txt` and `relation2id.txt` gets the names of all ids, also of those that only `stat.txt` counts.

    Columns named subject, predicate, object and time (or start and end, or a usual synonym) are found by name;
    `columns={"subject": "who"}` gives one by name or, in a file without a header, by position.
    `grain` (year, quarter, month, week, day, hour, ordinal) defaults to the coarsest that loses nothing.
    `dates` says how dates are written where that is unclear: dmy, mdy, ymd, unix, unix-ms, excel or a strftime format.
    A fact with start and end holds in [start, end), or in [start, end] with `inclusive_end=True`. An unknown start or
    end is the first or last plausible time of the table. `static=True` reads triples without time. An empty subject,
    predicate or object is an error, or with `allow_empty=True` the label "".

    >>> graph = read(pl.DataFrame({"head": ["a", "b"], "relation": "knows", "tail": "c", "year": [1999, 2001]}))
    >>> len(graph.facts), graph.times.labels
    (2, ['1999', '2000', '2001'])
    """
    check_process()
    if grain is not None and grain not in GRAINS:
        raise UserError(f"unknown grain {grain!r}; choose one of {', '.join(GRAINS)}")
    check_dates(dates)
    given = columns or {}
    check_roles(given)

    def read_source(source: Source) -> EpisodicGraph:
        if isinstance(source, Path) and source.is_dir() and is_export(source):
            if given or grain or dates or static or inclusive_end or allow_empty or name:
                raise UserError(f"{source}: {GRAPH} tells how to read this exported graph; leave out all other options")
            return read_graph(source)
        found = None if given else _read_id_folder(source, static)
        tables = _read_splits(source, given, static) if found is None else found.tables
        for table in tables.values():
            _refuse_missing(table, allow_empty)
        return assemble(
            tables,
            grain=grain,
            dates=dates,
            inclusive_end=inclusive_end,
            name=name or _default_name(source),
            labels={} if found is None else found.labels,
        )

    try:
        return read_folder(Path(source), read_source) if isinstance(source, str | Path) else read_source(source)
    except OSError as error:
        raise UserError(f"{error.filename or source}: cannot be read ({error.strerror or error})") from error


def _default_name(source: Source) -> str:
    """Return the name of a graph that the caller did not name."""
    if not isinstance(source, Path):
        return "table"
    return source.name if source.is_dir() else source.stem


def _read_id_folder(source: Source, static: bool) -> IdTables | None:
    """Read a folder of numbered facts that names the ids; None if it is none."""
    if not isinstance(source, Path) or not source.is_dir():
        return None
    files = _split_files(source)
    if not has_id_files(source, files["train"]):
        return None
    return read_id_tables(source, {split: files[split] for split in SPLITS if split in files}, static=static)


def _read_splits(source: Source, given: Given, static: bool) -> dict[str, Table]:
    """Read the table of every split, in the order of SPLITS. A single table is the train split."""
    if isinstance(source, Path) and source.is_dir():
        source = _split_files(source)
    sources = source if isinstance(source, Mapping) else {"train": source}
    unknown = [split for split in sources if split not in SPLITS]
    if unknown:
        raise UserError(f"unknown split {unknown[0]!r}; a graph has {', '.join(SPLITS)}")
    tables = {}
    for split in SPLITS:
        if split in sources:
            name = "the table" if len(sources) == 1 else f"the {split} table"
            tables[split] = _read_table(sources[split], given, static, name)
    return tables


def _split_files(folder: Path) -> dict[str, Path]:
    """Return the train, valid and test files of a folder, by a word in their names."""
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        if path.suffix.lower() not in _SUFFIXES:
            continue
        words = set(re.split("[-._]", path.stem.lower()))
        for split, names in _SPLIT_NAMES.items():
            if words.isdisjoint(names):
                continue
            if split in found:
                raise UserError(f"{folder} has two {split} files, {found[split].name} and {path.name}; keep one")
            found[split] = path
    if "train" not in found:
        raise UserError(f"{folder}: no train file here; wanted train.txt, .tsv, .csv or .parquet, and valid, test")
    return found


def _read_table(source: Source, given: Given, static: bool, name: str) -> Table:
    """Read one file or in-memory table; `name` is for error messages about the latter."""
    if isinstance(source, str | Path):
        return _read_file(Path(source), given, static)
    if isinstance(source, pl.LazyFrame):
        try:
            source = source.collect()
        except (pl.exceptions.PolarsError, OSError) as error:
            raise UserError(f"{name} cannot be read ({_first_line(error)})") from error
    if not hasattr(source, "__arrow_c_stream__"):
        kind = type(source).__name__
        raise UserError(f"cannot read a {kind}; give a path, or a polars, pandas or Arrow table")
    try:
        table = pa.table(source)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise UserError(
            f"{name} cannot be read ({_first_line(error)}); give one type a column and distinct names"
        ) from error
    positions = find_columns(table.column_names, given, static, name)
    return _select(table, positions, name, lambda row: f"row {row} of {name}")


def _read_file(path: Path, given: Given, static: bool) -> Table:
    """Read a Parquet file or a delimited text file."""
    if not path.exists():
        raise UserError(
            f"{path}: no such file; give a CSV, TSV or Parquet file, or a folder with train/valid/test files"
        )
    if not path.is_file():
        raise UserError(f"{path}: not a file; give a CSV, TSV or Parquet file")
    if path.stat().st_size == 0:
        raise UserError(f"{path}: the file is empty; wanted rows of {WIDTHS[4]}")
    if path.suffix.lower() == ".parquet":
        return _read_parquet(path, given, static)
    return _read_text(_DelimitedText.sniff(path), given, static)


def _read_parquet(path: Path, given: Given, static: bool) -> Table:
    """Read the columns of a Parquet file that have a role."""
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
            positions = find_columns(names, given, static, str(path))
            chosen = {role: names[position] for role, position in positions.items()}
            for name in chosen.values():
                if names.count(name) > 1:
                    raise UserError(f"{path}: two columns called {name!r}; rename one")
            check_memory(file.metadata.num_rows, _ROW_BYTES, f"{path}: the number of rows is")
            table = file.read(columns=list(chosen.values()))
    except (pa.ArrowException, OSError, UnicodeError) as error:  # UnicodeError: the name of a column
        raise UserError(f"{path}: not a readable Parquet file ({_first_line(error)})") from error
    found = {role: table.column_names.index(name) for role, name in chosen.items()}
    return _select(table, found, str(path), lambda row: f"{path}, row {row}")


@dataclass(frozen=True)
class _DelimitedText:
    """A delimited text file, its encoding and delimiter. Tab-separated text has no quoting, as in published graphs."""

    path: Path
    encoding: str
    delimiter: str

    @classmethod
    def sniff(cls, path: Path) -> _DelimitedText:
        """Guess encoding and delimiter from the first lines of a file."""
        with path.open("rb") as file:
            head = file.read(_SAMPLE_BYTES)
        encoding = "utf-16" if head[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
        lines = [line for line in _LINE_END.split(head.decode(encoding, "replace"))[:_SAMPLE_LINES] if line]
        if len(head) == _SAMPLE_BYTES and len(lines) > 1:
            lines.pop()  # it may be cut off
        return cls(path, encoding, _guess_delimiter(lines, path.suffix))

    def records(self) -> Iterator[tuple[int, list[str]]]:
        """Yield (line number, fields) of every row. Slow: for the first row and to find the line of a bad one."""
        line = 1
        try:
            with self.path.open(encoding=self.encoding, newline="") as file:
                reader = csv.reader(
                    self._lines(file),
                    delimiter=self.delimiter,
                    quoting=csv.QUOTE_NONE if self.delimiter == "\t" else csv.QUOTE_MINIMAL,
                )
                for fields in reader:
                    if fields:
                        yield line, fields
                    line = reader.line_num + 1
        except UnicodeError as error:
            bad_line = self._first_undecodable_line()
            raise UserError(f"{self.path}, line {bad_line}: not UTF-8 text; save the file as UTF-8") from error
        except csv.Error as error:
            raise UserError(f"{self.path}, line {line}: cannot be read ({error}); wanted delimited text") from error

    def _lines(self, file: IO[str]) -> Iterator[str]:
        """Yield the lines of a file, and refuse one that is too long before it is read as a whole."""
        number = 1
        while line := file.readline(_MAX_LINE):
            if len(line) == _MAX_LINE:
                raise UserError(
                    f"{self.path}, line {number}: more than {_MAX_LINE:,} characters; wanted one fact per line"
                )
            yield line
            number += 1

    def _first_undecodable_line(self) -> int:
        if self.encoding == "utf-16":
            return 1
        for line, raw in enumerate(_BYTE_LINE_END.split(self.path.read_bytes()), start=1):
            try:
                raw.decode("utf-8")
            except UnicodeError:
                return line
        return 1

    def where(self, row: int, header: bool) -> str:
        """Return the file and line of a data row, counted from 1."""
        for count, (line, _) in enumerate(self.records(), start=0 if header else 1):
            if count == row:
                return f"{self.path}, line {line}"
        return f"{self.path}, row {row}"


def _guess_delimiter(lines: list[str], suffix: str) -> str:
    """Return the delimiter that splits all lines into equally many columns: best 4 or 5, then 3, then more."""
    delimiters = ",\t;|" if suffix.lower() == ".csv" else "\t,;|"
    widths = {}
    for delimiter in delimiters:
        found = {line.count(delimiter) + 1 for line in lines}
        if len(found) == 1 and max(found) >= 3:
            widths[delimiter] = max(found)
    for preferred in ((4, 5), (3,)):
        for delimiter, width in widths.items():
            if width in preferred:
                return delimiter
    in_first_line = [delimiter for delimiter in delimiters if lines and delimiter in lines[0]]
    return [*widths, *in_first_line, delimiters[0]][0]


def _read_text(text: _DelimitedText, given: Given, static: bool) -> Table:
    """Read all columns of a text file as strings and select those that have a role."""
    first_line, first = next(text.records(), (1, []))
    if not first:
        raise UserError(f"{text.path}: the file is empty; wanted rows of {WIDTHS[4]}")
    where = f"{text.path}, line {first_line}"
    if len(first) > MAX_COLUMNS:
        raise UserError(f"{where}: {len(first):,} columns; wanted at most {MAX_COLUMNS:,}, one fact per line")
    header = is_header(first, given, static)
    names = first if header else headerless_names(len(first), given, static, where)
    positions = find_columns(names, given, static, where)
    try:
        table = _parse_columns(text, sorted(set(positions.values())))
    except (pa.ArrowException, UnicodeError, OSError) as error:
        _check_widths(text, len(first))
        raise UserError(f"{text.path}: cannot be read as delimited text ({_first_line(error)})") from error
    if header:
        table = table.slice(1)
    found = {role: table.column_names.index(f"f{position}") for role, position in positions.items()}
    selected = _select(table, found, str(text.path), lambda row: text.where(row, header))
    return replace(selected, columns={role: names[position] for role, position in positions.items()})


def _parse_columns(text: _DelimitedText, positions: list[int]) -> pa.Table:
    """Return the columns at some positions as strings, named f0, f1, … by position; a header is the first row."""
    names = [f"f{position}" for position in positions]
    has_quotes = text.delimiter != "\t"
    with text.path.open("rb") as file:  # given a path, Arrow would unpack what ends in .gz
        return pyarrow.csv.read_csv(
            file,
            pyarrow.csv.ReadOptions(
                autogenerate_column_names=True, encoding=text.encoding.removesuffix("-sig"), block_size=_BLOCK_BYTES
            ),
            pyarrow.csv.ParseOptions(
                delimiter=text.delimiter, quote_char='"' if has_quotes else False, newlines_in_values=has_quotes
            ),
            pyarrow.csv.ConvertOptions(
                include_columns=names, column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False
            ),
        )


def _check_widths(text: _DelimitedText, width: int) -> None:
    """Raise UserError for the first row that has another number of columns than `width`."""
    for line, fields in text.records():
        if len(fields) != width:
            raise UserError(
                f"{text.path}, line {line}: {len(fields)} columns where the first row has {width}; correct it"
            )


def _select(table: pa.Table, positions: Mapping[str, int], name: str, where: Callable[[int], str]) -> Table:
    """Return the columns at the given positions as strings, named by role; `where` locates a row, counted from 1."""
    if table.num_rows == 0:
        raise UserError(f"{name}: no rows; wanted rows of {', '.join(positions)}")
    columns: dict[str, pl.Series] = {}
    for role, position in positions.items():
        try:
            columns[role] = pl.Series(pl.from_arrow(_as_strings(table.column(position))))
        except (pa.ArrowException, ValueError) as error:
            given = table.schema.field(position)
            raise UserError(
                f"{name}: column {given.name!r} holds {given.type}; wanted text, numbers or dates"
            ) from error
    names = {role: table.column_names[position] for role, position in positions.items()}
    return Table(pl.DataFrame(columns), where, name, names)


def _refuse_missing(table: Table, allow_empty: bool) -> None:
    """Raise UserError for the first subject, predicate or object that is null, or empty unless `allow_empty`."""
    for role in TRIPLE:
        labels = table.frame[role]
        if labels.null_count():
            row = first_true(labels.is_null()) + 1
            raise UserError(f"{table.where(row)}: no {role}; fill it in or drop the row")
        is_empty = labels == ""
        if not allow_empty and is_empty.any():
            row = first_true(is_empty) + 1
            raise UserError(
                f"{table.where(row)}: the {role} is empty; fill it in or drop the row, or keep empty cells as labels "
                "with allow_empty=True (recollect data export --allow-empty)"
            )


def _as_strings(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Cast a column of text, numbers or dates to text. NaN becomes null, and a column of whole floats has no `.0`."""
    if pa.types.is_duration(column.type) or isinstance(column.type, pa.BaseExtensionType):
        raise ValueError("neither text, numbers nor dates")
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), None, column)
        is_whole = pc.all(pc.equal(column, pc.floor(column))).as_py()  # None: no values
        if is_whole is not False:
            column = column.cast(pa.int64())
    return column.cast(pa.large_string())


def _first_line(error: BaseException) -> str:
    """Return the first line of an error's message."""
    return next(iter(str(error).splitlines()), type(error).__name__).strip(". ")
