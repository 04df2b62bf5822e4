"""A POSIX condition variable: idle threads sleep on it without the GIL until another thread wakes
them.

A condition ("bed") is BED words: the number of sleepers, the number of wake-ups, and room for a
mutex and a condition variable. A thread reads ``wakes`` before it looks for work. If it finds none,
it passes that number to ``lie_down``, which returns at once if a wake-up happened in between.
"""

from __future__ import annotations

import sys
from typing import Any

from numba import types

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.atomics import fence, fetch_add, load_acquire, load_relaxed
from cql.executor.kernels.lib.clock import in_a_while
from cql.executor.kernels.lib.memory import words

SLEEPERS = 0
_WAKES = 16
_MUTEX = 32
_CONDITION = 48
BED = 64
#: First words of an initialised mutex and condition variable; their other words are zeros.
_SIGNATURES = (0x32AAABA7, 0x3CB0B1BB) if sys.platform == "darwin" else (0, 0)

_lock = types.ExternalFunction("pthread_mutex_lock", types.int32(types.int64))
_unlock = types.ExternalFunction("pthread_mutex_unlock", types.int32(types.int64))
_wait = types.ExternalFunction(
    "pthread_cond_timedwait", types.int32(types.int64, types.int64, types.int64)
)
_broadcast = types.ExternalFunction("pthread_cond_broadcast", types.int32(types.int64))


@njit("void(int64)", cache=True)
def make_bed(bed: int) -> None:
    """Makes a condition of BED words of zeros."""
    b = words(bed, BED)
    b[_MUTEX], b[_CONDITION] = _SIGNATURES


@njit(inline="always")
def wakes(bed: int) -> Any:
    """The number of wake-ups so far."""
    return load_acquire(bed + 8 * _WAKES)


@njit("void(int64, int64, int64, int64)", nogil=True, cache=True)
def lie_down(bed: int, seen: int, most: int, scratch: int) -> None:
    """Sleeps until ``wakes`` exceeds ``seen``, for at most ``most`` nanoseconds. The thread adds
    itself to SLEEPERS (``fetch_add``) before it looks for work; this function subtracts it again.
    ``scratch`` is the address of two words."""
    in_a_while(scratch, most)
    _lock(bed + 8 * _MUTEX)
    if wakes(bed) == seen:
        _wait(bed + 8 * _CONDITION, bed + 8 * _MUTEX, scratch)
    _unlock(bed + 8 * _MUTEX)
    fetch_add(bed + 8 * SLEEPERS, -1)


@njit("void(int64)", nogil=True, cache=True)
def wake(bed: int) -> None:
    """Wakes all sleepers. They see every store that this thread made before the call."""
    fence()
    if load_relaxed(bed + 8 * SLEEPERS) > 0:
        _lock(bed + 8 * _MUTEX)
        fetch_add(bed + 8 * _WAKES, 1)
        _broadcast(bed + 8 * _CONDITION)
        _unlock(bed + 8 * _MUTEX)
