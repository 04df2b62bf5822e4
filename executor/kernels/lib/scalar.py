"""The functions that generated expressions call: rounding, decimals, casts of floats, bits.

No function raises or allocates; a function that can fail returns a flag beside the value.
"""

from __future__ import annotations

import math

import numpy as np
from numba import float32, float64, int64, uint64

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.intrinsics import quotient, remainder

_TWO52 = 4503599627370496.0
_TWO63 = 9223372036854775808.0


# -- division ----------------------------------------------------------------------------------


@njit(nogil=True, cache=True, error_model="numpy")
def divide(a: int, b: int) -> int:
    """Truncating division. ``b`` is not 0. MIN / -1 gives MIN, and callers flag it."""
    if b == -1:
        return int64(uint64(0) - uint64(a))
    return quotient(a, b)


@njit(nogil=True, cache=True, error_model="numpy")
def modulo(a: int, b: int) -> int:
    """The remainder with the sign of ``a``; ``b`` is not 0."""
    if b == -1:
        return int64(0)
    return remainder(a, b)


@njit(nogil=True, cache=True, error_model="numpy")
def positive_modulo(a: int, b: int) -> int:
    r = modulo(a, b)
    return r + b if r < 0 and b > 0 else r


@njit(nogil=True, cache=True, error_model="numpy")
def real_modulo(a: float, b: float) -> float:
    """C's fmod, which numba's math lacks."""
    return np.fmod(a, b)


@njit(nogil=True, cache=True, error_model="numpy")
def positive_fmod(a: float, b: float) -> float:
    r = np.fmod(a, b)
    return np.fmod(r + b, b) if r < 0 else r


@njit(nogil=True, cache=True, error_model="numpy")
def divide_half_up(a: int, b: int) -> int:
    """a / b rounded, ties away from zero; b is not 0, and a / b is not MIN / -1."""
    q = divide(a, b)
    r = modulo(a, b)
    low = uint64(0) - uint64(r) if r < 0 else uint64(r)
    size = uint64(0) - uint64(b) if b < 0 else uint64(b)
    if low >= size - low:
        q += 1 if (a < 0) == (b < 0) else -1
    return q


@njit(nogil=True, cache=True, error_model="numpy")
def decimal_quotient(a: int, b: int, factor: int) -> tuple[int, bool]:
    """(a * factor / b rounded half up, flag), through a 128-bit product. b is not 0; |a|, |b| and
    factor are at most 10**18. The flag is set when the quotient exceeds 10**18."""
    n = uint64(-a if a < 0 else a)
    d = uint64(-b if b < 0 else b)
    f = uint64(factor)
    mask = uint64(0xFFFFFFFF)
    half = uint64(32)
    # The 128-bit product from products of 32-bit halves.
    ll = (n & mask) * (f & mask)
    lh = (n & mask) * (f >> half)
    hl = (n >> half) * (f & mask)
    hh = (n >> half) * (f >> half)
    middle = (ll >> half) + (lh & mask) + (hl & mask)
    low = (middle << half) | (ll & mask)
    high = hh + (lh >> half) + (hl >> half) + (middle >> half)
    if high >= d:
        return int64(0), True
    # Long division, one bit at a time. The rest stays below d <= 10**18: no shift overflows.
    rest = high
    q = uint64(0)
    for k in range(64):
        rest = (rest << uint64(1)) | ((low >> uint64(63 - k)) & uint64(1))
        q <<= uint64(1)
        if rest >= d:
            rest -= d
            q |= uint64(1)
    if q > uint64(1000000000000000000):
        return int64(0), True
    if rest >= d - rest:
        q += uint64(1)
    return (int64(q) if (a < 0) == (b < 0) else -int64(q)), False


@njit(nogil=True, cache=True, error_model="numpy")
def mean_half_up(high: int, low: int, count: int, factor: int) -> tuple[int, bool]:
    """((high * 2**64 + unsigned low) * factor / count rounded half up, flag). factor is at most
    10**18 and count above 0. The flag is set when the mean has more than 18 digits."""
    below = high < 0
    rest, word = uint64(high), uint64(low)
    if below:
        word = ~word + uint64(1)
        rest = ~rest + uint64(1 if word == uint64(0) else 0)
    d, f = uint64(count), uint64(factor)
    most = uint64(1000000000000000000)
    if rest >= d:
        return int64(0), True
    whole = uint64(0)
    if rest == uint64(0):
        whole = word // d
        rest = word - whole * d
    else:  # long division, one bit at a time
        for k in range(64):
            top = rest >> uint64(63)
            rest = (rest << uint64(1)) | ((word >> uint64(63 - k)) & uint64(1))
            whole <<= uint64(1)
            if top != uint64(0) or rest >= d:
                rest -= d
                whole |= uint64(1)
    if whole > most // f:
        return int64(0), True
    part, failed = decimal_quotient(int64(rest), count, factor)
    mean = int64(whole * f) + part
    return (-mean if below else mean), failed


