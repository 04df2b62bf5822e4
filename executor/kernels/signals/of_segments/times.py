"""The times of the samples of a segment."""

from __future__ import annotations

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.memory import words
from cql.executor.kernels.signals.kept import clock
from cql.executor.kernels.signals.layout import LENGTH, SEGMENT, START
from cql.executor.kernels.signals.timebase import TIMEBASE, sample_at, time_of

#: What ``segment_sample_at`` returns for a time at which the segment has no sample.
NO_SAMPLE = -1


@njit("int64(int64, int64)", nogil=True, cache=True)
def segment_time(g: int, i: int) -> int:
    """The time of sample number ``i`` of a segment, in nanoseconds since 1970, rounded down."""
    return int(time_of(clock(g), words(g, SEGMENT)[START] + i))


@njit("int64(int64)", nogil=True, cache=True)
def segment_first(g: int) -> int:
    """The number of the first sample of a segment in its timebase."""
    return int(words(g, SEGMENT)[START])


@njit("int64(int64, int64)", nogil=True, cache=True)
def segment_timebase(g: int, k: int) -> int:
    """Word ``k`` of the timebase of a segment (``timebase``)."""
    return int(words(clock(g), TIMEBASE)[k])


@njit("int64(int64, int64)", nogil=True, cache=True)
def segment_sample_at(g: int, time: int) -> int:
    """The number of the sample that is nearest to ``time``, in microseconds since 1970; NO_SAMPLE
    if a sample in front of the segment or behind it is nearer. Of two as near, the earlier."""
    line, own = words(g, SEGMENT), clock(g)
    at = time * 1000
    i = sample_at(own, at)
    if at - time_of(own, i - 1) <= time_of(own, i) - at:
        i -= 1
    number = i - line[START]
    return int(number) if 0 <= number < line[LENGTH] else NO_SAMPLE
