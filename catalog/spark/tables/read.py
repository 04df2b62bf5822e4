"""Reading Spark's tables as Arrow batches.

Spark resolves the name and lists the files; Parquet and ORC files are then read here, without the
JVM. Spark reads CSV and JSON files one by one, so that they too have a fixed order of rows. Views
and tables of other sources are computed by Spark (``query_batches``).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
from pyspark import RDD
from pyspark.serializers import NoOpSerializer, read_int, write_int
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 (Spark's own name for it)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.util import _create_local_socket

from cql.base.model import Schema
from cql.catalog.convert import Shaper
from cql.catalog.files.parquet_footer import row_groups
from cql.catalog.files.reading import remedy
from cql.catalog.memory.rows import Rows, shape_what_fits
from cql.catalog.spark.quoting import quoted
from cql.catalog.spark.session import spark_call
from cql.catalog.spark.tables.columns import find_column, rows_only, shaped, stored_columns
from cql.catalog.spark.tables.files import DataFile, Files, frame_of
from cql.catalog.spark.tables.types import is_stand_in, to_arrow_loosely, unreadable
from cql.errors import CatalogError
from cql.executor.protocols import BLOCK_ROWS, Block

MAX_ROWS = 65_536
"""The largest batch."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Some consecutive rows; ``offset`` is the number of rows of the table before the first."""

    offset: int
    batch: pa.RecordBatch


def read_batches(
    files: Files,
    columns: Sequence[str] | None = None,
    *,
    offset: int = 0,
    max_rows: int = MAX_ROWS,
    session: SparkSession | None = None,
) -> Generator[Slice, None, None]:
    """The rows of ``files`` from row ``offset`` on, always in the same order.

    Whole files and row groups before ``offset`` are skipped by their footers. A file that changed
    since ``files`` was made raises CatalogError: the offsets of a replay would name other rows.
    ``session`` is needed unless the files are ``direct``.
    """
    names = _chosen(files.schema, columns, files.table, files.case_sensitive)
    schema = pa.schema([files.schema.field(name) for name in names])
    at = 0
    for file in files.files:
        _check_unchanged(files, file)
        if files.direct:
            open_file = _open_parquet if files.format == "parquet" else _open_orc
            rows, batches = _guarded_open(open_file, files, file, schema)
            if at + rows <= offset:
                at += rows
                continue
            source = batches(max(0, offset - at), max_rows)
            at = max(at, offset)
        else:
            if session is None:
                raise CatalogError(
                    f"table {files.table}: {files.format} files are read by Spark",
                    hint="pass the session",
                )
            source = _file_through_spark(session, files, file, names)
        for batch in _guarded(source, files, file):
            end = at + batch.num_rows
            if end > offset:
                if at < offset:
                    batch = batch.slice(offset - at)
                    at = offset
                for start in range(0, batch.num_rows, max_rows):
                    part = batch.slice(start, max_rows)
                    yield Slice(at + start, part)
            at = end
        _check_unchanged(files, file)


def query_batches(
    session: SparkSession,
    name: str | Sequence[str],
    columns: Sequence[str] | None = None,
    *,
    offset: int = 0,
    max_rows: int = MAX_ROWS,
) -> Generator[Slice, None, None]:
    """The rows of any table or view as Spark computes them. They can be replayed only if Spark's
    plan can.

    Memory holds one batch here and one partition in the JVM.
    """
    frame = frame_of(session, name)
    with spark_call(session, f"reading the schema of {quoted(name)}"):
        schema = to_arrow_loosely(frame.schema)
        case_sensitive = session.conf.get("spark.sql.caseSensitive", "false") == "true"
    names = _chosen(schema, columns, quoted(name), case_sensitive)
    what = quoted(name)
    return frame_batches(session, frame, schema, names, what, offset=offset, max_rows=max_rows)


def frame_batches(
    session: SparkSession,
    frame: Any,
    schema: pa.Schema,
    names: Sequence[str],
    what: str,
    *,
    offset: int = 0,
    max_rows: int = MAX_ROWS,
) -> Generator[Slice, None, None]:
    """The rows of a DataFrame, with those columns of ``schema`` that ``names`` lists."""
    at = 0
    for batch in rows_through_spark(session, frame, schema, names, f"reading {what}"):
        start = max(0, offset - at)
        while start < batch.num_rows:
            part = batch.slice(start, max_rows)
            yield Slice(at + start, part)
            start += part.num_rows
        at += batch.num_rows


