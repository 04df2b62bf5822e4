"""The native function of windows without SLIDE: the rows that enter and leave a relation, in the
order of their instants (CQL paper §6.2).

The rows of the window are the places of the line before READY (``kernels.relations.frontier``).
"""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import cfunc, njit
from cql.executor.kernels.lib.memory import as_i32, integer_at, put_integer, words
from cql.executor.kernels.morsel_layout import (
    CAPACITY,
    DONE,
    HEADER,
    INFINITY,
    NEED,
    OUT,
    OUTPUT_FULL,
)
from cql.executor.kernels.order.row_slab import PLACES
from cql.executor.kernels.order.sort_keys import AT, COLUMNS, whole
from cql.executor.kernels.relations.frontier import (
    BEHIND,
    HEAD,
    LINE,
    READY,
    ROOM,
    TAIL,
    TIMES,
    WATERMARK,
    begin_output,
    free_slot,
    give_columns,
    is_over,
    punctuate,
    punctuate_so_far,
    take_in,
)

# Which rows the window holds: all, those of the last STAY - 1 units of time, the last MOST.
ALL, OF_RANGE, OF_ROWS = range(3)

# Descriptor: behind the words of the frontier.
KIND = BEHIND
STAY = BEHIND + 1  # a row leaves that long after it has entered
MOST = BEHIND + 2
TIME_BYTES = BEHIND + 3  # bytes of a time of the output
# Counters.
ENTERED = BEHIND + 4
LEFT = BEHIND + 5
FIRST = BEHIND + 6  # the instant at which the first row entered; INFINITY: none has
END = BEHIND + 7


@njit("int64(int64[::1], int64[::1])", nogil=True, cache=True)
def _draw(d: Any, o: Any) -> int:
    """Writes changes to the output, their rows' slots to PLACES; returns their number."""
    times, line = words(d[TIMES], d[ROOM]), as_i32(d[LINE], d[ROOM])
    places, capacity = as_i32(d[PLACES], o[CAPACITY]), o[CAPACITY]
    at = HEADER + 2 * d[COLUMNS]
    weights, stay, kind = words(o[at + 2], capacity), d[STAY], d[KIND]
    gone = d[WATERMARK] if d[WATERMARK] == INFINITY else d[WATERMARK] - stay
    for n in range(capacity):
        enters = d[READY] < d[TAIL] and is_over(d, times[d[READY]])
        leaves, time = False, 0
        if kind == OF_RANGE and d[HEAD] < d[READY]:
            entered = times[d[HEAD]]
            leaves = (entered < gone or gone == INFINITY) and not (
                enters and times[d[READY]] - stay < entered
            )
            time = entered + stay
        elif kind == OF_ROWS and d[READY] - d[HEAD] > d[MOST]:
            leaves, time = True, times[d[READY] - 1]
        if leaves:
            slot = int(line[d[HEAD]])
            d[HEAD] += 1
            d[LEFT] += 1
            free_slot(d, slot)
        elif enters:
            slot, time = int(line[d[READY]]), times[d[READY]]
            d[FIRST] = time if d[ENTERED] == 0 else d[FIRST]
            d[READY] += 1
            d[ENTERED] += 1
            if kind == ALL:
                d[HEAD] = d[READY]
                free_slot(d, slot)
        else:
            return n
        places[n] = slot
        put_integer(o[at], d[TIME_BYTES], n, time)
        weights[n] = -1 if leaves else 1
    return capacity


@cfunc("int64(int64, int64)", nopython=True, cache=True)
def window_relation(desc: Any, morsel: Any) -> Any:
    d = whole(desc)
    u = words(morsel, HEADER + 2 * d[COLUMNS])
    o = words(u[OUT], HEADER + 2 * (d[COLUMNS] + 2))
    if not take_in(d, u):
        return NEED
    begin_output(d, u, o)
    n = _draw(d, o)
    give_columns(d, d, d[AT], o, d[COLUMNS], n)
    if n == o[CAPACITY]:
        last = integer_at(o[HEADER + 2 * d[COLUMNS]], d[TIME_BYTES], n - 1)
        punctuate_so_far(d, o, last)
        return OUTPUT_FULL
    punctuate(d, u, o)
    return DONE
