"""Tables in memory, which end with the session."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pyarrow as pa

from cql.base.model import Schema
from cql.catalog.sinks import MemorySink
from cql.catalog.sources import TableSource
from cql.catalog.upsert import UpsertSink, merged, with_key
from cql.executor.protocols import Sink

#: Runs the commit that it receives, and returns its epoch.
Published = Callable[[Callable[[], int]], int]


class MemoryTable:
    """A table in memory: epochs of batches, each appended as a whole, or with a ``key`` merged. A
    reader sees the epochs that were there when it opened the table."""

    def __init__(self, schema: Schema, what: str, key: Sequence[str] = ()) -> None:
        self.schema, self.key = with_key(schema, key, what)
        self._what = what
        #: The number of epochs, and their rows.
        self._state: tuple[int, tuple[pa.RecordBatch, ...]] = (0, ())
        self._lock = threading.Lock()

    def append(self, batches: Sequence[pa.RecordBatch]) -> int:
        with self._lock:
            epochs, rows = self._state
            self._state = epochs + 1, (*rows, *batches)
            return epochs

    def upsert(self, rows: pa.Table, gone: pa.Table) -> int:
        with self._lock:
            epochs, _ = self._state
            table = merged(self._table(), rows, gone, self.key, self._what)
            self._state = epochs + 1, tuple(table.to_batches())
            return epochs

    def sink(self, rows: Schema, published: Published | None = None) -> Sink:
        """A sink for rows of schema ``rows``; ``published`` runs each commit."""
        run = published or (lambda commit: commit())
        if self.key:
            return UpsertSink(
                rows,
                self.schema,
                self.key,
                lambda new, gone: run(lambda: self.upsert(new, gone)),
                self._what,
            )
        return MemorySink(
            rows, self.schema, lambda batches: run(lambda: self.append(batches)), self._what
        )

    def source(self) -> TableSource:
        epochs, _ = self._state
        return TableSource(self._table(), what=self._what, version=epochs if self.key else None)

    def _table(self) -> pa.Table:
        return pa.Table.from_batches(self._state[1], self.schema.to_arrow())
