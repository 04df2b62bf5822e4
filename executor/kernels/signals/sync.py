"""Sync: the segments of a signal for ranges of time (XStream paper, sections II.A and IV.B.4).

Port 0 brings rows with a range each, port 1 the signal. A row leaves when the signal has passed the
end of its range, with a segment of each channel, which shares the samples. A range over a gap gives
a row for each run in it; a range without samples gives none. A late row is left out. The samples
that are kept are those that a waiting range needs, and those behind the watermark of the beginnings
of ranges. A waiting row has a reference of each segment in it; its column has the segment's number.
"""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import cfunc, njit
from cql.executor.kernels.drive.passing import send
from cql.executor.kernels.lib.memory import as_i32, as_u8, words
from cql.executor.kernels.morsel_layout import (
    CAPACITY,
    CURSOR,
    DETAIL,
    DETAIL_ROW,
    DONE,
    END_OF_INPUT,
    HEADER,
    INFINITY,
    LATE_ROW_ADDRESS,
    LATE_ROW_WORDS,
    LATE_ROWS,
    NEED,
    NEVER,
    OUT,
    OUTPUT_FULL,
    PHASE,
    PORT,
    PUNCTUATION_ADDRESS,
    PUNCTUATION_WORDS,
    PUNCTUATIONS,
    ROWS,
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
    COLUMNS,
    DATA,
    MASK,
    column_at,
    move_values,
    size_of,
    whole,
)
from cql.executor.kernels.signals.kept import address_of, clock_of, number_of
from cql.executor.kernels.signals.layout import LENGTH, MOST_SAMPLES, SEGMENT, START
from cql.executor.kernels.signals.outputs import begin
from cql.executor.kernels.signals.segments import (
    append,
    are_adjacent,
    note_young,
    pass_on,
    release,
    retain,
    subseg,
)
from cql.executor.kernels.signals.timebase import sample_at, time_of

# Requests (DETAIL of NEED).
NEED_SLOTS = 0  # room for DETAIL_ROW more rows
NEED_RUNS = 1  # room for another run
NEED_STORE = 2  # the segment store is full

# Descriptor: behind the words of the slab.
CHANNELS = OWN
STORE_AT = OWN + 1  # the address of the segment store
TIMEBASES = OWN + 2  # the address of the table of timebases
BEGIN = OWN + 3  # the columns with the range
END = OWN + 4
AFTER = OWN + 5  # 1: the beginning is not in the range
BEFORE = OWN + 6  # 1: the end is not in the range
RUNS = OWN + 7  # address: of each run, the numbers of the segments of its channels
RUN_COUNT = OWN + 8
RUN_ROOM = OWN + 9
FIRST = (
    OWN + 10
)  # the waiting rows, in the order of arrival: the first and the last slot (-1: none)
LAST = OWN + 11
WATERMARK = OWN + 12  # no later row has a range that begins before it
ENDED = OWN + 13  # 1: the rows have ended
SIGNAL_ENDED = OWN + 14
# Where the rows that leave go on after a full output.
ROW = OWN + 15  # the slot of the row, -1: at the first
PREVIOUS = OWN + 16  # the slot before it in the list
RUN = OWN + 17  # the run
SHARE = OWN + 18  # rows of the output that the row has given
END_SENT = OWN + 19  # 1: the end of the output was sent
SAMPLES_OUT = OWN + 20  # samples in the segments of the output
PROGRESSING = OWN + 21  # columns of the rows that progress
SIGNALS = OWN + 22  # columns of the rows with segments
# Counters.
ROWS_IN = OWN + 23
ROWS_OUT = OWN + 24
LATE = OWN + 25  # rows below a watermark of their input
EMPTY = OWN + 26  # ranges without samples
OVER_GAPS = OWN + 27  # ranges with samples of several runs
# Of each progressing column, its number and its watermark; then the numbers of the columns with
# segments.
PROGRESS = OWN + 28
ATTRIBUTE = 2

_MICROSECOND = 1000
#: Microseconds beyond which no signal has a sample: nanoseconds of these fit in 64 bits.
_FAR = 9_000_000_000_000_000


