"""The native function of ASOF joins with the nearest right row at the left row's time or after it.

Both sides are merged by time. The left rows that a key has without a partner are linked, the oldest
first; the next right row of the key becomes the partner of all of them. They leave in the order of
time, so a left row may wait for others that have no partner yet.
"""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import cfunc, njit
from cql.executor.kernels.joins import asof
from cql.executor.kernels.joins.asof import (
    DROPS,
    ENDS,
    SHIFT,
    TOLERANCE,
    UNTIL,
    add_pair,
    has_key,
    moved,
    place_above,
    place_of,
    time_of,
)
from cql.executor.kernels.joins.pair_rows import LEFT, RIGHT
from cql.executor.kernels.lib.memory import as_i32, as_u8, words
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
from cql.executor.kernels.order.row_slab import SLOTS
from cql.executor.kernels.order.sort_keys import (
    AT,
    COLUMNS,
    whole,
)
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

# Descriptor of the left side, behind the words of the groups: addresses. Per slot:
PARTNER = groups.END  # int32: the slot of the right row; OPEN, or KEYLESS
LINK = groups.END + 1  # int32: the next left row of the key
KEY = groups.END + 2  # int32: the id of the key
# Per key:
OLDEST = groups.END + 3  # int32: the first of the linked rows, -1: none
NEWEST = groups.END + 4  # int32
ANSWERED = groups.END + 5  # int64: the time of the partner of the linked rows; NEVER: none yet
COUNT = groups.END + 6  # int32: rows
END = groups.END + 7
# Descriptor of the right side.
USES = groups.END  # address of int32 per slot: the uses of the row, by the line and by left rows
RIGHT_END = groups.END + 1

OPEN, KEYLESS = -1, -2


@njit("void(int64[::1], int64[::1], int64[::1])", nogil=True, cache=True)
def _advance(d: Any, left: Any, right: Any) -> None:
    """Finds the rows that take part in the merge: nothing can come before them any more."""
    least, complete = left[WATERMARK], moved(right[WATERMARK], -d[SHIFT])
    end = left[TAIL] if least == INFINITY else place_of(left, left[READY], left[TAIL], least)
    d[ENDS + LEFT] = place_above(left, left[READY], end, complete)
    until = min(right[WATERMARK], moved(least, d[SHIFT]))
    last = right[TAIL]
    d[ENDS + RIGHT] = last if until == INFINITY else place_of(right, right[READY], last, until)


@njit("void(int64[::1], int64, int64, int64, boolean)", nogil=True, cache=True)
def _enter(left: Any, slot: int, key: int, time: int, fresh: bool) -> None:
    """A left row joins the rows of its key that have no partner."""
    partner, link = as_i32(left[PARTNER], left[SLOTS]), as_i32(left[LINK], left[SLOTS])
    capacity = left[groups.CAPACITY]
    oldest, newest = as_i32(left[OLDEST], capacity), as_i32(left[NEWEST], capacity)
    answered, count = words(left[ANSWERED], capacity), as_i32(left[COUNT], capacity)
    if fresh:
        oldest[key], answered[key], count[key] = -1, NEVER, 0
    count[key] += 1
    as_i32(left[KEY], left[SLOTS])[slot] = key
    if time == NEVER or not has_key(left, left, left[AT], slot):
        partner[slot] = KEYLESS
        return
    partner[slot], link[slot] = OPEN, -1
    if oldest[key] < 0 or answered[key] != NEVER:
        oldest[key], answered[key] = slot, NEVER
    else:
        link[newest[key]] = slot
    newest[key] = slot


@njit("void(int64[::1], int64)", nogil=True, cache=True)
def _release(right: Any, slot: int) -> None:
    """One use of a right row fewer; the slot of a row without uses is free. (A free slot has one
    use: that of the row that it gets, by the line.)"""
    uses = as_i32(right[USES], right[SLOTS])
    uses[slot] -= 1
    if uses[slot] == 0:
        uses[slot] = 1
        free_slot(right, slot)


@njit("void(int64[::1], int64[::1], int64, int64, int64)", nogil=True, cache=True)
def _answer(left: Any, right: Any, slot: int, key: int, time: int) -> None:
    """A right row becomes the partner of the linked rows of its key, in place of an earlier one of
    the same time."""
    if key < 0:
        return
    uses, capacity = as_i32(right[USES], right[SLOTS]), left[groups.CAPACITY]
    oldest, answered = as_i32(left[OLDEST], capacity), words(left[ANSWERED], capacity)
    partner, link = as_i32(left[PARTNER], left[SLOTS]), as_i32(left[LINK], left[SLOTS])
    if answered[key] != NEVER and answered[key] != time:
        return
    at = int(oldest[key])
    while at >= 0:
        if partner[at] != slot:
            uses[slot] += 1
            if partner[at] >= 0:
                _release(right, partner[at])
            partner[at] = slot
        answered[key] = time
        at = int(link[at])


