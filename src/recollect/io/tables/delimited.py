"""Read delimited text: guess encoding and delimiter, find the header, and load columns as text."""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO

import polars as pl
import pyarrow as pa
import pyarrow.csv

from recollect.errors import UserError
from recollect.io.tables.columns import WIDTHS, Cells, Given, headerless_names, is_header
from recollect.io.tables.rows import MAX_COLUMNS, SAMPLE_ROWS, Rows, first_line

_SAMPLE_BYTES = 1 << 16  # read to guess encoding and delimiter
_SAMPLE_LINES = 12
_BLOCK_BYTES = 1 << 22  # parsed at a time; a row is shorter
_MAX_LINE = 1 << 22  # characters of a line, where lines are read one by one
_LINE_END = re.compile("\r\n|\n|\r")
_BYTE_LINE_END = re.compile(b"\r\n|\n|\r")


def open_text(path: Path, name: str, suffix: str, given: Given, static: bool) -> Rows:
    """Open a text file; `name` is for messages, and `suffix` tells the usual delimiter."""
    text = DelimitedText.sniff(path, name, suffix)
    records = list(islice(text.records(), SAMPLE_ROWS + 1))
    if not records:
        raise UserError(f"{name}: the file is empty; wanted rows of {WIDTHS[4]}")
    line, first = records[0]
    where = f"{name}, line {line}"
    if len(first) > MAX_COLUMNS:
        raise UserError(f"{where}: {len(first):,} columns; wanted at most {MAX_COLUMNS:,}, one fact per line")
    sample: list[Cells] = [fields for _, fields in records[1:]]
    header = is_header(first, given, static, sample)
    names = first if header else headerless_names(len(first), given, static, where)
    return Rows(
        name,
        where,
        names,
        sample if header else [first, *sample],
        lambda positions, required: text.load(positions, required, len(first), header),
        lambda row: text.where(row, header),
    )


@dataclass(frozen=True)
class DelimitedText:
    """A delimited text file, its encoding and delimiter. Tab-separated text has no quoting, as in published graphs."""

    path: Path
    name: str  # for messages
    encoding: str
    delimiter: str

    @classmethod
    def sniff(cls, path: Path, name: str, suffix: str) -> DelimitedText:
        """Guess encoding and delimiter from the first lines of a file."""
        with path.open("rb") as file:
            head = file.read(_SAMPLE_BYTES)
        encoding = "utf-16" if head[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
        lines = [line for line in _LINE_END.split(head.decode(encoding, "replace"))[:_SAMPLE_LINES] if line]
        if len(head) == _SAMPLE_BYTES and len(lines) > 1:
            lines.pop()  # it may be cut off
        return cls(path, name, encoding, _guess_delimiter(lines, suffix))

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
            raise UserError(f"{self.name}, line {bad_line}: not UTF-8 text; save the file as UTF-8") from error
        except csv.Error as error:
            raise UserError(f"{self.name}, line {line}: cannot be read ({error}); wanted delimited text") from error

    def _lines(self, file: IO[str]) -> Iterator[str]:
        """Yield the lines of a file, and refuse one that is too long before it is read as a whole."""
        number = 1
        while line := file.readline(_MAX_LINE):
            if len(line) == _MAX_LINE:
                raise UserError(
                    f"{self.name}, line {number}: more than {_MAX_LINE:,} characters; wanted one fact per line"
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
                return f"{self.name}, line {line}"
        return f"{self.name}, row {row}"

    def load(self, positions: list[int], required: Collection[int], width: int, header: bool) -> pl.DataFrame:
        """Return the columns at some positions as text, named by position, without the header."""
        try:
            table = _parse_columns(self, positions)
        except (pa.ArrowException, UnicodeError, OSError) as error:
            frame = self._load_ragged(positions, required, width)
            if frame is None:
                raise UserError(
                    f"{self.name}: cannot be read as delimited text ({first_line(error)}); save it as CSV in UTF-8"
                ) from error
        else:
            frame = pl.DataFrame(pl.from_arrow(table))
        return frame.slice(1) if header else frame

    def _load_ragged(self, positions: list[int], required: Collection[int], width: int) -> pl.DataFrame | None:
        """Load a file whose rows may lack cells at their end, which are empty then; None if all rows are complete.

        A row that lacks a required cell, or has more cells than the first row, is refused.
        """
        columns: dict[int, list[str]] = {position: [] for position in positions}
        is_ragged = False
        for line, fields in self.records():
            if not max(required, default=-1) < len(fields) <= width:
                raise UserError(
                    f"{self.name}, line {line}: {len(fields)} columns where the first row has {width}; correct it"
                )
            is_ragged |= len(fields) < width
            for position, cells in columns.items():
                cells.append(fields[position] if position < len(fields) else "")
        return pl.DataFrame({str(i): cells for i, cells in columns.items()}) if is_ragged else None


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


def _parse_columns(text: DelimitedText, positions: list[int]) -> pa.Table:
    """Return the columns at some positions as strings, named by position; a header is the first row."""
    names = [f"f{position}" for position in positions]
    has_quotes = text.delimiter != "\t"
    with text.path.open("rb") as file:  # given a path, Arrow would unpack what ends in .gz
        table = pyarrow.csv.read_csv(
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
    return table.rename_columns([str(position) for position in positions])
