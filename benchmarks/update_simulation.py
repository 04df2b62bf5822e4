"""Update queues and one server under a virtual clock: the engine's own kernels, without threads.

Updates arrive at given ticks. The server takes a fixed number of ticks for each update, or for each
row of a window, and serves one at a time. All other work takes no time. The staleness of a run is
the mean over its keys of each key's average from the first tick to the last arrival.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from benchmarks.workloads import Column
from cql.executor.kernels.updates.simulate import (
    RESULT_WORDS,
    WINDOW_WORDS,
    simulate,
    simulate_windows,
)
from cql.executor.operators.updates.queue_state import (
    QueueState,
    Scheduler,
    Staleness,
    Storage,
    Windows,
)

APPEND, SHED, FIFO = Scheduler.APPEND, Scheduler.SHED, Scheduler.FIFO
IN_PLACE, LINECUTTING = Scheduler.IN_PLACE, Scheduler.LINECUTTING
NAMES = {
    APPEND: "append",
    SHED: "append, random load shedding",
    FIFO: "FIFO",
    IN_PLACE: "IN-PLACE",
    LINECUTTING: "LINECUTTING",
}
#: Ticks that an update takes. All loads of the figures divide it, or a multiple of it.
COST = 2520


class Unlimited:
    """An account without a limit (``max_state``)."""

    def resize(self, before: int, after: int, what: str) -> None:
        pass


@dataclass(frozen=True)
class Arrivals:
    """Updates in order of arrival: ``times`` in ticks, ``ids`` of their keys from 0 to ``keys`` -
    1. Shape of both: (updates,)."""

    times: Column
    ids: Column
    keys: int

    @cached_property
    def events(self) -> Column:
        """An event time of its own for each key: the number of the key's updates before."""
        return numbered(self.ids)


def every(gap: float, ids: Column, keys: int) -> Arrivals:
    """One update each ``gap`` ticks, from tick 0 on."""
    return Arrivals(np.floor(np.arange(ids.size) * gap).astype(np.int64), ids, keys)


def at_load(load: float, ids: Column, keys: int) -> Arrivals:
    """``load`` updates during the time that one takes to be served."""
    return every(COST / load, ids, keys)


def numbered(ids: Column) -> Column:
    """The number of earlier entries with the same id."""
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    first = np.searchsorted(ordered, ordered, side="left")
    numbers = np.empty(ids.size, np.int64)
    numbers[order] = np.arange(ids.size) - first
    return numbers


def zipf(updates: int, keys: int, theta: float, seed: int = 1) -> Column:
    """Random keys; the ``k``-th has a share in proportion to ``k ** -theta``."""
    shares = np.arange(1, keys + 1) ** -float(theta)
    drawn = np.random.default_rng(seed).choice(keys, updates, p=shares / shares.sum())
    return drawn.astype(np.int64)


def spread(updates: int, rates: Column, phases: Column) -> Column:
    """Keys in an order in which each updates evenly at its own rate, first after ``phases``, the
    shares of its interval. Shape of both: (keys,)."""
    counts = np.ceil(updates * rates / rates.sum()).astype(np.int64) + 1
    ids = np.repeat(np.arange(rates.size), counts)
    order = np.lexsort((ids, (numbered(ids) + phases[ids]) / rates[ids]))
    return ids[order][:updates]


@dataclass(frozen=True)
class Simulated:
    """A run of ``keys`` keys up to tick ``end``. ``results``: a row per result
    (``kernels.updates.simulate``)."""

    state: QueueState
    keys: int
    end: int
    results: Column

    @cached_property
    def areas(self) -> Staleness:
        return self.state.areas(self.end)

    @property
    def queue(self) -> float:
        """Average queue staleness in ticks."""
        return float(self.areas.queue[: self.keys].mean()) / self.end

    @property
    def application(self) -> float:
        """Average application staleness in ticks."""
        return float(self.areas.application[: self.keys].mean()) / self.end


def tuples(
    scheduler: Scheduler,
    arrivals: Arrivals,
    cost: int = COST,
    *,
    storage: Storage = Storage.PAGED,
    page_rows: int = 64,
    guarded: bool = True,
    end: int | None = None,
    results: int | None = None,
) -> Simulated:
    """Each update is a row. The run ends at tick ``end`` (None: with the last arrival), or after
    so many ``results``."""
    state = QueueState(
        "updates", Unlimited(), scheduler, storage, page_rows=page_rows, guarded=guarded
    )
    n = arrivals.times.size
    state.make_room(keys=arrivals.keys, arrivals=n, flights=2)
    last = int(arrivals.times[-1]) if end is None else end
    found = np.zeros((n if results is None else results, RESULT_WORDS), np.int64)
    made = simulate(state.words, arrivals.times, arrivals.ids, np.arange(n), cost, last, found)
    return Simulated(state, arrivals.keys, last, found[:made])


def windows(
    of: Windows,
    arrivals: Arrivals,
    cost: int = 1,
    *,
    scheduler: Scheduler = Scheduler.IN_PLACE,
    by_key: bool = False,
    since: int | None = None,
    end: int | None = None,
) -> Simulated:
    """Each update is a window, and each row takes ``cost`` ticks. Event times are arrival times, or
    with ``by_key`` the numbers of the key's rows. No window ends by the event time ``since``."""
    state = QueueState("windows", Unlimited(), scheduler, windows=of)
    n = arrivals.times.size
    state.make_room(keys=arrivals.keys, arrivals=n, flights=2)
    if since is not None:
        state.progress(since, int(arrivals.times[0]))
    last = int(arrivals.times[-1]) + 1 if end is None else end
    found = np.zeros((2 * n + arrivals.keys, WINDOW_WORDS), np.int64)
    events = arrivals.events if by_key else arrivals.times
    made = simulate_windows(
        state.words, arrivals.times, arrivals.ids, events, by_key, cost, last, found
    )
    return Simulated(state, arrivals.keys, last, found[:made])
