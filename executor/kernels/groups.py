"""A hash index from key words to dense ids that can be given back.

``table`` holds id + 1 at the place of its hash or behind it (0: free); ``keys`` the words of each
id; ``free`` the ids that are free, as a stack of ``control[FREE]`` of them.
"""

from __future__ import annotations

from typing import Any

from numba import njit

from cql.executor.kernels.hashing import hash_end, hash_next, hash_start

FREE = 0  # word of control: how many ids are free


@njit("int64(int64[:, ::1], int64)", nogil=True, cache=True)
def _hash(keys: Any, row: int) -> int:
    h = hash_start(keys[row, 0])
    for w in range(1, keys.shape[1]):
        h = hash_next(h, keys[row, w])
    return int(hash_end(h))


@njit("boolean(int64[:, ::1], int64, int64[:, ::1], int64)", nogil=True, cache=True)
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
    """``ids[i]`` is the id of row i of ``wanted``; ``fresh[i]`` says that it was made here. There
    are free ids for all rows, and the table has free places."""
    mask = table.size - 1
    for i in range(wanted.shape[0]):
        place = _hash(wanted, i) & mask
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
    """Gives ids back. What stands behind a place that becomes free moves up, so that no search
    ends too early."""
    mask = table.size - 1
    for i in range(gone.size):
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


@njit("void(int64[::1], int64[::1], int64[:, ::1])", nogil=True, cache=True)
def index_groups(ids: Any, table: Any, keys: Any) -> None:
    """Fills an empty table with these ids."""
    mask = table.size - 1
    for i in range(ids.size):
        place = _hash(keys, ids[i]) & mask
        while table[place] != 0:
            place = (place + 1) & mask
        table[place] = ids[i] + 1


@njit("void(int64[:, ::1], int64[::1], int64[:, ::1], int64[::1])", nogil=True, cache=True)
def look_up_groups(wanted: Any, table: Any, keys: Any, ids: Any) -> None:
    """``ids[i]`` is the id of row i of ``wanted``, -1 where there is none."""
    mask = table.size - 1
    for i in range(wanted.shape[0]):
        place = _hash(wanted, i) & mask
        while table[place] != 0 and not _same(keys, table[place] - 1, wanted, i):
            place = (place + 1) & mask
        ids[i] = table[place] - 1
