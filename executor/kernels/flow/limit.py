"""The native function of LIMIT and OFFSET: the first rows pass by reference, in order of arrival.
Behind the last one the operator sends the end of its input and takes no further row.

A row that fails in an operator below does not fail the query if the last passing row precedes it.
After such a failure only rows before the failed row pass (LAST_SERIAL, LAST_SEQUENCE); once all of
these rows have come, it is known whether they suffice."""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import cfunc, njit
from cql.executor.kernels.drive.passing import pass_rows, send
from cql.executor.kernels.lib.memory import as_u8, integer_at, words
from cql.executor.kernels.morsel_layout import (
    DONE,
    END_OF_INPUT,
    HEADER,
    INFINITY,
    LATE_ROW_ADDRESS,
    LATE_ROW_WORDS,
    LATE_ROWS,
    NEVER,
    OUT,
    PUNCTUATION_ADDRESS,
    PUNCTUATION_WORDS,
    PUNCTUATIONS,
    ROWS,
    SEQUENCE,
    SERIAL,
)

# Descriptor: the words below, then the bytes of a value of each column, then the columns that
# progress.
COLUMNS = 0
ATTRIBUTES = 1
SKIPS = 2  # rows that are still to be skipped
LEFT = 3  # rows that may still pass
ENDED = 4  # 1: the end was sent
STOPS = 5  # address of STOPPED of the input scheduler, set behind the last row; 0: none
LAST_SERIAL = 6  # no row passes from a morsel with a higher serial number,
LAST_SEQUENCE = 7  # nor, with LAST_SERIAL itself, a row from this stream position on
# Counters.
ROWS_IN = 8
ROWS_OUT = 9
FIRST = 10


@njit("int64(int64[::1], int64[::1], int64)", cache=True)
def _late_rows(u: Any, o: Any, skipped: int) -> int:
    """Copies the late-row records of the rows that pass; returns their number."""
    count = LATE_ROW_WORDS * u[LATE_ROWS]
    arrived, leaving = words(u[LATE_ROW_ADDRESS], count), words(o[LATE_ROW_ADDRESS], count)
    n = 0
    for k in range(0, count, LATE_ROW_WORDS):
        row = arrived[k] - skipped
        if 0 <= row < o[ROWS]:
            leaving[n], leaving[n + 1], leaving[n + 2] = row, arrived[k + 1], arrived[k + 2]
            n += LATE_ROW_WORDS
    return n // LATE_ROW_WORDS


@njit("int64(int64[::1], int64[::1], int64[::1])", cache=True)
def _end(d: Any, o: Any, leaving: Any) -> int:
    """Writes the punctuation behind the last row: for each attribute the highest time of the
    morsel, then END_OF_INPUT. Returns the number of punctuations."""
    n = 0
    first = FIRST + d[COLUMNS]
    for a in range(d[ATTRIBUTES] if o[ROWS] > 0 else 0):
        column = d[first + a]
        data, mask = o[HEADER + 2 * column], as_u8(o[HEADER + 2 * column + 1], o[ROWS])
        last = NEVER
        for i in range(o[ROWS]):
            if mask[i] != 0:
                last = max(last, integer_at(data, d[FIRST + column], i))
        if last != NEVER:
            n = send(leaving, n, column, last)
    return send(leaving, n, END_OF_INPUT, INFINITY)


@cfunc("int64(int64, int64)", nopython=True, cache=True)
def limit(desc: Any, morsel: Any) -> Any:
    head = words(desc, FIRST)
    columns = head[COLUMNS]
    d = words(desc, FIRST + columns + head[ATTRIBUTES])
    width = HEADER + 2 * columns
    u = words(morsel, width)
    o = words(u[OUT], width)
    pass_rows(u, o, width)
    come = u[ROWS]
    is_behind = u[SERIAL] > d[LAST_SERIAL]
    if is_behind:
        come = 0
    elif u[SERIAL] == d[LAST_SERIAL] and d[LAST_SEQUENCE] < INFINITY:
        come = max(0, min(come, d[LAST_SEQUENCE] - u[SEQUENCE]))
        is_behind = come < u[ROWS]
    skipped = min(come, d[SKIPS])
    o[ROWS] = min(come - skipped, d[LEFT])
    o[SEQUENCE] = u[SEQUENCE] + skipped
    d[ROWS_IN] += u[ROWS]
    d[ROWS_OUT] += o[ROWS]
    d[SKIPS] -= skipped
    for c in range(columns if skipped > 0 else 0):
        o[HEADER + 2 * c] += skipped * d[FIRST + c]
        o[HEADER + 2 * c + 1] += skipped
    o[LATE_ROWS] = 0 if u[LATE_ROWS] == 0 else _late_rows(u, o, skipped)
    o[PUNCTUATIONS] = 0
    if d[LEFT] < INFINITY:
        d[LEFT] -= o[ROWS]
    if d[ENDED] != 0:
        return DONE
    count = PUNCTUATION_WORDS * u[PUNCTUATIONS]
    arrived = words(u[PUNCTUATION_ADDRESS], count)
    if d[LEFT] == 0:
        if d[STOPS] != 0:
            words(d[STOPS], 1)[0] = 1
        leaving = words(o[PUNCTUATION_ADDRESS], PUNCTUATION_WORDS * (d[ATTRIBUTES] + 1))
        d[ENDED] = 1
        o[PUNCTUATIONS] = _end(d, o, leaving)
        return DONE
    if is_behind:
        return DONE
    leaving = words(o[PUNCTUATION_ADDRESS], count)
    for k in range(count):
        leaving[k] = arrived[k]
        if k % PUNCTUATION_WORDS == 0 and arrived[k] == END_OF_INPUT:
            d[ENDED] = 1
    o[PUNCTUATIONS] = u[PUNCTUATIONS]
    return DONE
