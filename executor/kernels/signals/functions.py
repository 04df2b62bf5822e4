"""Functions over the samples of a segment (``layout``): one value for each segment.

Integers of 8 and 16 bits are summed exactly. Others are summed in the order of the samples in
several sums at once, which depends on the machine and on nothing else.
"""

from __future__ import annotations

import math
from typing import Any

from numba import float64, int32, int64

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.memory import as_f32, as_f64, as_i8, as_i16, as_i32, words
from cql.executor.kernels.signals.layout import BASE, LENGTH, SEGMENT
from cql.executor.kernels.signals.segments import flat

#: Samples whose sum of squares, times their number, is exact in 64 bits.
_EXACT = 1 << 16
_FAST = {"reassoc", "contract"}


@njit(inline="always")
def _kind(g: int) -> int:
    return int(words(g, SEGMENT)[BASE] & 15)


# -- sums ------------------------------------------------------------------------------------------


@njit(nogil=True, cache=True)
def _sum_of_integers(x: Any) -> int:
    total = int64(0)
    for i in range(x.size):
        total += int64(x[i])
    return total


@njit(nogil=True, cache=True, fastmath=_FAST)
def _sum_of_reals(x: Any) -> float:
    total = 0.0
    for i in range(x.size):
        total += float64(x[i])
    return total


@njit("int64(int64)", nogil=True, cache=True)
def segment_count(g: int) -> int:
    return int(words(g, SEGMENT)[LENGTH])


@njit("int64(int64)", nogil=True, cache=True)
def segment_sum(g: int) -> int:
    """The sum of whole numbers; it wraps around beyond 64 bits."""
    n, at, kind = words(g, SEGMENT)[LENGTH], flat(g), _kind(g)
    if kind == 0:
        return _sum_of_integers(as_i8(at, n))
    if kind == 1:
        return _sum_of_integers(as_i16(at, n))
    if kind == 2:
        return _sum_of_integers(as_i32(at, n))
    return _sum_of_integers(words(at, n))


@njit("float64(int64)", nogil=True, cache=True)
def segment_real_sum(g: int) -> float:
    n, at, kind = words(g, SEGMENT)[LENGTH], flat(g), _kind(g)
    if kind == 4:
        return _sum_of_reals(as_f32(at, n))
    if kind == 5:
        return _sum_of_reals(as_f64(at, n))
    if kind == 3:
        return _sum_of_reals(words(at, n))
    return float(segment_sum(g))


@njit("float64(int64)", nogil=True, cache=True)
def segment_mean(g: int) -> float:
    n = words(g, SEGMENT)[LENGTH]
    return segment_real_sum(g) / n if n > 0 else math.nan


# -- squares ---------------------------------------------------------------------------------------


@njit(nogil=True, cache=True)
def _squares_of_small(x: Any) -> float:
    """The sum of the squared distances from the mean, of 8 or 16 bits; exact for _EXACT samples."""
    total, mean, seen = 0.0, 0.0, 0
    for first in range(0, x.size, _EXACT):
        part = x[first : first + _EXACT]
        s, q = int64(0), int64(0)
        for i in range(part.size):
            a = int32(part[i])
            s += a
            q += int64(int32(a * a))
        n = part.size
        own, own_mean = (n * q - s * s) / n, s / n
        distance = own_mean - mean
        total += own + distance * distance * seen * n / (seen + n)
        mean += distance * n / (seen + n)
        seen += n
    return total


@njit(nogil=True, cache=True, fastmath=_FAST)
def _squares_about(x: Any, mean: float) -> float:
    total = 0.0
    for i in range(x.size):
        distance = float64(x[i]) - mean
        total += distance * distance
    return total


@njit("float64(int64)", nogil=True, cache=True)
def segment_squares(g: int) -> float:
    """The sum of the squared distances from the mean."""
    n, at, kind = words(g, SEGMENT)[LENGTH], flat(g), _kind(g)
    if kind == 0:
        return _squares_of_small(as_i8(at, n))
    if kind == 1:
        return _squares_of_small(as_i16(at, n))
    if kind == 2:
        return _squares_about(as_i32(at, n), segment_mean(g))
    if kind == 3:
        return _squares_about(words(at, n), segment_mean(g))
    if kind == 4:
        return _squares_about(as_f32(at, n), segment_mean(g))
    return _squares_about(as_f64(at, n), segment_mean(g))


