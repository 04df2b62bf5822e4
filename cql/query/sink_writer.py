"""Writes rows into a sink and decides when they become visible there."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from cql.base.reentrancy import Inside
from cql.errors import RunError
from cql.query.run import Run

if TYPE_CHECKING:
    import pyarrow as pa

    from cql.executor.protocols import KeyedSink, Sink
    from cql.query.keyed_changes import KeyedChanges


class Publisher:
    """Writes batches into a sink, epoch by epoch.

    With ``epoch`` None there is one epoch: the end commits it, an error aborts it. Otherwise a
    second thread commits the rows written so far every ``epoch`` seconds, so that rows become
    visible although no more arrive. ``published`` receives the number of rows of each commit. A
    failed commit in the second thread requests a stop of ``run``, so that the error need not wait
    for the next row. An exception in the ``with`` block aborts the open epoch."""

    def __init__(
        self,
        sink: Sink,
        epoch: float | None,
        published: Callable[[int], None],
        run: Run,
    ) -> None:
        self._run = run
        self._process = os.getpid()
        self._sink = sink
        self._epoch = epoch
        self._published = published
        self._lock = threading.Lock()
        self._pending: int | None = None  # rows in the open epoch; None: no epoch is open
        self._done = threading.Event()
        self._error: Exception | None = None
        self._thread: threading.Thread | None = None

    def _begin(self) -> None:
        self._sink.begin()

    def _put(self, batch: pa.RecordBatch) -> None:
        self._sink.write(batch)

    def _finish(self, rows: int, *, final: bool) -> int:
        """Commits the open epoch of so many ``rows``, the last one if ``final``. Returns the number
        of the rows that are published."""
        del final
        self._sink.commit()
        return rows

    def _drop(self) -> None:
        self._sink.abort()

    def __enter__(self) -> Publisher:
        if self._epoch is None:
            with self._inside():
                self._begin()
            self._pending = 0
        else:
            self._thread = threading.Thread(target=self._tick, name="cql publisher", daemon=True)
            self._thread.start()
        return self

    @property
    def _is_forked(self) -> bool:
        return os.getpid() != self._process

    def _inside(self) -> AbstractContextManager[None]:
        """Marks the calls of the sink, which must not wait for the run that gives its rows."""
        return Inside(self._run.control)

    def write(self, batch: pa.RecordBatch) -> None:
        if self._is_forked:
            raise RunError(
                "this INSERT belongs to the process that this one was forked from",
                hint="run it again here, or fork before it begins",
            )
        with self._lock, self._inside():
            if self._error is not None:
                raise self._error
            if not batch.num_rows:
                return
            if self._pending is None:
                self._begin()
                self._pending = 0
            self._put(batch)
            self._pending += batch.num_rows

    def commit(self, *, final: bool = False) -> None:
        """Publishes the open epoch, if there is one; ``final``: no rows follow. (A forked process
        leaves the epoch to its parent.)"""
        if self._is_forked:
            return
        with self._lock, self._inside():
            if self._pending is not None:
                rows, self._pending = self._pending, None
                self._published(self._finish(rows, final=final))

    def abandon(self) -> None:
        """Drops the open epoch."""
        if self._is_forked:
            return
        with self._lock, self._inside():
            if self._pending is not None:
                self._pending = None
                self._drop()

    def _tick(self) -> None:
        while not self._done.wait(self._epoch):
            try:
                self.commit()
            except Exception as error:  # the next write, or the end, raises the error
                self._error = error
                self._run.request_stop()
                return

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join()
        if kind is not None:
            self.abandon()
            return
        if self._error is not None:
            raise self._error
        self.commit(final=True)


class ChangePublisher(Publisher):
    """Applies the changelog of a relation to a table with a PRIMARY KEY. An epoch has the effect of
    whole instants; their changes are counted as rows."""

    def __init__(
        self,
        sink: KeyedSink,
        changes: KeyedChanges,
        epoch: float | None,
        published: Callable[[int], None],
        run: Run,
    ) -> None:
        super().__init__(sink, epoch, published, run)
        self._keyed = sink
        self._changes = changes

    def _begin(self) -> None: ...

    def _put(self, batch: pa.RecordBatch) -> None:
        self._changes.add(batch)

    def _finish(self, rows: int, *, final: bool) -> int:
        net = self._changes.take(self._run.last_instant, final=final)
        if not final and self._changes.waits:
            self._pending = rows
        if net is None and not final:
            return 0
        self._keyed.begin()
        try:
            for batch in () if net is None else net.rows.to_batches():
                self._keyed.write(batch)
            for keys in () if net is None else net.gone.to_batches():
                self._keyed.delete(keys)
            self._keyed.commit()
        except BaseException:
            self._keyed.abort()
            raise
        return 0 if net is None else net.changes

    def _drop(self) -> None:
        self._changes.clear()
