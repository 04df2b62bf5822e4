"""The gaps of a signal, found where a segment does not begin when the next sample was due."""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import cfunc, njit
from cql.executor.kernels.drive.passing import send
from cql.executor.kernels.lib.memory import words
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
)
from cql.executor.kernels.signals.kept import clock_of
from cql.executor.kernels.signals.layout import LENGTH, SEGMENT, START
from cql.executor.kernels.signals.outputs import begin, pass_ends
from cql.executor.kernels.signals.timebase import PER, RATE, SECOND, TIMEBASE, time_of

# Descriptor.
TIMEBASES = 0  # the address of the table of timebases
OPEN = 1  # 1: there was a sample
DUE = 2  # the time of the next sample, in nanoseconds
ROWS_IN = 3
ROWS_OUT = 4
WORDS = 5

# Columns of the output.
GAP_START = 0
GAP_END = 1
MISSING = 2
_COLUMNS = 3

_MICROSECOND = 1000


@njit("int64(int64, int64)", nogil=True, cache=True)
def samples_in(clock: int, time: int) -> int:
    """The number of periods in ``time`` nanoseconds, rounded."""
    base = words(clock, TIMEBASE)
    second = base[PER] * SECOND
    whole, rest = time // second, time % second
    return int(whole * base[RATE] + (rest * base[RATE] + second // 2) // second)


@njit("void(int64[::1], int64[::1], int64[::1])", nogil=True, cache=True)
def _punctuate(d: Any, u: Any, o: Any) -> None:
    leaving, n = words(o[PUNCTUATION_ADDRESS], 2 * PUNCTUATION_WORDS), 0
    if d[OPEN] != 0:
        n = send(leaving, n, GAP_START, d[DUE] // _MICROSECOND)
        n = send(leaving, n, GAP_END, d[DUE] // _MICROSECOND)
    pass_ends(u, o, n)


@cfunc("int64(int64, int64)", nopython=True, cache=True)
def gaps(desc: Any, morsel: Any) -> Any:
    d, u = words(desc, WORDS), words(morsel, HEADER + 2)
    o = words(u[OUT], HEADER + 2 * _COLUMNS)
    begin(u, o, d[ROWS_OUT])
    while u[CURSOR] < u[ROWS]:
        r = u[CURSOR]
        g = words(u[HEADER], r + 1)[r]
        line, clock = words(g, SEGMENT), clock_of(d[TIMEBASES], g)
        begins = time_of(clock, line[START])
        if d[OPEN] != 0 and begins > d[DUE]:
            j = o[ROWS]
            if j == o[CAPACITY]:
                return OUTPUT_FULL
            words(o[HEADER + 2 * GAP_START], j + 1)[j] = d[DUE] // _MICROSECOND
            words(o[HEADER + 2 * GAP_END], j + 1)[j] = begins // _MICROSECOND
            words(o[HEADER + 2 * MISSING], j + 1)[j] = samples_in(clock, begins - d[DUE])
            o[ROWS] = j + 1
            d[ROWS_OUT] += 1
        d[OPEN], d[DUE] = 1, time_of(clock, line[START] + line[LENGTH])
        d[ROWS_IN] += 1
        u[CURSOR] = r + 1
    _punctuate(d, u, o)
    return DONE
