"""Percentiles of groups: their exact places, and the values there without sorting all values: a
counting sort by group, then a selection in each group.

A value becomes a sort key, an int64 that compares as the value does. Equal values have equal keys,
so their order among each other does not matter.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cql.executor.jit.decorators import njit

#: Up to this number of values, a range is sorted by insertion.
_FEW = 16
#: From this number of values on, a pivot is a median of 9 values, not of 3.
_MANY = 128
#: All bits of an int64 except its sign.
_MAGNITUDE = 0x7FFFFFFFFFFFFFFF


@njit("int64(int64, boolean)", nogil=True, cache=True, inline="always")
def _ordered(word: Any, doubles: bool) -> int:
    """Integers that compare as the doubles with the bits ``word`` do, NaN as the greatest; the same
    function turns them back into the bits. Without ``doubles``, the word itself."""
    return word ^ ((word >> 63) & _MAGNITUDE) if doubles else word


@njit("void(int64[:], int64[:], boolean, boolean, int64[::1], int64[::1])", nogil=True, cache=True)
def keys_by_group(
    group: Any, words: Any, doubles: bool, descending: bool, keys: Any, first: Any
) -> None:
    """Writes the sort keys of ``words`` to ``keys``, one group after the other. ``doubles``: the
    words are the bits of doubles, of which equal ones have equal bits (``memory.key_bits``).
    ``first[g]``: the number of the first key of group ``g``; the last element of ``first`` is the
    number of all keys."""
    first[:] = 0
    for g in group:
        first[g + 1] += 1
    for g in range(1, first.size):
        first[g] += first[g - 1]
    turned = -1 if descending else 0
    for k in range(group.size):
        g = group[k]
        keys[first[g]] = _ordered(words[k], doubles) ^ turned
        first[g] += 1
    for g in range(first.size - 1, 0, -1):
        first[g] = first[g - 1]
    first[0] = 0


@njit("void(int64[::1], int64, int64, int64)", nogil=True, cache=True)
def _sort_few(keys: Any, first: int, end: int, stop: int) -> None:
    """Puts the least keys of a range in order to the places before ``stop``. The insertion has no
    branches, which would be mispredicted for half of the keys."""
    for k in range(first + 1, end):
        key = keys[k]
        for at in range(first, min(k, stop)):
            other = keys[at]
            keys[at] = min(key, other)
            key = max(key, other)
        keys[k] = key


@njit("int64(int64, int64, int64)", nogil=True, cache=True)
def _median(a: int, b: int, c: int) -> int:
    return max(min(a, b), min(max(a, b), c))


@njit("int64(int64[::1], int64, int64)", nogil=True, cache=True)
def _sampled(keys: Any, first: int, end: int) -> int:
    """A key near the median of a range: of 3 keys, or of 3 times 3 keys of a long range."""
    last, middle = end - 1, first + (end - first) // 2
    if end - first < _MANY:
        return int(_median(keys[first], keys[middle], keys[last]))
    step = (end - first) // 8
    return int(
        _median(
            _median(keys[first], keys[first + step], keys[first + 2 * step]),
            _median(keys[middle - step], keys[middle], keys[middle + step]),
            _median(keys[last - 2 * step], keys[last - step], keys[last]),
        )
    )


@njit("int64(int64[::1], int64, int64)", nogil=True, cache=True)
def _halfway(keys: Any, first: int, end: int) -> int:
    """The number halfway between the least and the greatest key of a range, rounded down."""
    least = greatest = keys[first]
    for k in range(first + 1, end):
        least, greatest = min(least, keys[k]), max(greatest, keys[k])
    return int((least & greatest) + ((least ^ greatest) >> 1))  # no overflow


@njit("int64(int64[::1], int64, int64, int64)", nogil=True, cache=True)
def _part(keys: Any, first: int, end: int, pivot: int) -> int:
    """Moves the keys below ``pivot`` to the front of a range, without branches; returns the place
    behind them."""
    for k in range(first, end):
        key = keys[k]
        keys[k] = keys[first]
        keys[first] = key
        first += key < pivot
    return first


@njit("int64(int64[::1], int64, int64, int64)", nogil=True, cache=True)
def _part_equal(keys: Any, first: int, end: int, least: int) -> int:
    """Moves the keys that equal the least key to the front of a range; returns the place behind
    them."""
    for k in range(first, end):
        key = keys[k]
        keys[k] = keys[first]
        keys[first] = key
        first += key == least
    return first


@njit("void(int64[::1], int64, int64)", nogil=True, cache=True)
def _least_first(keys: Any, first: int, end: int) -> None:
    least = first
    for k in range(first + 1, end):
        if keys[k] < keys[least]:
            least = k
    keys[first], keys[least] = keys[least], keys[first]


@njit("void(int64[::1], int64, int64, int64)", nogil=True, cache=True)
def _select(keys: Any, first: int, end: int, place: int) -> None:
    """Moves the keys of a range so that ``keys[place]`` is as if they were sorted, with no greater
    key before it and no smaller key behind it. Quickselect; after many rounds the pivots halve the
    range of the keys, so that n keys take time n log n at most."""
    sampled = 8  # rounds: 8 + about twice the binary logarithm of the length
    length = end - first
    while length > 0:
        sampled, length = sampled + 2, length >> 1
    while end - first > _FEW and place > first:
        sampled -= 1
        pivot = _sampled(keys, first, end) if sampled > 0 else _halfway(keys, first, end)
        behind = _part(keys, first, end, pivot)
        if place < behind:
            end = behind
        elif behind > first:
            first = behind
        else:  # the pivot is the least key, perhaps of many equal ones
            first = _part_equal(keys, first, end, pivot)
            if place < first:
                return
    if end - first > _FEW:
        _least_first(keys, first, end)
    else:
        _sort_few(keys, first, end, place + 1)


@njit(
    "void(int64[::1], int64[::1], int64[::1], boolean, int64[:, ::1], float64[:, ::1])",
    nogil=True,
    cache=True,
)
def places(counts: Any, above: Any, below: Any, interpolates: bool, low: Any, share: Any) -> None:
    """For each percentage ``above[p] / below[p]`` and each count n of sorted values, the place of
    the percentile among them: its integer part ``low[p]`` and its fractional part ``share[p]``.

    With ``interpolates``, the place is percentage * (n - 1) (Spark's percentile). Else it is the
    first place up to which at least that share of the values lie (percentile_disc)."""
    for p in range(len(above)):
        for g in range(len(counts)):
            scaled = above[p] * max(counts[g] - 1, 0)
            if not interpolates:
                scaled = max(above[p] * counts[g] - 1, 0)
            low[p, g] = whole = scaled // below[p]
            share[p, g] = (scaled - whole * below[p]) / below[p] if interpolates else 0.0


@njit("float64[::1](float64[:], float64[:], float64[:])", nogil=True, cache=True)
def between(a: Any, b: Any, share: Any) -> Any:
    """The doubles that lie the share ``share`` of the way from ``a`` to ``b``."""
    found = np.empty(a.size)
    for k in range(a.size):
        if a[k] == b[k] or share[k] == 0:
            found[k] = a[k]
        else:
            found[k] = (1 - share[k]) * a[k] + share[k] * b[k]
    return found


@njit(
    "void(int64[::1], int64[::1], int64[:, ::1], float64[:, ::1], int64[::1], boolean, boolean,"
    " int64[:, :, ::1])",
    nogil=True,
    cache=True,
)
def words_at(
    keys: Any, first: Any, low: Any, share: Any, ascending: Any, doubles: bool, descending: bool,
    found: Any,
) -> None:  # fmt: skip
    """Writes the words at the places ``low[p, g]`` of each group ``g`` to ``found[0]`` and, where
    ``share`` is positive, those at the following places to ``found[1]``, else the same words again.
    The words of an empty group are 0.

    ``keys`` and ``first``: see ``keys_by_group``; the keys of each group are moved. ``ascending``:
    the numbers ``p``, from the least percentage to the greatest."""
    turned = -1 if descending else 0
    for g in range(first.size - 1):
        done, end = first[g], first[g + 1]  # the keys before ``done`` are in order
        for p in ascending:
            if first[g] == end:
                found[0, p, g] = found[1, p, g] = 0
                continue
            near = first[g] + low[p, g]
            following = near + (share[p, g] > 0)
            if end - done <= _FEW and following >= done:
                _sort_few(keys, done, end, following + 1)
                done = following + 1
            if near >= done:
                _select(keys, done, end, near)
                done = near + 1
            if following >= done:
                _select(keys, done, end, following)
                done = following + 1
            found[0, p, g] = _ordered(keys[near] ^ turned, doubles)
            found[1, p, g] = _ordered(keys[following] ^ turned, doubles)
