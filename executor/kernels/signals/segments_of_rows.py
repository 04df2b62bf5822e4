"""Segments of rows that are the samples of a signal: a row of the output for each run in a morsel.
Python finds the runs and makes the segments (``operators.signals.segments_of_rows``)."""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import cfunc
from cql.executor.kernels.lib.memory import words
from cql.executor.kernels.morsel_layout import (
    CAPACITY,
    DONE,
    HEADER,
    NEED,
    OUT,
    OUTPUT_FULL,
    PHASE,
    ROWS,
    SERIAL,
    SUB,
)
from cql.executor.kernels.signals.outputs import begin, pass_ends
from cql.executor.kernels.signals.segments import note_young

CHANNELS = 0
RUNS = 1  # of the morsel
SEGMENTS_AT = 2  # the addresses of the segments of each run
ROWS_IN = 3  # a counter
ROWS_OUT = 4  # a counter
WORDS = 5


@cfunc("int64(int64, int64)", nopython=True, cache=True)
def segments_of_rows(desc: Any, morsel: Any) -> Any:
    d = words(desc, WORDS)
    channels = d[CHANNELS]
    u = words(morsel, HEADER)
    o = words(u[OUT], HEADER + 2 * channels)
    begin(u, o, d[ROWS_OUT])
    if u[ROWS] > 0:
        if u[PHASE] == 0:
            return NEED
        made = words(d[SEGMENTS_AT], d[RUNS] * channels)
        while u[SUB] < d[RUNS]:
            j = o[ROWS]
            if j == o[CAPACITY]:
                return OUTPUT_FULL
            for c in range(channels):
                g = made[u[SUB] * channels + c]
                words(o[HEADER + 2 * c], j + 1)[j] = g
                note_young(g, u[SERIAL])
            o[ROWS] = j + 1
            d[ROWS_OUT] += 1
            u[SUB] += 1
        d[ROWS_IN] += u[ROWS]
    pass_ends(u, o, 0)
    return DONE
