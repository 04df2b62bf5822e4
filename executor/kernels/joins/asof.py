"""ASOF joins: rows of two sides in the order of their times, met key by key."""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import njit

_WORDS = "int64[::1]"


@njit(
    f"void({_WORDS}, {_WORDS}, {_WORDS}, {_WORDS}, boolean, {_WORDS}, {_WORDS})",
    nogil=True,
    cache=True,
)
def nearest(
    left_times: Any,
    left_ids: Any,
    right_times: Any,
    right_ids: Any,
    first: bool,
    last: Any,
    found: Any,
) -> None:
    """``found``: of each left row, the last right row with its id at its time or before it, -1 if
    there is none here. ``last``, by id, is -1 on entry, and on return the last right row of each.
    Both sides rise with time; of right rows of one time the last counts, or the ``first``. A left
    row with an id below 0 finds none."""
    j = 0
    for i in range(left_times.size + 1):
        rows = right_times.size
        if i < left_times.size:
            while j < rows and right_times[j] <= left_times[i]:
                k = right_ids[j]
                if not (first and last[k] >= 0 and right_times[last[k]] == right_times[j]):
                    last[k] = j
                j += 1
            found[i] = last[left_ids[i]] if left_ids[i] >= 0 else -1
        else:
            while j < rows:
                last[right_ids[j]] = j
                j += 1
