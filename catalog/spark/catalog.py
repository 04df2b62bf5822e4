"""The Spark catalog as the engine sees it. Spark's tables are sources and sinks. A stream that is
declared over a table is kept in the table's properties, for every session that shares the table.

A stream ``s`` over a table is the property ``cql.stream.s`` of the table: its clauses as JSON. It
survives when the table is overwritten or its view replaced (``catalog.spark.declared``).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from cql.base.model import Schema
from cql.catalog.changelogs.relation import as_changes
from cql.catalog.local import check_spec
from cql.catalog.options import Options
from cql.catalog.prefetch import Prefetch
from cql.catalog.signals.sample_blocks import as_samples
from cql.catalog.spark import declared as spark_declared
from cql.catalog.spark import log_view, metadata, registry
from cql.catalog.spark import session as spark_session
from cql.catalog.spark.declared import STREAM, VIEW
from cql.catalog.spark.log_view import KEY, LOG, LOG_OF
from cql.catalog.spark.quoting import quoted
from cql.catalog.spark.tables import defaults
from cql.catalog.spark.tables import stream as spark_stream
from cql.catalog.spark.tables import table as spark_table
from cql.catalog.spark.tables.files import (
    Files,
    frame_of,
    property_of,
    schema_of,
    table_files,
    table_schema,
)
from cql.catalog.spark.tables.log import logged_sink, new_log
from cql.catalog.spark.tables.read import Slice, SliceReader, query_batches, read_batches
from cql.catalog.spark.tables.row_groups import statistics_of
from cql.catalog.spark.tables.table import Table
from cql.catalog.spark.tables.types import usable_columns
from cql.catalog.spark.tables.upsert import key_in, new_table, upsert_sink
from cql.catalog.spark.tables.write import EpochWriter
from cql.errors import CatalogError
from cql.executor.protocols import Offset, Reader, Sink
from cql.planner.nodes.catalog import (
    PLAIN,
    Cluster,
    Relation,
    Statistics,
    StreamDefinition,
    StreamSpec,
    TableLayout,
)
from cql.planner.nodes.declaration_json import (
    schema_from_json,
    schema_to_json,
    spec_from_json,
    spec_to_json,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Name = tuple[str, ...]


class SparkCatalog:
    """``spark`` is the user's SparkSession. None means the local session of this process, which is
    started here, and again after its JVM died."""

    def __init__(self, spark: Any = None) -> None:
        self._given = spark
        self.session()

    def session(self) -> SparkSession:
        return self._given if self._given is not None else spark_session.start()

    def cluster(self, tables: frozenset[Name]) -> Cluster | None:
        """The executors that Spark has now; None if tasks run on the cores of this machine."""
        session = self.session()
        if spark_session.is_local(session):
            return None
        return Cluster(spark_session.tasks_at_once(session), tables)

    # -- Catalog protocol ------------------------------------------------------------------------

    def find(self, name: Name) -> Relation | None:
        return as_changes(as_samples(self.stored(name)))

    def stored(self, name: Name) -> SparkRelation | None:
        """The table or stream of that name, whose rows may be changes."""
        session = self.session()
        if registry.ensure(session, name):
            return self._relation(session, name, name)
        return self._find_stream(session, name)

    def names(self) -> Sequence[Name]:
        """Tables and streams of the current database, and those of our own sessions' registry."""
        session = self.session()
        here = spark_table.full_name(session, ("here",))[:-1]
        with spark_session.spark_call(session, "listing the tables"):
            known = {(*here[1:], str(t.name)) for t in session.catalog.listTables()}
        for table in registry.tables(session):
            known.add(table.name[1:])
            view = log_view.view_of(table)
            if view is not None:
                known.add((*table.name[1:-1], view.name))
        spark_declared.restore_all(session)
        for table, key, text in self._declarations(session, here, everywhere=True):
            stream = (*table.name[:-1], key.removeprefix(STREAM))
            spark_declared.remember(session, stream, table, key, text)
            known.add(stream[1:])
        return sorted(known)

    def create_stream(self, name: Name, definition: StreamDefinition, *, replace: bool) -> None:
        session = self.session()
        table = definition.table
        assert table is not None
        if registry.ensure(session, name):
            raise CatalogError(
                f"{_dotted(name)} is a table", hint="give the stream a name of its own"
            )
        full, over = (spark_table.full_name(session, n) for n in (name, table))
        if len(name) > 1 and _folded(full[:-1]) != _folded(over[:-1]):
            raise CatalogError(
                f"stream {_dotted(name)} would not be in the database of its table",
                hint=f"name it {_dotted((*over[1:-1], name[-1]))}",
            )
        if not replace and self._find_stream(session, name) is not None:
            raise CatalogError(
                f"stream {_dotted(name)} exists already",
                hint="use CREATE OR REPLACE STREAM, or IF NOT EXISTS",
            )
        follow = follow_poll(definition.options, f"stream {_dotted(name)}")
        if follow is not None:
            spark_stream.check_table(session, table)
        relation = self._relation(session, name, table, definition.spec, definition.schema, follow)
        check_spec(definition.spec, relation.schema, f"stream {_dotted(name)}")
        key = STREAM + name[-1].lower()
        described = {"follow": follow, **spec_to_json(definition.spec)}
        if definition.schema is not None:
            described["columns"] = schema_to_json(definition.schema)
        text = json.dumps(described, sort_keys=True)
        for old in {t for t, _ in self._declared(session, name)} - {over}:
            metadata.set_properties(session, old, {key: None})
        metadata.set_properties(session, table, {key: text})
        spark_declared.remember(session, full, spark_table.load(session, table), key, text)

    def drop(self, name: Name, kind: str) -> bool:
        session = self.session()
        full = spark_table.full_name(session, name)
        if kind.lower() in ("table", "materialized view"):
            if self._is_view(session, name) is not (kind.lower() != "table"):
                return False
            self._check_no_log(session, name)
            spark_declared.forget_table(session, full)
            return registry.drop(session, name)
        if kind.lower() != "stream":
            return False
        declared = [table for table, _ in self._declared(session, name)]
        spark_declared.forget(session, full)
        for table in declared:
            metadata.set_properties(session, table, {STREAM + name[-1].lower(): None})
        return bool(declared)

    def sink(self, name: Name, schema: Schema, *, create: bool) -> Sink:
        session = self.session()
        if not create and self._is_view(session, name):
            raise CatalogError(
                f"{_dotted(name)} is a materialized view: its rows are those of its query",
                hint=f"INSERT INTO the tables that it reads, then REFRESH MATERIALIZED VIEW"
                f" {_dotted(name)}",
            )
        log = None if create else self._property(session, name, LOG)
        if log is not None:
            full = spark_table.full_name(session, name)
            return logged_sink(session, name, schema, (*full[:-1], log))
        key = () if create else key_in(self._property(session, name, KEY))
        if key:
            return upsert_sink(session, name, schema, key)
        return SparkSink(session, name, schema.to_arrow(), create)

    def new_table(
        self,
        name: Name,
        rows: Schema,
        schema: Schema,
        key: tuple[str, ...] = (),
        layout: TableLayout = PLAIN,
    ) -> Sink:
        """Makes an empty table with a PRIMARY KEY or with partitions, and returns its sink for
        ``rows``."""
        session = self.session()
        if layout.log:
            new_log(session, name, schema, key)
        else:
            new_table(session, name, schema, key, layout.partitions)
        return self.sink(name, rows, create=False)

    def _property(self, session: SparkSession, name: Name, key: str) -> str | None:
        """A property of a table or view; None if there is no such table."""
        if not registry.ensure(session, name):
            return None
        return property_of(session, frame_of(session, name), key, quoted(name))

    def _is_view(self, session: SparkSession, name: Name) -> bool:
        """Whether a table is a materialized view."""
        return self._property(session, name, VIEW) is not None

    def _check_no_log(self, session: SparkSession, name: Name) -> None:
        """Raises CatalogError for the log of a view."""
        text = self._property(session, name, LOG_OF)
        view = None if text is None else log_view.view_of(spark_table.load(session, name))
        if view is None:
            return
        full = (*spark_table.full_name(session, name)[:-1], view.name)
        if spark_table.exists(session, full):
            raise CatalogError(
                f"{_dotted(name)} is the log of table {view.name}",
                hint=f"DROP TABLE {_dotted((*name[:-1], view.name))} drops both",
            )

    # -- streams over tables ---------------------------------------------------------------------

    def _find_stream(self, session: SparkSession, name: Name) -> SparkRelation | None:
        for table, text in self._declared(session, name):
            try:
                stored = json.loads(text)
                spec, columns = spec_from_json(stored), stored.get("columns")
                schema = None if columns is None else schema_from_json(columns)
                follow = stored.get("follow")
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise CatalogError(
                    f"what table {quoted(table)} says of stream {_dotted(name)} cannot be read",
                    hint=f"DROP STREAM {_dotted(name)}, and declare it again",
                ) from error
            relation = self._relation(session, name, table, spec, schema, follow)
            try:
                check_spec(spec, relation.schema, f"stream {_dotted(name)}")
            except CatalogError as error:
                raise CatalogError(
                    f"table {quoted(table)} was altered or made anew: {error.message}",
                    hint=f"CREATE OR REPLACE STREAM {_dotted(name)} over the columns that it has",
                ) from error
            return relation
        return None

    def _declared(self, session: SparkSession, name: Name) -> Iterator[tuple[Name, str]]:
        """(table, property) of the streams of that name: over a table of the named or the current
        database, or over the table where the stream was seen last."""
        full = spark_table.full_name(session, name)
        key = STREAM + name[-1].lower()
        spark_declared.restore(session, full)
        last = spark_declared.table_of(session, full)
        if last is not None and registry.ensure(session, last):
            text = spark_table.load(session, last).properties.get(key)
            if text is not None:
                yield last, text
                return
        for table, found, text in self._declarations(session, full[:-1]):
            if found == key and registry.ensure(session, table.name):
                spark_declared.remember(session, full, table, key, text)
                yield table.name, text

    def _declarations(
        self, session: SparkSession, database: Name, *, everywhere: bool = False
    ) -> Iterator[tuple[Table, str, str]]:
        """(table, property, value) of all streams over the tables of a database. ``everywhere``: of
        all databases, in a session of our own, whose registry knows them without a look-up."""
        if spark_session.is_own(session) and database[0] == spark_table.SESSION_CATALOG:
            tables = registry.tables(session)
            if not everywhere:
                tables = [t for t in tables if _folded(t.name[:-1]) == _folded(database)]
        else:
            with spark_session.spark_call(session, "listing the tables"):
                if not session.catalog.databaseExists(quoted(database)):
                    return
                listed = session.catalog.listTables(quoted(database))
                found = [(*database, str(t.name)) for t in listed if not t.isTemporary]
            tables = [spark_table.load(session, table) for table in found]
        for table in tables:
            for key, text in table.properties.items():
                if key.startswith(STREAM):
                    yield table, key, text

    def _relation(
        self,
        session: SparkSession,
        name: Name,
        table: Name,
        spec: StreamSpec | None = None,
        declared: Schema | None = None,
        follow: float | None = None,
    ) -> SparkRelation:
        frame, what = frame_of(session, table), quoted(table)
        schema, unsupported = usable_columns(schema_of(session, frame, what), f"table {what}")
        if declared is not None:
            schema = _checked(declared, schema, table)
        view = property_of(session, frame, VIEW, what)
        key = key_in(property_of(session, frame, KEY, what)) if spec is None else ()
        return SparkRelation(self, name, table, schema, spec, follow, unsupported, view, key)