@njit("float64(int64, int64)", nogil=True, cache=True)
def segment_variance(g: int, less: int) -> float:
    """The variance, with ``less`` samples fewer in the divisor; NaN if none is left."""
    n = words(g, SEGMENT)[LENGTH] - less
    return segment_squares(g) / n if n > 0 else math.nan


@njit("float64(int64)", nogil=True, cache=True)
def segment_rms(g: int) -> float:
    n, at, kind = words(g, SEGMENT)[LENGTH], flat(g), _kind(g)
    if n == 0:
        return math.nan
    if kind == 0:
        total = _squares_about(as_i8(at, n), 0.0)
    elif kind == 1:
        total = _squares_about(as_i16(at, n), 0.0)
    elif kind == 2:
        total = _squares_about(as_i32(at, n), 0.0)
    elif kind == 3:
        total = _squares_about(words(at, n), 0.0)
    elif kind == 4:
        total = _squares_about(as_f32(at, n), 0.0)
    else:
        total = _squares_about(as_f64(at, n), 0.0)
    return math.sqrt(total / n)


# -- extremes --------------------------------------------------------------------------------------


@njit(nogil=True, cache=True)
def _least(x: Any, sign: int) -> int:
    """The least of ``sign`` times each whole number."""
    least = int64(x[0]) * sign
    for i in range(1, x.size):
        least = min(least, int64(x[i]) * sign)
    return least


@njit("int64(int64, int64)", nogil=True, cache=True)
def _extreme(g: int, sign: int) -> int:
    n, at, kind = words(g, SEGMENT)[LENGTH], flat(g), _kind(g)
    if n == 0:
        return 0
    if kind == 0:
        return _least(as_i8(at, n), sign)
    if kind == 1:
        return _least(as_i16(at, n), sign)
    if kind == 2:
        return _least(as_i32(at, n), sign)
    return _least(words(at, n), sign)


@njit("int64(int64)", nogil=True, cache=True)
def segment_min(g: int) -> int:
    return _extreme(g, 1)


@njit("int64(int64)", nogil=True, cache=True)
def segment_max(g: int) -> int:
    return -_extreme(g, -1)


@njit(nogil=True, cache=True)
def _lowest(x: Any) -> float:
    """The lowest number; NaN is above all numbers, as in Spark."""
    lowest = math.nan
    for i in range(x.size):
        if not x[i] >= lowest and x[i] == x[i]:
            lowest = float64(x[i])
    return lowest


@njit(nogil=True, cache=True)
def _highest(x: Any) -> float:
    """The highest number; NaN is above all numbers, as in Spark."""
    highest = -math.inf if x.size else math.nan
    for i in range(x.size):
        if not x[i] <= highest:
            highest = float64(x[i])
        if x[i] != x[i]:
            return math.nan
    return highest


@njit("float64(int64)", nogil=True, cache=True)
def segment_real_min(g: int) -> float:
    n, at = words(g, SEGMENT)[LENGTH], flat(g)
    if _kind(g) == 4:
        return _lowest(as_f32(at, n))
    return _lowest(as_f64(at, n))


@njit("float64(int64)", nogil=True, cache=True)
def segment_real_max(g: int) -> float:
    n, at = words(g, SEGMENT)[LENGTH], flat(g)
    if _kind(g) == 4:
        return _highest(as_f32(at, n))
    return _highest(as_f64(at, n))


# -- signs -----------------------------------------------------------------------------------------


@njit(nogil=True, cache=True)
def _crossings(x: Any) -> int:
    found = 0
    for i in range(1, x.size):
        found += (x[i] < 0) != (x[i - 1] < 0)
    return found


@njit("int64(int64)", nogil=True, cache=True)
def segment_crossings(g: int) -> int:
    """How often the sign changes; zero counts as positive."""
    n, at, kind = words(g, SEGMENT)[LENGTH], flat(g), _kind(g)
    if kind == 0:
        return _crossings(as_i8(at, n))
    if kind == 1:
        return _crossings(as_i16(at, n))
    if kind == 2:
        return _crossings(as_i32(at, n))
    if kind == 3:
        return _crossings(words(at, n))
    if kind == 4:
        return _crossings(as_f32(at, n))
    return _crossings(as_f64(at, n))
