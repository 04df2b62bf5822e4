"""Access frequencies (UpStream report, section 8): an application wants at most one update of a key
in the interval EVERY of REFRESH.

A key whose update has been dequeued *rests* until it is due, EVERY later. An update that arrives
meanwhile waits outside the queue of keys, and newer ones take its place. Once the key is due, it
enters the queue of keys as if the update had arrived at this time. The keys of an item of REFRESH
are a list in the order of their dequeues, which is also the order in which they are due.

The rows that wait so are a list in the order of their latest arrivals, linked by the words by which
residents are linked in the order of age: the FLOOR of the first is the lowest.
"""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import njit
from cql.executor.kernels.morsel_layout import NEVER
from cql.executor.kernels.updates.layout import (
    DL,
    DUE,
    EP,
    EVERY,
    FIRST_REST,
    FIRST_RESTING,
    FLOOR,
    ITEM,
    ITEMS,
    LAST_REST,
    LAST_RESTING,
    NEXT_DUE,
    OLDER,
    PAGE_ROWS,
    PROGRESS,
    REFRESH,
    REST_AFTER,
    REST_BEFORE,
    RESTING,
    WAITING,
    YOUNGER,
    cells_of,
    items_of,
    places_of,
    rests_of,
)
from cql.executor.kernels.updates.lists import link, unlink
from cql.executor.kernels.updates.queue_of_keys import enter_as_oldest
from cql.executor.kernels.updates.staleness import advance


@njit(inline="always")
def due_at(q: Any, cell: int) -> int:
    """When a key that rests is due; NEVER: it does not rest."""
    return int(rests_of(q)[cell, DUE]) if q[ITEMS] > 0 else NEVER


@njit(inline="always")
def await_due(q: Any, places: Any, place: int) -> None:
    """The first update of a key that rests waits at ``place``."""
    link(q, places, place, q[LAST_RESTING], FIRST_RESTING, LAST_RESTING, YOUNGER, OLDER)
    q[RESTING] += 1


@njit(inline="always")
def await_again(q: Any, places: Any, place: int) -> None:
    """A newer update has taken the place of the one that waits there."""
    unlink(q, places, place, FIRST_RESTING, LAST_RESTING, YOUNGER, OLDER)
    link(q, places, place, q[LAST_RESTING], FIRST_RESTING, LAST_RESTING, YOUNGER, OLDER)
    places[place, FLOOR] = q[PROGRESS]


@njit("void(int64[::1], int64, int64)", nogil=True, cache=True)
def rest(q: Any, cell: int, now: int) -> None:
    """A key whose update has been dequeued rests, if it has an item of REFRESH."""
    rests, items = rests_of(q), items_of(q)
    if rests[cell, REFRESH] < 0:
        return
    item = rests[cell, REFRESH] * ITEM
    first, last = item + FIRST_REST, item + LAST_REST
    due = now + items[item + EVERY]
    rests[cell, DUE] = due
    link(items, rests, cell, items[last], first, last, REST_AFTER, REST_BEFORE)
    if q[NEXT_DUE] == NEVER or due < q[NEXT_DUE]:
        q[NEXT_DUE] = due


@njit("int64(int64[::1], int64[:, ::1], int64[::1])", nogil=True, cache=True)
def _first(q: Any, rests: Any, items: Any) -> int:
    """The item of the key that is due first, as its place in ``items``; -1: no key rests."""
    found, due = -1, NEVER
    for item in range(0, q[ITEMS] * ITEM, ITEM):
        cell = items[item + FIRST_REST]
        if cell >= 0 and (found < 0 or rests[cell, DUE] < due):
            found, due = item, rests[cell, DUE]
    return found


@njit("void(int64[::1], int64, boolean)", nogil=True, cache=True)
def release(q: Any, now: int, ended: bool) -> None:
    """Ends the rest of all keys that are due by ``now``, in the order of these times. ``ended``:
    the input has, and all keys are due."""
    cells, places, rests, items = cells_of(q), places_of(q), rests_of(q), items_of(q)
    item = _first(q, rests, items)
    while item >= 0 and (ended or q[NEXT_DUE] <= now):
        cell = items[item + FIRST_REST]
        first, last = item + FIRST_REST, item + LAST_REST
        unlink(items, rests, cell, first, last, REST_AFTER, REST_BEFORE)
        rests[cell, DUE] = NEVER
        if cells[cell, WAITING] != 0:
            advance(q, cells, cell, now)
            place = cells[cell, EP] * q[PAGE_ROWS] + cells[cell, DL]
            unlink(q, places, place, FIRST_RESTING, LAST_RESTING, YOUNGER, OLDER)
            q[RESTING] -= 1
            enter_as_oldest(q, cells, places, place, cell)
        item = _first(q, rests, items)
        q[NEXT_DUE] = rests[items[item + FIRST_REST], DUE] if item >= 0 else NEVER