@njit("int64(int64)", nogil=True, cache=True)
def _nanoseconds(time: int) -> int:
    return min(max(time, -_FAR), _FAR) * _MICROSECOND


@njit("int64(int64[::1], int64, int64)", nogil=True, cache=True)
def _held(d: Any, run: int, channel: int) -> int:
    """The address of the segment of a channel in a run."""
    runs = words(d[RUNS], d[RUN_ROOM] * d[CHANNELS])
    return address_of(d[STORE_AT], runs[run * d[CHANNELS] + channel])


@njit("void(int64[::1], int64, int64, int64)", nogil=True, cache=True)
def _hold(d: Any, run: int, channel: int, g: int) -> None:
    runs = words(d[RUNS], d[RUN_ROOM] * d[CHANNELS])
    runs[run * d[CHANNELS] + channel] = number_of(d[STORE_AT], g)


@njit("int64(int64[::1], int64)", nogil=True, cache=True)
def _clock(d: Any, g: int) -> int:
    return clock_of(d[TIMEBASES], g)


# -- the signal comes in ---------------------------------------------------------------------------


@njit("int64(int64[::1], int64[::1], int64)", nogil=True, cache=True)
def _take(d: Any, u: Any, r: int) -> int:
    """Appends the segments of row ``r`` to the last run, or begins one. Returns DONE, or NEED with
    the request in DETAIL."""
    g = words(u[HEADER], r + 1)[r]
    run = d[RUN_COUNT] - 1
    goes_on = run >= 0 and are_adjacent(_held(d, run, 0), g)
    if not goes_on:
        run += 1
        if run == d[RUN_ROOM]:
            u[DETAIL] = NEED_RUNS
            return NEED
    for c in range(d[CHANNELS]):
        g = words(u[HEADER + 2 * c], r + 1)[r]
        made = append(_held(d, run, c), g) if goes_on else pass_on(g)
        if made == 0:
            u[DETAIL] = NEED_STORE
            return NEED
        _hold(d, run, c, made)
    if not goes_on:
        d[RUN_COUNT] += 1
    return DONE


@njit("int64(int64[::1])", nogil=True, cache=True)
def _reached(d: Any) -> int:
    """The time, in nanoseconds, up to which the signal has come."""
    if d[SIGNAL_ENDED] != 0:
        return INFINITY
    if d[RUN_COUNT] == 0:
        return NEVER
    g = _held(d, d[RUN_COUNT] - 1, 0)
    line = words(g, SEGMENT)
    return time_of(_clock(d, g), line[START] + line[LENGTH])


@njit("void(int64[::1], int64)", nogil=True, cache=True)
def _drop_runs(d: Any, gone: int) -> None:
    """Lets the first ``gone`` runs go."""
    channels = d[CHANNELS]
    for run in range(gone):
        for c in range(channels):
            release(_held(d, run, c))
    runs = words(d[RUNS], d[RUN_ROOM] * channels)
    for k in range((d[RUN_COUNT] - gone) * channels):
        runs[k] = runs[k + gone * channels]
    d[RUN_COUNT] -= gone


@njit("boolean(int64[::1], int64)", nogil=True, cache=True)
def _trim(d: Any, floor: int) -> bool:
    """Lets the samples before the time ``floor`` (microseconds) go. False: the store is full."""
    if floor == NEVER:
        return True
    gone = 0
    # The last run stays, if empty: it says how far the signal has come.
    while gone + 1 < d[RUN_COUNT]:
        g = _held(d, gone, 0)
        line = words(g, SEGMENT)
        newest = time_of(_clock(d, g), line[START] + line[LENGTH] - 1)
        if floor != INFINITY and newest >= _nanoseconds(floor):
            break
        gone += 1
    if gone > 0:
        _drop_runs(d, gone)
    if d[RUN_COUNT] == 0:
        return True
    g = _held(d, 0, 0)
    line = words(g, SEGMENT)
    less = line[LENGTH]
    if floor != INFINITY:
        less = min(sample_at(_clock(d, g), _nanoseconds(floor)) - line[START], line[LENGTH])
    if less <= 0:
        return True
    rest = line[LENGTH] - less
    for c in range(d[CHANNELS]):
        kept = _held(d, 0, c)
        h = subseg(kept, less, rest)
        if h == 0:
            return False
        _hold(d, 0, c, h)
        release(kept)
    return True