@dataclass(frozen=True, slots=True)
class SparkRelation:
    """A Spark table or view, or a stream declared over one. It is bounded by its rows at the start
    of the query unless it is followed: then Spark looks for more every ``follow`` seconds. ``view``
    is the definition of the materialized view that the table is; None for other tables. ``key``
    are the columns of its PRIMARY KEY."""

    catalog: SparkCatalog = field(repr=False, compare=False)
    name: Name
    table: Name
    schema: Schema
    stream: StreamSpec | None
    follow: float | None = None
    unsupported: Mapping[str, str] = field(default_factory=dict)
    view: str | None = field(default=None, compare=False)
    key: tuple[str, ...] = field(default=(), compare=False)
    _latest: _Latest = field(default_factory=lambda: _Latest(), repr=False, compare=False)

    @property
    def kind(self) -> str:
        if self.stream is not None:
            return "stream"
        return "table" if self.view is None else "materialized view"

    @property
    def bounded(self) -> bool:
        return self.follow is None

    @property
    def statistics(self) -> Statistics:
        """Statistics from the footers of a Parquet table of a few files; unknown otherwise. They
        cover the files that were opened last, or before that a fresh listing."""
        if not self.bounded:
            return Statistics()
        latest = self._latest
        if latest.statistics is None:
            latest.statistics = statistics_of(latest.files or self.files())
        return latest.statistics

    def files(self) -> Files | None:
        """A fresh listing; None if Spark computes the rows."""
        self._latest.files = table_files(self.catalog.session(), self.table)
        self._latest.statistics = None
        return self._latest.files

    def has_default(self, column: str) -> bool:
        return column in defaults.with_default(self.frame())

    def default(self, column: str) -> object:
        frame = self.frame()
        if column not in defaults.with_default(frame):
            return None
        name = quoted(self.table)
        known = defaults.evaluated(self.catalog.session(), frame, (column,), name)
        return known[column][0].as_py()

    def frame(self) -> Any:
        """The table or view as a DataFrame."""
        return frame_of(self.catalog.session(), self.table)

    def source(self) -> SparkSource:
        return SparkSource(self)


