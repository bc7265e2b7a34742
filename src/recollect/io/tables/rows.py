"""An opened table, whatever it is stored in, and the selection of the columns that have a role."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from recollect.errors import UserError
from recollect.io.table import Table
from recollect.io.tables.columns import Cells, Given, find_columns

SAMPLE_ROWS = 100  # that are looked at to find what the columns hold
ROW_BYTES = 400  # peak memory per row of a table that may be packed into less than a bit
MAX_COLUMNS = 10_000  # of a table of facts, which has a few: parsers need memory for each


@dataclass(frozen=True)
class Rows:
    """An opened table: the names of its columns, its first rows as text, and how to load columns by position."""

    name: str  # for error messages
    header: str  # where the names of the columns are
    names: list[str]
    sample: list[Cells]
    load: Callable[[list[int], Collection[int]], pl.DataFrame]  # columns as text, named by position; those required
    where: Callable[[int], str]  # where a row, counted from 1, is


def select_roles(rows: Rows, given: Given, static: bool) -> Table:
    """Load the columns of a table that have a role, named by role."""
    roles = find_columns(rows.names, given, static, rows.header, rows.sample)
    positions = sorted({position for each in roles.columns.values() for position in each})
    required = {i for role, each in roles.columns.items() if role not in ("start", "end") for i in each}
    loaded = rows.load(positions, required)
    if loaded.is_empty():
        raise UserError(f"{rows.name}: no rows; wanted rows of {', '.join(roles.columns)}")
    columns = {role: _joined(loaded, each) for role, each in roles.columns.items() if role != "object"}
    parts = []
    for position in roles.columns.get("object", ()):
        texts = {role: pl.lit(text) for role, text in roles.texts(rows.names[position]).items()}
        parts.append(pl.DataFrame({**columns, "object": loaded[str(position)]}).with_columns(**texts))
    if not parts:
        parts = [pl.DataFrame(columns).with_columns(**{role: pl.lit(text) for role, text in roles.literals.items()})]
    names = {role: rows.names[each[0]] for role, each in roles.columns.items()}
    height = loaded.height
    where = rows.where if len(parts) == 1 else lambda row: rows.where((row - 1) % height + 1)
    table = Table(pl.concat(parts), where, rows.name, names, roles.notes)
    if len(parts) > 1:
        empty = table.frame["object"].fill_null("") == ""
        table = table.without(empty, "empty cell of several objects") if empty.any() else table
    return table


def _joined(loaded: pl.DataFrame, positions: Sequence[int]) -> pl.Series:
    """Return one column, or the parts of a date (year, month, day, hour) as one text."""
    if len(positions) == 1:
        return loaded[str(positions[0])]
    padded = [pl.col(str(position)).str.replace(r"\.0+$", "").str.zfill(2) for position in positions]
    day = pl.concat_str(padded[:3], separator="-")
    return loaded.select(date=pl.concat_str([day, *padded[3:]], separator="T"))["date"]


def arrow_rows(table: pa.Table, name: str, where: Callable[[int], str], header: str | None = None) -> Rows:
    """Return the rows of an Arrow table."""
    head = [_sample(table.column(i).slice(0, SAMPLE_ROWS)) for i in range(table.num_columns)]

    def load(positions: list[int], required: Collection[int] = ()) -> pl.DataFrame:
        return pl.DataFrame({str(i): text_column(table.column(i), table.schema.field(i), name) for i in positions})

    return Rows(name, header or name, table.column_names, list(zip(*head, strict=True)), load, where)


def _sample(column: pa.ChunkedArray) -> Cells:
    try:
        return _as_strings(column).to_pylist()
    except (pa.ArrowException, ValueError):
        return [None] * len(column)


def text_column(column: pa.ChunkedArray, field: pa.Field, name: str) -> pl.Series:
    """Return a column as text; raise UserError if it holds neither text, numbers nor dates."""
    try:
        return pl.Series(pl.from_arrow(_as_strings(column)))
    except (pa.ArrowException, ValueError) as error:
        raise UserError(f"{name}: column {field.name!r} holds {field.type}; wanted text, numbers or dates") from error


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


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message."""
    return next(iter(str(error).splitlines()), type(error).__name__).strip(". ")