# -- segments in the waiting rows ------------------------------------------------------------------


@njit("int64(int64[::1], int64)", nogil=True, cache=True)
def _signal_column(d: Any, k: int) -> int:
    return int(d[PROGRESS + ATTRIBUTE * d[PROGRESSING] + k])


@njit("boolean(int64[::1], int64, int64)", nogil=True, cache=True)
def _is_held(d: Any, column: int, slot: int) -> bool:
    """Whether a waiting row has a segment in a column, and not NULL."""
    mask = d[column_at(d, column) + MASK]
    return bool(mask == 0 or as_u8(mask, d[SLOTS])[slot] != 0)


@njit("void(int64[::1], int64)", nogil=True, cache=True)
def _hold_segments(d: Any, kept: int) -> None:
    """Takes references of the segments in the rows at PLACES."""
    places = as_i32(d[PLACES], kept)
    for k in range(d[SIGNALS]):
        column = _signal_column(d, k)
        values = words(d[column_at(d, column) + DATA], d[SLOTS])
        for i in range(kept):
            slot = int(places[i])
            if _is_held(d, column, slot):
                retain(values[slot])
                values[slot] = number_of(d[STORE_AT], values[slot])


@njit("int64(int64[::1], int64, int64)", nogil=True, cache=True)
def _value(d: Any, column: int, slot: int) -> int:
    return int(words(d[column_at(d, column) + DATA], d[SLOTS])[slot])


@njit("void(int64[::1], int64, int64)", nogil=True, cache=True)
def _leave_segments(d: Any, slot: int, serial: int) -> None:
    """Leaves the references of a row that leaves to its morsel."""
    for k in range(d[SIGNALS]):
        column = _signal_column(d, k)
        if _is_held(d, column, slot):
            note_young(address_of(d[STORE_AT], _value(d, column, slot)), serial)


@njit("void(int64[::1], int64[::1], int64)", nogil=True, cache=True)
def _give_segments(d: Any, o: Any, first: int) -> None:
    """Writes the addresses of the segments in the output's rows from ``first`` on."""
    for k in range(d[SIGNALS]):
        values = words(o[HEADER + 2 * _signal_column(d, k)], o[ROWS])
        for j in range(first, o[ROWS]):
            values[j] = address_of(d[STORE_AT], values[j])


# -- the rows come in ------------------------------------------------------------------------------


@njit("boolean(int64[::1], int64[::1], int64, int64)", nogil=True, cache=True)
def _is_there(d: Any, u: Any, column: int, r: int) -> bool:
    if d[column_at(d, column) + MASK] == 0:
        return True
    return as_u8(u[HEADER + 2 * column + 1], r + 1)[r] != 0


@njit("boolean(int64[::1], int64[::1], int64)", nogil=True, cache=True)
def _has_range(d: Any, u: Any, r: int) -> bool:
    """Whether neither bound is NULL."""
    return _is_there(d, u, d[BEGIN], r) and _is_there(d, u, d[END], r)


@njit("void(int64[::1], int64[::1])", nogil=True, cache=True)
def _store(d: Any, u: Any) -> None:
    """Stores the rows of a morsel whose range can have samples, behind those that wait."""
    n, kept = u[ROWS], 0
    chosen = as_i32(d[CHOSEN], n)
    begins, ends = words(u[HEADER + 2 * d[BEGIN]], n), words(u[HEADER + 2 * d[END]], n)
    late, e = words(u[LATE_ROW_ADDRESS], LATE_ROW_WORDS * u[LATE_ROWS]), 0
    for r in range(n):
        is_late = False
        while e < u[LATE_ROWS] and late[LATE_ROW_WORDS * e] == r:
            is_late = True
            e += 1
        if is_late:
            d[LATE] += 1
        elif not (_has_range(d, u, r) and begins[r] <= ends[r]):
            d[EMPTY] += 1
        else:
            chosen[kept] = r
            kept += 1
    d[ROWS_IN] += n
    store_rows(d, u, kept)
    _hold_segments(d, kept)
    links, places = as_i32(d[NEXT], d[SLOTS]), as_i32(d[PLACES], kept)
    for k in range(kept):
        slot = int(places[k])
        links[slot] = -1
        if d[LAST] < 0:
            d[FIRST] = slot
        else:
            links[d[LAST]] = slot
        d[LAST] = slot