class SliceReader:
    """Blocks of a table or frame, which messages call ``what``; offsets are ``{"row": rows read so
    far}``. A decimal that has too many digits makes a bad row."""

    def __init__(self, slices: Iterator[Slice], schema: Schema, what: str) -> None:
        self._slices = slices
        self._schema = schema.to_arrow()
        self._what = what
        wide = any(f.type.declared for f in schema)
        self._shaper = Shaper(schema.fields) if wide else None

    def next(self, timeout: float | None = None) -> Block | None:
        for piece in self._slices:
            if piece.batch.num_rows:
                assert piece.batch.num_rows <= BLOCK_ROWS
                offset = {"row": piece.offset + piece.batch.num_rows}
                batch = self._shaped(piece.batch)
                if self._shaper is None:
                    return Block(batch, offset)
                rows = shape_what_fits(
                    self._shaper, Rows(batch), row=piece.offset, where=self._what
                )
                return Block(rows.batch, offset, bad=rows.bad)
        return None

    def _shaped(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch in the engine's types (Spark's are the same, but for a few layouts)."""
        if batch.schema.equals(self._schema):
            return batch
        columns = [
            column if column.type == f.type else column.cast(f.type)
            for column, f in zip(batch.columns, self._schema, strict=True)
        ]
        if not columns:
            return batch
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def close(self) -> None:
        close = getattr(self._slices, "close", None)
        if close is not None:
            close()


def _chosen(
    schema: pa.Schema, columns: Sequence[str] | None, table: str, case_sensitive: bool
) -> list[str]:
    chosen = []
    for column in schema.names if columns is None else columns:
        name = find_column(column, schema.names, case_sensitive)
        if name is None:
            raise CatalogError(
                f"table {table} has no column {column!r}",
                hint="its columns are " + ", ".join(schema.names),
            )
        if is_stand_in(schema.field(name)):
            raise CatalogError(f"table {table}: {unreadable(schema.field(name))}")
        chosen.append(name)
    return chosen


def _check_unchanged(files: Files, file: DataFile) -> None:
    try:
        status = os.stat(file.path)
    except OSError as error:
        what = "is gone" if isinstance(error, FileNotFoundError) else f"fails: {error.strerror}"
        raise CatalogError(
            f"table {files.table}: its file {file.path} {what} since the query was planned",
            hint="the table was dropped, overwritten or compacted meanwhile: run the query again",
        ) from error
    if (status.st_size, status.st_mtime_ns) != (file.size, file.modified_ns):
        raise CatalogError(
            f"table {files.table}: its file {file.path} changed since the query was planned",
            hint="append new files to a table instead of rewriting them, then run the query again",
        )


_Batches = Callable[[int, int], Iterator[pa.RecordBatch]]
_Opener = Callable[[Files, DataFile, pa.Schema], tuple[int, _Batches]]


def _guarded_open(
    open_file: _Opener, files: Files, file: DataFile, schema: pa.Schema
) -> tuple[int, _Batches]:
    try:
        return open_file(files, file, schema)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _unreadable(files, file, error) from error


def _guarded(
    source: Iterator[pa.RecordBatch], files: Files, file: DataFile
) -> Iterator[pa.RecordBatch]:
    try:
        yield from source
    except (pa.ArrowException, OSError, ValueError) as error:
        _check_unchanged(files, file)
        raise _unreadable(files, file, error) from error


def _unreadable(files: Files, file: DataFile, error: Exception) -> CatalogError:
    reason = str(error).split("\n")[0]
    return CatalogError(
        f"table {files.table}: its {files.format} file {file.path} cannot be read: {reason}",
        hint=remedy(error, "restore it, or remove it from the table"),
    )


def _open_parquet(files: Files, file: DataFile, schema: pa.Schema) -> tuple[int, _Batches]:
    # Not memory-mapped: a file that another process cuts short would kill this one with SIGBUS.
    with pq.ParquetFile(file.path, coerce_int96_timestamp_unit="us") as opened:
        legacy = is_legacy(opened)
    groups = [group.rows for group in row_groups(file.path)]

    def batches(skip: int, max_rows: int) -> Iterator[pa.RecordBatch]:
        first = 0
        while first < len(groups) and groups[first] <= skip:
            skip -= groups[first]
            first += 1
        with pq.ParquetFile(file.path, coerce_int96_timestamp_unit="us") as reader:
            stored = reader.schema_arrow.names
            wanted = stored_columns(files, schema, stored)
            names = [name for name in wanted if name is not None]
            if names:
                source = reader.iter_batches(
                    batch_size=max_rows,
                    row_groups=list(range(first, len(groups))),
                    columns=names,
                )
                for batch in source:
                    rows = batch.slice(min(skip, batch.num_rows))
                    skip -= batch.num_rows - rows.num_rows
                    if rows.num_rows:
                        found = [None if n is None else rows.column(n) for n in wanted]
                        yield shaped(files, file, schema, found, rows.num_rows, legacy)
            else:
                yield from _no_columns(files, file, schema, sum(groups[first:]) - skip, max_rows)

    return sum(groups), batches


def read_groups(
    files: Files, picked: Sequence[tuple[int, Sequence[int]]], columns: Sequence[str]
) -> Generator[tuple[tuple[int, int], pa.RecordBatch], None, None]:
    """The rows of some row groups of Parquet files: of each file (its index in ``files``) the
    listed groups, in this order. Yields (file, group) with each batch of at most MAX_ROWS rows."""
    names = _chosen(files.schema, columns, files.table, files.case_sensitive)
    schema = pa.schema([files.schema.field(name) for name in names])
    for index, groups in picked:
        file = files.files[index]
        _check_unchanged(files, file)
        for group in groups:
            for batch in _guarded(_group_batches(files, file, schema, group), files, file):
                yield (index, group), batch
        _check_unchanged(files, file)


def _group_batches(
    files: Files, file: DataFile, schema: pa.Schema, group: int
) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(file.path, coerce_int96_timestamp_unit="us") as reader:
        wanted = stored_columns(files, schema, reader.schema_arrow.names)
        names = [name for name in wanted if name is not None]
        if not names:
            rows = row_groups(file.path)[group].rows
            yield from _no_columns(files, file, schema, rows, MAX_ROWS)
            return
        legacy = is_legacy(reader)
        for batch in reader.iter_batches(MAX_ROWS, row_groups=[group], columns=names):
            found = [None if n is None else batch.column(n) for n in wanted]
            yield shaped(files, file, schema, found, batch.num_rows, legacy)


def is_legacy(file: pq.ParquetFile) -> bool:
    """Whether Spark 2 wrote the file, in a calendar of its own."""
    notes = file.metadata.metadata or {}
    return b"org.apache.spark.legacyDateTime" in notes or b"org.apache.spark.legacyINT96" in notes


def _open_orc(files: Files, file: DataFile, schema: pa.Schema) -> tuple[int, _Batches]:
    reader = orc.ORCFile(file.path)
    stored = reader.schema.names
    if stored and all(name.startswith("_col") for name in stored):
        # Old Hive wrote no names: the file's columns are the table's, by position.
        own = [n for n in files.schema.names if n not in files.partition_columns]
        position = {name: f"_col{i}" for i, name in enumerate(own)}
        wanted = [position.get(name) for name in schema.names]
        wanted = [name if name in stored else None for name in wanted]
    else:
        wanted = stored_columns(files, schema, stored)

    def batches(skip: int, max_rows: int) -> Iterator[pa.RecordBatch]:
        names = [name for name in wanted if name is not None]
        if not names:
            yield from _no_columns(files, file, schema, reader.nrows - skip, max_rows)
            return
        for stripe in range(reader.nstripes):
            # Arrow does not give a stripe's number of rows before the stripe is read.
            batch = reader.read_stripe(stripe, columns=names)
            rows = batch.slice(min(skip, batch.num_rows))
            skip -= batch.num_rows - rows.num_rows
            for start in range(0, rows.num_rows, max_rows):
                part = rows.slice(start, max_rows)
                found = [None if n is None else part.column(n) for n in wanted]
                yield shaped(files, file, schema, found, part.num_rows, legacy=True)

    return reader.nrows, batches


def _no_columns(
    files: Files, file: DataFile, schema: pa.Schema, rows: int, max_rows: int
) -> Iterator[pa.RecordBatch]:
    """Batches of which only the number of rows is needed (``count(*)``, partition columns)."""
    for start in range(0, rows, max_rows):
        count = min(max_rows, rows - start)
        yield shaped(files, file, schema, [None] * len(schema), count, legacy=False)


def rows_through_spark(
    session: SparkSession, frame: Any, schema: pa.Schema, names: Sequence[str], doing: str
) -> Generator[pa.RecordBatch, None, None]:
    """The columns ``names`` of ``frame``, batch by batch.

    One job runs per partition and sends its Arrow messages over a socket. For 4M rows of three
    columns on two cores this takes 1.4 s; ``toArrow`` (the whole result in both memories) takes
    0.8-1.3 s. One ``toArrow`` per partition behind a ``spark_partition_id`` filter needs as little
    memory, but computes the plan anew for each partition: 1.3 s without a shuffle (2 partitions)
    and 21 s with one (8 partitions). ``toLocalIterator`` takes 0.74 s for 200k rows.
    """
    positions = [schema.get_field_index(name) for name in names]
    wanted = pa.schema([schema.field(name) for name in names])
    with spark_call(session, doing):
        # By position: a name with a backtick in it cannot be written as a column.
        plain = frame.toDF(*[f"c{i}" for i in range(len(schema))])
        plain = plain.select([F.col(f"c{i}") for i in positions])
        rows = 0 if names else int(plain.count())
        sent = _messages_schema(session, plain)
    if not names:
        for start in range(0, rows, MAX_ROWS):
            yield rows_only(min(MAX_ROWS, rows - start))
        return
    messages = _messages(session, plain)
    with contextlib.closing(messages):
        while True:
            with spark_call(session, doing):
                message = next(messages, None)
                if message is None:
                    return
                batch = pa.ipc.read_record_batch(pa.py_buffer(message), sent)
            arrays = [column.cast(f.type) for column, f in zip(batch.columns, wanted, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=wanted)


def arrow_messages(frame: Any, columns: Sequence[str]) -> tuple[RDD[bytes], pa.Schema]:
    """Some columns of a DataFrame as an RDD of Arrow messages, and their schema. An RDD has the
    partitions of the DataFrame."""
    # By position: a name with a backtick in it cannot be written as a column.
    places = {column.lower(): n for n, column in enumerate(frame.columns)}
    plain = frame.toDF(*(f"c{n}" for n in range(len(places))))
    chosen = plain.select([F.col(f"c{places[column.lower()]}") for column in columns])
    messages = chosen._jdf.toArrowBatchRdd().toJavaRDD()
    made = RDD(messages, frame.sparkSession.sparkContext, NoOpSerializer())
    return made, _messages_schema(frame.sparkSession, chosen)


def _messages_schema(session: SparkSession, frame: Any) -> pa.Schema:
    """The schema of the Arrow messages of a DataFrame (``toArrowBatchRdd``)."""
    large = session.conf.get("spark.sql.execution.arrow.useLargeVarTypes", "false") == "true"
    return to_arrow_schema(frame.schema, timezone="UTC", prefers_large_types=large)


def _messages(session: Any, frame: Any) -> Generator[bytes, None, None]:
    """The Arrow messages of ``frame``, requested from the JVM one partition at a time.

    pyspark's own iterator over this protocol reads the rest of a partition when it is abandoned,
    and prints a stack when the JVM is gone.
    """
    served = session._jvm.PythonRDD.toLocalIteratorAndServe(frame._jdf.toArrowBatchRdd(), False)
    stream, sock = _create_local_socket((served[0], served[1]))
    try:
        while True:
            write_int(1, stream)
            stream.flush()
            status = read_int(stream)
            if status == -1:
                served[2].getResult()  # raises the JVM's error
            if status != 1:
                return
            while (length := read_int(stream)) >= 0:
                message = stream.read(length)
                if len(message) < length:
                    raise EOFError("the JVM closed the connection")
                yield message
    finally:
        for opened in (stream, sock):
            with contextlib.suppress(OSError):
                opened.close()


def _file_through_spark(
    session: SparkSession, files: Files, file: DataFile, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The rows of one CSV or JSON file. Its splits are partitions in the order of the file,
    whatever the number of cores; Spark would pack several files at once by size."""
    doing = f"reading {file.path} of {files.table}"
    with spark_call(session, doing):
        frame = session.table(files.table)
        path = frame.metadataColumn("_metadata").getField("file_path")
        frame = frame.where(path.isin(*file.uris))
    return rows_through_spark(session, frame, files.schema, names, doing)
