"""Addresses as arrays, and calls by address: how kernels reach buffers that Python owns.

Operators are compiled as C functions ``int64 op(int64 descriptor, int64 unit)`` and called through
``call_operator`` from loops that were compiled before any query existed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, njit, types
from numba.extending import intrinsic

_I64 = ir.IntType(64)


@intrinsic
def address_to_pointer(typingctx: Any, address: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.int64), codegen


@intrinsic
def call_operator(typingctx: Any, address: Any, descriptor: Any, unit: Any) -> Any:
    """``((int64 (*)(int64, int64))address)(descriptor, unit)``."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        function = ir.FunctionType(_I64, [_I64, _I64])
        return builder.call(builder.inttoptr(args[0], function.as_pointer()), args[1:])

    return types.int64(types.int64, types.int64, types.int64), codegen


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


@njit(inline="always")
def key_bits(value: float) -> int:
    """The bits of a double as a grouping key: -0.0 is 0.0 and all NaNs are one."""
    if value != value:
        return 0x7FF8000000000000
    return bits_of_f64(value + 0.0)


@njit(inline="always")
def words(address: int, n: int) -> Any:
    """The ``n`` int64 words at ``address``."""
    return carray(address_to_pointer(address), (n,), np.int64)


@njit(inline="always")
def as_u8(address: int, n: int) -> Any:
    return carray(address_to_pointer(address), (n,), np.uint8)


@njit(inline="always")
def as_i8(address: int, n: int) -> Any:
    return carray(address_to_pointer(address), (n,), np.int8)


@njit(inline="always")
def as_i16(address: int, n: int) -> Any:
    return carray(address_to_pointer(address), (n,), np.int16)


@njit(inline="always")
def as_i32(address: int, n: int) -> Any:
    return carray(address_to_pointer(address), (n,), np.int32)


@njit(inline="always")
def as_f32(address: int, n: int) -> Any:
    return carray(address_to_pointer(address), (n,), np.float32)


@njit(inline="always")
def as_f64(address: int, n: int) -> Any:
    return carray(address_to_pointer(address), (n,), np.float64)


#: numpy dtype of a column's storage → the function that views an address as an array of it.
VIEWS = {
    "bool": "as_u8",
    "int8": "as_i8",
    "int16": "as_i16",
    "int32": "as_i32",
    "int64": "words",
    "float32": "as_f32",
    "float64": "as_f64",
}


@njit(inline="always")
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
