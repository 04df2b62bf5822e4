"""Functions of two segments, and arithmetic with samples, which is in doubles. ``serial``: see
``results``."""

from __future__ import annotations

from typing import Any

import numpy as np

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.memory import as_f64, as_i8, words
from cql.executor.kernels.signals.layout import BASE, KIND, KINDS, LENGTH, SEGMENT
from cql.executor.kernels.signals.of_segments.results import (
    DOUBLE,
    copy_doubles,
    done,
    doubles,
    given,
    new,
)
from cql.executor.kernels.signals.segments import flat

# Operations of ``segment_with`` and ``segment_combined``, whose result begins where the first
# operand does.
ADD = 0
SUBTRACT = 1
MULTIPLY = 2
DIVIDE = 3
SUBTRACT_FROM = 4  # the second operand minus the first
DIVIDE_INTO = 5

NO_LAG = -(2**63)
_BYTE = KINDS.index("int8")
#: The sum of so many products of two bytes has 31 bits.
_BYTES_AT_ONCE = 1 << 16


@njit("boolean(int64, int64)", nogil=True, cache=True)
def segment_as_long(g: int, h: int) -> bool:
    """Whether both have as many samples."""
    return bool(words(g, SEGMENT)[LENGTH] == words(h, SEGMENT)[LENGTH])


# -- arithmetic ------------------------------------------------------------------------------------


@njit("int64(int64, float64, int64, int64)", nogil=True, cache=True, error_model="numpy")
def segment_with(g: int, value: float, operation: int, serial: int) -> int:
    """Each sample and a number."""
    n = words(g, SEGMENT)[LENGTH]
    h = new(g, DOUBLE, n)
    if h != 0 and n > 0:
        x = as_f64(flat(h), n)
        copy_doubles(g, x)
        if operation == ADD:
            for i in range(n):
                x[i] = x[i] + value
        elif operation == SUBTRACT:
            for i in range(n):
                x[i] = x[i] - value
        elif operation == MULTIPLY:
            for i in range(n):
                x[i] = x[i] * value
        elif operation == DIVIDE:
            for i in range(n):
                x[i] = x[i] / value
        elif operation == SUBTRACT_FROM:
            for i in range(n):
                x[i] = value - x[i]
        else:
            for i in range(n):
                x[i] = value / x[i]
    return given(g, h, serial)


@njit("int64(int64, int64, int64, int64)", nogil=True, cache=True, error_model="numpy")
def segment_combined(g: int, other: int, operation: int, serial: int) -> int:
    """Each sample and the one of ``other`` with the same number; both have as many."""
    n = words(g, SEGMENT)[LENGTH]
    m, at, work = doubles(other)
    h = new(g, DOUBLE, n)
    if h != 0 and n > 0:
        x, y = as_f64(flat(h), n), as_f64(at, m)
        copy_doubles(g, x)
        n = min(n, m)
        if operation == ADD:
            for i in range(n):
                x[i] = x[i] + y[i]
        elif operation == SUBTRACT:
            for i in range(n):
                x[i] = x[i] - y[i]
        elif operation == MULTIPLY:
            for i in range(n):
                x[i] = x[i] * y[i]
        elif operation == DIVIDE:
            for i in range(n):
                x[i] = x[i] / y[i]
        elif operation == SUBTRACT_FROM:
            for i in range(n):
                x[i] = y[i] - x[i]
        else:
            for i in range(n):
                x[i] = y[i] / x[i]
    done(work)
    return given(g, h, serial)


# -- correlation -----------------------------------------------------------------------------------


@njit(
    "float64(float64[::1], float64[::1])", nogil=True, cache=True, fastmath={"reassoc", "contract"}
)
def inner(x: Any, y: Any) -> float:
    """The sum of the products of the numbers with the same place, as far as both go."""
    total = 0.0
    for i in range(min(x.size, y.size)):
        total += x[i] * y[i]
    return total