# -- rounding ----------------------------------------------------------------------------------


@njit(nogil=True, cache=True, error_model="numpy")
def round_units(v: int, unit: int, even: bool) -> int:
    """v / unit rounded, ties to even if ``even``, else away from zero; unit > 0."""
    q = quotient(v, unit)
    r = v - q * unit
    low = -r if r < 0 else r
    rest = unit - low
    if low > rest or (low == rest and (not even or (q & 1) == 1)):
        q += 1 if v >= 0 else -1
    return q


@njit(nogil=True, cache=True, error_model="numpy")
def _narrowed(x: float, narrow: bool) -> float:
    return float64(float32(x)) if narrow else x


@njit(nogil=True, cache=True, error_model="numpy")
def _units(x: float, p: float, places: bool, even: bool, narrow: bool) -> float:
    """x >= 0 in units of 1 / p (of p if not ``places``), rounded. Like Spark, rounds the shortest
    decimal text of x: compares x with the float nearest to the midpoint of two units."""
    y = x * p if places else x / p
    k = math.floor(y)
    if places:
        middle = (2.0 * k + 1.0) / (2.0 * p)
    else:
        middle = (k + 0.5) * p
    middle = _narrowed(middle, narrow)
    if x > middle or (x == middle and (not even or np.fmod(k, 2.0) == 1.0)):
        return k + 1.0
    return k


@njit(nogil=True, cache=True, error_model="numpy")
def round_real(x: float, p: float, places: bool, even: bool, narrow: bool) -> float:
    """round(x, d) for p = 10**abs(d). ``places``: d >= 0; ``narrow``: x is a float32."""
    a = abs(x)
    y = a * p if places else a / p
    if not y < (8388608.0 if narrow else _TWO52):
        return x  # x has no digit behind the last place, or is not finite
    k = _units(a, p, places, even, narrow)
    r = k / p if places else k * p
    if r == 0.0:
        return 0.0
    return _narrowed(math.copysign(r, x), narrow)


@njit(nogil=True, cache=True, error_model="numpy")
def real_to_decimal(x: float, p: float, narrow: bool) -> tuple[int, bool]:
    """(x in units of 1 / p rounded half up, flag); the flag is set when int64 cannot hold it."""
    a = abs(x)
    y = a * p
    if not y < _TWO63:
        return int64(0), True
    if y < (8388608.0 if narrow else _TWO52):
        y = _units(a, p, True, False, narrow)
    elif narrow:
        y = math.floor(y + 0.5)
    k = int64(y)
    return (-k if x < 0 else k), False


# -- floats to whole numbers -------------------------------------------------------------------


@njit(nogil=True, cache=True, error_model="numpy")
def whole(x: float) -> tuple[int, bool]:
    """(x truncated to a whole number, flag); the flag is set when int64 cannot hold it, and for
    NaN."""
    if x >= -_TWO63 and x < _TWO63:
        return int64(x), False
    return int64(0), True


# -- comparison: NaN equals NaN and is greater than every number -------------------------------


@njit(nogil=True, cache=True, error_model="numpy")
def real_eq(a: float, b: float) -> bool:
    return (a == b) | ((a != a) & (b != b))


@njit(nogil=True, cache=True, error_model="numpy")
def real_lt(a: float, b: float) -> bool:
    return (a < b) | ((b != b) & (a == a))


@njit(nogil=True, cache=True, error_model="numpy")
def real_le(a: float, b: float) -> bool:
    return (a <= b) | (b != b)


# -- mathematics -------------------------------------------------------------------------------


@njit(nogil=True, cache=True, error_model="numpy")
def sign_of(x: float) -> float:
    return 1.0 if x > 0 else (-1.0 if x < 0 else x)


@njit(nogil=True, cache=True, error_model="numpy")
def cube_root(x: float) -> float:
    return np.cbrt(x)


@njit(nogil=True, cache=True, error_model="numpy")
def log_base(base: float, x: float) -> float:
    return math.log(x) / math.log(base)


# -- bits --------------------------------------------------------------------------------------


@njit(nogil=True, cache=True, error_model="numpy")
def shift_left(a: int, n: int) -> int:
    return int64(uint64(a) << uint64(n))
