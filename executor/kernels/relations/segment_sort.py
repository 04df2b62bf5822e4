"""Sorts entries within consecutive groups, as ``numpy.lexsort`` over all entries would, for small
groups; and turns a chain of values (``treap``) into a list, or into its different values."""

from __future__ import annotations

from typing import Any

import numpy as np

from cql.executor.jit.decorators import cfunc, njit
from cql.executor.kernels.lib.dictionary import add_text
from cql.executor.kernels.lib.memory import as_f32, as_i32, f64_of_bits, put_integer, words
from cql.executor.kernels.lib.treap import (
    BY_TIME,
    CHAIN,
    DICTIONARY,
    ELEMENT,
    FIRST,
    FREE_NODE,
    LIST_DEPTH,
    LOG,
    NEXT,
    SEQUENCE,
    TIME,
    WIDTH,
)

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


# -- the chains of sessions ------------------------------------------------------------------------


@njit("int64[:, ::1](int64, int64, int64)", nogil=True, cache=True)
def _keys_of(nodes: int, width: int, head: int) -> Any:
    """Value, time and sequence of the nodes of a chain, a line for each."""
    n, at = 0, head
    while at >= 0:
        n, at = n + 1, words(nodes + 8 * width * at, width)[NEXT]
    keys = np.empty((3, n), np.int64)
    n, at = 0, head
    while at >= 0:
        node = words(nodes + 8 * width * at, width)
        keys[0, n], keys[1, n], keys[2, n] = node[FIRST], node[TIME], node[SEQUENCE]
        n, at = n + 1, node[NEXT]
    return keys


@njit("int64[::1](int64[:, ::1], boolean, boolean)", nogil=True, cache=True)
def _listed(keys: Any, distinct: bool, by_time: bool) -> Any:
    """The values of a list. ``distinct``: keeps of equal values the first one by time and sequence.
    ``by_time``: sorts the values by time and sequence."""
    n = keys.shape[1]
    order, values = np.arange(n), np.empty(n, np.int64)
    few = by_time and distinct and n <= _FEW
    if distinct and not few:
        order = order[: _first_of_each_value(keys, order, values)]
    if by_time and not _is_sorted(keys[1:], order):
        _sort(keys[1:], order, np.empty(n, np.int64))
    if few:
        return values[: _first_of_few(keys[0], order, values)]
    for k in range(order.size):
        values[k] = keys[0, order[k]]
    return values[: order.size]


@njit("int64(int64[::1], int64, int64)", nogil=True, cache=True)
def _pack(values: Any, size: int, at: int) -> int:
    """Writes the entry of an array (``planner.interpret.entries``) to the address ``at``: their
    number, then the values in ``size`` bytes each; returns the bytes. ``size`` is negative for
    fractions, whose words are the bits of a double."""
    n = values.size
    as_i32(at, 1)[0] = n
    at += 4
    if size == -4:
        for k in range(n):
            as_f32(at, n)[k] = f64_of_bits(values[k])
    elif abs(size) < 8:
        for k in range(n):
            put_integer(at, size, k, values[k])
    else:
        for k in range(n):
            words(at, n)[k] = values[k]
    return int(4 + abs(size) * n)


@njit("int64(int64[::1], int64[::1], int64)", nogil=True, cache=True)
def _code_of(w: Any, entry: Any, n: int) -> int:
    """The code of the ``n`` bytes in ``entry`` behind the first four: the values of an array lie at
    a multiple of 8 then. (``entry`` is an argument, so that it lives until it is copied.)"""
    return int(add_text(w[DICTIONARY], entry.ctypes.data + 4, n, w[LIST_DEPTH]))


@njit("int64(int64, int64, boolean)", nogil=True, cache=True)
def _encoded(log: int, head: int, distinct: bool) -> int:
    w = words(log, len(LOG))
    values = _listed(_keys_of(w[CHAIN], w[WIDTH], head), distinct, w[BY_TIME] != 0)
    entry = np.empty(values.size + 1, np.int64)
    return _code_of(w, entry, _pack(values, w[ELEMENT], entry.ctypes.data + 4))


@cfunc("int64(int64, int64)", nopython=True, cache=True)
def list_of_chain(log: Any, head: Any) -> Any:
    """The code of the list of the values of a chain, which stays as it is; -1 if the dictionary has
    no room. ``log`` is the address of the words LOG."""
    return _encoded(log, head, False)


@cfunc("int64(int64, int64)", nopython=True, cache=True)
def set_of_chain(log: Any, head: Any) -> Any:
    """``list_of_chain`` of the different values."""
    return _encoded(log, head, True)


@njit("void(int64, int64)", nogil=True, cache=True)
def _free_nodes(log: int, at: int) -> None:
    """Frees the node ``at`` (-1: none) and those behind it."""
    w = words(log, len(LOG))
    while at >= 0:
        node = words(w[CHAIN] + 8 * w[WIDTH] * at, w[WIDTH])
        following: Any = node[NEXT]
        for word in range(w[WIDTH]):
            node[word] = -1  # compaction of the dictionary must not keep the node's codes
        node[NEXT] = w[FREE_NODE]
        w[FREE_NODE] = at
        at = following


@cfunc("int64(int64, int64)", nopython=True, cache=True)
def free_chain(log: Any, head: Any) -> Any:
    """Frees the nodes of a chain."""
    _free_nodes(log, head)
    return 0


@cfunc("int64(int64, int64)", nopython=True, cache=True)
def keep_different(log: Any, head: Any) -> Any:
    """Shortens a chain to its different values, ascending; returns their number."""
    if head < 0:
        return 0
    w = words(log, len(LOG))
    values = _listed(_keys_of(w[CHAIN], w[WIDTH], head), True, False)
    at = last = head
    for k in range(values.size):
        node = words(w[CHAIN] + 8 * w[WIDTH] * at, w[WIDTH])
        node[FIRST] = values[k]
        last, at = at, node[NEXT]
    words(w[CHAIN] + 8 * w[WIDTH] * last, w[WIDTH])[NEXT] = -1
    _free_nodes(log, at)
    return values.size
