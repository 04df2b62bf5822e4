"""Idle threads sleep, without the GIL, until something has happened: a POSIX condition.

A bed is BED words: how many sleep, how often they were woken, and room for a mutex and a condition.
Who looks for work notes ``wakes`` first, and lies down with it only if there was none: what happens
in between is not slept through.
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
#: What makes a mutex and a condition out of zeros.
_SIGNATURES = (0x32AAABA7, 0x3CB0B1BB) if sys.platform == "darwin" else (0, 0)

_lock = types.ExternalFunction("pthread_mutex_lock", types.int32(types.int64))
_unlock = types.ExternalFunction("pthread_mutex_unlock", types.int32(types.int64))
_wait = types.ExternalFunction(
    "pthread_cond_timedwait", types.int32(types.int64, types.int64, types.int64)
)
_broadcast = types.ExternalFunction("pthread_cond_broadcast", types.int32(types.int64))


@njit("void(int64)", cache=True)
def make_bed(bed: int) -> None:
    """Over BED words of zeros."""
    b = words(bed, BED)
    b[_MUTEX], b[_CONDITION] = _SIGNATURES


@njit(inline="always")
def wakes(bed: int) -> Any:
    """How often the sleepers have been woken."""
    return load_acquire(bed + 8 * _WAKES)


@njit("void(int64, int64, int64, int64)", nogil=True, cache=True)
def lie_down(bed: int, seen: int, most: int, scratch: int) -> None:
    """Sleeps until ``wakes`` is more than ``seen``, at most so many nanoseconds. The sleeper has
    been counted (``fetch_add`` on SLEEPERS) before it looked for work, and counts itself out.
    ``scratch``: two words."""
    in_a_while(scratch, most)
    _lock(bed + 8 * _MUTEX)
    if wakes(bed) == seen:
        _wait(bed + 8 * _CONDITION, bed + 8 * _MUTEX, scratch)
    _unlock(bed + 8 * _MUTEX)
    fetch_add(bed + 8 * SLEEPERS, -1)


@njit("void(int64)", nogil=True, cache=True)
def wake(bed: int) -> None:
    """Wakes all sleepers, of what was written before."""
    fence()
    if load_relaxed(bed + 8 * SLEEPERS) > 0:
        _lock(bed + 8 * _MUTEX)
        fetch_add(bed + 8 * _WAKES, 1)
        _broadcast(bed + 8 * _CONDITION)
        _unlock(bed + 8 * _MUTEX)
