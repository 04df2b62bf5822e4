"""Tables of Spark with a PRIMARY KEY as logs of changes (``catalog.upsert_log``). The name of the
table is that of a view (``catalog.spark.log_view``), and an epoch adds files to its log.

An epoch that compacts replaces all files of the log. They are removed oldest first, so that the
view has the same rows while the log holds both.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from cql.base.model import Schema
from cql.catalog.spark import log_view, registry
from cql.catalog.spark.log_view import LogView, log_name
from cql.catalog.spark.quoting import quoted
from cql.catalog.spark.tables import table as spark_table
from cql.catalog.spark.tables.replace import ReplacingWriter
from cql.catalog.spark.tables.types import usable_columns
from cql.catalog.spark.tables.upsert import published, replaced, writer_of
from cql.catalog.spark.tables.write import create_table
from cql.catalog.upsert import UpsertSink, with_key
from cql.catalog.upsert_log import DELETED, SEQUENCE, changes, compacted, is_due, log_schema
from cql.errors import CatalogError


def new_log(session: SparkSession, name: Sequence[str], schema: Schema, key: Sequence[str]) -> None:
    """Makes an empty log and its view ``name``."""
    full = spark_table.full_name(session, name)
    log, what = log_name(full), f"table {quoted(name)}"
    schema, key = with_key(schema, key, what)
    stored = log_schema(schema, key, what)
    log_view.check_columns(schema, what)
    if registry.ensure(session, log):
        raise CatalogError(
            f"{what}: there is a table {quoted(log)} already, and its log would have this name",
            hint="DROP TABLE it if it is of no use, or choose another name",
        )
    required = tuple(f.name for f in schema if not f.nullable and f.name not in key)
    view = LogView(full[-1], tuple(key), required)
    create_table(session, log, stored.to_arrow(), {log_view.LOG_OF: view.text})
    try:
        log_view.create(session, spark_table.load(session, log), view)
    except BaseException:
        with contextlib.suppress(CatalogError):
            registry.drop(session, log)
        raise


def logged_sink(
    session: SparkSession, name: Sequence[str], rows: Schema, log: Sequence[str]
) -> UpsertSink:
    """INSERT of ``rows`` into the view ``name`` of a ``log``."""
    what = f"table {quoted(name)}"
    view = log_view.view_of(spark_table.load(session, log))
    if view is None:
        raise CatalogError(
            f"{what} is a view over {quoted(log)}, which is no log of changes any more",
            hint="DROP VIEW in Spark, then create the table again",
        )
    marks = [pa.field(SEQUENCE, pa.int64()), pa.field(DELETED, pa.bool_())]
    with writer_of(session, log, pa.schema([*marks, *rows.to_arrow()])) as writer:
        stored = usable_columns(writer.schema, what)[0]
    own = Schema(
        tuple(
            replace(f, nullable=f.name not in view.required)
            for f in stored
            if f.name not in (SEQUENCE, DELETED)
        )
    )
    schema, key = with_key(own, view.key, what)
    arrow = log_schema(schema, key, what).to_arrow()

    def publish(new: pa.Table, gone: pa.Table) -> int:
        return published(session, log, arrow, lambda w: _appended(w, new, gone, key, what))

    return UpsertSink(rows, schema, key, publish, what)


@dataclass(frozen=True, slots=True)
class _State:
    """What the last epoch says of the log: its ``_sequence``, the rows that the last compaction
    ``kept``, and the rows and epochs ``appended`` since."""

    sequence: int = 0
    kept: int = 0
    appended: int = 0
    epochs: int = 0


def _appended(
    writer: ReplacingWriter, new: pa.Table, gone: pa.Table, key: Sequence[str], what: str
) -> int | None:
    """The number of the epoch; None if another process has published one meanwhile."""
    if not new.num_rows and not gone.num_rows:
        return writer.number
    state, before = _state(writer.notes), None
    removed: list[str] = []
    if state is None:  # the log was never written, or its record of epochs was deleted
        removed, before = _read(writer, changes(new, gone, key, 0, what).schema)
        last: Any = pc.max(before.column(SEQUENCE)).as_py()
        state = _State(last or 0, 0, before.num_rows, 0)
    number = state.sequence + 1
    epoch = changes(new, gone, key, number, what)
    state = _State(number, state.kept, state.appended + epoch.num_rows, state.epochs + 1)
    if is_due(state.kept, state.appended, state.epochs):
        if before is None:
            removed, before = _read(writer, epoch.schema)
        epoch = compacted(before, epoch, number, key, what)
        state = _State(number, epoch.num_rows)
    else:
        removed = []
    for batch in epoch.to_batches():
        writer.write(batch)
    notes = {"key": list(key), "log": [state.sequence, state.kept, state.appended, state.epochs]}
    return replaced(writer, removed, notes)


def _state(notes: Mapping[str, Any] | None) -> _State | None:
    return None if notes is None else _State(*map(int, notes["log"]))


def _read(writer: ReplacingWriter, schema: pa.Schema) -> tuple[list[str], pa.Table]:
    """The files of the log and their rows, in the order of their epochs."""
    found = [(file, writer.rows_of([file], schema)) for file in writer.files]
    ends: list[tuple[int, str, pa.Table]] = [
        (int(pc.max(rows.column(SEQUENCE)).as_py()), file, rows)
        for file, rows in found
        if rows.num_rows
    ]
    ends.sort(key=lambda end: end[:2])
    empty = [file for file, rows in found if not rows.num_rows]
    tables = [schema.empty_table(), *(rows for _, _, rows in ends)]
    return [*empty, *(file for _, file, _ in ends)], pa.concat_tables(tables)
