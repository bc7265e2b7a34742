"""Read tables of databases: SQLite and DuckDB files, and any other through Ibis.

A table of a file is written FILE::TABLE, one of a server URL::TABLE.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from recollect.errors import UserError
from recollect.io.merging import check_memory
from recollect.io.tables.rows import ROW_BYTES, SAMPLE_ROWS, Rows, arrow_rows, first_line


def sqlite_rows(path: Path, name: str, table: str | None) -> Rows:
    """Open a table of an SQLite file, which is only read."""

    def run(query: str) -> list[tuple[Any, ...]]:
        try:
            with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
                connection.execute("PRAGMA trusted_schema = OFF")
                return connection.execute(query).fetchall()
        except (sqlite3.Error, UnicodeError, OverflowError) as error:
            raise UserError(
                f"{name}: cannot be read as an SQLite file ({first_line(error)}); repair it, or export the table as CSV"
            ) from error

    kinds = "('table')" if table is None else "('table', 'view')"
    tables = [
        row[0] for row in run(f"SELECT name FROM sqlite_master WHERE type IN {kinds} AND name NOT LIKE 'sqlite_%'")
    ]
    chosen = _quoted(_choose(tables, table, name))
    names = [str(row[1]) for row in run(f"PRAGMA table_info({chosen})")]
    [(count,)] = run(f"SELECT count(*) FROM {chosen}")
    check_memory(count, ROW_BYTES, f"{name}: the number of rows is")

    def select(positions: Sequence[int], limit: int) -> pl.DataFrame:
        cells = ", ".join(f"CAST({_quoted(names[i])} AS TEXT)" for i in positions)
        rows = run(f"SELECT {cells} FROM {chosen} LIMIT {limit}")
        columns = zip(*rows, strict=True) if rows else ([] for _ in positions)
        return pl.DataFrame(
            {str(i): pl.Series(list(column), dtype=pl.String) for i, column in zip(positions, columns, strict=True)}
        )

    sample = select(range(len(names)), SAMPLE_ROWS).rows()
    return Rows(
        name,
        name,
        names,
        list(sample),
        lambda positions, required: select(positions, -1),
        lambda row: f"{name}, row {row}",
    )


def duckdb_rows(path: Path, name: str, table: str | None) -> Rows:
    """Open a table of a DuckDB file, which is only read and cannot reach other files."""
    import duckdb

    def run(query: str) -> pa.Table:
        try:
            config: dict[str, Any] = {"enable_external_access": False, "autoload_known_extensions": False}
            with duckdb.connect(str(path), read_only=True, config=config) as connection:
                return connection.sql(query).to_arrow_table()
        except (duckdb.Error, UnicodeError) as error:
            raise UserError(
                f"{name}: cannot be read as a DuckDB file ({first_line(error)}); export the table as Parquet or CSV"
            ) from error

    query = "SELECT table_name FROM information_schema.tables ORDER BY table_name"
    chosen = _quoted(_choose(run(query).column(0).to_pylist(), table, name))
    [count] = run(f"SELECT count(*) FROM {chosen}").column(0).to_pylist()
    check_memory(count, ROW_BYTES, f"{name}: the number of rows is")

    def where(row: int) -> str:
        return f"{name}, row {row}"

    head = arrow_rows(run(f"SELECT * FROM {chosen} LIMIT {SAMPLE_ROWS}"), name, where)

    def load(positions: list[int], required: Collection[int]) -> pl.DataFrame:
        columns = ", ".join(_quoted(head.names[i]) for i in positions)
        loaded = arrow_rows(run(f"SELECT {columns} FROM {chosen}"), name, where).load(list(range(len(positions))), ())
        return loaded.rename({str(n): str(i) for n, i in enumerate(positions)})

    return Rows(name, name, head.names, head.sample, load, where)


def url_rows(address: str) -> Rows:
    """Open a table of a database by its URL, URL::TABLE."""
    import ibis

    url, separator, table = address.rpartition("::")
    if not separator:
        url, table = address, ""
    try:
        connection = ibis.connect(url)
        chosen = connection.table(table or _choose(connection.list_tables(), None, url))
    except UserError:
        raise
    except Exception as error:  # of any driver
        raise UserError(
            f"{url}: cannot be read ({first_line(error)}); Ibis needs the driver of that database"
        ) from error
    return ibis_rows(chosen, address)


def ibis_rows(table: Any, name: str) -> Rows:
    """Open an Ibis table; only the columns that have a role are read."""

    def run(expression: Any) -> Any:
        try:
            return expression.to_pyarrow()
        except Exception as error:  # of any back end
            raise UserError(
                f"{name} cannot be read ({first_line(error)}); give a table or expression of Ibis that can be executed"
            ) from error

    def where(row: int) -> str:
        return f"row {row} of {name}"

    check_memory(int(run(table.count()).as_py()), ROW_BYTES, f"{name}: the number of rows is")
    head = arrow_rows(run(table.limit(SAMPLE_ROWS)), name, where)

    def load(positions: list[int], required: Collection[int]) -> pl.DataFrame:
        loaded = arrow_rows(run(table.select([head.names[i] for i in positions])), name, where)
        return loaded.load(list(range(len(positions))), ()).rename({str(n): str(i) for n, i in enumerate(positions)})

    return Rows(name, name, head.names, head.sample, load, where)


def _choose(tables: Sequence[str], table: str | None, name: str) -> str:
    """Return the table of a name, or the only one."""
    if table is None and len(tables) == 1:
        return tables[0]
    if table is None or table not in tables:
        have = ", ".join(map(repr, tables)) or "none"
        wanted = f"no table {table!r}" if table is not None else "several tables" if tables else "no tables"
        example = f"; write {name.partition('::')[0]}::{tables[0]}" if tables else ""
        raise UserError(f"{name}: {wanted}; there are {have}{example}")
    return table


def _quoted(name: str) -> str:
    """Return a name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'
