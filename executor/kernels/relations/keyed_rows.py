"""The native function of relations that keep some rows of each key: the last ones, of
``[PARTITION BY k ROWS n]``, or the first or the latest one, of ROW_NUMBER() in the order of time.

The rows that a key keeps are linked in the slab, in the order in which they entered.
"""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import cfunc, njit
from cql.executor.kernels.lib.memory import as_i32, integer_at, lines, prefetch, put_integer, words
from cql.executor.kernels.morsel_layout import (
    CAPACITY,
    DETAIL,
    DETAIL_ROW,
    DONE,
    HEADER,
    NEED,
    OUT,
    OUTPUT_FULL,
    PHASE,
)
from cql.executor.kernels.order.row_slab import NEXT, PLACES, SLOTS
from cql.executor.kernels.order.sort_keys import AT, COLUMNS, whole
from cql.executor.kernels.relations import groups
from cql.executor.kernels.relations.frontier import (
    BORN,
    HEAD,
    LINE,
    OUT_TIME,
    READY,
    ROOM,
    TAIL,
    TIMES,
    begin_output,
    free_slot,
    give_columns,
    is_over,
    punctuate,
    punctuate_so_far,
    take_in,
)

# What a key keeps.
LAST_ROWS, FIRST_ROW, LATEST_ROW = range(3)

# Descriptor: behind the words of ``groups``.
KEPT = groups.END
MOST = KEPT + 1  # rows of a key
GIVEN = KEPT + 2  # columns of the input that are output
TIME_BYTES = KEPT + 3  # bytes of a time of the output
NUMBER_BYTES = KEPT + 4  # of the row number before the time; 0: there is none
LOOKED = KEPT + 5  # the rows at the places below have their groups in IDS
LOOKED_FROM = KEPT + 6  # the place of the first of them
LEAVING = KEPT + 7  # the slot of the row that leaves next; -1: none
# Counters.
ENTERED = KEPT + 8
LEFT = KEPT + 9
FIRST = KEPT + 10  # the instant at which the first row entered; INFINITY: none has
OF_KEYS = KEPT + 11  # address of OF_KEY words per group
END = KEPT + 12
#: Of each group: the slots of its oldest and its newest row, the number of its rows, and the time
#: of its newest row.
OLDEST, NEWEST, HELD, LATEST = range(4)
OF_KEY = 4
#: Groups are prefetched this many rows ahead, the rows that may leave half as many.
_AHEAD = 16


@njit("int64(int64[::1])", nogil=True, cache=True)
def _look_up(d: Any) -> int:
    """Finds the groups of the next rows whose instants are over. Returns their number; below 0: so
    many ids are lacking."""
    times = words(d[TIMES], d[ROOM])
    first, end = d[READY], d[READY]
    while end < d[TAIL] and end - first < d[groups.PIECE] and is_over(d, times[end]):
        end += 1
    if groups.free_ids(d) < end - first:
        return first - end
    groups.find_ids(d, d, d[AT], as_i32(d[LINE], d[ROOM]), first, end)
    d[LOOKED_FROM], d[LOOKED] = first, end
    return int(end - first)


@njit(inline="always")
def _write(d: Any, o: Any, n: int, slot: int, time: int, weight: int, cause: int) -> None:
    """Writes a change: the row in ``slot``, because of the row in slot ``cause``."""
    at = HEADER + 2 * d[OUT_TIME]
    as_i32(d[PLACES], n + 1)[n] = slot
    put_integer(o[at], d[TIME_BYTES], n, time)
    words(o[at + 2], n + 1)[n] = weight
    if d[NUMBER_BYTES] > 0:
        put_integer(o[at - 2], d[NUMBER_BYTES], n, 1)
    if d[BORN] != 0:
        words(o[at + 4], n + 1)[n] = time
        words(o[at + 6], n + 1)[n] = words(d[BORN], cause + 1)[cause]


