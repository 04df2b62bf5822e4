"""The times of the samples of a segment."""

from __future__ import annotations

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.memory import words
from cql.executor.kernels.signals.kept import clock_of
from cql.executor.kernels.signals.layout import OWNER, SEGMENT, START, STORE, TIMEBASES_AT
from cql.executor.kernels.signals.timebase import time_of


@njit("int64(int64, int64)", nogil=True, cache=True)
def segment_time(g: int, i: int) -> int:
    """The time of sample number ``i`` of a segment, in nanoseconds since 1970, rounded down."""
    line = words(g, SEGMENT)
    clock = clock_of(words(line[OWNER], STORE)[TIMEBASES_AT], g)
    return int(time_of(clock, line[START] + i))
