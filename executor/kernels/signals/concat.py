"""Concat: the segments of rows as a signal, one behind the other without gaps in a timebase of its
own (XStream paper, section IV.A: SILENCEFILTER), or each at its own times. No sample is copied."""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import cfunc, njit
from cql.executor.kernels.lib.memory import words
from cql.executor.kernels.morsel_layout import (
    CAPACITY,
    CURSOR,
    DETAIL,
    DETAIL_ROW,
    DONE,
    HEADER,
    NEED,
    OUT,
    OUTPUT_FULL,
    ROWS,
    SERIAL,
)
from cql.executor.kernels.signals.kept import clock
from cql.executor.kernels.signals.layout import BASE, KIND_BITS, LENGTH, SEGMENT, START
from cql.executor.kernels.signals.outputs import begin, pass_ends
from cql.executor.kernels.signals.segments import moved, note_young, pass_on, subseg
from cql.executor.kernels.signals.timebase import sample_at, time_of

# Descriptor.
CHANNELS = 0
BASE_WORD = 1  # of the timebase: 16 times its number
FOLLOWING = 2  # the number of the next sample in it: as many have left
ROWS_IN = 3
ROWS_OUT = 4
IN_TIME = 5  # 1: the segments stay at their own times, and none comes before the end of another
OPEN = 6  # 1: a sample has left; then
DUE = 7  # the time of the next one, in nanoseconds
OVERLAPPING = 8  # samples that were left out, since they came before it
WORDS = 9

# What is needed (DETAIL): room in the segment store, or channels with as many samples, or with the
# same times (DETAIL_ROW: the channel that differs from the first).
NEED_STORE = 0
NEED_AS_LONG = 1
NEED_IN_STEP = 2


@njit("int64(int64[::1], int64)", nogil=True, cache=True)
def _skipped(d: Any, g: int) -> int:
    """How many samples of ``g`` come before the end of the segments that have left."""
    if d[IN_TIME] == 0 or d[OPEN] == 0:
        return 0
    line = words(g, SEGMENT)
    return int(min(max(sample_at(clock(g), d[DUE]) - line[START], 0), line[LENGTH]))


@njit("int64(int64[::1], int64, int64)", nogil=True, cache=True)
def _placed(d: Any, g: int, skip: int) -> int:
    """The segment with its samples behind the first ``skip``; 0: no room."""
    if d[IN_TIME] == 0:
        return moved(g, d[BASE_WORD], d[FOLLOWING])
    return pass_on(g) if skip == 0 else subseg(g, skip, words(g, SEGMENT)[LENGTH] - skip)


@cfunc("int64(int64, int64)", nopython=True, cache=True)
def concat(desc: Any, morsel: Any) -> Any:
    d = words(desc, WORDS)
    channels = d[CHANNELS]
    u = words(morsel, HEADER + 2 * channels)
    o = words(u[OUT], HEADER + 2 * channels)
    begin(u, o, d[ROWS_OUT])
    while u[CURSOR] < u[ROWS]:
        r, j = u[CURSOR], o[ROWS]
        if j == o[CAPACITY]:
            return OUTPUT_FULL
        first = words(u[HEADER], r + 1)[r]
        line = words(first, SEGMENT)
        skip = _skipped(d, first)
        for c in range(channels):
            g = words(u[HEADER + 2 * c], r + 1)[r]
            own = words(g, SEGMENT)
            if own[LENGTH] != line[LENGTH]:
                u[DETAIL], u[DETAIL_ROW] = NEED_AS_LONG, c
                return NEED
            if d[IN_TIME] != 0 and (
                own[BASE] >> KIND_BITS != line[BASE] >> KIND_BITS or own[START] != line[START]
            ):
                u[DETAIL], u[DETAIL_ROW] = NEED_IN_STEP, c
                return NEED
            h = _placed(d, g, skip)
            if h == 0:
                u[DETAIL] = NEED_STORE
                return NEED
            note_young(h, u[SERIAL])
            words(o[HEADER + 2 * c], j + 1)[j] = h
        d[OVERLAPPING] += skip
        if line[LENGTH] > skip:
            o[ROWS] = j + 1
            d[ROWS_OUT] += 1
            d[FOLLOWING] += line[LENGTH] - skip
            d[OPEN], d[DUE] = 1, time_of(clock(first), line[START] + line[LENGTH])
        d[ROWS_IN] += 1
        u[CURSOR] = r + 1
    pass_ends(u, o, 0)
    return DONE
