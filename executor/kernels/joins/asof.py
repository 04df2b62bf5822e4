"""The parts of both native functions of ASOF joins (``asof_backward``, ``asof_forward``): rows come
in, pairs leave, punctuation.

Each side has a descriptor of its own (``kernels.relations.frontier``, and behind it the words of
``kernels.relations.groups``); one of the two has an index of keys. A left row leaves once no later
row can change its answer. Left rows leave in the order of time, ties by arrival.
"""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import njit
from cql.executor.kernels.drive.passing import send
from cql.executor.kernels.joins.pair_rows import LEFT, OF_OUTPUT, RIGHT, give_pairs
from cql.executor.kernels.lib.memory import as_i32, as_u8, integer_at, words
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
    PORT,
    PUNCTUATION_ADDRESS,
    PUNCTUATION_WORDS,
    PUNCTUATIONS,
    ROWS,
    SEQUENCE,
    SERIAL,
)
from cql.executor.kernels.order.row_slab import CHOSEN, HELD, PLACES, SLOTS
from cql.executor.kernels.order.sort_keys import (
    AT,
    COLUMN_WORDS,
    DATA,
    KEY_COLUMN,
    KEYS,
    MASK,
    column_at,
    key_at,
    size_of,
    whole,
)
from cql.executor.kernels.relations import groups
from cql.executor.kernels.relations.frontier import (
    BORN,
    ENDED,
    HEAD,
    INSTANT,
    LINE,
    NEED_SLOTS,
    READY,
    ROOM,
    TAIL,
    TIMES,
    WATERMARK,
    append_chosen,
    free_slot,
    give_order,
    note_progress,
    sort_waiting,
)

# The descriptor begins with the addresses of those of the sides, LEFT and RIGHT.
#: The place in a side's line before which its rows take part now, by side.
ENDS = 2
SHIFT = 4
TOLERANCE = 5  # INFINITY: none
PADS = 6  # whether left rows without a partner leave
OUTPUTS = 7  # number of output columns
TIME_OUT = 8  # output column with the left time, on which the operator emits punctuation; -1: none
UNTIL = 9  # the time before which all left rows have left, and none follows
SENT = 10  # the watermark sent last
IDLES = 11  # by side: whether the input is idle
IDLING = 13  # whether the output is
DROPS = 14  # whether no left row needs a right row any more
LOOK_AT = 15  # number of keys at which keys outside the tolerance are removed
FEWEST = 16  # the least such number
# Counters.
ROWS_IN = 17
ROWS_OUT = 18
LEFT_ROWS = 19
UNMATCHED = 20
NULL_KEYS = 21
TAKEN = 22  # right rows with a key and a time
TOO_LATE = 23  # by side
CURSOR = 25  # slot of the next partner of the first left row; -1: it has not begun
MOST = 26  # right rows of a key that take part
FIRST = 27  # the words of the output columns (``kernels.joins.pair_rows``)


@njit("int64[::1](int64)", cache=True)
def whole_join(desc: int) -> Any:
    """All words of a join's descriptor."""
    return words(desc, FIRST + OF_OUTPUT * words(desc, OUTPUTS + 1)[OUTPUTS])


@njit(inline="always")
def moved(time: int, by: int) -> int:
    return time if time in (NEVER, INFINITY) else time + by


# -- a morsel comes in -----------------------------------------------------------------------------


@njit("boolean(int64[::1], int64[::1], int64, int64)", nogil=True, cache=True)
def has_key(s: Any, table: Any, first: int, row: int) -> bool:
    """Whether no key column of a row is NULL. ``table`` holds the addresses of the rows' columns
    from word ``first`` on: those of a morsel, or of the side's slab."""
    for k in range(s[KEYS]):
        c = s[key_at(s, k) + KEY_COLUMN]
        mask = table[first + COLUMN_WORDS * c + MASK]
        if s[column_at(s, c) + MASK] != 0 and as_u8(mask, row + 1)[row] == 0:
            return False
    return True


