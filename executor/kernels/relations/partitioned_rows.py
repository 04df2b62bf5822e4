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
    """Appends rows to the windows of their keys, in order: row ``i`` is stored in slot
    ``slots[i]``. ``left[i]`` receives the slot of the row that leaves, since a key keeps only its
    last ``most`` rows; -1 if no row leaves. The rows of a key form a linked list: ``oldest``,
    ``newest`` and the number of rows ``held`` per key, ``following`` per slot."""
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
