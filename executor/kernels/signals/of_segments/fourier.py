"""The discrete Fourier transform of segments, of any length.

A transform of n samples has the values of the frequencies 0, 1/n, 2/n, … of the rate, up to half
of it: n // 2 + 1 values. They are complex samples of a segment: a real and an imaginary part each.
An even number of samples is transformed as half as many complex ones, each of two neighbours.
``serial``: see ``results``.
"""

from __future__ import annotations

import math

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.intrinsics import STACK_BYTES, on_stack
from cql.executor.kernels.lib.memory import as_f64, words
from cql.executor.kernels.signals.layout import LENGTH, OWNER, SEGMENT
from cql.executor.kernels.signals.of_segments.butterflies import fill_factors, transformed
from cql.executor.kernels.signals.of_segments.prepared import HEAD, keep, kept, leave, new_table
from cql.executor.kernels.signals.of_segments.results import (
    COMPLEX,
    DOUBLE,
    copy_doubles,
    given,
    new,
)
from cql.executor.kernels.signals.segments import flat, make, release

# What a table is for.
_CHIRP = 1
_FACTORS = 3
_HALVES = 4


@njit("int64(int64)", nogil=True, cache=True)
def _power_of_two(n: int) -> int:
    """The least power of two that is at least ``n``."""
    found = 1
    while found < n:
        found <<= 1
    return found


@njit("int64(int64, int64)", nogil=True, cache=True)
def _factors(s: int, n: int) -> int:
    """The table for transforms of length ``n``, a power of two; 0: no room."""
    found = kept(s, _FACTORS, n, 0)
    if found != 0:
        return found
    made = new_table(_FACTORS, n, 0, 2 * n)
    if made != 0:
        fill_factors(as_f64(made + 8 * HEAD, 2 * n), n)
        keep(s, made, 2 * n)
    return made


@njit("int64(int64, int64)", nogil=True, cache=True)
def _halves(s: int, n: int) -> int:
    """The table for transforms of ``n`` samples by pairs: cosines, then sines, of the first half of
    ``n`` equal parts of a circle; 0: no room."""
    found = kept(s, _HALVES, n, 0)
    if found != 0:
        return found
    made, half = new_table(_HALVES, n, 0, n), n >> 1
    if made != 0:
        values = as_f64(made + 8 * HEAD, n)
        for k in range(half):
            angle = 2.0 * math.pi * k / n
            values[k], values[half + k] = math.cos(angle), math.sin(angle)
        keep(s, made, n)
    return made


@njit("int64(int64, int64, int64, int64)", nogil=True, cache=True)
def _chirp(s: int, n: int, size: int, factors: int) -> int:
    """The table for transforms of length ``n`` as convolutions of length ``size`` (Bluestein):
    cosines and sines of pi k**2 / n, and the transform of their sequence; 0: no room."""
    found = kept(s, _CHIRP, n, 0)
    if found != 0:
        return found
    doubles = 2 * (n + size)
    work = make(s, DOUBLE, 0, 2 * size)
    made = new_table(_CHIRP, n, 0, doubles) if work != 0 else 0
    if made != 0:
        at, other = made + 8 * (HEAD + 2 * n), flat(work)
        values = as_f64(made + 8 * HEAD, doubles)
        re, im = values[2 * n : 2 * n + size], values[2 * n + size :]
        re[:] = 0.0
        im[:] = 0.0
        square = 0  # k**2, of which a multiple of 2 n is a whole turn
        for k in range(n):
            angle = math.pi * square / n
            values[k], values[n + k] = math.cos(angle), math.sin(angle)
            re[k], im[k] = values[k], values[n + k]
            if k > 0:
                re[size - k], im[size - k] = values[k], values[n + k]
            square = (square + 2 * k + 1) % (2 * n)
        if transformed(at, at + 8 * size, other, other + 8 * size, size, factors):
            values[2 * n :] = as_f64(other, 2 * size)
        keep(s, made, doubles)
    if work != 0:
        release(work)
    return made


