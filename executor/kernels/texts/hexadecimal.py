"""Hexadecimal digits of bytes and whole numbers, and back."""

from __future__ import annotations

from string import hexdigits
from typing import Any

import numpy as np
from numba import int64, uint64

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.intrinsics import leading_zeros
from cql.executor.kernels.texts.block import WIDE, copy_as_digits
from cql.executor.kernels.texts.search import BYTES, FLAGS, PLACES
from cql.executor.kernels.texts.status import NULL, VALID

_HALF = WIDE // 2
#: The value of each digit; 16 for a byte that is none.
_VALUES = np.array([int(chr(b), 16) if chr(b) in hexdigits else 16 for b in range(256)], np.uint8)
_TEXTS = f"{BYTES}, {PLACES}, {PLACES}"


@njit(inline="always")
def _digit(value: int) -> int:
    return value + (55 if value > 9 else 48)


@njit(f"void({_TEXTS}, {PLACES}, {FLAGS})", nogil=True, cache=True)
def hex_of_bytes(data: Any, starts: Any, ends: Any, offsets: Any, out: Any) -> None:
    """Writes two digits for each byte of text *i* from ``out[offsets[i]]`` to
    ``out[offsets[i + 1]]``. ``out`` has 32 bytes more."""
    begin, target = data.ctypes.data, out.ctypes.data
    for i in range(starts.size):
        at, k = offsets[i], starts[i]
        while at < offsets[i + 1] and k + _HALF <= data.size:
            copy_as_digits(begin + k, target + at)
            at += 2 * _HALF
            k += _HALF
        while at < offsets[i + 1]:
            out[at] = _digit(data[k] >> 4)
            out[at + 1] = _digit(data[k] & 15)
            at += 2
            k += 1


@njit(f"int64({PLACES}, {FLAGS}, {FLAGS}, {PLACES}, {PLACES})", nogil=True, cache=True)
def hex_of_numbers(numbers: Any, status: Any, out: Any, new_starts: Any, new_ends: Any) -> int:
    """Writes the digits of the 64 bits of each number, at most 16. Returns the number of bytes
    written."""
    at = 0
    for i in range(numbers.size):
        new_starts[i] = at
        if status[i] == VALID:
            digits = max((67 - leading_zeros(numbers[i])) >> 2, 1)
            rest = uint64(numbers[i])
            for k in range(digits - 1, -1, -1):
                out[at + k] = _digit(int64(rest & uint64(15)))
                rest >>= uint64(4)
            at += digits
        new_ends[i] = at
    return at


@njit(f"int64({_TEXTS}, {FLAGS}, {FLAGS}, {PLACES}, {PLACES})", nogil=True, cache=True)
def bytes_of_hex(
    data: Any, starts: Any, ends: Any, status: Any, out: Any, new_starts: Any, new_ends: Any
) -> int:
    """Writes the bytes of the digits of each text; the first of an odd number of digits is a byte.
    A text with anything else is NULL. Returns the number of bytes written."""
    at = 0
    for i in range(starts.size):
        new_starts[i] = at
        if status[i] == VALID:
            start, end, worst = starts[i], ends[i], 0
            if (end - start) & 1:
                worst = int64(_VALUES[data[start]])
                out[at] = worst
                at += 1
                start += 1
            while start < end:
                high, low = int64(_VALUES[data[start]]), int64(_VALUES[data[start + 1]])
                worst |= high | low
                out[at] = (high << 4) | (low & 15)
                at += 1
                start += 2
            if worst > 15:
                status[i] = NULL
                at = new_starts[i]
        new_ends[i] = at
    return at
