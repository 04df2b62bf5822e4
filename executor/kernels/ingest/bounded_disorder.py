"""The native function of slack: a watermark from the order of arrival (out-of-order paper §2,
option 2; Aurora's slack).

Rows pass by reference. After each row, the watermark is the highest time so far less INTERVAL, or,
with ``COUNT``, the least of the ``COUNT + 1`` highest times so far, which a heap keeps. With
``COUNT``, a row is late if more than ``COUNT`` rows above it came before it. The operator ignores
the watermarks of its input. It marks a row below the watermark just before the row as a late row;
the consumer treats that row like a late row of a source.
"""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import cfunc, njit
from cql.executor.kernels.drive.passing import pass_rows, send
from cql.executor.kernels.ingest.advance import (
    FIRST_WAS_FAR,
    GOES_ON,
    WAITING,
    advance,
    begin,
    within,
)
from cql.executor.kernels.ingest.cutter import BUCKETS, bucket_of
from cql.executor.kernels.lib.memory import as_u8, integer_at, words
from cql.executor.kernels.morsel_layout import (
    DONE,
    END_OF_INPUT,
    HEADER,
    IDLE,
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
)

# Descriptor.
COLUMNS = 0
ATTRIBUTE = 1  # the column of the time
SIZE = 2  # bytes of its values
NULLABLE = 3
INTERVAL = 4
COUNT = 5  # rows, -1: the slack is an interval
HIGHEST = 6  # a clock (``advance``) of the times so far
PUNCTUATED = 12  # the latest punctuation sent
ROWS_SEEN = 13
LATE = 14
MAX_LATENESS = 15
HEAP = 16  # address of the heap of the highest times so far, the least first
FILLED = 17  # times in the heap
MOST = 18  # MAX ADVANCE: a larger advance waits for confirmation
FAR = 19  # rows that had to wait for confirmation
CONFIRMED = 20  # rows that were accepted after waiting
BEHIND = 21  # address of BUCKETS counts: rows by distance below the highest time
WORDS = 22


@njit("void(int64[::1], int64)", cache=True)
def _count(d: Any, t: int) -> None:
    """Adds a time to the heap of the ``COUNT + 1`` highest times."""
    room = d[COUNT] + 1
    heap = words(d[HEAP], room)
    if d[FILLED] < room:
        at = d[FILLED]
        d[FILLED] += 1
        while at > 0 and heap[(at - 1) >> 1] > t:
            heap[at] = heap[(at - 1) >> 1]
            at = (at - 1) >> 1
        heap[at] = t
        return
    if t <= heap[0]:
        return
    at = 0
    while 2 * at + 1 < room:
        child = 2 * at + 1
        if child + 1 < room and heap[child + 1] < heap[child]:
            child += 1
        if t <= heap[child]:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = t


@njit(inline="always")
def _progress(d: Any) -> int:
    if d[COUNT] >= 0:
        return words(d[HEAP], 1)[0] if d[FILLED] > d[COUNT] else NEVER
    return NEVER if d[HIGHEST] <= NEVER + d[INTERVAL] else d[HIGHEST] - d[INTERVAL]


@njit("boolean(int64[::1], int64)", cache=True)
def _begins(d: Any, t: int) -> bool:
    """Takes a row while no row is accepted; returns whether the row is done with."""
    outcome = begin(d.ctypes.data + 8 * HIGHEST, NEVER, d[MOST], t)
    d[FAR] += outcome == FIRST_WAS_FAR
    return outcome != GOES_ON


@njit("int64(int64[::1], int64[::1], int64)", cache=True)
def _mark(d: Any, u: Any, target: int) -> int:
    """Writes the records of a morsel's late rows and returns their number. Called once per morsel,
    in order."""
    n, column = u[ROWS], HEADER + 2 * d[ATTRIBUTE]
    data, size = u[column], d[SIZE]
    mask = as_u8(u[column + 1], n)
    records = words(target, LATE_ROW_WORDS * n)
    behind = words(d[BEHIND], BUCKETS)
    late = 0
    for i in range(n):
        if d[NULLABLE] != 0 and mask[i] == 0:
            continue
        t = integer_at(data, size, i)
        if d[HIGHEST] == NEVER and d[MOST] < INFINITY and _begins(d, t):
            continue
        if t < d[HIGHEST]:
            behind[bucket_of(d[HIGHEST] - t)] += 1
            own = _progress(d)
            if t < own:
                at = LATE_ROW_WORDS * late
                records[at], records[at + 1], records[at + 2] = i, d[ATTRIBUTE], own
                late += 1
                d[MAX_LATENESS] = max(d[MAX_LATENESS], own - t)
        elif t == d[HIGHEST]:
            d[HIGHEST + WAITING] = 0
        else:
            far = d[HIGHEST] != NEVER and t > within(d[HIGHEST], d[MOST])
            believed = advance(d.ctypes.data + 8 * HIGHEST, d[HIGHEST], d[MOST], t)
            if far:
                d[FAR] += 1
                d[CONFIRMED] += believed
        if d[COUNT] >= 0:
            _count(d, t)
    d[LATE] += late
    return late


@cfunc("int64(int64, int64)", nopython=True, cache=True)
def slack(desc: Any, morsel: Any) -> Any:
    d = words(desc, WORDS)
    width = HEADER + 2 * d[COLUMNS]
    u = words(morsel, width)
    o = words(u[OUT], width)
    pass_rows(u, o, width)
    d[ROWS_SEEN] += u[ROWS]
    o[LATE_ROWS] = _mark(d, u, o[LATE_ROW_ADDRESS])
    arrived = words(u[PUNCTUATION_ADDRESS], PUNCTUATION_WORDS * u[PUNCTUATIONS])
    leaving = words(o[PUNCTUATION_ADDRESS], PUNCTUATION_WORDS * (u[PUNCTUATIONS] + 1))
    n = 0
    for p in range(u[PUNCTUATIONS]):
        attribute = arrived[PUNCTUATION_WORDS * p]
        if attribute == END_OF_INPUT:
            o[PUNCTUATIONS] = send(leaving, 0, END_OF_INPUT, INFINITY)
            return DONE
        if attribute == IDLE:
            n = send(leaving, n, IDLE, arrived[PUNCTUATION_WORDS * p + 1])
    if _progress(d) > d[PUNCTUATED]:
        d[PUNCTUATED] = _progress(d)
        n = send(leaving, n, d[ATTRIBUTE], d[PUNCTUATED])
    o[PUNCTUATIONS] = n
    return DONE
