"""Changing relations, instant by instant: multiplicities, the whole of RSTREAM, the first of LIMIT.

Changes come in the order of their times: ``times``, ``weights``, ``ids`` (of the row, from a group
index). An operator reports a row by its id.
"""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import njit

DISTINCT, EXCEPT, INTERSECT, EXCEPT_ALL, INTERSECT_ALL = 0, 1, 2, 3, 4


@njit("int64(int64, int64, int64)", nogil=True, cache=True)
def multiplicity(kind: int, left: int, right: int) -> int:
    """How often a row is in the result that is ``left`` and ``right`` times in the inputs."""
    if kind == DISTINCT:
        return int(left > 0)
    if kind == EXCEPT:
        return int(left > 0 and right <= 0)
    if kind == INTERSECT:
        return int(left > 0 and right > 0)
    if kind == EXCEPT_ALL:
        return max(left - max(right, 0), 0)
    return max(min(left, right), 0)


@njit(
    "int64(int64, int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1],"
    " int64[::1], uint8[::1], int64[::1], int64[::1], int64[::1], int64[::1])",
    nogil=True,
    cache=True,
)
def combine(
    kind: int,
    times: Any,
    weights: Any,
    sides: Any,
    ids: Any,
    left: Any,
    right: Any,
    shown: Any,
    marked: Any,
    touched: Any,
    out_ids: Any,
    out_times: Any,
    out_weights: Any,
) -> int:
    """Changes of the multiplicity of rows; returns how many (at most as many as come in)."""
    out = 0
    i = 0
    while i < times.size:
        t = times[i]
        n = 0
        while i < times.size and times[i] == t:
            k = ids[i]
            if sides[i] == 0:
                left[k] += weights[i]
            else:
                right[k] += weights[i]
            if marked[k] == 0:
                marked[k] = 1
                touched[n] = k
                n += 1
            i += 1
        for j in range(n):
            k = touched[j]
            marked[k] = 0
            now = multiplicity(kind, left[k], right[k])
            if now != shown[k]:
                out_ids[out] = k
                out_times[out] = t
                out_weights[out] = now - shown[k]
                shown[k] = now
                out += 1
    return out


@njit(
    "int64(int64[::1], int64[::1], int64[::1], int64[::1], int64)",
    nogil=True,
    cache=True,
)
def count_relations(times: Any, weights: Any, ids: Any, held: Any, rows: int) -> int:
    """How many rows ``whole_relations`` gives, where the relation has ``rows`` so far; leaves
    ``held`` as it is."""
    out = 0
    for i in range(times.size):
        k = ids[i]
        rows -= max(held[k], 0)
        held[k] += weights[i]
        rows += max(held[k], 0)
        if i + 1 == times.size or times[i + 1] != times[i]:
            out += rows
    for i in range(times.size):
        held[ids[i]] -= weights[i]
    return out


@njit(
    "void(int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1],"
    " int64[::1], int64[::1])",
    nogil=True,
    cache=True,
)
def whole_relations(
    times: Any,
    weights: Any,
    ids: Any,
    held: Any,
    before: Any,
    after: Any,
    control: Any,
    out_ids: Any,
    out_times: Any,
) -> None:
    """All rows of the relation, at each instant that has changes. Those that are there are a list
    in the order of their coming: ``before`` and ``after`` each (-1: none); ``control`` has the
    first, the last, and how many rows there are."""
    out = 0
    for i in range(times.size):
        k = ids[i]
        was = max(held[k], 0)
        held[k] += weights[i]
        now = max(held[k], 0)
        control[2] += now - was
        if was == 0 and now > 0:
            before[k], after[k] = control[1], -1
            if control[1] >= 0:
                after[control[1]] = k
            else:
                control[0] = k
            control[1] = k
        elif was > 0 and now == 0:
            if before[k] >= 0:
                after[before[k]] = after[k]
            else:
                control[0] = after[k]
            if after[k] >= 0:
                before[after[k]] = before[k]
            else:
                control[1] = before[k]
        if i + 1 == times.size or times[i + 1] != times[i]:
            k = control[0]
            while k >= 0:
                for _ in range(held[k]):
                    out_ids[out] = k
                    out_times[out] = times[i]
                    out += 1
                k = after[k]


