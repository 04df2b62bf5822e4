"""A hash index from key words to dense ids; ids can be freed.

``table`` holds id + 1 (0: empty) at the place of the key's hash or at the next empty place behind
it; its size is a power of two. ``keys`` holds the words of each id. ``free`` is a stack of the
``control[FREE]`` free ids.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.hashing import hash_end, hash_next, hash_start
from cql.executor.kernels.lib.memory import prefetch

FREE = 0  # word of control: the number of free ids
FLAGS = 62  # NULL flags (one per column) in a key word behind the words of the columns
#: Prefetch distance in rows: the place in the table this far ahead, the key there half as far.
_AHEAD = 16


@njit(inline="always")
def _hash(keys: Any, row: int) -> int:
    h = hash_start(keys[row, 0])
    for w in range(1, keys.shape[1]):
        h = hash_next(h, keys[row, w])
    return int(hash_end(h))


@njit(inline="always")
def _same(a: Any, i: int, b: Any, j: int) -> bool:
    same = True
    for w in range(a.shape[1]):
        same &= a[i, w] == b[j, w]
    return bool(same)


@njit(
    "void(int64[:, ::1], int64[::1], int64[:, ::1], int64[::1], int64[::1], int64[::1],"
    " uint8[::1])",
    nogil=True,
    cache=True,
)
def find_groups(
    wanted: Any, table: Any, keys: Any, free: Any, control: Any, ids: Any, fresh: Any
) -> None:
    """Writes to ``ids[i]`` the id of row i of ``wanted`` and to ``fresh[i]`` whether this call made
    the id. The caller provides a free id per row and a table with empty places."""
    mask, n = table.size - 1, wanted.shape[0]
    line, places = 8 * keys.shape[1], np.empty(_AHEAD, np.int64)
    for i in range(-_AHEAD, n):
        if i + _AHEAD < n:
            ahead = _hash(wanted, i + _AHEAD) & mask
            prefetch(table.ctypes.data + 8 * ahead)
        near = i + _AHEAD // 2
        if 0 <= near < n:
            prefetch(keys.ctypes.data + line * max(table[places[near % _AHEAD]] - 1, 0))
        place = places[i % _AHEAD]
        if i + _AHEAD < n:
            places[i % _AHEAD] = ahead
        if i < 0:
            continue
        fresh[i] = 0
        while True:
            found = table[place] - 1
            if found < 0:
                control[FREE] -= 1
                found = free[control[FREE]]
                for w in range(keys.shape[1]):
                    keys[found, w] = wanted[i, w]
                table[place] = found + 1
                fresh[i] = 1
                break
            if _same(keys, found, wanted, i):
                break
            place = (place + 1) & mask
        ids[i] = found


@njit("void(int64[::1], int64[::1], int64[:, ::1], int64[::1], int64[::1])", nogil=True, cache=True)
def free_groups(gone: Any, table: Any, keys: Any, free: Any, control: Any) -> None:
    """Frees ids. An entry behind a place that becomes empty moves up to it where its hash allows,
    so that no search ends too early."""
    mask, line = table.size - 1, 8 * keys.shape[1]
    for i in range(gone.size):
        if i + _AHEAD < gone.size:
            prefetch(keys.ctypes.data + line * gone[i + _AHEAD])
        if i + _AHEAD // 2 < gone.size:
            prefetch(table.ctypes.data + 8 * (_hash(keys, gone[i + _AHEAD // 2]) & mask))
        hole = _hash(keys, gone[i]) & mask
        while table[hole] != gone[i] + 1:
            hole = (hole + 1) & mask
        place = hole
        while True:
            place = (place + 1) & mask
            if table[place] == 0:
                break
            home = _hash(keys, table[place] - 1) & mask
            if ((place - home) & mask) >= ((place - hole) & mask):
                table[hole] = table[place]
                hole = place
        table[hole] = 0
        free[control[FREE]] = gone[i]
        control[FREE] += 1


@njit("int64(int64[::1], uint8[::1], int64[::1])", nogil=True, cache=True)
def each_once(ids: Any, seen: Any, out: Any) -> int:
    """Writes the distinct ids to ``out`` in the order of their first occurrence and returns their
    number. ``seen`` has one zero per possible id, before the call and after it."""
    n = 0
    for i in range(ids.size):
        if seen[ids[i]] == 0:
            seen[ids[i]] = 1
            out[n] = ids[i]
            n += 1
    for i in range(n):
        seen[out[i]] = 0
    return n


@njit("void(int64[::1], int64[::1], int64[:, ::1])", nogil=True, cache=True)
def index_groups(ids: Any, table: Any, keys: Any) -> None:
    """Enters ``ids`` into an empty table."""
    mask = table.size - 1
    for i in range(ids.size):
        place = _hash(keys, ids[i]) & mask
        while table[place] != 0:
            place = (place + 1) & mask
        table[place] = ids[i] + 1


@njit("void(int64[:, ::1], int64[::1], int64[:, ::1], int64[::1])", nogil=True, cache=True)
def look_up_groups(wanted: Any, table: Any, keys: Any, ids: Any) -> None:
    """Writes to ``ids[i]`` the id of row i of ``wanted``, -1 if the index has no such key."""
    mask, n = table.size - 1, wanted.shape[0]
    line, places = 8 * keys.shape[1], np.empty(_AHEAD, np.int64)
    for i in range(-_AHEAD, n):
        place = places[i % _AHEAD]
        if i + _AHEAD < n:
            places[i % _AHEAD] = _hash(wanted, i + _AHEAD) & mask
            prefetch(table.ctypes.data + 8 * places[i % _AHEAD])
        near = i + _AHEAD // 2
        if 0 <= near < n:
            prefetch(keys.ctypes.data + line * max(table[places[near % _AHEAD]] - 1, 0))
        if i < 0:
            continue
        while table[place] != 0 and not _same(keys, table[place] - 1, wanted, i):
            place = (place + 1) & mask
        ids[i] = table[place] - 1