@njit("void(int64[::1], int64[::1])", nogil=True, cache=True)
def _note_progress(d: Any, u: Any) -> None:
    arrived = words(u[PUNCTUATION_ADDRESS], PUNCTUATION_WORDS * u[PUNCTUATIONS])
    for p in range(u[PUNCTUATIONS]):
        record = PUNCTUATION_WORDS * p
        attribute, value = arrived[record], arrived[record + 1]
        if attribute == END_OF_INPUT:
            if u[PORT] == 0:
                d[ENDED] = 1
            else:
                d[SIGNAL_ENDED] = 1
        elif u[PORT] == 0 and attribute >= 0 and arrived[record + 2] < 0:
            if attribute == d[BEGIN]:
                d[WATERMARK] = max(d[WATERMARK], value)
            for k in range(d[PROGRESSING]):
                at = PROGRESS + ATTRIBUTE * k
                if d[at] == attribute:
                    d[at + 1] = max(d[at + 1], value)


# -- rows leave ------------------------------------------------------------------------------------


@njit("int64(int64[::1], int64)", nogil=True, cache=True)
def _limit(d: Any, slot: int) -> int:
    """The time behind the range of a row, in nanoseconds."""
    return _nanoseconds(_value(d, d[END], slot) + 1 - d[BEFORE])


@njit("int64(int64[::1], int64[::1], int64[::1], int64)", nogil=True, cache=True)
def _emit(d: Any, u: Any, o: Any, slot: int) -> int:
    """Writes the segments of a row's range, from run RUN on. PLACES has the slots of the output's
    rows. Returns DONE, OUTPUT_FULL, or NEED if the store is full."""
    begin = _nanoseconds(_value(d, d[BEGIN], slot) + d[AFTER])
    limit = _limit(d, slot)
    places, channels, columns = as_i32(d[PLACES], o[CAPACITY]), d[CHANNELS], d[COLUMNS]
    while d[RUN] < d[RUN_COUNT]:
        g = _held(d, d[RUN], 0)
        line = words(g, SEGMENT)
        last = line[START] + line[LENGTH]
        first = max(sample_at(_clock(d, g), begin), line[START])
        end = min(sample_at(_clock(d, g), limit), last)
        if first < end:
            j = o[ROWS]
            if j == 0:
                d[SAMPLES_OUT] = 0
            if j == o[CAPACITY] or d[SAMPLES_OUT] >= MOST_SAMPLES:
                return OUTPUT_FULL
            for c in range(channels):
                kept = _held(d, d[RUN], c)
                h = subseg(kept, first - line[START], end - first)
                if h == 0:
                    return NEED
                note_young(h, u[SERIAL])
                words(o[HEADER + 2 * (columns + c)], j + 1)[j] = h
            places[j] = slot
            o[ROWS] = j + 1
            d[SHARE] += 1
            d[SAMPLES_OUT] += channels * (end - first)
            d[ROWS_OUT] += 1
        d[RUN] += 1
    return DONE


@njit("void(int64[::1], int64[::1], int64)", nogil=True, cache=True)
def _copy_rows(d: Any, o: Any, first: int) -> None:
    """Copies the rows at PLACES to the output, from its row ``first`` on."""
    n = o[ROWS] - first
    places, chosen = as_i32(d[PLACES], o[ROWS]), as_i32(d[CHOSEN], n)
    for k in range(n):
        places[k] = places[first + k]
        chosen[k] = first + k
    for c in range(d[COLUMNS]):
        at = column_at(d, c)
        move_values(size_of(d, c), d[at + DATA], o[HEADER + 2 * c], places, chosen, n)
        if d[at + MASK] != 0:
            move_values(1, d[at + MASK], o[HEADER + 2 * c + 1], places, chosen, n)
    _give_segments(d, o, first)