@njit(
    "int64(int64[:, ::1], int64[::1], uint8[::1], int32[::1], int64, int64)",
    nogil=True,
    cache=True,
)
def order_of(words: Any, arrival: Any, texts: Any, rank: Any, a: int, b: int) -> int:
    """Below zero if row a stands before row b."""
    for w in range(words.shape[1]):
        x, y = words[a, w], words[b, w]
        if texts[w] == 1:
            x, y = rank[x], rank[y]
        elif texts[w] == 2:
            x, y = -rank[x], -rank[y]
        if x != y:
            return -1 if x < y else 1
    return -1 if arrival[a] < arrival[b] else int(arrival[a] > arrival[b])


@njit(
    "int64(int64[:, ::1], int64[::1], uint8[::1], int32[::1], int64[::1], int64, int64)",
    nogil=True,
    cache=True,
)
def _place(words: Any, arrival: Any, texts: Any, rank: Any, order: Any, n: int, row: int) -> int:
    """Where the row stands, or would stand, among the first ``n`` of ``order``."""
    low, high = 0, n
    while low < high:
        middle = (low + high) >> 1
        if order_of(words, arrival, texts, rank, order[middle], row) < 0:
            low = middle + 1
        else:
            high = middle
    return low


@njit(
    "void(int64, int64, int64[::1], int64[::1], int64[::1], int64[::1], int64[::1])",
    nogil=True,
    cache=True,
)
def _choose(
    limit: int, offset: int, order: Any, held: Any, now: Any, chosen: Any, control: Any
) -> None:
    """The copies behind the first ``offset`` ones, ``limit`` of them: ``now`` of each row."""
    n = 0
    passed = 0
    for j in range(control[0]):
        if limit >= 0 and passed >= offset + limit:
            break
        k = order[j]
        first = max(passed, offset)
        passed += held[k]
        last = passed if limit < 0 else min(passed, offset + limit)
        if last > first:
            now[k] = last - first
            chosen[n] = k
            n += 1
    control[2] = n


@njit(
    "int64(int64[::1], int64[::1], int64[::1], int64, int64, int64[:, ::1], int64[::1],"
    " uint8[::1], int32[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1],"
    " int64[::1], int64[::1], int64[::1], int64[::1], int64[::1])",
    nogil=True,
    cache=True,
)
def first_rows(
    times: Any,
    weights: Any,
    ids: Any,
    limit: int,
    offset: int,
    words: Any,
    arrival: Any,
    texts: Any,
    rank: Any,
    order: Any,
    held: Any,
    shown: Any,
    now: Any,
    first: Any,
    chosen: Any,
    control: Any,
    out_ids: Any,
    out_times: Any,
    out_weights: Any,
) -> int:
    """Changes of the rows from ``offset`` on, ``limit`` of them (-1: all); returns how many, at
    most four for each copy that comes or goes. ``order`` are the ids in order, ``control[0]`` of
    them; ``held`` the copies of each in the relation; ``first`` the ids that are shown,
    ``control[3]`` of them, ``shown`` times each; ``control[1]`` counts arrivals."""
    out = 0
    i = 0
    while i < times.size:
        t = times[i]
        while i < times.size and times[i] == t:
            k = ids[i]
            if held[k] == 0:
                arrival[k] = control[1]
                control[1] += 1
                at = _place(words, arrival, texts, rank, order, control[0], k)
                for j in range(control[0], at, -1):
                    order[j] = order[j - 1]
                order[at] = k
                control[0] += 1
            held[k] += weights[i]
            if held[k] == 0:
                at = _place(words, arrival, texts, rank, order, control[0], k)
                for j in range(at, control[0] - 1):
                    order[j] = order[j + 1]
                control[0] -= 1
            i += 1
        _choose(limit, offset, order, held, now, chosen, control)
        for j in range(control[3]):
            k = first[j]
            if now[k] < shown[k]:
                out_ids[out], out_times[out], out_weights[out] = k, t, now[k] - shown[k]
                out += 1
                shown[k] = now[k]
        for j in range(control[2]):
            k = chosen[j]
            if now[k] > shown[k]:
                out_ids[out], out_times[out], out_weights[out] = k, t, now[k] - shown[k]
                out += 1
                shown[k] = now[k]
            first[j] = k
            now[k] = 0
        control[3] = control[2]
    return out
