"""Registers: as many numbers of a row as the processor takes at once, for compiled kernels.

A loop over forty numbers that the compiler makes fast by itself spends most of its time on what is left over at its
end and on asking whether arrays overlap. A kernel that is written in registers has neither: the last register of a row
begins early enough to be full, and what is summed lies in registers until it is done.

Compiled kernels are kept on disk and notice a change of their own file only: touch `native.py` after a change here.
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
def plus(context: Any, a: Any, x: Any, b: Any) -> Any:
    """a + x b of registers a and b and of a register or a number x."""

    def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = args[0].type
        many = args[1] if isinstance(x, Lanes) else _spread(builder, kind, args[1])
        name = f"llvm.fma.v{kind.count}f{a.dtype.bitwidth}"
        fused = cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind] * 3), name)
        return builder.call(fused, [many, args[2], args[0]])

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
def without(context: Any, a: Any, count: Any) -> Any:
    """The register with its first lanes, so many, zero."""

    def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = args[0].type
        kept = builder.icmp_signed(">=", _numbers(kind), _spread_count(builder, kind, args[1]))
        return builder.select(kept, args[0], _zeros(kind))

    return a(a, types.intp), make


@njit(inline="always")
def load(row: Array, start: int) -> Any:
    """A register of a row's numbers from `start`; of a row that has fewer, all of them and zeros."""
    return _load(row, start) if len(row) >= lanes(row) else _load_few(row)


@njit(inline="always")
def store(row: Array, start: int, register: Any) -> None:
    """The converse of `load`."""
    if len(row) >= lanes(row):
        _store(row, start, register)
    else:
        _store_few(row, register)


@intrinsic
def _load(context: Any, row: Any, start: Any) -> Any:
    def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = context.get_value_type(signature.return_type)
        return builder.load(_place(context, builder, row, args[0], args[1], kind), align=row.dtype.bitwidth // 8)

    return Lanes(row.dtype)(row, types.intp), make


@intrinsic
def _store(context: Any, row: Any, start: Any, register: Any) -> Any:
    def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _place(context, builder, row, args[0], args[1], args[2].type)
        builder.store(args[2], place, align=row.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(row, types.intp, register), make


@intrinsic
def _load_few(context: Any, row: Any) -> Any:
    def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = context.get_value_type(signature.return_type)
        place, inside = _few(context, builder, row, args[0], kind)
        name = f"llvm.masked.load.v{kind.count}f{row.dtype.bitwidth}.p0v{kind.count}f{row.dtype.bitwidth}"
        told = ir.FunctionType(kind, [place.type, INT, inside.type, kind])
        masked = cgutils.get_or_insert_function(builder.module, told, name)
        return builder.call(masked, [place, INT(row.dtype.bitwidth // 8), inside, _zeros(kind)])

    return Lanes(row.dtype)(row), make


@intrinsic
def _store_few(context: Any, row: Any, register: Any) -> Any:
    def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = args[1].type
        place, inside = _few(context, builder, row, args[0], kind)
        name = f"llvm.masked.store.v{kind.count}f{row.dtype.bitwidth}.p0v{kind.count}f{row.dtype.bitwidth}"
        told = ir.FunctionType(ir.VoidType(), [kind, place.type, INT, inside.type])
        masked = cgutils.get_or_insert_function(builder.module, told, name)
        builder.call(masked, [args[1], place, INT(row.dtype.bitwidth // 8), inside])
        return context.get_dummy_value()

    return types.void(row, register), make


def _place(context: Any, builder: Any, row: Any, array: Any, start: Any, kind: Any) -> Any:
    """Where the numbers of a row from `start` lie."""
    data = context.make_array(row)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [start]), kind.as_pointer())


def _few(context: Any, builder: Any, row: Any, array: Any, kind: Any) -> tuple[Any, Any]:
    """Where a row lies, and which lanes of a register are inside it."""
    length = builder.extract_value(context.make_array(row)(context, builder, array).shape, 0)
    inside = builder.icmp_signed("<", _numbers(kind), _spread_count(builder, kind, length))
    return _place(context, builder, row, array, ir.IntType(64)(0), kind), inside


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