@njit("int32(int8[::1], int8[::1])", nogil=True, cache=True)
def _short_inner(x: Any, y: Any) -> Any:
    """The same of at most _BYTES_AT_ONCE bytes, in 32 bits."""
    total = np.int32(0)
    for i in range(min(x.size, y.size)):
        total = np.int32(total + np.int32(x[i]) * np.int32(y[i]))
    return total


@njit("float64(int8[::1], int8[::1])", nogil=True, cache=True)
def _inner_of_bytes(x: Any, y: Any) -> float:
    """The same of any number of bytes."""
    n, total, at = min(x.size, y.size), 0, 0
    while at < n:
        end = min(at + _BYTES_AT_ONCE, n)
        total += _short_inner(x[at:end], y[at:end])
        at = end
    return float(total)


@njit("UniTuple(int64, 3)(int64)", nogil=True, cache=True)
def _bytes(g: int) -> tuple[int, int, int]:
    """As ``doubles``, of a segment of bytes, which are read in their place."""
    at = flat(g)
    return (words(g, SEGMENT)[LENGTH] if at != 0 else 0), at, 0


@njit(
    "Tuple((boolean, UniTuple(int64, 3), UniTuple(int64, 3)))(int64, int64)", nogil=True, cache=True
)
def _both(g: int, h: int) -> Any:
    """Whether both are read as bytes, and what ``_bytes`` or ``doubles`` says of each."""
    if words(g, SEGMENT)[BASE] & KIND == _BYTE and words(h, SEGMENT)[BASE] & KIND == _BYTE:
        return True, _bytes(g), _bytes(h)
    return False, doubles(g), doubles(h)


@njit("float64(boolean, int64, int64, int64, int64, int64)", nogil=True, cache=True)
def _at_lag(are_bytes: bool, n: int, at: int, m: int, to: int, lag: int) -> float:
    """The sum of x[i] * y[i + lag], of ``n`` samples x at the address ``at``, and ``m`` y."""
    i, j = max(-lag, 0), max(lag, 0)
    if are_bytes:
        return float(_inner_of_bytes(as_i8(at, n)[i:], as_i8(to, m)[j:]))
    return float(inner(as_f64(at, n)[i:], as_f64(to, m)[j:]))


@njit("float64(int64, int64)", nogil=True, cache=True)
def segment_dot(g: int, h: int) -> float:
    are_bytes, (n, at, work), (m, to, other) = _both(g, h)
    total = _at_lag(are_bytes, n, at, m, to, 0)
    done(work)
    done(other)
    return float(total)


@njit("int64(int64, int64, int64, int64)", nogil=True, cache=True)
def segment_correlation(g: int, h: int, most: int, serial: int) -> int:
    """The sums of the products of samples of ``g`` and those of ``h`` that come ``lag`` samples
    later, for each lag from -most to most."""
    made = new(g, DOUBLE, 2 * most + 1)
    if made != 0:
        are_bytes, (n, at, work), (m, to, other) = _both(g, h)
        sums = as_f64(flat(made), 2 * most + 1)
        for k in range(2 * most + 1):
            sums[k] = _at_lag(are_bytes, n, at, m, to, k - most)
        done(work)
        done(other)
    return given(g, made, serial)


@njit("int64(int64, int64, int64)", nogil=True, cache=True)
def segment_delay(g: int, h: int, most: int) -> int:
    """The first lag with the greatest correlation; NaN is above all numbers. NO_LAG: one of the
    segments has no samples."""
    found, greatest = NO_LAG, 0.0
    are_bytes, (n, at, work), (m, to, other) = _both(g, h)
    if n > 0 and m > 0:
        for lag in range(-most, most + 1):
            now = _at_lag(are_bytes, n, at, m, to, lag)
            if lag == -most or not now <= greatest:
                found, greatest = lag, now
            if now != now:
                break
    done(work)
    done(other)
    return found
