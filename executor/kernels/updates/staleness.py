"""Staleness of a key (UpStream report, sections 3.3 and 5.1): 0 if no update of the key is pending,
otherwise the time since the arrival of the oldest pending one. Newer values that overwrite it do
not reset it; neither does load shedding. An update that comes while its key rests
(``kernels.updates.refresh``) counts as one that arrives when the key is due.

*Queue staleness* counts updates that are not dequeued, *application staleness* those whose result
is not delivered. Average staleness is the area below the curve divided by time.
"""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.memory import bits_of_f64, f64_of_bits
from cql.executor.kernels.morsel_layout import NEVER
from cql.executor.kernels.updates.layout import (
    ARRIVALS,
    ARRIVED,
    COST,
    DELIVERED,
    FLIGHT_CELL,
    FLIGHT_NEXT,
    FLIGHTS,
    GONE_AREA,
    GONE_STALENESS,
    IN_FLIGHT,
    INTERVAL,
    LAST,
    LATEST,
    MEASURED,
    MEASURING,
    PENDING,
    PENDING_FROM,
    QUEUE_AREA,
    SEEN_KEYS,
    SINCE,
    SINCE_FROM,
    STALENESS_AREA,
    START,
    TAKEN,
    cells_of,
    flights_of,
)

#: Weight of the latest value in an average of intervals or costs.
_WEIGHT, _MANY = 1 / 8, 8
#: The rate of arrivals is that of so many updates, or of up to twice as many.
RATE_ROWS = 1024


@njit(inline="always")
def triangle(since: int, start: int, end: int) -> float:
    """The area below ``t - since``, where this is above 0, from ``start`` to ``end``."""
    return 0.5 * (float(max(end - since, 0)) ** 2 - float(max(start - since, 0)) ** 2)


@njit(inline="always")
def _add(cells: Any, cell: int, word: int, area: float) -> None:
    cells[cell, word] = bits_of_f64(f64_of_bits(cells[cell, word]) + area)


@njit(inline="always")
def averaged(bits: int, value: float, count: int) -> int:
    """The bits of an exponentially weighted average with one more value, the ``count``-th."""
    weight = max(_WEIGHT, 1.0 / count)
    return bits_of_f64(f64_of_bits(bits) + weight * (value - f64_of_bits(bits)))


@njit(inline="always")
def note_arrival(q: Any, cells: Any, cell: int, now: int) -> None:
    """Counts an update of a key in the rates of arrivals."""
    if q[START] == NEVER:
        q[START] = q[MEASURED] = q[MEASURING] = now
    elif q[ARRIVED] % RATE_ROWS == 0:
        q[MEASURED], q[MEASURING] = q[MEASURING], now
    q[LATEST] = now
    before = cells[cell, LAST]
    if before == NEVER:
        q[SEEN_KEYS] += 1
    else:
        n = cells[cell, ARRIVALS]
        cells[cell, INTERVAL] = averaged(cells[cell, INTERVAL], float(now - before), n)
    cells[cell, LAST] = now
    cells[cell, ARRIVALS] += 1


@njit(inline="always")
def begin(cells: Any, cell: int, since: int, start: int, now: int) -> None:
    """Staleness, in the words ``since`` and ``start``, grows from now on."""
    cells[cell, since], cells[cell, start] = now, now


@njit(inline="always")
def arrive(q: Any, cells: Any, cell: int, due: int, now: int) -> None:
    """An update of a key arrives, whether or not the queue keeps it. ``due``: when its staleness
    begins, ``now`` or later."""
    note_arrival(q, cells, cell, now)
    if cells[cell, SINCE] == NEVER:
        begin(cells, cell, SINCE, SINCE_FROM, due)
        last = cells[cell, IN_FLIGHT]
        if last >= 0:
            flights_of(q)[last & (q[FLIGHTS] - 1), FLIGHT_NEXT] = due
    if cells[cell, PENDING] == NEVER:
        begin(cells, cell, PENDING, PENDING_FROM, due)


@njit(inline="always")
def advance(q: Any, cells: Any, cell: int, now: int) -> None:
    """The staleness of a key begins ``now`` if it was to begin later."""
    if cells[cell, SINCE] > now:
        begin(cells, cell, SINCE, SINCE_FROM, now)
    if cells[cell, PENDING] > now:
        begin(cells, cell, PENDING, PENDING_FROM, now)
    last = cells[cell, IN_FLIGHT]
    if last >= 0:
        flight, at = flights_of(q), last & (q[FLIGHTS] - 1)
        flight[at, FLIGHT_NEXT] = min(flight[at, FLIGHT_NEXT], now)


