"""Timebases: the times of the samples of a signal (XStream paper, figure 4, "Timebase Service").

Sample ``i`` of a timebase of RATE / PER hertz has the time ``ORIGIN + i * PER / RATE`` seconds;
times are in nanoseconds since 1970, and rounded down. RATE times PER is small enough for products
of 64 bits (``StreamSpec.rate``).
"""

from __future__ import annotations

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.memory import words

# A line of the table of timebases.
RATE = 0
PER = 1
ORIGIN = 2
TIMEBASE = 3

SECOND = 1_000_000_000


@njit("int64(int64, int64)", nogil=True, cache=True)
def time_of(line: int, i: int) -> int:
    """The time of sample ``i``; ``line``: the address of the timebase."""
    base = words(line, TIMEBASE)
    whole, rest = i // base[RATE], i % base[RATE]
    time = whole * base[PER] * SECOND + rest * base[PER] * SECOND // base[RATE]
    return int(base[ORIGIN] + time)


@njit("int64(int64, int64)", nogil=True, cache=True)
def sample_at(line: int, time: int) -> int:
    """The number of the first sample at ``time`` or later."""
    base = words(line, TIMEBASE)
    after, second = time - base[ORIGIN], base[PER] * SECOND
    i = after // second * base[RATE] + after % second * base[RATE] // second
    while time_of(line, i) < time:
        i += 1
    while time_of(line, i - 1) >= time:
        i -= 1
    return int(i)
