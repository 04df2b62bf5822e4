"""Windows over the row numbers of each key: ``[PARTITION BY k ROWS n SLIDE m]`` (the Bucket of a
partitioned window, out-of-order paper A.2.2).

The rows of a key are numbered from 0. Window j contains the rows with the numbers
``[j * slide, j * slide + rows)``. A key has a linked list of the slots of its last HELD rows, of
COUNT rows so far: the rows that a later window needs.
"""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import njit

#: Words of ``place``, from which a run that lacked room continues: the row (at the end of the
#: input, the key); the slot of the next row of the window that is leaving (-1: no window is
#: leaving) and the number of the first row of this window; counts of the windows that have left, of
#: the free slots, of the rows that fell between windows, and of the rows that were purged.
ROW, SLOT, START, LEFT, FREE, BETWEEN, PURGED = range(7)
WORDS = 7
#: Words of a key.
COUNT, HELD, OLDEST, NEWEST = range(4)
OF_KEY = 4
#: Words of a row that leaves.
LINE = 3
#: START at the end of the input, before the first window of a key leaves.
NONE = -(1 << 62)


@njit("int64(int64, int64, int64)", cache=True)
def _end_after(number: int, rows: int, slide: int) -> int:
    """The least window end above row number ``number``."""
    return number + 1 + (rows - number - 1) % slide


@njit("int64(int64[::1], int64[::1], int64[:, ::1], int64)", cache=True)
def _leave(place: Any, following: Any, lines: Any, made: int) -> int:
    """Writes rows of the window that is leaving to ``lines`` until ``lines`` is full; returns the
    number of lines written so far."""
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
    """Purges the rows of a key with a number below ``below`` and frees their slots."""
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
    """Appends rows to their keys, in order: row ``i``, stored in slot ``slots[i]``, to key
    ``ids[i]``. A row that completes a window makes the window leave, as lines (slot, number of the
    window's first row, serial number of the window). Returns the number of lines written; the
    caller calls again until ``place[ROW]`` is behind the last row."""
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
    """Writes, at the end of the input, all windows that have rows: key by key in the order
    ``order``, as lines like those of ``push_rows``. On the first call ``place`` has ROW 0, SLOT -1
    and START ``NONE``. Returns the number of lines written."""
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
