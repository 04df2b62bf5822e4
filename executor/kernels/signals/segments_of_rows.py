"""Segments of rows that are the samples of a signal: a row of the output for each run in a morsel.
Python finds the runs and makes the segments (``operators.signals.segments_of_rows``)."""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import cfunc
from cql.executor.kernels.drive.passing import send
from cql.executor.kernels.lib.memory import words
from cql.executor.kernels.morsel_layout import (
    CAPACITY,
    DONE,
    END_OF_INPUT,
    EPOCH,
    HEADER,
    IDLE,
    LATE_ROWS,
    NEED,
    OUT,
    OUTPUT_FULL,
    PHASE,
    PUNCTUATION_ADDRESS,
    PUNCTUATION_WORDS,
    PUNCTUATIONS,
    ROWS,
    SEQUENCE,
    SERIAL,
    SUB,
)
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
    o[SERIAL], o[EPOCH], o[LATE_ROWS] = u[SERIAL], u[EPOCH], 0
    if o[ROWS] == 0:
        o[SEQUENCE] = d[ROWS_OUT]
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
    arrived = words(u[PUNCTUATION_ADDRESS], PUNCTUATION_WORDS * u[PUNCTUATIONS])
    leaving = words(o[PUNCTUATION_ADDRESS], PUNCTUATION_WORDS * u[PUNCTUATIONS])
    n = 0
    for p in range(u[PUNCTUATIONS]):
        attribute = arrived[PUNCTUATION_WORDS * p]
        if attribute in (END_OF_INPUT, IDLE):
            n = send(leaving, n, attribute, arrived[PUNCTUATION_WORDS * p + 1])
    o[PUNCTUATIONS] = n
    return DONE
