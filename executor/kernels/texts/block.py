"""Instructions on blocks of bytes: tests of 32 bytes at once, and copies without a call."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import int64, types, uint32
from numba.extending import intrinsic

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.memory import as_u8

#: Bytes that one instruction compares or copies.
WIDE = 32
_STEPS = 4
#: Bytes behind a text that ``copy`` may read and write.
BEHIND = _STEPS * WIDE
#: Their type.
VECTOR = ir.VectorType(ir.IntType(8), WIDE)
_I32 = ir.IntType(32)


def _splat(builder: Any, byte: Any) -> Any:
    one = builder.insert_element(
        ir.Constant(VECTOR, ir.Undefined), builder.trunc(byte, ir.IntType(8)), ir.Constant(_I32, 0)
    )
    zeros = ir.Constant(ir.VectorType(_I32, WIDE), [0] * WIDE)
    return builder.shuffle_vector(one, ir.Constant(VECTOR, ir.Undefined), zeros)


def loaded(builder: Any, address: Any) -> Any:
    """The instruction that loads 32 bytes."""
    return builder.load(builder.inttoptr(address, VECTOR.as_pointer()), align=1)


@intrinsic
def equal_bytes(typingctx: Any, address: Any, byte: Any) -> Any:
    """Which of the 32 bytes at an address equal ``byte``: bit *k* for byte *k*."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        same = builder.icmp_unsigned("==", loaded(builder, args[0]), _splat(builder, args[1]))
        return builder.bitcast(same, _I32)

    return types.uint32(types.int64, types.int64), codegen


@intrinsic
def equal_pairs(typingctx: Any, address: Any, first: Any, behind: Any, last: Any) -> Any:
    """Bit *k*: byte *k* at ``address`` equals ``first`` and byte *k* at ``behind`` equals
    ``last``."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        a = builder.icmp_unsigned("==", loaded(builder, args[0]), _splat(builder, args[1]))
        b = builder.icmp_unsigned("==", loaded(builder, args[2]), _splat(builder, args[3]))
        return builder.bitcast(builder.and_(a, b), _I32)

    return types.uint32(types.int64, types.int64, types.int64, types.int64), codegen


def _tested(operation: str, byte: int) -> Any:
    """Compares 32 bytes, as signed numbers, with a constant."""

    @intrinsic
    def test(typingctx: Any, address: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            other = ir.Constant(VECTOR, [byte] * WIDE)
            found = builder.icmp_signed(operation, loaded(builder, args[0]), other)
            return builder.bitcast(found, _I32)

        return types.uint32(types.int64), codegen

    return test


#: Which of the 32 bytes at an address begin a character of UTF-8: bit *k* for byte *k*.
first_bytes = _tested(">", -65)
#: Which of the 32 bytes at an address are not ASCII.
high_bytes = _tested("<", 0)


@intrinsic
def copy_wide(typingctx: Any, source: Any, target: Any) -> Any:
    """Copies 32 bytes."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = loaded(builder, args[0])
        builder.store(value, builder.inttoptr(args[1], VECTOR.as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def copy_case(typingctx: Any, source: Any, target: Any, first: Any) -> Any:
    """Copies 32 bytes and changes the case of the 26 ASCII letters from ``first`` on: 65 for the
    capital letters, 97 for the small ones."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = loaded(builder, args[0])
        letter = builder.sub(value, _splat(builder, args[2]))
        inside = builder.icmp_unsigned("<", letter, ir.Constant(VECTOR, [26] * WIDE))
        other, none = (ir.Constant(VECTOR, [byte] * WIDE) for byte in (32, 0))
        changed = builder.xor(value, builder.select(inside, other, none))
        builder.store(changed, builder.inttoptr(args[1], VECTOR.as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@intrinsic
def copy_backwards(typingctx: Any, source: Any, target: Any) -> Any:
    """Copies 32 bytes in the opposite order."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        order = ir.Constant(ir.VectorType(_I32, WIDE), list(range(WIDE - 1, -1, -1)))
        none = ir.Constant(VECTOR, ir.Undefined)
        turned = builder.shuffle_vector(loaded(builder, args[0]), none, order)
        builder.store(turned, builder.inttoptr(args[1], VECTOR.as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def copy_as_digits(typingctx: Any, source: Any, target: Any) -> Any:
    """Writes the 32 hexadecimal digits of 16 bytes."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        half = ir.VectorType(ir.IntType(8), WIDE // 2)
        value = builder.load(builder.inttoptr(args[0], half.as_pointer()), align=1)
        high = builder.lshr(value, ir.Constant(half, [4] * (WIDE // 2)))
        low = builder.and_(value, ir.Constant(half, [15] * (WIDE // 2)))
        order = [
            k for pair in zip(range(WIDE // 2), range(WIDE // 2, WIDE), strict=True) for k in pair
        ]
        digits = builder.shuffle_vector(high, low, ir.Constant(ir.VectorType(_I32, WIDE), order))
        nine, zero, letter = (ir.Constant(VECTOR, [byte] * WIDE) for byte in (9, 48, 55))
        above = builder.icmp_unsigned(">", digits, nine)
        written = builder.add(digits, builder.select(above, letter, zero))
        builder.store(written, builder.inttoptr(args[1], VECTOR.as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def number_of_bits(typingctx: Any, mask: Any) -> Any:
    """How many bits of a mask are 1."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.zext(builder.ctpop(args[0]), ir.IntType(64))

    return types.int64(types.uint32), codegen


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
def low_bits(n: int) -> int:
    """A mask of the ``n`` lowest bits, at most 32."""
    return uint32((int64(1) << n) - 1)


@njit(inline="always")
def copy(source: int, source_end: int, target: int, target_end: int, n: int) -> None:
    """Copies ``n`` bytes. May also write behind them, below ``target_end``, and read behind them,
    below ``source_end``: the ends of what may be accessed. At most BEHIND bytes behind the two, it
    copies byte by byte."""
    if source + n + BEHIND <= source_end and target + n + BEHIND <= target_end:
        copy_wide(source, target)
        k = WIDE  # long texts take few steps: their number is hard to predict
        while k < n:
            for part in range(_STEPS):
                copy_wide(source + k + WIDE * part, target + k + WIDE * part)
            k += WIDE * _STEPS
        return
    a, b = as_u8(source, n), as_u8(target, n)
    for k in range(n):
        b[k] = a[k]
