"""What joins do when they are asked for room: rows that are over leave, and lists are made anew."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import int64

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.hashing import hash_end, hash_next, hash_start
from cql.executor.kernels.lib.memory import prefetch
from cql.executor.kernels.lib.views import as_i32, ring, words

NONE = -1
#: Words that ``search_lists`` is told first, and those of each search.
ABOUT, SEARCH = 10, 4


@njit("int64(int64[:, ::1], int64, int64, int64, int64)", nogil=True, cache=True)
def keep_rows(rows: Any, first: int, held: int, time: int, bound: int) -> int:
    """The rows of a ring, so many from place ``first`` on, move together in the order of arrival,
    those whose word ``time`` is below ``bound`` left out; returns how many stay, which have to be
    linked anew if they are fewer."""
    room, stay = rows.shape[0], 0
    for k in range(held):
        q = ring(first + k, room)
        if rows[q, time] >= bound:
            if stay < k:
                new = ring(first + stay, room)
                for w in range(rows.shape[1]):
                    rows[new, w] = rows[q, w]
            stay += 1
    return stay


@njit("void(int64[:, ::1], int32[:, ::1], int64[::1], int32[:, ::1])", nogil=True, cache=True)
def link_rows(rows: Any, links: Any, at: Any, buckets: Any) -> None:
    """Links the rows of a side anew, in the order of arrival, and says in ``buckets`` which is the
    latest of each (the lower half of its number, + 1). ``at``: the column of the side in these,
    then the number of the first row, its place in the ring and how many rows there are; the words
    of their time and of their first key, the number of key words, and how far times are shifted for
    a slice of them (NONE: there is none); the half words of the links (NONE: there is no such
    link)."""
    side, head, first, held, time, key, count, shift, back, skip, depth = at
    room, mask = rows.shape[0], buckets.shape[0] - 1
    buckets[:, side] = np.int32(head)  # of none that is held
    for k in range(held):
        q = ring(first + k, room)
        b = 0
        if count > 0:
            h = hash_start(rows[q, key])
            for w in range(1, count):
                h = hash_next(h, rows[q, key + w])
            if shift != NONE:
                h = hash_next(h, rows[q, time] >> shift)
            b = (hash_end(h) >> 32) & mask
        top = head + k
        before = top - ((top - buckets[b, side]) & 0xFFFFFFFF) - 1
        buckets[b, side] = np.int32(top + 1)
        linked = before >= head
        links[q, back] = top - before if linked else 0
        if skip == NONE:
            continue
        links[q, skip], links[q, depth] = links[q, back], 0
        if linked:
            below = ring(first + before - head, room)
            links[q, depth] = links[below, depth] + 1
            lower = before - links[below, skip]
            c = ring(first + lower - head, room)
            lowest = lower - links[c, skip]
            middle = links[c, depth]
            d = ring(first + lowest - head, room)
            if links[below, depth] - middle == middle - links[d, depth]:
                links[q, skip] = top - lowest


@njit(inline="always")
def _about(address: int) -> tuple[int, ...]:
    w = words(address, ABOUT)
    return w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9]


@njit(inline="always")
def _fetch(row: int, size: int) -> None:
    """Asks for a row, which may lie in two cache lines."""
    prefetch(row)
    prefetch(row + size - 1)


@njit("void(int64, int64)", nogil=True, cache=True)
def search_lists(address: int, count: int) -> None:
    """Goes through the lists of several rows a step of each at a time, so that what they touch is
    fetched from memory together (group prefetching: Chen et al., Improving Hash Join Performance
    through Prefetching, ICDE 2004); who goes through them next finds it near.

    The words at ``address``: where the rows of a side are, in a ring; the bytes of one, and in it
    the places of its time and of its links (NONE: it has none); the rows that there is room for,
    the number of the first in the ring and of the first that is held; their disorder; how many
    steps are made at the most. Then of each search the row that it looks at, the one that it goes
    on with if that lies too far back (NONE: it cannot), and the times between which rows are
    wanted."""
    rows, size, time, back, skip, room, base, head, disorder, steps = _about(address)
    search = words(address + 8 * ABOUT, SEARCH * count)
    for _ in range(steps):
        k = 0
        while k < count:
            s = SEARCH * k
            here, instead, least, most = search[s], search[s + 1], search[s + 2], search[s + 3]
            row = rows + size * int64(ring(here - base, room))
            t = words(row + time, 1)[0] if time != NONE else least
            if instead != NONE and t - disorder <= most:
                search[s], search[s + 1] = instead, NONE
                k += 1
                continue
            step = as_i32(row + back, 1)[0]
            x, instead = here - step if step > 0 else NONE, NONE
            if t > most and skip != NONE:
                far = here - as_i32(row + skip, 1)[0]
                if head <= far < x:
                    _fetch(rows + size * int64(ring(x - base, room)), size)
                    x, instead = far, x
            elif t + disorder < least:
                x = NONE
            if x >= head:
                _fetch(rows + size * int64(ring(x - base, room)), size)
                search[s], search[s + 1] = x, instead
                k += 1
            else:  # the last one takes its place
                count -= 1
                for w in range(SEARCH):
                    search[s + w] = search[SEARCH * count + w]


@njit(inline="always")
def _enter(index: Any, tag: int, number: int) -> None:
    """Open addressing; an entry is 31 bits of the hash, which choose its place, too, and the number
    of a record, from 1 on (``join_keys.look_up``); 0: free."""
    mask = index.size - 1
    p = tag & mask
    while index[p] != 0:
        p = (p + 1) & mask
    index[p] = tag << 32 | number


@njit("void(int64[:, ::1], int64, int64[::1])", nogil=True, cache=True)
def index_keys(keys: Any, entries: int, index: Any) -> None:
    """Fills an empty index with the first ``entries`` keys, by word."""
    for e in range(entries):
        h = hash_start(keys[0, e])
        for w in range(1, keys.shape[0]):
            h = hash_next(h, keys[w, e])
        _enter(index, hash_end(h) >> 32, e + 1)
