"""UTF-8: what is valid, characters and their places.

A kernel reads no byte outside of its array, whatever the bytes are.
"""

from __future__ import annotations

from typing import Any

from numba import int64, uint32

from cql.executor.jit.decorators import njit
from cql.executor.kernels.texts.block import (
    WIDE,
    first_bytes,
    high_bytes,
    low_bits,
    lowest,
    number_of_bits,
    without_lowest,
)
from cql.executor.kernels.texts.search import BYTES, FLAGS, PLACES


@njit(inline="always")
def is_ascii(data: Any, start: int, end: int) -> bool:
    """Whether all bytes from ``start`` to ``end`` are ASCII."""
    begin, size, at = data.ctypes.data, data.size, start
    seen = uint32(0)
    while at < end and at + WIDE <= size:
        found = high_bytes(begin + at)
        if end - at < WIDE:
            found = uint32(found & low_bits(end - at))
        seen = uint32(seen | found)
        at += WIDE
    while at < end:
        if data[at] >= 0x80:
            return False
        at += 1
    return seen == 0


@njit(inline="always")
def count(data: Any, start: int, end: int) -> int:
    """How many characters the bytes from ``start`` to ``end`` have."""
    begin, size, at, n = data.ctypes.data, data.size, start, 0
    while at < end and at + WIDE <= size:
        found = first_bytes(begin + at)
        if end - at < WIDE:
            found = uint32(found & low_bits(end - at))
        n += number_of_bits(found)
        at += WIDE
    while at < end:
        n += data[at] & 0xC0 != 0x80
        at += 1
    return n


@njit(inline="always")
def skip(data: Any, start: int, end: int, n: int) -> int:
    """The offset behind ``n`` characters, 0 or more, from ``start`` on; at most ``end``."""
    begin, size, at, left = data.ctypes.data, data.size, start, n
    if left >= end - start:
        return end
    while at < end:
        if at + WIDE <= size:
            found = first_bytes(begin + at)
            here = number_of_bits(found)
            if here <= left:
                left -= here
                at += WIDE
                continue
            if here == WIDE:
                return min(at + left, end)
            while left > 0:
                found = without_lowest(found)
                left -= 1
            return min(at + lowest(found), end)
        if data[at] & 0xC0 != 0x80:
            if left == 0:
                return at
            left -= 1
        at += 1
    return end


@njit(inline="always")
def sequence_end(data: Any, at: int, end: int) -> int:
    """The end of the character at ``at``, before ``end``."""
    at += 1
    while at < end and data[at] & 0xC0 == 0x80:
        at += 1
    return at


@njit(inline="always")
def code_point(data: Any, at: int, behind: int) -> int:
    """The code point of the character from ``at`` to ``behind``."""
    first, n = int64(data[at]), behind - at
    code = first if n == 1 else first & 0x1F if n == 2 else first & 0x0F if n == 3 else first & 0x07
    for k in range(at + 1, behind):
        code = (code << 6) | (int64(data[k]) & 0x3F)
    return code


@njit(inline="always")
def write(out: Any, at: int, code: int) -> int:
    """Writes a code point at ``out[at:]``; returns the offset behind it."""
    if code < 0x80:
        out[at] = code
        return at + 1
    if code < 0x800:
        out[at] = 0xC0 | (code >> 6)
        out[at + 1] = 0x80 | (code & 0x3F)
        return at + 2
    if code < 0x10000:
        out[at] = 0xE0 | (code >> 12)
        out[at + 1] = 0x80 | ((code >> 6) & 0x3F)
        out[at + 2] = 0x80 | (code & 0x3F)
        return at + 3
    out[at] = 0xF0 | ((code >> 18) & 0x07)
    out[at + 1] = 0x80 | ((code >> 12) & 0x3F)
    out[at + 2] = 0x80 | ((code >> 6) & 0x3F)
    out[at + 3] = 0x80 | (code & 0x3F)
    return at + 4


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


@njit(f"boolean({BYTES}, {PLACES}, {PLACES})", nogil=True, cache=True)
def is_valid(data: Any, starts: Any, ends: Any) -> bool:
    """Whether texts that lie one after the other, at least one, are all UTF-8."""
    n = starts.size
    if _valid_to(data, starts[0], ends[n - 1]) < ends[n - 1]:
        return False
    inside = 0
    for i in range(n):  # a character of two texts
        if starts[i] < data.size:
            inside |= int64(data[starts[i]] & 0xC0 == 0x80)
    return inside == 0


@njit(f"boolean({BYTES}, {PLACES}, {PLACES}, {FLAGS})", nogil=True, cache=True)
def find_invalid(data: Any, starts: Any, ends: Any, invalid: Any) -> bool:
    """Sets ``invalid[i]`` to 1 for each text that is not UTF-8; returns whether there is one."""
    found = False
    for i in range(starts.size):
        if _valid_to(data, starts[i], ends[i]) < ends[i]:
            invalid[i] = 1
            found = True
    return found
