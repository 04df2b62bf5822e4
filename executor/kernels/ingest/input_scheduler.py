"""The input scheduler: the input that is furthest behind in event time gives the next rows.

A turn is a number of consecutive rows from one input. With BY_TIME, for watermarks deduced from the
order of arrival, the scheduler reads the inputs row by row in the order of their times. The time of
a row below earlier rows of its input counts as the highest time of those rows. Equal times follow
the order of the inputs. The lateness of a row then depends on the disorder of its own input only,
whatever the length of the blocks.

The scheduler's table is a header of int64 words and a record per input. The cutter of an input
(``cutter``) holds the input's watermark and its block.
"""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import njit
from cql.executor.kernels.ingest.advance import within
from cql.executor.kernels.ingest.cutter import (
    ADVANCE,
    ATTRIBUTE,
    ATTRIBUTES,
    BEFORE,
    BLOCK,
    COLUMN,
    COLUMNS,
    CUTTER,
    FIRST,
    FLOOR,
    HIGHEST,
    LAG,
    NEXT,
    NEXT_SERIAL,
    PEEKED,
    TIMES,
    TURN,
    VALID,
    cut,
    watermark,
)
from cql.executor.kernels.lib.memory import as_u8, words
from cql.executor.kernels.morsel_layout import INFINITY, NEVER

CURRENT = 0  # the input of this turn, or of the last one; -1: none so far
INPUTS = 1
TURN_ROWS = 2  # rows of a turn
LEFT = 3  # rows that are left of this turn
ANY = 4  # 0: wait for an input without a block; 1: go on with the inputs that have one
SERIAL = 5  # serial number of the next morsel
SEQUENCE = 6  # stream position of the next row
BEGAN = 7  # serial number with which this turn began
UNTIL = 8  # serial number of the first morsel that may not be cut yet
READS = 9  # the input whose next block is to be read ahead
BY_TIME = 10  # 1: a turn lasts as long as no other input's next row is earlier
STOPPED = 11  # 1: a LIMIT is reached; cut no morsel until the remaining inputs are known
HEADER = 12
#: The words that follow from the plan and the inputs, and those of requests.
BOUND = (INPUTS, TURN_ROWS, ANY, UNTIL, READS, BY_TIME, STOPPED)

# Words of an input.
OF_CUTTER = 0  # address of its cutter
MORSEL = 1  # address of the morsel into which its block is cut
OPERATOR = 2  # the operator that receives the morsel
PORT = 3  # the port at which the operator receives it
ALIVE = 4  # 0: the input gets no turn
OPEN = 5  # 1: a block of the input is being cut
AHEAD = 6  # 1: the input's next block may be read meanwhile
INPUT = 7
#: The words of an input that follow from the plan and the inputs.
BOUND_OF_INPUT = (OF_CUTTER, MORSEL, OPERATOR, PORT, ALIVE, AHEAD)


@njit("int64(int64)", nogil=True, cache=True)
def position(cutter: int) -> int:
    """The position of an input in event time: its watermark plus LAG; NEVER if unknown. An input
    without an attribute has the number of its rows read as its position."""
    c = words(cutter, CUTTER)
    if c[ATTRIBUTES] == 0:
        return c[BEFORE] + c[NEXT]
    reached = watermark(words(cutter + 8 * (CUTTER + COLUMN * c[COLUMNS]), ATTRIBUTE))
    if reached == NEVER:
        reached = c[PEEKED]
    return NEVER if reached == NEVER else reached + c[LAG]


@njit(inline="always")
def _time_of(c: Any, a: Any, reached: int, row: int) -> int:
    """The time that counts for a row of the block; ``reached`` is the highest time before the row.
    A row with no time, a lower time, or a time beyond MAX ADVANCE counts as ``reached``."""
    if a[VALID] != 0 and as_u8(a[VALID], c[BLOCK])[row] == 0:
        return reached
    t = words(a[TIMES], c[BLOCK])[row]
    if t <= reached or (reached != NEVER and t > within(reached, a[ADVANCE])):
        return reached
    return t


