"""Builds texts from parts of others: copies, joins, repetitions, replacements.

``out`` has BEHIND bytes more than the texts take, so that copies may write behind what they copy.
"""

from __future__ import annotations

from typing import Any

from numba import int64, uint32

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.intrinsics import leading_zeros, quotient, remainder
from cql.executor.kernels.lib.memory import as_u8, words
from cql.executor.kernels.texts.block import (
    WIDE,
    copy,
    copy_backwards,
    copy_wide,
    equal_bytes,
    high_bytes,
    low_bits,
    lowest,
)
from cql.executor.kernels.texts.search import BYTES, FLAGS, PLACES, find
from cql.executor.kernels.texts.status import ODD, VALID
from cql.executor.kernels.texts.utf8 import code_point, count, sequence_end, skip

_TEXTS = f"{BYTES}, {PLACES}, {PLACES}"
_PARTS = "int64[:, ::1]"
#: ``translate`` looks for this number of characters in 32 bytes at once.
_FEW = 8


@njit(
    [f"void({_TEXTS}, {kind}[::1], {FLAGS})" for kind in ("int32", "int64")], nogil=True, cache=True
)
def gather(data: Any, starts: Any, ends: Any, offsets: Any, out: Any) -> None:
    """Copies the texts to ``out``, one after the other, and writes their n + 1 ``offsets``."""
    begin, target, at = data.ctypes.data, out.ctypes.data, 0
    source_end, target_end = begin + data.size, target + out.size
    for i in range(starts.size):
        offsets[i] = at
        n = ends[i] - starts[i]
        copy(begin + starts[i], source_end, target + at, target_end, n)
        at += n
    offsets[starts.size] = at


@njit(f"int64({_PARTS}, int64, {FLAGS}, {FLAGS}, {PLACES}, {PLACES})", nogil=True, cache=True)
def join(parts: Any, most: int, status: Any, out: Any, new_starts: Any, new_ends: Any) -> int:
    """Writes the parts of each row that are VALID, with separators between them. Row 0 of ``parts``
    describes the separators, each other row one part, by addresses: of the bytes, behind the bytes,
    of the starts, of the ends, of the status. A text of more than ``most`` bytes makes its row ODD.
    Returns the number of bytes written."""
    n, target = status.size, out.ctypes.data
    at, target_end = target, target + out.size
    for i in range(n):
        first, gap = at, 0
        new_starts[i] = first - target
        separator = words(parts[0, 2], n)[i]
        for k in range(1, parts.shape[0] if status[i] == VALID else 0):
            if as_u8(parts[k, 4], n)[i] != VALID:
                continue
            if gap > 0:
                copy(parts[0, 0] + separator, parts[0, 1], at, target_end, gap)
                at += gap
            start = words(parts[k, 2], n)[i]
            size = words(parts[k, 3], n)[i] - start
            copy(parts[k, 0] + start, parts[k, 1], at, target_end, size)
            at += size
            gap = words(parts[0, 3], n)[i] - separator
        if at - first > most:
            status[i] = ODD
            at = first
        new_ends[i] = at - target
    return at - target


@njit(inline="always")
def _fill(source: int, source_end: int, m: int, target: int, target_end: int, n: int) -> None:
    """Writes ``n`` bytes: the ``m`` bytes at ``source``, over and over."""
    done = min(m, n)
    copy(source, source_end, target, target_end, done)
    while done < n:
        more = min(done, n - done)
        copy(target, target_end, target + done, target_end, more)
        done += more


@njit(f"void({_TEXTS}, {PLACES}, {FLAGS})", nogil=True, cache=True)
def repeat(data: Any, starts: Any, ends: Any, offsets: Any, out: Any) -> None:
    """Repeats text *i* from ``out[offsets[i]]`` to ``out[offsets[i + 1]]``."""
    begin, target = data.ctypes.data, out.ctypes.data
    source_end, target_end = begin + data.size, target + out.size
    for i in range(starts.size):
        to, n = target + offsets[i], offsets[i + 1] - offsets[i]
        _fill(begin + starts[i], source_end, ends[i] - starts[i], to, target_end, n)


