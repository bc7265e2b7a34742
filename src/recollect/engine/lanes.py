"""Registers: as many numbers of a row as the processor takes at once, for compiled kernels.

A loop over forty numbers that the compiler makes fast by itself spends most of its time on what is left over at its
end and on asking whether arrays overlap. A kernel that is written in registers has neither: the last register of a row
begins early enough to be full, and what is summed lies in registers until it is done.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

BYTES = 64 if binding.get_host_cpu_features().get("avx512f") else 32  # of a register, or of two that are smaller
Array = np.ndarray[Any, np.dtype[Any]]
INT = ir.IntType(32)


class Lanes(types.Type):
    """The type of a register of numbers."""

    def __init__(self, dtype: Any) -> None:
        self.dtype, self.count = dtype, 8 * BYTES // dtype.bitwidth
        super().__init__(name=f"Lanes({dtype})")


@register_model(Lanes)
class _Model(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Lanes) -> None:
        super().__init__(manager, kind, ir.VectorType(manager.lookup(kind.dtype).get_value_type(), kind.count))


@intrinsic
def lanes(context: Any, row: Any) -> Any:
    """How many numbers of an array a register has."""
    count = Lanes(row.dtype).count
    return types.intp(row), lambda context, builder, signature, args: ir.Constant(ir.IntType(64), count)


@intrinsic
def spread(context: Any, x: Any) -> Any:
    """x in every lane."""

    def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _spread(builder, context.get_value_type(signature.return_type), args[0])

    return Lanes(x)(x), make


@intrinsic
def zeros(context: Any, a: Any) -> Any:
    """A register like a, of zeros."""
    return a(a), lambda context, builder, signature, args: _zeros(args[0].type)


@intrinsic
def plus(context: Any, a: Any, x: Any, b: Any) -> Any:
    """a + x b of registers a and b and of a register or a number x."""

    def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = args[0].type
        many = args[1] if isinstance(x, Lanes) else _spread(builder, kind, args[1])
        return _fused(builder, many, args[2], args[0])

    return a(a, x, b), make


@intrinsic
def times(context: Any, a: Any, b: Any, paired: Any) -> Any:
    """a b of two registers; where pairs of lanes are complex numbers (`paired` is not None), conj(a b).

    So that sums over lanes are real parts: Re Σ a b c = Σ conj(a b) c.
    """

    def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        x, y, _ = args
        if isinstance(paired, types.NoneType):
            return builder.fmul(x, y)
        even = range(0, x.type.count, 2)
        real, imaginary = (_shuffled(builder, x, [k + of for k in even for _ in range(2)]) for of in (0, 1))
        swapped = _shuffled(builder, y, [k + of for k in even for of in (1, 0)])
        return builder.fsub(builder.fmul(builder.fmul(real, _signs(x.type)), y), builder.fmul(imaginary, swapped))

    return a(a, b, paired), make


@intrinsic
def flipped(context: Any, a: Any, paired: Any) -> Any:
    """The conjugate, where pairs of lanes are complex numbers."""

    def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return args[0] if isinstance(paired, types.NoneType) else builder.fmul(args[0], _signs(args[0].type))

    return a(a, paired), make


@intrinsic
def totals(context: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """The sums over the lanes of four registers."""
    four = types.UniTuple(a.dtype, 4)

    def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        def folded(x: Any, y: Any) -> Any:  # in every four lanes, two of x and two of y
            n = x.type.count
            even = [lane for k in range(0, n, 4) for lane in (k, k + 2, n + k, n + k + 2)]
            return builder.fadd(*(_shuffled(builder, x, [lane + of for lane in even], y) for of in (0, 1)))

        sums = folded(folded(args[0], args[1]), folded(args[2], args[3]))
        while (half := sums.type.count // 2) >= 4:
            sums = builder.fadd(*(_shuffled(builder, sums, list(range(at, at + half))) for at in (0, half)))
        return context.make_tuple(builder, four, [builder.extract_element(sums, INT(lane)) for lane in range(4)])

    return four(a, b, c, d), make


@intrinsic
def joined(context: Any, first: Any, a: Any, count: Any) -> Any:
    """So many lanes of the first register, then those of a."""

    def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = args[0].type
        kept = builder.icmp_signed(">=", _numbers(kind), _spread_count(builder, kind, args[2]))
        return builder.select(kept, args[1], args[0])

    return a(first, a, types.intp), make


@njit(inline="always")
def without(a: Any, count: int) -> Any:
    """The register with its first lanes, so many, zero."""
    return joined(zeros(a), a, count)


def _counting(predicate: str) -> Any:
    @intrinsic
    def count(context: Any, counts: Any, a: Any, b: Any) -> Any:
        def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            one = ir.Constant(args[0].type, [1.0] * args[0].type.count)
            return builder.select(builder.fcmp_ordered(predicate, *args[1:]), builder.fadd(args[0], one), args[0])

        return counts(counts, a, b), make

    return count


# counts, plus one in the lanes in which a > b, a = b, or one of them is no number
count_greater, count_equal, count_nan = _counting(">"), _counting("=="), _counting("uno")


@intrinsic
def claim(context: Any, counter: Any) -> Any:
    """The number in an array of one, which is one more for whoever asks next, whatever thread that is."""

    def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = context.make_array(counter)(context, builder, args[0]).data
        return builder.atomic_rmw("add", place, ir.Constant(place.type.pointee, 1), "monotonic")

    return counter.dtype(counter), make


@njit(inline="always")
def load(table: Array, row: int, start: int) -> Any:
    """A register of a row's numbers from `start`; of a row that has fewer, all of them and zeros."""
    return _load(table, row, start) if table.shape[1] >= lanes(table) else _load_few(table, row)


