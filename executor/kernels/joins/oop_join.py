"""Memory and search of OOP-Join: drops expired rows when a ring is full, rebuilds the linked lists
and the key index, and prefetches the rows of several searches."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import int64

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.hashing import hash_end, hash_next, hash_start
from cql.executor.kernels.lib.memory import prefetch
from cql.executor.kernels.lib.views import as_i32, ring, words

NONE = -1
#: Words of the parameters of ``search_lists``, and words of each search.
ABOUT, SEARCH = 10, 4


@njit("int64(int64[:, ::1], int64, int64, int64, int64)", nogil=True, cache=True)
def keep_rows(rows: Any, first: int, held: int, time: int, bound: int) -> int:
    """Compacts a ring: drops the rows whose word ``time`` is below ``bound`` and moves the others
    together, in the order of arrival. ``first`` is the place of the oldest row, ``held`` the number
    of rows. Returns the number of rows that remain; if it is below ``held``, the caller must link
    the rows again (``link_rows``)."""
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
    """Rebuilds the lists of a side: links its rows in the order of arrival and writes to column
    ``side`` of ``buckets`` the latest row of each bucket (the lower 32 bits of its number + 1).

    ``at`` holds: ``side``; the number of the first row (``head``), its place in the ring
    (``first``) and the number of rows (``held``); the word of a row's time, the word of its first
    key and the number of key words; the shift that turns a time into a time slice (NONE: lists are
    not sliced); and the places of the links in a row, counted in int32: ``back`` to the previous
    row of the list, ``skip`` to one further back, and ``depth`` (NONE: no such link). The skip
    links are those of Myers, An Applicative Random-Access Stack, 1983."""
    side, head, first, held, time, key, count, shift, back, skip, depth = at
    room, mask = rows.shape[0], buckets.shape[0] - 1
    buckets[:, side] = np.int32(head)  # the bucket is empty: this is no row that is held
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
    """Prefetches a row, which may lie in two cache lines."""
    prefetch(row)
    prefetch(row + size - 1)


@njit("void(int64, int64)", nogil=True, cache=True)
def search_lists(address: int, count: int) -> None:
    """Walks the lists of ``count`` searches in lockstep, one step of each at a time, so that their
    cache misses overlap (group prefetching: Chen et al., Improving Hash Join Performance through
    Prefetching, ICDE 2004). The join then walks the same lists and finds the rows in the cache.

    The first ABOUT words at ``address``: the address of the ring of rows; the bytes of a row; the
    offsets in a row, in bytes, of its time and of its two links (NONE: rows have no such field);
    the rows that the ring can hold; the number of the row at its first place; the number of the
    first row that is held; the disorder of the times; the maximal number of steps. SEARCH words of
    each search follow: the row that it looks at, the row with which it continues if that row lies
    too far back (NONE: there is no other), and the least and the greatest time that it wants."""
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
            else:  # this search is over: the last search takes its place
                count -= 1
                for w in range(SEARCH):
                    search[s + w] = search[SEARCH * count + w]


@njit(inline="always")
def _enter(index: Any, tag: int, number: int) -> None:
    """Enters a record into an index with open addressing. An entry is 31 bits of the hash, which
    also choose its place, and the number of the record, from 1 on (``key_index.look_up``); 0 is a
    free place."""
    mask = index.size - 1
    p = tag & mask
    while index[p] != 0:
        p = (p + 1) & mask
    index[p] = tag << 32 | number


@njit("void(int64[:, ::1], int64, int64[::1])", nogil=True, cache=True)
def index_keys(keys: Any, entries: int, index: Any) -> None:
    """Fills an empty index with the first ``entries`` keys; ``keys`` has a row per key word."""
    for e in range(entries):
        h = hash_start(keys[0, e])
        for w in range(1, keys.shape[0]):
            h = hash_next(h, keys[w, e])
        _enter(index, hash_end(h) >> 32, e + 1)
