"""The native function of relations that keep some rows of each key: the last ones, of
``[PARTITION BY k ROWS n]``, the first or the latest one, of ROW_NUMBER() in the order of time, or
those that the changes of a changelog leave.

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
from cql.executor.kernels.order.row_slab import FREE, NEXT, PLACES, SLOTS
from cql.executor.kernels.order.row_slab import HELD as SLAB_HELD
from cql.executor.kernels.order.sort_keys import AT, COLUMNS, DATA, column_at, whole
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
    give_columns,
    is_over,
    punctuate,
    punctuate_so_far,
    take_in,
)

# What a key keeps.
# Of changelogs: its last row, if that is no delete; all its rows, until deletes take them out.
LAST_ROWS, FIRST_ROW, LATEST_ROW, LAST_CHANGE, COPIES = range(5)

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
UNMATCHED = KEPT + 12  # copies that left a changelog and were not in it
CHANGE = KEPT + 13  # of a changelog: the column with the copies that enter or, below zero, leave
END = KEPT + 14
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
    capacity, at, kept, most = o[CAPACITY], HEADER + 2 * d[OUT_TIME], d[KEPT], d[MOST]
    times, line = words(d[TIMES], d[ROOM]), as_i32(d[LINE], d[ROOM])
    links, keys = as_i32(d[NEXT], d[SLOTS]), lines(d[OF_KEYS], d[groups.CAPACITY], OF_KEY)
    places, weights = as_i32(d[PLACES], capacity), words(o[at + 2], capacity)
    born, parted = words(d[BORN], d[SLOTS]), d[BORN] != 0
    order, positions = words(o[at + 4], capacity), words(o[at + 6], capacity)
    n, ready, free, held, leaving, lacking = 0, d[READY], d[FREE], d[SLAB_HELD], d[LEAVING], 0
    entered, left = d[ENTERED], d[LEFT]
    ids = words(d[groups.IDS], d[LOOKED] - d[LOOKED_FROM])
    while n < capacity:
        if leaving >= 0:
            slot, cause, weight, time = leaving, int(line[ready - 1]), -1, times[ready - 1]
            leaving = -1
        else:
            if ready == d[LOOKED]:
                d[READY] = ready
                found = _look_up(d)
                if found <= 0:
                    lacking = -found
                    break
                ids = words(d[groups.IDS], found)
            slot, time, i = int(line[ready]), times[ready], ready - d[LOOKED_FROM]
            key, cause, weight = ids[i], slot, 1
            _fetch(d, keys, ids, i)
            if kept == LATEST_ROW and keys[key, HELD] > 0 and keys[key, LATEST] < time:
                slot, weight, keys[key, HELD] = int(keys[key, NEWEST]), -1, 0
            else:
                ready += 1
                if kept != LAST_ROWS and keys[key, HELD] > 0:
                    links[slot], free = free, slot
                    held -= 1
                    continue
        if weight < 0:
            left += 1
        else:
            d[FIRST] = time if entered == 0 else d[FIRST]
            entered += 1
            if kept == LAST_ROWS:
                links[slot] = -1
                if keys[key, HELD] == 0:
                    keys[key, OLDEST] = slot
                else:
                    links[keys[key, NEWEST]] = slot
            keys[key, NEWEST], keys[key, LATEST] = slot, time
            keys[key, HELD] += 1
            if kept == LAST_ROWS and keys[key, HELD] > most:
                leaving = keys[key, OLDEST]
                keys[key, OLDEST] = links[leaving]
                keys[key, HELD] -= 1
        if weight < 0 or kept == FIRST_ROW:
            links[slot], free = free, slot
            held -= 1
        places[n], weights[n] = slot, weight
        put_integer(o[at], d[TIME_BYTES], n, time)
        if d[NUMBER_BYTES] > 0:
            put_integer(o[at - 2], d[NUMBER_BYTES], n, 1)
        if parted:
            order[n], positions[n] = time, born[cause]
        n += 1
    d[READY], d[HEAD], d[FREE], d[SLAB_HELD], d[LEAVING] = ready, ready, free, held, leaving
    d[ENTERED], d[LEFT] = entered, left
    return n, lacking


@njit("void(int64[::1])", nogil=True, cache=True)
def _forget(d: Any) -> None:
    """Frees the groups of the rows looked up last that keep no row."""
    n = d[LOOKED] - d[LOOKED_FROM]
    keys = lines(d[OF_KEYS], d[groups.CAPACITY], OF_KEY)
    ids, gone, many = words(d[groups.IDS], n), words(d[groups.WANTED], n), 0
    for k in range(n):
        if keys[ids[k], HELD] == 0:
            keys[ids[k], HELD] = -1
            gone[many] = ids[k]
            many += 1
    for k in range(many):
        keys[gone[k], HELD] = 0
    if many > 0:
        groups.free_ids_of(d, gone[:many])
    d[LOOKED_FROM] = d[LOOKED]


@njit("UniTuple(int64, 2)(int64[::1], int64[::1])", nogil=True, cache=True)
def _draw_changes(d: Any, o: Any) -> tuple[int, int]:
    """As ``_draw``, for changelogs. Of COPIES, the column CHANGE of a row that a key keeps has the
    copies that are left, that of a row that takes others out has those still to take."""
    capacity, at, bag = o[CAPACITY], HEADER + 2 * d[OUT_TIME], d[KEPT] == COPIES
    times, line = words(d[TIMES], d[ROOM]), as_i32(d[LINE], d[ROOM])
    links, keys = as_i32(d[NEXT], d[SLOTS]), lines(d[OF_KEYS], d[groups.CAPACITY], OF_KEY)
    copies = words(d[column_at(d, d[CHANGE]) + DATA], d[SLOTS])
    places, weights = as_i32(d[PLACES], capacity), words(o[at + 2], capacity)
    born, parted = words(d[BORN], d[SLOTS]), d[BORN] != 0
    order, positions = words(o[at + 4], capacity), words(o[at + 6], capacity)
    n, ready, free, held, lacking = 0, d[READY], d[FREE], d[SLAB_HELD], 0
    ids = words(d[groups.IDS], d[LOOKED] - d[LOOKED_FROM])
    while n < capacity:
        if d[LEAVING] >= 0:
            slot, cause, weight, time = d[LEAVING], int(line[ready - 1]), -1, times[ready - 1]
            d[LEAVING] = -1
            links[slot], free = free, slot
            held -= 1
        else:
            if ready == d[LOOKED]:
                d[READY] = ready
                _forget(d)
                found = _look_up(d)
                if found <= 0:
                    lacking = -found
                    break
                ids = words(d[groups.IDS], found)
            slot, time, i = int(line[ready]), times[ready], ready - d[LOOKED_FROM]
            key, cause, change = ids[i], slot, copies[slot]
            _fetch(d, keys, ids, i)
            if change > 0:
                ready += 1
                weight = change if bag else 1
                links[slot] = -1
                if keys[key, HELD] == 0:
                    keys[key, OLDEST] = slot
                else:
                    links[keys[key, NEWEST]] = slot
                keys[key, NEWEST], keys[key, LATEST] = slot, time
                keys[key, HELD] += 1
                if not bag and keys[key, HELD] > 1:
                    d[LEAVING] = keys[key, OLDEST]
                    keys[key, OLDEST] = slot
                    keys[key, HELD] = 1
            elif keys[key, HELD] == 0:
                d[UNMATCHED] -= change if bag else -1
                ready += 1
                links[slot], free = free, slot
                held -= 1
                continue
            else:
                oldest = keys[key, OLDEST]
                many = min(copies[oldest], -change) if bag else 1
                if bag:
                    copies[oldest] -= many
                    copies[slot] += many
                if not bag or copies[oldest] == 0:
                    keys[key, OLDEST] = links[oldest]
                    keys[key, HELD] -= 1
                    links[oldest], free = free, oldest
                    held -= 1
                if not bag or copies[slot] == 0:
                    ready += 1
                    links[slot], free = free, slot
                    held -= 1
                slot, weight = oldest, -many
        if weight < 0:
            d[LEFT] -= weight
        else:
            d[FIRST] = time if d[ENTERED] == 0 else d[FIRST]
            d[ENTERED] += weight
        places[n], weights[n] = slot, weight
        put_integer(o[at], d[TIME_BYTES], n, time)
        if parted:
            order[n], positions[n] = time, born[cause]
        n += 1
    d[READY], d[HEAD], d[FREE], d[SLAB_HELD] = ready, ready, free, held
    return n, lacking


@cfunc("int64(int64, int64)", nopython=True, cache=True)
def keyed_rows(desc: Any, morsel: Any) -> Any:
    d = whole(desc)
    u = words(morsel, HEADER + 2 * d[COLUMNS])
    o = words(u[OUT], HEADER + 2 * (d[OUT_TIME] + 4))
    if u[PHASE] < 2:
        if not take_in(d, u):
            return NEED
        d[LOOKED] = d[LOOKED_FROM] = d[READY]
    begin_output(d, u, o)
    n, lacking = _draw_changes(d, o) if d[KEPT] >= LAST_CHANGE else _draw(d, o)
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
