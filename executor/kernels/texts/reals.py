"""Floats and doubles as texts: what CAST reads and writes (``planner.interpret.text``).

Both kernels leave rows alone whose status is not VALID. They leave ODD what their algorithms do not
cover.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import int64, uint64

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.intrinsics import leading_zeros, unsigned_mul_high
from cql.executor.kernels.lib.memory import f64_of_bits
from cql.executor.kernels.texts.digits import HELD, digits_of, put
from cql.executor.kernels.texts.numbers import NUMBERS, SPANS, scan_number, sign, trimmed
from cql.executor.kernels.texts.search import BYTES, FLAGS, PLACES
from cql.executor.kernels.texts.status import FAILED, ODD, VALID

#: Bytes that the text of a double takes at most.
REAL_WIDTH = 32
_LOW = (1 << 64) - 1


# -- texts to doubles ----------------------------------------------------------------------------

_LEAST, _MOST = -342, 308


def _power_of_five(q: int) -> tuple[int, int]:
    """The first 128 bits of 5**q as two words; rounded up for -27 <= q < 0, else down."""
    power = 5 ** abs(q)
    size = power.bit_length()
    if q < 0:
        bits = (1 << (size + 127)) // power + (q >= -27)
    else:
        bits = power << (128 - size) if size <= 128 else power >> (size - 128)
    return bits >> 64, bits & _LOW


_FIVES = np.array([_power_of_five(q) for q in range(_LEAST, _MOST + 1)], np.uint64)
_TENS = np.array([float(f"1e{k}") for k in range(23)])


@njit(inline="always")
def _nearest(w: int, q: int) -> tuple[float, bool]:
    """(the double nearest to w * 10**q, whether it was found) for a uint64 ``w`` above 0. It finds
    no subnormal and no infinity (Daniel Lemire, Number parsing at a gigabyte per second, 2021)."""
    if q < _LEAST or q > _MOST:
        return 0.0, False
    zeros = leading_zeros(int64(w))
    w <<= uint64(zeros)
    five = _FIVES[q - _LEAST, 0]
    high, low = uint64(unsigned_mul_high(int64(w), int64(five))), w * five
    if high & uint64(0x1FF) == uint64(0x1FF):
        more = uint64(unsigned_mul_high(int64(w), int64(_FIVES[q - _LEAST, 1])))
        low += more
        high += uint64(more > low)
        if low == uint64(_LOW) and not -27 <= q <= 55:
            return 0.0, False
    upper = int64(high >> uint64(63))
    shift = uint64(upper + 9)
    mantissa = high >> shift
    power = (217706 * q >> 16) + 63 + upper - zeros + 1023
    halfway = low <= uint64(1) and -4 <= q <= 23 and mantissa & uint64(3) == uint64(1)
    if halfway and mantissa << shift == high:
        mantissa -= uint64(1)  # ties to even
    mantissa = (mantissa + (mantissa & uint64(1))) >> uint64(1)
    if mantissa >= uint64(1 << 53):
        mantissa = uint64(1 << 52)
        power += 1
    if power <= 0 or power >= 2047:
        return 0.0, False
    return f64_of_bits(int64(mantissa) - (1 << 52) + (power << 52)), True


@njit(f"void({BYTES}, {SPANS}, {SPANS}, float64[::1], {FLAGS})", nogil=True, cache=True)
def read_reals(data: Any, starts: Any, ends: Any, out: Any, status: Any) -> None:
    """Doubles. A mantissa and a power of ten that are doubles give the nearest double with one
    rounding (William Clinger, How to read floating point numbers accurately, 1990). Numbers of more
    than 19 digits, and words such as inf and nan, are ODD."""
    for i in range(starts.size):
        if status[i] != VALID:
            continue
        at, end = trimmed(data, starts[i], ends[i])
        good, negative, mantissa, digits, power = scan_number(data, at, end)
        if not good:
            _, at = sign(data, at, end)
            first = data[at] | 32 if at < end else 0
            status[i] = ODD if first == 105 or first == 110 else FAILED
            continue
        value, found = 0.0, digits <= HELD
        if 0 < digits <= HELD:
            if mantissa <= uint64(1 << 53) and -22 <= power <= 22:
                value = float(mantissa)
                if power < 0:
                    value /= _TENS[-power]
                else:
                    value *= _TENS[power]
            else:
                value, found = _nearest(mantissa, power)
        if found:
            out[i] = -value if negative else value
        else:
            status[i] = ODD


# -- doubles to texts ----------------------------------------------------------------------------

_K_LEAST, _K_MOST = -324, 292
_LOW63 = (1 << 63) - 1
_WORDS = np.frombuffer(b"NaNInfinity", np.uint8)


def _power_of_ten(k: int) -> tuple[int, int]:
    """The first 126 bits of 10**-k, rounded up, as two words of 63 bits."""
    power = 10 ** abs(k)
    size = power.bit_length()
    if k > 0:
        bits = (1 << (size + 125)) // power
    else:
        bits = power << (126 - size) if size <= 126 else power >> (size - 126)
    bits = (bits >> (bits.bit_length() - 126)) + 1
    return bits >> 63, bits & _LOW63


_POWERS = np.array([_power_of_ten(k) for k in range(_K_LEAST, _K_MOST + 1)], np.int64)


@njit(inline="always")
def _rounded_to_odd(g1: int, g0: int, cp: int) -> int:
    """g * cp / 2**127, where g has the words g1 and g0; its last bit is 1 if it is not whole."""
    x1 = unsigned_mul_high(g0, cp)
    y1 = unsigned_mul_high(g1, cp)
    z = (uint64(g1 * cp) >> uint64(1)) + uint64(x1)
    w = y1 + int64(z >> uint64(63))
    return w | int64(((z & uint64(_LOW63)) + uint64(_LOW63)) >> uint64(63))


@njit(inline="always")
def _shortest(c: int, q: int, irregular: bool) -> tuple[int, int]:
    """(d, k): d * 10**k is the decimal of the fewest digits that reads back as c * 2**q, and of
    these the nearest one; d may end with zeros. ``irregular``: the next smaller number is half as
    far away as the next larger one. c is at least 100 (Raffaello Giulietti, The Schubfach way to
    render doubles, 2020)."""
    odd = c & 1
    middle = c << 2
    if irregular:
        left = middle - 1
        k = (q * 661_971_961_083 - 274_743_187_321) >> 41
    else:
        left = middle - 2
        k = (q * 661_971_961_083) >> 41
    h = q + ((-k * 913_124_641_741) >> 38) + 2
    g1, g0 = _POWERS[k - _K_LEAST, 0], _POWERS[k - _K_LEAST, 1]
    at = _rounded_to_odd(g1, g0, middle << h)
    low = _rounded_to_odd(g1, g0, left << h) + odd
    high = _rounded_to_odd(g1, g0, (middle + 2) << h) - odd
    s = at >> 2
    tens = s // 10 * 10
    below, above = low <= tens << 2, (tens + 10) << 2 <= high
    if below != above:
        return (tens if below else tens + 10), k
    below, above = low <= s << 2, (s + 1) << 2 <= high
    if below != above:
        return (s if below else s + 1), k
    rest = at - ((2 * s + 1) << 1)
    return (s if rest < 0 or (rest == 0 and s & 1 == 0) else s + 1), k


@njit(inline="always")
def _put_real(out: Any, at: int, d: int, k: int) -> int:
    """Writes d * 10**k in Java's format; returns the place behind it."""
    value = uint64(d)
    while value % uint64(10_000) == uint64(0):
        value //= uint64(10_000)
        k += 4
    while value % uint64(10) == uint64(0):
        value //= uint64(10)
        k += 1
    n = digits_of(value)
    power = n - 1 + k
    point = 1 + power if -3 <= power < 7 else 1  # digits in front of the point
    if point <= 0:
        out[at] = 48
        out[at + 1] = 46
        for place in range(at + 2, at + 2 - point):
            out[place] = 48
        return put(out, at + 2 - point, value, n)
    put(out, at + 1, value, n)
    for place in range(at, at + point):
        out[place] = out[place + 1] if place < at + n else 48
    out[at + point] = 46
    if n <= point:
        n = point + 1
        out[at + n] = 48
    at += n + 1
    if power < -3 or power >= 7:
        out[at] = 69
        at += 1
        if power < 0:
            out[at] = 45
            at += 1
        size = uint64(abs(power))
        at = put(out, at, size, digits_of(size))
    return at


