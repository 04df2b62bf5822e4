"""UTF-8: characters and their places.

A kernel reads no byte outside of its array, whatever the bytes are.
"""

from __future__ import annotations

from typing import Any

from numba import int64, uint32

from cql.executor.jit.decorators import njit
from cql.executor.kernels.texts.block import (
    WIDE,
    first_bytes,
    low_bits,
    number_of_bits,
    without_lowest,
)


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
            within = uint32(~found)  # the bytes that are within characters
            while within & low_bits(left + 1) != 0:
                within = without_lowest(within)
                left += 1
            return min(at + left, end)
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
