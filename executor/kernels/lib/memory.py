"""Addresses as arrays, and calls by address: kernels reach buffers that Python owns.

Operators are compiled as C functions ``int64 op(int64 descriptor, int64 morsel)``. The loops that
call them through ``call_operator`` are compiled once, independently of any query."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

from cql.executor.jit.decorators import njit

_I64 = ir.IntType(64)


@intrinsic
def call_operator(typingctx: Any, address: Any, descriptor: Any, morsel: Any) -> Any:
    """``((int64 (*)(int64, int64))address)(descriptor, morsel)``."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        function = ir.FunctionType(_I64, [_I64, _I64])
        return builder.call(builder.inttoptr(args[0], function.as_pointer()), args[1:])

    return types.int64(types.int64, types.int64, types.int64), codegen


@intrinsic
def call_function(typingctx: Any, address: Any, own: Any, arguments: Any, results: Any) -> Any:
    """``((int64 (*)(int64, int64, int64))address)(own, arguments, results)``: calls a user's
    function (``executor.udf.compile``)."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        function = ir.FunctionType(_I64, [_I64, _I64, _I64])
        return builder.call(builder.inttoptr(args[0], function.as_pointer()), args[1:])

    return types.int64(types.int64, types.int64, types.int64, types.int64), codegen


@intrinsic
def prefetch(typingctx: Any, address: Any) -> Any:
    """Prefetches the cache line of an address for reading and writing."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        function = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(ir.VoidType(), [pointer, word, word, word]),
            "llvm.prefetch.p0i8",
        )
        write, near, data = (ir.Constant(word, n) for n in (1, 3, 1))
        builder.call(function, [builder.inttoptr(args[0], pointer), write, near, data])
        return context.get_dummy_value()

    return types.void(types.int64), codegen


def _loader(kind: Any) -> Any:
    """``f(address)``: the unsigned number at an address, aligned or not; the first byte is the
    lowest."""

    @intrinsic
    def load(typingctx: Any, address: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = ir.IntType(kind.bitwidth).as_pointer()
            return builder.load(builder.inttoptr(args[0], pointer), align=1)

        return kind(types.int64), codegen

    return load


load_word = _loader(types.uint64)
load_half = _loader(types.uint32)


@intrinsic
def move_bytes(typingctx: Any, source: Any, target: Any, n: Any) -> Any:
    """Copies ``n`` bytes between buffers that may overlap (memmove)."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = ir.IntType(8).as_pointer()
        source, target = (builder.inttoptr(a, pointer) for a in args[:2])
        cgutils.raw_memmove(builder, target, source, args[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@intrinsic
def store_word(typingctx: Any, address: Any, value: Any) -> Any:
    """Writes a uint64 into the 8 bytes at an address, aligned or not."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[1], builder.inttoptr(args[0], _I64.as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.uint64), codegen


@intrinsic
def bits_of_f64(typingctx: Any, value: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], _I64)

    return types.int64(types.float64), codegen


@intrinsic
def f64_of_bits(typingctx: Any, value: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), codegen


@njit("int64(float64)", cache=True)
def key_bits(value: float) -> int:
    """The bits of a double as a grouping key: -0.0 equals 0.0 and all NaNs are equal."""
    if value != value:
        return 0x7FF8000000000000
    return bits_of_f64(value + 0.0)


def _view(dtype: Any) -> Any:
    """``f(address, n)``: the ``n`` values at an address as an array that does not own its memory.
    An intrinsic, because each ``carray`` takes 20 ms to compile. Generated kernels use ``views``
    instead."""

    @intrinsic
    def view(typingctx: Any, address: Any, n: Any) -> Any:
        array = types.Array(dtype, 1, "C")

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            size = context.get_abi_sizeof(context.get_data_type(dtype))
            item = context.get_constant(types.intp, size)
            result = make_array(array)(context, builder)
            data = builder.inttoptr(args[0], context.get_data_type(dtype).as_pointer())
            populate_array(
                result,
                data=data,
                shape=cgutils.pack_array(builder, [args[1]]),
                strides=cgutils.pack_array(builder, [item]),
                itemsize=item,
                meminfo=None,
            )
            return result._getvalue()

        return array(types.int64, types.int64), codegen

    return view


words = _view(types.int64)
as_u8 = _view(types.uint8)
as_i8 = _view(types.int8)
as_i16 = _view(types.int16)
as_i32 = _view(types.int32)
as_f32 = _view(types.float32)
as_f64 = _view(types.float64)


@intrinsic
def lines(typingctx: Any, address: Any, n: Any, width: Any) -> Any:
    """``n`` lines of ``width`` words at an address, as an array that does not own its memory."""
    array = types.Array(types.int64, 2, "C")

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        result, item = make_array(array)(context, builder), context.get_constant(types.intp, 8)
        populate_array(
            result,
            data=builder.inttoptr(args[0], _I64.as_pointer()),
            shape=cgutils.pack_array(builder, args[1:]),
            strides=cgutils.pack_array(builder, [builder.mul(args[2], item), item]),
            itemsize=item,
            meminfo=None,
        )
        return result._getvalue()

    return array(types.int64, types.int64, types.int64), codegen


@njit("int64(int64, int64, int64)", cache=True)
def integer_at(address: int, size: int, i: int) -> int:
    """Value ``i`` of a column of signed integers of ``size`` bytes (1, 2, 4 or 8)."""
    if size == 8:
        return words(address, i + 1)[i]
    if size == 4:
        return int(as_i32(address, i + 1)[i])
    if size == 2:
        return int(as_i16(address, i + 1)[i])
    return int(as_i8(address, i + 1)[i])


@njit("void(int64, int64, int64, int64)", cache=True)
def put_integer(address: int, size: int, i: int, value: int) -> None:
    """Writes value ``i`` of a column of signed integers of ``size`` bytes (1, 2, 4 or 8)."""
    if size == 8:
        words(address, i + 1)[i] = value
    elif size == 4:
        as_i32(address, i + 1)[i] = value
    elif size == 2:
        as_i16(address, i + 1)[i] = value
    else:
        as_i8(address, i + 1)[i] = value


@njit("void(int64, int64, int64)", cache=True)
def copy_bytes(source: int, target: int, n: int) -> None:
    """Copies ``n`` bytes between buffers that do not overlap."""
    head = n >> 3
    a = words(source, head)
    b = words(target, head)
    for i in range(head):
        b[i] = a[i]
    done = head << 3
    c = as_u8(source + done, n - done)
    d = as_u8(target + done, n - done)
    for i in range(n - done):
        d[i] = c[i]


@njit(inline="always")
def same_bytes(a: int, b: int, n: int) -> bool:
    """Whether the ``n`` bytes at two addresses are equal."""
    k = 0
    while k + 8 <= n:
        if load_word(a + k) != load_word(b + k):
            return False
        k += 8
    left, right = as_u8(a, n), as_u8(b, n)
    while k < n:
        if left[k] != right[k]:
            return False
        k += 1
    return True
