"""Rows that wait until the watermark passes their instant, in the order of their time.

The rows lie in a slab (``kernels.order.row_slab``). The *line* has a place per row, in the order of
time, ties by arrival: the row's time and its slot. The places from HEAD to below READY hold rows
whose instant is over and that the operator still needs; those from READY to below TAIL hold rows
that wait.
"""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import njit
from cql.executor.kernels.drive.passing import send
from cql.executor.kernels.lib.memory import as_i32, as_u8, copy_bytes, integer_at, words
from cql.executor.kernels.morsel_layout import CHOSEN as SELECTED
from cql.executor.kernels.morsel_layout import (
    DETAIL,
    DETAIL_ROW,
    END_OF_INPUT,
    EPOCH,
    HEADER,
    IDLE,
    INFINITY,
    NEVER,
    PHASE,
    PUNCTUATION_ADDRESS,
    PUNCTUATION_WORDS,
    PUNCTUATIONS,
    ROWS,
    SEQUENCE,
    SERIAL,
)
from cql.executor.kernels.order.row_slab import (
    CHOSEN,
    HELD,
    NEXT,
    OWN,
    PLACES,
    SLOTS,
    give_back,
    store_rows,
)
from cql.executor.kernels.order.sort_keys import (
    COLUMN_WORDS,
    DATA,
    MASK,
    column_at,
    move_values,
    size_of,
)

# Requests of the operators (DETAIL of NEED).
NEED_SLOTS = 0  # room for DETAIL_ROW more rows
NEED_SPARE = 1  # room to sort DETAIL_ROW rows

# Descriptor: behind the words of the slab.
INSTANT = OWN  # column of the time
OUT_TIME = OWN + 1  # output column of the time, on which the operator emits punctuation
WATERMARK = OWN + 2  # instants before it are over
SENT = OWN + 3  # the watermark sent last
ENDED = OWN + 4  # whether the input has ended
LAST = OWN + 5  # the latest watermark before the end
HEAD = OWN + 6
READY = OWN + 7
TAIL = OWN + 8
SORTED = OWN + 9  # the places below are in order
ROOM = OWN + 10  # capacity of the line
SPARE = OWN + 11  # capacity of the scratch for sorting
# Counters.
ROWS_IN = OWN + 12
ROWS_OUT = OWN + 13
# Addresses.
TIMES = OWN + 14  # int64 per place of the line
LINE = OWN + 15  # int32 per place of the line: the slot of the row
SPARE_TIMES = OWN + 16  # scratch
SPARE_LINE = OWN + 17
BORN = OWN + 18  # int64 per slot: the stream position of the row; 0: rows have none
BEHIND = OWN + 19  # the first word that belongs to the operator

#: Rows of a run that insertion sorts before the runs are merged.
_RUN = 8


# -- a morsel comes in -----------------------------------------------------------------------------


@njit("void(int64[::1])", nogil=True, cache=True)
def _move_to_front(d: Any) -> None:
    """Moves the line to the beginning of its arrays."""
    times, line = words(d[TIMES], d[ROOM]), as_i32(d[LINE], d[ROOM])
    gone = d[HEAD]
    for k in range(gone, d[TAIL]):
        times[k - gone], line[k - gone] = times[k], line[k]
    for place in (HEAD, READY, TAIL, SORTED):
        d[place] -= gone


@njit("void(int64[::1], int64[::1], int64)", nogil=True, cache=True)
def append_chosen(d: Any, u: Any, n: int) -> None:
    """Stores the ``n`` CHOSEN rows of a morsel, and appends them to the line. A row whose time is
    NULL is sorted before all others."""
    store_rows(d, u, n)
    if d[TAIL] + n > d[ROOM]:
        _move_to_front(d)
    times, line = words(d[TIMES], d[ROOM]), as_i32(d[LINE], d[ROOM])
    chosen, places = as_i32(d[CHOSEN], n), as_i32(d[PLACES], n)
    data, size = u[HEADER + 2 * d[INSTANT]], size_of(d, d[INSTANT])
    masked = d[column_at(d, d[INSTANT]) + MASK] != 0
    there = as_u8(u[HEADER + 2 * d[INSTANT] + 1], u[ROWS])
    at, in_order = d[TAIL], d[SORTED] == d[TAIL]
    for i in range(n):
        time = integer_at(data, size, chosen[i])
        if masked and there[chosen[i]] == 0:
            time = NEVER
        in_order &= at == d[READY] or times[at - 1] <= time
        times[at], line[at] = time, places[i]
        at += 1
        if in_order:
            d[SORTED] = at
    d[TAIL] = at
    if d[BORN] != 0:
        born = words(d[BORN], d[SLOTS])
        for i in range(n):
            born[places[i]] = u[SEQUENCE] + chosen[i]


