"""A slow model of update queues, from the rules of the UpStream report (sections 3.3, 4, 5 and 7).

It knows no places and no pages: it says which rows a queue gives, in which order, and how stale
each key is. With REFRESH, a key of which an update has been dequeued rests for a time (section 8):
an arrival meanwhile counts, and waits to be served, from the end of this time on. Staleness follows
from its definition: the arrivals that a dequeue or a delivery has not reached yet. Times are
integers, and areas are exact.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

APPEND, SHED, FIFO, IN_PLACE, LINECUTTING = "APPEND", "SHED", "FIFO", "IN_PLACE", "LINECUTTING"


@dataclass
class Stale:
    """A staleness curve: the arrival times of what is pending, oldest first, and the area below
    ``t - oldest`` so far. They may be later than now."""

    pending: deque[int] = field(default_factory=deque)
    area: Fraction = Fraction(0)
    until: int = 0

    def advance(self, now: int) -> None:
        """The area grows to the time ``now``; nothing has changed since ``until``."""
        self.area = self.at(now)
        self.until = now

    def at(self, now: int) -> Fraction:
        if not self.pending:
            return self.area
        height, before = (max(t - self.pending[0], 0) for t in (now, self.until))
        return self.area + Fraction(height**2 - before**2, 2)

    def arrive(self, now: int, due: int | None = None) -> None:
        """``due``: when it is pending from; None: now."""
        self.advance(now)
        self.pending.append(now if due is None else due)

    def end(self, now: int) -> None:
        """What is due later is due now."""
        self.advance(now)
        self.pending = deque(min(due, now) for due in self.pending)

    def reached(self, count: int, now: int) -> None:
        """The oldest ``count`` are pending no longer."""
        self.advance(now)
        for _ in range(count):
            self.pending.popleft()


@dataclass
class Rate:
    """The average time between the updates of a key, as the queue weighs it."""

    last: int | None = None
    arrivals: int = 0
    interval: float = 0.0

    def arrive(self, now: int) -> None:
        if self.last is not None:
            weight = max(1 / 8, 1.0 / self.arrivals)
            self.interval += weight * (float(now - self.last) - self.interval)
        self.last = now
        self.arrivals += 1


@dataclass
class Line:
    """The queue of keys: who is served next. ``cutters``: the number at the head that cut in.
    ``by_age``: in the order in which they began to wait."""

    scheduler: str
    guarded: bool
    order: list[int] = field(default_factory=list)
    by_age: list[int] = field(default_factory=list)
    cutters: int = 0
    cost: float = 0.0
    share: float = 0.0

    def note_cost(self, cost: float) -> None:
        weight = 1.0 if self.cost == 0.0 else 1 / 8
        self.cost += weight * (cost - self.cost)

    def is_slow(self, rate: Rate, every: int) -> bool:
        if rate.arrivals < 2:
            return True
        left = 1.0 - self.share if self.guarded else 1.0
        return max(rate.interval, every) * left > self.cost * len(self.order)

    def enter(self, who: int, rate: Rate, every: int = 0, *, oldest: bool = False) -> None:
        """``every``: the least time between two updates of the key that are served. ``oldest``: it
        has rested, and counts as the one that began to wait first."""
        if self.scheduler == LINECUTTING and self.is_slow(rate, every):
            self.order.insert(self.cutters, who)
            self.cutters += 1
        else:
            self.order.append(who)
        self.by_age.insert(0 if oldest else len(self.by_age), who)

    def to_tail(self, who: int) -> None:
        self.order.remove(who)
        self.order.append(who)

    def leave(self) -> int:
        """The one at the head is served."""
        if self.scheduler == LINECUTTING:
            cut = 1.0 if self.cutters else 0.0
            self.share += (cut - self.share) * (1 / 32)
        self.cutters = max(self.cutters - 1, 0)
        who = self.order.pop(0)
        self.by_age.remove(who)
        return who


@dataclass
class Update:
    """A row in the queue. ``number``: how many arrivals of its key there were up to it."""

    key: int
    event: int
    row: int
    number: int


@dataclass
class Key:
    rate: Rate = field(default_factory=Rate)
    newest: int | None = None
    queue: Stale = field(default_factory=Stale)
    application: Stale = field(default_factory=Stale)
    arrivals: int = 0
    dequeued: int = 0  # arrivals that a dequeue has reached
    delivered: int = 0
    waits: Update | None = None  # update queues
    item: int | None = None  # of REFRESH
    due: int | None = None  # when its rest ends
    served: int = 0  # the number of its last dequeue, among those of all keys


class NaiveQueue:
    """An update queue, or an append queue, of rows. Rows are numbered by the caller. ``every``: how
    long a key rests, by item of REFRESH."""

    def __init__(self, scheduler: str, *, guarded: bool = True, every: Sequence[int] = ()) -> None:
        self.every = every
        self.scheduler = scheduler
        self.updates = scheduler not in (APPEND, SHED)
        self.line = Line(scheduler, guarded)
        self.keys: dict[int, Key] = {}
        self.rows: dict[int, Update] = {}  # append queues: by row
        self.flights: deque[Update] = deque()
        self.counters = {"rows_in": 0, "taken": 0, "superseded": 0, "shed": 0, "held": 0}

    def enqueue(self, key: int, event: int, row: int, now: int, *, shed: bool = False) -> bool:
        """Whether the queue keeps the row. ``shed``: it was left out under random load shedding."""
        counters = self.counters
        counters["rows_in"] += 1
        self.release(now)
        cell = self.keys.setdefault(key, Key())
        if self.updates and cell.newest is not None and event < cell.newest:
            counters["superseded"] += 1
            return False
        cell.newest = event if cell.newest is None else max(cell.newest, event)
        cell.rate.arrive(now)
        cell.arrivals += 1
        cell.queue.arrive(now, cell.due)
        cell.application.arrive(now, cell.due)
        if shed:
            counters["shed"] += 1
            return False
        update = Update(key, event, row, cell.arrivals)
        if not self.updates:
            self.rows[row] = update
            self.line.enter(row, cell.rate)
        elif cell.waits is not None:
            counters["superseded"] += 1
            cell.waits = update
            if self.scheduler == FIFO and cell.due is None:
                self.line.to_tail(key)
        else:
            cell.waits = update
            if cell.due is None:
                self.line.enter(key, cell.rate, self._every(cell))
        self._count_held()
        return True

    def refresh(self, key: int, item: int | None) -> None:
        """A new key has this item of REFRESH."""
        self.keys.setdefault(key, Key()).item = item

    def release(self, now: int, *, ended: bool = False) -> None:
        """Ends the rests that are over by ``now``, or all of them: the first that is over first."""
        over = [
            (cell.due, cell.item, cell.served, key)
            for key, cell in self.keys.items()
            if cell.due is not None and (ended or cell.due <= now)
        ]
        for *_, key in sorted(over):
            cell = self.keys[key]
            cell.due = None
            if cell.waits is not None:
                if ended:
                    cell.queue.end(now)
                    cell.application.end(now)
                self.line.enter(key, cell.rate, self._every(cell), oldest=True)

    @property
    def resting(self) -> list[int]:
        """The keys with an update that waits for the end of their rest."""
        cells = self.keys.items()
        return [k for k, cell in cells if cell.due is not None and cell.waits is not None]

    def _every(self, cell: Key) -> int:
        return 0 if cell.item is None else self.every[cell.item]

    def _count_held(self) -> None:
        self.counters["held"] = len(self.line.order) + len(self.resting)

    def change(self, scheduler: str) -> None:
        """Another scheduler. An append queue keeps the row of each key with the latest event time,
        and of those the last one, at the place of the key's first; it becomes an append queue
        again when it is empty."""
        if not self.updates and scheduler not in (APPEND, SHED):
            kept: dict[int, Update] = {}
            for row in self.line.order:
                update = self.rows[row]
                first = kept.get(update.key)
                if first is None or update.event >= first.event:
                    kept[update.key] = update
            self.counters["superseded"] += len(self.line.order) - len(kept)
            self.counters["held"] = len(kept)
            for key, update in kept.items():
                self.keys[key].waits = update
            self.line.order, self.line.by_age = list(kept), list(kept)
            self.rows = {}
        self.scheduler = self.line.scheduler = scheduler
        self.updates = scheduler not in (APPEND, SHED)
        self.line.cutters, self.line.share = 0, 0.0

    def dequeue(self, limit: int, now: int) -> list[Update]:
        taken = []
        self.release(now)
        while len(taken) < limit and self.line.order:
            who = self.line.leave()
            if self.updates:
                cell = self.keys[who]
                update = cell.waits
                assert update is not None
                cell.waits = None
                update.number = cell.arrivals  # it stands for all that it has overwritten
                if cell.item is not None:
                    cell.due = now + self.every[cell.item]
                    cell.served = self.counters["taken"] + len(taken)
            else:
                update = self.rows.pop(who)
                cell = self.keys[update.key]
                # What was shed before the key's first update after it has no update of its own.
            cell.queue.reached(update.number - cell.dequeued, now)
            cell.dequeued = update.number
            taken.append(update)
            self.flights.append(update)
        self.counters["taken"] += len(taken)
        self._count_held()
        return taken

    def deliver(self, updates: int, now: int) -> None:
        for _ in range(updates):
            update = self.flights.popleft()
            cell = self.keys[update.key]
            cell.application.reached(update.number - cell.delivered, now)
            cell.delivered = update.number

    def is_idle(self, key: int, progress: int) -> bool:
        """Whether nothing of the key waits, is in flight or is pending, it does not rest, and its
        rows are behind the progress."""
        cell = self.keys[key]
        busy = cell.queue.pending or cell.application.pending or cell.due is not None
        busy = busy or any(update.key == key for update in self.flights)
        return not busy and cell.newest is not None and cell.newest < progress

    def areas(self, key: int, now: int) -> tuple[Fraction, Fraction]:
        """Of queue staleness and of application staleness, up to ``now``."""
        cell = self.keys.get(key, Key())
        return cell.queue.at(now), cell.application.at(now)
