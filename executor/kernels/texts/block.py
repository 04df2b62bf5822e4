"""Instructions on blocks of bytes: comparison of 32 bytes at once, and copies without a call."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types, uint32
from numba.extending import intrinsic

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.memory import as_u8, load_word

#: Bytes that one instruction compares or copies.
WIDE = 32
_VECTOR = ir.VectorType(ir.IntType(8), WIDE)
_I32 = ir.IntType(32)


def _splat(builder: Any, byte: Any) -> Any:
    one = builder.insert_element(
        ir.Constant(_VECTOR, ir.Undefined), builder.trunc(byte, ir.IntType(8)), ir.Constant(_I32, 0)
    )
    zeros = ir.Constant(ir.VectorType(_I32, WIDE), [0] * WIDE)
    return builder.shuffle_vector(one, ir.Constant(_VECTOR, ir.Undefined), zeros)


def _loaded(builder: Any, address: Any) -> Any:
    return builder.load(builder.inttoptr(address, _VECTOR.as_pointer()), align=1)


@intrinsic
def equal_bytes(typingctx: Any, address: Any, byte: Any) -> Any:
    """Which of the 32 bytes at an address equal ``byte``: bit *k* for byte *k*."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        same = builder.icmp_unsigned("==", _loaded(builder, args[0]), _splat(builder, args[1]))
        return builder.bitcast(same, _I32)

    return types.uint32(types.int64, types.int64), codegen


@intrinsic
def equal_pairs(typingctx: Any, address: Any, first: Any, behind: Any, last: Any) -> Any:
    """Bit *k*: byte *k* at ``address`` equals ``first`` and byte *k* at ``behind`` equals
    ``last``."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        a = builder.icmp_unsigned("==", _loaded(builder, args[0]), _splat(builder, args[1]))
        b = builder.icmp_unsigned("==", _loaded(builder, args[2]), _splat(builder, args[3]))
        return builder.bitcast(builder.and_(a, b), _I32)

    return types.uint32(types.int64, types.int64, types.int64, types.int64), codegen


@intrinsic
def high_bytes(typingctx: Any, address: Any) -> Any:
    """Which of the 32 bytes at an address are above 127: bit *k* for byte *k*."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        zeros = ir.Constant(_VECTOR, [0] * WIDE)
        high = builder.icmp_signed("<", _loaded(builder, args[0]), zeros)
        return builder.bitcast(high, _I32)

    return types.uint32(types.int64), codegen


@intrinsic
def copy_wide(typingctx: Any, source: Any, target: Any) -> Any:
    """Copies 32 bytes."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = _loaded(builder, args[0])
        builder.store(value, builder.inttoptr(args[1], _VECTOR.as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def lowest(typingctx: Any, mask: Any) -> Any:
    """The place of the lowest bit of a mask that is not 0."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        found = builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))
        return builder.zext(found, ir.IntType(64))

    return types.int64(types.uint32), codegen


@njit(inline="always")
def without_lowest(mask: int) -> int:
    return uint32(mask & (mask - uint32(1)))


@njit(inline="always")
def copy(source: int, source_end: int, target: int, target_end: int, n: int) -> None:
    """Copies ``n`` bytes. May also write behind them, below ``target_end``, and read behind them,
    below ``source_end``: the ends of what may be accessed."""
    k = 0
    if source + n + WIDE <= source_end and target + n + WIDE <= target_end:
        while k < n:
            copy_wide(source + k, target + k)
            k += WIDE
        return
    a, b = as_u8(source, n), as_u8(target, n)
    while k < n:
        b[k] = a[k]
        k += 1


@njit(inline="always")
def same(a: int, b: int, n: int) -> bool:
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
