"""The monotonic clock and the measurements per operator, for kernels.

The table of measurements is SCRATCH words of room for the clock, then OF words per operator. Its
address ``times`` is 0 when nothing is measured; that case costs one branch per morsel."""

from __future__ import annotations

from typing import Any

from numba import types

from cql.executor.jit.decorators import njit
from cql.executor.kernels.drive.passing import punctuation_in
from cql.executor.kernels.lib.memory import words

_clock_gettime = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.int64))
_REAL, _MONOTONIC = 0, 1
#: Words of room for the clock, in front of the table of measurements.
SCRATCH = 2
#: Words per operator: nanoseconds; items of punctuation received; items of punctuation sent.
NANOSECONDS, TOOK, PASSED_ON = range(3)
OF = 3


@njit(inline="always")
def nanoseconds(address: int) -> Any:
    """The monotonic time in nanoseconds. Overwrites the two words at ``address`` with seconds and
    nanoseconds."""
    _clock_gettime(_MONOTONIC, address)
    scratch = words(address, 2)
    return scratch[0] * 1_000_000_000 + scratch[1]


@njit(inline="always")
def began_at(times: int) -> Any:
    """The time at which a call of an operator begins, for ``add_time``."""
    return nanoseconds(times) if times != 0 else 0


@njit(inline="always")
def add_time(times: int, operator: int, began: int) -> None:
    """Adds the time since ``began`` to the operator's nanoseconds."""
    if times != 0:
        at = SCRATCH + OF * operator + NANOSECONDS
        words(times, at + 1)[at] += nanoseconds(times) - began


@njit(inline="always")
def add_punctuation(times: int, operator: int, morsel: int, out: int) -> None:
    """Counts the punctuation of a finished input morsel (0: not finished) and of the output."""
    if times != 0:
        at = SCRATCH + OF * operator
        taken = words(times, at + OF)
        taken[at + TOOK] += punctuation_in(morsel) if morsel != 0 else 0
        taken[at + PASSED_ON] += punctuation_in(out)


@njit(inline="always")
def in_a_while(address: int, after: int) -> None:
    """Writes the time of day ``after`` nanoseconds (less than a second) from now to two words at
    ``address``: the deadline that ``pthread_cond_timedwait`` expects."""
    _clock_gettime(_REAL, address)
    time = words(address, 2)
    time[1] += after
    if time[1] >= 1_000_000_000:
        time[0] += 1
        time[1] -= 1_000_000_000
