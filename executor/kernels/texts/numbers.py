"""Whole numbers, decimals and booleans as texts: what CAST reads and writes
(``planner.interpret.text``).

All kernels leave rows alone whose status is not VALID. Those that read set the status of a row
whose text does not convert to FAILED.
"""

from __future__ import annotations

from typing import Any

from numba import int64, uint64

from cql.executor.jit.decorators import njit
from cql.executor.kernels.texts.digits import (
    HELD,
    POWERS,
    WHOLE_WIDTH,
    digits_of,
    eight_digits,
    is_digit,
    put,
    put_whole,
)
from cql.executor.kernels.texts.search import BYTES, FLAGS, PLACES
from cql.executor.kernels.texts.status import FAILED, VALID

#: Places of texts that a kernel only reads, and numbers that it writes as text.
SPANS = NUMBERS = "Array(int64, 1, 'C', readonly=True)"
#: Bytes that the text of a BIGINT takes at most.
INTEGER_WIDTH = WHOLE_WIDTH


# -- texts to values -----------------------------------------------------------------------------


@njit(inline="always")
def trimmed(data: Any, start: int, end: int) -> tuple[int, int]:
    """The text without spaces and control characters at its ends."""
    while start < end and (data[start] <= 32 or data[start] == 127):
        start += 1
    while start < end and (data[end - 1] <= 32 or data[end - 1] == 127):
        end -= 1
    return start, end


@njit(inline="always")
def sign(data: Any, at: int, end: int) -> tuple[bool, int]:
    """(whether a minus lies at ``at``, the place behind a minus or plus)."""
    byte = data[at] if at < end else 0
    return byte == 45, at + int64(byte == 45 or byte == 43)


@njit(inline="always")
def _whole(data: Any, at: int, end: int) -> tuple[bool, int]:
    """(whether the bytes are digits of a uint64, at least one, their number)."""
    begin, n = data.ctypes.data, end - at
    if 0 < n <= 16 and at + 8 <= data.size:
        if n <= 8:
            return eight_digits(begin + at, n)
        first, high = eight_digits(begin + at, n - 8)
        last, low = eight_digits(begin + end - 8, 8)
        return first and last, high * POWERS[8] + low
    good, value = n > 0, uint64(0)
    while at < end and data[at] == 48:
        at += 1
    good = good and end - at <= HELD
    while good and at < end:
        good = is_digit(data[at])
        value = value * uint64(10) + uint64(int64(data[at]) - 48)
        at += 1
    return good, value


@njit(f"void({BYTES}, {SPANS}, {SPANS}, int64, int64[::1], {FLAGS})", nogil=True, cache=True)
def read_integers(data: Any, starts: Any, ends: Any, most: int, out: Any, status: Any) -> None:
    """The whole numbers from ``-most - 1`` to ``most``."""
    for i in range(starts.size):
        if status[i] != VALID:
            continue
        at, end = trimmed(data, starts[i], ends[i])
        negative, at = sign(data, at, end)
        good, value = _whole(data, at, end)
        if good and value <= uint64(most) + uint64(negative):
            out[i] = int64(uint64(0) - value) if negative else int64(value)
        else:
            status[i] = FAILED


@njit(f"void({BYTES}, {SPANS}, {SPANS}, {FLAGS}, {FLAGS})", nogil=True, cache=True)
def read_booleans(data: Any, starts: Any, ends: Any, out: Any, status: Any) -> None:
    for i in range(starts.size):
        if status[i] != VALID:
            continue
        at, end = trimmed(data, starts[i], ends[i])
        word = int64(0)
        if end - at <= 5:
            while at < end:
                byte = int64(data[at])
                word = word << 8 | (byte | 32 if 65 <= byte <= 90 else byte)
                at += 1
        # "1", "t", "y", "yes", "true" and "0", "f", "n", "no", "false"
        if word == 0x31 or word == 0x74 or word == 0x79 or word == 0x796573 or word == 0x74727565:
            out[i] = 1
        elif word == 0x30 or word == 0x66 or word == 0x6E or word == 0x6E6F or word == 0x66616C7365:
            out[i] = 0
        else:
            status[i] = FAILED