@njit("int64(int64, int64)", nogil=True, cache=True)
def _next_time(cutter: int, is_open: int) -> int:
    """The time that counts for the next row of an input (``_time_of``) plus LAG, or a lower bound
    of that time while the input has no further row at hand; NEVER if unknown."""
    c = words(cutter, CUTTER)
    if c[ATTRIBUTES] == 0:
        return NEVER
    a = words(cutter + 8 * (CUTTER + COLUMN * c[COLUMNS]), ATTRIBUTE)
    time = max(a[HIGHEST], a[FLOOR])
    if is_open != 0 and c[NEXT] < c[BLOCK]:
        time = _time_of(c, a, time, c[NEXT])
    elif time == NEVER:
        time = c[PEEKED]
    return NEVER if time == NEVER else time + c[LAG]


@njit("int64(int64, int64)", nogil=True, cache=True)
def _rows_until(cutter: int, until: int) -> int:
    """The number of the block's next rows up to time ``until``, at least one."""
    c = words(cutter, CUTTER)
    if c[ATTRIBUTES] == 0 or c[NEXT] >= c[BLOCK]:
        return INFINITY
    a = words(cutter + 8 * (CUTTER + COLUMN * c[COLUMNS]), ATTRIBUTE)
    reached = max(a[HIGHEST], a[FLOOR])
    row = c[NEXT]
    while row < c[BLOCK]:
        reached = _time_of(c, a, reached, row)
        if row > c[NEXT] and reached != NEVER and reached + c[LAG] > until:
            break
        row += 1
    return row - c[NEXT]


@njit("int64(int64, int64)", nogil=True, cache=True)
def _turn(scheduler: int, k: int) -> int:
    """The number of rows of a turn of input ``k``."""
    h = words(scheduler, HEADER)
    if h[BY_TIME] == 0:
        return h[TURN_ROWS]
    until = INFINITY
    for j in range(h[INPUTS]):
        i = words(scheduler + 8 * (HEADER + INPUT * j), INPUT)
        if j != k and i[ALIVE] != 0:
            at = _next_time(i[OF_CUTTER], i[OPEN])
            until = min(until, at if k < j or at == NEVER else at - 1)
    i = words(scheduler + 8 * (HEADER + INPUT * k), INPUT)
    return INFINITY if until == INFINITY else _rows_until(i[OF_CUTTER], until)


@njit("int64(int64)", nogil=True, cache=True)
def next_turn(scheduler: int) -> int:
    """The input that is furthest behind; -1 if no input can have a turn."""
    h = words(scheduler, HEADER)
    best, least = -1, 0
    for k in range(h[INPUTS]):
        i = words(scheduler + 8 * (HEADER + INPUT * k), INPUT)
        if i[ALIVE] == 0 or (h[ANY] != 0 and i[OPEN] == 0):
            continue
        if h[BY_TIME] != 0:
            at = _next_time(i[OF_CUTTER], i[OPEN])
        else:
            at = position(i[OF_CUTTER])
        if best < 0 or at < least:
            best, least = k, at
    return best


@njit("int64(int64)", nogil=True, cache=True)
def take(scheduler: int) -> int:
    """Cuts the next morsel and returns 1. Returns 0 if the input of the next turn has no block or
    its block is used up, if UNTIL is reached, or if the scheduler is STOPPED."""
    h = words(scheduler, HEADER)
    if h[SERIAL] >= h[UNTIL] or h[STOPPED] != 0:
        return 0
    if h[LEFT] <= 0:
        k = next_turn(scheduler)
        if k < 0:
            return 0
        if words(scheduler + 8 * (HEADER + INPUT * k), INPUT)[OPEN] == 0:
            return 0
        h[CURRENT], h[BEGAN], h[LEFT] = k, h[SERIAL], _turn(scheduler, k)
    i = words(scheduler + 8 * (HEADER + INPUT * h[CURRENT]), INPUT)
    c = words(i[OF_CUTTER], CUTTER)
    before = c[NEXT]
    c[TURN], c[NEXT_SERIAL], c[FIRST] = h[LEFT], h[SERIAL], h[SEQUENCE] - before
    if cut(i[OF_CUTTER], i[MORSEL]) == 0:
        i[OPEN] = h[LEFT] = 0
        return 0
    h[LEFT] -= c[NEXT] - before
    h[SERIAL], h[SEQUENCE] = c[NEXT_SERIAL], c[FIRST] + c[NEXT]
    return 1


@njit(inline="always")
def record(scheduler: int) -> Any:
    """The record of the input of this turn."""
    k = words(scheduler, HEADER)[CURRENT]
    return words(scheduler + 8 * (HEADER + INPUT * k), INPUT)
