"""The operations of an update queue: enqueue, dequeue and delivery (UpStream report, section 7).

The owner of the queue holds its lock in each call, and makes room before it: a place per row that
arrives, a cell per key, a place in flight per update that it dequeues.
"""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.memory import prefetch
from cql.executor.kernels.morsel_layout import NEVER
from cql.executor.kernels.updates.layout import (
    ARRIVED,
    CELL,
    CELLS,
    DL,
    EP,
    EVENT,
    FIFO,
    FLOOR,
    HEAD,
    ITEMS,
    LAST_CUTTER,
    LINECUTTING,
    NEWEST,
    NEWEST_PLACE,
    NEXT_ARRIVAL,
    OLDEST,
    OWNER,
    PAGE_ROWS,
    PREALLOCATED,
    PROGRESS,
    RESIDENTS,
    SCHEDULER,
    SHED,
    SHED_ROWS,
    STORAGE,
    SUPERSEDED,
    TAIL,
    WAITING,
    YOUNGEST,
    cells_of,
    places_of,
)
from cql.executor.kernels.updates.pages import mem_add, mem_rem
from cql.executor.kernels.updates.queue_of_keys import (
    enter,
    is_shed,
    leave,
    move_to_tail,
    note_cutting,
)
from cql.executor.kernels.updates.refresh import await_again, await_due, due_at, release, rest
from cql.executor.kernels.updates.staleness import arrive, dequeued

#: Cells are prefetched this many rows ahead.
_AHEAD = 8


@njit(inline="always")
def _append(q: Any, cells: Any, places: Any, cell: int, now: int) -> int:
    """The place of the update at the tail; -1: it is shed."""
    newest = cells[cell, NEWEST_PLACE]
    if newest >= 0 and places[newest, NEXT_ARRIVAL] == NEVER:
        places[newest, NEXT_ARRIVAL] = now
    if q[SCHEDULER] == SHED and is_shed(q):
        q[SHED_ROWS] += 1
        return -1
    place = mem_add(q)
    places[place, NEXT_ARRIVAL] = NEVER
    cells[cell, NEWEST_PLACE] = place
    cells[cell, WAITING] += 1
    return int(place)


@njit(
    "int64(int64[::1], int64[:, ::1], int64[:, ::1], int64, int64, int64)",
    nogil=True,
    cache=True,
)
def enqueue_one(q: Any, cells: Any, places: Any, cell: int, event: int, now: int) -> int:
    """The place at which the update of a key lies from ``now`` on; -1: nowhere, because it is shed,
    or, in an update queue, because a row of the key with a later event time has come before it. A
    row without an event time (NEVER) is behind no other. No key that rests is due (``release``)."""
    q[ARRIVED] += 1
    if q[SCHEDULER] >= FIFO and NEVER < event < cells[cell, NEWEST]:
        q[SUPERSEDED] += 1
        return -1
    cells[cell, NEWEST] = max(cells[cell, NEWEST], event)
    due = due_at(q, cell)
    arrive(q, cells, cell, max(due, now), now)
    if q[SCHEDULER] < FIFO:
        place = _append(q, cells, places, cell, now)
        if place < 0:
            return place
        enter(q, cells, places, place, cell)
    elif cells[cell, WAITING] != 0:
        place = cells[cell, EP] * q[PAGE_ROWS] + cells[cell, DL]
        q[SUPERSEDED] += 1
        places[place, EVENT] = event
        if due != NEVER:
            await_again(q, places, place)
        elif q[SCHEDULER] == FIFO:
            move_to_tail(q, places, place)
        return int(place)
    else:
        place = cells[cell, EP] * q[PAGE_ROWS] + cells[cell, DL]
        if cells[cell, EP] < 0:
            place = mem_add(q)
            cells[cell, EP], cells[cell, DL] = place // q[PAGE_ROWS], place % q[PAGE_ROWS]
        cells[cell, WAITING] = 1
        if due != NEVER:
            await_due(q, places, place)
        else:
            enter(q, cells, places, place, cell)
    places[place, OWNER], places[place, EVENT] = cell, event
    places[place, FLOOR] = q[PROGRESS]
    return int(place)


