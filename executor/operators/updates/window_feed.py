"""The feed of an update stream in which windows are updates (UpStream report, section 6).

A row leaves the queue for one window, the one that its key is committed to: its column
WINDOW_OF_ROW has the start of that window. The end of the window is a punctuation of its key alone,
so an aggregate over windows of one SLIDE of that column computes each window apart, and lets its
groups go when it has ended. The windows of a key come in order, since each is more recent than the
one before.

The key is the value of a column, or its number in the column KEY_OF_ROW. Numbers are used again,
but only when the progress has passed the last window of the key that had the number: windows of the
new one begin later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from cql.base.model import Schema
from cql.executor.kernels.ingest.cutter import MARK
from cql.executor.kernels.morsel_layout import NEVER
from cql.executor.kernels.updates import layout
from cql.executor.morsel.ingest import Loaded
from cql.executor.morsel.morsel import Words, stored_dtype
from cql.executor.morsel.source_punctuation import Separated
from cql.executor.operators.updates.queue_state import QueueState, Windows
from cql.executor.operators.updates.update_feed import UpdateFeed
from cql.executor.operators.updates.update_rows import Array, Mask
from cql.executor.operators.updates.window_rows import Given, WindowRows
from cql.executor.protocols import BadInput, Block
from cql.executor.state.store import Snapshot
from cql.planner.nodes.physical import UpdateWindows
from cql.planner.nodes.physical.sources import KEY_OF_ROW

#: Bursts between two punctuations of all keys together.
_APART = 64


@dataclass(slots=True)
class WindowFeed(UpdateFeed):
    """See the module."""

    _given: Given | None = None
    _told: int = NEVER  # the latest punctuation of all keys together
    _counted: int = 0  # bursts since
    _windows: UpdateWindows = field(init=False)

    def __post_init__(self) -> None:
        assert self.source.updates is not None
        assert self.source.updates.windows is not None
        self._windows = self.source.updates.windows
        UpdateFeed.__post_init__(self)

    def _rows_of(self, name: str, schema: Schema, keys: Sequence[int]) -> WindowRows:
        w, account = self._windows, self._accounting
        windows = Windows(w.size, w.slide, w.eager)
        queue = QueueState(name, account, self._scheduler, windows=windows)
        value = None if self.source.by == KEY_OF_ROW else keys[0]
        return WindowRows(name, schema, keys, queue, account, value)

    @property
    def _rows(self) -> WindowRows:
        assert isinstance(self.waiting, WindowRows)
        return self.waiting

    def reported(self) -> dict[str, Any]:
        """Where rows and windows went. A window is superseded if a more recent one of its key came
        before it was taken."""
        found, q = UpdateFeed.reported(self), self.queue.words
        windows = {n: found.pop(n) for n in ("superseded", "shed", "held")}
        kept, late = int(q[layout.ROWS_HELD] + q[layout.ROWS_GONE]), int(q[layout.ROWS_LATE])
        outside = int(q[layout.ROWS_BETWEEN])
        return {
            **found,
            "rows_in": kept + late + outside,
            "late": late,
            "between_windows": outside,
            "windows": int(q[layout.ARRIVED]),
            "superseded": windows["superseded"],
            "held": windows["held"],
        }

    def _enqueue(self, block: Block) -> None:
        data, masks = self._stored(block)
        self._note_nulls(masks)
        self._unread += block.bad
        at = self._windows.time
        times, mask = data[at].astype(np.int64, copy=False), masks[at]
        if mask is not None:
            kept = np.flatnonzero(mask)
            self._refuse(len(times) - len(kept))
            times, data = times[kept], [column[kept] for column in data]
            masks = [None if m is None else m[kept] for m in masks]
        (passed,), now = self._passes, self.clock()
        self._rows.take_rows(data, masks, times, passed.take(times, None), now)
        name = self.source.stored[at].name.lower()
        given = [v for _, column, v in block.row_punctuation if column.lower() == name]
        given += [v for column, v in block.punctuation if column.lower() == name]
        self.queue.progress(max(*given, passed.watermark) if given else passed.watermark, now)

    def _refuse(self, rows: int) -> None:
        """Counts rows without a time as bad rows."""
        name = f"{self.source.name}.{self.source.stored[self._windows.time].name}"
        reason = f"{name} is NULL, and the time of a row says which windows it is in"
        self._unread += [BadInput(0, reason, None, "")] * rows

    def _finish(self) -> None:
        """All windows end with the source."""
        self.queue.end(self.clock())

    def _delivered(self, rows: int, now: int) -> None:
        given = self._given
        assert given is not None
        self._rows.deliver_keys(given.owners[given.closes], now)

    def _next_burst(self) -> Loaded:
        self._dequeued = self.clock()
        self._given = given = self._rows.give_rows(self._bursts.size, self._dequeued)
        self._in_flight = len(given.items)
        data, masks = list(given.data), list[Mask | None](given.masks)
        added = given.starts, given.owners[given.items]
        for made, values in zip(self.schema.fields[len(data) :], added, strict=False):
            data.append(values.astype(stored_dtype(made.type.storage), copy=False))
            masks.append(None)
        assert self.values is not None
        numbers = self.values.number(given.keys, given.key_mask)
        records = self._records_of(given, numbers)
        n = len(given.starts)
        bad, self._unread = tuple(self._unread), []
        block = Block(pa.record_batch([pa.nulls(n)], names=["_"]), self.offset or {}, bad=bad)
        separated = Separated(n, None, records, records.size // MARK)
        own = numbers[given.items]
        return Loaded(block, separated, data, masks, [given.starts], [None], own)

    def _records_of(self, given: Given, numbers: Array) -> Words:
        """The punctuation of the burst (``kernels.ingest.cutter``): the end of each window for its
        key, and at times what holds for all keys, so that keys without open windows can be
        forgotten."""
        ends = np.flatnonzero(given.closes)
        before = np.cumsum(given.items)
        made = np.empty((len(ends), MARK), np.int64)
        made[:, 0], made[:, 1] = before[ends], 0
        made[:, 2], made[:, 3] = given.ends[ends] + self._windows.slide, numbers[ends]
        self._counted += 1
        if self._counted < _APART:
            return made.ravel()
        self._counted = 0
        self._told = max(self._told, self.queue.window_floor)
        if self._told == NEVER:
            return made.ravel()
        last = np.array([[len(given.starts), 0, self._told, -1]], np.int64)
        return np.concatenate([made, last]).ravel()

    def snapshot(self) -> Snapshot:
        made = UpdateFeed.snapshot(self)
        told = np.array([self._told, self._counted], np.int64)
        return replace(made, arrays={**made.arrays, "told": told})

    def restore(self, saved: Snapshot) -> None:
        UpdateFeed.restore(self, saved)
        self._told, self._counted = saved.arrays["told"].tolist()
