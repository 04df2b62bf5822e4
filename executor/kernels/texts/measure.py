"""Numbers of texts: how many characters they have, where a part lies, their first code point."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import uint32

from cql.executor.jit.decorators import njit
from cql.executor.kernels.texts.block import WIDE, first_bytes, low_bits, number_of_bits
from cql.executor.kernels.texts.search import BYTES, FLAGS, PLACES, find
from cql.executor.kernels.texts.status import VALID
from cql.executor.kernels.texts.utf8 import code_point, count, sequence_end, skip

_TEXTS = f"{BYTES}, {PLACES}, {PLACES}"
_NUMBERS = "int32[::1]"
#: Blocks whose marks stay in the nearest cache.
_BLOCKS = 512


@njit(f"void({_TEXTS}, {_NUMBERS})", nogil=True, cache=True)
def length(data: Any, starts: Any, ends: Any, out: Any) -> None:
    """The number of characters."""
    for i in range(starts.size):
        out[i] = count(data, starts[i], ends[i])


@njit(f"void({_TEXTS}, {_NUMBERS})", nogil=True, cache=True)
def length_in_a_row(data: Any, starts: Any, ends: Any, out: Any) -> None:
    """The number of characters of texts that lie one after the other, at least one. Characters are
    counted in whole blocks, and those of a text are the ones between its places."""
    begin, n = data.ctypes.data, starts.size
    marks, before = np.empty(_BLOCKS, np.uint32), np.empty(_BLOCKS, np.int64)
    at, row, characters, last = starts[0], 0, 0, 0
    while ends[n - 1] - at >= WIDE:
        blocks = min((ends[n - 1] - at) // WIDE, _BLOCKS)
        for k in range(blocks):
            marks[k], before[k] = first_bytes(begin + at + WIDE * k), characters
            characters += number_of_bits(marks[k])
        behind = at + WIDE * blocks
        while row < n and ends[row] < behind:
            k = (ends[row] - at) // WIDE
            inside = low_bits(ends[row] - at - WIDE * k)
            found = before[k] + number_of_bits(uint32(marks[k] & inside))
            out[row], last = found - last, found
            row += 1
        at = behind
    while row < n:
        found = characters + count(data, at, ends[row])
        out[row], last = found - last, found
        row += 1


@njit(f"void({_TEXTS}, {_NUMBERS})", nogil=True, cache=True)
def first_code_point(data: Any, starts: Any, ends: Any, out: Any) -> None:
    """The code point of the first character; 0 for an empty text."""
    for i in range(starts.size):
        at, end = starts[i], ends[i]
        out[i] = code_point(data, at, sequence_end(data, at, end)) if at < end else 0


@njit(f"void({_TEXTS}, {_TEXTS}, {FLAGS}, {PLACES}, {_NUMBERS})", nogil=True, cache=True)
def locate(
    data: Any,
    starts: Any,
    ends: Any,
    parts: Any,
    part_starts: Any,
    part_ends: Any,
    status: Any,
    positions: Any,
    out: Any,
) -> None:
    """The position, from 1, of the first place of a part at or behind position ``positions[i]``; 0
    if there is none."""
    begin, needles = data.ctypes.data, parts.ctypes.data
    for i in range(starts.size):
        out[i] = 0
        if status[i] != VALID or positions[i] <= 0:
            continue
        start, end, m = starts[i], ends[i], part_ends[i] - part_starts[i]
        if m == 0:
            out[i] = 1
            continue
        at = skip(data, start, end, positions[i] - 1)
        found = find(begin, data.size, at, end, needles + part_starts[i], m)
        if found >= 0:
            out[i] = count(data, start, found) + 1
