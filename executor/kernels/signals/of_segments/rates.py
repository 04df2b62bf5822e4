"""Functions that change the rate of the samples: resampling, and the Haar wavelet transform.
``serial``: see ``results``."""

from __future__ import annotations

import math
from typing import Any

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.memory import as_f64, words
from cql.executor.kernels.signals.layout import LENGTH, OWNER, SEGMENT
from cql.executor.kernels.signals.of_segments.pairs import inner
from cql.executor.kernels.signals.of_segments.prepared import HEAD, keep, kept, leave, new_table
from cql.executor.kernels.signals.of_segments.results import (
    DOUBLE,
    copy_doubles,
    done,
    doubles,
    given,
    new,
)
from cql.executor.kernels.signals.segments import flat, make, release
from cql.executor.kernels.signals.timebases import place_at_rate

_TAPS = 2
#: Samples of the filter on each side of its middle, at the lower of the two rates.
_HALF = 10
_BETA = 5.0


# -- resampling ------------------------------------------------------------------------------------


@njit("float64(float64)", nogil=True, cache=True)
def _bessel(x: float) -> float:
    """The modified Bessel function of the first kind, of order 0, by its power series."""
    total = term = 1.0
    k = 1
    while term > 1e-17 * total:
        term *= (0.5 * x / k) * (0.5 * x / k)
        total += term
        k += 1
    return total


@njit("void(float64[::1], int64)", nogil=True, cache=True)
def _lowpass(h: Any, half: int) -> None:
    """A filter of 2 * half + 1 taps, whose sum is 1, under a Kaiser window; it passes what is below
    half of 1 / (half / _HALF) of the rate."""
    cutoff, total = 1.0 / (half // _HALF), 0.0
    for i in range(2 * half + 1):
        place = float(i - half)
        angle = math.pi * cutoff * place
        sinc = math.sin(angle) / angle if i != half else 1.0
        inside = 1.0 - (place / half) * (place / half)
        h[i] = cutoff * sinc * _bessel(_BETA * math.sqrt(max(inside, 0.0))) / _bessel(_BETA)
        total += h[i]
    for i in range(2 * half + 1):
        h[i] /= total


@njit("int64(int64, int64, int64, int64)", nogil=True, cache=True)
def _taps(s: int, up: int, down: int, width: int) -> int:
    """The table of the filter for rates times ``up`` and through ``down``: for each place between
    two samples, of ``up``, the ``width`` factors of the samples before it, the last one at the end;
    0: no room."""
    found = kept(s, _TAPS, up, down)
    if found != 0:
        return found
    half = _HALF * max(up, down)
    work = make(s, DOUBLE, 0, 2 * half + 1)
    if work == 0:
        return 0
    made = new_table(_TAPS, up, down, up * width)
    if made != 0:
        h = as_f64(flat(work), 2 * half + 1)
        _lowpass(h, half)
        table = as_f64(made + 8 * HEAD, up * width)
        for phase in range(up):
            for j in range(width):
                i = phase + j * up
                table[phase * width + width - 1 - j] = up * h[i] if i <= 2 * half else 0.0
        keep(s, made, up * width)
    release(work)
    return made


@njit("int64(int64, int64, int64, int64)", nogil=True, cache=True)
def segment_resampled(g: int, up: int, down: int, serial: int) -> int:
    """The samples at ``up`` / ``down`` times their rate, from the time of the first on; the two
    numbers have no common divisor. Beyond the samples there are zeros."""
    length = words(g, SEGMENT)[LENGTH]
    most = -(-length * up // down)
    h = new(g, DOUBLE, most)
    if h != 0 and not place_at_rate(h, g, up, down):
        release(h)
        h = 0
    if h == 0 or most == 0:
        return given(g, h, serial)
    y = as_f64(flat(h), most)
    n, at, work = doubles(g)
    half = _HALF * max(up, down)
    width = 2 * half // up + 1
    table = _taps(words(g, SEGMENT)[OWNER], up, down, width)
    if table == 0 or n == 0:
        y[:] = 0.0
    else:
        x, taps = as_f64(at, n), as_f64(table + 8 * HEAD, up * width)
        for k in range(most):
            place = k * down + half
            last, phase = place // up, place % up
            first = last - width + 1
            low, high = max(first, 0), min(last + 1, n)
            own = taps[phase * width + low - first : phase * width + high - first]
            y[k] = inner(x[low:high], own) if low < high else 0.0
    if table != 0:
        leave(table)
    done(work)
    return given(g, h, serial)


# -- wavelets --------------------------------------------------------------------------------------


@njit("boolean(int64, int64)", nogil=True, cache=True)
def segment_halves(g: int, levels: int) -> bool:
    """Whether the number of samples is a multiple of 2 ** levels."""
    return bool(words(g, SEGMENT)[LENGTH] & ((1 << levels) - 1) == 0)


@njit("int64(int64, int64, int64)", nogil=True, cache=True)
def segment_haar(g: int, levels: int, serial: int) -> int:
    """The orthonormal Haar transform: the approximation, and the details from the coarsest level to
    the finest."""
    n, root = words(g, SEGMENT)[LENGTH], math.sqrt(0.5)
    h = new(g, DOUBLE, n)
    work = make(words(g, SEGMENT)[OWNER], DOUBLE, 0, n) if h != 0 and n > 0 else 0
    if work != 0:
        x, y = as_f64(flat(h), n), as_f64(flat(work), n)
        copy_doubles(g, x)
        half = n
        for _ in range(levels):
            half >>= 1
            y[: 2 * half] = x[: 2 * half]
            for k in range(half):
                x[k], x[half + k] = (
                    root * (y[2 * k] + y[2 * k + 1]),
                    root * (y[2 * k] - y[2 * k + 1]),
                )
        release(work)
    return given(g, h, serial)


@njit("float64(int64, int64)", nogil=True, cache=True)
def segment_band_energy(g: int, level: int) -> float:
    """The sum of the squares of the details of a level of the Haar transform; 1 is the finest."""
    n, at, work = doubles(g)
    x, half, total = as_f64(at, n), 1 << (level - 1), 0.0
    for first in range(0, n - 2 * half + 1, 2 * half):
        left = right = 0.0
        for i in range(first, first + half):
            left += x[i]
            right += x[i + half]
        total += (left - right) * (left - right)
    done(work)
    return total / (2 * half)
