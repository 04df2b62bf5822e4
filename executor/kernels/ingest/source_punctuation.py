"""Removes the rows that are punctuation from a block, in one pass over each column that is read."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import int64, uint64

from cql.executor.jit.decorators import njit
from cql.executor.kernels.ingest.cutter import MARK
from cql.executor.kernels.ingest.value_numbers import value_at
from cql.executor.kernels.lib.intrinsics import trailing_zeros
from cql.executor.kernels.lib.memory import as_i16, as_i32, as_u8, words

_ONES = np.uint64(0x0101010101010101)


@njit(inline="always")
def _eight(flags: int, rows: int, begin: int) -> int:
    """Eight flags from row ``begin`` on as the bytes of a word; 0 behind the last row."""
    if begin + 8 <= rows:
        return words(flags + begin, 1)[0]
    word = 0
    for row in range(begin, rows):
        word |= int64(as_u8(flags, rows)[row]) << (8 * (row - begin))
    return word


@njit(f"int64({', '.join(['int64'] * 10)})", nogil=True, cache=True)
def punctuations(
    dropped: int,
    rows: int,
    flags: int,
    values: int,
    size: int,
    valid: int,
    attribute: int,
    floor: int,
    numbers: int,
    target: int,
) -> int:
    """Writes the punctuations of one attribute, as marks (``cutter.MARK``), to ``target`` in the
    order of the rows; returns their number. All arguments but ``rows``, ``size``, ``attribute`` and
    ``floor`` are addresses. ``dropped`` has a flag for each row that is a punctuation, ``flags``
    for each punctuation on this attribute, ``valid`` (0: no value is NULL) for each value that is
    not NULL. A value has ``size`` bytes. ``numbers`` holds the number of each row's group, -1 for
    all groups. If ``numbers`` is 0, punctuations at or below ``floor`` or an earlier one are left
    out."""
    records = words(target, MARK * rows)
    end, punctuated = 0, 0
    for begin in range(0, rows, 8):
        left = _eight(dropped, rows, begin)
        while left != 0:
            row = begin + (trailing_zeros(left) >> 3)
            left &= left - 1
            punctuated += 1
            if flags != dropped and as_u8(flags, rows)[row] == 0:
                continue
            if valid != 0 and as_u8(valid, rows)[row] == 0:
                continue
            value = value_at(values, size, row)
            group = -1
            if numbers != 0:
                group = int64(as_i32(numbers, rows)[row])
            elif value <= floor:
                continue
            else:
                floor = value
            records[end] = row + 1 - punctuated
            records[end + 1] = attribute
            records[end + 2] = value
            records[end + 3] = group
            end += MARK
    return end // MARK


@njit(inline="always")
def _kept(values: Any, target: Any, dropped: int) -> None:
    """Copies the values whose flag is 0, eight rows at a time: one product gives, for each of the
    eight, the number of kept values before it. Without branches or dependences between rows, every
    pattern of punctuation costs 0.4 ns per row."""
    n, rows = uint64(0), values.size
    for begin in range(0, rows - 7, 8):
        keep = _ONES - uint64(words(dropped + begin, 1)[0])
        upto = keep * _ONES
        before = upto << uint64(8)
        for k in range(8):
            to = n + ((before >> uint64(8 * k)) & uint64(255))
            target[to] = values[uint64(begin + k)]
        n += upto >> uint64(56)
    for row in range(rows & ~7, rows):
        target[n] = values[row]
        n += uint64(1) - uint64(as_u8(dropped, rows)[row])


@njit("void(int64, int64, int64, int64, int64)", nogil=True, cache=True)
def compact(source: int, target: int, size: int, dropped: int, rows: int) -> None:
    """Copies those of ``rows`` values (of ``size`` bytes) whose flag at ``dropped`` is 0.
    ``target`` has room for ``rows`` + 1 values."""
    if size == 8:
        _kept(words(source, rows), words(target, rows + 1), dropped)
    elif size == 4:
        _kept(as_i32(source, rows), as_i32(target, rows + 1), dropped)
    elif size == 2:
        _kept(as_i16(source, rows), as_i16(target, rows + 1), dropped)
    else:
        _kept(as_u8(source, rows), as_u8(target, rows + 1), dropped)
