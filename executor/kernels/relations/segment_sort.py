"""Sorts entries within consecutive groups, as ``numpy.lexsort`` over all entries would, for small
groups; and turns the chains of values (``treap``) into lists in one pass."""

from __future__ import annotations

from typing import Any

import numpy as np

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.treap import FIRST, NEXT, SEQUENCE, TIME, count_chains, free_node

#: Entries of a run that insertion sort sorts before runs are merged.
_RUN = 8
#: Up to this number of entries, duplicates are found by comparing each entry with all before it.
_FEW = 32


@njit("boolean(int64[:, ::1], int64, int64)", nogil=True, cache=True)
def _behind(keys: Any, a: int, b: int) -> bool:
    """Whether entry ``a`` sorts after entry ``b``."""
    for k in range(keys.shape[0]):
        if keys[k, a] != keys[k, b]:
            return bool(keys[k, a] > keys[k, b])
    return False


@njit("void(int64[:, ::1], int64[::1], int64[::1])", nogil=True, cache=True)
def _sort(keys: Any, order: Any, spare: Any) -> None:
    """Sorts ``order`` (indexes of entries) by the keys of the entries; a stable merge sort.
    ``spare`` is scratch of at least the same size."""
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
    """The indexes of the entries, sorted by group, then by ``keys``, then by index. ``group`` must
    be ascending already. ``keys`` has a line for each key, the most significant first (the reverse
    of ``numpy.lexsort``)."""
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


@njit("boolean(int64[:, ::1], int64[::1])", nogil=True, cache=True)
def _is_sorted(keys: Any, order: Any) -> bool:
    k = 1
    while k < order.size and not _behind(keys, order[k - 1], order[k]):
        k += 1
    return bool(k >= order.size)


@njit("int64(int64[:, ::1], int64[::1], int64, int64[:, ::1], int64)", nogil=True, cache=True)
def _take_chain(nodes: Any, control: Any, head: int, keys: Any, n: int) -> int:
    """Copies value, time and sequence of each node of a chain to the entries from ``n`` on and
    frees the nodes; returns the index behind the last entry."""
    at = head
    while at >= 0:
        keys[0, n], keys[1, n], keys[2, n] = nodes[at, FIRST], nodes[at, TIME], nodes[at, SEQUENCE]
        following = nodes[at, NEXT]
        free_node(nodes, control, NEXT, at)
        at, n = following, n + 1
    return n


@njit("int64(int64[::1], int64[::1], int64[::1])", nogil=True, cache=True)
def _first_of_few(entries: Any, order: Any, values: Any) -> int:
    """Writes the different values of a few entries to ``values``, in the order ``order``; returns
    their number."""
    n = 0
    for entry in order:
        value, k = entries[entry], 0
        while k < n and values[k] != value:
            k += 1
        if k == n:
            values[n] = value
            n += 1
    return n


@njit("int64(int64[:, ::1], int64[::1], int64[::1])", nogil=True, cache=True)
def _first_of_each_value(keys: Any, order: Any, spare: Any) -> int:
    """Sorts ``order`` by ``keys``, whose first key is the value, and moves the first entry of each
    value to the front; returns the number of different values."""
    _sort(keys, order, spare)
    n = 0
    for entry in order:
        if n == 0 or keys[0, entry] != keys[0, order[n - 1]]:
            order[n] = entry
            n += 1
    return n


@njit(
    "Tuple((int64[::1], int64[::1]))(int64[:, ::1], int64[::1], int64[::1], boolean, boolean)",
    nogil=True,
    cache=True,
)
def lists_of_chains(nodes: Any, control: Any, heads: Any, distinct: bool, by_time: bool) -> Any:
    """The values of the chains (see ``treap``) that begin at ``heads``, one chain after the other,
    and the number of values of each chain. Frees the nodes of the chains. ``distinct``: keeps of
    equal values the first one by time and sequence. ``by_time``: sorts the values of each chain by
    time and sequence."""
    counts = np.empty(heads.size, np.int64)
    n = count_chains(nodes, heads, counts)
    keys, values = np.empty((3, n), np.int64), np.empty(n, np.int64)
    order, spare = np.arange(n), np.empty(n, np.int64)
    first = made = 0
    for g in range(heads.size):
        end = _take_chain(nodes, control, heads[g], keys, first)
        part = order[first:end]
        first = end
        few = by_time and distinct and part.size <= _FEW
        if distinct and not few:
            part = part[: _first_of_each_value(keys, part, spare)]
        if by_time and not _is_sorted(keys[1:], part):
            _sort(keys[1:], part, spare)
        if few:
            counts[g] = _first_of_few(keys[0], part, values[made:])
        else:
            counts[g] = part.size
            for k in range(part.size):
                values[made + k] = keys[0, part[k]]
        made += counts[g]
    return values[:made], counts
