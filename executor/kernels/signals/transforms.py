"""Functions of a segment that give a segment. ``serial`` is the number of the morsel for which it
is made: it stays until that morsel is through (``segments.note_young``).

A function that finds no room gives the empty segment of the store; the run fails behind the block.
"""

from __future__ import annotations

import math
from typing import Any

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.memory import as_f32, as_f64, as_i8, as_i16, as_i32, words
from cql.executor.kernels.signals.layout import (
    BASE,
    EMPTY,
    KINDS,
    LENGTH,
    OWNER,
    SEGMENT,
    START,
    STORE,
    TWIDDLES,
)
from cql.executor.kernels.signals.segments import flat, make, note_young, release, subseg

_DOUBLE = KINDS.index("float64")
#: The longest transform whose factors the store keeps.
MOST = 1 << 16


@njit("int64(int64, int64, int64)", nogil=True, cache=True)
def _given(g: int, made: int, serial: int) -> int:
    """``made`` for the morsel, or the empty segment."""
    if made == 0:
        return int(words(words(g, SEGMENT)[OWNER], STORE)[EMPTY])
    note_young(made, serial)
    return made


@njit("int64(int64, int64, int64, int64)", nogil=True, cache=True)
def segment_part(g: int, first: int, n: int, serial: int) -> int:
    """At most ``n`` samples behind the first ``first``; both are cut to what the segment has."""
    length = words(g, SEGMENT)[LENGTH]
    first = min(max(first, 0), length)
    return _given(g, subseg(g, first, min(max(n, 0), length - first)), serial)


@njit("void(int64, float64[::1])", nogil=True, cache=True)
def _copy_reals(g: int, target: Any) -> None:
    """The samples of a segment as doubles."""
    line = words(g, SEGMENT)
    n, at, kind = line[LENGTH], flat(g), line[BASE] & 15
    if kind == 0:
        target[:n] = as_i8(at, n)
    elif kind == 1:
        target[:n] = as_i16(at, n)
    elif kind == 2:
        target[:n] = as_i32(at, n)
    elif kind == 3:
        target[:n] = words(at, n)
    elif kind == 4:
        target[:n] = as_f32(at, n)
    else:
        target[:n] = as_f64(at, n)


@njit("int64(int64, int64)", nogil=True, cache=True)
def _reals(g: int, n: int) -> int:
    """A new segment of ``n`` doubles at the beginning of a segment in time; 0: no room."""
    line = words(g, SEGMENT)
    return int(make(line[OWNER], (line[BASE] & ~15) | _DOUBLE, line[START], n))


@njit("int64(int64, int64)", nogil=True, cache=True)
def segment_hann(g: int, serial: int) -> int:
    """The samples times a Hann window."""
    n = words(g, SEGMENT)[LENGTH]
    h = _reals(g, n)
    if h != 0 and n > 0:
        x = as_f64(flat(h), n)
        _copy_reals(g, x)
        for i in range(n):
            x[i] *= 0.5 - 0.5 * math.cos(2.0 * math.pi * i / n)
    return _given(g, h, serial)


@njit("void(float64[::1], float64[::1], int64)", nogil=True, cache=True)
def _transform(re: Any, im: Any, twiddles: int) -> None:
    """The Fourier transform, in place; the length is a power of two (Cooley and Tukey, radix 2).
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


@njit("int64(int64, int64)", nogil=True, cache=True)
def segment_power(g: int, serial: int) -> int:
    """The squared magnitudes of the Fourier transform of the samples, up to half of the rate; they
    are padded with zeros to a power of two. The value k is that of the frequency k / n, of n such
    samples."""
    length = words(g, SEGMENT)[LENGTH]
    s = words(g, SEGMENT)[OWNER]
    n = 1
    while n < length:
        n <<= 1
    bins = n // 2 + 1 if length > 0 else 0
    h = _reals(g, bins)
    work = make(s, _DOUBLE, 0, 2 * n) if h != 0 and bins > 0 else 0
    if work != 0:
        both = as_f64(flat(work), 2 * n)
        both[length:] = 0.0
        re, im = both[:n], both[n:]
        _copy_reals(g, re)
        _transform(re, im, words(s, STORE)[TWIDDLES])
        power = as_f64(flat(h), bins)
        for k in range(bins):
            power[k] = re[k] * re[k] + im[k] * im[k]
        release(work)
    return _given(g, h, serial)
