"""Rows of segments: each sample of the segments of a row becomes a row, with its time."""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import cfunc, njit
from cql.executor.kernels.drive.passing import send
from cql.executor.kernels.lib.memory import as_u8, words
from cql.executor.kernels.morsel_layout import (
    CAPACITY,
    CURSOR,
    DONE,
    HEADER,
    OUT,
    OUTPUT_FULL,
    PUNCTUATION_ADDRESS,
    PUNCTUATION_WORDS,
    ROWS,
    SUB,
)
from cql.executor.kernels.signals.kept import clock_of
from cql.executor.kernels.signals.layout import BASE, LENGTH, SEGMENT, START
from cql.executor.kernels.signals.outputs import begin, pass_ends
from cql.executor.kernels.signals.segments import copy_out, sample_bytes
from cql.executor.kernels.signals.timebase import time_of

# Descriptor: the words below, then two for each column of the output: the column of the input with
# its segments (-1: it has the times), and whether it has a mask.
COLUMNS = 0
CHANNELS = 1
TIMEBASES = 2  # the address of the table of timebases
TIME = 3  # the column with the times, -1: none
OPEN = 4  # 1: there was a sample
LATEST = 5  # the time of the last sample, in microseconds
ROWS_IN = 6
ROWS_OUT = 7
FIRST = 8

_MICROSECOND = 1000


@njit("void(int64[::1], int64[::1], int64[::1], int64, int64)", nogil=True, cache=True)
def _write(d: Any, u: Any, o: Any, r: int, n: int) -> None:
    """Writes the next ``n`` samples of row ``r`` to the output, which has room for them."""
    j, skip = o[ROWS], u[SUB]
    for c in range(d[COLUMNS]):
        channel, target = d[FIRST + 2 * c], o[HEADER + 2 * c]
        if channel >= 0:
            g = words(u[HEADER + 2 * channel], r + 1)[r]
            copy_out(g, skip, n, target + sample_bytes(words(g, SEGMENT)[BASE]) * j)
        else:
            g = words(u[HEADER], r + 1)[r]
            clock, first = clock_of(d[TIMEBASES], g), words(g, SEGMENT)[START] + skip
            times = words(target, j + n)
            for i in range(n):
                times[j + i] = time_of(clock, first + i) // _MICROSECOND
            d[OPEN], d[LATEST] = 1, times[j + n - 1]
        if d[FIRST + 2 * c + 1] != 0:
            as_u8(o[HEADER + 2 * c + 1], j + n)[j:] = 1
    o[ROWS] = j + n
    d[ROWS_OUT] += n
    u[SUB] += n


@njit("void(int64[::1], int64[::1], int64[::1])", nogil=True, cache=True)
def _punctuate(d: Any, u: Any, o: Any) -> None:
    leaving, n = words(o[PUNCTUATION_ADDRESS], 1 * PUNCTUATION_WORDS), 0
    if d[OPEN] != 0:
        n = send(leaving, n, d[TIME], d[LATEST])
    pass_ends(u, o, n)


@cfunc("int64(int64, int64)", nopython=True, cache=True)
def rows_of_segments(desc: Any, morsel: Any) -> Any:
    columns = words(desc, 1)[COLUMNS]
    d = words(desc, FIRST + 2 * columns)
    u = words(morsel, HEADER + 2 * d[CHANNELS])
    o = words(u[OUT], HEADER + 2 * columns)
    begin(u, o, d[ROWS_OUT])
    while u[CURSOR] < u[ROWS]:
        r = u[CURSOR]
        length = words(words(u[HEADER], r + 1)[r], SEGMENT)[LENGTH]
        while u[SUB] < length:
            n = min(o[CAPACITY] - o[ROWS], length - u[SUB])
            if n == 0:
                return OUTPUT_FULL
            _write(d, u, o, r, n)
        d[ROWS_IN] += 1
        u[SUB] = 0
        u[CURSOR] = r + 1
    _punctuate(d, u, o)
    return DONE


@njit("int64(int64[::1], uint8[::1], int64[::1], int64)", nogil=True, cache=True)
def copy_lists(segments: Any, valid: Any, offsets: Any, target: int) -> int:
    """The number of samples of all segments that are ``valid``; ``offsets`` gets the place of each
    segment's samples among them. They are copied to ``target``, unless it is 0."""
    total, n = 0, segments.size
    for i in range(n):
        offsets[i] = total
        if valid[i] != 0:
            line = words(segments[i], SEGMENT)
            if target != 0:
                size = sample_bytes(line[BASE])
                copy_out(segments[i], 0, line[LENGTH], target + size * total)
            total += line[LENGTH]
    offsets[n] = total
    return total
