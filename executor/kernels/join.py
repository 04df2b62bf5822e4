"""Between the rows of a join: what stays keeps its order in the list of its key."""

from __future__ import annotations

from typing import Any

from numba import njit

from cql.executor.kernels.hashing import hash_end, hash_next, hash_start

NONE = -1


@njit(
    "void(int32[::1], int32[::1], int32[::1], int32[::1], int32[::1], int64)",
    nogil=True,
    cache=True,
)
def relink(place: Any, following: Any, head: Any, tail: Any, onto: Any, entries: int) -> None:
    """``place[q]`` is where row q goes, NONE if it leaves; ``following`` is the next row of its
    key, which stands behind it. Lists lose the rows that leave; ``onto`` is scratch: what row q
    leads to. Rows are renumbered in place, those that leave to nothing."""
    for q in range(place.size - 1, -1, -1):
        after = following[q]
        if after != NONE:
            after = onto[after]
        onto[q] = after if place[q] == NONE else place[q]
        following[q] = after
    for q in range(place.size):
        if place[q] != NONE:
            following[place[q]] = following[q]
    for e in range(entries):
        if head[e] == NONE:
            continue
        last = tail[e]
        head[e] = onto[head[e]]
        tail[e] = head[e]
        if head[e] != NONE:
            if place[last] != NONE:
                tail[e] = place[last]
            else:
                while following[tail[e]] != NONE:
                    tail[e] = following[tail[e]]


@njit("void(int64[:, ::1], int64, int32[::1])", nogil=True, cache=True)
def index_keys(keys: Any, entries: int, index: Any) -> None:
    """Fills an empty index (entry + 1; 0: free) with the first ``entries`` keys, by word."""
    mask = index.size - 1
    for e in range(entries):
        h = hash_start(keys[0, e])
        for w in range(1, keys.shape[0]):
            h = hash_next(h, keys[w, e])
        p = hash_end(h) & mask
        while index[p] != 0:
            p = (p + 1) & mask
        index[p] = e + 1
