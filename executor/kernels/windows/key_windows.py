"""The native function of windows over the row numbers of each key:
``[PARTITION BY k ROWS n SLIDE m]`` (the Bucket of a partitioned window, out-of-order paper A.2.2).

The rows of a key are numbered from 0. Window j contains the rows with the numbers
``[j * slide, j * slide + rows)``. The slab holds the rows that later windows need: a key has a list
of its last HELD rows, of COUNT rows so far.
"""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import cfunc, njit
from cql.executor.kernels.lib.memory import as_i32, as_u8, copy_bytes, lines, words
from cql.executor.kernels.morsel_layout import (
    CAPACITY,
    DETAIL,
    DETAIL_ROW,
    DONE,
    END_OF_INPUT,
    HEADER,
    NEED,
    OUT,
    OUTPUT_FULL,
    PHASE,
    PUNCTUATION_ADDRESS,
    PUNCTUATION_WORDS,
    PUNCTUATIONS,
    ROWS,
)
from cql.executor.kernels.order.row_slab import CHOSEN, HELD, NEXT, PLACES, SLOTS, store_rows
from cql.executor.kernels.order.sort_keys import AT, COLUMNS, whole
from cql.executor.kernels.relations import groups
from cql.executor.kernels.relations.frontier import (
    ENDED,
    NEED_SLOTS,
    ROWS_IN,
    begin_output,
    free_slot,
    give_columns,
    punctuate_so_far,
    punctuate_up_to,
)

NEED_ORDER = 3  # request of the operator: the keys in the order of their first rows

# Descriptor: behind the words of ``groups``.
LENGTH = groups.END  # rows of a window
SLIDE = LENGTH + 1
# From where the morsel goes on.
ROW = LENGTH + 2  # the row; at the end of the input, the key
LOOKED_FROM = LENGTH + 3  # the first of the rows that have their keys in IDS
LOOKED = LENGTH + 4  # the row behind them
LEAVING = LENGTH + 5  # the slot of the next row of the window that is leaving; -1: none is
START = LENGTH + 6  # the number of that window's first row
# Counters.
LEFT = LENGTH + 7  # windows that have left
BETWEEN = LENGTH + 8  # rows that fell between windows
PURGED = LENGTH + 9
# Addresses.
TAKEN = LENGTH + 10  # int32 per row of the morsel: its slot
OF_KEYS = LENGTH + 11  # OF_KEY words per key
ORDER = LENGTH + 12  # int64 per key in use: the keys in the order of their first rows
ORDERED = LENGTH + 13  # their number; -1: they are not in order yet
END = LENGTH + 14
#: Words of a key: its rows so far, those that it holds, the slots of the oldest and the newest of
#: these, and the number of its first row in the input.
COUNT, HOLDS, OLDEST, NEWEST, SINCE = range(5)
OF_KEY = 5
#: START before the first window of a key leaves at the end of the input.
NONE = -(1 << 62)
#: The phase in which the rows of the morsel have been pushed.
_PUSHED = 2


@njit("int64(int64, int64, int64)", cache=True)
def _end_after(number: int, rows: int, slide: int) -> int:
    """The least window end above row number ``number``."""
    return number + 1 + (rows - number - 1) % slide


@njit("int64(int64[::1], int64[::1], int64)", nogil=True, cache=True)
def _leave(d: Any, o: Any, n: int) -> int:
    """Outputs rows of the window that is leaving until the output is full; returns the number of
    rows written so far."""
    links, slot, capacity = as_i32(d[NEXT], d[SLOTS]), d[LEAVING], o[CAPACITY]
    places, at = as_i32(d[PLACES], capacity), HEADER + 2 * d[COLUMNS]
    starts, numbers = words(o[at], capacity), words(o[at + 2], capacity)
    while slot >= 0 and n < capacity:
        places[n], starts[n], numbers[n] = slot, d[START], d[LEFT]
        n += 1
        slot = int(links[slot])
    d[LEAVING] = slot
    if slot < 0:
        d[LEFT] += 1
    return n


@njit("void(int64[::1], int64[::1], int64)", nogil=True, cache=True)
def _forget(d: Any, key: Any, below: int) -> None:
    """Purges the rows of a key with a number below ``below``. Their values stay until the next
    morsel comes in."""
    links = as_i32(d[NEXT], d[SLOTS])
    while key[HOLDS] > 0 and key[COUNT] - key[HOLDS] < below:
        slot = key[OLDEST]
        key[OLDEST] = links[slot]
        free_slot(d, slot)
        key[HOLDS] -= 1
        d[PURGED] += 1


@njit("int64(int64[::1], int64)", nogil=True, cache=True)
def _look_up(d: Any, rows: int) -> int:
    """Finds the keys of the next rows of the morsel, which has so many ``rows``. Returns the number
    of ids that are lacking."""
    first = d[ROW]
    many = min(rows - first, d[groups.PIECE])
    if groups.free_ids(d) < many:
        return int(many)
    groups.find_ids(d, d, d[AT], as_i32(d[TAKEN], rows), first, first + many)
    d[LOOKED_FROM], d[LOOKED] = first, first + many
    ids, fresh = words(d[groups.IDS], many), as_u8(d[groups.FRESH], many)
    keys = lines(d[OF_KEYS], d[groups.CAPACITY], OF_KEY)
    for k in range(many):
        if fresh[k] != 0:
            keys[ids[k], SINCE] = d[ROWS_IN] - rows + first + k
    return 0


