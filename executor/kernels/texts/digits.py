"""Decimal digits of whole numbers, eight at once in the bytes of a word.

Reading: D. Lemire, "Quickly parsing eight digits" (2018). Writing: P. Khuong, "How to print
integers really fast" (2017). Both split a number into halves, quarters and eighths side by side.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import int64, uint64

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.intrinsics import leading_zeros
from cql.executor.kernels.lib.memory import load_word, store_word

#: Digits that a uint64 holds, whatever they are.
HELD = 19
POWERS = np.array([10**k for k in range(HELD + 1)], np.uint64)
#: Bytes that ``put_whole`` may write.
WHOLE_WIDTH = 20

_ZEROS = np.uint64(0x3030303030303030)
_ABOVE_NINE, _HIGH_BITS = np.uint64(0x7676767676767676), np.uint64(0x8080808080808080)
_PAIRS, _TEN = np.uint64(0x000000FF000000FF), np.uint64(10)
_LEFT, _RIGHT = np.uint64((1_000_000 << 32) + 100), np.uint64((10_000 << 32) + 1)
_LOW = np.uint64(0xFFFFFFFF)
_FOUR, _EIGHT = np.uint64(10**4), np.uint64(10**8)
_HUNDRED, _NINETY_NINES = np.uint64(100), np.uint64((0x7F << 32) | 0x7F)
_NINES = np.uint64(0x000F000F000F000F)


@njit(inline="always")
def is_digit(byte: int) -> bool:
    return 48 <= byte <= 57


@njit(inline="always")
def eight_digits(address: int, n: int) -> tuple[bool, int]:
    """(whether the first ``n`` of the 8 bytes at an address, 1 to 8, are digits, their number)."""
    digits = (load_word(address) ^ _ZEROS) << uint64(64 - 8 * n)
    good = (((digits + _ABOVE_NINE) | digits) & _HIGH_BITS) == uint64(0)
    digits = digits * _TEN + (digits >> uint64(8))
    left, right = digits & _PAIRS, (digits >> uint64(16)) & _PAIRS
    return good, ((left * _LEFT + right * _RIGHT) >> uint64(32)) & _LOW


@njit(inline="always")
def digits_of(value: int) -> int:
    """The number of digits of a uint64."""
    some = value | uint64(1)
    n = (64 - leading_zeros(int64(some))) * 1233 >> 12  # bits * log10(2)
    return n + int64(some >= POWERS[n])


@njit(inline="always")
def _as_digits(value: Any) -> Any:
    """The 8 digits of a number below 10**8, the first one in the lowest byte."""
    top = value // _FOUR
    halves = top | ((value - top * _FOUR) << uint64(32))
    tops = ((halves * uint64(10486)) >> uint64(20)) & _NINETY_NINES
    quarters = tops + ((halves - _HUNDRED * tops) << uint64(16))
    tens = ((quarters * uint64(103)) >> uint64(10)) & _NINES
    return (tens + ((quarters - _TEN * tens) << uint64(8))) + _ZEROS


@njit(inline="always")
def put_whole(address: int, value: Any) -> int:
    """Writes all digits of a uint64; returns how many. May also write behind them, at most
    WHOLE_WIDTH bytes in all."""
    n = digits_of(value)
    at, first = address, (n - 1) % 8 + 1
    if n > 16:
        high = value // (_EIGHT * _EIGHT)
        store_word(at, _as_digits(high) >> uint64(64 - 8 * first))
        value -= high * (_EIGHT * _EIGHT)
        at, first = at + first, 8
    if n > 8:
        high = value // _EIGHT
        store_word(at, _as_digits(high) >> uint64(64 - 8 * first))
        value -= high * _EIGHT
        at, first = at + first, 8
    store_word(at, _as_digits(value) >> uint64(64 - 8 * first))
    return n


@njit(inline="always")
def put(out: Any, at: int, value: Any, n: int) -> int:
    """Writes the last ``n`` digits of a uint64; returns the place behind them."""
    place = at + n
    while place > at:
        place -= 1
        rest = value // _TEN
        out[place] = uint64(48) + value - rest * _TEN
        value = rest
    return at + n
