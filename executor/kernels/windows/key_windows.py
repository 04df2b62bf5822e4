"""Windows over the numbers of the rows of each key: ``[PARTITION BY k ROWS n SLIDE m]`` (the Bucket
of a partitioned window, out-of-order paper A.2.2).

The rows of a key that a later window needs are a list of slots: the last ones of the key, ``held``
of its ``counts`` so far. Windows are ``[j * slide, j * slide + rows)`` of these numbers.
"""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import njit

#: Where a run that lacked room goes on: the row (or the key, at the end of the input); the next
#: row of the window that is leaving, -1 if none is; its first number; how many windows have left;
#: how many slots are free; rows so far that fell between windows, and rows that no later window
#: needed.
ROW, SLOT, START, LEFT, FREE, BETWEEN, PURGED = range(7)
WORDS = 7
#: Of each key.
COUNT, HELD, OLDEST, NEWEST = range(4)
OF_KEY = 4
#: Of a row that leaves.
LINE = 3
#: No window of the key has left at the end of the input.
NONE = -(1 << 62)


@njit("int64(int64, int64, int64)", cache=True)
def _end_after(number: int, rows: int, slide: int) -> int:
    """The first end of a window above ``number``."""
    return number + 1 + (rows - number - 1) % slide


@njit("int64(int64[::1], int64[::1], int64[:, ::1], int64)", cache=True)
def _leave(place: Any, following: Any, lines: Any, made: int) -> int:
    """Rows of the window that is leaving, as many as there is room for."""
    slot = place[SLOT]
    while slot >= 0 and made < lines.shape[0]:
        lines[made, 0], lines[made, 1], lines[made, 2] = slot, place[START], place[LEFT]
        made += 1
        slot = following[slot]
    place[SLOT] = slot
    if slot < 0:
        place[LEFT] += 1
    return made


@njit("void(int64[::1], int64[::1], int64[::1], int64[::1], int64)", cache=True)
def _forget(key: Any, following: Any, free: Any, place: Any, below: int) -> None:
    """The rows of a key with a number below that one."""
    while key[HELD] > 0 and key[COUNT] - key[HELD] < below:
        free[place[FREE]] = key[OLDEST]
        place[FREE] += 1
        key[OLDEST] = following[key[OLDEST]]
        key[HELD] -= 1
        place[PURGED] += 1


@njit(
    "int64(int64, int64, int64[::1], int64[::1], int64[:, ::1], int64[::1], int64[::1],"
    " int64[::1], int64[:, ::1])",
    nogil=True,
    cache=True,
)
def push_rows(
    rows: int,
    slide: int,
    ids: Any,
    slots: Any,
    keys: Any,
    following: Any,
    free: Any,
    place: Any,
    lines: Any,
) -> int:
    """Row i (kept in slot ``slots[i]``) comes to key ``ids[i]``, in order. A window that this
    completes leaves, as lines (slot, first number, number of the window); returns how many, and
    is called again while ``place[ROW]`` is not that of the last row."""
    made = 0
    while True:
        if place[SLOT] >= 0:
            made = _leave(place, following, lines, made)
            if place[SLOT] >= 0:
                return made
            key = keys[ids[place[ROW]]]
            _forget(key, following, free, place, place[START] + slide)
            place[ROW] += 1
        if place[ROW] == ids.size:
            return made
        slot, key = slots[place[ROW]], keys[ids[place[ROW]]]
        number = key[COUNT]
        key[COUNT] += 1
        end = _end_after(number, rows, slide)
        if number < end - rows:
            free[place[FREE]] = slot
            place[FREE] += 1
            place[BETWEEN] += 1
            place[ROW] += 1
            continue
        following[slot] = -1
        if key[HELD] == 0:
            key[OLDEST] = slot
        else:
            following[key[NEWEST]] = slot
        key[NEWEST] = slot
        key[HELD] += 1
        if end == number + 1:
            place[SLOT], place[START] = key[OLDEST], end - rows
        else:
            place[ROW] += 1


@njit(
    "int64(int64, int64, int64[::1], int64[:, ::1], int64[::1], int64[::1], int64[:, ::1])",
    nogil=True,
    cache=True,
)
def close_windows(
    rows: int, slide: int, order: Any, keys: Any, following: Any, place: Any, lines: Any
) -> int:
    """At the end of the input the windows that have rows leave, those of the keys ``order`` in that
    order; lines as in ``push_rows``. ``place`` begins with ROW 0, SLOT -1 and START ``NONE``."""
    made = 0
    while True:
        if place[SLOT] >= 0:
            made = _leave(place, following, lines, made)
            if place[SLOT] >= 0:
                return made
            place[START] += slide
        if place[ROW] == order.size:
            return made
        key = keys[order[place[ROW]]]
        if place[START] == NONE:
            place[START] = _end_after(key[COUNT], rows, slide) - rows
        if place[START] >= key[COUNT]:
            place[ROW] += 1
            place[START] = NONE
            continue
        slot = key[OLDEST]
        for _ in range(place[START] - (key[COUNT] - key[HELD])):
            slot = following[slot]
        place[SLOT] = slot
