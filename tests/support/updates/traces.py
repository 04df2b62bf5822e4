"""Random traces of the operations of an update queue, run side by side with the slow model."""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from cql.executor.kernels.morsel_layout import NEVER
from cql.executor.kernels.updates import layout, staleness, windows
from cql.executor.operators.updates.queue_state import QueueState, Scheduler, Storage, Windows
from tests.reference.naive_update_windows import NaiveWindowQueue
from tests.reference.naive_updates import NaiveQueue
from tests.support.updates.walk import Walked, walk

#: The schedulers of update queues.
ROW = (Scheduler.FIFO, Scheduler.IN_PLACE, Scheduler.LINECUTTING)
#: Schedulers and storage of rows, without and with REFRESH; schedulers, EAGER and progress by key
#: of windows.
ROW_KINDS = tuple(itertools.product(Scheduler, Storage))
REFRESH_KINDS = tuple(itertools.product(ROW, Storage))
WINDOW_KINDS = tuple(itertools.product(ROW, (False, True), (False, True)))
#: Operations of a trace.
STEPS = 40


class Unlimited:
    """No ``max_state``; knows the bytes of the state."""

    def __init__(self) -> None:
        self.nbytes = 0

    def resize(self, before: int, after: int, what: str) -> None:
        self.nbytes += after - before


def same_area(found: float, exact: Fraction) -> bool:
    return bool(
        abs(Fraction(found) - exact) <= abs(exact) * Fraction(1, 10**9) + Fraction(1, 10**6)
    )


class _Trace:
    """``renew``: what stands for the queue after each operation, such as a restored copy, and its
    clock then; it takes the queue and its clock. ``base``: the time of the clock of the queue at
    which that of the model has 0."""

    state: QueueState
    renew: Callable[[QueueState, int], tuple[QueueState, int]] | None = None
    base = 0

    def __init__(self, choice: random.Random) -> None:
        self.choice = choice
        self.now = choice.choice((0, 5, -1000, 10**15))
        self.rows = 0
        #: The largest number of keys and of rows in one batch, and of ticks between operations.
        self.keys, self.batch, self.pause = choice.choice((1, 2, 3, 6)), choice.randint(1, 6), 4

    @property
    def at(self) -> int:
        """The time of the clock of the queue."""
        return self.now + self.base

    def renewed(self) -> None:
        if self.renew is not None:
            self.state, at = self.renew(self.state, self.at)
            self.base = at - self.now

    def tick(self) -> None:
        self.now += self.choice.choice((0, 0, 1, self.pause))

    def costs(self, line: Any) -> None:
        cost = self.choice.choice((0.5, 1.0, 3.0))
        staleness.note_cost(self.state.words, cost)
        line.note_cost(cost)

    def check_keys(self, areas: Callable[[int, int], tuple[Fraction, Fraction]]) -> None:
        later = self.now + self.choice.randint(0, 3)
        found = self.state.areas(later + self.base)
        for key in range(len(found.queue)):
            queue, application = areas(key, later)
            assert same_area(found.queue[key], queue), (key, found.queue[key], queue)
            assert same_area(found.application[key], application), (
                key,
                found.application[key],
                application,
            )