@njit(inline="always")
def scan_number(data: Any, at: int, end: int) -> tuple[bool, bool, int, int, int]:
    """(whether the bytes are a number, whether it has a minus, its first 19 significant digits as
    a uint64, the number of its significant digits, the power of ten of the last of these)."""
    negative, at = sign(data, at, end)
    mantissa, digits, power, seen = uint64(0), 0, 0, 0
    fraction = False
    while at < end:
        if is_digit(data[at]):
            if digits > 0 or data[at] != 48:
                digits += 1
                if digits <= HELD:
                    mantissa = mantissa * uint64(10) + uint64(int64(data[at]) - 48)
            power -= int64(fraction)
            seen += 1
        elif data[at] == 46 and not fraction:
            fraction = True
        else:
            break
        at += 1
    good = seen > 0
    if at < end:
        good = good and data[at] | 32 == 101
        at += 1
        below, at = sign(data, at, end)
        good = good and 1 <= end - at <= 9
        exponent = 0
        while good and at < end:
            good = is_digit(data[at])
            exponent = exponent * 10 + int64(data[at]) - 48
            at += 1
        power += -exponent if below else exponent
    return good, negative, mantissa, digits, power


@njit(f"void({BYTES}, {SPANS}, {SPANS}, int64, int64, int64[::1], {FLAGS})", nogil=True, cache=True)
def read_decimals(
    data: Any, starts: Any, ends: Any, precision: int, scale: int, out: Any, status: Any
) -> None:
    """Numbers in units of ``10**-scale``, rounded half up, of at most ``precision`` (18) digits."""
    for i in range(starts.size):
        if status[i] != VALID:
            continue
        at, end = trimmed(data, starts[i], ends[i])
        good, negative, mantissa, digits, power = scan_number(data, at, end)
        kept = digits + power + scale  # digits in front of the place of rounding
        if not good or (digits > 0 and kept > precision):
            status[i] = FAILED
            continue
        if digits == 0 or kept < 0:
            out[i] = 0
            continue
        move = kept - min(digits, HELD)
        if move >= 0:
            value = mantissa * POWERS[move]
        else:  # only the first digit behind the place decides: digits behind the 19th do not count
            unit = POWERS[-move]
            value = mantissa // unit
            rest = mantissa - value * unit
            value += uint64(rest >= unit - rest)
        if value < POWERS[precision]:
            out[i] = -int64(value) if negative else int64(value)
        else:
            status[i] = FAILED


# -- values to texts -----------------------------------------------------------------------------


@njit(inline="always")
def _magnitude(out: Any, at: int, value: int) -> tuple[int, int]:
    """(the magnitude of an int64 as a uint64, the place behind its minus, which this writes)."""
    if value < 0:
        out[at] = 45
        return uint64(0) - uint64(value), at + 1
    return uint64(value), at


@njit(f"void({NUMBERS}, {FLAGS}, {PLACES}, {PLACES}, {FLAGS})", nogil=True, cache=True)
def write_integers(values: Any, out: Any, starts: Any, ends: Any, status: Any) -> None:
    """Writes the texts one after the other. ``out`` has INTEGER_WIDTH bytes for each row."""
    at = 0
    for i in range(values.size):
        starts[i] = at
        if status[i] == VALID:
            value, at = _magnitude(out, at, values[i])
            at += put_whole(out.ctypes.data + at, value)
        ends[i] = at


@njit(f"void({NUMBERS}, int64, {FLAGS}, {PLACES}, {PLACES}, {FLAGS})", nogil=True, cache=True)
def write_decimals(values: Any, scale: int, out: Any, starts: Any, ends: Any, status: Any) -> None:
    """Values in units of ``10**-scale``. ``out`` has INTEGER_WIDTH + scale + 2 bytes for each
    row."""
    at = 0
    for i in range(values.size):
        starts[i] = at
        if status[i] == VALID:
            value, at = _magnitude(out, at, values[i])
            n = max(digits_of(value), scale + 1)
            put(out, at, value, n)
            at += n
            if scale > 0:
                for k in range(at, at - scale, -1):
                    out[k] = out[k - 1]
                out[at - scale] = 46
                at += 1
        ends[i] = at