@njit("UniTuple(int64, 2)(int64[::1], int64[::1], int64[::1])", nogil=True, cache=True)
def _push_rows(d: Any, u: Any, o: Any) -> tuple[int, int]:
    """Appends the rows of the morsel to their keys, in order. A row that completes a window makes
    the window leave. Returns the number of rows written to the output, and that of the ids that are
    lacking. All rows have been pushed if ROW is behind the last one and no window is leaving."""
    rows, n = u[ROWS], 0
    links, taken = as_i32(d[NEXT], d[SLOTS]), as_i32(d[TAKEN], rows)
    ids = words(d[groups.IDS], d[groups.PIECE])
    keys = lines(d[OF_KEYS], d[groups.CAPACITY], OF_KEY)
    while True:
        if d[LEAVING] >= 0:
            n = _leave(d, o, n)
            if d[LEAVING] >= 0:
                return n, 0
            _forget(d, keys[ids[d[ROW] - d[LOOKED_FROM]]], d[START] + d[SLIDE])
            d[ROW] += 1
        if d[ROW] == rows:
            return n, 0
        if d[ROW] == d[LOOKED]:
            lacking = _look_up(d, rows)
            if lacking > 0:
                return n, lacking
        slot, key = taken[d[ROW]], keys[ids[d[ROW] - d[LOOKED_FROM]]]
        number = key[COUNT]
        key[COUNT] += 1
        end = _end_after(number, d[LENGTH], d[SLIDE])
        if number < end - d[LENGTH]:
            free_slot(d, slot)
            d[BETWEEN] += 1
            d[ROW] += 1
            continue
        links[slot] = -1
        if key[HOLDS] == 0:
            key[OLDEST] = slot
        else:
            links[key[NEWEST]] = slot
        key[NEWEST] = slot
        key[HOLDS] += 1
        if end == number + 1:
            d[LEAVING], d[START] = key[OLDEST], end - d[LENGTH]
        else:
            d[ROW] += 1


@njit("int64(int64[::1], int64[::1])", nogil=True, cache=True)
def _close_windows(d: Any, o: Any) -> int:
    """Outputs, at the end of the input, all windows that have rows: key by key in the ORDER.
    Returns the number of rows written; all have left if the output is not full."""
    links, order = as_i32(d[NEXT], d[SLOTS]), words(d[ORDER], d[ORDERED])
    keys, n = lines(d[OF_KEYS], d[groups.CAPACITY], OF_KEY), 0
    while True:
        if d[LEAVING] >= 0:
            n = _leave(d, o, n)
            if d[LEAVING] >= 0:
                return n
            d[START] += d[SLIDE]
        if d[ROW] == d[ORDERED]:
            return n
        key = keys[order[d[ROW]]]
        if d[START] == NONE:
            d[START] = _end_after(key[COUNT], d[LENGTH], d[SLIDE]) - d[LENGTH]
        if d[START] >= key[COUNT]:
            d[ROW] += 1
            d[START] = NONE
            continue
        slot = key[OLDEST]
        for _ in range(d[START] - (key[COUNT] - key[HOLDS])):
            slot = int(links[slot])
        d[LEAVING] = slot


@njit("boolean(int64[::1], int64[::1])", nogil=True, cache=True)
def _take_in(d: Any, u: Any) -> bool:
    """Stores the rows of a morsel. Returns False if room is needed first."""
    n = u[ROWS]
    if d[SLOTS] - d[HELD] < n:
        u[DETAIL], u[DETAIL_ROW] = NEED_SLOTS, n
        return False
    chosen = as_i32(d[CHOSEN], n)
    for i in range(n):
        chosen[i] = i
    store_rows(d, u, n)
    copy_bytes(d[PLACES], d[TAKEN], 4 * n)
    d[ROWS_IN] += n
    d[ROW] = d[LOOKED] = 0
    arrived = words(u[PUNCTUATION_ADDRESS], PUNCTUATION_WORDS * u[PUNCTUATIONS])
    for p in range(u[PUNCTUATIONS]):
        if arrived[PUNCTUATION_WORDS * p] == END_OF_INPUT:
            d[ENDED] = 1
    return True


@njit("int64(int64[::1], int64[::1], int64[::1], int64)", nogil=True, cache=True)
def _send(d: Any, u: Any, o: Any, n: int) -> int:
    """Sends ``n`` rows; more follow. The window numbers to come are those from LEFT on."""
    give_columns(d, d, d[AT], o, d[COLUMNS], n)
    punctuate_so_far(d, o, d[LEFT])
    return OUTPUT_FULL


@cfunc("int64(int64, int64)", nopython=True, cache=True)
def key_windows(desc: Any, morsel: Any) -> Any:
    d = whole(desc)
    u = words(morsel, HEADER + 2 * d[COLUMNS])
    o = words(u[OUT], HEADER + 2 * (d[COLUMNS] + 2))
    if u[PHASE] == 0:
        if not _take_in(d, u):
            return NEED
        u[PHASE] = 1
    begin_output(d, u, o)
    n = 0
    if u[PHASE] < _PUSHED:
        n, lacking = _push_rows(d, u, o)
        if lacking > 0 and n == 0:
            u[DETAIL], u[DETAIL_ROW] = groups.NEED_GROUPS, lacking
            return NEED
        if lacking > 0 or d[LEAVING] >= 0:
            return _send(d, u, o, n)
        u[PHASE] = _PUSHED
        d[ROW], d[START] = 0, NONE
        if d[ENDED] != 0 and n > 0:
            return _send(d, u, o, n)
    if d[ENDED] != 0:
        if d[ORDERED] < 0:
            u[DETAIL] = NEED_ORDER
            return NEED
        n = _close_windows(d, o)
        if d[LEAVING] >= 0:
            return _send(d, u, o, n)
    give_columns(d, d, d[AT], o, d[COLUMNS], n)
    punctuate_up_to(d, u, o, d[LEFT])
    return DONE
