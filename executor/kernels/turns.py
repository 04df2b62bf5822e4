"""Inputs take turns: the one that is furthest behind in event time gives the next rows.

The table of turns is a header of int64 words and a record per input; how far an input has come,
and its block, are told by its cutter (``cut``).
"""

from __future__ import annotations

from typing import Any

from numba import njit

from cql.executor.kernels.cut import (
    ATTRIBUTE,
    ATTRIBUTES,
    BEFORE,
    COLUMN,
    COLUMNS,
    CUTTER,
    FIRST,
    LAG,
    NEXT,
    NEXT_SERIAL,
    PEEKED,
    TURN,
    cut,
    watermark,
)
from cql.executor.kernels.memory import words
from cql.executor.unit import NEVER

CURRENT = 0  # the input whose turn it is, or was; -1: none so far
INPUTS = 1
TURN_ROWS = 2  # rows of a turn
LEFT = 3  # rows that are left of this turn
ANY = 4  # 0: one without a block is waited for; 1: those that have one go on
SERIAL = 5  # of the next unit
SEQUENCE = 6  # stream position of the next row
BEGAN = 7  # serial number with which this turn began
UNTIL = 8  # serial with which no unit is cut, yet
READS = 9  # the input whose next block is to be read ahead
HEADER = 10

# Of an input.
OF_CUTTER = 0  # its address
UNIT = 1  # address of the unit that it is cut into
OPERATOR = 2  # who takes it, and at which port
PORT = 3
ALIVE = 4  # 0: it has no turns
OPEN = 5  # 1: a block of it is being cut
AHEAD = 6  # 1: its next one may be read meanwhile
INPUT = 7


@njit("int64(int64)", nogil=True, cache=True)
def position(cutter: int) -> int:
    """When what follows of an input arrives, in event time."""
    c = words(cutter, CUTTER)
    if c[ATTRIBUTES] == 0:
        return c[BEFORE] + c[NEXT]
    reached = watermark(words(cutter + 8 * (CUTTER + COLUMN * c[COLUMNS]), ATTRIBUTE))
    if reached == NEVER:
        reached = c[PEEKED]
    return NEVER if reached == NEVER else reached + c[LAG]


@njit("int64(int64)", nogil=True, cache=True)
def whose(turns: int) -> int:
    """The input that is furthest behind; -1 if there is none."""
    h = words(turns, HEADER)
    best, least = -1, 0
    for k in range(h[INPUTS]):
        i = words(turns + 8 * (HEADER + INPUT * k), INPUT)
        if i[ALIVE] == 0 or (h[ANY] != 0 and i[OPEN] == 0):
            continue
        at = position(i[OF_CUTTER])
        if best < 0 or at < least:
            best, least = k, at
    return best


@njit("int64(int64)", nogil=True, cache=True)
def take(turns: int) -> int:
    """Cuts the next unit. 0: the input whose turn it is has no block, or none any more; or UNTIL is
    reached."""
    h = words(turns, HEADER)
    if h[SERIAL] >= h[UNTIL]:
        return 0
    if h[LEFT] <= 0:
        k = whose(turns)
        if k < 0:
            return 0
        if words(turns + 8 * (HEADER + INPUT * k), INPUT)[OPEN] == 0:
            return 0
        h[CURRENT], h[BEGAN], h[LEFT] = k, h[SERIAL], h[TURN_ROWS]
    i = words(turns + 8 * (HEADER + INPUT * h[CURRENT]), INPUT)
    c = words(i[OF_CUTTER], CUTTER)
    before = c[NEXT]
    c[TURN], c[NEXT_SERIAL], c[FIRST] = h[LEFT], h[SERIAL], h[SEQUENCE] - before
    if cut(i[OF_CUTTER], i[UNIT]) == 0:
        i[OPEN] = h[LEFT] = 0
        return 0
    h[LEFT] -= c[NEXT] - before
    h[SERIAL], h[SEQUENCE] = c[NEXT_SERIAL], c[FIRST] + c[NEXT]
    return 1


@njit(inline="always")
def record(turns: int) -> Any:
    """Of the input whose turn it is."""
    k = words(turns, HEADER)[CURRENT]
    return words(turns + 8 * (HEADER + INPUT * k), INPUT)
