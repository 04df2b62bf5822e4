"""Tables of Spark with a PRIMARY KEY: each epoch replaces all files of the table.

Spark enforces no key. The columns of the key are a property of the table, and an INSERT of this
engine makes the table's rows anew. An INSERT of Spark adds rows as to any table.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import SparkSession

from cql.base.model import Schema
from cql.catalog.spark.quoting import quoted
from cql.catalog.spark.tables import table as spark_table
from cql.catalog.spark.tables.replace import ReplacingWriter
from cql.catalog.spark.tables.types import usable_columns
from cql.catalog.spark.tables.write import create_table
from cql.catalog.upsert import UpsertSink, merged, with_key
from cql.errors import CatalogError

#: The property of a table with the columns of its PRIMARY KEY, as JSON.
KEY = "cql.key"
#: Held by the writer of this process that opens a table or publishes: Spark cannot look up a table
#: while its files are replaced.
_ONE_WRITER = threading.Lock()
#: Spark's error for a file that was removed after it was listed, and the number of look-ups tried.
_VANISHED, _TRIES = "FileNotFoundException", 10


def upsert_sink(
    session: SparkSession, name: Sequence[str], rows: Schema, key: Sequence[str]
) -> UpsertSink:
    """INSERT of ``rows`` into a table with that ``key``, which the engine has made."""
    what = f"table {quoted(name)}"
    with _ONE_WRITER, _opened(session, name, rows) as writer:
        schema, unsupported = usable_columns(writer.schema, what)
    for column, why in unsupported.items():
        raise CatalogError(
            f"{what} has a PRIMARY KEY, and column {column} cannot be written anew: {why}",
            hint="drop the column in Spark",
        )
    schema, key = with_key(schema, key, what)

    def publish(new: pa.Table, gone: pa.Table) -> int:
        while True:  # until no other process has published an epoch meanwhile
            with _ONE_WRITER, _opened(session, name, schema) as writer:
                epoch = _published(writer, new, gone, key, what)
                if epoch is not None:
                    return epoch

    return UpsertSink(rows, schema, key, publish, what)


def _opened(session: SparkSession, name: Sequence[str], rows: Schema) -> ReplacingWriter:
    """Opens a writer. Spark fails to look up a table whose files another process removes just then:
    that is tried again."""
    for _ in range(_TRIES):
        try:
            return ReplacingWriter(session, name, rows.to_arrow())
        except CatalogError as error:
            if _VANISHED not in error.message:
                raise
    return ReplacingWriter(session, name, rows.to_arrow())


def _published(
    writer: ReplacingWriter, new: pa.Table, gone: pa.Table, key: Sequence[str], what: str
) -> int | None:
    """The number of the epoch; None if the files of the table changed meanwhile."""
    if not new.num_rows and not gone.num_rows:
        return writer.number
    files = writer.files
    try:
        before = writer.rows_of(files, new.schema)
    except FileNotFoundError:
        return None
    for batch in merged(before, new, gone, key, what).to_batches():
        writer.write(batch)
    if writer.files != files:
        return None
    try:
        made = writer.replace(files, {"key": list(key)})
    except CatalogError as error:
        if _VANISHED not in error.message:
            raise
        return writer.number + 1  # another process has published the epoch behind it
    return None if made is None else made.epoch


def new_keyed_table(
    session: SparkSession, name: Sequence[str], schema: Schema, key: Sequence[str]
) -> None:
    """Makes an empty table with a key."""
    full = spark_table.full_name(session, name)
    schema, key = with_key(schema, key, f"table {quoted(name)}")
    create_table(session, full, schema.to_arrow(), {KEY: json.dumps(key)})


def key_in(text: str | None) -> tuple[str, ...]:
    """The columns of the key in a table's property KEY; empty without one."""
    return () if text is None else tuple(json.loads(text))
