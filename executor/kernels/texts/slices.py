"""Parts of texts, as places in the same bytes: substrings, trimming, parts between delimiters.

A row that is not VALID gets an empty place.
"""

from __future__ import annotations

from typing import Any

from numba import int64, uint32

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.memory import as_u8
from cql.executor.kernels.texts.block import WIDE, equal_bytes, low_bits, number_of_bits
from cql.executor.kernels.texts.search import BYTES, FLAGS, PLACES, find
from cql.executor.kernels.texts.status import FAILED, VALID
from cql.executor.kernels.texts.utf8 import code_point, count, sequence_end, skip

_TEXTS = f"{BYTES}, {PLACES}, {PLACES}"


@njit(f"void({_TEXTS}, {FLAGS}, {PLACES}, {PLACES}, {PLACES}, {PLACES})", nogil=True, cache=True)
def substring(
    data: Any,
    starts: Any,
    ends: Any,
    status: Any,
    positions: Any,
    lengths: Any,
    new_starts: Any,
    new_ends: Any,
) -> None:
    """``lengths[i]`` characters from position ``positions[i]`` on, counted from 1 (0 counts as 1),
    or below 0 from the end."""
    for i in range(starts.size):
        at, end = starts[i], ends[i]
        position, n = positions[i], lengths[i]
        new_starts[i] = new_ends[i] = at
        if status[i] != VALID or n <= 0:
            continue
        if position > 0:
            at = skip(data, at, end, position - 1)
        elif position < 0:
            characters = count(data, at, end)
            before = characters + position
            if before < 0:
                n += before
                if n <= 0:
                    continue
            elif characters == end - at:
                at += before
            else:
                at = skip(data, at, end, before)
        new_starts[i] = at
        new_ends[i] = skip(data, at, end, n)


@njit(inline="always")
def _is_in(data: Any, at: int, behind: int, others: Any) -> bool:
    """Whether ``others`` has the code point of the character from ``at`` to ``behind``."""
    code, found = code_point(data, at, behind), False
    for k in range(others.size):
        found |= others[k] == code
    return found


@njit(
    f"void({_TEXTS}, {FLAGS}, {FLAGS}, {PLACES}, boolean, boolean, {PLACES}, {PLACES})",
    nogil=True,
    cache=True,
)
def trim(
    data: Any,
    starts: Any,
    ends: Any,
    status: Any,
    flags: Any,
    others: Any,
    front: bool,
    back: bool,
    new_starts: Any,
    new_ends: Any,
) -> None:
    """The texts without characters of a set in ``front`` or at the ``back``: ``flags[b]`` is 1 for
    the byte of an ASCII character of the set, 2 for bytes of other characters, which ``others``
    decides by their code points, else 0."""
    for i in range(starts.size):
        at, end = starts[i], ends[i]
        if status[i] != VALID:
            end = at
        while front and at < end:
            flag, behind = flags[data[at]], at + 1
            if flag > 1:
                behind = sequence_end(data, at, end)
                flag = _is_in(data, at, behind, others)
            if flag == 0:
                break
            at = behind
        while back and at < end:
            last = end - 1
            flag = flags[data[last]]
            if flag > 1:
                while last > at and data[last] & 0xC0 == 0x80:
                    last -= 1
                flag = _is_in(data, last, end, others)
            if flag == 0:
                break
            end = last
        new_starts[i], new_ends[i] = at, end


@njit(inline="always")
def _occurrences(begin: int, size: int, start: int, end: int, part: int, m: int) -> int:
    """How often the ``m`` bytes at ``part`` lie in a text, one behind the other."""
    at, found = start, 0
    if m == 1:
        byte = int64(as_u8(part, 1)[0])
        while at < end and at + WIDE <= size:
            same = equal_bytes(begin + at, byte)
            if end - at < WIDE:
                same = uint32(same & low_bits(end - at))
            found += number_of_bits(same)
            at += WIDE
    near = find(begin, size, at, end, part, m)
    while near >= 0:
        found += 1
        near = find(begin, size, near + m, end, part, m)
    return found


@njit(f"void({_TEXTS}, {_TEXTS}, {FLAGS}, {PLACES}, {PLACES}, {PLACES})", nogil=True, cache=True)
def split_part(
    data: Any,
    starts: Any,
    ends: Any,
    delimiters: Any,
    delimiter_starts: Any,
    delimiter_ends: Any,
    status: Any,
    numbers: Any,
    new_starts: Any,
    new_ends: Any,
) -> None:
    """Part ``numbers[i]`` between delimiters, from 1 or, from the end, from -1; empty if there is
    none. Number 0 fails."""
    begin, needles = data.ctypes.data, delimiters.ctypes.data
    for i in range(starts.size):
        at, end, number = starts[i], ends[i], numbers[i]
        new_starts[i] = new_ends[i] = at
        if status[i] != VALID:
            continue
        if number == 0:
            status[i] = FAILED
            continue
        part, m = needles + delimiter_starts[i], delimiter_ends[i] - delimiter_starts[i]
        if m == 0:
            if number == 1 or number == -1:
                new_ends[i] = end
            continue
        if number < 0:
            number += _occurrences(begin, data.size, at, end, part, m) + 2
            if number <= 0:
                continue
        near = find(begin, data.size, at, end, part, m)
        while number > 1 and near >= 0:
            number -= 1
            at = near + m
            near = find(begin, data.size, at, end, part, m)
        if number == 1:
            new_starts[i] = at
            new_ends[i] = end if near < 0 else near
