"""Searches in texts: LIKE, contains, starts, ends, positions.

A search compares 32 places of a text at once with the first and the last byte of what it looks for,
and examines only the places where both are equal (W. Muła, "SIMD-friendly algorithms for substring
searching").
"""

from __future__ import annotations

from typing import Any

from numba import int64

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.memory import as_u8, same_bytes
from cql.executor.kernels.texts.block import (
    WIDE,
    equal_pairs,
    lowest,
    without_lowest,
)

BYTES, PLACES, FLAGS = "Array(uint8, 1, 'C', readonly=True)", "int64[::1]", "uint8[::1]"
#: A byte in a run of a LIKE pattern that stands for any one character; no text has it.
ANY = 0xFF


@njit(inline="always")
def find(begin: int, size: int, start: int, end: int, part: int, m: int) -> int:
    """The first offset from ``start`` on at which the ``m`` bytes at address ``part`` lie before
    ``end``, in the ``size`` bytes at address ``begin``; -1 if there is none."""
    if m == 0:
        return start
    last = m - 1
    ends = as_u8(part, m)
    first_byte, last_byte = int64(ends[0]), int64(ends[last])
    at = start
    while at <= end - m:
        if at + last + WIDE <= size:
            near = begin + at
            mask = equal_pairs(near, first_byte, near + last, last_byte)
            while mask != 0:
                found = at + lowest(mask)
                if found > end - m:
                    return -1
                if same_bytes(begin + found, part, m):
                    return found
                mask = without_lowest(mask)
            at += WIDE
        else:
            if same_bytes(begin + at, part, m):
                return at
            at += 1
    return -1


@njit(f"void({BYTES}, {PLACES}, {PLACES}, {BYTES}, {FLAGS})", nogil=True, cache=True)
def contains(data: Any, starts: Any, ends: Any, part: Any, out: Any) -> None:
    """Whether ``part``, of one byte or more, lies in each text. The texts lie one after the other:
    one search goes through all their bytes, and only matches are related to texts."""
    n, m = starts.size, part.size
    begin, needle = data.ctypes.data, part.ctypes.data
    row, at, stop = 0, starts[0], ends[n - 1]
    while row < n:
        found = find(begin, data.size, at, stop, needle, m)
        if found < 0:
            found = stop
        while row < n and ends[row] < found + m:
            out[row] = 0
            row += 1
        if row < n and starts[row] <= found:
            out[row] = 1
            at = ends[row]
            row += 1
        else:  # the match reaches over the end of a text
            at = found + 1


@njit(f"void({BYTES}, {PLACES}, {PLACES}, {BYTES}, {FLAGS})", nogil=True, cache=True)
def starts_with(data: Any, starts: Any, ends: Any, part: Any, out: Any) -> None:
    begin, needle, m = data.ctypes.data, part.ctypes.data, part.size
    for i in range(starts.size):
        out[i] = ends[i] - starts[i] >= m and same_bytes(begin + starts[i], needle, m)


@njit(f"void({BYTES}, {PLACES}, {PLACES}, {BYTES}, {FLAGS})", nogil=True, cache=True)
def ends_with(data: Any, starts: Any, ends: Any, part: Any, out: Any) -> None:
    begin, needle, m = data.ctypes.data, part.ctypes.data, part.size
    for i in range(starts.size):
        out[i] = ends[i] - starts[i] >= m and same_bytes(begin + ends[i] - m, needle, m)


@njit(
    f"void({BYTES}, {PLACES}, {PLACES}, {BYTES}, {PLACES}, {PLACES}, int64, {FLAGS})",
    nogil=True,
    cache=True,
)
def has_part(
    data: Any,
    starts: Any,
    ends: Any,
    parts: Any,
    part_starts: Any,
    part_ends: Any,
    where: int,
    out: Any,
) -> None:
    """Whether each text has its own part: at the start (``where`` is 0), at the end (1) or anywhere
    (2)."""
    begin, needles = data.ctypes.data, parts.ctypes.data
    for i in range(starts.size):
        start, end = starts[i], ends[i]
        part, m = needles + part_starts[i], part_ends[i] - part_starts[i]
        if where == 2:
            out[i] = find(begin, data.size, start, end, part, m) >= 0
        else:
            at = start if where == 0 else end - m
            out[i] = end - start >= m and same_bytes(begin + at, part, m)


@njit(inline="always")
def _fits(data: Any, at: int, end: int, runs: Any, first: int, last: int) -> int:
    """The end of the run ``runs[first:last]`` at offset ``at``; -1 if it does not lie there."""
    for k in range(first, last):
        if at >= end:
            return -1
        if runs[k] == ANY:
            at += 1
            while at < end and data[at] & 0xC0 == 0x80:
                at += 1
        elif data[at] == runs[k]:
            at += 1
        else:
            return -1
    return at


@njit(inline="always")
def _back(data: Any, start: int, end: int, runs: Any, first: int, last: int) -> int:
    """The offset at which the run ``runs[first:last]`` begins if it ends at ``end``; -1 if it does
    not end there."""
    at = end
    for k in range(last - 1, first - 1, -1):
        if at <= start:
            return -1
        at -= 1
        if runs[k] == ANY:
            while at > start and data[at] & 0xC0 == 0x80:
                at -= 1
        elif data[at] != runs[k]:
            return -1
    return at


@njit(
    f"void({BYTES}, {PLACES}, {PLACES}, {BYTES}, {PLACES}, {FLAGS}, {FLAGS})",
    nogil=True,
    cache=True,
)
def like(data: Any, starts: Any, ends: Any, runs: Any, bounds: Any, plain: Any, out: Any) -> None:
    """Whether each text is LIKE a pattern: its runs between the ``%`` are ``runs[bounds[k] :
    bounds[k + 1]]``, ``plain[k]`` says that a run has no ANY. The first run lies at the start, the
    last one at the end, each other one at the first place behind the one before."""
    count = bounds.size - 1
    begin, needles = data.ctypes.data, runs.ctypes.data
    for i in range(starts.size):
        out[i] = 0
        end = ends[i]
        at = _fits(data, starts[i], end, runs, 0, bounds[1])
        if at < 0:
            continue
        if count == 1:
            out[i] = at == end
            continue
        for k in range(1, count - 1):
            first, last = bounds[k], bounds[k + 1]
            if plain[k]:
                found = find(begin, data.size, at, end, needles + first, last - first)
                at = -1 if found < 0 else found + last - first
            else:
                found = -1
                while found < 0 and at <= end:
                    found = _fits(data, at, end, runs, first, last)
                    at += 1
                    while at < end and data[at] & 0xC0 == 0x80:
                        at += 1
                at = found
            if at < 0:
                break
        if at >= 0:
            out[i] = _back(data, starts[i], end, runs, bounds[count - 1], bounds[count]) >= at
