"""Splits rows by the hash of a key's content, so that equal keys of any process, file or batch come
to the same part."""

from __future__ import annotations

from typing import Any

from numba import int64, uint64

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.dictionary import text_hash
from cql.executor.kernels.lib.hashing import hash_next

#: What NULL is mixed as.
_NULL = 0x5851F42D4C957F2D
_MASK = "Array(uint8, 1, 'C', readonly=True)"


@njit(
    f"void(Array(int64, 1, 'C', readonly=True), {_MASK}, int64[::1])",
    nogil=True,
    cache=True,
)
def mix_words(values: Any, valid: Any, hashes: Any) -> None:
    """Mixes a column of integers into the ``hashes`` of the rows. ``valid``: 0 for NULL; empty if
    there is none."""
    for i in range(hashes.size):
        word = values[i] if valid.size == 0 or valid[i] else _NULL
        hashes[i] = int64(hash_next(hashes[i], word))


@njit(
    f"void(Array(uint8, 1, 'C', readonly=True), Array(int32, 1, 'C', readonly=True), {_MASK},"
    " int64[::1])",
    nogil=True,
    cache=True,
)
def mix_texts(data: Any, offsets: Any, valid: Any, hashes: Any) -> None:
    """Mixes a column of texts, of which text ``i`` is ``data[offsets[i]:offsets[i + 1]]``, into the
    ``hashes`` of the rows; ``valid`` as in ``mix_words``."""
    for i in range(hashes.size):
        word = _NULL
        if valid.size == 0 or valid[i]:
            word = text_hash(data.ctypes.data, offsets[i], offsets[i + 1])
        hashes[i] = int64(hash_next(hashes[i], word))


@njit(inline="always")
def _part(hashed: int, parts: int) -> int:
    """Other bits than the hash tables of the operators take: the keys of one part would otherwise
    lie close to each other there."""
    mixed = uint64(hashed) * uint64(0x9E3779B97F4A7C15)
    return int64((mixed >> uint64(33)) % uint64(parts))


@njit(
    "void(Array(int64, 1, 'C', readonly=True), int64[::1], int64[::1])",
    nogil=True,
    cache=True,
)
def split(hashes: Any, order: Any, ends: Any) -> None:
    """Sorts the rows by their part, of which there are as many as ``ends``: ``order`` becomes the
    rows of the first part in their order, then those of the next, and so on; ``ends`` becomes the
    number of rows in each part and those before it."""
    for i in range(hashes.size):
        ends[_part(hashes[i], ends.size)] += 1
    at = 0
    for p in range(ends.size):
        size = ends[p]
        ends[p] = at
        at += size
    for i in range(hashes.size):
        p = _part(hashes[i], ends.size)
        order[ends[p]] = i
        ends[p] += 1
