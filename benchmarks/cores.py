"""How many cores the machine gives to several threads.

A virtual machine's cores may be hyperthreads of one core, for a moment or for hours, and nothing in
it says so: each thread has a CPU for all of its time, and is slower. What shows it is arithmetic
that keeps a core's multiplier busy and touches no memory."""

from __future__ import annotations

import threading
import time

from numba import njit

STEPS = 32_000_000
_FACTOR = 6364136223846793005


@njit("int64(int64)", nogil=True)
def _multiply(steps: int) -> int:
    """Chains enough that none waits for itself."""
    a, b, c, d, e, f, g, h = 1, 2, 3, 4, 5, 6, 7, 8
    for i in range(steps):
        a, b, c, d = a * _FACTOR + i, b * _FACTOR + i, c * _FACTOR + i, d * _FACTOR + i
        e, f, g, h = e * _FACTOR + i, f * _FACTOR + i, g * _FACTOR + i, h * _FACTOR + i
    return a ^ b ^ c ^ d ^ e ^ f ^ g ^ h


def given(threads: int, steps: int = STEPS) -> float:
    """How many times what one thread does in a second ``threads`` do at once (some 30 ms each)."""
    return threads * _seconds(1, steps) / _seconds(threads, steps)


def _seconds(threads: int, steps: int) -> float:
    started = [threading.Thread(target=_multiply, args=(steps,)) for _ in range(threads)]
    began = time.perf_counter()
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    return time.perf_counter() - began
