"""Sorts entries within their groups, which stand one after the other: what ``numpy.lexsort`` does
of all of them, where groups are small. Chains of values become lists in one go."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from cql.executor.kernels.values import FIRST, SEQUENCE, TIME, count_chains, take_chains

#: Runs of so many entries are sorted by insertion.
_RUN = 8


@njit("boolean(int64[:, ::1], int64, int64)", nogil=True, cache=True)
def _behind(keys: Any, a: int, b: int) -> bool:
    """Whether entry ``a`` sorts behind entry ``b``."""
    for k in range(keys.shape[0]):
        if keys[k, a] != keys[k, b]:
            return bool(keys[k, a] > keys[k, b])
    return False


@njit("void(int64[:, ::1], int64[::1], int64[::1])", nogil=True, cache=True)
def _sort(keys: Any, order: Any, spare: Any) -> None:
    """Sorts places by the keys of their entries; equal ones stay as they are."""
    n = order.size
    for first in range(0, n, _RUN):
        for k in range(first + 1, min(first + _RUN, n)):
            entry, at = order[k], k
            while at > first and _behind(keys, order[at - 1], entry):
                order[at] = order[at - 1]
                at -= 1
            order[at] = entry
    width = _RUN
    while width < n:
        spare[:n] = order
        for first in range(0, n, 2 * width):
            a, b = first, min(first + width, n)
            middle, end = b, min(first + 2 * width, n)
            for k in range(first, end):
                if b < end and (a == middle or _behind(keys, spare[a], spare[b])):
                    order[k] = spare[b]
                    b += 1
                else:
                    order[k] = spare[a]
                    a += 1
        width *= 2


@njit("int64[::1](int64[::1], int64[:, ::1])", nogil=True, cache=True)
def sort_in_groups(group: Any, keys: Any) -> Any:
    """The places of entries by group (ascending already), then by ``keys`` (one row for each, the
    first decides first), then as they are."""
    n = group.size
    order = np.arange(n)
    spare = np.empty(n, np.int64)
    first = 0
    while first < n:
        end = first + 1
        while end < n and group[end] == group[first]:
            end += 1
        _sort(keys, order[first:end], spare)
        first = end
    return order


@njit(
    "Tuple((int64[::1], int64[::1]))(int64[:, ::1], int64[::1], int64[::1], boolean, boolean)",
    nogil=True,
    cache=True,
)
def lists_of_chains(nodes: Any, control: Any, heads: Any, distinct: bool, by_time: bool) -> Any:
    """The values of chains (see ``values``), one chain after the other, and how many each has; the
    chains are free then. ``distinct``: of equal values the first by time and sequence."""
    counts = np.empty(heads.size, np.int64)
    n = count_chains(nodes, heads, counts)
    lines = np.empty((n, nodes.shape[1]), np.int64)
    take_chains(nodes, control, heads, lines)
    keys = np.empty((3, n), np.int64)
    keys[0], keys[1], keys[2] = lines[:, FIRST], lines[:, TIME], lines[:, SEQUENCE]
    order, spare = np.arange(n), np.empty(n, np.int64)
    values = np.empty(n, np.int64)
    first = made = 0
    for g in range(heads.size):
        part = order[first : first + counts[g]]
        first += counts[g]
        if distinct:
            _sort(keys, part, spare)
            kept = 0
            for entry in part:
                if kept == 0 or keys[0, entry] != keys[0, part[kept - 1]]:
                    part[kept] = entry
                    kept += 1
            part = part[:kept]
        if by_time:
            _sort(keys[1:], part, spare)
        counts[g] = part.size
        for entry in part:
            values[made] = keys[0, entry]
            made += 1
    return values[:made], counts
