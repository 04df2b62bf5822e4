"""Rewindow: a signal cut into windows, which are segments that share its samples (XStream paper,
section III.A). No sample is copied.

A *run* is a part of the signal without a gap. A window lies within one run: windows of ROWS begin
with its first sample, those of RANGE at multiples of SLIDE in time. The *rests* of a run are the
samples that no whole window covers: its *lead*, which is in the window of RANGE that began before
it, and its end, which is in a window that the run does not fill.
"""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import cfunc, njit
from cql.executor.kernels.drive.passing import send
from cql.executor.kernels.lib.memory import words
from cql.executor.kernels.morsel_layout import (
    CAPACITY,
    CURSOR,
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
    SERIAL,
)
from cql.executor.kernels.signals.kept import address_of, clock_of, number_of
from cql.executor.kernels.signals.layout import LENGTH, MOST_SAMPLES, SEGMENT, START
from cql.executor.kernels.signals.outputs import begin, pass_ends
from cql.executor.kernels.signals.segments import (
    append,
    are_adjacent,
    note_young,
    pass_on,
    release,
    subseg,
)
from cql.executor.kernels.signals.timebase import sample_at, time_of

# Descriptor: the words below, then for each channel, a column of the input, the number of the
# segment with the samples that windows still need (-1: none).
CHANNELS = 0
STORE_AT = 1  # the address of the segment store
TIMEBASES = 2  # the address of the table of timebases
SIZE = 3  # of a window, in samples; or in microseconds
SLIDE = 4
BY_TIME = 5  # 1: in microseconds
WINDOW = 6  # the number of the next window of the run
RUN = 7  # the number of the run's first sample
COVERED = 8  # the number of the sample behind the last one that is in a window
LEAD = 9  # samples of the run's lead
LEAD_WAITS = 10  # 1: the lead has not left
WITH_RESTS = 11  # 1: rests leave, too
SAMPLES_OUT = 12  # samples in the segments of the output
# Counters.
ROWS_IN = 13
ROWS_OUT = 14
SAMPLES_IN = 15
RUNS = 16
RESTS = 17  # samples of rests
FIRST = 18

_MICROSECOND = 1000


@njit("int64(int64[::1], int64)", nogil=True, cache=True)
def _held(d: Any, channel: int) -> int:
    """The address of the segment that is kept of a channel."""
    return address_of(d[STORE_AT], d[FIRST + channel])


@njit("void(int64[::1], int64, int64)", nogil=True, cache=True)
def _hold(d: Any, channel: int, g: int) -> None:
    d[FIRST + channel] = number_of(d[STORE_AT], g)


@njit("int64(int64[::1], int64)", nogil=True, cache=True)
def _clock(d: Any, g: int) -> int:
    return clock_of(d[TIMEBASES], g)


@njit("int64(int64[::1], int64, int64)", nogil=True, cache=True)
def _begin(d: Any, g: int, k: int) -> int:
    """The first sample of window ``k`` of the run of segment ``g``."""
    if d[BY_TIME] != 0:
        return max(sample_at(_clock(d, g), k * d[SLIDE] * _MICROSECOND), d[RUN])
    return int(d[RUN] + k * d[SLIDE])


@njit("int64(int64[::1], int64, int64)", nogil=True, cache=True)
def _end(d: Any, g: int, k: int) -> int:
    """The sample behind the last one of window ``k``."""
    if d[BY_TIME] != 0:
        return sample_at(_clock(d, g), (k * d[SLIDE] + d[SIZE]) * _MICROSECOND)
    return int(d[RUN] + k * d[SLIDE] + d[SIZE])


@njit("int64(int64[::1], int64, int64)", nogil=True, cache=True)
def _starts(d: Any, g: int, k: int) -> int:
    """The beginning of window ``k`` in time, in microseconds."""
    if d[BY_TIME] != 0:
        return int(k * d[SLIDE])
    return time_of(_clock(d, g), _begin(d, g, k)) // _MICROSECOND


@njit("int64(int64[::1], int64, int64, int64)", nogil=True, cache=True)
def _stops(d: Any, g: int, k: int, end: int) -> int:
    """The end of window ``k`` in time, whose samples end before ``end``."""
    if d[BY_TIME] != 0:
        return int(k * d[SLIDE] + d[SIZE])
    return time_of(_clock(d, g), end) // _MICROSECOND


