"""Moving morsels without computing on their rows: passing rows by reference, appending copies of
rows, writing and counting punctuation."""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.memory import copy_bytes, words
from cql.executor.kernels.morsel_layout import (
    EPOCH,
    GROUP,
    HEADER,
    PUNCTUATION_ADDRESS,
    PUNCTUATION_WORDS,
    PUNCTUATIONS,
    ROWS,
    SEQUENCE,
    SERIAL,
)


@njit(inline="always")
def pass_rows(u: Any, o: Any, width: int) -> None:
    """Passes the rows of input ``u`` to output ``o`` by reference; ``width``: words of a morsel."""
    for k in (ROWS, SERIAL, SEQUENCE, EPOCH):
        o[k] = u[k]
    for k in range(HEADER, width):
        o[k] = u[k]


@njit("void(int64[::1], int64[::1], int64[::1], int64, int64)", nogil=True, cache=True)
def append_rows(u: Any, o: Any, sizes: Any, first: int, n: int) -> None:
    """Copies ``n`` rows of morsel ``u``, from ``first`` on, behind the rows of morsel ``o``. Morsel
    ``o`` has its own masks. ``sizes``: bytes of a value of each column."""
    held = o[ROWS]
    for c in range(sizes.size):
        at, size = HEADER + 2 * c, sizes[c]
        copy_bytes(u[at] + first * size, o[at] + held * size, n * size)
        copy_bytes(u[at + 1] + first, o[at + 1] + held, n)
    o[ROWS] += n


@njit(inline="always")
def send(leaving: Any, n: int, attribute: int, value: int) -> int:
    """Writes punctuation number ``n``; returns the number of punctuations, ``n`` + 1."""
    at = PUNCTUATION_WORDS * n
    leaving[at], leaving[at + 1], leaving[at + 2] = attribute, value, -1
    return n + 1


@njit("int64(int64)", nogil=True, cache=True)
def punctuation_in(morsel: int) -> int:
    """The number of punctuations of a morsel; the two records of a group-wise one count once."""
    u, items = words(morsel, HEADER), 0
    records = words(u[PUNCTUATION_ADDRESS], PUNCTUATION_WORDS * u[PUNCTUATIONS])
    for p in range(u[PUNCTUATIONS]):
        items += records[PUNCTUATION_WORDS * p] != GROUP
    return items
