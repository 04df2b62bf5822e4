"""Strings to dense int32 codes: one growing hash table over a byte arena (hash, then verify).

Arrays: ``places`` int32 (code + 1, 0 empty, a power of two of them), ``hashes`` int64 per code,
``starts`` int64 per code and one more, ``arena`` uint8.
"""

from __future__ import annotations

from typing import Any

from numba import int64, njit, uint64


@njit(inline="always")
def _hash(data: Any, start: int, end: int) -> int:
    h = uint64(end - start) * uint64(0x9E3779B97F4A7C15)
    i = start
    while i + 8 <= end:
        word = uint64(0)
        for k in range(8):
            word |= uint64(data[i + k]) << uint64(8 * k)
        h = (h ^ word) * uint64(0xBF58476D1CE4E5B9)
        h ^= h >> uint64(29)
        i += 8
    tail = uint64(0)
    while i < end:
        tail = (tail << uint64(8)) | uint64(data[i])
        i += 1
    h = (h ^ tail) * uint64(0x94D049BB133111EB)
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
    """Codes of strings ``first`` to ``n``; NULLs (valid[i] == 0) get code 0. Stops early when the
    table (half full at most) or the arena is full; returns (next row, codes used)."""
    mask = places.size - 1
    limit = min(hashes.size, places.size // 2)
    for i in range(first, n):
        if valid.size > 0 and valid[i] == 0:
            codes[i] = 0
            continue
        a = int64(offsets[i])
        b = int64(offsets[i + 1])
        h = _hash(data, a, b)
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
            if hashes[c] == h and starts[c + 1] - starts[c] == b - a:
                s = starts[c]
                same = True
                for k in range(b - a):
                    if arena[s + k] != data[a + k]:
                        same = False
                        break
                if same:
                    codes[i] = c
                    break
            p = (p + 1) & mask
    return n, used


@njit(
    "void(int32[::1], int64[::1], int64)",
    nogil=True,
    cache=True,
)
def index(places: Any, hashes: Any, used: int) -> None:
    """Fills empty ``places`` with the codes 1 to ``used``."""
    mask = places.size - 1
    for c in range(1, used):
        p = hashes[c] & mask
        while places[p] != 0:
            p = (p + 1) & mask
        places[p] = c + 1
