"""What a join does when it is asked for room: rows and keys that are over leave."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from cql.executor.kernels.hashing import hash_end, hash_next, hash_start
from cql.executor.kernels.memory import prefetch

NONE = -1
#: Keys that are on their way into an index.
_AHEAD = 8


@njit("int64(boolean[::1], int32[::1], int32[::1], int32[::1], int64[::1])", nogil=True, cache=True)
def relink(live: Any, back: Any, skip: Any, depth: Any, place: Any) -> int:
    """Rows in the order of arrival, with their links (``join_code``): those that are ``live`` move
    together, and their links with them; returns how many. ``place[k]`` is where row k went, or
    where the one of its key before it went that stayed."""
    stay = 0
    for k in range(live.size):
        before = NONE
        if 0 < back[k] <= k:
            before = place[k - back[k]]
        place[k] = before
        if not live[k]:
            continue
        place[k] = stay
        back[stay] = skip[stay] = depth[stay] = 0
        if before != NONE:
            back[stay] = skip[stay] = stay - before
            depth[stay] = depth[before] + 1
            lower = before - skip[before]
            lowest = lower - skip[lower]
            if depth[before] - depth[lower] == depth[lower] - depth[lowest]:
                skip[stay] = stay - lowest
        stay += 1
    return stay


@njit("void(int64[:, ::1], int64, int64, int64, int64[::1])", nogil=True, cache=True)
def renumber(keys: Any, count: int, column: int, head: int, place: Any) -> None:
    """Where the latest rows of keys went, which stood from ``head`` on."""
    for e in range(count):
        k = keys[e, column] - head
        keys[e, column] = place[k] if 0 <= k < place.size else NONE


@njit(inline="always")
def _enter(index: Any, tag: int, number: int) -> None:
    """Open addressing; an entry is 31 bits of the hash, which choose its place, too, and the number
    of a record, from 1 on (``join_keys.look_up``); 0: free."""
    mask = index.size - 1
    p = tag & mask
    while index[p] != 0:
        p = (p + 1) & mask
    index[p] = tag << 32 | number


@njit(inline="always")
def _tag(keys: Any, e: int, words: int) -> int:
    h = hash_start(keys[e, 0])
    for w in range(1, words):
        h = hash_next(h, keys[e, w])
    return hash_end(h) >> 32


@njit("int64(int64[:, ::1], int64, int64, int64, int64[::1])", nogil=True, cache=True)
def keep_keys(keys: Any, count: int, left: int, right: int, index: Any) -> int:
    """Forgets the keys whose rows have all left, whose sides begin at ``left`` and ``right``;
    returns how many stay. They are entered into the index, which is empty; their places are asked
    for ahead."""
    words = keys.shape[1] - 2
    stay = 0
    for e in range(count):
        if keys[e, words] < left and keys[e, words + 1] < right:
            continue
        for w in range(words + 2):
            keys[stay, w] = keys[e, w]
        stay += 1
    first, mask = index.ctypes.data, index.size - 1
    tags = np.zeros(_AHEAD, np.int64)
    for e in range(stay + _AHEAD):
        if e >= _AHEAD:
            _enter(index, tags[e % _AHEAD], e - _AHEAD + 1)
        if e < stay:
            tag = _tag(keys, e, words)
            tags[e % _AHEAD] = tag
            prefetch(first + 8 * (tag & mask))
    return stay


@njit("void(int64[:, ::1], int64, int64[::1])", nogil=True, cache=True)
def index_keys(keys: Any, entries: int, index: Any) -> None:
    """Fills an empty index with the first ``entries`` keys, by word."""
    for e in range(entries):
        h = hash_start(keys[0, e])
        for w in range(1, keys.shape[0]):
            h = hash_next(h, keys[w, e])
        _enter(index, hash_end(h) >> 32, e + 1)
