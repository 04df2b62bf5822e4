"""The monotonic clock, for kernels.

Who wants to know what operators take hands in a table: two words of room for the clock, then OF
words for each operator. Its address is 0 where nobody does, which costs a branch per morsel."""

from __future__ import annotations

from typing import Any

from numba import types

from cql.executor.jit.decorators import njit
from cql.executor.kernels.drive.passing import punctuation_in
from cql.executor.kernels.lib.memory import words

_clock_gettime = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.int64))
_REAL, _MONOTONIC = 0, 1
#: Words of room in front of a table of times.
SCRATCH = 2
#: Words of an operator: nanoseconds; items of punctuation that it took, and that it passed on.
NANOSECONDS, TOOK, PASSED_ON = range(3)
OF = 3


@njit(inline="always")
def nanoseconds(address: int) -> Any:
    """The time, which is written to the two words at ``address`` first: seconds, nanoseconds."""
    _clock_gettime(_MONOTONIC, address)
    scratch = words(address, 2)
    return scratch[0] * 1_000_000_000 + scratch[1]


@njit(inline="always")
def began_at(times: int) -> Any:
    """When a call begins that ``add_time`` accounts for."""
    return nanoseconds(times) if times != 0 else 0


@njit(inline="always")
def add_time(times: int, operator: int, began: int) -> None:
    """The call that began then is over."""
    if times != 0:
        at = SCRATCH + OF * operator + NANOSECONDS
        words(times, at + 1)[at] += nanoseconds(times) - began


@njit(inline="always")
def add_punctuation(times: int, operator: int, morsel: int, out: int) -> None:
    """What was in a morsel that is done (0: it is not), and what is in the output."""
    if times != 0:
        at = SCRATCH + OF * operator
        taken = words(times, at + OF)
        taken[at + TOOK] += punctuation_in(morsel) if morsel != 0 else 0
        taken[at + PASSED_ON] += punctuation_in(out)


@njit(inline="always")
def in_a_while(address: int, after: int) -> None:
    """Writes the time of day that will be ``after`` nanoseconds (less than a second) from now: what
    the C library waits for."""
    _clock_gettime(_REAL, address)
    time = words(address, 2)
    time[1] += after
    if time[1] >= 1_000_000_000:
        time[0] += 1
        time[1] -= 1_000_000_000
