"""Zip: two signals of one rate side by side, where both have samples. A sample of the second signal
belongs to the one of the first that is nearest in time. No sample is copied.

A *run* is a part of a signal without a gap. The runs of each signal wait for those of the other.
"""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import cfunc, njit
from cql.executor.kernels.drive.passing import send
from cql.executor.kernels.lib.memory import words
from cql.executor.kernels.morsel_layout import (
    CAPACITY,
    CURSOR,
    DETAIL,
    DONE,
    END_OF_INPUT,
    HEADER,
    INFINITY,
    NEED,
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
from cql.executor.kernels.signals.kept import address_of, clock_of, number_of
from cql.executor.kernels.signals.layout import BASE, LENGTH, MOST_SAMPLES, SEGMENT, START
from cql.executor.kernels.signals.outputs import begin
from cql.executor.kernels.signals.segments import (
    append,
    are_adjacent,
    moved,
    note_young,
    pass_on,
    release,
    subseg,
)
from cql.executor.kernels.signals.timebase import PER, RATE, SECOND, TIMEBASE, sample_at, time_of

# Requests (DETAIL of NEED).
NEED_RUNS = 0  # room for another run
NEED_STORE = 1  # the segment store is full
NEED_PHASE = 2  # samples are further apart than TOLERANCE: by APART nanoseconds

# Descriptor: words of the two signals stand side by side.
STORE_AT = 0  # the address of the segment store
TIMEBASES = 1  # the address of the table of timebases
TOLERANCE = 2  # in nanoseconds
CHANNELS = 3
RUNS = 5  # addresses: of each run, the numbers of the segments of its channels
RUN_ROOM = 7
RUN_COUNT = 9
ENDED = 11  # 1: the signal has ended
END_SENT = 13
SAMPLES_OUT = 14  # samples in the segments of the output
APART = 15
# Counters.
ROWS_IN = 16
ROWS_OUT = 17
UNPAIRED = 18  # samples of each signal that the other one lacks
WORDS = 20


@njit("int64(int64[::1], int64, int64, int64)", nogil=True, cache=True)
def _held(d: Any, p: int, run: int, channel: int) -> int:
    """The address of the segment of a channel in a run of signal ``p``."""
    channels = d[CHANNELS + p]
    runs = words(d[RUNS + p], d[RUN_ROOM + p] * channels)
    return address_of(d[STORE_AT], runs[run * channels + channel])


@njit("void(int64[::1], int64, int64, int64, int64)", nogil=True, cache=True)
def _hold(d: Any, p: int, run: int, channel: int, g: int) -> None:
    channels = d[CHANNELS + p]
    runs = words(d[RUNS + p], d[RUN_ROOM + p] * channels)
    runs[run * channels + channel] = number_of(d[STORE_AT], g)


@njit("int64(int64[::1], int64[::1], int64, int64)", nogil=True, cache=True)
def _take(d: Any, u: Any, p: int, r: int) -> int:
    """Appends the segments of row ``r`` to the last run of signal ``p``, or begins one. Returns
    DONE, or NEED with the request in DETAIL."""
    run = d[RUN_COUNT + p] - 1
    goes_on = run >= 0 and are_adjacent(_held(d, p, run, 0), words(u[HEADER], r + 1)[r])
    if not goes_on:
        run += 1
        if run == d[RUN_ROOM + p]:
            u[DETAIL] = NEED_RUNS
            return NEED
    for c in range(d[CHANNELS + p]):
        g = words(u[HEADER + 2 * c], r + 1)[r]
        made = append(_held(d, p, run, c), g) if goes_on else pass_on(g)
        if made == 0:
            u[DETAIL] = NEED_STORE
            return NEED
        _hold(d, p, run, c, made)
    d[RUN_COUNT + p] = run + 1
    return DONE


@njit("boolean(int64[::1], int64, int64)", nogil=True, cache=True)
def _let_go(d: Any, p: int, n: int) -> bool:
    """Lets the first ``n`` samples of the first run of signal ``p`` go, and the run, if it is empty
    and another one follows. False: the store is full."""
    channels, length = d[CHANNELS + p], words(_held(d, p, 0, 0), SEGMENT)[LENGTH]
    if n < length or d[RUN_COUNT + p] == 1:
        for c in range(channels):
            kept = _held(d, p, 0, c)
            h = subseg(kept, n, length - n)
            if h == 0:
                return False
            _hold(d, p, 0, c, h)
            release(kept)
        return True
    for c in range(channels):
        release(_held(d, p, 0, c))
    runs = words(d[RUNS + p], d[RUN_ROOM + p] * channels)
    d[RUN_COUNT + p] -= 1
    for k in range(d[RUN_COUNT + p] * channels):
        runs[k] = runs[k + channels]
    return True


@njit("boolean(int64[::1], int64)", nogil=True, cache=True)
def _is_over(d: Any, p: int) -> bool:
    """Whether signal ``p`` has ended and no sample of it waits."""
    if d[ENDED + p] == 0 or d[RUN_COUNT + p] > 1:
        return False
    return d[RUN_COUNT + p] == 0 or words(_held(d, p, 0, 0), SEGMENT)[LENGTH] == 0


@njit("boolean(int64[::1], int64)", nogil=True, cache=True)
def _let_all_go(d: Any, p: int) -> bool:
    """Lets all samples of signal ``p`` go, which the other one lacks. False: the store is full."""
    while d[RUN_COUNT + p] > 0:
        n = words(_held(d, p, 0, 0), SEGMENT)[LENGTH]
        d[UNPAIRED + p] += n
        if not _let_go(d, p, n):
            return False
        if d[RUN_COUNT + p] == 1 and words(_held(d, p, 0, 0), SEGMENT)[LENGTH] == 0:
            break
    return True


@njit("int64(int64[::1], int64, int64)", nogil=True, cache=True)
def _shift(d: Any, g: int, h: int) -> int:
    """By how much the numbers of samples of ``h`` are above those of the samples of ``g`` nearest
    in time; APART becomes the distance."""
    one, other = clock_of(d[TIMEBASES], g), clock_of(d[TIMEBASES], h)
    base = words(one, TIMEBASE)
    time = time_of(one, 0)
    shift = sample_at(other, time - base[PER] * SECOND // (2 * base[RATE]))
    d[APART] = abs(time_of(other, shift) - time)
    return shift


@njit("int64(int64[::1], int64[::1], int64[::1], int64, int64, int64)", nogil=True, cache=True)
def _emit(d: Any, u: Any, o: Any, begin: int, end: int, shift: int) -> int:
    """Writes the samples from ``begin`` to ``end``, numbers of the first signal, as a row of the
    output. Returns DONE, OUTPUT_FULL, or NEED with the request in DETAIL."""
    j, first = o[ROWS], d[CHANNELS]
    if j == 0:
        d[SAMPLES_OUT] = 0
    if j == o[CAPACITY] or d[SAMPLES_OUT] >= MOST_SAMPLES:
        return OUTPUT_FULL
    base = words(_held(d, 0, 0, 0), SEGMENT)[BASE]
    for c in range(first + d[CHANNELS + 1]):
        if c < first:
            kept = _held(d, 0, 0, c)
            h = subseg(kept, begin - words(kept, SEGMENT)[START], end - begin)
        else:
            kept = _held(d, 1, 0, c - first)
            part = subseg(kept, begin + shift - words(kept, SEGMENT)[START], end - begin)
            h = 0
            if part != 0:
                h = moved(part, base, begin)
                release(part)
        if h == 0:
            u[DETAIL] = NEED_STORE
            return NEED
        note_young(h, u[SERIAL])
        words(o[HEADER + 2 * c], j + 1)[j] = h
    o[ROWS] = j + 1
    d[SAMPLES_OUT] += (first + d[CHANNELS + 1]) * (end - begin)
    d[ROWS_OUT] += 1
    return DONE


@njit("int64(int64[::1], int64[::1], int64[::1])", nogil=True, cache=True)
def _pair(d: Any, u: Any, o: Any) -> int:
    """Emits what both signals have, and lets the samples go that the other signal lacks or that
    have left. Returns DONE, OUTPUT_FULL, or NEED with the request in DETAIL."""
    while d[RUN_COUNT] > 0 and d[RUN_COUNT + 1] > 0:
        g, h = _held(d, 0, 0, 0), _held(d, 1, 0, 0)
        shift = _shift(d, g, h)
        one, other = words(g, SEGMENT), words(h, SEGMENT)
        start, behind = one[START], other[START] - shift
        end, last = start + one[LENGTH], behind + other[LENGTH]
        begin, stop = max(start, behind), min(end, last)
        if begin < stop:
            if d[APART] > d[TOLERANCE]:
                u[DETAIL] = NEED_PHASE
                return NEED
            status = _emit(d, u, o, begin, stop, shift)
            if status != DONE:
                return status
        through = max(begin, stop)
        gone, left = min(through, end) - start, min(through, last) - behind
        d[UNPAIRED] += min(begin, end) - start
        d[UNPAIRED + 1] += min(begin, last) - behind
        drops = d[RUN_COUNT] > 1 and gone == one[LENGTH]
        falls = d[RUN_COUNT + 1] > 1 and left == other[LENGTH]
        if (gone > 0 or drops) and not _let_go(d, 0, gone):
            u[DETAIL] = NEED_STORE
            return NEED
        if (left > 0 or falls) and not _let_go(d, 1, left):
            u[DETAIL] = NEED_STORE
            return NEED
        if gone == 0 and left == 0 and not drops and not falls:
            break
    for p in range(2):
        if _is_over(d, 1 - p) and not _let_all_go(d, p):
            u[DETAIL] = NEED_STORE
            return NEED
    return DONE


@njit("void(int64[::1], int64[::1])", nogil=True, cache=True)
def _note_ends(d: Any, u: Any) -> None:
    arrived = words(u[PUNCTUATION_ADDRESS], PUNCTUATION_WORDS * u[PUNCTUATIONS])
    for p in range(u[PUNCTUATIONS]):
        if arrived[PUNCTUATION_WORDS * p] == END_OF_INPUT:
            d[ENDED + u[PORT]] = 1


@cfunc("int64(int64, int64)", nopython=True, cache=True)
def zip_signals(desc: Any, morsel: Any) -> Any:
    d = words(desc, WORDS)
    width = HEADER + 2 * (d[CHANNELS] + d[CHANNELS + 1])
    u = words(morsel, width)
    o = words(u[OUT], width)
    begin(u, o, d[ROWS_OUT])
    if u[PHASE] == 0:
        while u[CURSOR] < u[ROWS]:
            if _take(d, u, u[PORT], u[CURSOR]) != DONE:
                return NEED
            u[CURSOR] += 1
        d[ROWS_IN] += u[ROWS]
        _note_ends(d, u)
        u[PHASE] = 1
    status = _pair(d, u, o)
    if status != DONE:
        return status
    n = 0
    if d[END_SENT] == 0 and (_is_over(d, 0) or _is_over(d, 1)):
        leaving = words(o[PUNCTUATION_ADDRESS], PUNCTUATION_WORDS)
        n = send(leaving, n, END_OF_INPUT, INFINITY)
        d[END_SENT] = 1
    o[PUNCTUATIONS] = n
    return DONE
