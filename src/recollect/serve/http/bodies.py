"""Bodies with many rows: as a JSON document, as a line of JSON for each row, or as an Arrow stream."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
import polars as pl
import pyarrow as pa

from recollect.serve.http.guard import MAX_BODY
from recollect.serve.messages import MAX_FACTS, Message
from recollect.serve.operations import ARROW, JSON, LINES
from recollect.serve.problems import ProblemError, explain_invalid, to_json

_KINDS = (
    *(pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_null),
    *(pa.types.is_integer, pa.types.is_date, pa.types.is_timestamp),  # of times
)
_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3  # kinds of Arrow messages


def parse_body(
    content_type: str, body: bytes, question: type[Message], rows: str, parameters: Mapping[str, str]
) -> Message:
    """Return a question whose field `rows` is in a body of any type; its other fields may be parameters."""
    kind = media_type(content_type)
    readers: dict[str, tuple[str, Callable[[bytes], Any]]] = {
        JSON: ("row", msgspec.json.decode),
        LINES: ("line", msgspec.json.Decoder().decode_lines),
        ARROW: ("row", _decode_arrow),
    }
    if kind not in readers:
        choices = f"{JSON}, {LINES} or {ARROW}"
        raise ProblemError(415, f"the body has the type {kind or 'of nothing'!r}; send {choices}")
    word, read = readers[kind]
    if rows in parameters:
        raise ProblemError(400, f"unknown parameter {rows!r}; it is part of the body")
    try:
        content = read(body)
    except (msgspec.DecodeError, UnicodeDecodeError, pa.ArrowException, ValueError, OSError) as error:
        place = _broken_line(body) if kind == LINES else ""
        reason = str(error).partition("\n")[0]
        raise ProblemError(400, f"the body is not readable as {kind} ({place}{reason}); correct it") from error
    given = content if kind == JSON else {rows: content}
    if not isinstance(given, dict):
        raise ProblemError(400, f"the body is not readable as {kind} (it is no object); give one with {rows}")
    for name in parameters:
        if name in given:
            raise ProblemError(400, f"{name} is given as a parameter and in the body; give it once")
    try:
        # parameters are texts; what is in the body must have its type
        typed = msgspec.convert({**given, **_typed(question, parameters)}, question)
    except msgspec.ValidationError as error:
        raise ProblemError(400, _explain_rows(error, given.get(rows), question, rows, word)) from error
    return typed


def _typed(question: type[Message], parameters: Mapping[str, str]) -> dict[str, Any]:
    """Return parameters by the types of the fields that they are; those that are no field stay texts."""
    fields = {field.name: field.type for field in msgspec.structs.fields(question)}
    found: dict[str, Any] = dict(parameters)
    for name in parameters.keys() & fields.keys():
        try:
            found[name] = msgspec.convert(parameters[name], fields[name], strict=False)
        except msgspec.ValidationError as error:
            reason = str(error).replace("`", "")
            raise ProblemError(400, f"cannot read {name}: {reason[:1].lower()}{reason[1:]}") from error
    return found


def _explain_rows(error: msgspec.ValidationError, found: Any, question: type[Message], rows: str, word: str) -> str:
    """Return the sentence about an error, with the number of the row that it is in, from 1, if there are several."""
    fields = {field.name: field.type for field in msgspec.structs.fields(question)}
    row_type = msgspec.inspect.type_info(fields[rows]).item_type.cls  # type: ignore[attr-defined]
    listed = found if isinstance(found, list) else []
    for number, row in enumerate(listed, start=1):
        try:
            msgspec.convert(row, row_type)
        except msgspec.ValidationError as wrong:
            place = f"{word} {number}: " if len(listed) > 1 else ""
            return f"{place}{explain_invalid(wrong, row_type)}"
    return explain_invalid(error, question)


def _broken_line(body: bytes) -> str:
    """Return which line is not JSON, as the beginning of a reason."""
    for number, line in enumerate(body.split(b"\n"), start=1):
        if line.strip():
            try:
                msgspec.json.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError):
                return f"line {number}: "
    return ""


# -- Arrow ------------------------------------------------------------------------------------------------------------


def _decode_arrow(body: bytes) -> list[dict[str, str]]:
    """Return the rows of an Arrow stream, without the cells that are null.

    Compressed streams are refused, and so are long texts that many rows refer to: few bytes could become many.
    """
    source = pa.py_buffer(body)
    if any(_is_compressed(message.metadata.to_pybytes()) for message in pa.ipc.MessageReader.open_stream(source)):
        raise ValueError("it is compressed; write it without compression")
    with pa.ipc.open_stream(source) as reader:
        names = reader.schema.names
        for column in reader.schema:
            if not any(is_kind(column.type) for is_kind in _KINDS):
                raise ValueError(f"the column {column.name} has the type {column.type}; give texts")
            if names.count(column.name) > 1:
                raise ValueError(f"several columns have the name {column.name}")
        batches: list[pa.RecordBatch] = []
        for batch in reader:
            if batch.num_rows + sum(each.num_rows for each in batches) > MAX_FACTS:
                raise ValueError(f"it has more than {MAX_FACTS:,} rows")
            batch.validate(full=True)
            batches.append(batch)
    table = pa.Table.from_batches(batches, reader.schema)
    columns = [pl.Series(name, table[name]).cast(pl.String) for name in names]
    if sum(column.str.len_bytes().sum() for column in columns) > 2 * MAX_BODY:
        raise ValueError("its texts are too long")
    rows = zip(*(column.to_list() for column in columns), strict=True)
    return [{name: text for name, text in zip(names, row, strict=True) if text is not None} for row in rows]


def _is_compressed(metadata: bytes) -> bool:
    """Return whether an Arrow message declares compressed buffers: field 3 of its RecordBatch, in FlatBuffers."""
    try:
        message: int | None = struct.unpack_from("<I", metadata, 0)[0]
        batch = _table_at(metadata, message, field=2)
        kind = _field(metadata, message, field=1)
        if kind is not None and metadata[kind] == _DICTIONARY_BATCH:
            batch = _table_at(metadata, batch, field=1)
        elif kind is None or metadata[kind] != _RECORD_BATCH:
            return False
        return _field(metadata, batch, field=3) is not None
    except (struct.error, IndexError) as error:
        raise ValueError("its metadata is broken") from error


def _field(metadata: bytes, table: int | None, field: int) -> int | None:
    """Return where a field of a FlatBuffers table is; None if it has its default."""
    if table is None:
        return None
    directory = table - struct.unpack_from("<i", metadata, table)[0]
    size = struct.unpack_from("<H", metadata, directory)[0]
    place = 4 + 2 * field
    offset = struct.unpack_from("<H", metadata, directory + place)[0] if place < size else 0
    return table + offset if offset else None


def _table_at(metadata: bytes, table: int | None, field: int) -> int | None:
    """Return where the table is that a field refers to."""
    place = _field(metadata, table, field)
    return None if place is None else place + int(struct.unpack_from("<I", metadata, place)[0])


# -- answers ----------------------------------------------------------------------------------------------------------


def media_type(header: str) -> str:
    """Return the media type of a header, without its parameters."""
    return header.partition(";")[0].strip().lower()


def accepted(header: str) -> str:
    """Return the first type of an Accept header in which answers can be written; JSON if there is none."""
    wanted = (media_type(each) for each in header.split(","))
    return next((kind for kind in wanted if kind in (JSON, LINES, ARROW)), JSON)


def write_lines(rows: Iterable[Any]) -> bytes:
    """Return a line of JSON for each row."""
    return b"".join(to_json(row) + b"\n" for row in rows)


def write_arrow(table: pl.DataFrame) -> bytes:
    """Return a table as an Arrow stream that any version of Arrow reads."""
    stream = io.BytesIO()
    table.write_ipc_stream(stream, compat_level=pl.CompatLevel.oldest())
    return stream.getvalue()
