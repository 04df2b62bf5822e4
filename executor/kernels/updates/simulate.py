"""An update queue and one server under a virtual clock: updates arrive at given times, and each
takes the same time from dequeue to delivery (UpStream report, sections 5 and 7.3)."""

from __future__ import annotations

from typing import Any

import numpy as np

from cql.executor.jit.decorators import njit
from cql.executor.kernels.updates.layout import (
    EVENT,
    HEAD,
    ITEMS,
    KEYS,
    NEXT_DUE,
    OWNER,
    PAGES_USED,
    PLACES_USED,
    RESIDENTS,
    RESTING,
    ROWS_HELD,
    cells_of,
    places_of,
)
from cql.executor.kernels.updates.refresh import release
from cql.executor.kernels.updates.staleness import deliver, note_cost
from cql.executor.kernels.updates.update_queue import dequeue_one, enqueue_one
from cql.executor.kernels.updates.windows import (
    CLOSES,
    OPENS,
    deliver_windows,
    enqueue_row,
    forget,
    progress,
    progress_of,
    serve,
)

#: What ``simulate`` writes of each result: its key, its event time, when it was dequeued and when
#: delivered; then the residents, the places in use and the pages in use just before the dequeue.
RESULT_WORDS = 7


@njit("int64(int64[::1], int64[::1], int64)", nogil=True, cache=True)
def _next_time(q: Any, times: Any, i: int) -> int:
    """When the ``i``-th update arrives, or before that a key is due whose update waits for it; one
    of both happens."""
    if q[RESTING] == 0:
        return int(times[i])
    return int(q[NEXT_DUE]) if i == times.size else int(min(times[i], q[NEXT_DUE]))


@njit(
    "int64(int64[::1], int64[::1], int64[::1], int64[::1], int64, int64)",
    nogil=True,
    cache=True,
)
def _arrive(q: Any, times: Any, ids: Any, events: Any, i: int, until: int) -> int:
    """The updates from the ``i``-th on that come before ``until`` arrive; keys that are due by then
    rest no longer. Returns the number of the next update."""
    cells, places = cells_of(q), places_of(q)
    while i < times.size and times[i] < until:
        if q[ITEMS] > 0:
            release(q, times[i], False)
        enqueue_one(q, cells, places, ids[i], events[i], times[i])
        i += 1
    if q[ITEMS] > 0:
        release(q, until - 1, False)
    return i


@njit(
    "int64(int64[::1], int64[::1], int64[::1], int64[::1], int64, int64, int64[:, ::1])",
    nogil=True,
    cache=True,
)
def simulate(q: Any, times: Any, ids: Any, events: Any, cost: int, end: int, results: Any) -> int:
    """Runs until ``end``, or until all updates that arrive before are delivered, or until
    ``results`` is full. An update that arrives at the instant of a dequeue comes before it. At the
    end an update may be in flight. Keys rest until they are due, also behind the last arrival.
    Returns the number of results.

    ``times`` (ascending), ``ids`` and ``events``: one entry per arrival. There is room in the pool
    for all."""
    cells, places = cells_of(q), places_of(q)
    now, i, n = times[0], 0, 0
    note_cost(q, float(cost))
    while n < results.shape[0]:
        if q[HEAD] < 0 and (i < times.size or q[RESTING] > 0):
            now = max(now, _next_time(q, times, i))
        if now >= end:
            break
        i = _arrive(q, times, ids, events, i, now + 1)
        if q[HEAD] < 0:
            if i == times.size and q[RESTING] == 0:
                break
            continue
        residents, used, pages = q[RESIDENTS], q[PLACES_USED], q[PAGES_USED]
        place = dequeue_one(q, cells, places, now)
        results[n, 0], results[n, 1] = places[place, OWNER], places[place, EVENT]
        results[n, 2], results[n, 3] = now, now + cost
        results[n, 4], results[n, 5], results[n, 6] = residents, used, pages
        i = _arrive(q, times, ids, events, i, min(now + cost, end))
        if now + cost > end:
            break
        now += cost
        deliver(q, 1, now)
        n += 1
    _arrive(q, times, ids, events, i, end)
    return n


@njit(
    "int64(int64[::1], int64[::1], int64[::1], int64[::1], boolean, int64, int64)",
    nogil=True,
    cache=True,
)
def _arrive_until(q: Any, times: Any, ids: Any, events: Any, by_key: bool, i: int, now: int) -> int:
    """Enqueues the arrivals up to ``now``, from the ``i``-th on; returns the number of the next."""
    while i < times.size and times[i] <= now:
        enqueue_row(q, ids[i], events[i], times[i])
        if by_key:
            progress_of(q, ids[i], events[i] + 1, times[i])
        elif i + 1 == times.size or events[i + 1] > events[i]:
            progress(q, events[i] + 1, times[i])
        i += 1
    return i


#: What ``simulate_windows`` writes of each result: its key, the start of its window, when the key
#: was committed to it and when it was delivered; then the rows held at that time.
WINDOW_WORDS = 5


@njit(
    "int64(int64[::1], int64[::1], int64[::1], int64[::1], boolean, int64, int64, int64[:, ::1])",
    nogil=True,
    cache=True,
)
def simulate_windows(
    q: Any, times: Any, ids: Any, events: Any, by_key: bool, cost: int, end: int, results: Any
) -> int:
    """The same of a queue of windows, in which each row takes ``cost``. A window has fully arrived
    with the row of its last instant. ``by_key``: each key has an event time of its own; otherwise
    the event times of all rows rise together. Returns the number of results."""
    rows, owners = np.empty(1, np.int64), np.empty(1, np.int64)
    starts, marks = np.empty(1, np.int64), np.empty(1, np.int64)
    committed = np.zeros(q[KEYS], np.int64)
    now, i, n = times[0], 0, 0
    note_cost(q, float(cost))
    while n < results.shape[0] and now < end:
        i = _arrive_until(q, times, ids, events, by_key, i, now)
        if serve(q, now, rows, owners, starts, marks) == 0:
            if i == times.size:
                break
            now = times[i]
            continue
        if marks[0] & OPENS:
            committed[owners[0]] = now
        if rows[0] >= 0:
            if now + cost > end:
                break
            i = _arrive_until(q, times, ids, events, by_key, i, now + cost - 1)
            now += cost
        forget(q, owners)
        if marks[0] & CLOSES:
            results[n, 0], results[n, 1] = owners[0], starts[0]
            results[n, 2], results[n, 3] = committed[owners[0]], now
            results[n, 4] = q[ROWS_HELD]
            deliver_windows(q, owners, now)
            n += 1
    _arrive_until(q, times, ids, events, by_key, i, end - 1)
    return n
