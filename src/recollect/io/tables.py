"""Tables of labelled facts (CSV, TSV, Parquet, polars, pandas, Arrow) as an episodic graph.

Columns are found by name or told. Every complaint names the file and the line.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from recollect.errors import UserError
from recollect.graph.facts import SPLITS, EpisodicGraph
from recollect.graph.times import GRAINS, natural_grain, time_bin
from recollect.io.assembly import TIME_ROLES, Table, assemble, first_true
from recollect.io.atomic import existing_folder
from recollect.io.exchange import GRAPH, is_export, read_graph
from recollect.io.formats import EXTRAS

Source: TypeAlias = Any  # a path, or a table: polars, pandas, Arrow, or whatever speaks Arrow's C stream

SYNONYMS: dict[str, tuple[str, ...]] = {
    "subject": ("subject", "s", "head", "h", "source", "source_name", "actor1", "from"),
    "predicate": ("predicate", "p", "relation", "rel", "r", "event", "event_text", "action"),
    "object": ("object", "o", "tail", "target", "target_name", "actor2", "to"),
    "time": (
        "time",
        "t",
        "timestamp",
        "date",
        "datetime",
        "event_date",
        "when",
        "hour",
        "day",
        "week",
        "month",
        "year",
    ),
    "start": ("start", "begin", "since", "start_time", "start_date", "valid_from"),
    "end": ("end", "until", "stop", "end_time", "end_date", "valid_to"),
}
WIDTHS = {3: "subject predicate object", 4: "subject predicate object time", 5: "subject predicate object start end"}
_LINE_END, _BYTE_LINE_END = re.compile("\r\n|\n|\r"), re.compile(b"\r\n|\n|\r")
_SPLIT_NAMES = {"train": ("train",), "valid": ("valid", "validation", "val", "dev"), "test": ("test",)}
_SUFFIXES = (".csv", ".tsv", ".tab", ".txt", ".parquet")


def read(
    source: Source,
    *,
    columns: Mapping[str, str | int] | None = None,
    grain: str | None = None,
    static: bool = False,
    inclusive_end: bool = False,
    name: str | None = None,
) -> EpisodicGraph:
    """An episodic graph from a file, a folder with train/valid/test files, a table, or a dict of those by split.

    A folder that holds `graph.json` is an exported graph and is read as that, without other options.

    Columns named subject, predicate, object and time (or start and end, or a usual synonym) are found;
    `columns={"subject": "who"}` tells one, by name or, in a file without a header, by position.
    `grain` (year, month, week, day, hour, ordinal) defaults to the finest that any time tells; coarser
    times are then refused.
    A fact with start and end holds in [start, end); `inclusive_end=True` lets it hold in its end too; an
    unknown start or end reaches to the edge of the record. `static=True` reads triples without time.

    >>> graph = read(pl.DataFrame({"head": ["a", "b"], "relation": "knows", "tail": "c", "year": [1999, 2001]}))
    >>> len(graph.facts), graph.times.labels
    (2, ['1999', '2000', '2001'])
    """
    if grain is not None and grain not in GRAINS:
        raise UserError(f"unknown grain {grain!r}; choose one of {', '.join(GRAINS)}")
    told = _check_told(columns or {})
    try:
        return _read(source, told, grain, static, inclusive_end, name)
    except OSError as error:
        raise UserError(f"{error.filename or source}: cannot be read ({error.strerror or error})") from error


def _read(
    source: Source,
    told: Mapping[str, str | int],
    grain: str | None,
    static: bool,
    inclusive_end: bool,
    name: str | None,
) -> EpisodicGraph:
    if isinstance(source, str | Path):
        source = existing_folder(Path(source))
    if isinstance(source, Path) and source.is_dir():
        if is_export(Path(source)):
            if told or grain or static or inclusive_end or name:
                raise UserError(f"{source}: {GRAPH} tells how to read this exported graph; leave out all other options")
            return read_graph(Path(source))
        name = name or Path(source).name
        source = _split_files(Path(source))
    parts = source if isinstance(source, Mapping) else {"train": source}
    if unknown := [split for split in parts if split not in SPLITS]:
        raise UserError(f"unknown split {unknown[0]!r}; a graph has {', '.join(SPLITS)}")
    if name is None:
        name = Path(source).stem if isinstance(source, str | Path) else "table"
    single = len(parts) == 1
    tables = {
        split: _load(parts[split], told, static, "the table" if single else f"the {split} table")
        for split in SPLITS
        if split in parts
    }
    return assemble(tables, grain=grain, inclusive_end=inclusive_end, name=name)


def _check_told(columns: Mapping[str, str | int]) -> Mapping[str, str | int]:
    for role in columns:
        if role not in (*SYNONYMS, *EXTRAS):
            raise UserError(f"unknown column role {role!r}; choose one of {', '.join((*SYNONYMS, *EXTRAS))}")
    return columns


def _split_files(folder: Path) -> dict[str, Path]:
    """The train, valid and test files of a folder, known by a word in their names."""
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        words = path.stem.lower().replace("-", "_").replace(".", "_").split("_")
        for split, names in _SPLIT_NAMES.items():
            if set(words) & set(names) and path.suffix.lower() in _SUFFIXES:
                if split in found:
                    raise UserError(f"{folder} has two {split} files, {found[split].name} and {path.name}; keep one")
                found[split] = path
    if "train" not in found:
        raise UserError(f"{folder}: no train file here; wanted train.txt, .tsv, .csv or .parquet, and valid, test")
    return found


def _load(source: Source, told: Mapping[str, str | int], static: bool, name: str) -> Table:
    if isinstance(source, str | Path):
        return _load_file(Path(source), told, static)
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
    return _typed(table, told, static, name, lambda row: f"row {row} of {name}")


def _load_file(path: Path, told: Mapping[str, str | int], static: bool) -> Table:
    if not path.exists():
        raise UserError(
            f"{path}: no such file; give a CSV, TSV or Parquet file, or a folder with train/valid/test files"
        )
    if not path.is_file():
        raise UserError(f"{path}: not a file; give a CSV, TSV or Parquet file")
    if path.stat().st_size == 0:
        raise UserError(f"{path}: the file is empty; wanted rows of {WIDTHS[4]}")
    if path.suffix.lower() == ".parquet":
        try:
            table = pyarrow.parquet.read_table(path)
        except (pa.ArrowException, OSError) as error:
            raise UserError(f"{path}: not a readable Parquet file ({_first_line(error)})") from error
        return _typed(table, told, static, str(path), lambda row: f"{path}, row {row}")
    return _load_text(_Text.sniff(path), told, static)


@dataclass(frozen=True)
class _Text:
    """A delimited text file and how it is written. Tab-separated text has no quoting, as published graphs use it."""

    path: Path
    encoding: str
    delimiter: str

    @classmethod
    def sniff(cls, path: Path) -> _Text:
        with path.open("rb") as file:
            head = file.read(1 << 16)
        encoding = "utf-16" if head[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
        lines = [line for line in _LINE_END.split(head.decode(encoding, "replace"))[:12] if line]
        lines = lines[:-1] if len(head) == 1 << 16 and len(lines) > 1 else lines  # the last may be cut
        likely = ",\t;|" if path.suffix.lower() == ".csv" else "\t,;|"
        marks = {mark: {line.count(mark) for line in lines} for mark in likely}
        even = [mark for mark in likely if len(marks[mark]) == 1 and max(marks[mark]) > 1]
        usual = sorted((mark for mark in even if max(marks[mark]) + 1 in WIDTHS), key=lambda mark: max(marks[mark]) < 3)
        present = [mark for mark in likely if lines and mark in lines[0]]
        return cls(path, encoding, (usual or even or present or [likely[0]])[0])

    def records(self) -> Iterator[tuple[int, list[str]]]:
        """(line, fields) of every row, one at a time: for the first row and for finding the line of a bad one."""
        try:
            with self.path.open(encoding=self.encoding, newline="") as file:
                reader = csv.reader(
                    file,
                    delimiter=self.delimiter,
                    quoting=csv.QUOTE_NONE if self.delimiter == "\t" else csv.QUOTE_MINIMAL,
                )
                line = 1
                for fields in reader:
                    if fields:
                        yield line, fields
                    line = reader.line_num + 1
        except UnicodeError as error:
            raise UserError(f"{self.path}, line {self._bad_line()}: not UTF-8 text; save the file as UTF-8") from error
        except csv.Error as error:
            raise UserError(f"{self.path}, line {line}: cannot be read ({error}); wanted delimited text") from error

    def _bad_line(self) -> int:
        """The first line that cannot be decoded."""
        if self.encoding == "utf-16":
            return 1
        for line, raw in enumerate(_BYTE_LINE_END.split(self.path.read_bytes()), start=1):
            try:
                raw.decode("utf-8")
            except UnicodeError:
                return line
        return 1

    def where(self, row: int, header: bool) -> str:
        """Where data row `row`, from 1, stands."""
        for count, (line, _) in enumerate(self.records(), start=0 if header else 1):
            if count == row:
                return f"{self.path}, line {line}"
        return f"{self.path}, row {row}"


def _load_text(text: _Text, told: Mapping[str, str | int], static: bool) -> Table:
    first_line, first = next(text.records(), (1, []))
    if not first:
        raise UserError(f"{text.path}: the file is empty; wanted rows of {WIDTHS[4]}")
    header = _is_header(first, told, static)
    options = {
        "read_options": pyarrow.csv.ReadOptions(
            autogenerate_column_names=not header, encoding=text.encoding.removesuffix("-sig"), block_size=1 << 24
        ),
        "parse_options": pyarrow.csv.ParseOptions(
            delimiter=text.delimiter,
            quote_char=False if text.delimiter == "\t" else '"',
            newlines_in_values=text.delimiter != "\t",
        ),
        "convert_options": pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(first if header else [f"f{i}" for i in range(len(first))], pa.string()),
            strings_can_be_null=False,
        ),
    }
    try:
        table = pyarrow.csv.read_csv(text.path, **options)
    except (pa.ArrowException, UnicodeError, OSError) as error:
        _explain_ragged(text, len(first))
        raise UserError(f"{text.path}: cannot be read as delimited text ({_first_line(error)})") from error
    names = first if header else _headerless_names(len(first), told, static, f"{text.path}, line {first_line}")
    if table.num_columns != len(names):
        raise UserError(f"{text.path}, line {first_line}: {table.num_columns} columns, but {len(names)} names for them")
    roles = _find_columns(names, told, static, f"{text.path}, line {first_line}")
    return _as_table(table, roles, str(text.path), lambda row: text.where(row, header))


def _typed(
    table: pa.Table, told: Mapping[str, str | int], static: bool, name: str, where: Callable[[int], str]
) -> Table:
    roles = _find_columns(table.column_names, told, static, name)
    return _as_table(table, roles, name, where)


def _as_table(table: pa.Table, roles: Mapping[str, int], name: str, where: Callable[[int], str]) -> Table:
    """The columns that play a role, as strings; rows are numbered from 1."""
    if table.num_rows == 0:
        raise UserError(f"{name}: no rows; wanted rows of {', '.join(roles)}")
    columns: dict[str, pl.Series] = {}
    for role, position in roles.items():
        try:
            columns[role] = pl.Series(pl.from_arrow(_as_strings(table.column(position))))
        except (pa.ArrowException, ValueError) as error:
            given = table.schema.field(position)
            raise UserError(
                f"{name}: column {given.name!r} holds {given.type}; wanted text, numbers or dates"
            ) from error
    frame = pl.DataFrame(columns)
    for role in ("subject", "predicate", "object"):
        if frame[role].null_count():
            row = first_true(frame[role].is_null()) + 1
            raise UserError(f"{where(row)}: no {role}; fill it in or drop the row")
    return Table(frame, where, name)


def _as_strings(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Any column of text, numbers or dates as text; NaN is a missing value, and 3.0 is 3."""
    if pa.types.is_duration(column.type) or isinstance(column.type, pa.BaseExtensionType):
        raise ValueError("neither text, numbers nor dates")
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), None, column)
        if pc.all(pc.equal(column, pc.floor(column))).as_py() is not False:
            column = column.cast(pa.int64())
    return column.cast(pa.large_string())