@dataclass(slots=True)
class _Latest:
    """The content of a relation's table at the latest look-up."""

    files: Files | None = None
    statistics: Statistics | None = None


@dataclass(frozen=True, slots=True)
class SparkSource:
    """Reads files here if Arrow can read them; all other rows come through Spark in slices."""

    relation: SparkRelation

    @property
    def schema(self) -> Schema:
        return self.relation.schema

    @property
    def bounded(self) -> bool:
        return self.relation.bounded

    def version(self) -> Any:
        """The files of the table, each with its size and the time of its last change; None if Spark
        computes the rows."""
        files = self.relation.files()
        if files is None:
            return None
        return tuple((f.path, f.size, f.modified_ns) for f in files.files)

    def open(self, columns: Sequence[str], offset: Offset | None = None) -> Reader:
        session = self.relation.catalog.session()
        table, start = self.relation.table, int(offset["row"]) if offset else 0
        wanted = Schema(tuple(self.schema[i] for i in (_index(self.schema, c) for c in columns)))
        if self.relation.follow is not None:
            return spark_stream.open_table(
                session,
                table,
                wanted.fields,
                f"stream {_dotted(self.relation.name)}",
                self.relation.follow,
                offset,
            )
        files = self.relation.files()
        slices: Iterator[Slice]
        held = files.schema if files is not None else table_schema(session, table)
        _checked(wanted, usable_columns(held, f"table {quoted(table)}")[0], table)
        if files is not None:
            slices = read_batches(files, columns, offset=start, session=session)
            if files.direct:
                slices = Prefetch(slices, f"cql reading {_dotted(table)}")
        else:
            slices = query_batches(session, table, columns, offset=start)
        return SliceReader(slices, wanted, f"table {quoted(table)}")