@njit("boolean(int64[::1], int64[::1], int64)", nogil=True, cache=True)
def _take(d: Any, u: Any, r: int) -> bool:
    """Appends the segments of row ``r`` to the run, or begins one. False: the store is full."""
    goes_on = d[FIRST] >= 0
    for c in range(d[CHANNELS]):
        g = words(u[HEADER + 2 * c], r + 1)[r]
        made = append(_held(d, c), g) if goes_on else pass_on(g)
        if made == 0:
            return False
        _hold(d, c, made)
    g = _held(d, 0)
    if not goes_on:
        d[RUNS] += 1
        d[RUN] = words(g, SEGMENT)[START]
        d[COVERED] = d[RUN]
        d[WINDOW] = 0
        if d[BY_TIME] != 0:
            began = time_of(_clock(d, g), d[RUN])
            d[WINDOW] = -(-began // (d[SLIDE] * _MICROSECOND))
        behind = min(_begin(d, g, d[WINDOW]), _end(d, g, d[WINDOW] - 1))
        d[LEAD] = max(behind - d[RUN], 0)
        d[LEAD_WAITS] = d[WITH_RESTS] != 0 and d[LEAD] > 0
    return True


@njit(
    "int64(int64[::1], int64[::1], int64[::1], int64, int64, int64, int64)", nogil=True, cache=True
)
def _emit(d: Any, u: Any, o: Any, begin: int, end: int, start: int, stop: int) -> int:
    """Writes the samples from ``begin`` to ``end`` as a row of the output, as the window from
    ``start`` to ``stop`` in time. Returns DONE, OUTPUT_FULL, or NEED if the store is full."""
    j, channels = o[ROWS], d[CHANNELS]
    if j == 0:
        d[SAMPLES_OUT] = 0
    if j == o[CAPACITY] or d[SAMPLES_OUT] >= MOST_SAMPLES:
        return OUTPUT_FULL
    for c in range(channels):
        kept = _held(d, c)
        h = subseg(kept, begin - words(kept, SEGMENT)[START], end - begin)
        if h == 0:
            return NEED
        note_young(h, u[SERIAL])
        words(o[HEADER + 2 * c], j + 1)[j] = h
    words(o[HEADER + 2 * channels], j + 1)[j] = start
    words(o[HEADER + 2 * (channels + 1)], j + 1)[j] = stop
    words(o[HEADER + 2 * (channels + 2)], j + 1)[j] = stop - 1
    o[ROWS] = j + 1
    d[SAMPLES_OUT] += channels * (end - begin)
    d[ROWS_OUT] += 1
    return DONE


@njit("int64(int64[::1], int64[::1], int64[::1], int64)", nogil=True, cache=True)
def _emit_lead(d: Any, u: Any, o: Any, end: int) -> int:
    """Writes the lead of the run, up to sample ``end``."""
    g, k = _held(d, 0), d[WINDOW] - 1
    start = time_of(_clock(d, g), d[RUN]) // _MICROSECOND
    status = _emit(d, u, o, d[RUN], end, start, _stops(d, g, k, end))
    if status == DONE:
        d[LEAD_WAITS] = 0
    return status


@njit("int64(int64[::1], int64[::1], int64[::1])", nogil=True, cache=True)
def _windows(d: Any, u: Any, o: Any) -> int:
    """Emits the windows that the run has whole, and the lead before them."""
    g = _held(d, 0)
    line = words(g, SEGMENT)
    last = line[START] + line[LENGTH]
    if d[LEAD_WAITS] != 0:
        if d[RUN] + d[LEAD] > last:
            return DONE
        status = _emit_lead(d, u, o, d[RUN] + d[LEAD])
        if status != DONE:
            return status
    while True:
        k = d[WINDOW]
        begin, end = _begin(d, g, k), _end(d, g, k)
        if end > last:
            return DONE
        status = _emit(d, u, o, begin, end, _starts(d, g, k), _stops(d, g, k, end))
        if status != DONE:
            return status
        d[COVERED] = end
        d[WINDOW] += 1


@njit("boolean(int64[::1])", nogil=True, cache=True)
def _trim(d: Any) -> bool:
    """Lets the samples before the next window go. False: the store is full."""
    if d[LEAD_WAITS] != 0:
        return True
    g = _held(d, 0)
    line = words(g, SEGMENT)
    gone = min(_begin(d, g, d[WINDOW]) - line[START], line[LENGTH])
    if gone <= 0:
        return True
    rest = line[LENGTH] - gone
    for c in range(d[CHANNELS]):
        kept = _held(d, c)
        h = subseg(kept, gone, rest)
        if h == 0:
            return False
        _hold(d, c, h)
        release(kept)
    return True


@njit("int64(int64[::1], int64[::1], int64[::1])", nogil=True, cache=True)
def _end_run(d: Any, u: Any, o: Any) -> int:
    """Lets the run go, and emits or counts its rests. Returns DONE, OUTPUT_FULL, or NEED if the
    store is full."""
    g, k = _held(d, 0), d[WINDOW]
    line = words(g, SEGMENT)
    last = line[START] + line[LENGTH]
    if d[LEAD_WAITS] != 0:
        status = _emit_lead(d, u, o, min(d[RUN] + d[LEAD], last))
        if status != DONE:
            return status
    rest = max(_begin(d, g, k), d[COVERED])
    if d[WITH_RESTS] != 0 and rest < last:
        start = time_of(_clock(d, g), rest) // _MICROSECOND
        status = _emit(d, u, o, rest, last, start, _stops(d, g, k, _end(d, g, k)))
        if status != DONE:
            return status
    d[RESTS] += min(d[LEAD], last - d[RUN]) + max(last - rest, 0)
    for c in range(d[CHANNELS]):
        release(_held(d, c))
        d[FIRST + c] = -1
    return DONE


@njit("void(int64[::1], int64[::1], int64[::1])", nogil=True, cache=True)
def _punctuate(d: Any, u: Any, o: Any) -> None:
    """Says from which times on windows follow, and passes the end of the input on."""
    leaving, n = words(o[PUNCTUATION_ADDRESS], 3 * PUNCTUATION_WORDS), 0
    if d[FIRST] >= 0:
        g, k = _held(d, 0), d[WINDOW]
        start, stop = _starts(d, g, k), _stops(d, g, k, _end(d, g, k))
        line = words(g, SEGMENT)
        following = line[START] + line[LENGTH]  # a run may begin with it
        if d[BY_TIME] == 0:
            start = min(start, time_of(_clock(d, g), following) // _MICROSECOND)
            stop = min(stop, time_of(_clock(d, g), following + d[SIZE]) // _MICROSECOND)
        elif d[WITH_RESTS] != 0:  # with a lead
            first = d[RUN] if d[LEAD_WAITS] != 0 else following
            time = time_of(_clock(d, g), first)
            start = min(start, time // _MICROSECOND)
            before = -(-time // (d[SLIDE] * _MICROSECOND)) - 1
            stop = min(stop, before * d[SLIDE] + d[SIZE])
        n = send(leaving, n, d[CHANNELS], start)
        n = send(leaving, n, d[CHANNELS] + 1, stop)
        n = send(leaving, n, d[CHANNELS] + 2, stop - 1)
    pass_ends(u, o, n)


@njit("boolean(int64[::1])", nogil=True, cache=True)
def _has_ended(u: Any) -> bool:
    arrived = words(u[PUNCTUATION_ADDRESS], PUNCTUATION_WORDS * u[PUNCTUATIONS])
    ended = False
    for p in range(u[PUNCTUATIONS]):
        ended |= arrived[PUNCTUATION_WORDS * p] == END_OF_INPUT
    return ended


@cfunc("int64(int64, int64)", nopython=True, cache=True)
def rewindow(desc: Any, morsel: Any) -> Any:
    channels = words(desc, 1)[0]
    d = words(desc, FIRST + channels)
    u = words(morsel, HEADER + 2 * channels)
    o = words(u[OUT], HEADER + 2 * (channels + 3))
    begin(u, o, d[ROWS_OUT])
    while u[CURSOR] < u[ROWS]:
        r = u[CURSOR]
        if u[PHASE] == 0:
            g = words(u[HEADER], r + 1)[r]
            if d[FIRST] >= 0 and not are_adjacent(_held(d, 0), g):
                status = _end_run(d, u, o)
                if status != DONE:
                    return status
            if not _take(d, u, r):
                return NEED
            d[ROWS_IN] += 1
            d[SAMPLES_IN] += words(g, SEGMENT)[LENGTH]
            u[PHASE] = 1
        status = _windows(d, u, o)
        if status != DONE:
            return status
        if not _trim(d):
            return NEED
        u[PHASE] = 0
        u[CURSOR] = r + 1
    if d[FIRST] >= 0 and _has_ended(u):
        status = _end_run(d, u, o)
        if status != DONE:
            return status
    _punctuate(d, u, o)
    return DONE
