"""Blocks of tab-separated text as string columns, at the speed of memory.

Raw event files have some sixty columns a row, of which half a dozen are wanted. The kernel looks at 64
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
from numba import types
from numba.extending import intrinsic

from recollect.engine.kernels import kernel

PADDING = 64  # bytes that must be readable after the last row: the kernel looks ahead

_U64 = np.uint64
_TAB, _END = np.uint8(9), np.uint8(10)
_HIGH = _U64(0x8080808080808080)
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
        high = np.zeros(len(columns), _U64)
        kept, rows, malformed, incomplete = _split(
            block, size, columns, needed, np.array(widths, np.int64), views, high
        )
        if kept >= 0:
            break
        room *= 4
    text = pa.py_buffer(block)
    frame = pl.DataFrame(
        {str(column): _strings(views[i, :kept], text, ascii=not high[i]) for i, column in enumerate(columns.tolist())}
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
def _equal(_context: Any, array: Any, _at: Any, _byte: Any) -> Any:
    """A bit for each of 64 bytes from a position, set where it is `byte`: one or two vector comparisons."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        vector = ir.VectorType(ir.IntType(8), 64)
        block = builder.load(builder.bitcast(builder.gep(data, [arguments[1]]), vector.as_pointer()))
        block.align = 1
        zero = ir.Constant(ir.VectorType(ir.IntType(32), 64), [0] * 64)
        one = builder.insert_element(ir.Constant(vector, ir.Undefined), arguments[2], ir.Constant(ir.IntType(32), 0))
        every = builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), zero)
        return builder.bitcast(builder.icmp_unsigned("==", block, every), ir.IntType(64))

    return types.uint64(array, types.intp, types.uint8), generate


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


@kernel
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
    field, start, at, filled, gap, next_wanted = 0, 0, 0, 0, False, wanted[0]
    while at < size:
        ends = _equal(text, at, _END)
        found = _equal(text, at, _TAB) | ends
        at += 64
        while found != _U64(0):
            skipped = min(next_wanted - 1 - field, np.int64(_ones(found)))
            if skipped > 0:  # pass what is not wanted at once, unless the row ends there
                rest = found
                for _ in range(skipped):
                    rest &= rest - _U64(1)
                if (found ^ rest) & ends == _U64(0):
                    field += skipped
                    found = rest
                    continue
            bit = _trailing_zeros(found)
            here = at - 64 + np.int64(bit)
            found &= found - _U64(1)
            if field == next_wanted:
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
                next_wanted = wanted[filled] if filled < count else -1
            field += 1
            more = (ends >> bit) & _U64(1) == _U64(0)
            if more and field <= last and not gap:
                start = here + 1
                continue
            blank = not more and field == 1 and (here == start or (here == start + 1 and text[start] == 13))
            start = here + 1
            while more:  # nothing more is wanted: only count the columns that are left
                tabs, ends = _equal(text, start, _TAB), _equal(text, start, _END)
                if ends == _U64(0):
                    field += np.int64(_ones(tabs))
                    start += 64
                else:
                    end = _trailing_zeros(ends)
                    field += np.int64(_ones(tabs & ((_U64(1) << end) - _U64(1)))) + 1
                    start += np.int64(end) + 1
                    more = False
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
            at, field, filled, gap, next_wanted = start, 0, 0, False, wanted[0]
            break
    return kept, rows, malformed, incomplete