@njit(f"void({NUMBERS}, boolean, {FLAGS}, {PLACES}, {PLACES}, {FLAGS})", nogil=True, cache=True)
def write_reals(bits: Any, narrow: bool, out: Any, starts: Any, ends: Any, status: Any) -> None:
    """The texts of doubles, or (``narrow``) floats, of which ``bits`` has the bits. ``out`` has
    REAL_WIDTH bytes for each row. The smallest subnormals are ODD."""
    size = 23 if narrow else 52
    least = -149 if narrow else -1074
    most = 255 if narrow else 2047
    hidden = int64(1) << size
    at = 0
    for i in range(bits.size):
        starts[i] = at
        if status[i] == VALID:
            mantissa = bits[i] & (hidden - 1)
            exponent = (bits[i] >> size) & most
            if exponent == 0 and 0 < mantissa < 100:
                status[i] = ODD
                ends[i] = at
                continue
            nan = exponent == most and mantissa != 0
            if bits[i] < 0 and not nan:
                out[at] = 45
                at += 1
            if exponent == most:
                for k in range(0 if nan else 3, 3 if nan else _WORDS.size):
                    out[at] = _WORDS[k]
                    at += 1
            elif exponent == 0 and mantissa == 0:
                out[at] = out[at + 2] = 48
                out[at + 1] = 46
                at += 3
            else:
                irregular = mantissa == 0 and exponent > 1
                if exponent > 0:
                    mantissa |= hidden
                    exponent -= 1
                d, k = _shortest(mantissa, exponent + least, irregular)
                at = _put_real(out, at, d, k)
        ends[i] = at