@njit("boolean(int64, int64, int64, int64, int64)", nogil=True, cache=True)
def _by_chirps(s: int, re: int, im: int, n: int, factors: int) -> bool:
    """``transform`` of any length, with the factors of ``_power_of_two(2 * n - 1)``."""
    size = _power_of_two(2 * n - 1)
    table = _chirp(s, n, size, factors)
    work = make(s, DOUBLE, 0, 4 * size) if table != 0 else 0
    if work != 0:
        x, y = as_f64(re, n), as_f64(im, n)
        values = as_f64(table + 8 * HEAD, 2 * (n + size))
        c, d = values[:n], values[n : 2 * n]
        p, q = values[2 * n : 2 * n + size], values[2 * n + size :]
        at, other = flat(work), flat(work) + 16 * size
        both = as_f64(at, 2 * size)
        both[:] = 0.0
        u, v = both[:size], both[size:]
        for k in range(n):
            u[k], v[k] = x[k] * c[k] + y[k] * d[k], y[k] * c[k] - x[k] * d[k]
        if transformed(at, at + 8 * size, other, other + 8 * size, size, factors):
            at, other = other, at
            both = as_f64(at, 2 * size)
            u, v = both[:size], both[size:]
        for k in range(size):
            u[k], v[k] = u[k] * p[k] - v[k] * q[k], u[k] * q[k] + v[k] * p[k]
        # the parts in exchange: the inverse, times ``size``
        if transformed(at + 8 * size, at, other + 8 * size, other, size, factors):
            both = as_f64(other, 2 * size)
            u, v = both[:size], both[size:]
        for k in range(n):
            a, b = u[k] / size, v[k] / size
            x[k], y[k] = a * c[k] + b * d[k], b * c[k] - a * d[k]
        release(work)
    if table != 0:
        leave(table)
    return bool(work != 0)


@njit("boolean(int64, int64, int64, int64)", nogil=True, cache=True)
def transform(s: int, re: int, im: int, n: int) -> bool:
    """The transform of ``n`` samples, in place, from the addresses of their real and imaginary
    parts, with the tables of the store ``s``. False: no room."""
    single = n & (n - 1) == 0
    factors = _factors(s, n if single else _power_of_two(2 * n - 1))
    if factors == 0:
        return False
    if single:
        work = make(s, DOUBLE, 0, 2 * n)
        fits = work != 0
        if fits:
            at = flat(work)
            if transformed(re, im, at, at + 8 * n, n, factors + 8 * HEAD):
                as_f64(re, n)[:] = as_f64(at, n)
                as_f64(im, n)[:] = as_f64(at + 8 * n, n)
            release(work)
    else:
        fits = _by_chirps(s, re, im, n, factors + 8 * HEAD)
    leave(factors)
    return bool(fits)


@njit("UniTuple(int64, 2)(int64, int64)", nogil=True, cache=True)
def _by_pairs(g: int, room: int) -> tuple[int, int]:
    """The transform of the complex numbers whose parts are two neighbouring samples of ``g``, which
    has an even number: the address of the real parts, before the imaginary ones (0: no room), and a
    segment for the caller to release, which is 0 if they are in ``room`` (``on_stack``)."""
    line = words(g, SEGMENT)
    s, n = line[OWNER], line[LENGTH]
    half = n >> 1
    work, at = 0, room
    if 16 * n > STACK_BYTES:
        work = make(s, DOUBLE, 0, 2 * n)
        if work == 0:
            return 0, 0
        at = flat(work)
    x, re, im = as_f64(at, n), as_f64(at + 8 * n, half), as_f64(at + 8 * (n + half), half)
    copy_doubles(g, x)
    for k in range(half):
        re[k], im[k] = x[2 * k], x[2 * k + 1]
    if half & (half - 1) == 0:
        factors = _factors(s, half)
        if factors != 0:
            there, then = at + 8 * n, at + 8 * half
            moved = transformed(there, there + 8 * half, at, then, half, factors + 8 * HEAD)
            leave(factors)
            return at if moved else there, work
    elif transform(s, at + 8 * n, at + 8 * (n + half), half):
        return at + 8 * n, work
    if work != 0:
        release(work)
    return 0, 0


@njit("UniTuple(int64, 2)(int64)", nogil=True, cache=True)
def _one_by_one(g: int) -> tuple[int, int]:
    """The same of the samples of ``g`` themselves, of any number but 0."""
    line = words(g, SEGMENT)
    s, n = line[OWNER], line[LENGTH]
    work = make(s, DOUBLE, 0, 2 * n)
    if work == 0:
        return 0, 0
    at = flat(work)
    copy_doubles(g, as_f64(at, n))
    as_f64(at + 8 * n, n)[:] = 0.0
    if transform(s, at, at + 8 * n, n):
        return at, work
    release(work)
    return 0, 0


