"""UTF-8: what is valid, and how many characters bytes have."""

from __future__ import annotations

from typing import Any

from numba import int64, uint64

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.memory import load_word
from cql.executor.kernels.texts.block import WIDE, high_bytes, lowest
from cql.executor.kernels.texts.search import BYTES, FLAGS, PLACES

_HIGH = 0x8080808080808080


@njit(inline="always")
def is_ascii(data: Any, start: int, end: int) -> bool:
    """Whether all bytes from ``start`` to ``end`` are ASCII."""
    begin, at = data.ctypes.data, start
    seen = uint64(0)
    while at + 8 <= end:
        seen |= load_word(begin + at)
        at += 8
    while at < end:
        seen |= uint64(data[at]) << uint64(56)
        at += 1
    return seen & uint64(_HIGH) == 0


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
