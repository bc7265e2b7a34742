"""Open files of tables: find out what they hold, unpack them, and read Parquet and Excel."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet

from recollect.errors import UserError, import_extra
from recollect.io.label_tables import GRAPH
from recollect.io.merging import check_memory
from recollect.io.table import Table
from recollect.io.tables.columns import WIDTHS, Cells, Given
from recollect.io.tables.delimited import open_text
from recollect.io.tables.packed import check_sheet_sizes, packing, standard_input, unpacked
from recollect.io.tables.rows import ROW_BYTES, Rows, arrow_rows, first_line, select_roles, text_column

KINDS = {
    **dict.fromkeys((".csv", ".tsv", ".tab", ".txt"), "text"),
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), "json"),
    **dict.fromkeys((".db", ".sqlite", ".sqlite3"), "sqlite"),
    **{".parquet": "parquet", ".pq": "parquet", ".xlsx": "excel", ".xlsm": "excel", ".duckdb": "duckdb"},
}
SUFFIXES = frozenset((*KINDS, ".gz", ".bz2", ".xz", ".zst", ".zip"))
_FILES = "a CSV, TSV, Parquet, JSON, Excel, SQLite or DuckDB file"
_HEAD_BYTES = 4096


def is_address(source: str | Path) -> bool:
    """Return whether a source is standard input, a table of a database (FILE::TABLE) or a URL, and no path."""
    text = str(source)
    return text == "-" or ("::" in text and not Path(text).exists()) or "://" in text


def table_files(folder: Path) -> list[Path]:
    """Return the files of a folder that hold tables, sorted by name."""
    paths = [path for path in sorted(folder.iterdir()) if path.suffix.lower() in SUFFIXES and path.is_file()]
    found = [path for path in paths if path.name != GRAPH]
    if not found:
        raise UserError(
            f"{folder}: no train file here, nor another table; wanted {_FILES}, or train, valid and test files"
        )
    return found


def read_file(source: str | Path, given: Given, static: bool, temporary: ExitStack) -> Table:
    """Read one file, standard input, or a table of a database; unpacked files stay until `temporary` is closed."""
    text = str(source)
    if text == "-":
        path = temporary.enter_context(standard_input())
        return _read(path, "standard input", "", None, given, static, temporary)
    if "://" in text:
        from recollect.io.tables.databases import url_rows

        return select_roles(url_rows(text), given, static)
    file, inner = (text, None) if not is_address(source) else tuple(text.rsplit("::", 1))
    path = Path(file)
    if not path.exists():
        raise UserError(f"{path}: no such file; give {_FILES}, or a folder of such files")
    if not path.is_file():
        raise UserError(f"{path}: not a file; give {_FILES}")
    if path.stat().st_size == 0:
        raise UserError(f"{path}: the file is empty; wanted rows of {WIDTHS[4]}")
    return _read(path, text, path.suffix.lower(), inner, given, static, temporary)


def _read(
    path: Path, name: str, suffix: str, inner: str | None, given: Given, static: bool, temporary: ExitStack
) -> Table:
    """Read an existing file, packed or not; `inner` is a table or sheet in it."""
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    kind = _kind(head, suffix)
    if kind != "excel" and (how := packing(head)):
        content, inside = temporary.enter_context(unpacked(path, how, name))
        suffix = inside.lower() or Path(Path(name).stem).suffix.lower()
        return _read(content, name, suffix, inner, given, static, temporary)
    return select_roles(_open(path, name, suffix, kind, inner, given, static), given, static)


def _open(path: Path, name: str, suffix: str, kind: str, inner: str | None, given: Given, static: bool) -> Rows:
    """Open a file of a known kind."""
    if inner is not None and kind not in ("excel", "sqlite", "duckdb"):
        raise UserError(f"{name}: {path.name} has no tables inside; leave out ::{inner}")
    if kind == "text":
        return open_text(path, name, suffix, given, static)
    if kind == "json":
        from recollect.io.tables.records import open_json

        return open_json(path, name)
    if kind in ("sqlite", "duckdb"):
        from recollect.io.tables import databases

        return (databases.sqlite_rows if kind == "sqlite" else databases.duckdb_rows)(path, name, inner)
    return open_excel(path, name, inner) if kind == "excel" else open_parquet(path, name)


def _kind(head: bytes, suffix: str) -> str:
    """Return the kind of a file by its first bytes, or else by its name."""
    if head.startswith(b"SQLite format 3\0"):
        return "sqlite"
    if head[8:12] == b"DUCK":
        return "duckdb"
    if suffix in (".xlsx", ".xlsm") or (
        head.startswith(b"PK\x03\x04") and (b"xl/" in head or b"[Content_Types]" in head)
    ):
        return "excel"
    if head.startswith(b"PAR1"):
        return "parquet"
    if suffix in KINDS:
        return KINDS[suffix]
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    return "json" if start.startswith((b'{"', b"[{", b"[\n")) else "text"


def open_parquet(path: Path, name: str) -> Rows:
    """Open a Parquet file; only the columns that have a role are read."""

    def guarded(read: Callable[[Any], Any]) -> Any:
        try:
            with pyarrow.parquet.ParquetFile(path) as file:
                return read(file)
        except (pa.ArrowException, OSError, UnicodeError) as error:  # UnicodeError: the name of a column
            raise UserError(
                f"{name}: not a readable Parquet file ({first_line(error)}); write it again, or write CSV"
            ) from error

    names, count = guarded(lambda file: (file.schema_arrow.names, file.metadata.num_rows))
    check_memory(count, ROW_BYTES, f"{name}: the number of rows is")
    duplicates = {each for each in names if names.count(each) > 1}
    distinct = [each for each in names if each not in duplicates]

    def sample(file: Any) -> Any:
        return next(file.iter_batches(batch_size=100, columns=distinct), None)

    first = guarded(sample)
    shown = arrow_rows(pa.Table.from_batches([first]) if first is not None else pa.table({}), name, str)
    by_name = {each: [row[i] for row in shown.sample] for i, each in enumerate(shown.names)}
    empty = [None] * len(shown.sample)

    def load(positions: list[int], required: Collection[int]) -> pl.DataFrame:
        chosen = [names[i] for i in positions]
        table = guarded(lambda file: file.read(columns=chosen))
        return pl.DataFrame(
            {str(i): text_column(table.column(names[i]), table.schema.field(names[i]), name) for i in positions}
        )

    cells: list[Cells] = list(zip(*(by_name.get(each, empty) for each in names), strict=True))
    return Rows(name, name, names, cells, load, lambda row: f"{name}, row {row}")


def open_excel(path: Path, name: str, sheet: str | None) -> Rows:
    """Open a sheet of an Excel workbook, by default the first that is not empty."""
    fastexcel = import_extra("fastexcel", "fastexcel", needed_by=f"{name}: an Excel file", extra="excel")
    check_sheet_sizes(path, name)
    try:
        book = fastexcel.read_excel(path)
        if sheet is not None and sheet not in book.sheet_names:
            raise UserError(f"{name}: no sheet {sheet!r}; there are {', '.join(map(repr, book.sheet_names))}")
        for each in [sheet] if sheet is not None else book.sheet_names:
            table = pa.table(book.load_sheet(each, dtypes="string"))
            if table.num_rows:
                break
        else:
            raise UserError(f"{name}: no rows; wanted a sheet of facts")
    except (fastexcel.FastExcelError, pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(
            f"{name}: not a readable Excel file ({first_line(error)}); save it again, or save the sheet as CSV"
        ) from error
    return arrow_rows(table, name, lambda row: f"{name}, row {row + 1}")