@njit("int64(int64[::1], int64[::1], int64[::1])", nogil=True, cache=True)
def _leave(d: Any, u: Any, o: Any) -> int:
    """Emits the rows whose ranges the signal has passed, in the order of arrival."""
    links, reached = as_i32(d[NEXT], d[SLOTS]), _reached(d)
    if d[ROW] < 0:
        d[ROW], d[PREVIOUS], d[RUN], d[SHARE] = d[FIRST], -1, 0, 0
    while d[ROW] >= 0:
        slot = d[ROW]
        following = int(links[slot])
        if _limit(d, slot) <= reached:
            status = _emit(d, u, o, slot)
            if status != DONE:
                return status
            d[EMPTY] += d[SHARE] == 0
            d[OVER_GAPS] += d[SHARE] > 1
            d[RUN] = d[SHARE] = 0
            if d[PREVIOUS] < 0:
                d[FIRST] = following
            else:
                links[d[PREVIOUS]] = following
            if following < 0:
                d[LAST] = d[PREVIOUS]
            _leave_segments(d, slot, u[SERIAL])
            give_back(d, links, slot)
        else:
            d[PREVIOUS] = slot
        d[ROW] = following
    return DONE


@njit("int64(int64[::1], int64, int64)", nogil=True, cache=True)
def _least(d: Any, column: int, bound: int) -> int:
    """The least of ``bound`` and the values of a column in the rows that wait."""
    links, slot = as_i32(d[NEXT], d[SLOTS]), d[FIRST]
    while slot >= 0:
        bound = min(bound, _value(d, column, slot))
        slot = int(links[slot])
    return bound


@njit("void(int64[::1], int64[::1])", nogil=True, cache=True)
def _punctuate(d: Any, o: Any) -> None:
    leaving, n = words(o[PUNCTUATION_ADDRESS], PUNCTUATION_WORDS * (d[PROGRESSING] + 1)), 0
    for k in range(d[PROGRESSING]):
        at = PROGRESS + ATTRIBUTE * k
        known = _least(d, d[at], INFINITY if d[ENDED] != 0 else d[at + 1])
        if NEVER < known < INFINITY:
            n = send(leaving, n, d[at], known)
    if d[ENDED] != 0 and d[HELD] == 0 and d[END_SENT] == 0:
        n = send(leaving, n, END_OF_INPUT, INFINITY)
        d[END_SENT] = 1
    o[PUNCTUATIONS] = n


@cfunc("int64(int64, int64)", nopython=True, cache=True)
def sync(desc: Any, morsel: Any) -> Any:
    d = whole(desc)
    width = HEADER + 2 * (d[COLUMNS] + d[CHANNELS])
    u = words(morsel, width)
    o = words(u[OUT], width)
    begin(u, o, d[ROWS_OUT])
    first = o[ROWS]
    if u[PHASE] == 0:
        if u[PORT] == 0:
            if d[SLOTS] - d[HELD] < u[ROWS]:
                u[DETAIL], u[DETAIL_ROW] = NEED_SLOTS, u[ROWS]
                return NEED
            if u[ROWS] > 0:
                _store(d, u)
        else:
            while u[CURSOR] < u[ROWS]:
                if _take(d, u, u[CURSOR]) != DONE:
                    return NEED
                u[CURSOR] += 1
        _note_progress(d, u)
        d[ROW] = -1
        u[PHASE] = 1
    status = _leave(d, u, o)
    if o[ROWS] > first:
        _copy_rows(d, o, first)
    if status == NEED:
        u[DETAIL] = NEED_STORE
    if status != DONE:
        return status
    floor = _least(d, d[BEGIN], INFINITY if d[ENDED] != 0 else d[WATERMARK])
    if not _trim(d, floor):
        u[DETAIL] = NEED_STORE
        return NEED
    _punctuate(d, o)
    return DONE
