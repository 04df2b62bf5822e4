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
#: Samples in a window of DETECTAUDIO, and how many deviations above the noise are an event.
SHORT, OMEGA = 32, 3.0

TURNS = 2 * np.pi * np.arange(SHORT) / SHORT
_COSINES, _SINES = np.cos(TURNS), np.sin(TURNS)
HANN = 0.5 - 0.5 * _COSINES
#: The places of the samples, in the order of their numbers with the bits in reverse.
_ORDER = np.array([int(f"{i:05b}"[::-1], 2) for i in range(SHORT)])


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


@njit(nogil=True)
def _transform(x: Any, first: int, re: Any, im: Any) -> None:
    """The transform of a window of SHORT samples under a Hann window (Cooley and Tukey)."""
    for i in range(SHORT):
        place = _ORDER[i]
        re[i], im[i] = x[first + place] * HANN[place], 0.0
    size = 2
    while size <= SHORT:
        half, apart = size >> 1, SHORT // size
        for k in range(half):
            c, s = _COSINES[k * apart], _SINES[k * apart]
            for a in range(k, SHORT, size):
                b = a + half
                u, v = re[b] * c + im[b] * s, im[b] * c - re[b] * s
                re[b], im[b] = re[a] - u, im[a] - v
                re[a], im[a] = re[a] + u, im[a] + v
        size <<= 1


@njit(nogil=True)
def detectaudio(channels: Any, found: Any, firsts: Any) -> int:
    """The samples of all ``channels`` where the spectrum of the first one is louder than the noise
    (CFAR): ``found`` gets them, ``firsts`` the number of the first sample of each window. Returns
    the number of windows."""
    x, re, im = channels[0], np.empty(SHORT), np.empty(SHORT)
    n, count, mean, square = 0, 0.0, 0.0, 0.0
    for window in range(x.size // SHORT):
        first = window * SHORT
        _transform(x, first, re, im)
        low = high = 0.0
        for k in range(1, 5):
            low += re[k] * re[k] + im[k] * im[k]
        for k in range(5, 13):
            high += re[k] * re[k] + im[k] * im[k]
        score = 0.25 * low + 0.75 * high
        if count >= 2.0 and score > mean + OMEGA * math.sqrt(square / (count - 1.0)):
            for k in range(channels.shape[0]):
                found[k, n * SHORT : (n + 1) * SHORT] = channels[k, first : first + SHORT]
            firsts[n] = first
            n += 1
            continue
        count += 1.0
        apart = score - mean
        mean += apart / count
        square += apart * (score - mean)
    return n
