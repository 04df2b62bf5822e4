"""RSTREAM: all rows of a relation at each instant with changes: a function for
``kernels.relations.group_changes``.

Each distinct row is a group. The rows of the relation form a list in the order in which they
entered it.
"""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import cfunc, njit
from cql.executor.kernels.lib.memory import words
from cql.executor.kernels.morsel_layout import DONE

# Descriptor. The words of the piece, which the driver sets or reads.
CHANGES = 0  # rows of the piece
MADE = 1  # rows written
MORE = 2  # 1: more rows of the piece follow, when called again
TIMES = 3  # addresses, per row of the piece
WEIGHTS = 4
OWNERS = 5  # row ids
# Capacities.
ROWS = 6  # row ids
ROOM = 7  # rows that are written at a time
# Where the piece goes on.
NEXT_ROW = 8  # the changes of the piece before it are applied
AT = 9  # the row that is written next; -1: the relation is written
COPIES = 10  # the copies of it that are written
# The list; -1: it is empty.
OLDEST = 11
NEWEST = 12
# Addresses, per row id.
HELD = 13  # copies in the relation
BEFORE = 14  # the row that entered before it; -1: none
AFTER = 15
# Addresses, per row of the output.
OUT_OWNER = 16
OUT_TIME = 17
WORDS = 18


@njit("void(int64[::1], int64)", nogil=True, cache=True)
def _append(d: Any, row: int) -> None:
    before, after = words(d[BEFORE], d[ROWS]), words(d[AFTER], d[ROWS])
    before[row], after[row] = d[NEWEST], -1
    if d[NEWEST] >= 0:
        after[d[NEWEST]] = row
    else:
        d[OLDEST] = row
    d[NEWEST] = row


@njit("void(int64[::1], int64)", nogil=True, cache=True)
def _unlink(d: Any, row: int) -> None:
    before, after = words(d[BEFORE], d[ROWS]), words(d[AFTER], d[ROWS])
    if before[row] >= 0:
        after[before[row]] = after[row]
    else:
        d[OLDEST] = after[row]
    if after[row] >= 0:
        before[after[row]] = before[row]
    else:
        d[NEWEST] = before[row]


@njit("void(int64[::1])", nogil=True, cache=True)
def _apply_instant(d: Any) -> None:
    """Applies the changes of the next instant."""
    n, i = d[CHANGES], d[NEXT_ROW]
    times, weights, owners = words(d[TIMES], n), words(d[WEIGHTS], n), words(d[OWNERS], n)
    held, time = words(d[HELD], d[ROWS]), times[i]
    while i < n and times[i] == time:
        row = owners[i]
        was, now = held[row], held[row] + weights[i]
        held[row] = now
        if was <= 0 < now:
            _append(d, row)
        elif now <= 0 < was:
            _unlink(d, row)
        i += 1
    d[NEXT_ROW], d[AT], d[COPIES] = i, d[OLDEST], 0


@njit("boolean(int64[::1])", nogil=True, cache=True)
def _write_relation(d: Any) -> bool:
    """Writes the rows of the relation. Returns False if the output is full."""
    held, after = words(d[HELD], d[ROWS]), words(d[AFTER], d[ROWS])
    owners, times = words(d[OUT_OWNER], d[ROOM]), words(d[OUT_TIME], d[ROOM])
    time = words(d[TIMES], d[NEXT_ROW])[d[NEXT_ROW] - 1]
    row, copies, made, room = d[AT], d[COPIES], d[MADE], d[ROOM]
    while row >= 0 and made < room:
        owners[made], times[made] = row, time
        made += 1
        copies += 1
        if copies == held[row]:
            row, copies = after[row], 0
    d[AT], d[COPIES], d[MADE] = row, copies, made
    return bool(row < 0)


@cfunc("int64(int64, int64)", nopython=True, cache=True)
def whole_relation(desc: Any, morsel: Any) -> Any:
    d = words(desc, WORDS)
    if d[MORE] == 0:
        d[NEXT_ROW] = 0
    d[MADE] = 0
    while d[MORE] != 0 or d[NEXT_ROW] < d[CHANGES]:
        if d[MORE] == 0:
            _apply_instant(d)
        d[MORE] = 0
        if d[AT] >= 0 and not _write_relation(d):
            d[MORE] = 1
            return DONE
    return DONE
