"""Segments that an operator keeps: its state has their numbers, which are lines of the table of the
store, and kernels work with their addresses."""

from __future__ import annotations

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.memory import words
from cql.executor.kernels.signals.layout import (
    BASE,
    EMPTY,
    KIND_BITS,
    OWNER,
    SEGMENT,
    SEGMENTS,
    STORE,
    TIMEBASES_AT,
)
from cql.executor.kernels.signals.timebase import TIMEBASE

#: The number of the empty segment of the store, which is no line of the table.
_EMPTY = -2


@njit("int64(int64, int64)", nogil=True, cache=True)
def address_of(s: int, number: int) -> int:
    """The address of the segment with a number in the store at ``s``."""
    if number == _EMPTY:
        return int(words(s, STORE)[EMPTY])
    return int(words(s, STORE)[SEGMENTS] + 8 * SEGMENT * number)


@njit("int64(int64, int64)", nogil=True, cache=True)
def number_of(s: int, g: int) -> int:
    """The number of the segment at ``g``."""
    if g == words(s, STORE)[EMPTY]:
        return _EMPTY
    return int((g - words(s, STORE)[SEGMENTS]) // (8 * SEGMENT))


@njit("int64(int64, int64)", nogil=True, cache=True)
def clock_of(timebases: int, g: int) -> int:
    """The address of the timebase of a segment, in the table at ``timebases``."""
    return int(timebases + 8 * TIMEBASE * (words(g, SEGMENT)[BASE] >> KIND_BITS))


@njit("int64(int64)", nogil=True, cache=True)
def clock(g: int) -> int:
    """The same, in the table of the segment's own store."""
    return clock_of(words(words(g, SEGMENT)[OWNER], STORE)[TIMEBASES_AT], g)
