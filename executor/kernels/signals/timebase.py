"""Timebases: the times of the samples of a signal (XStream paper, figure 4, "Timebase Service").

Sample ``i`` of a timebase of RATE / PER hertz has the time ``ORIGIN + (i * PER + PHASE) / RATE``
seconds; times are in nanoseconds since 1970, and rounded down. RATE, PER and PHASE have no common
divisor, and RATE and PER are at most MOST_RATE: so time that is counted from ORIGIN on may have 32
years, and more for lower rates.
"""

from __future__ import annotations

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.memory import words

# A line of the table of timebases.
RATE = 0
PER = 1
ORIGIN = 2
PHASE = 3
USES = 4  # segments in it, and what else holds it; 0: the line is free
TIMEBASE = 5

SECOND = 1_000_000_000
#: Its product with SECOND has 63 bits.
MOST_RATE = 9_000_000_000


@njit("int64(int64, int64)", nogil=True, cache=True)
def time_of(line: int, i: int) -> int:
    """The time of sample ``i``; ``line``: the address of the timebase."""
    base = words(line, TIMEBASE)
    since = i * base[PER] + base[PHASE]
    whole, rest = since // base[RATE], since % base[RATE]
    return int(base[ORIGIN] + whole * SECOND + rest * SECOND // base[RATE])


@njit("int64(int64, int64)", nogil=True, cache=True)
def sample_at(line: int, time: int) -> int:
    """The number of the first sample at ``time`` or later."""
    base = words(line, TIMEBASE)
    after = time - base[ORIGIN]
    since = after // SECOND * base[RATE] + after % SECOND * base[RATE] // SECOND
    i = (since - base[PHASE]) // base[PER]
    while time_of(line, i) < time:
        i += 1
    while time_of(line, i - 1) >= time:
        i -= 1
    return int(i)
