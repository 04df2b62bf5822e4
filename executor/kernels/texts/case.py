"""Texts in capital letters, in small letters, and with a capital letter for each word."""

from __future__ import annotations

from typing import Any

from numba import uint32

from cql.executor.jit.decorators import njit
from cql.executor.kernels.texts.block import (
    WIDE,
    copy_case,
    equal_bytes,
    low_bits,
    lowest,
    without_lowest,
)
from cql.executor.kernels.texts.search import BYTES, FLAGS, PLACES
from cql.executor.kernels.texts.utf8 import code_point, is_ascii, sequence_end, write
from cql.executor.texts.column import ODD, VALID

_CODES = "Array(int32, 1, 'C', readonly=True)"
_SPACE = 0x20


@njit(inline="always")
def _capital(out: Any, at: int) -> None:
    if out[at] >= 97 and out[at] <= 122:
        out[at] -= 32


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
    ASCII. ``out`` has 2 bytes for each byte of a text, and 32 more. Returns the number of bytes
    written; -1 if it needs the tables."""
    begin, size, target, at = data.ctypes.data, data.size, out.ctypes.data, 0
    for i in range(starts.size):
        start, end = starts[i], ends[i]
        new_starts[i] = at
        if status[i] != VALID:
            new_ends[i] = at
            continue
        if is_ascii(data, start, end):
            n, k = end - start, 0
            while k < n and start + k + WIDE <= size:
                copy_case(begin + start + k, target + at + k, letters)
                k += WIDE
            while k < n:
                letter = data[start + k] - letters
                out[at + k] = data[start + k] ^ (0x20 if letter >= 0 and letter < 26 else 0)
                k += 1
            if words and n > 0:
                _capital(out, at)
                k = 0
                while k < n and start + k + WIDE <= size:
                    spaces = equal_bytes(begin + start + k, _SPACE)
                    left = n - 1 - k  # a space at the end has no word behind it
                    if left < WIDE:
                        spaces = uint32(spaces & low_bits(left))
                    while spaces != 0:
                        _capital(out, at + k + lowest(spaces) + 1)
                        spaces = without_lowest(spaces)
                    k += WIDE
                while k < n - 1:
                    if data[start + k] == _SPACE:
                        _capital(out, at + k + 1)
                    k += 1
            at += n
            new_ends[i] = at
            continue
        if other.size == 0:
            return -1
        fresh = words
        while start < end:
            behind = sequence_end(data, start, end)
            code = code_point(data, start, behind)
            new = code
            if code >= 0 and code < other.size:
                new = capital[code] if fresh else other[code]
            if new < 0:
                status[i] = ODD
                at = new_starts[i]
                break
            at = write(out, at, new)
            fresh = words and code == _SPACE
            start = behind
        new_ends[i] = at
    return at
