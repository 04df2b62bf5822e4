"""What a join does when it is asked for room: rows and keys that are over leave."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from cql.executor.kernels.hashing import hash_end, hash_next, hash_start
from cql.executor.kernels.memory import prefetch
from cql.executor.kernels.views import ring

NONE = -1
#: Keys that are on their way into an index.
_AHEAD = 8


@njit("int64(int64[:, ::1], int32[:, ::1], int64[::1], int64[::1], int64)", nogil=True, cache=True)
def keep_rows(rows: Any, links: Any, at: Any, place: Any, bound: int) -> int:
    """Rows of a ring (as words and as half words) move together, in the order of arrival, that are
    not below ``bound``, and their links with them; returns how many. ``at``: the word of their
    time, the half words of their links (``join_side``; NONE: there is no such link), then the ring:
    the place of its first row, and its room. ``place[k]`` is where row k went, or where the one of
    its key before it went that stayed."""
    time, back, skip, depth, first, room = at
    stay, gone = 0, False
    for k in range(place.size):
        gone |= rows[ring(first + k, room), time] < bound
    if not gone:
        return place.size
    for k in range(place.size):
        q = ring(first + k, room)
        before, distance = NONE, links[q, back]
        if 0 < distance <= k:
            before = place[k - distance]
        place[k] = before
        if rows[q, time] < bound:
            continue
        place[k] = stay
        new = ring(first + stay, room)
        for w in range(rows.shape[1]):
            rows[new, w] = rows[q, w]
        links[new, back] = 0 if before == NONE else stay - before
        if skip != NONE:
            links[new, skip] = links[new, depth] = 0
            if before != NONE:
                b = ring(first + before, room)
                links[new, skip], links[new, depth] = stay - before, links[b, depth] + 1
                lower = before - links[b, skip]
                c = ring(first + lower, room)
                lowest = lower - links[c, skip]
                middle = links[c, depth]
                if links[b, depth] - middle == middle - links[ring(first + lowest, room), depth]:
                    links[new, skip] = stay - lowest
        stay += 1
    return stay


@njit("void(int64[:, ::1], int64, int64, int64, int64[::1])", nogil=True, cache=True)
def renumber(keys: Any, count: int, column: int, head: int, place: Any) -> None:
    """Where the latest rows of keys went, which stood from ``head`` on."""
    for e in range(count):
        k = keys[e, column] - head
        stays = 0 <= k < place.size and place[k] != NONE
        keys[e, column] = head + place[k] if stays else NONE


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
    returns how many stay. The index has these alone afterwards; their places in it are asked for
    ahead."""
    words = keys.shape[1] - 2
    index[:] = 0
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
