"""A run and a sink of a query without an engine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa

from cql.base.model import Field, Schema
from cql.base.types import BIGINT, TIMESTAMP
from cql.query.query import PreparedQuery, Query, Target

SCHEMA = Schema((Field("a", BIGINT),))


def batch(*values: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(values, pa.int64())], schema=SCHEMA.to_arrow())


@dataclass
class FakeProgress:
    rows_in: int = 0
    rows_out: int = 0
    late: int = 0
    bad: int = 0
    event_time: int | None = None
    total_rows: int | None = None
    elapsed: float = 2.0
    tasks: tuple[int, int] | None = None


class FakeControl:
    is_paused = False
    workers = 1

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False

    def share(self, workers: int) -> None:
        self.workers = workers


class FakeRun:
    """Returns ``batches``; then, if ``endless``, waits for ``request_stop``."""

    def __init__(self, *batches: pa.RecordBatch, endless: bool = False) -> None:
        self.state = FakeProgress()
        self.closed = False
        self.control = FakeControl()
        self.started = threading.Event()
        self.stop_requested = threading.Event()
        self.waiting = threading.Event()
        self._batches = batches
        self._endless = endless
        self.error: Exception | None = None
        self.timed = False
        self.on_notice: Callable[[str], None] = lambda message: None

    def batches(self) -> Iterator[pa.RecordBatch]:
        self.started.set()
        try:
            for item in self._batches:
                self.state.rows_in += 10 * item.num_rows
                self.state.rows_out += item.num_rows
                yield item
                if self.stop_requested.is_set():
                    return
            if self.error is not None:
                raise self.error
            if self._endless:
                self.waiting.set()
                assert self.stop_requested.wait(30)
        finally:
            self.closed = True

    def request_stop(self) -> None:
        self.stop_requested.set()

    def progress(self) -> FakeProgress:
        return self.state

    def metrics(self) -> list[dict[str, Any]]:
        return [{"operator": "fake", "rows_in": self.state.rows_in}]

    def late(self) -> pa.Table:
        return pa.table({"a": [7]})

    def bad_rows(self) -> pa.Table:
        return pa.table({"reason": ["overflow"]})

    def timing(self) -> None:
        """None: the run has no operators."""

    def sharing(self) -> None:
        return None

    def held_back(self) -> None:
        """None: a single input has no backpressure."""

    def kernel_sources(self) -> dict[str, str]:
        return {"fake": "def kernel(): ..."}


class FakeSink:
    """Keeps the values of the first column of each committed epoch."""

    def __init__(self) -> None:
        self.schema = SCHEMA
        self.epochs: list[list[int]] = []
        self.open: list[int] | None = None
        self.aborted = 0
        self.committed = threading.Event()

    def begin(self) -> None:
        assert self.open is None
        self.open = []

    def write(self, rows: pa.RecordBatch) -> None:
        assert self.open is not None
        self.open += rows.column(0).to_pylist()

    def commit(self) -> int:
        assert self.open is not None
        self.epochs.append(self.open)
        self.open = None
        self.committed.set()
        return len(self.epochs)

    def abort(self) -> None:
        assert self.open is not None
        self.open = None
        self.aborted += 1


def make_query(
    run: FakeRun | Callable[[], FakeRun],
    sink: FakeSink | None = None,
    *,
    bounded: bool = True,
    epoch: float | None = None,
) -> Query:
    prepare = PreparedQuery(
        plan=cast(Any, None),
        text="SELECT a FROM s",
        source="SELECT a FROM s;",
        schema=SCHEMA,
        bounded=bounded,
        windowed=True,
        run=run if not isinstance(run, FakeRun) else lambda: run,
        job=cast(Any, None),
        explain=lambda mode, _: f"plan: {mode}",
        event_time_type=TIMESTAMP,
    )
    target = None if sink is None else Target("t", lambda: sink, epoch)
    return Query(prepare, target, "q1")
