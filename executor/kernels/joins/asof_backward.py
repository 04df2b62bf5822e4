"""The native function of ASOF joins with the nearest right row at the left row's time or before it.

Left rows leave up to the watermarks of both sides. Of the right rows before all left rows that can
still come, only the latest row of each key stays.
"""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import cfunc, njit
from cql.executor.kernels.joins import asof
from cql.executor.kernels.joins.asof import (
    DROPS,
    ENDS,
    FEWEST,
    LOOK_AT,
    MOST,
    SHIFT,
    TOLERANCE,
    UNTIL,
    add_pair,
    moved,
    next_piece,
    place_of,
    time_of,
)
from cql.executor.kernels.joins.asof_rows import draw_rows, purge_rows
from cql.executor.kernels.joins.pair_rows import LEFT, RIGHT
from cql.executor.kernels.lib.memory import as_i32, words
from cql.executor.kernels.morsel_layout import (
    CAPACITY,
    DETAIL,
    DETAIL_ROW,
    DONE,
    HEADER,
    INFINITY,
    NEED,
    NEVER,
    OUT,
    OUTPUT_FULL,
    PHASE,
    PORT,
)
from cql.executor.kernels.order.sort_keys import COLUMNS, whole
from cql.executor.kernels.relations import groups
from cql.executor.kernels.relations.frontier import (
    ENDED,
    HEAD,
    LINE,
    READY,
    ROOM,
    TAIL,
    TIMES,
    WATERMARK,
    free_slot,
)

# Descriptor of the right side, behind the words of the groups.
LATEST = groups.END  # address of int32 per key: the slot of its latest row, -1: none
END = groups.END + 1


@njit("void(int64[::1], int64[::1], int64[::1])", nogil=True, cache=True)
def _advance(d: Any, left: Any, right: Any) -> None:
    """Finds the rows that the watermarks of both sides allow now."""
    until = min(left[WATERMARK], moved(right[WATERMARK], -d[SHIFT]))
    d[ENDS + LEFT], d[ENDS + RIGHT] = left[READY], right[READY]
    if until > d[UNTIL]:
        d[UNTIL] = until
        if until == INFINITY:
            d[ENDS + LEFT], d[ENDS + RIGHT] = left[TAIL], right[TAIL]
        else:
            d[ENDS + LEFT] = place_of(left, left[READY], left[TAIL], until)
            d[ENDS + RIGHT] = place_of(right, right[READY], right[TAIL], until + d[SHIFT])


@njit("UniTuple(int64, 2)(int64[::1], int64[::1], int64[::1], int64)", nogil=True, cache=True)
def _draw(d: Any, left: Any, right: Any, room: int) -> tuple[int, int]:
    """Merges the rows of both sides by time, up to ``room`` pairs. Returns their number and, if ids
    are lacking, how many."""
    n, shift, most = 0, d[SHIFT], d[TOLERANCE]
    latest = as_i32(right[LATEST], right[groups.CAPACITY])
    lefts, rights = as_i32(left[LINE], left[ROOM]), as_i32(right[LINE], right[ROOM])
    left_times, right_times = words(left[TIMES], left[ROOM]), words(right[TIMES], right[ROOM])
    while n < room and (left[READY] < d[ENDS + LEFT] or right[READY] < d[ENDS + RIGHT]):
        i, j = left[READY], right[READY]
        a, b = i, j
        end, stop, lacking = next_piece(d, left, right, room - n)
        if lacking > 0:
            return n, lacking
        ids, own = words(right[groups.IDS], stop - j), words(left[groups.IDS], end - i)
        while i < end or j < stop:
            if j < stop and (i == end or right_times[j] - shift <= left_times[i]):
                key = ids[j - b]
                if latest[key] >= 0:
                    free_slot(right, latest[key])
                latest[key] = rights[j]
                j += 1
                continue
            time, key = left_times[i], own[i - a]
            partner = int(latest[key]) if key >= 0 and time != NEVER else -1
            bounded = partner >= 0 and most != INFINITY
            if bounded and time - (time_of(right, partner) - shift) > most:
                partner = -1
            n = add_pair(d, left, right, n, lefts[i], partner)
            free_slot(left, lefts[i])
            i += 1
        left[HEAD] = left[READY] = i
        right[HEAD] = right[READY] = j
    return n, 0


@njit("void(int64[::1], int64)", nogil=True, cache=True)
def _forget(right: Any, below: int) -> None:
    """Removes the keys whose latest row is before ``below``."""
    capacity, gone = right[groups.CAPACITY], 0
    latest, ids = as_i32(right[LATEST], capacity), words(right[groups.IDS], right[groups.PIECE])
    for key in range(capacity):
        if latest[key] >= 0 and time_of(right, latest[key]) < below:
            free_slot(right, latest[key])
            latest[key] = -1
            ids[gone] = key
            gone += 1
            if gone == ids.size:
                groups.free_ids_of(right, ids)
                gone = 0
    groups.free_ids_of(right, ids[:gone])


@njit("void(int64[::1], int64[::1], int64[::1])", nogil=True, cache=True)
def _purge(d: Any, left: Any, right: Any) -> None:
    """Frees the right rows that no left row can have any more: all, when no left row follows, or
    those outside the tolerance of every left row that can still come."""
    if d[DROPS] == 0 and left[ENDED] != 0 and left[READY] == left[TAIL]:
        d[DROPS] = 1
        asof.drop_waiting(right)
        _forget(right, INFINITY)
    capacity = right[groups.CAPACITY]
    if d[TOLERANCE] == INFINITY or d[UNTIL] in (NEVER, INFINITY):
        return
    if capacity - groups.free_ids(right) >= d[LOOK_AT]:
        _forget(right, d[UNTIL] + d[SHIFT] - d[TOLERANCE])
        d[LOOK_AT] = max(d[FEWEST], 2 * (capacity - groups.free_ids(right)))


@cfunc("int64(int64, int64)", nopython=True, cache=True)
def asof_backward(desc: Any, morsel: Any) -> Any:
    d = asof.whole_join(desc)
    left, right = whole(d[LEFT]), whole(d[RIGHT])
    head = words(morsel, HEADER)
    side = right if head[PORT] == RIGHT else left
    u = words(morsel, HEADER + 2 * side[COLUMNS])
    o = words(u[OUT], HEADER + 2 * d[asof.OUTPUTS])
    if u[PHASE] < 2:
        if not asof.take_in(d, side, u):
            return NEED
        _advance(d, left, right)
    asof.begin_output(d, u, o)
    if d[MOST] > 1:
        n, lacking = draw_rows(d, left, right, o[CAPACITY])
    else:
        n, lacking = _draw(d, left, right, o[CAPACITY])
    if lacking > 0 and n == 0:
        u[DETAIL], u[DETAIL_ROW] = groups.NEED_GROUPS, lacking
        return NEED
    asof.send_pairs(d, o, n)
    if left[READY] < d[ENDS + LEFT] or right[READY] < d[ENDS + RIGHT]:
        if left[READY] < d[ENDS + LEFT]:
            asof.punctuate_so_far(d, o, words(left[TIMES], left[ROOM])[left[READY]])
        return OUTPUT_FULL
    if d[MOST] > 1:
        purge_rows(d, left, right)
    else:
        _purge(d, left, right)
    asof.punctuate(d, o)
    return DONE
