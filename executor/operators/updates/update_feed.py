"""The feed of an update stream: its rows wait in an update queue, where a newer row of a key takes
the place of an older one, and the query takes some whenever it has processed those before (UpStream
report, section 4).

The queue lies before admission. What is superseded has no serial number, and under every runtime
the admitted rows have the order in which the queue gave them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from cql.base.model import Schema
from cql.executor.kernels.ingest.cutter import MARK
from cql.executor.kernels.morsel_layout import CAPACITY, INFINITY, NEVER
from cql.executor.kernels.updates.staleness import note_cost
from cql.executor.morsel.ingest import WAITING, Feed, Loaded
from cql.executor.morsel.morsel import Words
from cql.executor.morsel.row_watermarks import WatermarkPass
from cql.executor.morsel.source_punctuation import separate
from cql.executor.operators.updates.bursts import Bursts
from cql.executor.operators.updates.choice import Choice
from cql.executor.operators.updates.queue_state import QueueState, Scheduler
from cql.executor.operators.updates.refresh_items import RefreshItems
from cql.executor.operators.updates.update_rows import Array, Mask, UpdateRows
from cql.executor.protocols import BLOCK_ROWS, BadInput, Block
from cql.executor.state.codes import HoldsCodes
from cql.executor.state.store import Account, Snapshot
from cql.planner.nodes.catalog import Queue

_SCHEDULERS = {
    Queue.APPEND: Scheduler.APPEND,
    Queue.APPEND_SHED_RANDOM: Scheduler.SHED,
    Queue.FIFO: Scheduler.FIFO,
    Queue.IN_PLACE: Scheduler.IN_PLACE,
    Queue.LINECUTTING: Scheduler.LINECUTTING,
    Queue.ADAPTIVE: Scheduler.APPEND,
}
_SECOND, _MICROSECOND = 1_000_000_000, 1_000
#: The longest interval of REFRESH in nanoseconds: 73 years, so that times do not overflow.
_LONGEST = 1 << 61


@dataclass(slots=True)
class UpdateFeed(Feed):
    """``account``: ``max_state`` of the query. ``clock``: nanoseconds."""

    account: Account | None = None
    clock: Callable[[], int] = time.monotonic_ns
    waiting: UpdateRows = field(init=False)
    _passes: list[WatermarkPass] = field(init=False)
    _bursts: Bursts = field(init=False)
    _choice: Choice = field(init=False)
    _in_flight: int = 0
    _dequeued: int = 0  # when the rows in flight left the queue
    _read_all: bool = False
    _through: Callable[[], None] | None = None
    _unread: list[BadInput] = field(default_factory=list)

    def __post_init__(self) -> None:
        Feed.__post_init__(self)
        updates = self.source.updates
        assert updates is not None
        made = f"the queue of {self.source.name}", self.source.stored, updates.keys
        self.waiting = self._rows_of(*made)
        relation, declared = self.source.relation, self.source.relation.stream
        progress = () if declared is None else declared.progress[:1]
        self._passes = [WatermarkPass(relation, p) for p in progress if self.attributes]
        goal = None if updates.goal is None else _MICROSECOND * updates.goal
        self._bursts = Bursts(int(self.morsel.words[CAPACITY]), goal)
        adaptive = goal if updates.queue is Queue.ADAPTIVE else None
        self._choice = Choice(self.queue, adaptive, not updates.is_fixed)
        if not self.attributes:
            self.queue.rise(INFINITY)  # rows without a time are never behind another

    @property
    def _accounting(self) -> Account:
        assert self.account is not None
        return self.account

    @property
    def _scheduler(self) -> Scheduler:
        assert self.source.updates is not None
        return _SCHEDULERS[self.source.updates.queue]

    def _rows_of(self, name: str, schema: Schema, keys: Sequence[int]) -> UpdateRows:
        assert self.source.updates is not None
        account, items = self._accounting, self.source.updates.refresh
        every = [min(_MICROSECOND * item.every, _LONGEST) for item in items]
        queue = QueueState(name, account, self._scheduler, every=every)
        refresh = None
        if items:
            columns = [schema[c] for c in keys]
            refresh = RefreshItems(self.source.name, items, columns, self.dictionary).of
        return UpdateRows(name, schema, keys, queue, account, refresh)

    @property
    def queue(self) -> QueueState:
        return self.waiting.queue

    def reported(self) -> dict[str, Any]:
        """Where rows went, and staleness in seconds: of the queue and of the application on average
        over the keys, and of the application of the key that has the highest; ``goal`` is that of
        STALENESS UNDER, ``resting`` of the rows that are held wait until their keys are due."""
        assert self.source.updates is not None
        counts, goal = self.queue.counters(), self.source.updates.goal
        queue, application, worst = self.queue.mean_staleness(self.clock())
        return {
            "rows_in": counts["rows_in"],
            "scheduler": self.queue.scheduler.name.lower(),
            **({} if goal is None else {"goal": goal / 1_000_000}),
            "superseded": counts["superseded"],
            "shed": counts["shed"],
            "held": counts["held"],
            **({"resting": self.waiting.resting} if self.source.updates.refresh else {}),
            "queue_staleness": queue / _SECOND,
            "staleness": application / _SECOND,
            "worst_staleness": worst / _SECOND,
            "state_bytes": self.waiting.nbytes,
        }

    @property
    def holders(self) -> list[HoldsCodes]:
        return [self.waiting] if self.values is None else [self.values, self.waiting]

    @property
    def gives_bursts(self) -> bool:
        return True

    @property
    def is_read(self) -> bool:
        return self._read_all

    @property
    def keeps_rows(self) -> bool:
        return self.waiting.resting > 0

    def watch(self, through: Callable[[], None]) -> None:
        self._through = through

    def _load(self, timeout: float | None, *, again: bool = False) -> bool:
        self._deliver()
        self.waiting.release(self.clock())
        self._fill(0.0 if self.waiting.is_ready else self._until_due(timeout))
        self.waiting.release(self.clock(), ended=self._read_all)
        self._choice.adapt(self.clock())
        if self._read_all and not self.waiting.is_ready:
            self._finish()
        if not self.waiting.is_ready and not self._unread:
            self.ended = self._read_all
            return False
        self.pending = self._next_burst()
        return True

    def _until_due(self, timeout: float | None) -> float | None:
        """``timeout``, or the seconds until a key is due whose row waits for that."""
        due = self.queue.next_due
        if due is None:
            return timeout
        left = max(due - self.clock(), 0) / _SECOND
        return left if timeout is None else min(timeout, left)

    def _deliver(self) -> None:
        """The rows of the last burst go through, and their cost is measured."""
        if self._in_flight == 0:
            return
        assert self._through is not None
        self._through()
        now, rows = self.clock(), self._in_flight
        self._delivered(rows, now)
        taken = max(now - self._dequeued, 1)
        note_cost(self.queue.words, taken / rows)
        self._bursts.note(rows, taken)
        self._in_flight = 0

    def _delivered(self, rows: int, now: int) -> None:
        self.waiting.deliver(rows, now)

    def _finish(self) -> None:
        """The source has ended, and nothing waits."""
        return

    def _fill(self, timeout: float | None) -> None:
        """Enqueues what has arrived at the source, at most about BLOCK_ROWS rows: a source that
        never pauses must not keep the query from its work."""
        rows = 0
        while rows < BLOCK_ROWS and not self._read_all:
            block = self.reader.next(timeout)
            if block is None:
                self._read_all = True
                return
            if block.is_empty:
                return
            self._enqueue(block)
            self.offset, timeout = block.offset, 0.0
            rows += block.batch.num_rows + 1

    def _enqueue(self, block: Block) -> None:
        loaded = self._convert(block, ())
        self._unread += block.bad
        times = np.full(loaded.rows, NEVER, np.int64)
        for attribute, passed in zip(self.attributes, self._passes, strict=False):
            times, mask = loaded.times[0], loaded.masks[attribute.column]
            passed.take(times, mask)
            if mask is not None:
                times = np.where(mask != 0, times, NEVER)
        self.waiting.take(loaded.data, loaded.masks, times, self.clock())
        for passed in self._passes:
            given = loaded.separated.row_punctuation.reshape(-1, MARK)
            told = int(given[given[:, 1] == 0, 2].max(initial=NEVER))
            self.queue.rise(max(told, passed.watermark))

    def _next_burst(self) -> Loaded:
        """The rows that the query takes next, as a block."""
        floor, self._dequeued = self.queue.floor, self.clock()
        data, masks, self._in_flight = self.waiting.give(self._bursts.size, self._dequeued)
        return self._as_block(data, masks, self._in_flight, floor)

    def _as_block(
        self, data: list[Array], masks: Sequence[Mask | None], n: int, floor: int
    ) -> Loaded:
        """Rows as a block. ``floor`` is the watermark before each of them; the one after the last
        is that of the queue now."""
        marks: tuple[tuple[str, Words], ...] = ()
        after: tuple[tuple[str, int], ...] = ()
        if self.attributes:
            name, behind = self.attributes[0].name, self.queue.floor
            marks = ((name, np.full(n, floor, np.int64)),)
            after = ((name, behind),) if behind > NEVER else ()
        batch = pa.record_batch([pa.nulls(n)], names=["_"])
        bad, self._unread = tuple(self._unread), []
        block = Block(batch, self.offset or {}, after, bad, row_watermarks=marks)
        separated = separate(self.source, block, self.attributes, data, masks)
        times = [data[a.column].astype(np.int64, copy=False) for a in self.attributes]
        brought = self._brought(block, separated)
        return Loaded(block, separated, data, list(masks), times, brought)

    # -- checkpoints -----------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """The same, and the queue with the rows in it. No burst is inside: the results of the
        last one have been delivered."""
        self._deliver()
        made = Feed.snapshot(self)
        arrays = {f"pass {k}": np.array(p.state, np.int64) for k, p in enumerate(self._passes)}
        parts = {**made.parts, WAITING: self.waiting.snapshot(self.clock())}
        arrays["read"] = np.array([self._read_all], np.int64)
        arrays |= self._choice.snapshot()
        return replace(made, arrays={**made.arrays, **arrays}, parts=parts)

    def restore(self, saved: Snapshot) -> None:
        Feed.restore(self, saved)
        for k, passed in enumerate(self._passes):
            passed.state = saved.arrays[f"pass {k}"].tolist()
        self._read_all = bool(saved.arrays["read"][0])
        self._choice.restore(saved.arrays)
        self.waiting.restore(saved.parts[WAITING], self.clock())
