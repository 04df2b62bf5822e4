"""A slow model of update queues, from the rules of the UpStream report (sections 3.3, 4, 5 and 7).

It knows no places and no pages: it says which rows a queue gives, in which order, and how stale
each key is. Staleness follows from its definition: the arrivals that a dequeue or a delivery has
not reached yet. Times are integers, and areas are exact.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from fractions import Fraction

APPEND, SHED, FIFO, IN_PLACE, LINECUTTING = "APPEND", "SHED", "FIFO", "IN_PLACE", "LINECUTTING"


@dataclass
class Stale:
    """A staleness curve: the arrival times of what is pending, oldest first, and the area below
    ``t - oldest`` so far."""

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
        oldest = self.pending[0]
        return self.area + Fraction((now - oldest) ** 2 - (self.until - oldest) ** 2, 2)

    def arrive(self, now: int) -> None:
        self.advance(now)
        self.pending.append(now)

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

    def is_slow(self, rate: Rate) -> bool:
        if rate.arrivals < 2:
            return True
        left = 1.0 - self.share if self.guarded else 1.0
        return rate.interval * left > self.cost * len(self.order)

    def enter(self, who: int, rate: Rate) -> None:
        if self.scheduler == LINECUTTING and self.is_slow(rate):
            self.order.insert(self.cutters, who)
            self.cutters += 1
        else:
            self.order.append(who)
        self.by_age.append(who)

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


class NaiveQueue:
    """An update queue, or an append queue, of rows. Rows are numbered by the caller."""

    def __init__(self, scheduler: str, *, guarded: bool = True) -> None:
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
        cell = self.keys.setdefault(key, Key())
        if self.updates and cell.newest is not None and event < cell.newest:
            counters["superseded"] += 1
            return False
        cell.newest = event if cell.newest is None else max(cell.newest, event)
        cell.rate.arrive(now)
        cell.arrivals += 1
        cell.queue.arrive(now)
        cell.application.arrive(now)
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
            if self.scheduler == FIFO:
                self.line.to_tail(key)
        else:
            cell.waits = update
            self.line.enter(key, cell.rate)
        counters["held"] = len(self.line.order)
        return True

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
        while len(taken) < limit and self.line.order:
            who = self.line.leave()
            if self.updates:
                cell = self.keys[who]
                update = cell.waits
                assert update is not None
                cell.waits = None
                update.number = cell.arrivals  # it stands for all that it has overwritten
            else:
                update = self.rows.pop(who)
                cell = self.keys[update.key]
                # What was shed before the key's first update after it has no update of its own.
            cell.queue.reached(update.number - cell.dequeued, now)
            cell.dequeued = update.number
            taken.append(update)
            self.flights.append(update)
        self.counters["taken"] += len(taken)
        self.counters["held"] = len(self.line.order)
        return taken

    def deliver(self, updates: int, now: int) -> None:
        for _ in range(updates):
            update = self.flights.popleft()
            cell = self.keys[update.key]
            cell.application.reached(update.number - cell.delivered, now)
            cell.delivered = update.number

    def is_idle(self, key: int, progress: int) -> bool:
        """Whether nothing of the key waits, is in flight or is pending, and its rows are behind the
        progress."""
        cell = self.keys[key]
        busy = cell.queue.pending or cell.application.pending
        busy = busy or any(update.key == key for update in self.flights)
        return not busy and cell.newest is not None and cell.newest < progress

    def areas(self, key: int, now: int) -> tuple[Fraction, Fraction]:
        """Of queue staleness and of application staleness, up to ``now``."""
        cell = self.keys.get(key, Key())
        return cell.queue.at(now), cell.application.at(now)
