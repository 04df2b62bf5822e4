"""Measures the number of cores that the machine gives to several threads.

The cores of a virtual machine may be hyperthreads of one core, for a moment or for hours, and the
machine does not report this: each thread has a CPU all the time, but runs slower. Arithmetic that
saturates a core's multiplier and touches no memory reveals the difference."""

from __future__ import annotations

import threading
import time

from numba import njit

STEPS = 32_000_000
_FACTOR = 6364136223846793005


@njit("int64(int64)", nogil=True)
def _multiply(steps: int) -> int:
    """Eight independent chains, so that no multiplication waits for its own latency."""
    a, b, c, d, e, f, g, h = 1, 2, 3, 4, 5, 6, 7, 8
    for i in range(steps):
        a, b, c, d = a * _FACTOR + i, b * _FACTOR + i, c * _FACTOR + i, d * _FACTOR + i
        e, f, g, h = e * _FACTOR + i, f * _FACTOR + i, g * _FACTOR + i, h * _FACTOR + i
    return a ^ b ^ c ^ d ^ e ^ f ^ g ^ h


def given(threads: int, steps: int = STEPS) -> float:
    """The speedup of ``threads`` threads over one thread (some 30 ms per measurement)."""
    return threads * _seconds(1, steps) / _seconds(threads, steps)


def _seconds(threads: int, steps: int) -> float:
    started = [threading.Thread(target=_multiply, args=(steps,)) for _ in range(threads)]
    began = time.perf_counter()
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    return time.perf_counter() - began