@njit(
    f"void({_TEXTS}, {FLAGS}, {PLACES}, {PLACES}, int64, {PLACES}, {PLACES})",
    nogil=True,
    cache=True,
)
def padded_sizes(
    data: Any,
    starts: Any,
    ends: Any,
    status: Any,
    lengths: Any,
    bounds: Any,
    most: int,
    kept: Any,
    sizes: Any,
) -> None:
    """The sizes, in bytes, of texts cut or padded to ``lengths[i]`` characters, and of what is
    ``kept`` of them. Character *k* of the padding lies at ``bounds[k]``. A row is ODD if it needs
    padding to more than ``most`` characters."""
    m = bounds.size - 1
    for i in range(starts.size):
        kept[i] = sizes[i] = 0
        if status[i] != VALID or lengths[i] <= 0:
            continue
        start, end, length = starts[i], ends[i], lengths[i]
        need = length - count(data, start, end)
        if need <= 0 or m == 0:
            kept[i] = sizes[i] = skip(data, start, end, length) - start
        elif length > most:
            status[i] = ODD
        else:
            kept[i] = end - start
            sizes[i] = kept[i] + quotient(need, m) * bounds[m] + bounds[remainder(need, m)]


@njit(
    f"void({BYTES}, {PLACES}, {PLACES}, {PLACES}, {BYTES}, boolean, {FLAGS})",
    nogil=True,
    cache=True,
)
def pad(
    data: Any, starts: Any, kept: Any, offsets: Any, padding: Any, front: bool, out: Any
) -> None:
    """Writes ``kept[i]`` bytes of text *i* and padding, from ``out[offsets[i]]`` to
    ``out[offsets[i + 1]]``."""
    begin, target, source = data.ctypes.data, out.ctypes.data, padding.ctypes.data
    data_end, target_end, source_end = begin + data.size, target + out.size, source + padding.size
    for i in range(starts.size):
        at = target + offsets[i]
        need = offsets[i + 1] - offsets[i] - kept[i]
        if not front:
            copy(begin + starts[i], data_end, at, target_end, kept[i])
            at += kept[i]
        _fill(source, source_end, padding.size, at, target_end, need)
        if front:
            copy(begin + starts[i], data_end, at + need, target_end, kept[i])


@njit(f"int64({_TEXTS}, {FLAGS}, {FLAGS}, {PLACES}, {PLACES})", nogil=True, cache=True)
def reverse(
    data: Any, starts: Any, ends: Any, status: Any, out: Any, new_starts: Any, new_ends: Any
) -> int:
    """Writes the characters of each text in the opposite order. Returns the number of bytes
    written."""
    begin, target, at = data.ctypes.data, out.ctypes.data, 0
    for i in range(starts.size):
        start, end = starts[i], ends[i]
        new_starts[i] = at
        if status[i] != VALID:
            new_ends[i] = at
            continue
        while end > start:
            if end >= WIDE:
                high = int64(high_bytes(begin + end - WIDE))
                n = min(leading_zeros(high) - 32, end - start)
                copy_backwards(begin + end - WIDE, target + at)
                at += n
                end -= n
            while end > start and (data[end - 1] >= 0x80 or end < WIDE):
                first = end - 1
                while first > start and data[first] & 0xC0 == 0x80:
                    first -= 1
                for k in range(first, end):
                    out[at] = data[k]
                    at += 1
                end = first
        new_ends[i] = at
    return at


@njit(f"int64({_TEXTS}, {_TEXTS}, {PLACES}, {PLACES}, int64, {FLAGS})", nogil=True, cache=True)
def replaced_bytes(
    data: Any,
    starts: Any,
    ends: Any,
    olds: Any,
    old_starts: Any,
    old_ends: Any,
    new_starts: Any,
    new_ends: Any,
    most: int,
    status: Any,
) -> int:
    """The bytes that the texts take in which ``replace`` puts new parts, at most. A text of more
    than ``most`` bytes makes its row ODD."""
    begin, needles, total = data.ctypes.data, olds.ctypes.data, 0
    for i in range(starts.size):
        old, m, size = needles + old_starts[i], old_ends[i] - old_starts[i], ends[i] - starts[i]
        more = max(new_ends[i] - new_starts[i] - m, 0)
        if status[i] == VALID and m > 0 and more > 0:
            near = find(begin, data.size, starts[i], ends[i], old, m)
            while near >= 0:
                size += more
                near = find(begin, data.size, near + m, ends[i], old, m)
        if status[i] == VALID and size > most:
            status[i], size = ODD, 0
        total += size
    return total


