"""ROW_NUMBER() over a changing relation. Each partition has a treap of its rows in sort order
(``treap``) and a chain of the rows that the output shows."""

from __future__ import annotations

from typing import Any

import numpy as np

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.treap import COUNT, DEPTH, LEFT, RIGHT, TOTAL, VALUE, count_change
from cql.executor.kernels.relations.changelog import order_of

#: Words of ``place``, from which a run that lacked room continues: changes that are applied;
#: partitions of the current instant that have written their changes; partitions that the instant
#: touches; lines written. COME counts the arrivals of rows.
ROWS, WRITTEN, MANY, MADE, COME = range(5)


@njit(
    "void(int64[:, ::1], int64[::1], int64[::1], int64, int64, int64[:, ::1], int64[::1],"
    " uint8[::1], int32[::1], int64[::1])",
    nogil=True,
    cache=True,
)
def _enter(
    nodes: Any,
    control: Any,
    root: Any,
    row: int,
    weight: int,
    words: Any,
    arrival: Any,
    texts: Any,
    rank: Any,
    path: Any,
) -> None:
    """Adds ``weight`` copies of a row to its partition, or removes copies if ``weight`` is
    negative."""
    depth = 0
    at = root[0]
    found = left = False
    while at >= 0 and not found:
        path[depth] = at
        depth += 1
        other = nodes[at, VALUE]
        found = other == row
        left = order_of(words, arrival, texts, rank, row, other) < 0
        at = nodes[at, LEFT] if left else nodes[at, RIGHT]
    count_change(nodes, control, root, row, weight, found, left, path, depth, False)


@njit(
    "int64(int64[:, ::1], int64, int64, int64[::1], int64[::1], int64[::1], int64[::1])",
    nogil=True,
    cache=True,
)
def _first(
    nodes: Any, root: int, limit: int, chosen: Any, now_first: Any, now_many: Any, path: Any
) -> int:
    """Finds the rows with the row numbers 1 to ``limit`` (-1: all rows). Writes their ids to
    ``chosen``, the first number of each to ``now_first`` and the count of its numbers to
    ``now_many``. Returns the number of rows."""
    depth = rows = 0
    passed = 0
    at = root
    while (at >= 0 or depth > 0) and (limit < 0 or passed < limit):
        while at >= 0:
            path[depth] = at
            depth += 1
            at = nodes[at, LEFT]
        depth -= 1
        at = path[depth]
        row, many = nodes[at, VALUE], nodes[at, COUNT]
        if limit >= 0:
            many = min(many, limit - passed)
        chosen[rows] = row
        now_first[row], now_many[row] = passed + 1, many
        passed += many
        rows += 1
        at = nodes[at, RIGHT]
    return rows


@njit(
    "void(int64[:, ::1], int64[::1], int64[::1], int64, int64[::1], int64[::1])",
    nogil=True,
    cache=True,
)
def _forget(nodes: Any, control: Any, root: Any, limit: int, held: Any, path: Any) -> None:
    """Drops the last rows of a partition as long as the rows before them fill the limit."""
    while root[0] >= 0:
        depth, at = 0, root[0]
        while at >= 0:
            path[depth] = at
            depth += 1
            at = nodes[at, RIGHT]
        last = path[depth - 1]
        row, many = nodes[last, VALUE], nodes[last, COUNT]
        if nodes[root[0], TOTAL] - many < limit:
            return
        held[row] = 0
        count_change(nodes, control, root, row, -many, True, False, path, depth, False)


@njit("int64(int64[:, ::1], int64, int64, int64, int64, int64)", nogil=True, cache=True)
def _write_line(out: Any, made: int, row: int, number: int, time: int, weight: int) -> int:
    out[made, 0], out[made, 1], out[made, 2], out[made, 3] = row, number, time, weight
    return made + 1