@njit(inline="always")
def store(table: Array, row: int, start: int, register: Any) -> None:
    """The converse of `load`."""
    if table.shape[1] >= lanes(table):
        _store(table, row, start, register)
    else:
        _store_few(table, row, register)


@intrinsic
def four_products(
    context: Any, rows: Any, i0: Any, i1: Any, i2: Any, i3: Any, table: Any, first: Any, column: Any, starts: Any,
    out: Any, n0: Any, n1: Any, n2: Any, n3: Any, more: Any,
) -> Any:  # fmt: skip
    """out[n] = rows[i] @ table[first :, column :] of four rows, a register of columns from each of `starts`.

    `more`: it is added to what is in out. All sums are in registers until the end. The table has as many rows from
    `first` as `rows` columns; registers may overlap, and reach no further than the columns of out.
    """
    size = table.dtype.bitwidth // 8

    def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = context.get_value_type(Lanes(table.dtype))
        x, m, u = (context.make_array(signature.args[at])(context, builder, args[at]) for at in (0, 5, 9))
        of_x, of_m = (builder.extract_value(array.strides, axis) for array, axis in ((x, 1), (m, 0)))
        xs, us = [_row(builder, x, i) for i in args[1:5]], [_row(builder, u, n) for n in args[10:14]]
        top, places = builder.gep(_row(builder, m, args[6]), [args[7]]), cgutils.unpack_tuple(builder, args[8])
        outs = [_from(builder, begin, place, kind) for begin in us for place in places]
        sums = [cgutils.alloca_once_value(builder, _zeros(kind)) for _ in outs]
        with builder.if_then(cgutils.as_bool_bit(builder, args[14])):
            for total, place in zip(sums, outs, strict=True):
                builder.store(builder.load(place, align=size), total)
        with cgutils.for_range(builder, builder.extract_value(x.shape, 1)) as loop:
            row = cgutils.pointer_add(builder, top, builder.mul(loop.index, of_m))
            ys = [builder.load(_from(builder, row, place, kind), align=size) for place in places]
            for n, begin in enumerate(xs):
                number = builder.load(cgutils.pointer_add(builder, begin, builder.mul(loop.index, of_x)))
                many = _spread(builder, kind, number)
                for y, total in zip(ys, sums[n * len(ys) :], strict=False):
                    builder.store(_fused(builder, many, y, builder.load(total)), total)
        for total, place in zip(sums, outs, strict=True):
            builder.store(builder.load(total), place, align=size)
        return context.get_dummy_value()

    ids = [types.intp] * 4
    return types.void(rows, *ids, table, types.intp, types.intp, starts, out, *ids, types.boolean), make


@intrinsic
def swap(context: Any, table: Any, row: Any, column: Any, out: Any, to: Any, at: Any) -> Any:
    """out[to + c, at + r] = table[row + r, column + c] of as many rows and columns as a register has lanes."""
    size = table.dtype.bitwidth // 8

    def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = context.get_value_type(Lanes(table.dtype))
        given, made = (context.make_array(signature.args[n])(context, builder, args[n]) for n in (0, 3))

        def places(array: Any, first: Any, start: Any) -> list[Any]:
            rows = [builder.add(first, ir.Constant(first.type, n)) for n in range(kind.count)]
            return [_from(builder, _row(builder, array, row), start, kind) for row in rows]

        x = [builder.load(place, align=size) for place in places(given, args[1], args[2])]
        apart = 1
        while apart < kind.count:  # the off-diagonal blocks of every square of 2 × apart change places
            low = [lane if not lane & apart else kind.count + lane - apart for lane in range(kind.count)]
            high = [lane + apart if not lane & apart else kind.count + lane for lane in range(kind.count)]
            for n in (n for n in range(kind.count) if not n & apart):
                a, b = x[n], x[n + apart]
                x[n], x[n + apart] = _shuffled(builder, a, low, b), _shuffled(builder, a, high, b)
            apart *= 2
        for register, place in zip(x, places(made, args[4], args[5]), strict=True):
            builder.store(register, place, align=size)
        return context.get_dummy_value()

    return types.void(table, types.intp, types.intp, out, types.intp, types.intp), make