class SparkSink:
    """INSERT into a Spark table: each commit publishes one epoch, as a whole or not at all. A
    writer (and its staging folder) lives for one epoch; the first one checks the table at once."""

    def __init__(self, session: SparkSession, name: Name, rows: pa.Schema, create: bool) -> None:
        self._open: Callable[[], EpochWriter] = lambda: EpochWriter(session, name, rows, create)
        self._writer: EpochWriter | None = self._open()
        self._schema = usable_columns(self._writer.schema, f"table {quoted(name)}")[0]

    @property
    def schema(self) -> Schema:
        return self._schema

    def begin(self) -> None:
        if self._writer is None:
            self._writer = self._open()

    def write(self, batch: pa.RecordBatch) -> None:
        assert self._writer is not None
        self._writer.write(batch)

    def commit(self) -> int:
        assert self._writer is not None
        try:
            return self._writer.commit().epoch
        finally:
            self.abort()

    def abort(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()


def follow_poll(options: Mapping[str, Any], what: str) -> float | None:
    """Seconds between two looks of Spark for new rows, if the options of a stream over a table say
    to ``follow`` it; else None."""
    given = Options(options, what)
    follow = given.flag("follow")
    poll = given.duration("poll", int(spark_stream.POLL * 1e6)) / 1e6
    given.done()
    return poll if follow else None


# -- names, columns, JSON ------------------------------------------------------------------------


def _dotted(name: Sequence[str]) -> str:
    return ".".join(name)


def _folded(name: Name) -> Name:
    return tuple(part.lower() for part in name)


def _index(schema: Schema, name: str) -> int:
    found = schema.find(name)
    if found is None:
        raise CatalogError(f"the table has no column {name} any more", hint="plan the query again")
    return found


def _checked(declared: Schema, actual: Schema, table: Name) -> Schema:
    """The declared columns, each of which the table must have in that type. Raises CatalogError."""
    fields = []
    for f in declared:
        index = actual.find(f.name)
        if index is None:
            raise CatalogError(
                f"table {quoted(table)} has no column {f.name}",
                hint="its columns are " + ", ".join(actual.names),
            )
        held = actual[index]
        if held.type != f.type:
            raise CatalogError(
                f"column {f.name} of table {quoted(table)} is {held.type}, not {f.type}",
                hint="it was altered or made anew: run the statement again, and CREATE OR REPLACE "
                "a stream that declares its columns",
            )
        fields.append(dataclasses.replace(f, type=held.type))  # which has the length of a CHAR
    return Schema(tuple(fields))