@njit("int64(int64[::1], int64[::1], int64[::1])", nogil=True, cache=True)
def _merge(d: Any, left: Any, right: Any) -> int:
    """Merges the rows of both sides by time. Returns how many ids are lacking."""
    shift = d[SHIFT]
    lefts, rights = as_i32(left[LINE], left[ROOM]), as_i32(right[LINE], right[ROOM])
    left_times, right_times = words(left[TIMES], left[ROOM]), words(right[TIMES], right[ROOM])
    while left[READY] < d[ENDS + LEFT] or right[READY] < d[ENDS + RIGHT]:
        # The next rows whose keys are looked up at once; no row behind them comes before them.
        i, j = left[READY], right[READY]
        a, b = i, j
        end = min(d[ENDS + LEFT], i + left[groups.PIECE])
        stop = min(d[ENDS + RIGHT], j + right[groups.PIECE])
        if end < d[ENDS + LEFT]:
            stop = place_of(right, j, stop, moved(left_times[end], shift))
        if stop < d[ENDS + RIGHT]:
            end = place_above(left, i, end, right_times[stop] - shift)
        if groups.free_ids(left) < end - i:
            return int(end - i)
        groups.find_ids(left, left, left[AT], lefts, i, end)
        groups.look_up_ids(left, right, right, right[AT], rights, j, stop)
        own, ids = words(left[groups.IDS], end - i), words(right[groups.IDS], stop - j)
        fresh = as_u8(left[groups.FRESH], end - i)
        while i < end or j < stop:
            if i < end and (j == stop or left_times[i] <= right_times[j] - shift):
                _enter(left, lefts[i], own[i - a], left_times[i], fresh[i - a] != 0)
                i += 1
            else:
                _answer(left, right, rights[j], ids[j - b], right_times[j] - shift)
                _release(right, rights[j])
                j += 1
        left[READY] = i
        right[HEAD] = right[READY] = j
    return 0


@njit("int64(int64[::1], int64[::1], int64[::1], boolean)", nogil=True, cache=True)
def _known_until(d: Any, left: Any, right: Any, ahead: bool) -> int:
    """The time before which every right row has been merged or, if ``ahead``, has already become
    the partner of left rows that wait for it. (A right row is merged once the watermark of the left
    has passed it, since left rows before it may still come. Those that are here need not wait.)"""
    first, known, shift = right[READY], right[TAIL], d[SHIFT]
    if right[WATERMARK] != INFINITY:
        known = place_of(right, first, known, right[WATERMARK])
    times, line = words(right[TIMES], right[ROOM]), as_i32(right[LINE], right[ROOM])
    if ahead and first < known:
        end = min(known, first + right[groups.PIECE])
        while first < end < known and times[end - 1] == times[end]:
            end -= 1  # of rows of one time the last one counts
        groups.look_up_ids(left, right, right, right[AT], line, first, end)
        ids = words(right[groups.IDS], end - first)
        for j in range(first, end):
            _answer(left, right, line[j], ids[j - first], times[j] - shift)
        first = end
    return times[first] - shift if first < known else moved(right[WATERMARK], -shift)


@njit("int64(int64[::1], int64[::1], int64[::1], int64)", nogil=True, cache=True)
def _draw(d: Any, left: Any, right: Any, room: int) -> int:
    """Takes the left rows whose answers are final, in order, up to ``room`` pairs; returns their
    number."""
    n, gone, shift, most = 0, 0, d[SHIFT], d[TOLERANCE]
    lefts, times = as_i32(left[LINE], left[ROOM]), words(left[TIMES], left[ROOM])
    capacity, ahead = left[groups.CAPACITY], False
    complete = _known_until(d, left, right, ahead)
    partner, link = as_i32(left[PARTNER], left[SLOTS]), as_i32(left[LINK], left[SLOTS])
    key_of, count = as_i32(left[KEY], left[SLOTS]), as_i32(left[COUNT], capacity)
    oldest, ids = as_i32(left[OLDEST], capacity), words(left[groups.IDS], left[groups.PIECE])
    while n < room and left[HEAD] < left[READY]:
        time, slot = times[left[HEAD]], int(lefts[left[HEAD]])
        found = int(partner[slot])
        if found == OPEN and not ahead:
            ahead = True
            complete = _known_until(d, left, right, ahead)
            found = int(partner[slot])
        late = most != INFINITY and complete != NEVER and time < complete - most
        if found == OPEN and complete != INFINITY and not late:
            break
        met = found if found >= 0 else -1
        if met >= 0 and most != INFINITY and time_of(right, met) - shift - time > most:
            met = -1
        n = add_pair(d, left, right, n, slot, met)
        if found >= 0:
            _release(right, found)
        key = int(key_of[slot])
        if oldest[key] == slot:
            oldest[key] = link[slot]
        count[key] -= 1
        if count[key] == 0:
            ids[gone] = key
            gone += 1
            if gone == ids.size:
                groups.free_ids_of(left, ids)
                gone = 0
        free_slot(left, slot)
        left[HEAD] += 1
    groups.free_ids_of(left, ids[:gone])
    return n


@njit("int64(int64[::1])", nogil=True, cache=True)
def _next_time(left: Any) -> int:
    """The time of the next left row, or the watermark."""
    time = left[WATERMARK]
    if left[HEAD] < left[TAIL]:
        time = min(time, words(left[TIMES], left[ROOM])[left[HEAD]])
    return int(time)


@cfunc("int64(int64, int64)", nopython=True, cache=True)
def asof_forward(desc: Any, morsel: Any) -> Any:
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
    lacking = _merge(d, left, right)
    if lacking > 0:
        u[DETAIL], u[DETAIL_ROW] = groups.NEED_GROUPS, lacking
        return NEED
    asof.begin_output(d, u, o)
    n = _draw(d, left, right, o[CAPACITY])
    asof.send_pairs(d, o, n)
    if n == o[CAPACITY]:
        asof.punctuate_so_far(d, o, _next_time(left))
        return OUTPUT_FULL
    if left[ENDED] != 0 and left[HEAD] == left[TAIL] and d[DROPS] == 0:
        d[DROPS] = 1
        asof.drop_waiting(right)
    d[UNTIL] = max(d[UNTIL], _next_time(left))
    asof.punctuate(d, o)
    return DONE