class RowTrace(_Trace):
    """Of a queue in which each row is an update. The owner's columns are ``places``. ``refresh``:
    whether keys rest."""

    def __init__(
        self,
        choice: random.Random,
        scheduler: Scheduler,
        storage: Storage = Storage.PAGED,
        make: type[QueueState] = QueueState,
        *,
        refresh: bool = False,
    ) -> None:
        super().__init__(choice)
        guarded, rows = choice.random() < 0.5, choice.choice((1, 2, 3, 5))
        items = choice.randint(1, 3) if refresh else 0
        self.every = [choice.choice((1, 2, 5, 20)) for _ in range(items)]
        self.state = make(
            "queue",
            Unlimited(),
            scheduler,
            storage,
            page_rows=rows,
            guarded=guarded,
            every=self.every,
        )
        self.model = NaiveQueue(scheduler.name, guarded=guarded, every=self.every)
        self.changes = storage is Storage.PAGED and choice.random() < 0.5
        self.places: dict[int, tuple[int, int, int]] = {}
        self.event = choice.choice((0, -50, 10**12))
        self.floors: dict[int, int] = {}
        self.low = NEVER
        self.floor = NEVER
        self.gone = Fraction(0), Fraction(0)
        self.peak = 0

    def step(self) -> None:
        self.tick()
        kinds = ("enqueue", "enqueue", "enqueue", "dequeue", "dequeue", "deliver", "cost", "forget")
        kinds += ("change",) if self.changes else ()
        kinds += ("release",) if self.every else ()
        kind = self.choice.choice(kinds)
        getattr(self, f"_{kind}")()
        self.renewed()
        self.check()

    def _cost(self) -> None:
        self.costs(self.model.line)

    def _events(self, n: int) -> list[int]:
        """Mostly rising; some rows are behind, some equal."""
        found = []
        for _ in range(n):
            self.event += self.choice.choice((0, 0, 1, 3))
            found.append(self.event - self.choice.choice((0, 0, 0, 1, 7)))
        return found

    def _enqueue(self) -> None:
        n = self.choice.randint(0, self.batch)
        keys = [self.choice.randrange(self.keys) for _ in range(n)]
        if self.choice.random() < 0.1:
            self.keys += 1
        events = self._events(n)
        if self.choice.random() < 0.3:
            self.low = max(self.low, self.event - self.choice.choice((-2, 0, 5)))
            self.state.rise(self.low)
        new = [key for key in dict.fromkeys(keys) if key not in self.model.keys]
        if self.every and new:
            items = [self.choice.randrange(-1, len(self.every)) for _ in new]
            self.state.refresh_keys(np.array(new, np.int64), np.array(items, np.int64))
            for key, item in zip(new, items, strict=True):
                self.model.refresh(key, None if item < 0 else item)
        self.model.release(self.now)
        shed = int(self.state.words[layout.SHED_ROWS])
        found = self.state.enqueue(np.array(keys, np.int64), np.array(events, np.int64), self.at)
        shed = int(self.state.words[layout.SHED_ROWS]) - shed
        for key, event, place in zip(keys, events, found.tolist(), strict=True):
            left_out = self.state.scheduler is Scheduler.SHED and place < 0
            shed -= left_out
            kept = self.model.enqueue(key, event, self.rows, self.now, shed=left_out)
            assert kept == (place >= 0)
            if kept:
                waits = self.places.get(place)
                assert waits is None or waits[0] == key, "a place in two hands"
                if waits is None or self.model.keys[key].due is not None:
                    self.floors[place] = int(self.state.words[layout.PROGRESS])
                self.places[place] = key, event, self.rows
            self.rows += 1
        assert shed == 0

    def _dequeue(self) -> None:
        limit = self.choice.choice((0, 1, 1, 2, 7))
        places, expected = self.state.dequeue(limit, self.at), self.model.dequeue(limit, self.now)
        found = []
        for place in places.tolist():
            found.append(self.places.pop(place))
            row = self.state.store.arrays["places"][place]
            assert (row[layout.OWNER], row[layout.EVENT]) == found[-1][:2]
            floor = self.floors.pop(place)
            assert row[layout.FLOOR] <= floor if self.every else row[layout.FLOOR] == floor
        assert found == [(one.key, one.event, one.row) for one in expected]

    def _change(self) -> None:
        """Another scheduler: an append queue only of an empty queue."""
        held = walk(self.state).held_places
        known = (Scheduler.APPEND, *ROW)
        to = self.choice.choice(known if not held and not self.every else ROW)
        floors: dict[int, int] = {}
        for place in held:
            floors.setdefault(self.places[place][0], self.floors[place])
        self.state.change_scheduler(to)
        self.model.change(to.name)
        self.places = {p: self.places[p] for p in walk(self.state).held_places}
        self.floors = {p: floors[key] for p, (key, _, _) in self.places.items()}

    def _release(self) -> None:
        ended = self.choice.random() < 0.2
        self.state.release(self.at, ended=ended)
        self.model.release(self.now, ended=ended)

    def _forget(self) -> None:
        """Some of the idle keys."""
        idle, keys = self.state.idle(), self.model.keys
        expected = [k for k in sorted(keys) if self.model.is_idle(k, self.low)]
        assert idle.tolist() == sorted(expected, key=lambda k: keys[k].rate.last or 0)
        n = self.choice.randint(0, len(idle))
        for key in idle[:n].tolist():
            queue, application = self.model.areas(key, self.now)
            self.gone = self.gone[0] + queue, self.gone[1] + application
            del keys[key]
        self.state.forget_keys(idle[:n])

    def _deliver(self) -> None:
        n = self.choice.randint(0, len(self.model.flights))
        self.state.deliver(n, self.at)
        self.model.deliver(n, self.now)

    def check(self) -> None:
        state, model = self.state, self.model
        counters = state.counters()
        assert counters == model.counters
        check_conservation(counters)
        walked = walk(state)
        rows = [self.places[place][2] for place in walked.order]
        updates = [self.places[place][0] for place in walked.order]
        assert (updates if model.updates else rows) == model.line.order
        aged = [self.places[place][0 if model.updates else 2] for place in walked.by_age]
        assert aged == model.line.by_age
        assert walked.cutters == model.line.cutters
        assert sorted(self.places[p][0] for p in walked.resting) == sorted(model.resting)
        due = [cell.due for cell in model.keys.values() if cell.due is not None]
        next_due = state.next_due
        assert next_due == (self.base + min(due) if model.resting else None)
        assert self.floor <= state.floor <= min([self.low, *self.floors.values()])
        self.floor = state.floor
        if state.storage is Storage.PAGED or not model.updates:
            assert state.effective_usage == 1.0
        else:
            assert state.words[layout.PLACES_USED] == sum(
                key.arrivals > 0 for key in model.keys.values()
            )
        assert state.held_rows().tolist() == walked.held_places
        self.check_pages()
        self.check_keys(model.areas)
        found = state.words[[layout.GONE_AREA, layout.GONE_STALENESS]].view(np.float64)
        assert all(map(same_area, found.tolist(), self.gone))

    def check_pages(self) -> None:
        """A page leaves the pool only when all others are full."""
        q: list[int] = self.state.words.tolist()
        self.peak = max(self.peak, q[layout.PLACES_USED])
        most = -(-self.peak // q[layout.PAGE_ROWS])
        assert q[layout.PAGES_USED] <= q[layout.UNUSED] <= most
        assert q[layout.PAGES_USED] <= q[layout.PLACES_USED]


class WindowTrace(_Trace):
    """Of a queue of windows. Event times rise with the trace; ``by_key``: each key has its own
    progress as well. ``ahead``: rows may be this far ahead of the progress."""

    def __init__(
        self,
        choice: random.Random,
        scheduler: Scheduler,
        *,
        eager: bool,
        by_key: bool = False,
        make: type[QueueState] = QueueState,
    ) -> None:
        super().__init__(choice)
        guarded, size = choice.random() < 0.5, choice.randint(1, 9)
        slide = choice.choice((1, 2, size, size + 3, choice.randint(1, size)))
        block_rows = choice.choice((1, 2, 3, 16))
        declared = Windows(size, slide, eager, block_rows)
        pages = choice.choice((1, 2, 4))
        self.state = make(
            "queue", Unlimited(), scheduler, page_rows=pages, guarded=guarded, windows=declared
        )
        self.model = NaiveWindowQueue(scheduler.name, size, slide, eager=eager, guarded=guarded)
        self.by_key = by_key
        self.event = choice.choice((0, -50, 10**12))
        self.low = self.event - choice.randint(0, 5)
        self.ahead = choice.choice((0, 1, 3, size + slide))
        self.contents: dict[int, tuple[int, int, int]] = {}
        self.done: deque[int] = deque()

    def step(self) -> None:
        self.tick()
        kinds = ["enqueue"] * 3 + ["serve"] * 2 + ["deliver", "progress", "cost"]
        if self.by_key:
            kinds.append("progress_of")
        getattr(self, f"_{self.choice.choice(kinds)}")()
        self.renewed()
        self.check()

    def _cost(self) -> None:
        self.costs(self.model.line)

    def _enqueue(self) -> None:
        n = self.choice.randint(0, self.batch)
        if self.choice.random() < 0.1:
            self.keys += 1
        keys, events, lows = [], [], []
        for _ in range(n):
            self.event += self.choice.choice((0, 0, 1, 1, 2, self.ahead))
            self.low = max(self.low, self.event - self.choice.choice((0, 1, self.ahead)))
            keys.append(self.choice.randrange(self.keys))
            lows.append(self.low if not self.by_key else NEVER)
            events.append(self.event - self.choice.choice((0, 0, 0, 1, 7)))
        found = self.state.enqueue_rows(
            np.array(keys, np.int64), np.array(events, np.int64), np.array(lows, np.int64), self.at
        )
        for key, event, low, place in zip(keys, events, lows, found.tolist(), strict=True):
            if low != NEVER:
                self.model.progress(low, self.now)
            kept = self.model.enqueue_row(key, event, self.rows, self.now)
            assert kept == (place >= 0), (key, event, low, place)
            if kept:
                self.contents[place] = key, event, self.rows
            self.rows += 1

    def _progress(self) -> None:
        to = self.event + self.choice.choice((-20, -3, 0, 1, 1, self.model.size))
        if self.by_key and self.choice.random() < 0.7:
            to -= 20
        self.low = max(self.low, to)
        self.state.progress(to, self.at)
        self.model.progress(to, self.now)

    def _progress_of(self) -> None:
        if not self.model.keys:
            return
        key = self.choice.choice(sorted(self.model.keys))
        to = self.event + self.choice.choice((-20, -3, 0, 1, self.model.size))
        window_progress_of(self.state, key, to, self.at)
        self.model.progress_of(key, to, self.now)

    def _serve(self) -> None:
        limit = self.choice.choice((0, 1, 1, 2, 5, 50))
        found, expected = self.state.serve(limit, self.at), self.model.serve(limit, self.now)
        rows = [None if place < 0 else self.contents[place][2] for place in found.rows.tolist()]
        assert rows == [one.row for one in expected]
        assert found.keys.tolist() == [one.key for one in expected]
        assert found.starts.tolist() == [one.start for one in expected]
        assert found.marks.tolist() == [one.marks for one in expected]
        if self.choice.random() < 0.9:  # the caller may forget them later
            self.state.forget(found.keys)
        self.done.extend(one.key for one in expected if one.marks & 2)

    def _deliver(self) -> None:
        n = self.choice.randint(0, len(self.done))
        keys = [self.done.popleft() for _ in range(n)]
        if self.choice.random() < 0.2:
            self.choice.shuffle(keys)
        self.state.deliver_windows(np.array(keys, np.int64), self.at)
        self.model.deliver_windows(keys, self.now)

    def check(self) -> None:
        state, model = self.state, self.model
        counters = state.counters()
        assert counters == model.counters
        check_conservation(counters)
        walked = walk(state)
        self.check_rows(walked)
        assert walked.order == model.line.order
        assert walked.by_age == model.line.by_age
        assert walked.cutters == model.line.cutters
        assert walked.ready == model.ready
        assert set(walked.idle) == model.idle
        assert walked.active == model.active
        self.check_keys(model.areas)

    def check_rows(self, walked: Walked) -> None:
        """Rows that a window needs are held; each row is somewhere."""
        assert 0.0 < self.state.effective_usage <= 1.0
        q: list[int] = self.state.words.tolist()
        model = self.model
        assert q[layout.ROWS_LATE] == model.late
        assert q[layout.ROWS_BETWEEN] == model.between
        assert q[layout.ROWS_TAKEN] == model.rows_taken
        kept = sum(len(key.rows) for key in model.keys.values())
        assert kept == q[layout.ROWS_HELD] + q[layout.ROWS_GONE]
        assert self.rows == kept + model.late + model.between
        for key in model.keys:
            needed = [row.event for row in model.due(key)]
            held = walked.held.get(key, [])
            assert not needed or held[-len(needed) :] == needed or set(needed) <= set(held)


def window_progress_of(state: QueueState, key: int, to: int, now: int) -> None:
    windows.progress_of(state.words, key, to, now)


def check_conservation(counters: dict[str, int]) -> None:
    left = counters["taken"] + counters["superseded"] + counters["shed"] + counters["held"]
    assert counters["rows_in"] == left
