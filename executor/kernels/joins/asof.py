"""ASOF joins: merges the rows of two sides in time order and matches them by key."""

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
    """Finds for each left row the latest right row of the same key id at or before its time.

    Both sides are sorted by time, ascending. ``found[i]`` receives the index of the right row for
    left row ``i``, or -1 if these right rows hold none; a left row with an id below 0 always
    receives -1. Among right rows of one id and one time the last one matches, or the first one if
    ``first`` is true. ``last``, indexed by id, must be -1 on entry; on return it holds the index of
    the last right row of each id."""
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
