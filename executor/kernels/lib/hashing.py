"""Hashing of key words: ``hash_start`` the first word, ``hash_next`` each further one, then
``hash_end``."""

from __future__ import annotations

from numba import int64, uint64

from cql.executor.jit.decorators import njit


@njit(inline="always")
def hash_start(k: int) -> int:
    x = uint64(k) * uint64(0x9E3779B97F4A7C15)
    return x ^ (x >> uint64(29))


@njit(inline="always")
def hash_next(h: int, k: int) -> int:
    x = (uint64(h) + uint64(k)) * uint64(0xBF58476D1CE4E5B9)
    return x ^ (x >> uint64(31))


@njit(inline="always")
def hash_end(h: int) -> int:
    """The hash in 63 bits, never negative: the low bits choose the place, the high bits are the
    tag."""
    return int64(uint64(h) >> uint64(1))
