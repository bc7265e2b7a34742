"""Run the expression of raw events with DuckDB, on this machine, in bounded memory."""

from __future__ import annotations

import glob
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYetError
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import ibis
import polars as pl

from recollect.errors import UserError
from recollect.io.events.files import EventFormat
from recollect.io.events.query import (
    BAD_TEXT,
    MALFORMED,
    MAX_LINE_BYTES,
    NO_CELL,
    column_names,
    facts_and_drops,
    file_numbers,
)

if TYPE_CHECKING:
    from recollect.io.events import EventRecipe, Progress

MEMORY_LIMIT = "2GiB"  # of DuckDB; what needs more goes to temporary files
CSV_OPTIONS: dict[str, Any] = {  # of DuckDB's read_csv
    "delim": "\t",
    "header": False,
    "quote": "",
    "escape": "",
    "nullstr": NO_CELL,
    "null_padding": True,
    "strict_mode": False,  # a row with too many columns is no error
    "ignore_errors": True,
    "store_rejects": True,  # rows that are not UTF-8 or far too long
    "rejects_limit": 0,
    "max_line_size": MAX_LINE_BYTES,
    "filename": True,
}
_POLL_SECONDS = 0.1


def run_on_duckdb(
    plain: list[Path],
    event_format: EventFormat,
    recipe: EventRecipe,
    names: Mapping[str, str] | None,
    folder: Path,
    progress: Progress | None,
) -> pl.DataFrame:
    """Run `facts_and_drops` on text files with DuckDB and add the rows it could not read; spill to `folder`."""
    config: dict[str, Any] = {"memory_limit": MEMORY_LIMIT, "temp_directory": str(folder)}
    with duckdb.connect(config=config) as connection:
        if progress is not None:
            _measure_progress(connection)
        backend = ibis.duckdb.from_connection(connection)
        paths = [str(path.resolve()) for path in plain]
        numbers = ibis.memtable(pl.DataFrame({"filename": paths, "file": file_numbers(len(paths))}))
        columns = dict.fromkeys(column_names(event_format), "string")
        lines = backend.read_csv([glob.escape(path) for path in paths], columns=columns, **CSV_OPTIONS)
        lines = lines.join(numbers, "filename").mutate(rejected=ibis.null("string"))
        expression = facts_and_drops(lines, event_format, recipe, _name_table(names))
        size = sum(path.stat().st_size for path in plain)
        try:
            with ThreadPoolExecutor(1) as pool:
                table = _wait(pool.submit(expression.to_polars), connection, size, progress)
        except duckdb.Error as error:
            why = str(error).partition("\n")[0]
            raise UserError(
                f"{paths[0]} and others: DuckDB stopped ({why}); give TMPDIR more room or fewer files"
            ) from error
        return pl.concat([table, _rejected(backend)], how="diagonal_relaxed")


def _measure_progress(connection: duckdb.DuckDBPyConnection) -> None:
    """Let a connection measure its progress, silently; in a notebook without ipywidgets DuckDB refuses to."""
    with suppress(duckdb.InvalidInputException):
        connection.execute("SET enable_progress_bar = true; SET enable_progress_bar_print = false")


def _name_table(names: Mapping[str, str] | None) -> ibis.Table | None:
    if names is None:
        return None
    columns = {"whole_code": list(names), "code_name": list(names.values())}
    return ibis.memtable(pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.String)))


def _wait(
    running: Future[pl.DataFrame], connection: duckdb.DuckDBPyConnection, size: int, progress: Progress | None
) -> pl.DataFrame:
    """Return the result of a query, report its progress, and stop it when this thread is interrupted."""
    done = 0
    while True:
        try:
            table = running.result(_POLL_SECONDS)
        except NotYetError:
            if progress is not None:
                done = max(done, int(size * connection.query_progress() / 100))
                progress(done, size)
        except BaseException:
            connection.interrupt()
            raise
        else:
            if progress is not None:
                progress(size, size)
            return table


def _rejected(backend: Any) -> pl.DataFrame:
    """Count the rows that DuckDB could not read, by reason: (reason, rows)."""
    errors = backend.table("reject_errors")
    lines = errors.group_by("file_id", "line_byte_position").agg(
        reason=(errors.error_type == "INVALID ENCODING").any().ifelse(BAD_TEXT, MALFORMED)
    )
    return lines.group_by("reason").agg(rows=lines.count()).to_polars()