@njit("void(int64[::1], int64[::1], int64)", nogil=True, cache=True)
def append_rows(d: Any, u: Any, first: int) -> None:
    """Stores the rows of a morsel from ``first`` on, and appends them to the line."""
    n = u[ROWS] - first
    chosen = as_i32(d[CHOSEN], n)
    if u[SELECTED] != 0:
        copy_bytes(u[SELECTED] + 4 * first, d[CHOSEN], 4 * n)
    else:
        for i in range(n):
            chosen[i] = first + i
    append_chosen(d, u, n)


@njit("void(int64[::1], int64, int64, int64)", nogil=True, cache=True)
def _merge_places(d: Any, first: int, middle: int, end: int) -> None:
    """Merges the sorted places ``first`` to ``middle`` with those behind, to ``end``."""
    times, line = words(d[TIMES], d[ROOM]), as_i32(d[LINE], d[ROOM])
    spare_times, spare_line = words(d[SPARE_TIMES], d[SPARE]), as_i32(d[SPARE_LINE], d[SPARE])
    if times[middle - 1] <= times[middle]:
        return
    low, high = first, middle - 1  # the rows before ``low`` stay where they are
    while low < high:
        half = (low + high) >> 1
        if times[half] > times[middle]:
            high = half
        else:
            low = half + 1
    moved = middle - low
    for k in range(moved):
        spare_times[k], spare_line[k] = times[low + k], line[low + k]
    a, b, at = 0, middle, low
    while a < moved:
        if b < end and times[b] < spare_times[a]:
            times[at], line[at] = times[b], line[b]
            b += 1
        else:
            times[at], line[at] = spare_times[a], spare_line[a]
            a += 1
        at += 1


@njit("void(int64[::1], int64, int64)", nogil=True, cache=True)
def _sort_places(d: Any, first: int, end: int) -> None:
    """Sorts the places ``first`` to ``end`` by time; the sort is stable."""
    times, line = words(d[TIMES], d[ROOM]), as_i32(d[LINE], d[ROOM])
    for run in range(first, end, _RUN):
        for k in range(run + 1, min(run + _RUN, end)):
            time, slot, at = times[k], line[k], k
            while at > run and times[at - 1] > time:
                times[at], line[at] = times[at - 1], line[at - 1]
                at -= 1
            times[at], line[at] = time, slot
    width = _RUN
    while width < end - first:
        for run in range(first, end - width, 2 * width):
            _merge_places(d, run, run + width, min(run + 2 * width, end))
        width *= 2


@njit("void(int64[::1], int64[::1])", nogil=True, cache=True)
def note_progress(d: Any, u: Any) -> None:
    arrived = words(u[PUNCTUATION_ADDRESS], PUNCTUATION_WORDS * u[PUNCTUATIONS])
    watermark, ended = d[WATERMARK], False
    for p in range(u[PUNCTUATIONS]):
        record = PUNCTUATION_WORDS * p
        if arrived[record] == END_OF_INPUT:
            ended = True
        elif arrived[record] == d[INSTANT] and arrived[record + 2] < 0:
            watermark = max(watermark, arrived[record + 1])
    if watermark != INFINITY:
        d[LAST] = watermark
    if ended:
        d[ENDED], watermark = 1, INFINITY
    d[WATERMARK] = watermark


@njit("boolean(int64[::1], int64[::1])", nogil=True, cache=True)
def sort_waiting(d: Any, u: Any) -> bool:
    """Sorts the waiting rows. Returns False if room is needed first."""
    first, end = d[READY], d[TAIL]
    if d[SORTED] < end:
        if d[SPARE] < end - first:
            u[DETAIL], u[DETAIL_ROW] = NEED_SPARE, end - first
            return False
        _sort_places(d, d[SORTED], end)
        if d[SORTED] > first:
            _merge_places(d, first, d[SORTED], end)
        d[SORTED] = end
    return True


@njit("boolean(int64[::1], int64[::1])", nogil=True, cache=True)
def take_in(d: Any, u: Any) -> bool:
    """Takes in a morsel: its rows, then its punctuation. Returns False if room is needed first."""
    if u[PHASE] == 0:
        if d[SLOTS] - d[HELD] < u[ROWS]:
            u[DETAIL], u[DETAIL_ROW] = NEED_SLOTS, u[ROWS]
            return False
        d[ROWS_IN] += u[ROWS]
        append_rows(d, u, 0)
        u[PHASE] = 1
    if u[PHASE] == 1:
        if not sort_waiting(d, u):
            return False
        note_progress(d, u)
        u[PHASE] = 2
    return True


@njit(inline="always")
def is_over(d: Any, time: int) -> bool:
    """Whether the watermark has passed an instant."""
    return bool(time < d[WATERMARK] or d[WATERMARK] == INFINITY)