@intrinsic
def _load(context: Any, table: Any, row: Any, start: Any) -> Any:
    def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = context.get_value_type(signature.return_type)
        begin = _row(builder, context.make_array(table)(context, builder, args[0]), args[1])
        return builder.load(_from(builder, begin, args[2], kind), align=table.dtype.bitwidth // 8)

    return Lanes(table.dtype)(table, types.intp, types.intp), make


@intrinsic
def _store(context: Any, table: Any, row: Any, start: Any, register: Any) -> Any:
    def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        begin = _row(builder, context.make_array(table)(context, builder, args[0]), args[1])
        builder.store(args[3], _from(builder, begin, args[2], args[3].type), align=table.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(table, types.intp, types.intp, register), make


@intrinsic
def _load_few(context: Any, table: Any, row: Any) -> Any:
    def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = context.get_value_type(signature.return_type)
        place, size, inside = _few(context, builder, table, args[0], args[1], kind)
        told = ir.FunctionType(kind, [place.type, INT, inside.type, kind])
        return builder.call(_masked(builder, "load", told, kind), [place, size, inside, _zeros(kind)])

    return Lanes(table.dtype)(table, types.intp), make


@intrinsic
def _store_few(context: Any, table: Any, row: Any, register: Any) -> Any:
    def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = args[2].type
        place, size, inside = _few(context, builder, table, args[0], args[1], kind)
        told = ir.FunctionType(ir.VoidType(), [kind, place.type, INT, inside.type])
        builder.call(_masked(builder, "store", told, kind), [args[2], place, size, inside])
        return context.get_dummy_value()

    return types.void(table, types.intp, register), make


def _row(builder: Any, array: Any, row: Any) -> Any:
    """Where a row of an array lies."""
    return cgutils.pointer_add(builder, array.data, builder.mul(row, builder.extract_value(array.strides, 0)))


def _from(builder: Any, begin: Any, start: Any, kind: Any) -> Any:
    """Where a register of the numbers from `start` lies."""
    return builder.bitcast(builder.gep(begin, [start]), kind.as_pointer())


def _few(context: Any, builder: Any, table: Any, array: Any, row: Any, kind: Any) -> tuple[Any, Any, Any]:
    """Where a short row lies, the size of a number, and which lanes of a register are inside the row."""
    given = context.make_array(table)(context, builder, array)
    inside = builder.icmp_signed(
        "<", _numbers(kind), _spread_count(builder, kind, builder.extract_value(given.shape, 1))
    )
    place = builder.bitcast(_row(builder, given, row), kind.as_pointer())
    return place, INT(table.dtype.bitwidth // 8), inside


def _masked(builder: Any, name: str, told: Any, kind: Any) -> Any:
    vector = f"v{kind.count}{_name(kind)}"
    return cgutils.get_or_insert_function(builder.module, told, f"llvm.masked.{name}.{vector}.p0{vector}")


def _fused(builder: Any, x: Any, y: Any, z: Any) -> Any:
    """x y + z."""
    kind = z.type
    told, name = ir.FunctionType(kind, [kind] * 3), f"llvm.fmuladd.v{kind.count}{_name(kind)}"
    return builder.call(cgutils.get_or_insert_function(builder.module, told, name), [x, y, z])


def _name(kind: Any) -> str:
    return "f32" if isinstance(kind.element, ir.FloatType) else "f64"


def _shuffled(builder: Any, x: Any, lanes: list[int], y: Any = None) -> Any:
    """These lanes of a register, or of two."""
    return builder.shuffle_vector(x, x if y is None else y, ir.Constant(ir.VectorType(INT, len(lanes)), lanes))


def _signs(kind: Any) -> Any:
    """1 and −1 in turns."""
    return ir.Constant(kind, [1.0, -1.0] * (kind.count // 2))


def _zeros(kind: Any) -> Any:
    return ir.Constant(kind, [0.0] * kind.count)


def _numbers(kind: Any) -> Any:
    return ir.Constant(ir.VectorType(INT, kind.count), list(range(kind.count)))


def _spread_count(builder: Any, kind: Any, count: Any) -> Any:
    return _spread(builder, ir.VectorType(INT, kind.count), builder.trunc(count, INT))


def _spread(builder: Any, kind: Any, x: Any) -> Any:
    first = builder.insert_element(ir.Constant(kind, ir.Undefined), x, INT(0))
    return _shuffled(builder, first, [0] * kind.count)
