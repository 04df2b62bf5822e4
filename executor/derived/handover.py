"""The arc between two runs: results of one run wait here until another run reads them.

The arc holds few rows, so that a run that is not read does not fill the memory. In front of an
update queue the reader takes all rows of the arc each time before it takes one of the queue.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from cql.base.waiting import interruptible
from cql.executor.derived.watermarks import Risen
from cql.executor.protocols import BLOCK_ROWS

#: Rows on an arc from which on the run in front of it waits.
MOST_ROWS = BLOCK_ROWS
#: Results on an arc from which on it waits, however few rows they have.
MOST_RESULTS = 1 << 16


@dataclass(frozen=True, slots=True)
class Handed:
    """Rows, perhaps none, and the watermarks that rise behind them."""

    rows: pa.RecordBatch
    watermarks: Risen


class Handover:
    """One thread puts, another takes."""

    def __init__(self, most_rows: int = MOST_ROWS) -> None:
        self._most_rows = most_rows
        self._change = threading.Condition()
        self._waiting: deque[Handed] = deque()
        self._rows = 0
        self._ended = self._closed = False
        self._error: BaseException | None = None

    def put(self, handed: Handed) -> bool:
        """Waits for room, and puts results. False if nobody takes them any more."""

        def has_room() -> bool:
            return self._closed or (
                self._rows < self._most_rows and len(self._waiting) < MOST_RESULTS
            )

        with self._change:
            interruptible(partial(self._change.wait_for, has_room))
            if self._closed:
                return False
            self._waiting.append(handed)
            self._rows += handed.rows.num_rows
            self._change.notify_all()
        return True

    def end(self, error: BaseException | None = None) -> None:
        """No more results come, because of ``error`` if there is one."""
        with self._change:
            self._ended, self._error = True, error
            self._change.notify_all()

    def take(self, timeout: float | None) -> list[Handed] | None:
        """The results that wait, up to about BLOCK_ROWS rows; none if none came within ``timeout``
        seconds (None: no limit). None after the last one. Raises the error that ended them, behind
        all results before it."""
        with self._change:
            interruptible(
                partial(self._change.wait_for, lambda: bool(self._waiting) or self._ended), timeout
            )
            if not self._waiting and self._ended:
                if self._error is not None:
                    raise self._error
                return None
            taken: list[Handed] = []
            rows = 0
            while self._waiting and (
                not taken or rows + self._waiting[0].rows.num_rows <= BLOCK_ROWS
            ):
                taken.append(self._waiting.popleft())
                rows += taken[-1].rows.num_rows
            self._rows -= rows
            self._change.notify_all()
        return taken

    def close(self) -> None:
        """Nobody takes results any more."""
        with self._change:
            self._closed = True
            self._waiting.clear()
            self._change.notify_all()