@njit("int64(int64, int64)", nogil=True, cache=True)
def segment_fft(g: int, serial: int) -> int:
    """The transform up to half of the rate."""
    line = words(g, SEGMENT)
    n = line[LENGTH]
    if n == 0:
        return given(g, new(g, COMPLEX, 0), serial)
    half = n >> 1
    at, work = _by_pairs(g, on_stack()) if n % 2 == 0 else _one_by_one(g)
    table = _halves(line[OWNER], n) if at != 0 and n % 2 == 0 else 0
    h = new(g, COMPLEX, half + 1) if at != 0 and (table != 0 or n % 2 == 1) else 0
    if h != 0:
        to = as_f64(flat(h), 2 * half + 2)
        if n % 2 == 1:
            re, im = as_f64(at, n), as_f64(at + 8 * n, n)
            for k in range(half + 1):
                to[2 * k], to[2 * k + 1] = re[k], im[k]
        else:
            re, im = as_f64(at, half), as_f64(at + 8 * half, half)
            values = as_f64(table + 8 * HEAD, n)
            c, d = values[:half], values[half:]
            to[0], to[1] = re[0] + im[0], 0.0
            to[2 * half], to[2 * half + 1] = re[0] - im[0], 0.0
            for k in range(1, half):
                a, b = re[k] - re[half - k], im[k] + im[half - k]
                to[2 * k] = 0.5 * (re[k] + re[half - k] + b * c[k] - a * d[k])
                to[2 * k + 1] = 0.5 * (im[k] - im[half - k] - a * c[k] - b * d[k])
    if table != 0:
        leave(table)
    if work != 0:
        release(work)
    return given(g, h, serial)


@njit("int64(int64, int64)", nogil=True, cache=True)
def segment_power(g: int, serial: int) -> int:
    """The squared magnitudes of the transform up to half of the rate."""
    line = words(g, SEGMENT)
    n = line[LENGTH]
    if n == 0:
        return given(g, new(g, DOUBLE, 0), serial)
    half = n >> 1
    at, work = _by_pairs(g, on_stack()) if n % 2 == 0 else _one_by_one(g)
    table = _halves(line[OWNER], n) if at != 0 and n % 2 == 0 else 0
    h = new(g, DOUBLE, half + 1) if at != 0 and (table != 0 or n % 2 == 1) else 0
    if h != 0:
        power = as_f64(flat(h), half + 1)
        if n % 2 == 1:
            re, im = as_f64(at, n), as_f64(at + 8 * n, n)
            for k in range(half + 1):
                power[k] = re[k] * re[k] + im[k] * im[k]
        else:
            re, im = as_f64(at, half), as_f64(at + 8 * half, half)
            values = as_f64(table + 8 * HEAD, n)
            c, d = values[:half], values[half:]
            power[0] = (re[0] + im[0]) * (re[0] + im[0])
            power[half] = (re[0] - im[0]) * (re[0] - im[0])
            for k in range(1, half):
                a, b = re[k] - re[half - k], im[k] + im[half - k]
                x = re[k] + re[half - k] + b * c[k] - a * d[k]
                y = im[k] - im[half - k] - a * c[k] - b * d[k]
                power[k] = 0.25 * (x * x + y * y)
    if table != 0:
        leave(table)
    if work != 0:
        release(work)
    return given(g, h, serial)


@njit("boolean(int64, int64)", nogil=True, cache=True)
def segment_is_spectrum(g: int, n: int) -> bool:
    """Whether the transform of ``n`` samples has as many values as the segment."""
    bins = n // 2 + 1 if n > 0 else 0
    return bool(n >= 0 and words(g, SEGMENT)[LENGTH] == bins)


@njit("int64(int64)", nogil=True, cache=True)
def segment_even(g: int) -> int:
    """The even number of samples whose transform has as many values as the segment."""
    return max(2 * (int(words(g, SEGMENT)[LENGTH]) - 1), 0)


@njit("int64(int64, int64, int64)", nogil=True, cache=True)
def segment_inverse(g: int, n: int, serial: int) -> int:
    """The ``n`` samples whose transform up to half of the rate the segment is; it has as many
    values (``segment_is_spectrum``)."""
    s = words(g, SEGMENT)[OWNER]
    h = new(g, DOUBLE, n)
    at = flat(g)
    work = make(s, DOUBLE, 0, 2 * n) if h != 0 and n > 0 and at != 0 else 0
    if work != 0:
        bins = n // 2 + 1
        pairs, both, x = as_f64(at, 2 * bins), as_f64(flat(work), 2 * n), as_f64(flat(h), n)
        re, im = both[:n], both[n:]
        for k in range(bins):
            re[k], im[k] = pairs[2 * k], pairs[2 * k + 1]
            if k > 0:
                re[n - k], im[n - k] = pairs[2 * k], -pairs[2 * k + 1]
        im[0] = 0.0
        if n % 2 == 0:
            im[n // 2] = 0.0
        at = flat(work)
        if transform(s, at + 8 * n, at, n):
            for k in range(n):
                x[k] = re[k] / n
        else:
            x[:] = 0.0
        release(work)
    return given(g, h, serial)
