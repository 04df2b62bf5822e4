"""Functions over the samples of a segment (``layout``): one value for each segment.

Integers of 8 and 16 bits are summed exactly. Others are summed in the order of the samples in
several sums at once, which depends on the machine and on nothing else. If the store has no room to
bring the samples of a segment together, its values are those of no samples, and the query fails
before any of them leaves it.
"""

from __future__ import annotations

import math
from typing import Any

from numba import float64, int32, int64

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.memory import as_f32, as_f64, as_i8, as_i16, as_i32, words
from cql.executor.kernels.signals.layout import BASE, KIND, LENGTH, SEGMENT
from cql.executor.kernels.signals.segments import flat

#: Samples whose sum of squares, times their number, is exact in 64 bits.
_EXACT = 1 << 16
#: Between the ends of integers whose distances are in 64 bits.
_MOST_RANGE = 9.0e18
_FAST = {"reassoc", "contract"}


@njit(inline="always")
def _kind(g: int) -> int:
    return int(words(g, SEGMENT)[BASE] & KIND)


@njit("UniTuple(int64, 2)(int64)", nogil=True, cache=True)
def _samples(g: int) -> tuple[int, int]:
    """How many samples there are, and the address of the first."""
    at = flat(g)
    return (words(g, SEGMENT)[LENGTH] if at != 0 else 0), at


# -- sums ------------------------------------------------------------------------------------------


@njit(nogil=True, cache=True)
def _sum_of_integers(x: Any) -> int:
    total = int64(0)
    for i in range(x.size):
        total += int64(x[i])
    return total


@njit(nogil=True, cache=True)
def _sums_of_halves(x: Any) -> tuple[int, int]:
    """The sums of the higher and of the lower 32 bits of integers of 64 bits."""
    high, low = int64(0), int64(0)
    for i in range(x.size):
        high += x[i] >> 32
        low += x[i] & 0xFFFFFFFF
    return high, low


@njit(nogil=True, cache=True)
def _sum_of_words(x: Any) -> float:
    """The sum of integers of 64 bits, rounded once for each half of their bits."""
    high, low = _sums_of_halves(x)
    return float64(high) * 4294967296.0 + float64(low)


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
    """The sum of whole numbers, which ``segment_sum_fits`` if they have 64 bits."""
    (n, at), kind = _samples(g), _kind(g)
    if kind == 0:
        return _sum_of_integers(as_i8(at, n))
    if kind == 1:
        return _sum_of_integers(as_i16(at, n))
    if kind == 2:
        return _sum_of_integers(as_i32(at, n))
    return _sum_of_integers(words(at, n))


@njit("boolean(int64)", nogil=True, cache=True)
def segment_sum_fits(g: int) -> bool:
    """Whether the sum of whole numbers of 64 bits has 64 bits, too."""
    n, at = _samples(g)
    high, low = _sums_of_halves(words(at, n))
    return -0x80000000 <= high + (low >> 32) <= 0x7FFFFFFF


@njit("float64(int64)", nogil=True, cache=True)
def segment_real_sum(g: int) -> float:
    (n, at), kind = _samples(g), _kind(g)
    if kind == 4:
        return _sum_of_reals(as_f32(at, n))
    if kind == 5:
        return _sum_of_reals(as_f64(at, n))
    if kind == 3:
        return _sum_of_words(words(at, n))
    return float(segment_sum(g))


@njit("float64(int64)", nogil=True, cache=True)
def segment_mean(g: int) -> float:
    n = words(g, SEGMENT)[LENGTH]
    return segment_real_sum(g) / n if n > 0 else math.nan


@njit(nogil=True, cache=True)
def _bounds(x: Any) -> tuple[int, int]:
    """The least and the greatest whole number."""
    least, greatest = int64(x[0]), int64(x[0])
    for i in range(1, x.size):
        least, greatest = min(least, int64(x[i])), max(greatest, int64(x[i]))
    return least, greatest


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
def _squares_of_integers(x: Any) -> float:
    """The sum of the squared distances from the mean, of 32 or 64 bits. Sums the distances from the
    first one, which are whole numbers, unless they leave 64 bits."""
    lowest, highest = _bounds(x)
    pivot = int64(x[0])
    if float64(highest) - float64(lowest) > _MOST_RANGE:
        pivot = int64(0)
    mean = 0.0
    for i in range(x.size):
        mean += float64(int64(x[i]) - pivot)
    mean /= x.size
    total, rest = 0.0, 0.0
    for i in range(x.size):
        distance = float64(int64(x[i]) - pivot) - mean
        total += distance * distance
        rest += distance
    return max(total - rest * rest / x.size, 0.0)


@njit(nogil=True, cache=True, fastmath=_FAST)
def _squares_of_reals(x: Any, mean: float) -> float:
    """The same of fractions; ``mean``: about their mean."""
    total, rest = 0.0, 0.0
    for i in range(x.size):
        distance = float64(x[i]) - mean
        total += distance * distance
        rest += distance
    total -= rest * rest / x.size
    return 0.0 if total < 0.0 else total


@njit(nogil=True, cache=True, fastmath=_FAST)
def _squares(x: Any) -> float:
    total = 0.0
    for i in range(x.size):
        total += float64(x[i]) * float64(x[i])
    return total


