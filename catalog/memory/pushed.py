"""Streams into which rows are pushed, by INSERT and ``Session.push``.

The stream keeps its newest rows in memory: at most ``buffer`` rows, and the rows that a running
query has yet to read. A query that starts reads the kept rows, then the rows that are pushed later.
If a running query has ``buffer`` rows to read, a push waits for the query, and fails after a while
without taking any row. Rows that no running query has to read are forgotten, the oldest first; a
query that starts later has a notice with their number.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import takewhile
from typing import Any

import pyarrow as pa

from cql.base.model import Schema
from cql.base.waiting import interruptible
from cql.catalog.blocks import END, BlockReader, End, Piece, row_of
from cql.catalog.convert import Shaper, empty_batch, empty_columns, pick
from cql.catalog.memory.iterables import whole_rows
from cql.catalog.memory.rows import Rows, joined
from cql.catalog.options import Options
from cql.catalog.sinks import MemorySink
from cql.errors import CatalogError
from cql.executor.protocols import Mark, Offset, Reader
from cql.planner.nodes.catalog import Statistics, StreamSpec

#: Rows to keep if CREATE STREAM gives no number.
BUFFER = 1_048_576
#: Seconds that a push waits for the queries that read the stream.
WAIT = 30.0
#: Chunks of kept rows are joined up to this many rows.
_CHUNK = 65_536


class PushedSource:
    """See the module. The option ``buffer`` is the number of rows to keep; offsets are
    ``{"row": n}``.

    ``bounded`` is True once ``finish`` has been called: no row follows then."""

    unsupported: Mapping[str, str] = {}

    def __init__(
        self,
        options: Mapping[str, Any],
        *,
        what: str,
        declared: Schema | None,
        spec: StreamSpec,
        prepare: Callable[[Any], Any] | None = None,
    ) -> None:
        """``prepare`` makes of what is pushed rows with the declared columns."""
        if declared is None:
            raise CatalogError(
                f"{what} needs columns: rows are pushed into it", hint="CREATE STREAM s (k INT, …)"
            )
        given = Options(options, what)
        self._room = given.integer("buffer", BUFFER, least=1) or BUFFER
        given.done()
        self.schema = declared
        self._prepare = prepare
        self._what = what
        self._progressing = {p.column.lower() for p in spec.progress}
        self._change = threading.Condition()
        self._chunks: deque[pa.RecordBatch] = deque()
        self._first = 0  # the number of the oldest row that is kept
        self._next = 0
        # numbered from 1 on; rows of the stream
        self._row_punctuation: deque[tuple[int, Mark]] = deque()
        # per column the newest before kept rows
        self._newest_before: dict[str, tuple[int, Mark]] = {}
        self._marked = 0
        self._readers: weakref.WeakSet[_Feed] = weakref.WeakSet()
        self._ended = False

    @property
    def bounded(self) -> bool:
        return self._ended

    def statistics(self) -> Statistics:
        return Statistics()

    # ----------------------------------------------------------------- pushing

    def push(self, data: Any, timeout: float | None = None) -> int:
        """Takes rows (anything that ``create_stream`` takes and that ends), and ``Punctuation``
        among them, all or none; returns the number of rows.

        Raises CatalogError for rows that do not fit the stream, after ``timeout`` seconds (None:
        30) in which queries have not read enough to make room, and after the stream's end."""
        self._check_open()
        if self._prepare is not None:
            data = self._prepare(data)
        parts = whole_rows(data, self.schema, f"rows for {self._what}")
        self._check_punctuation(parts)
        decoded = self.schema.to_arrow()
        parts = [Rows(p.batch.cast(decoded), (), p.row_punctuation) for p in parts]
        return self._append(joined(self.schema.fields, parts), timeout) if parts else 0

    def insert(self, batches: Sequence[pa.RecordBatch]) -> int:
        """Takes an epoch of an INSERT: all or nothing."""
        if batches:
            self._append(joined(self.schema.fields, [Rows(b) for b in batches]), None)
        return self._next

    def sink(self, rows: Schema) -> MemorySink:
        self._check_open()
        return MemorySink(rows, self.schema, self.insert, self._what)

    def finish(self) -> None:
        """Ends the stream: queries end after the last row."""
        with self._change:
            self._ended = True
            self._change.notify_all()

    def _check_open(self) -> None:
        if self._ended:
            raise CatalogError(
                f"{self._what} has ended and takes no rows",
                hint="CREATE OR REPLACE STREAM begins it anew",
            )

    def _check_punctuation(self, parts: Sequence[Rows]) -> None:
        for column in (column for part in parts for _, column, _ in part.row_punctuation):
            if column.lower() not in self._progressing:
                raise CatalogError(
                    f"{self._what}: punctuation on {column}, which is not declared to have a"
                    " watermark",
                    hint=f"ORDERED BY {column}, or PUNCTUATE ON {column}, in CREATE STREAM",
                )

    def _append(self, rows: Rows, timeout: float | None) -> int:
        with self._change:
            room = interruptible(
                partial(self._change.wait_for, lambda: self._ended or self._has_room(rows.count)),
                WAIT if timeout is None else timeout,
            )
            self._check_open()
            if not room:
                raise CatalogError(
                    f"{self._what} is full: a query has {self._unread()} rows of it to read,"
                    f" and {self._room} are kept",
                    hint="nothing was taken: read the query's rows or stop it, and push again;"
                    " USING push OPTIONS (buffer 'n') keeps more",
                )
            for row, column, value in rows.row_punctuation:
                self._add_punctuation(self._next + row, column, value)
            if rows.count:
                self._chunks.append(rows.batch)
                self._next += rows.count
                self._join_chunks()
                self._forget()
            self._change.notify_all()
        return rows.count

    def _unread(self) -> int:
        """Number of rows that the query furthest behind has yet to read."""
        return max((self._next - reader.row for reader in self._readers), default=0)

    def _has_room(self, rows: int) -> bool:
        unread = self._unread()
        return rows == 0 or unread == 0 or unread + rows <= self._room

    def _add_punctuation(self, row: int, column: str, value: int) -> None:
        """Adds punctuation. It replaces earlier punctuation on its column with no row between."""
        again = next((m for m in reversed(self._row_punctuation) if m[1][1] == column), None)
        if again is not None and again[1][0] == row:
            value = max(value, again[1][2])
            self._row_punctuation.remove(again)
        self._marked += 1
        self._row_punctuation.append((self._marked, (row, column, value)))

    def _join_chunks(self) -> None:
        """Joins neighbouring chunks of about one size, so that there are few chunks and each row is
        copied only a few times."""
        chunks = self._chunks
        while len(chunks) > 1:
            both = chunks[-2].num_rows + chunks[-1].num_rows
            if chunks[-2].num_rows > 2 * chunks[-1].num_rows or both > _CHUNK:
                return
            last, before = chunks.pop(), chunks.pop()
            chunks.append(pa.concat_batches([before, last]))

    def _forget(self) -> None:
        """Forgets the oldest rows beyond the number to keep, unless a query has to read them. Of
        the punctuation before the kept rows, keeps the newest of each column."""
        count = min(
            self._next - self._first - self._room, self._next - self._unread() - self._first
        )
        while count > 0:
            chunk = self._chunks[0]
            gone = min(count, chunk.num_rows)
            if gone == chunk.num_rows:
                self._chunks.popleft()
            else:
                self._chunks[0] = chunk.slice(gone)
            self._first += gone
            count -= gone
        while self._row_punctuation and self._row_punctuation[0][1][0] <= self._first:
            number, mark = self._row_punctuation.popleft()
            self._newest_before[mark[1]] = (number, mark)

    def _punctuation_for(self, feed: _Feed, last: int) -> list[tuple[int, Mark]]:
        """The punctuation that a query has not received, up to that behind row ``last``."""
        old = sorted(m for m in self._newest_before.values() if m[0] > feed.marked)
        new = list(takewhile(lambda m: m[0] > feed.marked, reversed(self._row_punctuation)))
        return [*old, *(m for m in reversed(new) if m[1][0] <= last)]

    # ----------------------------------------------------------------- reading

    def open(self, columns: Sequence[str], offset: Offset | None = None) -> Reader:
        fields = pick(self.schema, columns, self._what)
        with self._change:
            row = self._first if offset is None else row_of(offset, self._what)
            if not self._first <= row <= self._next:
                raise CatalogError(
                    f"{self._what} keeps rows {self._first} to {self._next - 1} (of those that were"
                    f" pushed), and the position is row {row}",
                    hint="start the query anew",
                )
            feed = _Feed(self, [f.name for f in fields], row)
            self._readers.add(feed)
        reader = BlockReader(feed, Shaper(fields), row=row, offset={"row": row})
        if offset is None and row:
            reader.notices = [
                f"{self._what} has forgotten its first {row} rows: this query begins behind them"
            ]
        return reader

    def take(self, feed: _Feed, limit: int, timeout: float | None) -> Piece | End | None:
        """The next rows of a query, with the punctuation in them; END and None as in ``Feed``."""

        def anything() -> bool:
            return feed.closed or self._ended or feed.row < self._next or feed.marked < self._marked

        with self._change:
            interruptible(partial(self._change.wait_for, anything), timeout)
            if feed.closed:
                return END
            first = feed.row
            count = min(limit, self._next - first)
            row_punctuation = self._punctuation_for(feed, first + count)
            if not count and not row_punctuation:
                return END if self._ended else None
            batch = self._rows(feed.columns, first, count)
            feed.row += count
            if row_punctuation:
                feed.marked = row_punctuation[-1][0]
            self._change.notify_all()
        between = tuple(
            (max(row - first, 0), column, value) for _, (row, column, value) in row_punctuation
        )
        return Piece(Rows(batch, (), between), lambda k: {"row": first + k}, self._what, first)

    def _rows(self, columns: Sequence[str], first: int, count: int) -> pa.RecordBatch:
        if not columns:
            return empty_columns(count)
        if not count:
            return empty_batch(pick(self.schema, columns, self._what))
        parts = []
        at = self._first
        for chunk in self._chunks:
            start, stop = max(first - at, 0), min(first + count - at, chunk.num_rows)
            if start < stop:
                parts.append(chunk.slice(start, stop - start).select(columns))
            at += chunk.num_rows
        return parts[0] if len(parts) == 1 else pa.concat_batches(parts)

    def leave(self, feed: _Feed) -> None:
        """Called when a query reads no further."""
        with self._change:
            feed.closed = True
            self._readers.discard(feed)
            self._forget()
            self._change.notify_all()


class _Feed:
    """The read position of one query."""

    def __init__(self, source: PushedSource, columns: Sequence[str], row: int) -> None:
        self._source = source
        self.columns = tuple(columns)
        self.row = row
        self.marked = 0  # the number of the punctuation that it received last
        self.closed = False

    def take(self, limit: int, timeout: float | None) -> Piece | End | None:
        return self._source.take(self, limit, timeout)

    def close(self) -> None:
        self._source.leave(self)
