"""Days of a time zone, from the table of ``cql.base.zones.ZoneDays``: ``instants``, then
``offsets``, then ``firsts``, ``n`` of each."""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import njit


@njit(nogil=True, error_model="numpy")
def zone_day(instant: int, table: Any, n: int) -> int:
    """The number of the day that holds ``instant``."""
    low, high = 0, n  # the last stretch that begins at or before it
    while high - low > 1:
        middle = (low + high) >> 1
        if table[middle] <= instant:
            low = middle
        else:
            high = middle
    return max((instant + table[n + low]) // 86_400_000_000, table[2 * n + low])


@njit(nogil=True, error_model="numpy")
def zone_start(day: int, table: Any, n: int) -> int:
    """The first instant of ``day``."""
    low, high = 0, n  # the last stretch before which no such day had been reached
    while high - low > 1:
        middle = (low + high) >> 1
        if table[2 * n + middle] < day:
            low = middle
        else:
            high = middle
    return max(day * 86_400_000_000 - table[n + low], table[low])