def _find_columns(names: list[str], told: Mapping[str, str | int], static: bool, where: str) -> dict[str, int]:
    """The position of every role's column."""
    found = {role: _told_position(names, role, column, where) for role, column in told.items()}
    folded = ["" if i in found.values() else _fold(name) for i, name in enumerate(names)]  # a column has one role
    for role, synonyms in SYNONYMS.items():
        match = [i for synonym in synonyms for i, name in enumerate(folded) if name == synonym]
        if role == "time" and len(match) > 1 and not {"time", "start"} & told.keys() and not static:
            have = " and ".join(repr(names[i]) for i in sorted(match))
            raise UserError(f"{where}: columns {have} all look like the time; tell one (--columns time=NAME)")
        if match and role not in found:
            found[role] = match[0]
    wanted = ["subject", "predicate", "object"]
    interval = {"start", "end"} & found.keys()
    if static:
        if "object" not in found and "t" in folded:  # h, r, t
            found["object"] = folded.index("t")
        dropped = set(TIME_ROLES)
    elif "time" in found and interval and "time" not in told and not interval & told.keys():
        both = names[found["time"]], names[found[max(interval)]]
        raise UserError(
            f"{where}: columns {both[0]!r} and {both[1]!r} both tell the time; "
            f"tell which with columns={{'time': {both[0]!r}}} (--columns time=…)"
        )
    elif "time" in found and ("time" in told or not interval):
        dropped = {"start", "end"}
    else:
        wanted.append("time" if not interval else "start")
        dropped = {"time"} if interval else set()
    found = {role: position for role, position in found.items() if role not in dropped}
    for role in wanted:
        if role not in found:
            have = ", ".join(map(repr, names))
            hint = "; a graph without time is read with static=True (--static)" if role == "time" else ""
            raise UserError(
                f"{where}: no column for the {role} among {have}; rename one or tell it with "
                f"columns={{{role!r}: …}} (--columns {role}=NAME){hint}"
            )
    return found


