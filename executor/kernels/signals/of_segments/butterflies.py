"""The discrete Fourier transform of complex samples whose number is a power of two (Stockham's, of
radix 4): each pass writes the results to another place, in an order that needs no sorting.

A butterfly is computed for four neighbours at once. LLVM does not find this by itself: it cannot
tell that the sixteen places that a butterfly reads and writes do not overlap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.memory import as_f64

#: The least length that is computed with butterflies.
LEAST = 16
_LANES = 4
_VECTOR = ir.VectorType(ir.DoubleType(), _LANES)
_FUSED = ("contract",)  # a product and a sum may be one instruction
_Complex = tuple[Any, Any]


class _Writer:
    """Writes vector instructions. ``read`` and ``write`` take the address of a double and the
    number of doubles behind it."""

    def __init__(self, builder: Any) -> None:
        self._builder = builder

    def _at(self, address: Any, offset: Any, kind: ir.Type) -> Any:
        at = self._builder.add(address, self._builder.mul(offset, ir.Constant(ir.IntType(64), 8)))
        return self._builder.inttoptr(at, kind.as_pointer())

    def read(self, address: Any, offset: Any) -> Any:
        """Four neighbours."""
        return self._builder.load(self._at(address, offset, _VECTOR), align=8)

    def read_one(self, address: Any, offset: int) -> Any:
        """Four times the same double."""
        zero = ir.Constant(ir.IntType(64), offset)
        one = self._builder.load(self._at(address, zero, ir.DoubleType()), align=8)
        first = self._builder.insert_element(
            ir.Constant(_VECTOR, ir.Undefined), one, ir.Constant(ir.IntType(32), 0)
        )
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), _LANES), [0] * _LANES)
        return self._builder.shuffle_vector(first, ir.Constant(_VECTOR, ir.Undefined), zeros)

    def write(self, value: Any, address: Any, offset: Any) -> None:
        self._builder.store(value, self._at(address, offset, value.type), align=8)

    def add(self, x: _Complex, y: _Complex) -> _Complex:
        return self._builder.fadd(x[0], y[0]), self._builder.fadd(x[1], y[1])

    def sub(self, x: _Complex, y: _Complex) -> _Complex:
        return self._builder.fsub(x[0], y[0]), self._builder.fsub(x[1], y[1])

    def times(self, x: _Complex, y: _Complex) -> _Complex:
        b = self._builder
        real = b.fsub(
            b.fmul(x[0], y[0], flags=_FUSED), b.fmul(x[1], y[1], flags=_FUSED), flags=_FUSED
        )
        imaginary = b.fadd(
            b.fmul(x[0], y[1], flags=_FUSED), b.fmul(x[1], y[0], flags=_FUSED), flags=_FUSED
        )
        return real, imaginary

    def four(self, x: Sequence[_Complex]) -> list[_Complex]:
        """The transforms of four values each."""
        even, even_difference = self.add(x[0], x[2]), self.sub(x[0], x[2])
        odd, (r, i) = self.add(x[1], x[3]), self.sub(x[1], x[3])
        b = self._builder
        minus = b.fadd(even_difference[0], i), b.fsub(even_difference[1], r)
        plus = b.fsub(even_difference[0], i), b.fadd(even_difference[1], r)
        return [self.add(even, odd), minus, self.sub(even, odd), plus]

    def woven(self, values: Sequence[Any]) -> Any:
        """The first value of each of four vectors, then the second ones, and so on."""
        b, half = self._builder, ir.VectorType(ir.IntType(32), 2 * _LANES)
        both = ir.Constant(half, [*range(2 * _LANES)])
        left = b.shuffle_vector(values[0], values[1], both)
        right = b.shuffle_vector(values[2], values[3], both)
        order = [_LANES * k + lane for lane in range(_LANES) for k in range(_LANES)]
        whole = ir.Constant(ir.VectorType(ir.IntType(32), _LANES * _LANES), order)
        return b.shuffle_vector(left, right, whole)


@intrinsic
def _first(
    typingctx: Any, re: Any, im: Any, to_re: Any, to_im: Any, factors: Any, apart: Any
) -> Any:
    """Butterflies of the first pass: their factors are six vectors."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        re, im, to_re, to_im, factors, apart = args
        w = _Writer(builder)
        n = [builder.mul(apart, ir.Constant(ir.IntType(64), k)) for k in range(4)]
        found = w.four([(w.read(re, at), w.read(im, at)) for at in n])
        places = [ir.Constant(ir.IntType(64), _LANES * k) for k in range(6)]
        f = [w.read(factors, place) for place in places]
        found[1:] = [w.times(found[k], (f[2 * k - 2], f[2 * k - 1])) for k in (1, 2, 3)]
        w.write(w.woven([r for r, _ in found]), to_re, places[0])
        w.write(w.woven([i for _, i in found]), to_im, places[0])
        return context.get_dummy_value()

    return types.void(*[types.int64] * 6), codegen


