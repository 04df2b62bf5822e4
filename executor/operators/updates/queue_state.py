"""The state of an update queue: its words and tables (``kernels.updates``), their growth and
snapshots, and what it reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

from cql.errors import RunError
from cql.executor.kernels.morsel_layout import NEVER
from cql.executor.kernels.updates import layout, refresh, staleness, update_queue
from cql.executor.kernels.updates import windows as window_manager
from cql.executor.kernels.updates.pages import free_places, mem_rem
from cql.executor.morsel.morsel import Words
from cql.executor.state.store import Account, Array, Role, Snapshot, StateStore

Floats = npt.NDArray[np.float64]
#: By table, the words of a line that are times of the clock (NEVER: unknown).
_TIMES = {
    "cells": [
        *(layout.SINCE, layout.SINCE_FROM, layout.PENDING, layout.PENDING_FROM),
        layout.LAST,
    ],
    "places": [layout.NEXT_ARRIVAL],
    "flights": [layout.FLIGHT_NEXT],
    "buffers": [layout.NEXT_PENDING],
    "rests": [layout.DUE],
}
#: The words of the queue that are such times, from the first arrival on.
_QUEUE_TIMES = [layout.START, layout.LATEST, layout.MEASURED, layout.MEASURING]


class Scheduler(Enum):
    """How an update queue orders its keys (``kernels.updates.queue_of_keys``)."""

    APPEND = layout.APPEND
    SHED = layout.SHED
    FIFO = layout.FIFO
    IN_PLACE = layout.IN_PLACE
    LINECUTTING = layout.LINECUTTING


class Storage(Enum):
    """Where an update queue keeps rows (``kernels.updates.pages``)."""

    PAGED = layout.PAGED
    PREALLOCATED = layout.PREALLOCATED


@dataclass(frozen=True, slots=True)
class Staleness:
    """Integrals of staleness per key, in the square of the clock's unit; shape: (keys,)."""

    queue: Floats
    application: Floats