@njit("float64(int64)", nogil=True, cache=True)
def segment_squares(g: int) -> float:
    """The sum of the squared distances from the mean."""
    (n, at), kind = _samples(g), _kind(g)
    if n == 0:
        return 0.0
    if kind == 0:
        return _squares_of_small(as_i8(at, n))
    if kind == 1:
        return _squares_of_small(as_i16(at, n))
    if kind == 2:
        return _squares_of_integers(as_i32(at, n))
    if kind == 3:
        return _squares_of_integers(words(at, n))
    if kind == 4:
        return _squares_of_reals(as_f32(at, n), segment_mean(g))
    return _squares_of_reals(as_f64(at, n), segment_mean(g))


@njit("float64(int64, int64)", nogil=True, cache=True)
def segment_variance(g: int, less: int) -> float:
    """The variance, with ``less`` samples fewer in the divisor; NaN if none is left."""
    n = words(g, SEGMENT)[LENGTH] - less
    return segment_squares(g) / n if n > 0 else math.nan


@njit("float64(int64)", nogil=True, cache=True)
def segment_rms(g: int) -> float:
    (n, at), kind = _samples(g), _kind(g)
    if n == 0:
        return math.nan
    if kind == 0:
        total = _squares(as_i8(at, n))
    elif kind == 1:
        total = _squares(as_i16(at, n))
    elif kind == 2:
        total = _squares(as_i32(at, n))
    elif kind == 3:
        total = _squares(words(at, n))
    elif kind == 4:
        total = _squares(as_f32(at, n))
    else:
        total = _squares(as_f64(at, n))
    return math.sqrt(total / n)


# -- extremes --------------------------------------------------------------------------------------


@njit("UniTuple(int64, 2)(int64)", nogil=True, cache=True)
def _extremes(g: int) -> tuple[int, int]:
    (n, at), kind = _samples(g), _kind(g)
    if n == 0:
        return 0, 0
    if kind == 0:
        return _bounds(as_i8(at, n))
    if kind == 1:
        return _bounds(as_i16(at, n))
    if kind == 2:
        return _bounds(as_i32(at, n))
    return _bounds(words(at, n))


@njit("int64(int64)", nogil=True, cache=True)
def segment_min(g: int) -> int:
    return _extremes(g)[0]


@njit("int64(int64)", nogil=True, cache=True)
def segment_max(g: int) -> int:
    return _extremes(g)[1]


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
    n, at = _samples(g)
    if _kind(g) == 4:
        return _lowest(as_f32(at, n))
    return _lowest(as_f64(at, n))


@njit("float64(int64)", nogil=True, cache=True)
def segment_real_max(g: int) -> float:
    n, at = _samples(g)
    if _kind(g) == 4:
        return _highest(as_f32(at, n))
    return _highest(as_f64(at, n))


# -- single samples --------------------------------------------------------------------------------


@njit(nogil=True, cache=True)
def _peak(x: Any) -> int:
    at = -1
    for i in range(x.size):
        if x[i] != x[i]:
            return i
        if at < 0 or x[i] > x[at]:
            at = i
    return at


@njit(nogil=True, cache=True)
def _trough(x: Any) -> int:
    at = -1
    for i in range(x.size):
        if at < 0 or x[i] < x[at] or (x[at] != x[at] and x[i] == x[i]):
            at = i
    return at


@njit("int64(int64)", nogil=True, cache=True)
def segment_peak(g: int) -> int:
    """The place of the first greatest sample, -1: there is none; NaN is above all numbers."""
    (n, at), kind = _samples(g), _kind(g)
    if kind == 0:
        return _peak(as_i8(at, n))
    if kind == 1:
        return _peak(as_i16(at, n))
    if kind == 2:
        return _peak(as_i32(at, n))
    if kind == 3:
        return _peak(words(at, n))
    if kind == 4:
        return _peak(as_f32(at, n))
    return _peak(as_f64(at, n))


@njit("int64(int64)", nogil=True, cache=True)
def segment_trough(g: int) -> int:
    """The place of the first least sample, -1: there is none."""
    (n, at), kind = _samples(g), _kind(g)
    if kind == 0:
        return _trough(as_i8(at, n))
    if kind == 1:
        return _trough(as_i16(at, n))
    if kind == 2:
        return _trough(as_i32(at, n))
    if kind == 3:
        return _trough(words(at, n))
    if kind == 4:
        return _trough(as_f32(at, n))
    return _trough(as_f64(at, n))


@njit("boolean(int64, int64)", nogil=True, cache=True)
def segment_has(g: int, i: int) -> bool:
    """Whether there is a sample with the number ``i``."""
    return bool(0 <= i < words(g, SEGMENT)[LENGTH])


@njit("int64(int64, int64)", nogil=True, cache=True)
def segment_sample(g: int, i: int) -> int:
    """The whole number with the number ``i``, which the segment has."""
    (n, at), kind = _samples(g), _kind(g)
    if i >= n:
        return 0
    if kind == 0:
        return int(as_i8(at, n)[i])
    if kind == 1:
        return int(as_i16(at, n)[i])
    if kind == 2:
        return int(as_i32(at, n)[i])
    return int(words(at, n)[i])


@njit("float64(int64, int64)", nogil=True, cache=True)
def segment_real_sample(g: int, i: int) -> float:
    """The same of fractions."""
    n, at = _samples(g)
    if i >= n:
        return math.nan
    return float(as_f32(at, n)[i]) if _kind(g) == 4 else float(as_f64(at, n)[i])


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
    (n, at), kind = _samples(g), _kind(g)
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
