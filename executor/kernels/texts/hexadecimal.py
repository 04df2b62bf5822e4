"""Hexadecimal digits of bytes and whole numbers, and back."""

from __future__ import annotations

from typing import Any

from numba import int64, uint64

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.intrinsics import leading_zeros
from cql.executor.kernels.texts.search import BYTES, FLAGS, PLACES
from cql.executor.texts.column import NULL, VALID

_TEXTS = f"{BYTES}, {PLACES}, {PLACES}"


@njit(inline="always")
def _digit(value: int) -> int:
    return value + (55 if value > 9 else 48)


@njit(f"void({_TEXTS}, {PLACES}, {FLAGS})", nogil=True, cache=True)
def hex_of_bytes(data: Any, starts: Any, ends: Any, offsets: Any, out: Any) -> None:
    """Writes two digits for each byte of text *i* from ``out[offsets[i]]`` to
    ``out[offsets[i + 1]]``."""
    for i in range(starts.size):
        at, start = offsets[i], starts[i]
        for k in range((offsets[i + 1] - at) >> 1):
            byte = data[start + k]
            out[at + 2 * k] = _digit(byte >> 4)
            out[at + 2 * k + 1] = _digit(byte & 15)


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


@njit(inline="always")
def _value(digit: int) -> int:
    """The value of a digit; a byte that is none has one above 15."""
    if digit <= 57:
        return digit - 48 if digit >= 48 else 16
    letter = digit & 0xDF
    return letter - 55 if letter >= 65 and letter <= 70 else 16


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
                worst = _value(int64(data[start]))
                out[at] = worst
                at += 1
                start += 1
            while start < end:
                high, low = _value(int64(data[start])), _value(int64(data[start + 1]))
                worst = max(worst, high, low)
                out[at] = (high << 4) | (low & 15)
                at += 1
                start += 2
            if worst > 15:
                status[i] = NULL
                at = new_starts[i]
        new_ends[i] = at
    return at