@njit("int64(int64[::1], int64[::1], int64[::1])", nogil=True, cache=True)
def _choose(d: Any, s: Any, u: Any) -> int:
    """Lists the rows of a morsel that the join keeps: not those below the bound that the side got
    while it was idle, nor right rows without a time or a key. Returns their number."""
    n, kept, c = u[ROWS], 0, s[INSTANT]
    chosen, there = as_i32(s[CHOSEN], n), as_u8(u[HEADER + 2 * c + 1], n)
    data, size, watermark = u[HEADER + 2 * c], size_of(s, c), s[WATERMARK]
    right, selected = u[PORT] == RIGHT, as_i32(u[SELECTED], n)
    for k in range(n):
        i = int(selected[k]) if u[SELECTED] != 0 else k
        if there[i] != 0 and watermark > NEVER and integer_at(data, size, i) < watermark:
            d[TOO_LATE + u[PORT]] += 1
            continue
        if right:
            if there[i] == 0 or not has_key(s, u, HEADER, i):
                d[NULL_KEYS] += 1
                continue
            d[TAKEN] += 1
            if d[DROPS] != 0:
                continue
        chosen[kept] = i
        kept += 1
    return kept


@njit("void(int64[::1])", nogil=True, cache=True)
def _wait_for_no_idle(d: Any) -> None:
    """Gives an idle side the watermark of the other one."""
    left, right = whole(d[LEFT]), whole(d[RIGHT])
    if left[ENDED] != 0 or right[ENDED] != 0 or d[IDLES + LEFT] == d[IDLES + RIGHT]:
        return
    if d[IDLES + RIGHT] != 0:
        right[WATERMARK] = max(right[WATERMARK], moved(left[WATERMARK], d[SHIFT]))
    else:
        left[WATERMARK] = max(left[WATERMARK], moved(right[WATERMARK], -d[SHIFT]))


@njit("boolean(int64[::1], int64[::1], int64[::1])", nogil=True, cache=True)
def take_in(d: Any, s: Any, u: Any) -> bool:
    """Takes in a morsel of side ``s``: its rows, then its punctuation. Returns False if room is
    needed first."""
    if u[PHASE] == 0:
        if s[SLOTS] - s[HELD] < u[ROWS]:
            u[DETAIL], u[DETAIL_ROW] = NEED_SLOTS, u[ROWS]
            return False
        d[ROWS_IN] += u[ROWS]
        append_chosen(s, u, _choose(d, s, u))
        u[PHASE] = 1
    if not sort_waiting(s, u):
        return False
    note_progress(s, u)
    arrived = words(u[PUNCTUATION_ADDRESS], PUNCTUATION_WORDS * u[PUNCTUATIONS])
    for p in range(u[PUNCTUATIONS]):
        if arrived[PUNCTUATION_WORDS * p] == IDLE:
            d[IDLES + u[PORT]] = arrived[PUNCTUATION_WORDS * p + 1]
    _wait_for_no_idle(d)
    u[PHASE] = 2
    return True


@njit("int64(int64[::1], int64, int64, int64)", nogil=True, cache=True)
def place_of(s: Any, first: int, end: int, time: int) -> int:
    """The first place of a side's line, of those from ``first`` to ``end``, whose time is not below
    ``time``; ``end`` if there is none."""
    times = words(s[TIMES], s[ROOM])
    while first < end:
        half = (first + end) >> 1
        if times[half] < time:
            first = half + 1
        else:
            end = half
    return first


@njit(inline="always")
def place_above(s: Any, first: int, end: int, time: int) -> int:
    """As ``place_of``, for times above ``time``."""
    return end if time == INFINITY else place_of(s, first, end, time + 1)


@njit("UniTuple(int64, 3)(int64[::1], int64[::1], int64[::1], int64)", nogil=True, cache=True)
def next_piece(d: Any, left: Any, right: Any, room: int) -> tuple[int, int, int]:
    """Looks up the keys of the next rows of both sides, at most ``room`` of the left; no row behind
    them comes before them. Returns the places behind them and, if ids are lacking, how many."""
    shift, i, j = d[SHIFT], left[READY], right[READY]
    end = min(d[ENDS + LEFT], i + min(left[groups.PIECE], room))
    stop = min(d[ENDS + RIGHT], j + right[groups.PIECE])
    if end < d[ENDS + LEFT]:
        stop = place_above(right, j, stop, moved(words(left[TIMES], end)[end - 1], shift))
    if stop < d[ENDS + RIGHT]:
        end = place_of(left, i, end, words(right[TIMES], stop + 1)[stop] - shift)
    if groups.free_ids(right) < stop - j:
        return end, stop, stop - j
    groups.find_ids(right, right, right[AT], as_i32(right[LINE], right[ROOM]), j, stop)
    groups.look_up_ids(right, left, left, left[AT], as_i32(left[LINE], left[ROOM]), i, end)
    return end, stop, 0


