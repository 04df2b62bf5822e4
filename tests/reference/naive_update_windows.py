"""A slow model of update queues of windows (UpStream report, sections 6 and 7.2).

A key keeps all rows that ever entered, and each question is answered from them: which windows have
ended, which rows the committed one has, which results are due. So the model has no window buffer:
what the queue's buffers erase must never have been needed.

One thing it does as the queue does: an EAGER queue has erased the rows that would say which windows
had one. It remembers the first gap ahead of a key's ended windows; a window in a later gap, or
whose rows were between two gaps, counts as if it had a row.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from tests.reference.naive_updates import FIFO, LINECUTTING, Line, Rate, Stale

OPENS, CLOSES = 1, 2
_NONE, _READY, _IDLE, _DONE = "none", "ready", "idle", "done"


@dataclass
class Row:
    event: int
    row: int


@dataclass
class Taken:
    """What the operator gets: a row (None: only the mark) of the window from ``start`` on."""

    key: int
    row: int | None
    start: int
    marks: int


@dataclass
class Key:
    rate: Rate = field(default_factory=Rate)
    rows: list[Row] = field(default_factory=list)
    reached: int | None = None  # event time below which no later row of the key is
    recent: int | None = None  # start of the most recent window that is an update
    waiting: bool = False
    queue: Stale = field(default_factory=Stale)
    state: str = _NONE
    committed: int | None = None
    served: int = 0  # rows of ``rows`` up to this one are served, or were not wanted
    opened: bool = False
    shown: int | None = None  # start of the window delivered last
    closed: list[tuple[int, int]] = field(default_factory=list)  # (start, time) of what is due
    area: Fraction = Fraction(0)
    until: int = 0
    gap: tuple[int, int] | None = None  # the rows around the first gap ahead
    since: int | None = None  # the first row since the key is active
    unknown: bool = False  # whether there was a later gap

    @property
    def newest(self) -> int | None:
        return self.rows[-1].event if self.rows else None

    def application(self, now: int) -> Fraction:
        if not self.closed:
            return self.area
        oldest = min(time for _, time in self.closed)
        return self.area + Fraction((now - oldest) ** 2 - (self.until - oldest) ** 2, 2)

    def advance(self, now: int) -> None:
        self.area = self.application(now)
        self.until = now


class NaiveWindowQueue:
    def __init__(
        self, scheduler: str, size: int, slide: int, *, eager: bool, guarded: bool = True
    ) -> None:
        self.scheduler, self.size, self.slide, self.eager = scheduler, size, slide, eager
        self.line = Line(scheduler, guarded)
        self.keys: dict[int, Key] = {}
        self.progress_to: int | None = None
        self.ready: list[int] = []
        self.idle: set[int] = set()
        #: Keys of which a window has a row and has not ended, the latest first.
        self.active: list[int] = []
        self.counters = {"rows_in": 0, "taken": 0, "superseded": 0, "shed": 0, "held": 0}
        self.late = self.between = self.rows_taken = 0

    # -- what follows from the rows ----------------------------------------------------------------

    def _reach(self, key: Key) -> int | None:
        """Windows that end by then have ended."""
        known = [to for to in (self.progress_to, key.reached) if to is not None]
        return max(known, default=None)

    def _windows(self, key: Key, low: int | None, high: int) -> list[int]:
        """The starts of the key's windows with a row that end in (``low``, ``high``]."""
        starts = set()
        for row in reversed(key.rows):
            start = row.event // self.slide * self.slide
            if low is not None and start + self.size <= low:
                break
            while start + self.size > row.event and (low is None or start + self.size > low):
                if start + self.size <= high:
                    starts.add(start)
                start -= self.slide
        return sorted(starts)

    def _has_open(self, key: Key) -> bool:
        reach, newest = self._reach(key), key.newest
        if newest is None:
            return False
        return reach is None or newest // self.slide * self.slide + self.size > reach

    def _available(self, key: Key) -> bool:
        """isAvail: whether the committed window has a row that was not served (section 6.2)."""
        assert key.committed is not None
        i = key.served
        return i < len(key.rows) and key.rows[i].event < key.committed + self.size

    # -- arrivals ----------------------------------------------------------------------------------

    def enqueue_row(self, who: int, event: int, row: int, now: int) -> bool:
        key = self.keys.setdefault(who, Key())
        start = event // self.slide * self.slide
        reach = self._reach(key)
        behind = key.newest is not None and event < key.newest
        if behind or (reach is not None and start + self.size <= reach):
            self.late += 1
            return False
        if event >= start + self.size:
            self.between += 1
            return False
        key.rows.append(Row(event, row))
        if who not in self.active:
            self.active.insert(0, who)
            key.since, key.unknown = event, False
        else:
            self._note_gap(key, reach)
        if self.eager:
            if key.recent is None or start > key.recent:
                key.recent = start
                self._update(who, now)
            if key.state == _IDLE and self._available(key):
                self.idle.remove(who)
                key.state = _READY
                self.ready.append(who)
        return True

    def _last_end(self, to: int) -> int:
        return (to - self.size) // self.slide * self.slide + self.size

    def _note_gap(self, key: Key, reach: int | None) -> None:
        before, event = key.rows[-2].event, key.rows[-1].event
        if key.gap is not None and (
            reach is None or self._last_end(reach) < self._last_end(key.gap[1])
        ):
            key.unknown = key.unknown or self._empty(before, event)
        elif self._empty(before, event):
            key.gap = before, event

    def _empty(self, before: int, event: int) -> bool:
        """Whether a window between two rows that follow each other has none."""
        return before // self.slide * self.slide + self.slide + self.size <= event

    def _update(self, who: int, now: int) -> None:
        key = self.keys[who]
        self.counters["rows_in"] += 1
        key.rate.arrive(now)
        key.queue.arrive(now)
        if key.waiting:
            self.counters["superseded"] += 1
            if self.scheduler == FIFO and key.state == _NONE:
                self.line.to_tail(who)
            return
        key.waiting = True
        self.counters["held"] += 1
        if key.state == _NONE:
            self.line.enter(who, key.rate)

    # -- progress ----------------------------------------------------------------------------------

    def progress(self, to: int, now: int) -> None:
        if self.progress_to is not None and to <= self.progress_to:
            return
        before = {who: self._reach(key) for who, key in self.keys.items()}
        self.progress_to = to
        for who in list(self.active):
            self._end_windows(who, before[who], now)

    def progress_of(self, who: int, to: int, now: int) -> None:
        key = self.keys.setdefault(who, Key())
        before = self._reach(key)
        key.reached = to if key.reached is None else max(key.reached, to)
        if who in self.active:
            self._end_windows(who, before, now)

    def _assumed(self, key: Key, low: int | None, high: int) -> list[int]:
        """EAGER: the windows that end in (``low``, ``high``] and count as if they had a row."""
        first, newest = key.since, key.newest
        assert newest is not None
        assert first is not None
        low = self._last_end(first) if low is None else max(low, self._last_end(first))
        high = min(high, newest + self.size)
        starts = range(
            self._last_end(low) + self.slide - self.size, high - self.size + 1, self.slide
        )
        found = [
            start
            for start in starts
            if start <= newest
            and not (key.gap and start > key.gap[0] and start + self.size <= key.gap[1])
        ]
        assert key.unknown or found == self._windows(key, low, high)
        return found

    def _end_windows(self, who: int, before: int | None, now: int) -> None:
        key = self.keys[who]
        reach = self._reach(key)
        assert reach is not None
        if before is not None and reach <= before:
            return
        ended = self._assumed if self.eager else self._windows
        for start in ended(key, before, reach):
            if not self.eager:
                key.recent = start
                self._update(who, now)
            if key.shown is None or start > key.shown:
                key.advance(now)
                key.closed.append((start, now))
        if key.state == _IDLE and key.committed is not None and key.committed + self.size <= reach:
            self.idle.remove(who)
            key.state = _READY
            self.ready.append(who)
        if not self._has_open(key):
            self.active.remove(who)

    # -- the operator's side -----------------------------------------------------------------------

    def _commit(self, now: int) -> None:
        who = self.line.leave()
        key = self.keys[who]
        key.queue.reached(len(key.queue.pending), now)
        key.waiting, key.opened, key.committed = False, False, key.recent
        assert key.committed is not None
        before = sum(row.event < key.committed for row in key.rows)
        key.served = before
        self.counters["taken"] += 1
        self.counters["held"] -= 1
        key.state = _READY
        self.ready.append(who)

    def serve(self, limit: int, now: int) -> list[Taken]:
        found: list[Taken] = []
        while len(found) < limit:
            if not self.ready:
                if not self.line.order:
                    break
                self._commit(now)
            who = self.ready[0]
            key = self.keys[who]
            assert key.committed is not None
            one = Taken(who, None, key.committed, 0)
            if self._available(key):
                one.row = key.rows[key.served].row
                key.served += 1
                self.rows_taken += 1
                if not key.opened:
                    one.marks, key.opened = OPENS, True
            if not self._available(key):
                self.ready.pop(0)
                reach = self._reach(key)
                if reach is not None and reach >= key.committed + self.size:
                    one.marks |= CLOSES
                    key.state = _DONE
                else:
                    key.state = _IDLE
                    self.idle.add(who)
            if one.row is not None or one.marks:
                found.append(one)
        return found

    def deliver_windows(self, keys: list[int], now: int) -> None:
        for who in keys:
            key = self.keys[who]
            assert key.state == _DONE
            assert key.committed is not None
            key.advance(now)
            key.shown, key.state = key.committed, _NONE
            key.closed = [(start, at) for start, at in key.closed if start > key.shown]
            if key.waiting:
                self._enter_by_age(who)

    def _enter_by_age(self, who: int) -> None:
        """A key that waited while it was served enters where it would be, had it entered when it
        began to wait; under FIFO, when its latest update came."""
        line, keys = self.line, self.keys

        def since(k: int) -> int:
            return keys[k].queue.pending[0]

        def latest(k: int) -> int:
            return keys[k].queue.pending[-1]

        at = sum(since(k) <= since(who) for k in line.by_age)
        line.by_age.insert(at, who)
        age = latest if self.scheduler == FIFO else since
        first = line.cutters if self.scheduler == LINECUTTING else 0
        at = first + sum(age(k) <= age(who) for k in line.order[first:])
        line.order.insert(at, who)

    # -- reports -----------------------------------------------------------------------------------

    def areas(self, who: int, now: int) -> tuple[Fraction, Fraction]:
        key = self.keys.get(who, Key())
        return key.queue.at(now), key.application(now)

    def due(self, who: int) -> list[Row]:
        """The rows that the key's committed window or its most recent one still needs, or that are
        in a window that has not ended (LAZY)."""
        key = self.keys[who]
        reach = self._reach(key)
        serving = key.state in (_READY, _IDLE)
        needed = []
        for i, row in enumerate(key.rows):
            mine = serving and key.committed is not None and key.served <= i
            mine = mine and row.event < (key.committed or 0) + self.size
            if key.waiting and key.recent is not None and row.event >= key.recent:
                mine = True
            start = row.event // self.slide * self.slide
            if not self.eager and (reach is None or start + self.size > reach):
                mine = True
            if mine:
                needed.append(row)
        return needed