@intrinsic
def _middle(
    typingctx: Any, re: Any, im: Any, to_re: Any, to_im: Any, factors: Any, apart: Any, to: Any
) -> Any:
    """Butterflies of another pass, with the same six factors."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        re, im, to_re, to_im, factors, apart, to = args
        w = _Writer(builder)
        n = [builder.mul(apart, ir.Constant(ir.IntType(64), k)) for k in range(4)]
        found = w.four([(w.read(re, at), w.read(im, at)) for at in n])
        f = [w.read_one(factors, k) for k in range(6)]
        found[1:] = [w.times(found[k], (f[2 * k - 2], f[2 * k - 1])) for k in (1, 2, 3)]
        for k, (r, i) in enumerate(found):
            at = builder.mul(to, ir.Constant(ir.IntType(64), k))
            w.write(r, to_re, at)
            w.write(i, to_im, at)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 7), codegen


@intrinsic
def _last(typingctx: Any, re: Any, im: Any, to_re: Any, to_im: Any, apart: Any) -> Any:
    """Butterflies of the last pass, without factors."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        re, im, to_re, to_im, apart = args
        w = _Writer(builder)
        n = [builder.mul(apart, ir.Constant(ir.IntType(64), k)) for k in range(4)]
        found = w.four([(w.read(re, at), w.read(im, at)) for at in n])
        for at, (r, i) in zip(n, found, strict=True):
            w.write(r, to_re, at)
            w.write(i, to_im, at)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 5), codegen


@intrinsic
def _twos(typingctx: Any, re: Any, im: Any, to_re: Any, to_im: Any, apart: Any) -> Any:
    """Butterflies of two values, the last pass of a length that is no power of four."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        re, im, to_re, to_im, apart = args
        w = _Writer(builder)
        zero = ir.Constant(ir.IntType(64), 0)
        x, y = [(w.read(re, at), w.read(im, at)) for at in (zero, apart)]
        for at, (r, i) in zip((zero, apart), (w.add(x, y), w.sub(x, y)), strict=True):
            w.write(r, to_re, at)
            w.write(i, to_im, at)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 5), codegen


@njit("UniTuple(float64, 2)(int64, int64)", nogil=True, cache=True)
def _turn(k: int, n: int) -> tuple[float, float]:
    """The complex number that turns by ``-k / n`` of a circle."""
    angle = 2.0 * math.pi * k / n
    return math.cos(angle), -math.sin(angle)


@njit("void(float64[::1], int64)", nogil=True, cache=True)
def fill_factors(table: Any, n: int) -> None:
    """The factors of the transform of ``n`` samples, 2 * n doubles at most. The first pass has
    those of four butterflies side by side."""
    if n < LEAST:
        for k in range(n):
            table[2 * k], table[2 * k + 1] = _turn(k, n)
        return
    at, size = 0, n
    while size >= 8:
        quarter = size >> 2
        for p in range(quarter):
            for k in range(3):
                real, imaginary = _turn((k + 1) * p, size)
                if size == n:
                    place = 6 * _LANES * (p // _LANES) + 2 * _LANES * k + p % _LANES
                    table[place], table[place + _LANES] = real, imaginary
                else:
                    table[at + 6 * p + 2 * k], table[at + 6 * p + 2 * k + 1] = real, imaginary
        at += 6 * quarter
        size = quarter


@njit("void(float64[::1], float64[::1], float64[::1], float64[::1], int64)", nogil=True, cache=True)
def _few(re: Any, im: Any, to_re: Any, to_im: Any, factors: int) -> None:
    n = re.size
    known = as_f64(factors, 2 * n)
    for k in range(n):
        x = y = 0.0
        for j in range(n):
            place = 2 * (j * k % n)
            x += re[j] * known[place] - im[j] * known[place + 1]
            y += re[j] * known[place + 1] + im[j] * known[place]
        to_re[k], to_im[k] = x, y


@njit("boolean(int64, int64, int64, int64, int64, int64)", nogil=True, cache=True)
def transformed(re: int, im: int, to_re: int, to_im: int, n: int, factors: int) -> bool:
    """The transform of ``n`` samples, from the addresses of their real and imaginary parts. True:
    it is at ``to_re`` and ``to_im``; False: it is in the place of the samples. Both places are
    written. ``factors``: the address of ``fill_factors``."""
    if n < LEAST:
        _few(as_f64(re, n), as_f64(im, n), as_f64(to_re, n), as_f64(to_im, n), factors)
        return True
    quarter, four = n >> 2, 8 * _LANES
    for p in range(0, n >> 2, _LANES):
        at = 8 * p
        _first(re + at, im + at, to_re + 4 * at, to_im + 4 * at, factors + 6 * at, quarter)
    moved, size, apart = True, quarter, 4
    factors += 48 * quarter
    while size > 1:
        re, im, to_re, to_im = to_re, to_im, re, im
        moved = not moved
        if size == 2:
            for q in range(0, apart, _LANES):
                at = 8 * q
                _twos(re + at, im + at, to_re + at, to_im + at, apart)
            return moved
        size >>= 2
        if size == 1:
            for q in range(0, apart, _LANES):
                at = 8 * q
                _last(re + at, im + at, to_re + at, to_im + at, apart)
            return moved
        for p in range(size):
            own, at, to = factors + 48 * p, 8 * apart * p, 32 * apart * p
            for _ in range(0, apart, _LANES):
                _middle(re + at, im + at, to_re + to, to_im + to, own, apart * size, apart)
                at += four
                to += four
        factors += 48 * size
        apart <<= 2
    return moved