@njit("int64(int64[::1], int64[:, ::1], int64[:, ::1], int64)", nogil=True, cache=True)
def dequeue_one(q: Any, cells: Any, places: Any, now: int) -> int:
    """The place of the update that is served next; the place is free already. There is one."""
    if q[SCHEDULER] == LINECUTTING:
        note_cutting(q)
    place = q[HEAD]
    cell = places[place, OWNER]
    leave(q, places, place)
    cells[cell, WAITING] -= 1
    following = NEVER
    if q[SCHEDULER] < FIFO:
        following = places[place, NEXT_ARRIVAL]
        if cells[cell, NEWEST_PLACE] == place:
            cells[cell, NEWEST_PLACE] = -1
        mem_rem(q, place)
    elif q[STORAGE] != PREALLOCATED:
        cells[cell, EP] = -1
        mem_rem(q, place)
    dequeued(q, cells, cell, following, now)
    if q[ITEMS] > 0:
        rest(q, cell, now)
    return int(place)


@njit("void(int64[::1], int64[::1])", nogil=True, cache=True)
def keep_newest(q: Any, waiting: Any) -> None:
    """An append queue becomes an update queue: of each key the update with the latest event time
    stays, and takes the place of the key's first one in the order of service. The others are
    superseded. ``waiting``: the places of all updates, in the order of service. The owner changes
    SCHEDULER afterwards."""
    cells, places = cells_of(q), places_of(q)
    for i in range(waiting.size):
        cells[places[waiting[i], OWNER], NEWEST_PLACE] = -1
    for i in range(waiting.size):
        place, cell = waiting[i], places[waiting[i], OWNER]
        newest = cells[cell, NEWEST_PLACE]
        if newest < 0 or places[place, EVENT] >= places[newest, EVENT]:
            cells[cell, NEWEST_PLACE] = place
    q[HEAD] = q[TAIL] = q[OLDEST] = q[YOUNGEST] = q[LAST_CUTTER] = -1
    q[RESIDENTS] = 0
    for i in range(waiting.size):
        place, cell = waiting[i], places[waiting[i], OWNER]
        newest = cells[cell, NEWEST_PLACE]
        if cells[cell, EP] < 0:
            places[newest, FLOOR] = places[place, FLOOR]
            cells[cell, EP], cells[cell, DL] = newest // q[PAGE_ROWS], newest % q[PAGE_ROWS]
            cells[cell, WAITING] = 1
            enter(q, cells, places, newest, cell)
    for i in range(waiting.size):
        place = waiting[i]
        if cells[places[place, OWNER], NEWEST_PLACE] != place:
            q[SUPERSEDED] += 1
            mem_rem(q, place)
    for i in range(waiting.size):
        cells[places[waiting[i], OWNER], NEWEST_PLACE] = -1


@njit("void(int64[::1], int64[::1], int64[::1], int64, int64[::1])", nogil=True, cache=True)
def enqueue(q: Any, ids: Any, events: Any, now: int, found: Any) -> None:
    """Enqueues rows of the keys ``ids`` with these event times. Writes the place of each to
    ``found``, -1 for a row that the queue does not keep."""
    if q[ITEMS] > 0:
        release(q, now, False)
    cells, places = cells_of(q), places_of(q)
    for i in range(ids.size):
        if i + _AHEAD < ids.size:
            prefetch(q[CELLS] + 8 * CELL * ids[i + _AHEAD])
        found[i] = enqueue_one(q, cells, places, ids[i], events[i], now)


@njit("int64(int64[::1], int64, int64[::1])", nogil=True, cache=True)
def dequeue(q: Any, now: int, found: Any) -> int:
    """Writes the places of the next updates to ``found``, as many as it has room for, and returns
    their number. Keys that are due rest no longer (``release``). The rows stay where they are until
    the next call of ``enqueue``."""
    cells, places = cells_of(q), places_of(q)
    n = 0
    while n < found.size and q[HEAD] >= 0:
        found[n] = dequeue_one(q, cells, places, now)
        n += 1
    return n
