"""The open sessions: a chain of sessions for each group, and a heap by which sessions close.

A session is a record of 64-bit words: the words SESSION, then the group's key and its aggregates. A
hash index finds the latest session of a key; a chain leads from there to the earlier sessions. The
sessions of a key do not overlap in time (``operators.windows.sessions`` proves it). The heap is
lazy: it holds every record once, under an end that may be outdated. A session that grows keeps its
place in the heap until it reaches the top; so does a session that was joined to another one, marked
as JOINED.

Generated kernels call these functions by address and pass their descriptor, whose first words are
laid out as DIRECTORY. Arrays are flat int64 but for the index (int32: record + 1, 0 is empty).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cql.executor.jit.decorators import cfunc, njit
from cql.executor.kernels.lib.hashing import hash_end, hash_next, hash_start
from cql.executor.kernels.lib.memory import as_i32, words

#: Places of the index for each record of capacity.
PLACES = 4
#: ``older`` of a session that was joined to another one.
JOINED = -2

DIRECTORY = (
    "entries",  # capacity in records, a power of two
    "open",  # records in the heap
    "free",  # the first record of the free list, -1: none; ``older`` links to the next
    "used",  # records from here on were never in use
    "born",  # ``s_born`` of the next session: a count, or (in partitions) the place of its row
    "heap",  # pairs (end, record)
    "index",
    "records",
    "width",  # words of a record
    "hashed",  # words of the key
    "null_word",  # the word of a record with the NULL bits of its keys, 0 if no key can be NULL
    "gap",
)
ENTRIES, OPEN, FREE, USED, BORN, HEAP, INDEX, RECORDS, WIDTH, HASHED, NULL_WORD, GAP = range(
    len(DIRECTORY)
)

#: The first words of a record.
SESSION = (
    "s_first",  # the least time of its rows
    "s_last",  # the greatest time of its rows
    "s_reach",  # rows with times from s_reach to s_last + gap belong to the session
    "s_older",  # the previous session of the key in time, -1: none
    "s_newer",  # the next session of the key in time, -1: none
    "s_born",  # its place in the order of first contributions
    "s_hash",
)
LAST, OLDER, NEWER, SESSION_BORN, HASH = 1, 3, 4, 5, 6
KEY = len(SESSION)


@njit(inline="always")
def _before(heap: Any, records: Any, width: int, a: int, b: int) -> bool:
    """Whether heap place ``a`` closes before place ``b``: by end, then by first contribution."""
    if heap[2 * a] != heap[2 * b]:
        return bool(heap[2 * a] < heap[2 * b])
    x, y = heap[2 * a + 1], heap[2 * b + 1]
    return bool(records[width * x + SESSION_BORN] < records[width * y + SESSION_BORN])


@njit(inline="always")
def _swap(heap: Any, a: int, b: int) -> None:
    for k in range(2):
        kept = heap[2 * a + k]
        heap[2 * a + k] = heap[2 * b + k]
        heap[2 * b + k] = kept


@njit("void(int64)", cache=True)
def _sink(desc: int) -> None:
    """Sifts the top of the heap down to its place."""
    d = words(desc, len(DIRECTORY))
    n, width = d[OPEN], d[WIDTH]
    heap, records = words(d[HEAP], 2 * n), words(d[RECORDS], width * d[ENTRIES])
    at = 0
    while True:
        child = 2 * at + 1
        if child >= n:
            return
        if child + 1 < n and _before(heap, records, width, child + 1, child):
            child += 1
        if not _before(heap, records, width, child, at):
            return
        _swap(heap, at, child)
        at = child


@njit("void(int64)", cache=True)
def _pop(desc: int) -> None:
    """Removes the top of the heap and frees its record."""
    d = words(desc, len(DIRECTORY))
    heap, records = words(d[HEAP], 2 * d[OPEN]), words(d[RECORDS], d[WIDTH] * d[ENTRIES])
    record = heap[1]
    records[d[WIDTH] * record + OLDER] = d[FREE]
    d[FREE] = record
    d[OPEN] -= 1
    heap[0], heap[1] = heap[2 * d[OPEN]], heap[2 * d[OPEN] + 1]
    _sink(desc)


@cfunc("int64(int64, int64)", nopython=True, cache=True)
def open_session(desc: Any, time: Any) -> Any:
    """Opens a session with one row, at time ``time``; returns its record, -1 if there is no room.
    Sets ``s_born``; the caller sets the other words of SESSION."""
    d = words(desc, len(DIRECTORY))
    if d[OPEN] >= d[ENTRIES]:
        return -1
    width = d[WIDTH]
    heap, records = words(d[HEAP], 2 * d[ENTRIES]), words(d[RECORDS], width * d[ENTRIES])
    record = d[FREE]
    if record >= 0:
        d[FREE] = records[width * record + OLDER]
    else:
        record = d[USED]
        d[USED] += 1
    records[width * record + SESSION_BORN] = d[BORN]
    d[BORN] += 1
    at = d[OPEN]
    d[OPEN] += 1
    heap[2 * at], heap[2 * at + 1] = time + d[GAP], record
    while at > 0 and _before(heap, records, width, at, (at - 1) >> 1):
        _swap(heap, at, (at - 1) >> 1)
        at = (at - 1) >> 1
    return record


@cfunc("int64(int64, int64)", nopython=True, cache=True)
def next_session(desc: Any, watermark: Any) -> Any:
    """The record of the session that closes next, if its end is below the watermark; else -1. The
    session is on top of the heap on return."""
    d = words(desc, len(DIRECTORY))
    heap, records = words(d[HEAP], 2 * d[ENTRIES]), words(d[RECORDS], d[WIDTH] * d[ENTRIES])
    while d[OPEN] > 0 and heap[0] < watermark:
        at = d[WIDTH] * heap[1]
        end = records[at + LAST] + d[GAP]
        if records[at + OLDER] == JOINED:
            _pop(desc)
        elif end != heap[0]:
            heap[0] = end
            _sink(desc)
        else:
            return heap[1]
    return -1


@njit("int64[::1](int64, int64)", nogil=True, cache=True)
def closing_sessions(desc: int, watermark: int) -> Any:
    """The records of the sessions whose end is below the watermark."""
    d = words(desc, len(DIRECTORY))
    heap, records = words(d[HEAP], 2 * d[OPEN]), words(d[RECORDS], d[WIDTH] * d[ENTRIES])
    found, n, seen = np.zeros(16, np.int64), 0, 0  # heap places; the first ``seen`` are expanded
    if d[OPEN] > 0 and heap[0] < watermark:
        n = 1
    while seen < n:
        if n + 2 > found.size:
            found = np.concatenate((found, found))
        child = 2 * found[seen] + 1
        seen += 1
        for at in range(child, min(child + 2, d[OPEN])):
            if heap[2 * at] < watermark:
                found[n] = at
                n += 1
    kept = 0
    for k in range(n):
        record = heap[2 * found[k] + 1]
        at = d[WIDTH] * record
        if records[at + OLDER] != JOINED and records[at + LAST] + d[GAP] < watermark:
            found[kept] = record
            kept += 1
    return found[:kept]


@njit("void(int64, int64)", cache=True)
def _forget(desc: int, record: int) -> None:
    """Deletes a key from the index, by backward shift, which leaves no tombstones."""
    d = words(desc, len(DIRECTORY))
    records = words(d[RECORDS], d[WIDTH] * d[ENTRIES])
    mask = PLACES * d[ENTRIES] - 1
    index = as_i32(d[INDEX], mask + 1)
    p = (records[d[WIDTH] * record + HASH] >> 8) & mask
    while index[p] != record + 1:
        p = (p + 1) & mask
    hole = p
    while True:
        p = (p + 1) & mask
        other = index[p]
        if other == 0:
            break
        home = (records[d[WIDTH] * (other - 1) + HASH] >> 8) & mask
        if ((p - home) & mask) >= ((p - hole) & mask):
            index[hole] = other
            hole = p
    index[hole] = 0


@cfunc("int64(int64, int64)", nopython=True, cache=True)
def close_session(desc: Any, record: Any) -> Any:
    """Purges the session on top of the heap, which is the earliest session of its key, and removes
    the key from the index if it has no other session."""
    d = words(desc, len(DIRECTORY))
    records = words(d[RECORDS], d[WIDTH] * d[ENTRIES])
    newer = records[d[WIDTH] * record + NEWER]
    if newer >= 0:
        records[d[WIDTH] * newer + OLDER] = -1
    else:
        _forget(desc, record)
    _pop(desc)
    return 0


@njit("void(int64)", cache=True)
def index_again(desc: int) -> None:
    """Rebuilds the index after it has grown or the words of the keys have changed."""
    d = words(desc, len(DIRECTORY))
    width, null_word = d[WIDTH], d[NULL_WORD]
    heap, records = words(d[HEAP], 2 * d[OPEN]), words(d[RECORDS], width * d[ENTRIES])
    mask = PLACES * d[ENTRIES] - 1
    index = as_i32(d[INDEX], mask + 1)
    for p in range(mask + 1):
        index[p] = 0
    for k in range(d[OPEN]):
        record = heap[2 * k + 1]
        at = width * record
        if records[at + OLDER] == JOINED:
            continue
        h = hash_start(records[at + KEY])
        for w in range(1, d[HASHED]):
            h = hash_next(h, records[at + KEY + w])
        if null_word != 0 and records[at + null_word] != 0:
            h = hash_next(h, records[at + null_word])
        records[at + HASH] = hash_end(h)
        if records[at + NEWER] >= 0:
            continue
        p = (records[at + HASH] >> 8) & mask
        while index[p] != 0:
            p = (p + 1) & mask
        index[p] = record + 1
