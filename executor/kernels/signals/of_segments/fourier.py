"""The discrete Fourier transform of segments, of any length.

A transform of n samples has the values of the frequencies 0, 1/n, 2/n, … of the rate, up to half
of it: n // 2 + 1 values. They are complex samples of a segment: a real and an imaginary part each.
``serial``: see ``results``.
"""

from __future__ import annotations

import math
from typing import Any

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.memory import as_f64, words
from cql.executor.kernels.signals.layout import LENGTH, OWNER, SEGMENT, STORE, TWIDDLES
from cql.executor.kernels.signals.of_segments.prepared import HEAD, keep, kept, leave, new_table
from cql.executor.kernels.signals.of_segments.results import (
    COMPLEX,
    DOUBLE,
    copy_doubles,
    given,
    new,
)
from cql.executor.kernels.signals.segments import flat, make, release

#: The longest transform whose factors the store has from its beginning.
MOST = 1 << 16
_CHIRP = 1


@njit("void(float64[::1], float64[::1], int64)", nogil=True, cache=True)
def _by_two(re: Any, im: Any, twiddles: int) -> None:
    """The transform, in place; the length is a power of two (Cooley and Tukey, radix 2).
    ``twiddles``: cosines and sines of MOST equal parts of a circle."""
    n, j = re.size, 0
    for i in range(1, n):
        bit = n >> 1
        while j & bit:
            j ^= bit
            bit >>= 1
        j |= bit
        if i < j:
            re[i], re[j] = re[j], re[i]
            im[i], im[j] = im[j], im[i]
    known = as_f64(twiddles, 2 * MOST)
    size = 2
    while size <= n:
        half, apart = size >> 1, MOST // size
        for k in range(half):
            if size <= MOST:
                c, s = known[2 * k * apart], -known[2 * k * apart + 1]
            else:
                c, s = math.cos(2.0 * math.pi * k / size), -math.sin(2.0 * math.pi * k / size)
            for a in range(k, n, size):
                b = a + half
                x, y = re[b] * c - im[b] * s, re[b] * s + im[b] * c
                re[b], im[b] = re[a] - x, im[a] - y
                re[a], im[a] = re[a] + x, im[a] + y
        size <<= 1


@njit("int64(int64)", nogil=True, cache=True)
def _power_of_two(n: int) -> int:
    """The least power of two that is at least ``n``."""
    found = 1
    while found < n:
        found <<= 1
    return found


@njit("int64(int64, int64, int64)", nogil=True, cache=True)
def _chirp(s: int, n: int, size: int) -> int:
    """The table for transforms of length ``n`` as convolutions of length ``size`` (Bluestein):
    cosines and sines of pi k**2 / n, and the transform of their sequence; 0: no room."""
    found = kept(s, _CHIRP, n, 0)
    if found != 0:
        return found
    doubles = 2 * (n + size)
    made = new_table(_CHIRP, n, 0, doubles)
    if made == 0:
        return 0
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
    _by_two(re, im, words(s, STORE)[TWIDDLES])
    keep(s, made, doubles)
    return made


@njit("boolean(int64, float64[::1], float64[::1])", nogil=True, cache=True)
def transform(s: int, re: Any, im: Any) -> bool:
    """The transform, in place, with the factors of the store ``s``. False: no room."""
    n = re.size
    twiddles = words(s, STORE)[TWIDDLES]
    if n & (n - 1) == 0:
        _by_two(re, im, twiddles)
        return True
    size = _power_of_two(2 * n - 1)
    table = _chirp(s, n, size)
    work = make(s, DOUBLE, 0, 2 * size) if table != 0 else 0
    if work != 0:
        values = as_f64(table + 8 * HEAD, 2 * (n + size))
        c, d = values[:n], values[n : 2 * n]
        p, q = values[2 * n : 2 * n + size], values[2 * n + size :]
        both = as_f64(flat(work), 2 * size)
        both[:] = 0.0
        u, v = both[:size], both[size:]
        for k in range(n):
            u[k], v[k] = re[k] * c[k] + im[k] * d[k], im[k] * c[k] - re[k] * d[k]
        _by_two(u, v, twiddles)
        for k in range(size):
            u[k], v[k] = u[k] * p[k] - v[k] * q[k], u[k] * q[k] + v[k] * p[k]
        _by_two(v, u, twiddles)  # the parts in exchange: the inverse, times ``size``
        for k in range(n):
            x, y = u[k] / size, v[k] / size
            re[k], im[k] = x * c[k] + y * d[k], y * c[k] - x * d[k]
        release(work)
    if table != 0:
        leave(table)
    return bool(work != 0)


@njit("int64(int64)", nogil=True, cache=True)
def _transformed(g: int) -> int:
    """A segment of twice as many doubles as the samples of ``g``: the real parts of their whole
    transform, and the imaginary parts; 0: no room."""
    line = words(g, SEGMENT)
    n = line[LENGTH]
    work = make(line[OWNER], DOUBLE, 0, 2 * n)
    if work != 0 and n > 0:
        both = as_f64(flat(work), 2 * n)
        copy_doubles(g, both[:n])
        both[n:] = 0.0
        if not transform(line[OWNER], both[:n], both[n:]):
            release(work)
            return 0
    return work


@njit("int64(int64, int64)", nogil=True, cache=True)
def segment_fft(g: int, serial: int) -> int:
    """The transform up to half of the rate."""
    n = words(g, SEGMENT)[LENGTH]
    bins = n // 2 + 1 if n > 0 else 0
    work, h = _transformed(g), 0
    if work != 0:
        h = new(g, COMPLEX, bins)
        if h != 0 and bins > 0:
            both, pairs = as_f64(flat(work), 2 * n), as_f64(flat(h), 2 * bins)
            for k in range(bins):
                pairs[2 * k], pairs[2 * k + 1] = both[k], both[n + k]
        release(work)
    return given(g, h, serial)


@njit("int64(int64, int64)", nogil=True, cache=True)
def segment_power(g: int, serial: int) -> int:
    """The squared magnitudes of the transform up to half of the rate."""
    n = words(g, SEGMENT)[LENGTH]
    bins = n // 2 + 1 if n > 0 else 0
    work, h = _transformed(g), 0
    if work != 0:
        h = new(g, DOUBLE, bins)
        if h != 0 and bins > 0:
            both, power = as_f64(flat(work), 2 * n), as_f64(flat(h), bins)
            for k in range(bins):
                power[k] = both[k] * both[k] + both[n + k] * both[n + k]
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
        if transform(s, im, re):
            for k in range(n):
                x[k] = re[k] / n
        else:
            x[:] = 0.0
        release(work)
    return given(g, h, serial)


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
