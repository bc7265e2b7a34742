"""Blocks of tab-separated text as string columns, at the speed of memory.

Raw event files have some sixty columns a row, of which half a dozen are wanted. The kernel looks at eight
bytes at a time, notes where wanted fields lie as Arrow string views (no byte of text is copied), counts the
columns of every row, and holds no interpreter lock. General readers were measured first: they build or skip
each field one by one, take two to four times as long, and cannot say which rows have a wrong width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

PADDING = 16  # bytes that must be readable after the last row: the kernel looks ahead

_U64 = np.uint64
_LOW = _U64(0x7F7F7F7F7F7F7F7F)
_HIGH = _U64(0x8080808080808080)
_TABS = _U64(0x0909090909090909)
_ENDS = _U64(0x0A0A0A0A0A0A0A0A)
_CONTROLS = _U64(0x0E0E0E0E0E0E0E0E)  # tab and line feed are among the bytes below 14
_ROW_BYTES = 64  # a first guess at the shortest row


class Rows(NamedTuple):
    """The wanted columns of the rows that have them, and how many rows there were, of a wrong width, and with gaps."""

    frame: pl.DataFrame
    rows: int
    malformed: int
    incomplete: int


def split_block(
    block: npt.NDArray[np.uint8], size: int, wanted: Sequence[int], required: Sequence[int], widths: Sequence[int]
) -> Rows:
    """The wanted columns, named by position, of rows of an allowed width whose required fields are not empty.

    `block` holds rows that end in a line feed in its first `size` bytes and at least PADDING bytes after them.
    All allowed widths reach beyond the last wanted column. Blank lines are no rows. A field that is not UTF-8 is null.

    >>> text = b"7\\tx\\tAfghanistan and others\\n8\\ty\\n9\\tz\\t\\n"
    >>> block = np.frombuffer(text + bytes(PADDING), np.uint8)
    >>> rows = split_block(block, len(text), wanted=[0, 2], required=[2], widths=[3])
    >>> rows.frame["2"].to_list(), rows.rows, rows.malformed, rows.incomplete
    (['Afghanistan and others'], 3, 1, 1)
    """
    columns = np.array(sorted(wanted), np.int64)
    needed = np.isin(columns, required)
    room = size // _ROW_BYTES + 16
    while True:
        views = np.empty((len(columns), room, 2), _U64)
        plain = np.zeros(len(columns), _U64)
        kept, rows, malformed, incomplete = _split(
            block, size, columns, needed, np.array(widths, np.int64), views, plain
        )
        if kept >= 0:
            break
        room *= 4
    text = pa.py_buffer(block)
    frame = pl.DataFrame(
        {str(column): _strings(views[i, :kept], text, ascii=not plain[i]) for i, column in enumerate(columns.tolist())}
    )
    return Rows(frame, rows, malformed, incomplete)


def _strings(views: npt.NDArray[np.uint64], text: pa.Buffer, ascii: bool) -> pl.Series:
    """String views over `text` as a column, null where the bytes are not UTF-8."""
    array = pa.Array.from_buffers(pa.string_view(), len(views), [None, pa.py_buffer(views), text])
    if not ascii:
        try:
            array.validate(full=True)
        except pa.ArrowInvalid:
            raw = pa.Array.from_buffers(pa.binary_view(), len(views), [None, pa.py_buffer(views), text])
            array = pa.array([_decoded(value) for value in raw.to_pylist()], pa.string_view())
    return pl.Series(pl.from_arrow(array))


def _decoded(value: bytes) -> str | None:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return None


@intrinsic
def _word(_context: Any, array: Any, _at: Any) -> Any:
    """The eight bytes of an array from a position."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        place = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(64).as_pointer())
        word = builder.load(place)
        word.align = 1
        return word

    return types.uint64(array, types.intp), generate


@intrinsic
def _trailing_zeros(_context: Any, _word: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), generate


@intrinsic
def _ones(_context: Any, _word: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


@njit(nogil=True, cache=True, inline="always")
def _equal_bytes(word: np.uint64, pattern: np.uint64) -> np.uint64:
    """The high bit of every byte in which the two are equal."""
    x = word ^ pattern
    return ~(((x & _LOW) + _LOW) | x | _LOW)


@njit(nogil=True, cache=True)
def _split(
    text: npt.NDArray[np.uint8],
    size: int,
    wanted: npt.NDArray[np.int64],
    needed: npt.NDArray[np.bool_],
    widths: npt.NDArray[np.int64],
    views: npt.NDArray[np.uint64],
    high: npt.NDArray[np.uint64],
) -> tuple[int, int, int, int]:
    """Fill the views of wanted fields, row by row; `high` gets a bit where a column is not plain ASCII.

    Gives the rows kept (−1: there was no room), seen, of a wrong width, and with a needed field empty.
    """
    last, count, room = wanted[-1], len(wanted), views.shape[1]
    kept, rows, malformed, incomplete = 0, 0, 0, 0
    field, start, at, filled, gap = 0, 0, 0, 0, False
    while at < size:
        word = _word(text, at)
        # bytes that may be below 14; a borrow can only add candidates, and each is looked at
        found = (word - _CONTROLS) & ~word & _HIGH
        at += 8
        while found != _U64(0):
            here = at - 8 + (np.int64(_trailing_zeros(found)) >> 3)
            found &= found - _U64(1)
            byte = text[here]
            if byte != 9 and byte != 10:
                continue
            if filled < count and field == wanted[filled]:
                length = here - start
                first, second = _word(text, start), _word(text, start + 8)
                if length < 8:
                    first &= (_U64(1) << _U64(8 * length)) - _U64(1)
                    second = _U64(0)
                elif length < 16:
                    second &= (_U64(1) << _U64(8 * (length - 8))) - _U64(1)
                high[filled] |= (first | second) & _HIGH
                views[filled, kept, 0] = _U64(length) | (first << _U64(32))
                if length <= 12:  # Arrow keeps short text in the view itself, and of longer text the place
                    views[filled, kept, 1] = (first >> _U64(32)) | (second << _U64(32))
                else:
                    views[filled, kept, 1] = _U64(start) << _U64(32)
                    for place in range(start + 16, here):
                        high[filled] |= _U64(text[place]) & _U64(0x80)
                gap |= needed[filled] and length == 0
                filled += 1
            field += 1
            blank = byte == 10 and field == 1 and (here == start or (here == start + 1 and text[start] == 13))
            start = here + 1
            if byte == 9 and field <= last and not gap:
                continue
            if byte == 9:  # nothing more is wanted: only count the columns that are left
                while True:
                    word = _word(text, start)
                    ends, tabs = _equal_bytes(word, _ENDS), _equal_bytes(word, _TABS)
                    if ends != _U64(0):
                        end = _trailing_zeros(ends)
                        field += np.int64(_ones(tabs & ((_U64(1) << end) - _U64(1)))) + 1
                        start += (np.int64(end) >> 3) + 1
                        break
                    field += np.int64(_ones(tabs))
                    start += 8
            right = False
            for width in widths:
                right |= field == width
            rows += not blank
            if not right:
                malformed += not blank
            elif gap:
                incomplete += 1
            else:
                kept += 1
                if kept == room:
                    return -1, rows, malformed, incomplete
            at, field, filled, gap = start, 0, 0, False
            break
    return kept, rows, malformed, incomplete
