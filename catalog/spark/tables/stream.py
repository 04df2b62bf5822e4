"""Spark's streams as sources without an end.

Spark's own query (``readStream`` + ``foreachBatch``) gives the new rows, each micro-batch once, and
waits until they are taken. For a table of files the query only names the new files: they are read
here, in the order in which they came (time of change, then path). The rows of any other stream come
through Spark. The query's checkpoint lives as long as the reader. The positions of a source are
ours, counted in rows from the start of the stream, so that a table that only grows can be replayed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException

from cql.base.model import Field
from cql.base.waiting import interruptible
from cql.catalog.blocks import BlockReader, End, Piece, row_of
from cql.catalog.convert import Shaper, pick
from cql.catalog.memory.rows import Rows
from cql.catalog.sources import read_once, row_piece
from cql.catalog.spark.frame import SparkFrame
from cql.catalog.spark.quoting import quoted
from cql.catalog.spark.session import Session, spark_call
from cql.catalog.spark.tables.files import file_relation, frame_of, table_files
from cql.catalog.spark.tables.read import read_batches, rows_through_spark
from cql.catalog.spark.tables.table import exists, full_name
from cql.errors import CatalogError
from cql.executor.protocols import Offset, Reader

POLL = 0.1
"""Seconds between two looks of Spark at its source, where nothing else is said."""

#: Most batches of rows that wait for the reader.
_AHEAD = 2
#: Seconds between two checks of a waiting reader whether the table still exists.
_LOOK = 0.5
#: Spark leaves out a file that is older than the newest one by more than this (default: 7 days).
_AGE = "36500d"

ReadBatch = Callable[[Any], Generator[pa.RecordBatch, None, None]]


class StreamingFrame(SparkFrame):
    """A streaming DataFrame as a source. Spark keeps none of its rows, so that it is read from its
    start. Each reader runs a query of its own."""

    bounded = False

    def __init__(self, frame: Any, what: str, poll: float = POLL) -> None:
        super().__init__(frame, what)
        self._poll = poll

    def open(self, columns: Sequence[str], offset: Offset | None = None) -> Reader:
        fields = pick(self.schema, columns, self._what)
        if row_of(offset, self._what) > 0:
            raise read_once(self._what, "streaming DataFrame")
        session = self.frame.sparkSession
        # A stream needs a column even if only its number of rows is requested.
        kept = [self._arrow.get_field_index(f.name) for f in fields] or [0]
        with spark_call(session, f"starting {self._what}"):
            # By position: a name with a backtick in it cannot be written as a column.
            names = [f"c{i}" for i in range(len(self._arrow))]
            frame = self.frame.toDF(*names).select([names[i] for i in kept])
        sent = pa.schema([self._arrow.field(i) for i in kept])

        def rows(batch: Any) -> Generator[pa.RecordBatch, None, None]:
            chosen = [f.name for f in fields]
            return rows_through_spark(session, batch, sent, chosen, f"reading {self._what}")

        return _reader(session, frame, rows, fields, self._what, self._poll, 0)


def check_table(session: Session, table: Sequence[str]) -> None:
    """Raises CatalogError unless Spark can follow a table."""
    frame_of(session, table)  # raises if there is no such table
    streaming = False
    with (
        spark_call(session, f"following the table {quoted(table)}"),
        contextlib.suppress(AnalysisException),
    ):
        streaming = _read_stream(session, table).isStreaming
    if not streaming:
        raise CatalogError(
            f"{quoted(table)} cannot be followed: Spark reads it only as it is now",
            hint="of a view, declare the stream over its table, and filter in the query",
        )


def open_table(
    session: Session,
    table: Sequence[str],
    fields: Sequence[Field],
    what: str,
    poll: float,
    offset: Offset | None,
) -> Reader:
    """Follows a table: the rows that it has, then those of each file or commit that it gets."""
    row = row_of(offset, what)
    full = full_name(session, table)  # USE must not change which table is followed
    files = file_relation(frame_of(session, full)) is not None
    with spark_call(session, f"starting {what}"):
        frame = _read_stream(session, full)
        if not files:
            return StreamingFrame(frame, what, poll).open([f.name for f in fields], offset)
        frame = frame.select(frame.metadataColumn("_metadata").getField("file_path"))

    def rows(batch: Any) -> Generator[pa.RecordBatch, None, None]:
        return _file_rows(session, full, batch, [f.name for f in fields])

    def check() -> None:
        if not exists(session, full):
            raise CatalogError(
                f"table {quoted(table)}, which {what} follows, was dropped",
                hint="create it again, then run the statement again",
            )

    return _reader(session, frame, rows, fields, what, poll, row, check)


def _read_stream(session: Session, table: Sequence[str]) -> Any:
    return session.readStream.option("maxFileAge", _AGE).table(quoted(table))


def _file_rows(
    session: Session, table: Sequence[str], batch: Any, columns: Sequence[str]
) -> Generator[pa.RecordBatch, None, None]:
    """The rows of the files that a micro-batch names."""
    with spark_call(session, f"listing the new files of {quoted(table)}"):
        named = {str(row[0]) for row in batch.distinct().collect()}
    if not named:
        return
    files = table_files(session, table)
    found = [f for f in (files.files if files is not None else ()) if named & {*f.uris}]
    if files is None or len(found) < len(named):
        raise CatalogError(
            f"table {quoted(table)} lost files before they could be read",
            hint="it was overwritten or compacted meanwhile: append to a table that is followed",
        )
    found.sort(key=lambda file: (file.modified_ns, file.path))
    new = dataclasses.replace(files, files=tuple(found))
    for piece in read_batches(new, columns, session=session):
        yield piece.batch


def _reader(
    session: Session,
    frame: Any,
    rows: ReadBatch,
    fields: Sequence[Field],
    what: str,
    poll: float,
    row: int,
    check: Callable[[], None] = lambda: None,
) -> Reader:
    feed = _StreamFeed(session, frame, rows, what, poll, row, check)
    return BlockReader(feed, Shaper(fields), row=row, offset={"row": row})


class _StreamFeed:
    """Runs a query of Spark and hands over the rows of its micro-batches, except the first
    ``skip``.

    ``foreachBatch`` runs in a thread of py4j. An error there is handed to the reader: Spark would
    print its stack, and then report it a second time. ``check`` is called now and then while there
    is nothing to read, and raises if no rows can ever come: Spark does not tell a dropped table
    from a silent one."""

    def __init__(
        self,
        session: Session,
        frame: Any,
        rows: ReadBatch,
        what: str,
        poll: float,
        skip: int,
        check: Callable[[], None],
    ) -> None:
        self._session = session
        self._rows = rows
        self._what = what
        self._skip = skip
        self._row = skip
        self._check = check
        self._checked = time.monotonic()
        self._ready: deque[pa.RecordBatch] = deque()
        self._change = threading.Condition()
        self._error: Exception | None = None
        self._closed = False
        self._folder = tempfile.mkdtemp(prefix="cql-stream-")
        try:
            with spark_call(session, f"starting {what}"):
                writer = frame.writeStream.foreachBatch(self._take_batch)
                writer = writer.option("checkpointLocation", self._folder)
                writer = writer.trigger(processingTime=f"{max(1, int(poll * 1000))} milliseconds")
                self._query = writer.start()
        except BaseException:  # Ctrl-C, too
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def take(self, limit: int, timeout: float | None) -> Piece | End | None:
        while True:
            with self._change:
                come = partial(self._change.wait_for, lambda: self._ready or self._error)
                interruptible(come, _LOOK if timeout is None else timeout)
                if self._ready:
                    batch = self._ready.popleft()
                    self._change.notify_all()
                    piece = row_piece(Rows(batch), self._row, self._what)
                    self._row += batch.num_rows
                    return piece
                if self._error is not None:
                    raise self._error
            if timeout == 0:
                return None
            self._check_running()
            if timeout is not None:
                return None

    def close(self) -> None:
        with self._change:
            if self._closed:
                return
            self._closed = True
            self._ready.clear()
            self._change.notify_all()
        # If its JVM is gone or its session stopped, the query is gone too.
        with contextlib.suppress(CatalogError), spark_call(self._session, f"ending {self._what}"):
            self._query.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _check_running(self) -> None:
        with spark_call(self._session, f"following {self._what}"):
            if self._query.isActive:
                if time.monotonic() - self._checked >= _LOOK:
                    self._check()
                    self._checked = time.monotonic()
                return
            error = self._query.exception()
            if error is not None:
                raise error
        raise CatalogError(
            f"somebody stopped the Spark query that reads {self._what}",
            hint="run the statement again",
        )

    def _take_batch(self, batch: Any, number: int) -> None:
        del number  # within one checkpoint Spark gives each batch once, in order
        try:
            with contextlib.closing(self._rows(batch)) as pieces:
                for piece in pieces:
                    if not self._put(piece):
                        return
        except Exception as error:  # raised where the rows are taken; Spark would print its stack
            with self._change:
                self._error = self._error or error
                self._change.notify_all()

    def _put(self, batch: pa.RecordBatch) -> bool:
        """Hands rows over when there is room; False if the reader is closed or has failed."""
        skipped = min(self._skip, batch.num_rows)
        self._skip -= skipped
        with self._change:
            self._change.wait_for(
                lambda: len(self._ready) < _AHEAD or self._closed or self._error is not None
            )
            if self._closed or self._error is not None:
                return False
            if skipped < batch.num_rows:
                self._ready.append(batch.slice(skipped))
                self._change.notify_all()
            return True
