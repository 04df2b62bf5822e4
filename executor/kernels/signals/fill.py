"""Fill: the short gaps of a signal become samples. What follows a gap goes on in the timebase of
the samples before it, so its times move by less than the time from a sample to the next."""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import cfunc, njit
from cql.executor.kernels.lib.memory import as_f32, as_f64, as_i8, as_i16, as_i32, words
from cql.executor.kernels.morsel_layout import (
    CAPACITY,
    CURSOR,
    DONE,
    HEADER,
    NEED,
    OUT,
    OUTPUT_FULL,
    PHASE,
    ROWS,
    SERIAL,
)
from cql.executor.kernels.signals.gaps import samples_in
from cql.executor.kernels.signals.kept import address_of, clock_of, number_of
from cql.executor.kernels.signals.layout import BASE, KIND, LENGTH, MOST_SAMPLES, SEGMENT, START
from cql.executor.kernels.signals.of_segments.values import segment_real_sample, segment_sample
from cql.executor.kernels.signals.outputs import begin, pass_ends
from cql.executor.kernels.signals.segments import (
    flat,
    make,
    moved,
    note_young,
    release,
    subseg,
)
from cql.executor.kernels.signals.timebase import time_of

# Descriptor: the words below, then for each channel, a column of the input, the number of the
# segment with its last sample, in the timebase of the output (-1: none).
CHANNELS = 0
STORE_AT = 1  # the address of the segment store
TIMEBASES = 2  # the address of the table of timebases
LONGEST = 3  # samples in the longest gap that is filled
LINEAR = 4  # 1: along a line between the samples beside the gap; 0: like the sample before it
DUE = 5  # when the next sample of the input is due in its timebase, in nanoseconds
SAMPLES_OUT = 6  # samples in the segments of the output
# Counters.
ROWS_IN = 7
ROWS_OUT = 8
FILLED = 9  # gaps
FILLED_SAMPLES = 10
LEFT = 11  # gaps that are longer
FIRST = 12

_FLOATS = 4  # the first kind of samples that are no integers


@njit("void(int64, int64, int64, int64, int64)", nogil=True, cache=True)
def _write_integers(h: int, kind: int, before: int, behind: int, linear: int) -> None:
    n, at = words(h, SEGMENT)[LENGTH], flat(h)
    low, high = min(before, behind), max(before, behind)
    for i in range(n):
        value = before
        if linear != 0:
            exact = float(before) + (float(behind) - float(before)) * (i + 1) / (n + 1)
            if exact >= float(high):
                value = high
            elif exact <= float(low):
                value = low
            else:
                value = round(exact)
        if kind == 0:
            as_i8(at, n)[i] = value
        elif kind == 1:
            as_i16(at, n)[i] = value
        elif kind == 2:
            as_i32(at, n)[i] = value
        else:
            words(at, n)[i] = value


@njit("void(int64, int64, float64, float64, int64)", nogil=True, cache=True)
def _write_reals(h: int, kind: int, before: float, behind: float, linear: int) -> None:
    n, at = words(h, SEGMENT)[LENGTH], flat(h)
    for i in range(n):
        value = before
        if linear != 0:
            value = before + (behind - before) * (i + 1) / (n + 1)
        if kind == _FLOATS:
            as_f32(at, n)[i] = value
        else:
            as_f64(at, n)[i] = value


@njit("int64(int64, int64, int64, int64, int64)", nogil=True, cache=True)
def _between(s: int, last: int, g: int, n: int, linear: int) -> int:
    """The ``n`` samples between the sample ``last`` and the first one of ``g``; 0: no room."""
    line = words(last, SEGMENT)
    h = int(make(s, line[BASE], line[START] + 1, n))
    if h != 0:
        kind = line[BASE] & KIND
        if kind < _FLOATS:
            _write_integers(h, kind, segment_sample(last, 0), segment_sample(g, 0), linear)
        else:
            before, behind = segment_real_sample(last, 0), segment_real_sample(g, 0)
            _write_reals(h, kind, before, behind, linear)
    return h