@njit(inline="always")
def end_waiting(cells: Any, cell: int, following: int, now: int) -> None:
    """Queue staleness ends, or counts from the arrival ``following`` on."""
    area = triangle(cells[cell, SINCE], cells[cell, SINCE_FROM], now)
    _add(cells, cell, QUEUE_AREA, area)
    cells[cell, SINCE], cells[cell, SINCE_FROM] = following, now


@njit(inline="always")
def end_pending(cells: Any, cell: int, following: int, now: int) -> None:
    """Application staleness ends, or counts from the arrival ``following`` on."""
    if cells[cell, PENDING] != NEVER:
        area = triangle(cells[cell, PENDING], cells[cell, PENDING_FROM], now)
        _add(cells, cell, STALENESS_AREA, area)
    cells[cell, PENDING], cells[cell, PENDING_FROM] = following, now


@njit(inline="always")
def dequeued(q: Any, cells: Any, cell: int, following: int, now: int) -> None:
    """The oldest update of a key leaves the queue for its operators. ``following``: the first
    arrival of the key behind it, if the queue knows one."""
    end_waiting(cells, cell, following, now)
    flight, number = flights_of(q), q[TAKEN]
    at = number & (q[FLIGHTS] - 1)
    flight[at, FLIGHT_CELL], flight[at, FLIGHT_NEXT] = cell, following
    cells[cell, IN_FLIGHT] = number
    q[TAKEN] += 1


@njit("float64(int64[::1])", nogil=True, cache=True)
def measured_load(q: Any) -> float:
    """The measured cost of an update times the measured rate of arrivals; 0 if one is unknown."""
    rows = q[ARRIVED] - 1
    if rows >= RATE_ROWS:
        rows = RATE_ROWS + q[ARRIVED] % RATE_ROWS
    time = q[LATEST] - q[MEASURED]
    return f64_of_bits(q[COST]) * rows / time if time > 0 else 0.0


@njit("void(int64[::1], int64, int64)", nogil=True, cache=True)
def deliver(q: Any, updates: int, now: int) -> None:
    """The results of the next ``updates`` in flight have reached the application."""
    cells, flight = cells_of(q), flights_of(q)
    for number in range(q[DELIVERED], q[DELIVERED] + updates):
        at = number & (q[FLIGHTS] - 1)
        cell = flight[at, FLIGHT_CELL]
        end_pending(cells, cell, flight[at, FLIGHT_NEXT], now)
        if cells[cell, IN_FLIGHT] == number:
            cells[cell, IN_FLIGHT] = -1
    q[DELIVERED] += updates


@njit("void(int64[::1], float64)", nogil=True, cache=True)
def note_cost(q: Any, cost: float) -> None:
    """Updates have taken ``cost`` each."""
    q[COST] = averaged(q[COST], cost, 1 if q[COST] == 0 else _MANY)


@njit("void(int64[:, ::1], int64, float64[::1], float64[::1])", nogil=True, cache=True)
def areas(cells: Any, now: int, queue: Any, application: Any) -> None:
    """The areas of all cells up to ``now``: of queue staleness and of application staleness."""
    for cell in range(queue.size):
        queue[cell] = f64_of_bits(cells[cell, QUEUE_AREA])
        if cells[cell, SINCE] != NEVER:
            queue[cell] += triangle(cells[cell, SINCE], cells[cell, SINCE_FROM], now)
        application[cell] = f64_of_bits(cells[cell, STALENESS_AREA])
        if cells[cell, PENDING] != NEVER:
            application[cell] += triangle(cells[cell, PENDING], cells[cell, PENDING_FROM], now)


@njit("void(int64[::1], int64)", nogil=True, cache=True)
def keep_areas(q: Any, cell: int) -> None:
    """Keeps in the totals what the areas of a cell are, before the cell goes."""
    cells = cells_of(q)
    for total, word in ((GONE_AREA, QUEUE_AREA), (GONE_STALENESS, STALENESS_AREA)):
        q[total] = bits_of_f64(f64_of_bits(q[total]) + f64_of_bits(cells[cell, word]))
