"""REFRESH … EVERY: refreshes of a view again and again, as a query that runs in the background."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from cql.base.model import Schema
from cql.errors import RunError
from cql.executor.ledgers import bad_rows, late_rows
from cql.executor.run.run_report import Progress, Timing


class Control:
    """A refresher is not paused, and each refresh runs as its session says."""

    is_paused = False
    workers = 0

    def pause(self) -> None:
        raise RunError("a refresher cannot be paused", hint="stop() ends it")

    def resume(self) -> None:
        raise RunError("a refresher cannot be paused", hint="stop() ends it")

    def share(self, workers: int) -> None:
        raise RunError("a refresher has no workers", hint="SET workers before it starts")


class RefreshRun:
    """The run of a refresher: ``refresh`` until a stop is requested. ``wait`` waits so many seconds
    for the stop."""

    def __init__(
        self,
        refresh: Callable[[], object],
        every: float,
        wait: Callable[[threading.Event, float], object] = threading.Event.wait,
    ) -> None:
        self.on_notice: Callable[[str], None] = lambda message: None
        self.on_late: Callable[[pa.RecordBatch], None] = lambda batch: None
        self.timed = False
        self.control = Control()
        self.last_instant: int | None = None
        self._refresh, self._every, self._wait = refresh, every, wait
        self._stopped = threading.Event()
        self._begun = time.monotonic()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Refreshes; gives no rows."""
        while not self._stopped.is_set():
            self._refresh()
            self._wait(self._stopped, self._every)
        yield from ()

    def request_stop(self) -> None:
        self._stopped.set()

    def progress(self) -> Progress:
        return Progress(0, 0, 0, 0, None, None, time.monotonic() - self._begun)

    def metrics(self) -> list[dict[str, Any]]:
        return []

    def late(self) -> pa.Table:
        return late_rows.table([], timed=True)

    def bad_rows(self) -> pa.Table:
        return pa.Table.from_pylist([], schema=bad_rows.SCHEMA)

    def timing(self) -> Timing | None:
        return None

    def held_back(self) -> str | None:
        return None

    def sharing(self) -> str | None:
        return None

    def kernel_sources(self) -> Mapping[str, str]:
        return {}


class NoRows:
    """The sink of a refresher: each refresh publishes its rows by itself."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema

    def begin(self) -> None:
        pass

    def write(self, batch: pa.RecordBatch) -> None:
        raise AssertionError("a refresher gives no rows")

    def commit(self) -> int:
        return 0

    def abort(self) -> None:
        pass