@njit(
    f"UniTuple(int64, 2)({_TEXTS}, {_TEXTS}, {_TEXTS}, int64, {FLAGS}, {FLAGS}, {PLACES},"
    f" {PLACES})",
    nogil=True,
    cache=True,
)
def replace(
    data: Any,
    starts: Any,
    ends: Any,
    olds: Any,
    old_starts: Any,
    old_ends: Any,
    news: Any,
    news_starts: Any,
    news_ends: Any,
    most: int,
    status: Any,
    out: Any,
    new_starts: Any,
    new_ends: Any,
) -> tuple[int, int]:
    """Writes the texts, one after the other, with a new part for each old one. A text of more than
    ``most`` bytes makes its row ODD. Returns the number of bytes written, and how many parts were
    replaced."""
    begin, target, total = data.ctypes.data, out.ctypes.data, 0
    needles, source = olds.ctypes.data, news.ctypes.data
    data_end, target_end, source_end = begin + data.size, target + out.size, source + news.size
    first = at = target
    for i in range(starts.size):
        new_starts[i] = at - target
        if status[i] == VALID:
            start, end = starts[i], ends[i]
            old, m = needles + old_starts[i], old_ends[i] - old_starts[i]
            new, n = source + news_starts[i], news_ends[i] - news_starts[i]
            near = find(begin, data.size, start, end, old, m) if m > 0 else -1
            first = at
            while near >= 0:
                copy(begin + start, data_end, at, target_end, near - start)
                at += near - start
                copy(new, source_end, at, target_end, n)
                at += n
                start = near + m
                total += 1
                near = find(begin, data.size, start, end, old, m)
            copy(begin + start, data_end, at, target_end, end - start)
            at += end - start
            if at - first > most:
                status[i] = ODD
                at = first
        new_ends[i] = at - target
    return at - target, total


@njit(
    f"int64({_TEXTS}, {FLAGS}, {PLACES}, int64, {PLACES}, {BYTES}, {PLACES}, {BYTES}, {BYTES},"
    f" {FLAGS}, {PLACES}, {PLACES})",
    nogil=True,
    cache=True,
)
def translate(
    data: Any,
    starts: Any,
    ends: Any,
    status: Any,
    codes: Any,
    few: int,
    numbers: Any,
    news: Any,
    bounds: Any,
    single: Any,
    kept: Any,
    out: Any,
    new_starts: Any,
    new_ends: Any,
) -> int:
    """Writes the texts with ``news[bounds[k] : bounds[k + 1]]`` for each character ``codes[k]``.
    The first ``few`` codes are the ASCII ones; ``numbers[c]`` is *k* for ASCII character *c*, or
    -1. If all codes are ASCII and no new text is longer than a byte, ``single`` may hold the new
    byte for each old one and ``kept`` whether there is one; else they are empty. ``out`` has room
    for the texts. Returns the number of bytes written."""
    begin, target, source, at = data.ctypes.data, out.ctypes.data, news.ctypes.data, 0
    size, target_end, source_end = data.size, target + out.size, source + news.size
    in_blocks = codes.size == few and few <= _FEW
    for i in range(starts.size):
        start, end = starts[i], ends[i]
        new_starts[i] = at
        if status[i] != VALID:
            new_ends[i] = at
            continue
        if single.size > 0:
            raw = as_u8(begin + start, end - start)
            for k in range(end - start):
                out[at] = single[raw[k]]
                at += kept[raw[k]]
            start = end
        while start < end:
            if in_blocks and start + WIDE <= size:
                found = uint32(0)
                for k in range(few):
                    found = uint32(found | equal_bytes(begin + start, codes[k]))
                left = end - start
                if left < WIDE:
                    found = uint32(found & low_bits(left))
                copy_wide(begin + start, target + at)
                n = lowest(found) if found != 0 else min(left, WIDE)
                at += n
                start += n
                if found == 0:
                    continue
            number, behind = -1, start + 1
            if data[start] < 0x80:
                number = numbers[data[start]]
            else:
                behind = sequence_end(data, start, end)
                if codes.size > few and behind - start > 1:
                    code = code_point(data, start, behind)
                    for k in range(few, codes.size):
                        if codes[k] == code:
                            number = k
            if number < 0:
                for k in range(start, behind):
                    out[at] = data[k]
                    at += 1
            else:
                n = bounds[number + 1] - bounds[number]
                copy(source + bounds[number], source_end, target + at, target_end, n)
                at += n
            start = behind
        new_ends[i] = at
    return at