@njit(inline="always")
def _fetch(d: Any, keys: Any, ids: Any, i: int) -> None:
    """Prefetches what the rows after row ``i`` need."""
    if i + _AHEAD < ids.size:
        prefetch(d[OF_KEYS] + 8 * OF_KEY * ids[i + _AHEAD])
    if i + _AHEAD // 2 < ids.size:
        key = ids[i + _AHEAD // 2]
        prefetch(d[NEXT] + 4 * keys[key, OLDEST])
        prefetch(d[NEXT] + 4 * keys[key, NEWEST])


@njit("UniTuple(int64, 2)(int64[::1], int64[::1])", nogil=True, cache=True)
def _draw(d: Any, o: Any) -> tuple[int, int]:
    """Writes changes to the output; returns their number and, if ids are lacking, how many."""
    times, line = words(d[TIMES], d[ROOM]), as_i32(d[LINE], d[ROOM])
    links, kept = as_i32(d[NEXT], d[SLOTS]), d[KEPT]
    n, keys = 0, lines(d[OF_KEYS], d[groups.CAPACITY], OF_KEY)
    while n < o[CAPACITY]:
        if d[LEAVING] >= 0:
            _write(d, o, n, d[LEAVING], times[d[READY] - 1], -1, line[d[READY] - 1])
            free_slot(d, d[LEAVING])
            d[LEAVING] = -1
            d[LEFT] += 1
            n += 1
            continue
        if d[READY] == d[LOOKED]:
            found = _look_up(d)
            if found <= 0:
                return n, -found
        ids = words(d[groups.IDS], d[LOOKED] - d[LOOKED_FROM])
        slot, time, i = int(line[d[READY]]), times[d[READY]], d[READY] - d[LOOKED_FROM]
        key = ids[i]
        _fetch(d, keys, ids, i)
        if kept == LATEST_ROW and keys[key, HELD] > 0 and keys[key, LATEST] < time:
            _write(d, o, n, keys[key, NEWEST], time, -1, slot)
            free_slot(d, keys[key, NEWEST])
            keys[key, HELD] = 0
            d[LEFT] += 1
            n += 1
            continue
        d[READY] += 1
        d[HEAD] = d[READY]
        if kept != LAST_ROWS and keys[key, HELD] > 0:
            free_slot(d, slot)
            continue
        d[FIRST] = time if d[ENTERED] == 0 else d[FIRST]
        d[ENTERED] += 1
        _write(d, o, n, slot, time, 1, slot)
        n += 1
        if kept == FIRST_ROW:
            free_slot(d, slot)
        elif kept == LAST_ROWS:
            links[slot] = -1
            if keys[key, HELD] == 0:
                keys[key, OLDEST] = slot
            else:
                links[keys[key, NEWEST]] = slot
        keys[key, NEWEST], keys[key, LATEST] = slot, time
        keys[key, HELD] += 1
        if kept == LAST_ROWS and keys[key, HELD] > d[MOST]:
            d[LEAVING] = keys[key, OLDEST]
            keys[key, OLDEST] = links[keys[key, OLDEST]]
            keys[key, HELD] -= 1
    return n, 0


@cfunc("int64(int64, int64)", nopython=True, cache=True)
def keyed_rows(desc: Any, morsel: Any) -> Any:
    d = whole(desc)
    u = words(morsel, HEADER + 2 * d[COLUMNS])
    o = words(u[OUT], HEADER + 2 * (d[OUT_TIME] + 4))
    if u[PHASE] < 2:
        if not take_in(d, u):
            return NEED
        d[LOOKED] = d[READY]
    begin_output(d, u, o)
    n, lacking = _draw(d, o)
    if lacking > 0 and n == 0:
        u[DETAIL], u[DETAIL_ROW] = groups.NEED_GROUPS, lacking
        return NEED
    give_columns(d, d, d[AT], o, d[GIVEN], n)
    if lacking > 0 or n == o[CAPACITY]:
        last = integer_at(o[HEADER + 2 * d[OUT_TIME]], d[TIME_BYTES], n - 1)
        punctuate_so_far(d, o, last)
        return OUTPUT_FULL
    punctuate(d, u, o)
    return DONE
