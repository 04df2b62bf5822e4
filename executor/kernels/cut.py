"""A block as units: the next rows of every column, stragglers marked, punctuation made (computed
once, serially, at ingest; out-of-order paper §5.1).

A cutter is a table of int64 words: a header, three words per column (address of the data, address
of the mask, item size) and seven per progressing attribute.
"""

from __future__ import annotations

from typing import Any

from numba import njit

from cql.executor.kernels.memory import as_u8, words
from cql.executor.unit import (
    HEADER,
    NEVER,
    PUNCTUATION_ADDRESS,
    PUNCTUATION_WORDS,
    PUNCTUATIONS,
    ROWS,
    SEQUENCE,
    SERIAL,
    STRAGGLER_ADDRESS,
    STRAGGLER_WORDS,
    STRAGGLERS,
)

# Header words of a cutter.
UNITS = 0  # still to come from this block; a block without rows is one unit
NEXT = 1  # row of the block
BLOCK = 2  # rows of the block
ROOM = 3  # rows of a unit
NEXT_SERIAL = 4
FIRST = 5  # stream position of the block's first row
COLUMNS = 6
ATTRIBUTES = 7
LATE = 8  # stragglers so far
MAX_LATENESS = 9
CUTTER = 10
COLUMN = 3

# Words of an attribute.
INDEX = 0  # its column
SLACK = 1
HIGHEST = 2  # event time so far
PROMISED = 3
TIMES = 4  # address of the block's event times
VALID = 5  # address of their mask, 0 if there are no NULLs
SOURCE = 6  # what the source promises at the end of the block, plus the slack; else NEVER
ATTRIBUTE = 7


@njit(inline="always")
def watermark(highest: int, slack: int) -> int:
    return NEVER if highest <= NEVER + slack else highest - slack


@njit("boolean(int64[::1], int64)", nogil=True, cache=True)
def _in_order(times: Any, highest: int) -> bool:
    """Without a branch per row: four times as fast as looking for stragglers."""
    behind = times[0] < highest
    for i in range(1, times.size):
        behind |= times[i] < times[i - 1]
    return not behind


@njit("void(int64, int64, int64, int64)", nogil=True, cache=True)
def _mark(cutter: int, unit: int, start: int, n: int) -> None:
    """A row below its source's progress just before it (the highest time so far - slack) is a
    straggler: (row, attribute, own watermark) goes to the unit's records, which have room for all
    rows."""
    c, u = words(cutter, CUTTER), words(unit, HEADER)
    count = c[ATTRIBUTES]
    first = cutter + 8 * (CUTTER + COLUMN * c[COLUMNS])
    attributes = words(first, ATTRIBUTE * count)
    records = words(u[STRAGGLER_ADDRESS], STRAGGLER_WORDS * n * count)
    if count == 1 and attributes[VALID] == 0 and n > 0:
        times = words(attributes[TIMES] + 8 * start, n)
        if _in_order(times, attributes[HIGHEST]):
            attributes[HIGHEST] = times[n - 1]
            return
    late = 0
    for i in range(n):
        for k in range(count):
            a = words(first + 8 * ATTRIBUTE * k, ATTRIBUTE)
            if a[VALID] != 0 and as_u8(a[VALID] + start, n)[i] == 0:
                continue
            t = words(a[TIMES] + 8 * start, n)[i]
            if t >= a[HIGHEST]:
                a[HIGHEST] = t
                continue
            own = watermark(a[HIGHEST], a[SLACK])
            if t < own:
                at = STRAGGLER_WORDS * late
                records[at] = i
                records[at + 1] = a[INDEX]
                records[at + 2] = own
                late += 1
                c[MAX_LATENESS] = max(c[MAX_LATENESS], own - t)
    u[STRAGGLERS] = late
    c[LATE] += late


@njit("void(int64, int64)", nogil=True, cache=True)
def _promise(cutter: int, unit: int) -> None:
    """Punctuation for every attribute whose progress has grown; what the source itself promises
    counts as progress from the end of the block on."""
    c, u = words(cutter, CUTTER), words(unit, HEADER)
    first = cutter + 8 * (CUTTER + COLUMN * c[COLUMNS])
    made = words(u[PUNCTUATION_ADDRESS], PUNCTUATION_WORDS * c[ATTRIBUTES])
    n = 0
    for k in range(c[ATTRIBUTES]):
        a = words(first + 8 * ATTRIBUTE * k, ATTRIBUTE)
        if c[UNITS] == 0:
            a[HIGHEST] = max(a[HIGHEST], a[SOURCE])
        mark = watermark(a[HIGHEST], a[SLACK])
        if mark > a[PROMISED]:
            a[PROMISED] = mark
            made[PUNCTUATION_WORDS * n] = a[INDEX]
            made[PUNCTUATION_WORDS * n + 1] = mark
            made[PUNCTUATION_WORDS * n + 2] = -1
            n += 1
    u[PUNCTUATIONS] = n


@njit("int64(int64, int64)", nogil=True, cache=True)
def cut(cutter: int, unit: int) -> int:
    """Makes the unit the next one of the block; 0 if the block is used up."""
    c = words(cutter, CUTTER)
    if c[UNITS] == 0:
        return 0
    c[UNITS] -= 1
    start = c[NEXT]
    n = min(c[ROOM], c[BLOCK] - start)
    width = c[COLUMNS]
    u = words(unit, HEADER + 2 * width)
    u[ROWS], u[SERIAL], u[SEQUENCE] = n, c[NEXT_SERIAL], c[FIRST] + start
    columns = words(cutter + 8 * CUTTER, COLUMN * width)
    for k in range(width):
        u[HEADER + 2 * k] = columns[COLUMN * k] + start * columns[COLUMN * k + 2]
        u[HEADER + 2 * k + 1] = columns[COLUMN * k + 1] + start
    u[STRAGGLERS] = 0
    _mark(cutter, unit, start, n)
    c[NEXT] = start + n
    c[NEXT_SERIAL] += 1
    _promise(cutter, unit)
    return 1