@njit("int64(int64[::1], int64[::1])", nogil=True, cache=True)
def over_at_once(d: Any, u: Any) -> int:
    """The number of rows of a new morsel that need not wait: its first rows, whose instants are
    over. Below 0: the morsel has to be taken in, since rows wait, do not come in order, or belong
    to several partitions."""
    if d[HEAD] < d[TAIL] or u[SELECTED] != 0 or size_of(d, d[INSTANT]) != 8:
        return -1
    times, n = words(u[HEADER + 2 * d[INSTANT]], u[ROWS]), u[ROWS]
    for i in range(1, n):
        if times[i - 1] > times[i]:
            return -1
    note_progress(d, u)
    while n > 0 and not is_over(d, times[n - 1]):
        n -= 1
    return n


# -- rows leave ------------------------------------------------------------------------------------


@njit(inline="always")
def begin_output(d: Any, u: Any, o: Any) -> None:
    o[SERIAL], o[EPOCH], o[SEQUENCE] = u[SERIAL], u[EPOCH], d[ROWS_OUT]


@njit("void(int64[::1], int64[::1], int64, int64[::1], int64, int64)", nogil=True, cache=True)
def give_columns(d: Any, table: Any, first: int, o: Any, columns: int, n: int) -> None:
    """Copies the first ``columns`` columns of the ``n`` rows at PLACES to the output. ``table``
    holds the addresses of the rows' columns from word ``first`` on."""
    chosen, places = as_i32(d[CHOSEN], n), as_i32(d[PLACES], n)
    for i in range(n):
        chosen[i] = i
    for c in range(columns):
        at = first + COLUMN_WORDS * c
        move_values(size_of(d, c), table[at + DATA], o[HEADER + 2 * c], places, chosen, n)
        if d[column_at(d, c) + MASK] != 0:
            move_values(1, table[at + MASK], o[HEADER + 2 * c + 1], places, chosen, n)
    o[ROWS] = n
    d[ROWS_OUT] += n


@njit("void(int64[::1], int64[::1], int64, int64)", nogil=True, cache=True)
def give_order(d: Any, o: Any, column: int, n: int) -> None:
    """Writes the order columns, from ``column`` on, of the ``n`` rows at PLACES: a row's time
    (NEVER if it is NULL) and its stream position."""
    places, born, at = as_i32(d[PLACES], n), words(d[BORN], d[SLOTS]), HEADER + 2 * column
    times, positions = words(o[at], n), words(o[at + 2], n)
    time = column_at(d, d[INSTANT])
    size, masked = size_of(d, d[INSTANT]), d[time + MASK] != 0
    there = as_u8(d[time + MASK], d[SLOTS])
    for i in range(n):
        slot = places[i]
        times[i] = integer_at(d[time + DATA], size, slot)
        if masked and there[slot] == 0:
            times[i] = NEVER
        positions[i] = born[slot]


@njit(inline="always")
def free_slot(d: Any, slot: int) -> None:
    """Frees the slot of a row. Its values stay until a row comes in."""
    give_back(d, as_i32(d[NEXT], d[SLOTS]), slot)


@njit("void(int64[::1], int64[::1], int64)", nogil=True, cache=True)
def punctuate_so_far(d: Any, o: Any, time: int) -> None:
    """Emits punctuation behind a part of the output: the rest belongs to instants from ``time`` on.
    Not in one of several partitions: the punctuation of all is the same."""
    o[PUNCTUATIONS] = 0
    if d[BORN] == 0 and time > d[SENT]:
        leaving = words(o[PUNCTUATION_ADDRESS], PUNCTUATION_WORDS)
        o[PUNCTUATIONS] = send(leaving, 0, d[OUT_TIME], time)
        d[SENT] = time


@njit("void(int64[::1], int64[::1], int64[::1], int64)", nogil=True, cache=True)
def punctuate_up_to(d: Any, u: Any, o: Any, watermark: int) -> None:
    """Emits punctuation behind the output of a morsel: all later output belongs to instants from
    ``watermark`` on."""
    arrived = words(u[PUNCTUATION_ADDRESS], PUNCTUATION_WORDS * u[PUNCTUATIONS])
    leaving = words(o[PUNCTUATION_ADDRESS], PUNCTUATION_WORDS * (u[PUNCTUATIONS] + 1))
    n = 0
    if d[ENDED] != 0:
        n = send(leaving, n, END_OF_INPUT, INFINITY)
    else:
        for p in range(u[PUNCTUATIONS]):
            if arrived[PUNCTUATION_WORDS * p] == IDLE:
                n = send(leaving, n, IDLE, arrived[PUNCTUATION_WORDS * p + 1])
        if watermark > d[SENT]:
            n = send(leaving, n, d[OUT_TIME], watermark)
            d[SENT] = watermark
    o[PUNCTUATIONS] = n


@njit("void(int64[::1], int64[::1], int64[::1])", nogil=True, cache=True)
def punctuate(d: Any, u: Any, o: Any) -> None:
    """Emits punctuation behind the output of a morsel: all later output belongs to instants that
    are not over."""
    punctuate_up_to(d, u, o, d[WATERMARK])
