"""Days of a time zone. ``table`` is the flattened ``cql.base.zones.ZoneDays``: ``n`` instants, then
``n`` offsets, then ``n`` first days. A stretch is the time between two changes of the offset."""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import njit


@njit(nogil=True, error_model="numpy")
def zone_day(instant: int, table: Any, n: int) -> int:
    """The number of the day that holds ``instant`` (microseconds)."""
    low, high = 0, n  # find the last stretch that begins at or before ``instant``
    while high - low > 1:
        middle = (low + high) >> 1
        if table[middle] <= instant:
            low = middle
        else:
            high = middle
    return max((instant + table[n + low]) // 86_400_000_000, table[2 * n + low])


@njit(nogil=True, error_model="numpy")
def zone_start(day: int, table: Any, n: int) -> int:
    """The first instant of ``day``, in microseconds."""
    low, high = 0, n  # find the last stretch that begins before ``day`` is reached
    while high - low > 1:
        middle = (low + high) >> 1
        if table[2 * n + middle] < day:
            low = middle
        else:
            high = middle
    return max(day * 86_400_000_000 - table[n + low], table[low])