@njit("void(int64[::1])", nogil=True, cache=True)
def drop_waiting(right: Any) -> None:
    """Frees the right rows that wait."""
    line = as_i32(right[LINE], right[ROOM])
    for k in range(right[READY], right[TAIL]):
        free_slot(right, line[k])
    right[HEAD] = right[READY] = right[TAIL]


# -- pairs leave -----------------------------------------------------------------------------------


@njit("void(int64[::1], int64[::1], int64[::1])", nogil=True, cache=True)
def begin_output(d: Any, u: Any, o: Any) -> None:
    o[SERIAL], o[EPOCH], o[SEQUENCE] = u[SERIAL], u[EPOCH], d[ROWS_OUT]


@njit(inline="always")
def add_pair(d: Any, left: Any, right: Any, n: int, slot: int, partner: int) -> int:
    """Adds a left row and its partner (-1: none) to the output, which has ``n`` rows; returns how
    many it has then."""
    d[LEFT_ROWS] += 1
    d[UNMATCHED] += partner < 0
    if partner < 0 and d[PADS] == 0:
        return n
    as_i32(left[PLACES], n + 1)[n] = slot
    as_i32(right[PLACES], n + 1)[n] = partner
    return n + 1


@njit("void(int64[::1], int64[::1], int64)", nogil=True, cache=True)
def send_pairs(d: Any, o: Any, n: int) -> None:
    """Copies the ``n`` pairs to the output."""
    left = whole(d[LEFT])
    give_pairs(left, whole(d[RIGHT]), d[FIRST:], o, n)
    if left[BORN] != 0:
        give_order(left, o, d[OUTPUTS], n)
    o[ROWS] = n
    d[ROWS_OUT] += n


@njit(inline="always")
def time_of(right: Any, slot: int) -> int:
    """The time of the right row in a slot."""
    c = right[INSTANT]
    return int(integer_at(right[column_at(right, c) + DATA], size_of(right, c), slot))


@njit("void(int64[::1], int64[::1], int64)", nogil=True, cache=True)
def punctuate_so_far(d: Any, o: Any, time: int) -> None:
    """Emits punctuation behind a part of the output: the next left row has ``time``. Not in one of
    several partitions: the punctuation of all is the same."""
    o[PUNCTUATIONS] = 0
    if whole(d[LEFT])[BORN] == 0 and d[TIME_OUT] >= 0 and d[SENT] < time < INFINITY:
        leaving = words(o[PUNCTUATION_ADDRESS], PUNCTUATION_WORDS)
        o[PUNCTUATIONS] = send(leaving, 0, d[TIME_OUT], time)
        d[SENT] = time


@njit("void(int64[::1], int64[::1])", nogil=True, cache=True)
def punctuate(d: Any, o: Any) -> None:
    """Emits punctuation behind the output of a morsel."""
    left, right = whole(d[LEFT]), whole(d[RIGHT])
    leaving, n = words(o[PUNCTUATION_ADDRESS], 3 * PUNCTUATION_WORDS), 0
    ended = left[ENDED] != 0 and right[ENDED] != 0
    if ended:
        n = send(leaving, n, END_OF_INPUT, INFINITY)
    elif d[TIME_OUT] >= 0 and d[UNTIL] > d[SENT]:
        d[SENT] = d[UNTIL]
        n = send(leaving, n, d[TIME_OUT], d[SENT])
    resting = d[IDLES + LEFT] != 0 or left[ENDED] != 0
    idling = int(resting and (d[IDLES + RIGHT] != 0 or right[ENDED] != 0) and not ended)
    if idling != d[IDLING]:
        d[IDLING] = idling
        n = send(leaving, n, IDLE, idling)
    o[PUNCTUATIONS] = n
