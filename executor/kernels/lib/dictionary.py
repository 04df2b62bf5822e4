"""Dense int32 codes for strings: a growing hash table over an arena of bytes.

Its arrays: ``places``, int32, holds code + 1 (0: empty) and its size is a power of two; ``hashes``,
int64, one per code; ``starts``, int64, the offset of each code's text in the arena, and one more;
``arena``, uint8.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import int64, uint64

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.memory import as_u8, load_word, same_bytes

#: Places of a cache of recent short texts: most columns hold few distinct texts.
_RECENT = 256
#: A short text has at most this number of bytes.
_SHORT = 8
#: For each length of a short text, the mask of its bytes in a word.
_BYTES = np.array([(1 << 8 * k) - 1 for k in range(_SHORT + 1)], np.uint64)


@njit(inline="always")
def _few(data: int, size: int, at: int, n: int) -> int:
    """The ``n`` bytes (at most 8) from offset ``at`` on as a word; ``data`` has ``size`` bytes."""
    if at + _SHORT <= size:
        return load_word(data + at) & _BYTES[n]
    word = uint64(0)
    for k in range(n):
        word |= uint64(as_u8(data, size)[at + k]) << uint64(8 * k)
    return word


@njit(inline="always")
def text_hash(data: int, size: int, start: int, end: int) -> int:
    """The hash of the bytes from ``start`` to ``end`` of the ``size`` bytes at address ``data``."""
    h = uint64(end - start) * uint64(0x9E3779B97F4A7C15)
    i = start
    while i + 8 <= end:
        h = (h ^ load_word(data + i)) * uint64(0xBF58476D1CE4E5B9)
        h ^= h >> uint64(29)
        i += 8
    h = (h ^ _few(data, size, i, end - i)) * uint64(0x94D049BB133111EB)
    return int64((h ^ (h >> uint64(32))) >> uint64(1))


def _signature(offset: str) -> str:
    return (
        f"UniTuple(int64, 2)(Array(uint8, 1, 'C', readonly=True), Array({offset}, 1, 'C',"
        " readonly=True), Array(uint8, 1, 'C', readonly=True), int64, int64, int32[::1],"
        " int64[::1], int64[::1], uint8[::1], int64, int32[::1])"
    )


@njit([_signature("int32"), _signature("int64")], nogil=True, cache=True)
def encode(
    data: Any,
    offsets: Any,
    valid: Any,
    first: int,
    n: int,
    places: Any,
    hashes: Any,
    starts: Any,
    arena: Any,
    used: int,
    codes: Any,
) -> Any:
    """Writes the codes of the strings ``first`` to ``n``; a NULL (valid[i] == 0) gets code 0. Stops
    early when the table (at most half full) or the arena is full. Returns (next row, codes
    used)."""
    mask = places.size - 1
    limit = min(hashes.size, places.size // 2)
    recent, lengths = np.zeros(_RECENT, np.uint64), np.full(_RECENT, -1)
    known = np.zeros(_RECENT, np.int32)
    begin, kept = data.ctypes.data, arena.ctypes.data
    for i in range(first, n):
        if valid.size > 0 and valid[i] == 0:
            codes[i] = 0
            continue
        a = int64(offsets[i])
        b = int64(offsets[i + 1])
        slot, word = -1, uint64(0)
        if b - a <= _SHORT and a + _SHORT <= data.size:
            word = load_word(begin + a) & _BYTES[b - a]
            slot = int64((word * uint64(0x9E3779B97F4A7C15)) >> uint64(56))
            if recent[slot] == word and lengths[slot] == b - a:
                codes[i] = known[slot]
                continue
        h = text_hash(begin, data.size, a, b)
        p = h & mask
        while True:
            c = places[p] - 1
            if c < 0:
                start = starts[used]
                if used >= limit or start + (b - a) > arena.size:
                    return i, used
                for k in range(b - a):
                    arena[start + k] = data[a + k]
                hashes[used] = h
                places[p] = used + 1
                used += 1
                starts[used] = start + (b - a)
                codes[i] = used - 1
                break
            length = starts[c + 1] - starts[c]
            if (
                hashes[c] == h
                and length == b - a
                and same_bytes(begin + a, kept + starts[c], length)
            ):
                codes[i] = c
                break
            p = (p + 1) & mask
        if slot >= 0:
            recent[slot], lengths[slot], known[slot] = word, b - a, codes[i]
    return n, used


@njit(
    "void(int32[::1], int64[::1], int64)",
    nogil=True,
    cache=True,
)
def index(places: Any, hashes: Any, used: int) -> None:
    """Enters the codes from 1 to ``used`` - 1 into empty ``places``."""
    mask = places.size - 1
    for c in range(1, used):
        p = hashes[c] & mask
        while places[p] != 0:
            p = (p + 1) & mask
        places[p] = c + 1
