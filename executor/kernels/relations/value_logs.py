"""The value logs of an aggregate over a changing relation: the values that it keeps beside the
states of its groups (``operators.aggregates.changelog_values``).

A log *counts* different values, in a treap per group, or *lists* rows in order of arrival, in a
chain per group (``kernels.lib.treap``). The functions below apply the rows of a piece to a log, and
free the values of groups that are gone. Of the log, a native operator has a line of WORDS words.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.memory import as_u8, lines, words
from cql.executor.kernels.lib.treap import (
    COUNT,
    DEPTH,
    FIRST,
    LEFT,
    MOST,
    NEXT,
    RIGHT,
    SEQUENCE,
    TIME,
    TOTAL,
    VALUE,
    count_value,
    forget_chains,
    forget_treaps,
    free_node,
    take_node,
)

#: Number of values returned around a requested place: rounding may have moved the place by one.
NEAR = 4
#: Words of a log: addresses of its nodes and their number, words of a node; addresses of its
#: control (``treap``), per group of the root (counted) or of the first and last node (listed), per
#: group of the number of rows (listed; 0: counted), and per group of whether the values have
#: changed since they were last reported.
NODES, NODE_COUNT, NODE_WORDS, CONTROL, ROOTS, SIZES, STALE = range(7)
WORDS = 7
_CONTROL_WORDS = 4


@njit("void(int64, int64, int64, int64[::1])", nogil=True, cache=True)
def forget_values(logs: int, many: int, capacity: int, gone: Any) -> None:
    """Drops the values of the groups ``gone``, of ``capacity`` groups, in the ``many`` logs whose
    words are at ``logs``."""
    for k in range(many):
        log = words(logs + 8 * WORDS * k, WORDS)
        nodes = lines(log[NODES], log[NODE_COUNT], log[NODE_WORDS])
        control, stale = words(log[CONTROL], _CONTROL_WORDS), as_u8(log[STALE], capacity)
        for j in range(gone.size):
            stale[gone[j]] = 1
        if log[SIZES] == 0:
            forget_treaps(nodes, control, words(log[ROOTS], capacity), gone)
            continue
        forget_chains(nodes, control, lines(log[ROOTS], capacity, 2), gone)
        sizes = words(log[SIZES], capacity)
        for j in range(gone.size):
            sizes[gone[j]] = 0


@njit("int64(int64[:, ::1], int64, int64, boolean)", nogil=True, cache=True)
def _value_at(nodes: Any, root: int, place: int, distinct: bool) -> int:
    """The value at a place (from 0) in ascending order."""
    at = root
    while True:
        left = nodes[at, LEFT]
        below = nodes[left, TOTAL] if left >= 0 else 0
        own = 1 if distinct else nodes[at, COUNT]
        if place < below:
            at = left
        elif place < below + own:
            return int(nodes[at, VALUE])
        else:
            place -= below + own
            at = nodes[at, RIGHT]


@njit("int64(int64[:, ::1], int64, boolean, boolean)", nogil=True, cache=True)
def _most_frequent(nodes: Any, root: int, distinct: bool, descending: bool) -> int:
    """The most frequent value; among several, the least, or the largest if ``descending``."""
    first, last = (RIGHT, LEFT) if descending else (LEFT, RIGHT)
    at = root
    most = nodes[root, MOST]
    while True:
        before = nodes[at, first]
        own = 1 if distinct else nodes[at, COUNT]
        if before >= 0 and nodes[before, MOST] == most:
            at = before
        elif own == most:
            return int(nodes[at, VALUE])
        else:
            at = nodes[at, last]


@njit("int64(int64[:, ::1], int64, int64[::1], int64, int64[::1])", nogil=True, cache=True)
def _in_order(nodes: Any, root: int, out: Any, first: int, path: Any) -> int:
    """Writes the values in ascending order to ``out`` from ``first`` on; returns the end."""
    depth = 0
    at = root
    while at >= 0 or depth > 0:
        while at >= 0:
            path[depth] = at
            depth += 1
            at = nodes[at, LEFT]
        depth -= 1
        at = path[depth]
        out[first] = nodes[at, VALUE]
        first += 1
        at = nodes[at, RIGHT]
    return first


@njit(
    "int64(int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], uint8[::1], int64[::1])",
    nogil=True,
    cache=True,
)
def pairs_of(
    times: Any, owners: Any, pair_owner: Any, row_stop: Any, pair_stop: Any, marked: Any, ends: Any
) -> int:
    """Writes the pairs (instant, group): for each instant, the groups of its rows in the order of
    their first rows. ``pair_owner`` is the group of each pair; ``row_stop[i]`` and ``pair_stop[i]``
    are the ends of the rows and pairs of instant i. Returns the number of instants and writes the
    number of pairs to ``ends[0]``."""
    pairs = instants = i = 0
    while i < times.size:
        now, first = times[i], pairs
        while i < times.size and times[i] == now:
            if marked[owners[i]] == 0:
                marked[owners[i]] = 1
                pair_owner[pairs] = owners[i]
                pairs += 1
            i += 1
        for p in range(first, pairs):
            marked[pair_owner[p]] = 0
        row_stop[instants], pair_stop[instants] = i, pairs
        instants += 1
    ends[0] = pairs
    return instants


@njit(
    "int64(int64[:, ::1], int64[::1], int64[::1], uint8[::1], int64[::1], int64[::1], uint8[::1],"
    " int64[::1], int64, int32[::1], boolean, int64[::1], int64[::1], int64[::1], int64,"
    " int64[::1], uint8[::1], int64[::1], float64[::1], int64[::1], int64[:, :, ::1], boolean,"
    " int64[::1], int64[::1], int64[::1])",
    nogil=True,
    cache=True,
)
def count_values(
    nodes: Any,
    control: Any,
    roots: Any,
    stale: Any,
    owners: Any,
    weights: Any,
    kept: Any,
    words: Any,
    how: int,
    rank: Any,
    distinct: bool,
    pair_owner: Any,
    row_stop: Any,
    pair_stop: Any,
    instants: int,
    moved: Any,
    fresh: Any,
    totals: Any,
    shares: Any,
    kinds: Any,
    found: Any,
    lists: bool,
    first: Any,
    values: Any,
    place: Any,
) -> int:
    """Applies the rows that are ``kept`` to the treaps of their groups. Writes to ``fresh`` whether
    the values of a pair changed since they were last reported, and for such a pair:

    - ``totals``: the number of its values (written for every pair);
    - ``found[pair, k]``, the answer to question k. ``kinds[k]`` & 3 is 0 (the values about place
      share * (n - 1)), 1 (about place share * n - 1) or 2 (the most frequent value); ``kinds[k]``
      & 4 means descending order;
    - with ``lists``, all its values: ``values[first[pair] : first[pair + 1]]``.

    ``moved`` is 1 for a row whose value is new in its group, -1 for a row whose value is gone, else
    0. ``place`` holds the progress for the next call: 2 * instants done, plus 1 if the rows of the
    next instant are applied; values written. Returns 0, or the required size of ``values``; the
    caller then enlarges ``values`` and calls again.
    """
    path = np.empty(DEPTH, np.int64)
    start = place[0]
    for i in range(start >> 1, instants):
        if start & 1 == 0 or i > start >> 1:
            for r in range(row_stop[i - 1] if i else 0, row_stop[i]):
                moved[r] = 0
                if kept[r] and weights[r] != 0:
                    q = owners[r]
                    stale[q] = 1
                    moved[r] = count_value(
                        nodes, control, roots[q : q + 1], words[r], weights[r], how, rank,
                        distinct, path,
                    )  # fmt: skip
        begin = pair_stop[i - 1] if i else 0
        if lists:
            wanted = place[1]
            for p in range(begin, pair_stop[i]):
                root = roots[pair_owner[p]]
                if stale[pair_owner[p]] and root >= 0:
                    wanted += nodes[root, TOTAL]
            if wanted > values.size:
                place[0] = 2 * i + 1
                return int(wanted)
        for p in range(begin, pair_stop[i]):
            q = pair_owner[p]
            root = roots[q]
            fresh[p] = stale[q]
            stale[q] = 0
            totals[p] = nodes[root, TOTAL] if root >= 0 else 0
            if lists:
                first[p] = place[1]
                if fresh[p]:
                    place[1] = _in_order(nodes, root, values, place[1], path)
                first[p + 1] = place[1]
            if not fresh[p] or root < 0:
                continue
            n = totals[p]
            for k in range(kinds.size):
                down = kinds[k] & 4 != 0
                if kinds[k] & 3 == 2:
                    found[p, k, 0] = _most_frequent(nodes, root, distinct, down)
                    continue
                about = int(shares[k] * (n - 1)) - 1 if kinds[k] & 3 == 0 else (
                    int(shares[k] * n) - 2
                )  # fmt: skip
                for j in range(NEAR):
                    at = min(max(about + j, 0), n - 1)
                    found[p, k, j] = _value_at(nodes, root, n - 1 - at if down else at, distinct)
    return 0


@njit(
    "int64(int64[:, ::1], int64[::1], int64[:, ::1], int64[::1], uint8[::1], int64[::1],"
    " int64[::1], uint8[::1], int64[:, ::1], int64[::1], int64, boolean, int64[::1], int64[::1],"
    " int64[::1], int64, uint8[::1], int64[::1], int64[:, ::1], int64[::1])",
    nogil=True,
    cache=True,
)
def list_values(
    nodes: Any,
    control: Any,
    ends: Any,
    sizes: Any,
    stale: Any,
    owners: Any,
    weights: Any,
    kept: Any,
    words: Any,
    times: Any,
    sequence: int,
    by_entry: bool,
    pair_owner: Any,
    row_stop: Any,
    pair_stop: Any,
    instants: int,
    fresh: Any,
    owner_of: Any,
    lines: Any,
    place: Any,
) -> int:
    """Applies the rows that are ``kept`` to the chains of their groups (``ends``: first and last
    node). Writes to ``fresh`` whether the chain of a pair changed since it was last reported, and
    for such a pair all rows of its chain: ``lines`` gets time, sequence and words, ``owner_of`` the
    pair. A removal takes the first of the equal rows; with ``by_entry``, the first of the equal
    rows that entered at the removal's time. ``place`` and the result: see ``count_values``; the
    result is the required size of ``owner_of``."""
    width = words.shape[1]
    start = place[0]
    for i in range(start >> 1, instants):
        if start & 1 == 0 or i > start >> 1:
            for r in range(row_stop[i - 1] if i else 0, row_stop[i]):
                if not kept[r] or weights[r] == 0:
                    continue
                q = owners[r]
                stale[q] = 1
                for _ in range(weights[r]):
                    node = take_node(nodes, control, NEXT)
                    nodes[node, NEXT] = -1
                    nodes[node, TIME], nodes[node, SEQUENCE] = times[r], sequence + r
                    for w in range(width):
                        nodes[node, FIRST + w] = words[r, w]
                    if ends[q, 0] < 0:
                        ends[q, 0] = node
                    else:
                        nodes[ends[q, 1], NEXT] = node
                    ends[q, 1] = node
                    sizes[q] += 1
                for _ in range(-weights[r]):
                    before, at = -1, ends[q, 0]
                    while at >= 0:
                        same = not by_entry or nodes[at, TIME] == times[r]
                        for w in range(width):
                            same = same and nodes[at, FIRST + w] == words[r, w]
                        if same:
                            break
                        before, at = at, nodes[at, NEXT]
                    if at < 0:
                        continue
                    following = nodes[at, NEXT]
                    if before < 0:
                        ends[q, 0] = following
                    else:
                        nodes[before, NEXT] = following
                    if following < 0:
                        ends[q, 1] = before
                    sizes[q] -= 1
                    free_node(nodes, control, NEXT, at)
        begin, wanted = pair_stop[i - 1] if i else 0, place[1]
        for p in range(begin, pair_stop[i]):
            if stale[pair_owner[p]]:
                wanted += sizes[pair_owner[p]]
        if wanted > owner_of.size:
            place[0] = 2 * i + 1
            return int(wanted)
        for p in range(begin, pair_stop[i]):
            q = pair_owner[p]
            fresh[p] = stale[q]
            stale[q] = 0
            at = ends[q, 0] if fresh[p] else -1
            while at >= 0:
                n = place[1]
                owner_of[n] = p
                for w in range(2 + width):
                    lines[n, w] = nodes[at, TIME + w]
                place[1] += 1
                at = nodes[at, NEXT]
    return 0