@njit(
    "int64(int64[::1], int64[::1], int64[::1], int64[::1], int64, int64[:, ::1], int64[::1],"
    " int64[::1], int64[::1], uint8[::1], int64[::1], int64[:, ::1], uint8[::1], int32[::1],"
    " int64[:, ::1], int64[::1], int64[::1], int64[:, ::1], boolean)",
    nogil=True,
    cache=True,
)
def number_rows(
    times: Any,
    weights: Any,
    ids: Any,
    partitions: Any,
    limit: int,
    nodes: Any,
    control: Any,
    roots: Any,
    heads: Any,
    marked: Any,
    touched: Any,
    words: Any,
    texts: Any,
    rank: Any,
    rows: Any,
    place: Any,
    chosen: Any,
    out: Any,
    forget: bool,
) -> int:
    """Applies changes and writes the changes of the numbered rows as lines (row, number, time,
    weight) of ``out``, ``place[MADE]`` lines. Returns 0, or, if ``out`` is too small, the number of
    lines that it must hold; the caller then calls again and the run continues.

    ``rows`` has seven lines, each indexed by row id: the copies held; the arrival; the next row in
    the chain of shown rows; the first number with which the row is shown and the count of these
    numbers; the first number at the current instant and its count. ``heads`` is the first shown row
    of each partition. With ``forget``, rows behind the limit are dropped. ``marked`` (by partition,
    zeros on entry) and ``touched`` are scratch. ``words``, ``texts`` and ``rank``: see
    ``changelog.order_of``."""
    held, arrival, following, shown, shown_many, now, now_many = (
        rows[0], rows[1], rows[2], rows[3], rows[4], rows[5], rows[6],
    )  # fmt: skip
    path = np.empty(DEPTH, np.int64)
    i = place[ROWS]
    while i < times.size or place[WRITTEN] < place[MANY]:
        if place[WRITTEN] >= place[MANY]:
            place[WRITTEN] = place[MANY] = 0
            now_time = times[i]
            while i < times.size and times[i] == now_time:
                row, q = ids[i], partitions[i]
                if held[row] == 0:
                    arrival[row] = place[COME]
                    place[COME] += 1
                if weights[i] != 0:
                    held[row] += weights[i]
                    _enter(nodes, control, roots[q : q + 1], row, weights[i], words, arrival,
                           texts, rank, path)  # fmt: skip
                if marked[q] == 0:
                    marked[q] = 1
                    touched[place[MANY]] = q
                    place[MANY] += 1
                i += 1
            place[ROWS] = i
            for j in range(place[MANY]):
                marked[touched[j]] = 0
        time = times[i - 1]
        while place[WRITTEN] < place[MANY]:
            q = touched[place[WRITTEN]]
            n = _first(nodes, roots[q], limit, chosen, now, now_many, path)
            wanted = place[MADE]
            row = heads[q]
            while row >= 0:
                wanted += shown_many[row]
                row = following[row]
            for j in range(n):
                wanted += now_many[chosen[j]]
            if wanted > out.shape[0]:
                for j in range(n):
                    now_many[chosen[j]] = 0
                return int(wanted)
            made = place[MADE]
            row = heads[q]
            while row >= 0:
                for number in range(shown[row], shown[row] + shown_many[row]):
                    if number < now[row] or number >= now[row] + now_many[row]:
                        made = _write_line(out, made, row, number, time, -1)
                row = following[row]
            for j in range(n):
                row = chosen[j]
                for number in range(now[row], now[row] + now_many[row]):
                    if number < shown[row] or number >= shown[row] + shown_many[row]:
                        made = _write_line(out, made, row, number, time, 1)
            row = heads[q]
            while row >= 0:
                shown_many[row] = 0
                row = following[row]
            heads[q] = chosen[0] if n > 0 else -1
            for j in range(n):
                row = chosen[j]
                following[row] = chosen[j + 1] if j + 1 < n else -1
                shown[row], shown_many[row] = now[row], now_many[row]
                now_many[row] = 0
            place[MADE] = made
            place[WRITTEN] += 1
            if forget:
                _forget(nodes, control, roots[q : q + 1], limit, held, path)
    return 0
