"""Functions of each complex sample of a spectrum (``fourier``), which is a real and an imaginary
part. ``serial``: see ``results``."""

from __future__ import annotations

import math

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.memory import as_f64, words
from cql.executor.kernels.signals.layout import BASE, KIND, LENGTH, SEGMENT
from cql.executor.kernels.signals.of_segments.pairs import (
    ADD,
    DIVIDE,
    DIVIDE_INTO,
    MULTIPLY,
    SUBTRACT,
)
from cql.executor.kernels.signals.of_segments.results import (
    COMPLEX,
    DOUBLE,
    done,
    doubles,
    given,
    new,
)
from cql.executor.kernels.signals.segments import flat


@njit("int64(int64, int64, int64)", nogil=True, cache=True)
def segment_of_complex(g: int, part: int, serial: int) -> int:
    """Of each complex sample the real part (0), the imaginary part (1), the magnitude (2) or the
    phase in radians (3)."""
    n = words(g, SEGMENT)[LENGTH]
    h = new(g, DOUBLE, n)
    at = flat(g)
    if h != 0 and n > 0:
        pairs, x = as_f64(at, 2 * n if at != 0 else 0), as_f64(flat(h), n)
        if at == 0:
            x[:] = 0.0
        elif part < 2:
            for k in range(n):
                x[k] = pairs[2 * k + part]
        elif part == 2:
            for k in range(n):
                x[k] = math.hypot(pairs[2 * k], pairs[2 * k + 1])
        else:
            for k in range(n):
                x[k] = math.atan2(pairs[2 * k + 1], pairs[2 * k])
    return given(g, h, serial)


@njit("UniTuple(int64, 3)(int64)", nogil=True, cache=True)
def _spectrum(g: int) -> tuple[int, int, int]:
    """A new spectrum as long as ``g``, all 0 (its number; 0 without room), the address of its first
    sample, and how many samples can be read and written; 0 without room."""
    n = words(g, SEGMENT)[LENGTH]
    h = new(g, COMPLEX, n)
    if h == 0 or n == 0:
        return h, 0, 0
    at, made = flat(g), flat(h)
    as_f64(made, 2 * n)[:] = 0.0
    return h, made, n if at != 0 else 0


@njit("int64(int64, int64)", nogil=True, cache=True)
def segment_conjugate(g: int, serial: int) -> int:
    """The complex conjugates of the samples."""
    h, made, n = _spectrum(g)
    x, y = as_f64(flat(g), 2 * n), as_f64(made, 2 * n)
    for k in range(n):
        y[2 * k], y[2 * k + 1] = x[2 * k], -x[2 * k + 1]
    return given(g, h, serial)


@njit("complex128(complex128, complex128, int64)", nogil=True, cache=True, error_model="numpy")
def _result(a: complex, b: complex, operation: int) -> complex:
    if operation == ADD:
        return a + b
    if operation == SUBTRACT:
        return a - b
    if operation == MULTIPLY:
        return a * b
    if operation == DIVIDE:
        return a / b
    if operation == DIVIDE_INTO:
        return b / a
    return b - a


@njit("int64(int64, float64, int64, int64)", nogil=True, cache=True)
def spectrum_with(g: int, value: float, operation: int, serial: int) -> int:
    """Each complex sample and a number (``pairs``)."""
    h, made, n = _spectrum(g)
    x, y = as_f64(flat(g), 2 * n), as_f64(made, 2 * n)
    for k in range(n):
        c = _result(complex(x[2 * k], x[2 * k + 1]), complex(value, 0.0), operation)
        y[2 * k], y[2 * k + 1] = c.real, c.imag
    return given(g, h, serial)


@njit("int64(int64, int64, int64, int64)", nogil=True, cache=True)
def spectrum_combined(g: int, other: int, operation: int, serial: int) -> int:
    """Each complex sample and the one of ``other`` with the same number, which may be complex; both
    have as many."""
    pairs = words(other, SEGMENT)[BASE] & KIND >= COMPLEX
    beside, m, work = flat(other) if pairs else 0, words(other, SEGMENT)[LENGTH], 0
    if not pairs:
        m, beside, work = doubles(other)
    h, made, n = _spectrum(g)
    each = 2 if pairs else 1
    x, z = as_f64(flat(g), 2 * n), as_f64(made, 2 * n)
    y = as_f64(beside, each * m if beside != 0 else 0)
    for k in range(min(n, y.size // each)):
        b = complex(y[2 * k], y[2 * k + 1]) if pairs else complex(y[k], 0.0)
        c = _result(complex(x[2 * k], x[2 * k + 1]), b, operation)
        z[2 * k], z[2 * k + 1] = c.real, c.imag
    done(work)
    return given(g, h, serial)
