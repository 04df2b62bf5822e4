"""Dense int32 codes for strings: a growing hash table over an arena of bytes.

Its arrays: ``places``, int64, has the high half of a hash and below it code + 1 (0: empty), and its
size is a power of two; ``hashes``, int64, one per code; ``starts``, int64, the offset of each
code's text in the arena, and one more; ``depths``, uint8, one per code; ``arena``, uint8.

A kernel adds a text with ``add_text``, without Python. It finds the arrays by the words CONTROL.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import int64, types, uint64

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.atomics import compare_and_swap, load_relaxed, pause, store_release
from cql.executor.kernels.lib.intrinsics import folded_product
from cql.executor.kernels.lib.memory import (
    as_u8,
    copy_bytes,
    load_half,
    load_word,
    move_bytes,
    prefetch,
    same_bytes,
    words,
)

#: The words of a dictionary: who adds (0: nobody), addresses of the number of codes in use and of
#: the arrays, the number of codes that these have room for, and the bytes of the arena.
LOCK, USED, PLACES, HASHES, STARTS, DEPTHS, ARENA, ROOM, SIZE = range(9)
CONTROL = SIZE + 1
#: Who adds: a thread in Python, or a kernel.
PYTHON, KERNEL = 1, 2
#: Attempts to take the lock before the thread lets others run.
_ATTEMPTS = 64

#: Places of a cache of recent short texts: most columns hold few distinct texts.
_RECENT = 256
#: A short text has at most this number of bytes.
_SHORT = 8
#: For each length of a short text, the mask of its bytes in a word.
_BYTES = np.array([(1 << 8 * k) - 1 for k in range(_SHORT + 1)], np.uint64)
#: Texts that are hashed before the first of them is looked up, so that their places are in the
#: processor's cache by then.
_AHEAD = 64
#: The hash of a text whose code is known already.
_KNOWN = -1
_LOW = 0xFFFFFFFF
#: Odd numbers with as many ones as zeros.
_A, _B, _C = 0xA0761D6478BD642F, 0xE7037ED1A0B428DB, 0x8EBC6AF09C88C6E3
_sched_yield = types.ExternalFunction("sched_yield", types.int32())


@njit(inline="always")
def text_hash(data: int, start: int, end: int) -> int:
    """The hash of the bytes from ``start`` to ``end`` of those at address ``data``: 63 bits.

    Folded products of 16 bytes each, as in wyhash (Wang Yi, github.com/wangyi-fudan/wyhash). Two
    products at a time do not wait for each other, and the last bytes are read with some of those
    before them, so that the length decides one branch alone."""
    n = end - start
    at, last = data + start, data + end
    left, right = uint64(_A), uint64(_B)
    if n > 16:
        tail = max(at, last - 32)
        while at < tail:
            left = folded_product(load_word(at) ^ uint64(_A), load_word(at + 8) ^ left)
            right = folded_product(load_word(at + 16) ^ uint64(_B), load_word(at + 24) ^ right)
            at += 32
        left = folded_product(load_word(tail) ^ uint64(_A), load_word(tail + 8) ^ left)
        right = folded_product(load_word(last - 16) ^ uint64(_B), load_word(last - 8) ^ right)
    elif n >= 8:
        left ^= load_word(at)
        right ^= load_word(last - 8)
    elif n >= 4:
        left ^= uint64(load_half(at))
        right ^= uint64(load_half(last - 4))
    elif n > 0:
        few = as_u8(at, n)
        left ^= uint64(few[0]) | uint64(few[n >> 1]) << uint64(8)
        right ^= uint64(few[n - 1])
    mixed = folded_product(left, right) ^ uint64(n)
    return int64(folded_product(mixed ^ uint64(_A), uint64(_C)) >> uint64(1))


def _signature(offset: str) -> str:
    return (
        f"UniTuple(int64, 2)(Array(uint8, 1, 'C', readonly=True), Array({offset}, 1, 'C',"
        " readonly=True), Array(uint8, 1, 'C', readonly=True), int64, int64, int64[::1],"
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
    used).

    New strings that follow each other in ``data`` are copied at once: ``data[begun:]`` up to the
    latest of them is yet to be copied to ``arena[copied:]``."""
    mask = places.size - 1
    limit = min(hashes.size, places.size // 2)
    recent, lengths = np.zeros(_RECENT, np.uint64), np.full(_RECENT, -1)
    known = np.zeros(_RECENT, np.int32)
    hashed = np.empty(_AHEAD, np.int64)
    source, target = data.ctypes.data, arena.ctypes.data
    at_places = places.ctypes.data
    begun, copied = int64(0), starts[used]
    for row in range(first, n, _AHEAD):
        last = min(row + _AHEAD, n)
        unknown = 0
        for i in range(row, last):
            hashed[i - row] = _KNOWN
            if valid.size > 0 and valid[i] == 0:
                codes[i] = 0
                continue
            a, b = int64(offsets[i]), int64(offsets[i + 1])
            if b - a <= _SHORT and a + _SHORT <= data.size:
                word = load_word(source + a) & _BYTES[b - a]
                slot = int64((word * uint64(0x9E3779B97F4A7C15)) >> uint64(56))
                if recent[slot] == word and lengths[slot] == b - a:
                    codes[i] = known[slot]
                    continue
            h = text_hash(source, a, b)
            prefetch(at_places + 8 * (h & mask))
            hashed[i - row] = h
            unknown += 1
        if unknown == 0:
            continue
        for i in range(row, last):
            h = hashed[i - row]
            if h == _KNOWN:
                continue
            a, b = int64(offsets[i]), int64(offsets[i + 1])
            p = h & mask
            while True:
                found = places[p]
                if found == 0:
                    start = starts[used]
                    if used >= limit or start + (b - a) > arena.size:
                        move_bytes(source + begun, target + copied, start - copied)
                        return i, used
                    if a != begun + (start - copied):
                        move_bytes(source + begun, target + copied, start - copied)
                        begun, copied = a, start
                    hashes[used] = h
                    places[p] = (h >> 32 << 32) | (used + 1)
                    codes[i] = used
                    used += 1
                    starts[used] = start + (b - a)
                    break
                if (found ^ h) >> 32 == 0:
                    c = (found & _LOW) - 1
                    length = starts[c + 1] - starts[c]
                    if hashes[c] == h and length == b - a:
                        if starts[c + 1] > copied:
                            move_bytes(source + begun, target + copied, starts[used] - copied)
                            begun, copied = a, starts[used]
                        if same_bytes(source + a, target + starts[c], length):
                            codes[i] = c
                            break
                p = (p + 1) & mask
            if b - a <= _SHORT and a + _SHORT <= data.size:
                word = load_word(source + a) & _BYTES[b - a]
                slot = int64((word * uint64(0x9E3779B97F4A7C15)) >> uint64(56))
                recent[slot], lengths[slot], known[slot] = word, b - a, codes[i]
        # the bytes of these texts are still in the processor's cache
        move_bytes(source + begun, target + copied, starts[used] - copied)
        begun, copied = begun + (starts[used] - copied), starts[used]
    return n, used


@njit(
    "void(int64[::1], int64[::1], int64)",
    nogil=True,
    cache=True,
)
def index(places: Any, hashes: Any, used: int) -> None:
    """Enters the codes from 1 to ``used`` - 1 into empty ``places``."""
    mask = places.size - 1
    at_places = places.ctypes.data
    for c in range(1, used):
        prefetch(at_places + 8 * (hashes[min(c + _AHEAD, used - 1)] & mask))
        h = hashes[c]
        p = h & mask
        while places[p] != 0:
            p = (p + 1) & mask
        places[p] = (h >> 32 << 32) | (c + 1)


@njit(
    "int64(Array(boolean, 1, 'C', readonly=True), int64[::1], int64[::1], uint8[::1], uint8[::1],"
    " int32[::1])",
    nogil=True,
    cache=True,
)
def compact(live: Any, hashes: Any, starts: Any, depths: Any, arena: Any, renumbered: Any) -> int:
    """Moves the data of the codes that are ``live`` to the front of the arrays, in their order;
    ``renumbered`` becomes the new code of each of them. Returns the number of codes that are left.
    Neighbours are moved at once: ``arena[begun:ended]`` is yet to be moved, to
    ``arena[moved:]``."""
    at = arena.ctypes.data
    used, begun, ended, moved = 0, int64(0), int64(0), int64(0)
    for c in range(live.size):
        if not live[c]:
            continue
        start, end = starts[c], starts[c + 1]
        if start != ended:
            move_bytes(at + begun, at + moved, ended - begun)
            moved += ended - begun
            begun = start
        ended = end
        renumbered[c] = used
        hashes[used], depths[used] = hashes[c], depths[c]
        starts[used] = moved + (start - begun)
        used += 1
    move_bytes(at + begun, at + moved, ended - begun)
    starts[used] = moved + (ended - begun)
    return used


@njit("void(int64, int64)", nogil=True, cache=True)
def take_lock(control: int, holder: int) -> None:
    """Waits until nobody adds to the dictionary; then only ``holder`` may."""
    attempts = 0
    while load_relaxed(control) != 0 or compare_and_swap(control, 0, holder) != 0:
        attempts += 1
        if attempts % _ATTEMPTS == 0:
            _sched_yield()
        else:
            pause()


@njit("void(int64, int64)", nogil=True, cache=True)
def release_lock(control: int, holder: int) -> None:
    """Releases the lock if ``holder`` has it."""
    compare_and_swap(control, holder, 0)


@njit("int64(int64, int64, int64, int64)", nogil=True, cache=True)
def add_text(control: int, data: int, n: int, depth: int) -> int:
    """The code of the ``n`` bytes at address ``data``, a new one at ``depth`` if the dictionary
    does not have them; -1 if it has no room. Safe from any thread without the GIL."""
    c, h = words(control, CONTROL), text_hash(data, 0, n)
    take_lock(control, KERNEL)
    room = c[ROOM]
    places, mask = words(c[PLACES], 2 * room), 2 * room - 1
    hashes, starts = words(c[HASHES], room), words(c[STARTS], room + 1)
    used = words(c[USED], 1)[0]
    p, code = h & mask, -1
    while True:
        found = places[p]
        if found == 0:
            start = starts[used]
            if used < room and start + n <= c[SIZE]:
                code = used
                copy_bytes(data, c[ARENA] + start, n)
                hashes[code], starts[code + 1] = h, start + n
                as_u8(c[DEPTHS], room)[code] = depth
                places[p] = (h >> 32 << 32) | (code + 1)
                store_release(c[USED], code + 1)
            break
        if (found ^ h) >> 32 == 0:
            k = (found & _LOW) - 1
            same = hashes[k] == h and starts[k + 1] - starts[k] == n
            if same and same_bytes(data, c[ARENA] + starts[k], n):
                code = k
                break
        p = (p + 1) & mask
    release_lock(control, KERNEL)
    return code