@njit("int64(int64[::1], int64)", nogil=True, cache=True)
def _missing(d: Any, g: int) -> int:
    """How many samples lie between the last one of the output and ``g``; -1: more than are filled,
    or ``g`` is the first segment."""
    if d[FIRST] < 0:
        return -1
    clock = clock_of(d[TIMEBASES], g)
    begins = time_of(clock, words(g, SEGMENT)[START])
    if begins <= d[DUE]:
        return 0
    last = address_of(d[STORE_AT], d[FIRST])
    due = time_of(clock_of(d[TIMEBASES], last), words(last, SEGMENT)[START] + 1)
    n = samples_in(clock, max(begins - due, 0))
    return n if n <= d[LONGEST] else -1


@njit("int64(int64[::1], int64[::1], int64[::1], int64, int64)", nogil=True, cache=True)
def _fill(d: Any, u: Any, o: Any, r: int, n: int) -> int:
    """Writes the ``n`` samples before row ``r`` as a row of the output. Returns DONE, or NEED if
    the store is full."""
    j = o[ROWS]
    for c in range(d[CHANNELS]):
        last = address_of(d[STORE_AT], d[FIRST + c])
        h = _between(d[STORE_AT], last, words(u[HEADER + 2 * c], r + 1)[r], n, d[LINEAR])
        if h == 0:
            return NEED
        note_young(h, u[SERIAL])
        words(o[HEADER + 2 * c], j + 1)[j] = h
    o[ROWS] = j + 1
    d[FILLED] += 1
    d[FILLED_SAMPLES] += n
    d[SAMPLES_OUT] += d[CHANNELS] * n
    d[ROWS_OUT] += 1
    return DONE


@njit("int64(int64[::1], int64[::1], int64[::1], int64, int64)", nogil=True, cache=True)
def _pass(d: Any, u: Any, o: Any, r: int, n: int) -> int:
    """Writes row ``r`` to the output, ``n`` samples behind the last one (-1: at its own time).
    Returns DONE, or NEED if the store is full."""
    j = o[ROWS]
    for c in range(d[CHANNELS]):
        g = words(u[HEADER + 2 * c], r + 1)[r]
        line = words(g, SEGMENT)
        base, start = line[BASE], line[START]
        if n >= 0:
            before = words(address_of(d[STORE_AT], d[FIRST + c]), SEGMENT)
            base, start = before[BASE], before[START] + 1 + n
        h = moved(g, base, start)
        if h == 0:
            return NEED
        last = subseg(h, line[LENGTH] - 1, 1)
        if last == 0:
            return NEED
        if d[FIRST + c] >= 0:
            release(address_of(d[STORE_AT], d[FIRST + c]))
        d[FIRST + c] = number_of(d[STORE_AT], last)
        note_young(h, u[SERIAL])
        words(o[HEADER + 2 * c], j + 1)[j] = h
    g = words(u[HEADER], r + 1)[r]
    line = words(g, SEGMENT)
    d[DUE] = time_of(clock_of(d[TIMEBASES], g), line[START] + line[LENGTH])
    o[ROWS] = j + 1
    d[SAMPLES_OUT] += d[CHANNELS] * line[LENGTH]
    d[ROWS_OUT] += 1
    return DONE


@cfunc("int64(int64, int64)", nopython=True, cache=True)
def fill(desc: Any, morsel: Any) -> Any:
    channels = words(desc, 1)[0]
    d = words(desc, FIRST + channels)
    u = words(morsel, HEADER + 2 * channels)
    o = words(u[OUT], HEADER + 2 * channels)
    begin(u, o, d[ROWS_OUT])
    while u[CURSOR] < u[ROWS]:
        r = u[CURSOR]
        g = words(u[HEADER], r + 1)[r]
        if words(g, SEGMENT)[LENGTH] > 0:
            n = _missing(d, g)
            while u[PHASE] < 2:
                if o[ROWS] == 0:
                    d[SAMPLES_OUT] = 0
                if o[ROWS] == o[CAPACITY] or d[SAMPLES_OUT] >= MOST_SAMPLES:
                    return OUTPUT_FULL
                if u[PHASE] == 0:
                    if n < 0 and d[FIRST] >= 0:
                        d[LEFT] += 1
                    if n > 0 and _fill(d, u, o, r, n) != DONE:
                        return NEED
                    u[PHASE] = 1
                elif _pass(d, u, o, r, n) != DONE:
                    return NEED
                else:
                    u[PHASE] = 2
        d[ROWS_IN] += 1
        u[PHASE] = 0
        u[CURSOR] = r + 1
    pass_ends(u, o, 0)
    return DONE
