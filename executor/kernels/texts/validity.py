"""Which bytes are UTF-8.

Where the processor looks up 32 bytes at once (AVX2), 32 places are tested by one instruction each:
J. Keiser, D. Lemire, "Validating UTF-8 in less than one instruction per byte" (2021), section 6.
Elsewhere bytes that are not ASCII are tested one character after the other. A kernel reads no byte
outside of its array, whatever the bytes are.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import int64, types, uint32
from numba.extending import intrinsic

from cql.executor.jit.decorators import njit
from cql.executor.kernels.texts.block import VECTOR, WIDE, high_bytes, loaded, lowest
from cql.executor.kernels.texts.search import BYTES, FLAGS, PLACES

#: Texts whose bytes stay in the cache between two looks at them.
_TEXTS = 1024

# What two bytes in a row have against them; a bit that all three tables have is an error.
_SHORT, _LONG, _LOW_3, _HIGH, _SURROGATE, _LOW_2, _LOW_4, _TWO = (1 << k for k in range(8))
_ANY = _SHORT | _LONG | _TWO
_ABOVE = _ANY | _HIGH | _LOW_4  # 0xF5 and higher begin no character, as 0xF0 0x80 does not
#: By the high and by the low half of the first byte, and by the high half of the second.
_FIRST_HIGH = [*[_LONG] * 8, *[_TWO] * 4, _SHORT | _LOW_2, _SHORT, _SHORT | _LOW_3 | _SURROGATE,
               _SHORT | _HIGH | _LOW_4]  # fmt: skip
_FIRST_LOW = [_ANY | _LOW_3 | _LOW_2 | _LOW_4, _ANY | _LOW_2, _ANY, _ANY, _ANY | _HIGH,
              *[_ABOVE] * 8, _ABOVE | _SURROGATE, *[_ABOVE] * 2]  # fmt: skip
_FOLLOWS = _LONG | _LOW_2 | _TWO
_SECOND_HIGH = [*[_SHORT] * 8, _FOLLOWS | _LOW_3 | _LOW_4, _FOLLOWS | _LOW_3 | _HIGH,
                *[_FOLLOWS | _SURROGATE | _HIGH] * 2, *[_SHORT] * 4]  # fmt: skip


def _has_lookup(context: Any) -> bool:
    _, _, features = context.codegen().magic_tuple()
    return "+avx2" in features.split(",")


@intrinsic
def _tests_blocks(typingctx: Any) -> Any:
    """Whether ``_invalid`` is there."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return ir.Constant(ir.IntType(1), int(_has_lookup(context)))

    return types.boolean(), codegen


@intrinsic
def _invalid(typingctx: Any, address: Any) -> Any:
    """Bit *k*: byte *k* of the 32 bytes at an address cannot lie behind the three bytes before it.
    What is missing behind the last byte is no error."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if not _has_lookup(context):
            return ir.Constant(ir.IntType(32), 0)
        pair = ir.FunctionType(VECTOR, [VECTOR, VECTOR])
        entries = builder.module.declare_intrinsic("llvm.x86.avx2.pshuf.b", (), pair)
        above = builder.module.declare_intrinsic("llvm.usub.sat.v32i8", (), pair)

        def same(byte: int) -> Any:
            return ir.Constant(VECTOR, [byte] * WIDE)

        def found(table: list[int], places: Any) -> Any:
            return builder.call(entries, [ir.Constant(VECTOR, table * 2), places])

        def high(places: Any) -> Any:
            return builder.lshr(places, same(4))

        here, *before = (
            loaded(builder, builder.sub(args[0], ir.Constant(ir.IntType(64), k))) for k in range(4)
        )
        first = builder.and_(
            found(_FIRST_HIGH, high(before[0])),
            found(_FIRST_LOW, builder.and_(before[0], same(15))),
        )
        wrong = builder.and_(first, found(_SECOND_HIGH, high(here)))
        third = builder.call(above, [before[1], same(0xE0 - 0x80)])
        fourth = builder.call(above, [before[2], same(0xF0 - 0x80)])
        must_follow = builder.and_(builder.or_(third, fourth), same(0x80))
        errors = builder.icmp_unsigned("!=", builder.xor(wrong, must_follow), same(0))
        return builder.bitcast(errors, ir.IntType(32))

    return types.uint32(types.int64), codegen


@njit(inline="always")
def _sequence(data: Any, at: int, end: int) -> int:
    """The length of the valid character at ``at``; 0 if there is none (as Python decodes)."""
    a = int64(data[at])
    if a < 0x80:
        return 1
    if a < 0xC2 or a > 0xF4:
        return 0
    n = 2 if a < 0xE0 else 3 if a < 0xF0 else 4
    if at + n > end:
        return 0
    b = int64(data[at + 1])
    least = 0xA0 if a == 0xE0 else 0x90 if a == 0xF0 else 0x80
    most = 0x9F if a == 0xED else 0x8F if a == 0xF4 else 0xBF
    if b < least or b > most:
        return 0
    for k in range(2, n):
        if data[at + k] & 0xC0 != 0x80:
            return 0
    return n


@njit(inline="always")
def _valid_to(data: Any, start: int, end: int) -> int:
    """The place of the first character from ``start`` on that is not valid; ``end`` if all are."""
    begin, at = data.ctypes.data, start
    while at < end:
        if at + WIDE <= end:
            high = high_bytes(begin + at)
            if high == 0:
                at += WIDE
                continue
            at += lowest(high)
        n = _sequence(data, at, end)
        if n == 0:
            return at
        at += n
    return end


@njit(inline="always")
def _are_valid(data: Any, start: int, end: int) -> bool:
    """Whether the bytes from ``start`` to ``end`` are whole valid characters."""
    begin, at = data.ctypes.data, start
    if not _tests_blocks():
        return _valid_to(data, start, end) == end
    while at < end and at < start + 3:
        n = _sequence(data, at, end)
        if n == 0:
            return False
        at += n
    wrong = uint32(0)
    while at + WIDE <= end:
        wrong = uint32(wrong | _invalid(begin + at))
        at += WIDE
    if wrong != 0:
        return False
    for k in range(1, 4):  # a character that is not complete yet
        if at - k < start or data[at - k] < 0x80:
            break
        if data[at - k] >= 0xC0:
            at -= k
            break
    return _valid_to(data, at, end) == end


@njit(f"boolean({BYTES}, {PLACES}, {PLACES})", nogil=True, cache=True)
def is_valid(data: Any, starts: Any, ends: Any) -> bool:
    """Whether texts that lie one after the other, at least one, are all UTF-8."""
    n, first = starts.size, 0
    while first < n:
        behind = min(first + _TEXTS, n)
        if not _are_valid(data, starts[first], ends[behind - 1]):
            return False
        inside = 0
        for i in range(first, behind):  # a character of two texts
            if starts[i] < data.size:
                inside |= int64(data[starts[i]] & 0xC0 == 0x80)
        if inside != 0:
            return False
        first = behind
    return True


@njit(f"boolean({BYTES}, {PLACES}, {PLACES}, {FLAGS})", nogil=True, cache=True)
def find_invalid(data: Any, starts: Any, ends: Any, invalid: Any) -> bool:
    """Sets ``invalid[i]`` to 1 for each text that is not UTF-8; returns whether there is one."""
    found = False
    for i in range(starts.size):
        if _valid_to(data, starts[i], ends[i]) < ends[i]:
            invalid[i] = 1
            found = True
    return found
