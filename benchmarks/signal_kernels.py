"""Bare kernels of the XStream paper's benchmarks: loops written by hand over samples in memory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import int64, njit

#: Samples in a window.
WINDOW = 4096
#: Thresholds: the least standard deviation and the highest mean of STATFILTER, the least standard
#: deviation of SILENCEFILTER.
ALPHA, BETA, GAMMA = 500, 0, 500


@njit(nogil=True)
def _spread(x: Any, first: int) -> float:
    s, q = int64(0), int64(0)
    for i in range(first, first + WINDOW):
        a = np.int32(x[i])
        s += a
        q += int64(np.int32(a * a))
    return math.sqrt((q - s * (s / WINDOW)) / (WINDOW - 1))


@njit(nogil=True)
def statfilter(x: Any, found: Any) -> int:
    """The windows that vary much and lie low: ``found`` gets the number of the first sample of
    each. Returns their number."""
    n = 0
    for window in range(x.size // WINDOW):
        first = window * WINDOW
        if _spread(x, first) > ALPHA:
            total = int64(0)
            for i in range(first, first + WINDOW):
                total += x[i]
            if total / WINDOW < BETA:
                found[n] = first
                n += 1
    return n


@njit(nogil=True)
def silencefilter(x: Any, found: Any) -> int:
    """The samples of the windows that are not silent: ``found`` gets them. Returns their number."""
    n = 0
    for window in range(x.size // WINDOW):
        first = window * WINDOW
        if _spread(x, first) > GAMMA:
            found[n : n + WINDOW] = x[first : first + WINDOW]
            n += WINDOW
    return n


@njit(nogil=True)
def passchain(x: Any, found: Any) -> int:
    """The sum of each window's samples. Returns the number of windows."""
    windows = x.size // WINDOW
    for window in range(windows):
        total = int64(0)
        for i in range(window * WINDOW, (window + 1) * WINDOW):
            total += x[i]
        found[window] = total
    return windows


@njit(nogil=True)
def loud(x: Any, found: Any) -> int:
    """The numbers of the samples that SILENCEFILTER finds; how many they are."""
    n = 0
    for window in range(x.size // WINDOW):
        first = window * WINDOW
        if _spread(x, first) > GAMMA:
            found[n : n + WINDOW] = np.arange(first, first + WINDOW)
            n += WINDOW
    return n
