"""Tables of Spark with a PRIMARY KEY: each epoch replaces files of the table.

Spark enforces no key. The columns of the key are a property of the table, and an INSERT of this
engine makes the table's rows anew: those of the partitions that the epoch's keys lie in, if the key
has all partition columns. Otherwise a key may move to another partition, and all rows are made
anew. An INSERT of Spark adds rows as to any table.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from cql.base.model import Schema
from cql.catalog.spark.log_view import KEY
from cql.catalog.spark.quoting import quoted
from cql.catalog.spark.tables import table as spark_table
from cql.catalog.spark.tables.replace import ReplacingWriter
from cql.catalog.spark.tables.types import usable_columns
from cql.catalog.spark.tables.write import create_table
from cql.catalog.upsert import UpsertSink, merged, with_key
from cql.errors import CatalogError

#: Held by the writer of this process that opens a table or publishes: Spark cannot look up a table
#: while its files are replaced.
_ONE_WRITER = threading.Lock()
#: Spark's error for a file that was removed after it was listed, and the number of look-ups tried.
VANISHED, _TRIES = "FileNotFoundException", 10


def upsert_sink(
    session: SparkSession, name: Sequence[str], rows: Schema, key: Sequence[str]
) -> UpsertSink:
    """INSERT of ``rows`` into a table with that ``key``, which the engine has made."""
    what = f"table {quoted(name)}"
    with writer_of(session, name, rows.to_arrow()) as writer:
        schema, unsupported = usable_columns(writer.schema, what)
    for column, why in unsupported.items():
        raise CatalogError(
            f"{what} has a PRIMARY KEY, and column {column} cannot be written anew: {why}",
            hint="drop the column in Spark",
        )
    schema, key = with_key(schema, key, what)
    arrow = schema.to_arrow()

    def publish(new: pa.Table, gone: pa.Table) -> int:
        return published(session, name, arrow, lambda w: _replaced(w, new, gone, key, what))

    return UpsertSink(rows, schema, key, publish, what)


@contextlib.contextmanager
def writer_of(
    session: SparkSession, name: Sequence[str], rows: pa.Schema
) -> Iterator[ReplacingWriter]:
    """The only writer of this process that is open. Spark fails to look up a table whose files
    another process removes just then: that is tried again."""
    with _ONE_WRITER:
        for last in range(_TRIES, -1, -1):
            try:
                opened = ReplacingWriter(session, name, rows)
                break
            except CatalogError as error:
                if VANISHED not in error.message or not last:
                    raise
        with opened:
            yield opened


def published(
    session: SparkSession,
    name: Sequence[str],
    rows: pa.Schema,
    publish: Callable[[ReplacingWriter], int | None],
) -> int:
    """The epoch that ``publish`` returns, which is tried again until no other process has changed
    the table meanwhile."""
    while True:
        with writer_of(session, name, rows) as writer:
            try:
                epoch = publish(writer)
            except FileNotFoundError:
                continue
        if epoch is not None:
            return epoch


def _replaced(
    writer: ReplacingWriter, new: pa.Table, gone: pa.Table, key: Sequence[str], what: str
) -> int | None:
    """The number of the epoch; None if the files of the table changed meanwhile."""
    if not new.num_rows and not gone.num_rows:
        return writer.number
    columns = writer.partition_columns
    within = [new, gone] if set(columns) <= set(key) else None
    _check_partitions((new, gone), [c for c in columns if c in key], what)
    try:
        files = writer.files_with(within)
        before = writer.rows_of(files, new.schema)
        for batch in merged(before, new, gone, key, what).to_batches():
            writer.write(batch)
        if writer.files_with(within) != files:
            return None
    except CatalogError as error:
        if VANISHED not in error.message:
            raise
        return None
    return replaced(writer, files, {"key": list(key)})


def replaced(writer: ReplacingWriter, files: Sequence[str], notes: Mapping[str, Any]) -> int | None:
    """Publishes the rows of the writer instead of ``files``, and returns the number of the epoch;
    None if another process has published it meanwhile."""
    try:
        made = writer.replace(files, notes)
    except CatalogError as error:
        if VANISHED not in error.message:
            raise
        return writer.number + 1  # another process has published the epoch behind it
    return None if made is None else made.epoch


def _check_partitions(tables: Sequence[pa.Table], columns: Sequence[str], what: str) -> None:
    """Raises CatalogError for an empty text in a column of the key that partitions the table."""
    for column in columns:
        for table in tables:
            values: Any = table.column(column)
            if pa.types.is_string(values.type) and pc.any(pc.equal(values, "")).as_py():
                raise CatalogError(
                    f"{what}: the empty text in column {column}, which Spark stores as NULL in the"
                    " folder of a partition, is no value of the PRIMARY KEY",
                    hint=f"leave such rows out: WHERE {column} <> ''",
                )


def new_table(
    session: SparkSession,
    name: Sequence[str],
    schema: Schema,
    key: Sequence[str],
    partitions: Sequence[str],
) -> None:
    """Makes an empty table with a key, or with partitions, or both."""
    full = spark_table.full_name(session, name)
    schema, key = with_key(schema, key, f"table {quoted(name)}")
    properties = {KEY: json.dumps(key)} if key else None
    create_table(session, full, schema.to_arrow(), properties, partitions=partitions)


def key_in(text: str | None) -> tuple[str, ...]:
    """The columns of the key in a table's property KEY; empty without one."""
    return () if text is None else tuple(json.loads(text))
