"""Own watermarks: which rows of a source are stragglers (computed once, serially, at ingest)."""

from __future__ import annotations

from typing import Any

from numba import njit

from cql.executor.unit import NEVER, STRAGGLER_WORDS


@njit(
    "UniTuple(int64, 2)(Array(int64, 1, 'C', readonly=True), Array(uint8, 1, 'C', readonly=True),"
    " int64, int64, int64, int64[::1])",
    nogil=True,
    cache=True,
)
def mark_stragglers(
    times: Any, valid: Any, slack: int, highest: int, attribute: int, records: Any
) -> Any:
    """A row below the source's progress just before it (the highest time so far - slack) is a
    straggler: (row, attribute, own watermark) goes to ``records`` (room for all rows). ``valid`` is
    empty when there are no NULLs. Returns (stragglers, highest time)."""
    n = 0
    for i in range(times.size):
        if valid.size > 0 and valid[i] == 0:
            continue
        t = times[i]
        if t >= highest:
            highest = t
        elif highest > NEVER + slack and t < highest - slack:
            records[STRAGGLER_WORDS * n] = i
            records[STRAGGLER_WORDS * n + 1] = attribute
            records[STRAGGLER_WORDS * n + 2] = highest - slack
            n += 1
    return n, highest
