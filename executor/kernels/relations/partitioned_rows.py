"""The last rows of each key, for windows of ``[PARTITION BY k ROWS n]``."""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import njit


@njit(
    "void(int64, int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1],"
    " int64[::1])",
    nogil=True,
    cache=True,
)
def push_rows(
    most: int, keys: Any, slots: Any, oldest: Any, newest: Any, held: Any, following: Any, left: Any
) -> None:
    """Row i (kept in slot ``slots[i]``) comes to its key, in order. ``left[i]`` is the slot whose
    row it pushes out of the last ``most`` ones, -1 for none. Rows of a key are a list: ``oldest``,
    ``newest`` and their number ``held`` per key, ``following`` per slot."""
    for i in range(keys.size):
        k, slot = keys[i], slots[i]
        following[slot] = -1
        if held[k] == 0:
            oldest[k] = slot
        else:
            following[newest[k]] = slot
        newest[k] = slot
        left[i] = -1
        if held[k] < most:
            held[k] += 1
        else:
            left[i] = oldest[k]
            oldest[k] = following[oldest[k]]
