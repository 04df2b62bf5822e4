"""Changelogs, instant by instant: RSTREAM.

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
