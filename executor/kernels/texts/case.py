"""Texts in capital letters, in small letters, and with a capital letter for each word."""

from __future__ import annotations

from typing import Any

from numba import uint32

from cql.executor.jit.decorators import njit
from cql.executor.kernels.texts.block import (
    WIDE,
    copy_case,
    equal_bytes,
    high_bytes,
    low_bits,
    lowest,
    without_lowest,
)
from cql.executor.kernels.texts.search import BYTES, FLAGS, PLACES
from cql.executor.kernels.texts.status import ODD, VALID
from cql.executor.kernels.texts.utf8 import code_point, sequence_end, write

_CODES = "Array(int32, 1, 'C', readonly=True)"
_SPACE, _SMALL = 0x20, 0x61
#: A character takes at most so many bytes more than before.
_GROWTH = 2
#: What ``change_case`` returns if it cannot go on.
NEEDS_TABLES, NEEDS_ROOM = -1, -2


@njit(inline="always")
def _capital(out: Any, at: int) -> None:
    """Makes a small ASCII letter a capital one."""
    if out[at] >= _SMALL and out[at] < _SMALL + 26:
        out[at] -= 0x20


@njit(
    f"int64({BYTES}, {PLACES}, {PLACES}, {FLAGS}, int64, boolean, {_CODES}, {_CODES}, {FLAGS},"
    f" {PLACES}, {PLACES})",
    nogil=True,
    cache=True,
)
def change_case(
    data: Any,
    starts: Any,
    ends: Any,
    status: Any,
    letters: int,
    words: bool,
    other: Any,
    capital: Any,
    out: Any,
    new_starts: Any,
    new_ends: Any,
) -> int:
    """Writes the texts with the case of the 26 ASCII letters from ``letters`` on changed; with
    ``words``, each character at the start or behind a space becomes a capital letter.

    ``other`` holds the new code point of each character, or -1 where Python computes the row;
    ``capital`` that of the first character of a word. Both may be empty as long as all texts are
    ASCII. ``out`` has a byte for each byte of a text, and 32 more. Returns the number of bytes
    written; NEEDS_TABLES; or NEEDS_ROOM: 2 bytes for each byte are enough."""
    begin, size, target, at = data.ctypes.data, data.size, out.ctypes.data, 0
    room = out.size - WIDE  # for what is written and the bytes that are left to read
    for i in range(starts.size):
        room -= ends[i] - starts[i]
    for i in range(starts.size):
        start, end = starts[i], ends[i]
        room += end - start
        new_starts[i] = at
        if status[i] != VALID:
            new_ends[i] = at
            continue
        fresh = words
        while start < end:
            if start + WIDE <= size:
                found = high_bytes(begin + start)
                n = min(lowest(found) if found != 0 else WIDE, end - start)
                copy_case(begin + start, target + at, letters)
                if words and n > 0:
                    if fresh:
                        _capital(out, at)
                    spaces = uint32(equal_bytes(begin + start, _SPACE) & low_bits(n - 1))
                    while spaces != 0:
                        _capital(out, at + lowest(spaces) + 1)
                        spaces = without_lowest(spaces)
                    fresh = data[start + n - 1] == _SPACE
                at += n
                start += n
            while start < end and (data[start] >= 0x80 or start + WIDE > size):
                behind = sequence_end(data, start, end)
                old = code_point(data, start, behind)
                new = old
                if old < 0x80:
                    first = _SMALL if fresh else letters
                    new = old ^ (0x20 if old >= first and old < first + 26 else 0)
                elif other.size == 0:
                    return NEEDS_TABLES
                elif old < other.size:
                    new = capital[old] if fresh else other[old]
                if new < 0:
                    status[i] = ODD
                    at, start = new_starts[i], end
                    break
                if at + end - start + _GROWTH > room:
                    return NEEDS_ROOM
                at = write(out, at, new)
                fresh = words and old == _SPACE
                start = behind
        new_ends[i] = at
    return at
