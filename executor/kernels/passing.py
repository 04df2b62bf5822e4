"""What native operators that keep no columns of their own do with units."""

from __future__ import annotations

from typing import Any

from numba import njit

from cql.executor.unit import EPOCH, HEADER, PUNCTUATION_WORDS, ROWS, SEQUENCE, SERIAL


@njit(inline="always")
def pass_rows(u: Any, o: Any, width: int) -> None:
    """The output has the rows of the input, by reference."""
    for k in (ROWS, SERIAL, SEQUENCE, EPOCH):
        o[k] = u[k]
    for k in range(HEADER, width):
        o[k] = u[k]


@njit(inline="always")
def send(leaving: Any, n: int, attribute: int, value: int) -> int:
    """Writes punctuation number ``n``; returns how many there are then."""
    at = PUNCTUATION_WORDS * n
    leaving[at], leaving[at + 1], leaving[at + 2] = attribute, value, -1
    return n + 1
