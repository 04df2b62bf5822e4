"""Concat: the segments of rows, one behind the other, as a signal without gaps in a timebase of its
own (XStream paper, section IV.A: SILENCEFILTER). No sample is copied."""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import cfunc
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
from cql.executor.kernels.signals.layout import LENGTH, SEGMENT
from cql.executor.kernels.signals.outputs import begin, pass_ends
from cql.executor.kernels.signals.segments import moved, note_young

# Descriptor.
CHANNELS = 0
BASE_WORD = 1  # of the timebase: 16 times its number
FOLLOWING = 2  # the number of the next sample in it
ROWS_IN = 3
ROWS_OUT = 4
WORDS = 5

# What is needed (DETAIL): room in the segment store, or channels with as many samples (DETAIL_ROW:
# the channel that differs from the first).
NEED_STORE = 0
NEED_AS_LONG = 1


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
        n = words(words(u[HEADER], r + 1)[r], SEGMENT)[LENGTH]
        for c in range(channels):
            g = words(u[HEADER + 2 * c], r + 1)[r]
            if words(g, SEGMENT)[LENGTH] != n:
                u[DETAIL], u[DETAIL_ROW] = NEED_AS_LONG, c
                return NEED
            h = moved(g, d[BASE_WORD], d[FOLLOWING])
            if h == 0:
                u[DETAIL] = NEED_STORE
                return NEED
            note_young(h, u[SERIAL])
            words(o[HEADER + 2 * c], j + 1)[j] = h
        if n > 0:
            o[ROWS] = j + 1
            d[ROWS_OUT] += 1
            d[FOLLOWING] += n
        d[ROWS_IN] += 1
        u[CURSOR] = r + 1
    pass_ends(u, o, 0)
    return DONE
