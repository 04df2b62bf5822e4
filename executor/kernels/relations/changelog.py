"""Changelogs, instant by instant: RSTREAM, and LIMIT.

The changes of a changelog are sorted by time: ``times``, ``weights``, ``ids`` (of the row, from a
group index). The output names each row by its id.
"""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import njit


@njit(
    "int64(int64[::1], int64[::1], int64[::1], int64[::1], int64)",
    nogil=True,
    cache=True,
)
def count_relations(times: Any, weights: Any, ids: Any, held: Any, rows: int) -> int:
    """The number of rows that ``whole_relations`` will write, given that the relation has ``rows``
    rows before the changes. Leaves ``held`` (the multiplicity by row id) as it was."""
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
    """Writes all rows of the relation for each instant that has changes (RSTREAM).

    The rows of the relation form a linked list in the order in which they entered: ``before`` and
    ``after`` hold the neighbours of each row id (-1: none); ``control`` holds the first row id, the
    last row id, and the number of rows. ``held`` is the multiplicity by row id."""
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
    """Compares rows ``a`` and ``b`` by their sort words, then by arrival: below 0 if ``a`` sorts
    first, above 0 if ``b`` does. ``texts[w]`` is 1 if word ``w`` is a text code that sorts by its
    ``rank``, and 2 if it sorts by its rank in descending order."""
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
    """The place of a row in the sorted first ``n`` entries of ``order``, by binary search; for a
    row that is not there, the place where it belongs."""
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
    """Skips the first ``offset`` copies of the sorted rows and takes the next ``limit`` copies (-1:
    all). Writes to ``chosen`` the ids of the rows taken, to ``now`` the copies taken of each, and
    to ``control[2]`` the number of rows taken."""
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
    """Applies changes to a sorted relation and writes the changes of its LIMIT: of the ``limit``
    copies (-1: all) behind the first ``offset`` copies. Returns the number of changes written, at
    most four for each copy that enters or leaves.

    ``order`` holds the row ids in sort order, ``control[0]`` of them; ``held`` is the multiplicity
    of each id in the relation; ``first`` holds the ids in the result, ``control[3]`` of them;
    ``shown`` is the multiplicity of each id in the result; ``control[1]`` counts arrivals. ``now``
    (zeros on entry and on return) and ``chosen`` are scratch. ``words``, ``arrival``, ``texts`` and
    ``rank``: see ``order_of``."""
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
