"""Read JSON: a list of records, records by name, records under one key, or one record per line (JSON Lines)."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from recollect.errors import UserError
from recollect.io.merging import check_memory
from recollect.io.tables.rows import MAX_COLUMNS, SAMPLE_ROWS, Rows

_BYTES_PER_BYTE = 16  # peak memory of parsed JSON
_KEY = "key"  # the column of the names, where records have names


def open_json(path: Path, name: str) -> Rows:
    """Open a JSON or JSON Lines file: one row per record, one column per field of any record."""
    check_memory(path.stat().st_size, _BYTES_PER_BYTE, f"{name}: the number of bytes is")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeError as error:
        raise UserError(f"{name}: not UTF-8 text; save the file as UTF-8") from error
    records, lines = _parse(text, name)
    names = list(dict.fromkeys(field for record in records for field in record))
    if len(names) > MAX_COLUMNS:
        raise UserError(f"{name}: {len(names):,} fields; wanted at most {MAX_COLUMNS:,}, one fact per record")
    sample = [[_cell(record.get(field)) for field in names] for record in records[:SAMPLE_ROWS]]

    def where(row: int) -> str:
        return f"{name}, line {lines[row - 1]}" if lines else f"{name}, record {row}"

    def load(positions: list[int], required: Collection[int]) -> pl.DataFrame:
        columns = {}
        for i in positions:
            field = names[i]
            for row, record in enumerate(records, 1):
                if isinstance(record.get(field), dict | list):
                    raise UserError(f"{where(row)}: {field!r} is no plain value; wanted text, a number or a date")
            columns[str(i)] = pl.Series([_cell(record.get(field)) for record in records], dtype=pl.String)
        return pl.DataFrame(columns)

    return Rows(name, name, names, list(sample), load, where)


def _parse(text: str, name: str) -> tuple[list[dict[str, Any]], list[int]]:
    """Return the records, and the line of each if there is one per line."""
    try:
        return _records(json.loads(text), name), []
    except RecursionError as error:
        raise UserError(f"{name}: JSON too deep to read; wanted a list of records") from error
    except json.JSONDecodeError as error:
        if error.msg != "Extra data":
            raise UserError(f"{name}, line {error.lineno}: not JSON ({error.msg}); wanted a list of records") from error
    except UserError:
        raise
    except ValueError as error:  # a number of too many digits
        raise UserError(f"{name}: not readable JSON ({error}); wanted a list of records") from error
    records, lines = [], []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{name}, line {number}: not JSON ({error}); wanted one record per line") from error
        if not isinstance(record, dict):
            raise UserError(f'{name}, line {number}: no record; wanted one like {{"subject": …}} per line')
        records.append(record)
        lines.append(number)
    return records, lines


def _records(value: Any, name: str) -> list[dict[str, Any]]:
    """Return the records of a JSON value: a list of them, such a list under one key, or records by name."""
    if isinstance(value, list) and value and all(isinstance(record, dict) for record in value):
        return value
    if isinstance(value, Mapping) and value:
        if len(value) == 1 and isinstance(only := next(iter(value.values())), list | Mapping):
            return _records(only, name)
        if all(isinstance(record, dict) for record in value.values()):
            return [{_KEY: key} | record for key, record in value.items()]
        if not any(isinstance(each, list | dict) for each in value.values()):
            return [dict(value)]
    raise UserError(f'{name}: no records in this JSON; wanted a list of records like [{{"subject": …}}, …]')


def _cell(value: Any) -> str | None:
    """Return a JSON value as text; null is None."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else str(value)