def _told_position(names: list[str], role: str, column: str | int, where: str) -> int:
    if isinstance(column, int):
        if not 0 <= column < len(names):
            raise UserError(
                f"{where}: there is no column {column} for the {role}; positions run from 0 to {len(names) - 1}"
            )
        return column
    if column not in names:
        raise UserError(f"{where}: no column {column!r} for the {role}; there are {', '.join(map(repr, names))}")
    return names.index(column)


def _is_header(first: list[str], told: Mapping[str, str | int], static: bool) -> bool:
    """Whether the first row names columns rather than being the first fact."""
    folded = [_fold(cell) for cell in first]
    named = [role for role in ("subject", "predicate", "object") if set(folded) & set(SYNONYMS[role])]
    if len(named) == 3 or (static and folded == ["h", "r", "t"]):
        return True
    if any(isinstance(column, int) for column in told.values()):
        return False
    if told and all(column in first for column in told.values()):
        return True
    times = first[3:5] if len(first) in (4, 5) and not static else []
    if any(time_bin(cell, natural_grain([cell])) is not None for cell in times):
        return False
    return bool(set(folded) & {word for synonyms in SYNONYMS.values() for word in synonyms if len(word) > 1})


def _headerless_names(width: int, told: Mapping[str, str | int], static: bool, where: str) -> list[str]:
    if any(isinstance(column, int) for column in told.values()):
        return [f"column {i}" for i in range(width)]
    if width not in WIDTHS or (width == 3 and not static):
        raise UserError(
            f"{where}: {width} columns without a header; wanted {WIDTHS[4]}, or tell their positions with "
            "columns={'subject': 0, …} (--columns subject=0,…); triples without time need static=True (--static)"
        )
    return WIDTHS[width].split()


def _explain_ragged(text: _Text, width: int) -> None:
    """Raise for the first row of another width than the first one's."""
    for line, fields in text.records():
        if len(fields) != width:
            raise UserError(
                f"{text.path}, line {line}: {len(fields)} columns where the first row has {width}; correct it"
            )


def _fold(name: str) -> str:
    return name.strip().casefold().replace(" ", "_").replace("-", "_")


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__).strip(". ")