@dataclass(frozen=True, slots=True)
class Served:
    """Rows of committed windows, in the order in which the operator takes them: the place of each
    (-1: no row, only a mark), its key, the start of its window, and its marks
    (``kernels.updates.windows``: OPENS, CLOSES). Shape of each: (rows,)."""

    rows: Words
    keys: Words
    starts: Words
    marks: Words


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows as updates: ``[k * slide, k * slide + size)`` in event time. ``eager``: committed
    with their first row, otherwise when they have fully arrived. ``block_rows``: rows of a block
    of a window buffer."""

    size: int
    slide: int
    eager: bool = False
    block_rows: int = 16


class QueueState:
    """An update queue without rows: which key holds which place. ``page_rows``: places of a page.
    ``windows``: None if each row is an update; otherwise a place is a block of rows.
    ``guarded``: whether LINECUTTING leaves a share of the service to the keys that do not cut in.
    ``every``: by item of REFRESH, how far apart two updates of a key are taken at least, in units
    of the clock; only of an update queue of rows.

    Keys are numbered from 0; ``make_room`` says how many there are."""

    def __init__(
        self,
        name: str,
        account: Account,
        scheduler: Scheduler,
        storage: Storage = Storage.PAGED,
        *,
        page_rows: int = 64,
        guarded: bool = True,
        windows: Windows | None = None,
        every: Sequence[int] = (),
    ) -> None:
        self.scheduler, self.storage = scheduler, storage
        self._name, self.store = name, StateStore(name, account)
        self.words: Words = np.zeros(layout.QUEUE_WORDS, np.int64)
        q = self.words
        q[[layout.SCHEDULER, layout.STORAGE]] = scheduler.value, storage.value
        q[[layout.PAGE_ROWS, layout.GUARDED]] = page_rows, guarded
        q[[layout.RETURNED, layout.NEXT_PAGE, layout.OPEN_PAGE]] = -1
        q[[layout.HEAD, layout.TAIL, layout.LAST_CUTTER, layout.OLDEST, layout.YOUNGEST]] = -1
        q[[layout.START, layout.LATEST, layout.PROGRESS]] = NEVER
        q[[layout.READY_HEAD, layout.READY_TAIL, layout.IDLE_HEAD, layout.ACTIVE_HEAD]] = -1
        q[[layout.ENDS, layout.BLOCK_ROWS]] = NEVER, 1
        q[[layout.NEXT_DUE, layout.ITEMS]] = NEVER, len(every)
        q[[layout.FIRST_RESTING, layout.LAST_RESTING]] = -1
        self._moved = False  # whether tables have other addresses than the words say
        self.windows = windows
        if windows is not None:
            q[layout.WINDOWS] = layout.EAGER if windows.eager else layout.LAZY
            q[[layout.SIZE, layout.SLIDE]] = windows.size, windows.slide
            q[layout.BLOCK_ROWS] = windows.block_rows
        self.every = tuple(every)
        if every:
            self._resize("items", len(every), (np.int64, (layout.ITEM,)))
            items = self.store.arrays["items"]
            items[:, layout.EVERY] = every
            items[:, [layout.FIRST_REST, layout.LAST_REST]] = -1
        self.make_room(keys=1, arrivals=1, flights=1)

    def make_room(self, *, keys: int = 0, arrivals: int = 0, flights: int = 0) -> None:
        """Makes room for so many keys in all, for so many more rows, and for so many more updates
        between dequeue and delivery.

        Raises RunError if ``max_state`` does not allow it; the queue works on with what it has."""
        try:
            self._grow(keys, arrivals, flights)
        finally:
            if self._moved:
                self._bind()

    def _grow(self, keys: int, arrivals: int, flights: int) -> None:
        q = self.words
        known = int(q[layout.KEYS])
        if keys > known:
            size = max(keys, 2 * known)
            self._resize("cells", size, (np.int64, (layout.CELL,)))
            self._clear_cells(slice(known, size))
            if self.windows is not None:
                self._resize("buffers", size, (np.int64, (layout.BUFFER,)))
                self._resize("nodes", size, (np.int64, (layout.PLACE,)))
                self._clear_buffers(slice(known, size))
            if self.every:
                self._resize("rests", size, (np.int64, (layout.REST,)))
                self._clear_rests(slice(known, size))
            q[layout.KEYS] = size
        lacking = arrivals - int(free_places(q))
        if lacking > 0:
            pages = int(q[layout.PAGES])
            more = max(-(-lacking // int(q[layout.PAGE_ROWS])), pages // 2)
            rows = (pages + more) * int(q[layout.PAGE_ROWS])
            self._resize("places", rows, (np.int64, (layout.PLACE,)))
            self._resize("pages", pages + more, (np.int64, (layout.PAGE,)))
            if self.windows is not None:
                self._resize("blocks", rows, (np.int64, (layout.BLOCK,)))
                self._resize("events", rows * self.windows.block_rows, np.int64)
            q[layout.PAGES] = pages + more
        held = int(q[layout.TAKEN] - q[layout.DELIVERED])
        if held + flights > q[layout.FLIGHTS]:
            self._more_flights(1 << (held + flights - 1).bit_length())

    def _resize(self, name: str, size: int, dtype: npt.DTypeLike) -> None:
        self._moved = True
        self.store.resize(name, size, dtype, Role.STATE, clears=False)

    def _more_flights(self, size: int) -> None:
        """The ring's entries move to the places that their numbers have in a ring of ``size``."""
        q, old = self.words, self.store.arrays.get("flights")
        numbers = np.arange(q[layout.DELIVERED], q[layout.TAKEN])
        kept = None if old is None else old[numbers & (len(old) - 1)]
        self._resize("flights", size, (np.int64, (layout.FLIGHT_WORDS,)))
        if kept is not None:
            self.store.arrays["flights"][numbers & (size - 1)] = kept
        q[layout.FLIGHTS] = size

    def _clear_cells(self, which: Any) -> None:
        cells = self.store.arrays["cells"]
        cells[which] = 0
        for word in (
            *(layout.SINCE, layout.SINCE_FROM, layout.PENDING, layout.PENDING_FROM),
            *(layout.LAST, layout.NEWEST),
        ):
            cells[which, word] = NEVER
        for word in (layout.EP, layout.IN_FLIGHT, layout.NEWEST_PLACE):
            cells[which, word] = -1

    def _clear_buffers(self, which: Any) -> None:
        buffers = self.store.arrays["buffers"]
        buffers[which] = 0
        for word in (layout.WS, layout.COMMITTED, layout.WE):
            buffers[which, word] = NEVER
        for word in (layout.NEXT_PENDING, layout.REACHED, layout.GAP_TO):
            buffers[which, word] = NEVER
        for word in (layout.FIRST_BLOCK, layout.LAST_BLOCK, layout.DF_BLOCK):
            buffers[which, word] = -1

    def _clear_rests(self, which: Any) -> None:
        rests = self.store.arrays["rests"]
        rests[which] = -1
        rests[which, layout.DUE] = NEVER

    def _bind(self) -> None:
        """Writes the addresses of the tables into the words."""
        self._moved = False
        for name, word in (
            ("buffers", layout.BUFFERS),
            ("nodes", layout.NODES),
            ("blocks", layout.BLOCKS),
            ("events", layout.EVENTS),
            ("cells", layout.CELLS),
            ("places", layout.PLACES),
            ("pages", layout.PAGE_TABLE),
            ("flights", layout.FLIGHT),
            ("rests", layout.RESTS),
            ("items", layout.ITEM_TABLE),
        ):
            array = self.store.arrays.get(name)
            self.words[word] = 0 if array is None else array.ctypes.data
            self.store.bound.add(word)

    # -- operations ------------------------------------------------------------------------------

    def enqueue(self, ids: Words, events: Words, now: int) -> Words:
        """The place of each row of the keys ``ids`` with the event times ``events``, -1 for a row
        that the queue does not keep. Places repeat: the last row at a place is the one that
        stays."""
        self.make_room(keys=int(ids.max(initial=-1)) + 1, arrivals=len(ids))
        found = np.empty(len(ids), np.int64)
        update_queue.enqueue(self.words, ids, events, now, found)
        return found

    def refresh_keys(self, keys: Words, items: Words) -> None:
        """Says by which item of REFRESH each of the new ``keys`` is refreshed; -1: none."""
        self.make_room(keys=int(keys.max(initial=-1)) + 1)
        self.store.arrays["rests"][keys, layout.REFRESH] = items

    def release(self, now: int, *, ended: bool = False) -> None:
        """Lets the updates of the keys that are due wait to be served; of all keys, if the input
        has ``ended``."""
        if self.every:
            refresh.release(self.words, now, ended)

    @property
    def next_due(self) -> int | None:
        """When to ``release`` next; None: no update waits until its key is due."""
        return int(self.words[layout.NEXT_DUE]) if self.words[layout.RESTING] else None

    def dequeue(self, limit: int, now: int) -> Words:
        """The places of the next updates, at most ``limit``."""
        self.release(now)
        limit = min(limit, int(self.words[layout.RESIDENTS]))
        self.make_room(flights=limit)
        found = np.empty(limit, np.int64)
        return found[: update_queue.dequeue(self.words, now, found)]

    def deliver(self, updates: int, now: int) -> None:
        """The results of the next ``updates``, in the order of their dequeue, have been
        delivered.

        Raises ValueError if fewer were dequeued."""
        if not 0 <= updates <= self.words[layout.TAKEN] - self.words[layout.DELIVERED]:
            raise ValueError(f"{updates} updates are delivered, and fewer were dequeued")
        staleness.deliver(self.words, updates, now)

    def enqueue_rows(self, ids: Words, events: Words, watermarks: Words, now: int) -> Words:
        """The same for a queue of windows. ``watermarks``: the progress before each row."""
        self.make_room(keys=int(ids.max(initial=-1)) + 1, arrivals=len(ids))
        found = np.empty(len(ids), np.int64)
        window_manager.enqueue_rows(self.words, ids, events, watermarks, now, found)
        return found

    def progress(self, to: int, now: int) -> None:
        """No later row has an event time below ``to``; a queue of windows."""
        window_manager.progress(self.words, to, now)

    def end(self, now: int) -> None:
        """The input has ended: all windows have fully arrived."""
        windows = self.windows
        assert windows is not None
        newest = int(self.store.arrays["cells"][:, layout.NEWEST].max(initial=NEVER))
        if newest > NEVER:
            self.progress(newest + windows.size + windows.slide, now)

    def serve(self, limit: int, now: int) -> Served:
        """The next rows of committed windows, at most ``limit``, of a queue of windows. The caller
        copies them, then calls ``forget``."""
        rows, keys, starts, marks = np.empty((4, limit), np.int64)
        n = window_manager.serve(self.words, now, rows, keys, starts, marks)
        return Served(rows[:n], keys[:n], starts[:n], marks[:n])

    def forget(self, keys: Words) -> None:
        """Frees the rows that were served; ``keys`` are those of the rows."""
        window_manager.forget(self.words, keys)

    def deliver_windows(self, keys: Words, now: int) -> None:
        """The results of windows whose last row had the mark CLOSES have been delivered.

        Raises ValueError if one of ``keys`` has no such window."""
        if (self.store.arrays["buffers"][keys, layout.STATE] != layout.DONE).any():
            raise ValueError("a window is delivered that has not closed")
        window_manager.deliver_windows(self.words, keys, now)

    def change_scheduler(self, to: Scheduler) -> None:
        """Orders the keys in another way from now on. An append queue that becomes an update queue
        keeps the newest row of each key; an update queue that becomes an append queue is empty; it
        has paged storage and no windows."""
        q = self.words
        appends = self.scheduler in (Scheduler.APPEND, Scheduler.SHED)
        if to in (Scheduler.APPEND, Scheduler.SHED):
            assert appends or q[layout.RESIDENTS] == 0
        elif appends:
            assert self.storage is Storage.PAGED
            update_queue.keep_newest(q, self._residents())
        q[layout.LAST_CUTTER] = -1
        q[layout.CUT_SHARE] = 0
        q[layout.SCHEDULER] = to.value
        self.scheduler = to

    # -- reports ---------------------------------------------------------------------------------

    def longest_wait(self, now: int) -> int:
        """How long the key that has waited longest has waited, in units of the clock; 0: none
        waits."""
        oldest = int(self.words[layout.OLDEST])
        if oldest < 0:
            return 0
        cell = self.store.arrays["places"][oldest, layout.OWNER]
        return now - int(self.store.arrays["cells"][cell, layout.SINCE])

    def arrivals(self) -> Words:
        """By key, how many updates have arrived."""
        return self.store.arrays["cells"][:, layout.ARRIVALS].copy()

    def areas(self, now: int) -> Staleness:
        """The integrals of staleness up to ``now``, of all keys that have room. Other threads may
        ask."""
        cells = self.store.arrays["cells"]  # not by address: the table may move meanwhile
        queue, application = np.zeros((2, len(cells)))
        staleness.areas(cells, now, queue, application)
        return Staleness(queue, application)

    def rise(self, to: int) -> None:
        """No later row has an event time below ``to``; of a queue without windows."""
        self.words[layout.PROGRESS] = max(int(self.words[layout.PROGRESS]), to)

    @property
    def floor(self) -> int:
        """A lower bound of the event times of all rows that wait or will come (NEVER: none is
        known): the progress when the oldest resident began to wait, or before the first of the rows
        whose keys are not due."""
        q = self.words
        firsts = [int(q[layout.OLDEST]), int(q[layout.FIRST_RESTING])]
        floors = self.store.arrays["places"][[f for f in firsts if f >= 0], layout.FLOOR]
        return min(int(q[layout.PROGRESS]), int(floors.min(initial=q[layout.PROGRESS])))

    @property
    def rows(self) -> int:
        """Rows for which the pool has room."""
        q = self.words
        return int(q[layout.PAGES] * q[layout.PAGE_ROWS] * q[layout.BLOCK_ROWS])

    def held_rows(self) -> Words:
        """The rows of the pool that hold a row: those of the residents and of the keys that are not
        due, or of the window buffers."""
        if self.windows is None:
            resting = self._listed(layout.FIRST_RESTING, layout.YOUNGER)
            return np.concatenate([self._residents(), resting])
        blocks, size, found = self.store.arrays["blocks"], self.windows.block_rows, []
        for first in self.store.arrays["buffers"][:, layout.FIRST_BLOCK].tolist():
            block = first
            while block >= 0:
                after, _, start, end = blocks[block].tolist()
                found.append(np.arange(size * block + start, size * block + end))
                block = after
        return np.concatenate(found) if found else np.zeros(0, np.int64)

    def _residents(self) -> Words:
        """The places with rows that wait to be served, in the order of service."""
        return self._listed(layout.HEAD, layout.AFTER)

    def _listed(self, first: int, after: int) -> Words:
        """The places of a list, by its words."""
        found, place = [], int(self.words[first])
        links = self.store.arrays["places"]
        while place >= 0:
            found.append(place)
            place = int(links[place, after])
        return np.array(found, np.int64)

    def idle(self) -> Words:
        """The keys that have arrived and of which nothing waits, is in flight or is pending, that
        do not rest, and of which no row can come behind the newest; the one whose last update is
        longest ago first."""
        cells = self.store.arrays["cells"]
        waits = (cells[:, layout.WAITING] > 0) | (cells[:, layout.IN_FLIGHT] >= 0)
        pending = cells[:, layout.PENDING] != NEVER
        over = cells[:, layout.NEWEST] < self.words[layout.PROGRESS]
        idle = (cells[:, layout.LAST] != NEVER) & ~waits & ~pending & over
        if self.every:
            idle &= self.store.arrays["rests"][:, layout.DUE] == NEVER
        if self.windows is not None:
            buffers = self.store.arrays["buffers"]
            idle &= (buffers[:, layout.STATE] == layout.NONE) & (buffers[:, layout.ACTIVE] == 0)
            idle &= buffers[:, layout.FIRST_BLOCK] < 0
        found = np.flatnonzero(idle)
        return found[np.argsort(cells[found, layout.LAST], kind="stable")]

    def forget_keys(self, gone: Words) -> None:
        """Forgets idle keys and frees their places (PREALLOCATED); the totals keep their
        staleness."""
        pages = self.store.arrays["cells"][gone, layout.EP]
        kept = pages * self.words[layout.PAGE_ROWS] + self.store.arrays["cells"][gone, layout.DL]
        for key in gone.tolist():
            staleness.keep_areas(self.words, key)
        for place in kept[pages >= 0].tolist():
            mem_rem(self.words, place)
        self._clear_cells(gone)
        if self.every:
            self._clear_rests(gone)
        if self.windows is not None:
            self._clear_buffers(gone)

    @property
    def window_floor(self) -> int:
        """A lower bound of the starts of all windows whose rows will be served (NEVER: none is
        known)."""
        q, windows = self.words, self.windows
        assert windows is not None
        progress = int(q[layout.PROGRESS])
        if progress == NEVER:
            return NEVER
        size, slide = windows.size, windows.slide
        buffers, waits = self.store.arrays["buffers"], self.store.arrays["cells"][:, layout.WAITING]
        served = buffers[buffers[:, layout.STATE] != layout.NONE, layout.COMMITTED]
        waiting = buffers[waits > 0, layout.WS]
        to_come = (progress - size) // slide * slide + slide
        return min(to_come, *(int(a.min(initial=to_come)) for a in (served, waiting)))

    def mean_staleness(self, now: int) -> tuple[float, float, float]:
        """Staleness from the first arrival to ``now``, in units of the clock, on average over all
        keys: of the queue and of the application; then that of the application of the worst key."""
        q = self.words
        time, keys = now - int(q[layout.START]), int(q[layout.SEEN_KEYS])
        if keys == 0 or time <= 0:
            return 0.0, 0.0, 0.0
        found = self.areas(now)
        gone = q[[layout.GONE_AREA, layout.GONE_STALENESS]].view(np.float64)
        queue = float(found.queue.sum() + gone[0]) / keys
        application = float(found.application.sum() + gone[1]) / keys
        return queue / time, application / time, float(found.application.max(initial=0.0)) / time

    @property
    def effective_usage(self) -> float:
        """The share of the places given to keys that hold a row which waits (§7.3); of a queue of
        windows, the share of its blocks' rows that are held."""
        used = int(self.words[layout.PLACES_USED])
        if self.windows is not None:
            rows = used * self.windows.block_rows
            return int(self.words[layout.ROWS_HELD]) / rows if used else 1.0
        waiting = int(self.words[layout.RESIDENTS] + self.words[layout.RESTING])
        return waiting / used if used else 1.0

    def counters(self) -> dict[str, int]:
        """Conservation: rows_in = taken + superseded + shed + held. A queue of windows counts
        windows that became updates of their keys."""
        q = self.words
        return {
            "rows_in": int(q[layout.ARRIVED]),
            "taken": int(q[layout.TAKEN]),
            "superseded": int(q[layout.SUPERSEDED]),
            "shed": int(q[layout.SHED_ROWS]),
            "held": int(q[layout.RESIDENTS] + q[layout.SERVED_WAITING] + q[layout.RESTING]),
        }

    # -- snapshots -------------------------------------------------------------------------------

    def snapshot(self, now: int) -> Snapshot:
        """The words and tables. They hold places, and times relative to ``now``: another process
        has another clock."""
        saved = self.store.snapshot(self.words)
        words = saved.words.copy()
        _move_times(words, saved.arrays, -now)
        return replace(saved, words=words)

    def restore(self, saved: Snapshot, now: int) -> None:
        """Continues at ``now`` with the state of a queue of the same declaration, as if no time had
        passed since the snapshot.

        Raises RunError for a queue with other intervals of REFRESH."""
        items = saved.arrays.get("items")
        every = () if items is None else tuple(items[:, layout.EVERY].tolist())
        if every != self.every:
            raise RunError(
                f"{self._name} has other intervals of REFRESH than at the checkpoint",
                hint="restore it with the stream that it was taken with",
            )
        self.store.restore(saved, self.words)
        _move_times(self.words, self.store.arrays, now)
        self.scheduler = Scheduler(int(self.words[layout.SCHEDULER]))
        self._bind()


def _move_times(words: Words, tables: Mapping[str, Array], by: int) -> None:
    """Adds ``by`` to all times of the clock in the words and tables of a queue."""
    if words[layout.START] != NEVER:
        words[_QUEUE_TIMES] += by
    if words[layout.NEXT_DUE] != NEVER:
        words[layout.NEXT_DUE] += by
    for name, columns in _TIMES.items():
        for column in columns if name in tables else ():
            times = tables[name][:, column]
            times[times != NEVER] += by
