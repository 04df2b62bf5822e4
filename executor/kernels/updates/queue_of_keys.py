"""The queue of keys: two doubly linked lists of places, one in the order of service and one in the
order in which keys began to wait.

The key schedulers differ in where an update enters (UpStream report, sections 5.2 and 5.3):

- *append* queues have a place per update, served in the order of arrival; under random load
  shedding an arriving update is left out with the probability that brings the load down to 1;
- *FIFO*: a newer update of a key that waits moves the key to the tail;
- *IN-PLACE*: it takes the place of the older one;
- *LINECUTTING*: as IN-PLACE, but a key that begins to wait enters at the head, behind the keys that
  cut in before it, if it is slow: if its updates are further apart than the time in which all
  residents of the queue are served (u_k < 1 / (c n)). Only a key that does not wait yet is tested.

The report's test takes it that cutters leave the server to the others. Many slow keys do not: at
five times the load, seven of ten keys with a tenth of the others' rate have 7/37 of the arrivals,
cut in for 0.95 of the server's time, and the three fast keys starve. So the test is *guarded*
unless the owner wants it as printed: the time in which residents are served is longer by the share
s of the service that cutters have taken, u_k < (1 - s) / (c n).
"""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.memory import bits_of_f64, f64_of_bits
from cql.executor.kernels.updates.layout import (
    AFTER,
    ARRIVALS,
    BEFORE,
    COST,
    CUT_SHARE,
    EVERY,
    FIFO,
    FLOOR,
    GUARDED,
    HEAD,
    INTERVAL,
    ITEM,
    ITEMS,
    LAST,
    LAST_CUTTER,
    LINECUTTING,
    OLDER,
    OLDEST,
    REFRESH,
    RESIDENTS,
    SCHEDULER,
    SEED,
    SINCE,
    TAIL,
    YOUNGER,
    YOUNGEST,
    items_of,
    rests_of,
)
from cql.executor.kernels.updates.lists import link, unlink
from cql.executor.kernels.updates.staleness import measured_load

#: Weight of the latest dequeue in the share of cutters.
_LATEST_SHARE = 1 / 32


@njit(inline="always")
def is_slow(q: Any, cells: Any, cell: int) -> bool:
    """Whether all residents are served in less time than the key's updates are apart. A key whose
    first update this is counts as slow. Updates that are served are not closer than EVERY."""
    if cells[cell, ARRIVALS] < 2:
        return True
    interval = f64_of_bits(cells[cell, INTERVAL])
    if q[ITEMS] > 0 and rests_of(q)[cell, REFRESH] >= 0:
        interval = max(interval, float(items_of(q)[rests_of(q)[cell, REFRESH] * ITEM + EVERY]))
    left = 1.0 - f64_of_bits(q[CUT_SHARE]) if q[GUARDED] != 0 else 1.0
    return bool(interval * left > f64_of_bits(q[COST]) * q[RESIDENTS])


@njit(inline="always")
def note_cutting(q: Any) -> None:
    """Counts whether the update that is dequeued next has cut in."""
    share, cuts = f64_of_bits(q[CUT_SHARE]), 1.0 if q[LAST_CUTTER] >= 0 else 0.0
    q[CUT_SHARE] = bits_of_f64(share + (cuts - share) * _LATEST_SHARE)


@njit(inline="always")
def _enter(q: Any, cells: Any, places: Any, place: int, cell: int, older: int) -> None:
    behind = q[TAIL]
    if q[SCHEDULER] == LINECUTTING and is_slow(q, cells, cell):
        behind = q[LAST_CUTTER]
        q[LAST_CUTTER] = place
    link(q, places, place, behind, HEAD, TAIL, AFTER, BEFORE)
    link(q, places, place, older, OLDEST, YOUNGEST, YOUNGER, OLDER)
    q[RESIDENTS] += 1


@njit(inline="always")
def enter(q: Any, cells: Any, places: Any, place: int, cell: int) -> None:
    """A key begins to wait, with its update at ``place``."""
    _enter(q, cells, places, place, cell, q[YOUNGEST])


@njit(inline="always")
def enter_as_oldest(q: Any, cells: Any, places: Any, place: int, cell: int) -> None:
    """The same for an update that came before those of other keys that wait: OLDEST has the lowest
    FLOOR."""
    if q[OLDEST] >= 0:
        places[place, FLOOR] = min(places[place, FLOOR], places[q[OLDEST], FLOOR])
    _enter(q, cells, places, place, cell, -1)


@njit("void(int64[::1], int64[:, ::1], int64[:, ::1], int64)", nogil=True, cache=True)
def enter_by_age(q: Any, cells: Any, nodes: Any, cell: int) -> None:
    """A key that has waited while it was served enters at the place that it would have, had it
    entered when it began to wait, behind the cutters; under FIFO, when its latest update came. The
    nodes of keys have the numbers of their cells. The search begins at the tail: few keys have
    begun to wait since."""
    behind = q[YOUNGEST]
    while behind >= 0 and cells[behind, SINCE] > cells[cell, SINCE]:
        behind = nodes[behind, OLDER]
    link(q, nodes, cell, behind, OLDEST, YOUNGEST, YOUNGER, OLDER)
    since = LAST if q[SCHEDULER] == FIFO else SINCE
    behind = q[TAIL]
    while behind != q[LAST_CUTTER] and cells[behind, since] > cells[cell, since]:
        behind = nodes[behind, BEFORE]
    link(q, nodes, cell, behind, HEAD, TAIL, AFTER, BEFORE)
    q[RESIDENTS] += 1


@njit(inline="always")
def move_to_tail(q: Any, places: Any, place: int) -> None:
    """FIFO: the key's newer update waits behind all others."""
    if q[TAIL] != place:
        unlink(q, places, place, HEAD, TAIL, AFTER, BEFORE)
        link(q, places, place, q[TAIL], HEAD, TAIL, AFTER, BEFORE)


@njit(inline="always")
def leave(q: Any, places: Any, place: int) -> None:
    """The place at the head leaves."""
    if q[LAST_CUTTER] == place:
        q[LAST_CUTTER] = -1
    unlink(q, places, place, HEAD, TAIL, AFTER, BEFORE)
    unlink(q, places, place, OLDEST, YOUNGEST, YOUNGER, OLDER)
    q[RESIDENTS] -= 1


@njit("boolean(int64[::1])", nogil=True, cache=True)
def is_shed(q: Any) -> bool:
    """Random load shedding: whether to leave out the update that has just arrived."""
    much = measured_load(q)
    q[SEED] += -0x61C8864680B583EB  # splitmix64
    z = q[SEED]
    z = (z ^ ((z >> 30) & 0x3FFFFFFFF)) * -0x40A7B892E31B1A47
    z = (z ^ ((z >> 27) & 0x1FFFFFFFFF)) * -0x6B2FB644ECCEEE15
    z = z ^ ((z >> 31) & 0x1FFFFFFFF)
    drawn = float((z >> 11) & 0x1FFFFFFFFFFFFF) / 9007199254740992.0
    return bool(drawn * much < much - 1.0)
