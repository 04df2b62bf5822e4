"""Decides which names of a session belong to Spark.

A session with the user's own SparkSession looks up every name there that the session itself does
not know. Without a SparkSession, only a name with a database (``default.flights``) starts Spark, so
that a mistyped name fails at once and not after the start of a JVM. In such a session, a new table
whose name has no database is in memory.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from cql.base.model import Schema
from cql.catalog.catalogs import Catalogs
from cql.catalog.files.tables import table_format
from cql.catalog.spark.known_tables import is_unknown
from cql.catalog.spark.known_tables import names as registered
from cql.errors import CatalogError, NotSupportedError
from cql.planner.nodes.catalog import (
    PLAIN,
    Cluster,
    Relation,
    StreamDefinition,
    TableFiles,
    TableLayout,
)

if TYPE_CHECKING:
    from cql.catalog.spark.catalog import SparkCatalog
    from cql.catalog.spark.session import Session as SparkSession
    from cql.errors import Position
    from cql.executor.protocols import Sink
    from cql.planner.nodes.catalog import Catalog

Name = tuple[str, ...]


#: The open sessions that share the process's one local Spark.
_sharing: weakref.WeakSet[SessionCatalog] = weakref.WeakSet()


class SessionCatalog(Catalogs):
    """The catalog of a session.

    ``spark`` is a SparkSession, None (a local Spark, started at first use) or False (no Spark)."""

    def __init__(self, spark: Any = None) -> None:
        super().__init__(_starter(spark))
        if spark is None:
            _sharing.add(self)
        self._with_database = spark is None or spark is False
        #: Called before the start of a local Spark, which takes seconds.
        self.on_start: Callable[[], None] = lambda: None

    @property
    def spark(self) -> Catalog | None:
        if self in _sharing and not self.spark_started:
            self.on_start()
        return super().spark

    @property
    def spark_runs(self) -> bool:
        return not self._with_database or self.spark_started

    def _is_unknown(self, name: Name) -> bool:
        """Whether a local Spark, not yet started, would not know ``name``, so need not start."""
        return self in _sharing and not self.spark_started and is_unknown(name)

    def names(self) -> Sequence[Name]:
        """All names, with those of a local Spark that is not yet started (``running`` leaves out
        the latter)."""
        if self in _sharing and not self.spark_started:
            return [*super().names(), *(registered() or ())]
        return super().names()

    def running(self) -> Sequence[Name]:
        """The names that are known without starting Spark."""
        return super().names()

    def _is_short(self, name: Name) -> bool:
        """Whether ``name`` has no database and the session no SparkSession of the user's: then the
        name starts no Spark."""
        return self._with_database and len(name) == 1

    def find(self, name: Name) -> Relation | None:
        if self._is_short(name) and not self.spark_started:
            return self.local.find(name)
        found = self.local.find(name)
        return found if found is not None or self._is_unknown(name) else super().find(name)

    def create_stream(self, name: Name, definition: StreamDefinition, *, replace: bool) -> None:
        table = definition.table
        if table is not None and self._is_short(table) and not self.spark_started:
            self.local.create_stream(name, definition, replace=replace)
        else:
            super().create_stream(name, definition, replace=replace)

    def drop(self, name: Name, kind: str) -> bool:
        if self._is_short(name) and not self.spark_started:
            return self.local.drop(name, kind)
        if self.local.find(name) is None and self._is_unknown(name):
            return False
        return super().drop(name, kind)

    def sink(self, name: Name, schema: Schema, *, create: bool) -> Sink:
        if self._is_short(name) and (create or self.find(name) is None):
            return self.local.sink(name, schema, create=create)
        return super().sink(name, schema, create=create)

    def use(self, name: Name, pos: Position | None) -> str:
        """Makes a Spark database the default for names without a database; returns its full
        name."""
        from cql.catalog.spark import databases as spark_databases

        with spark_databases.at(pos):
            return spark_databases.use(self.spark_session("USE"), name)

    def databases(self, catalog: Name | None, pos: Position | None) -> list[str]:
        """Spark's databases. Without ``catalog``, starts no Spark: the list is empty if none
        runs."""
        from cql.catalog.spark import databases as spark_databases

        if catalog is None and not self.spark_runs:
            return []
        with spark_databases.at(pos):
            return spark_databases.databases(self.spark_session("SHOW DATABASES"), catalog)

    def tables_in(self, database: Name, pos: Position | None) -> list[Name]:
        """The full names of the tables, views and streams of one database."""
        from cql.catalog.spark import databases as spark_databases

        with spark_databases.at(pos):
            return spark_databases.tables(self.spark_session("SHOW TABLES IN"), database)

    def spark_session(self, statement: str) -> SparkSession:
        """The SparkSession, started on first use. Raises CatalogError if this session has none,
        with the name of the ``statement``."""
        from cql.catalog.spark.catalog import SparkCatalog

        found = self.spark
        if not isinstance(found, SparkCatalog):
            raise CatalogError(
                f"{statement}: this session has no Spark",
                hint="cql.connect(spark) gives it one",
            )
        return found.session()

    def cluster(self, relations: Iterable[Relation | None]) -> Cluster | None:
        """The executors of Spark, if it runs on a cluster and some of the ``relations`` of a query
        are its tables. Starts no Spark."""
        if not self.spark_started:
            return None
        from cql.catalog.spark.catalog import SparkCatalog, SparkRelation

        tables = frozenset(r.name for r in relations if isinstance(r, SparkRelation))
        found = self.spark
        return found.cluster(tables) if tables and isinstance(found, SparkCatalog) else None

    def views(self, name: Name, pos: Position | None, *, create: bool = False) -> SparkCatalog:
        """Spark's catalog, for statements about the materialized view ``name``. Raises
        NotSupportedError if the name cannot be Spark's."""
        from cql.catalog.spark.catalog import SparkCatalog

        dotted = ".".join(name)
        short = self._is_short(name) and (create or not self.spark_started)
        found = None if short or self._start is None else self.spark
        if not isinstance(found, SparkCatalog):
            raise NotSupportedError(
                f"MATERIALIZED VIEW {dotted} outside of Spark's catalog is not supported",
                position=pos,
                hint="cql.connect(spark) gives the session a catalog; CREATE VIEW names the query"
                if self._start is None
                else f"name it with a database: default.{dotted}; CREATE VIEW names the query",
            )
        return found

    def _in_memory(self, name: Name) -> bool:
        return self._start is None or self._is_short(name)

    def check_format(self, name: Name, format: str | None) -> None:
        """Raises CatalogError unless USING ``format`` is valid for a new table without a path."""
        if format is not None and (self._in_memory(name) or format.lower() != "parquet"):
            raise CatalogError(
                f"table {'.'.join(name)} cannot be made with USING {format} and no path",
                hint="OPTIONS (path 'folder') behind it makes a table of files; without USING, a"
                " table of this session is in memory, and one of Spark is parquet",
            )

    def check_layout(self, name: Name, layout: TableLayout) -> None:
        """Raises NotSupportedError unless a new table ``name`` without a path can have that
        ``layout``."""
        if self._in_memory(name) and (layout.partitions or layout.log):
            clause = "the option upsert 'log'" if layout.log else "PARTITIONED BY"
            raise NotSupportedError(
                f"{clause} for table {'.'.join(name)}, which is in memory, is not supported",
                position=layout.pos,
                hint="leave it out, or name a table of Spark: default.t"
                + ("; or add path 'folder' for a table of files" if layout.log else ""),
            )

    def close(self) -> None:
        """Ends the local Spark with the last session that uses it."""
        if self not in _sharing:
            return
        _sharing.discard(self)
        if self.spark_started and not any(other.spark_started for other in _sharing):
            from cql.catalog.spark import session

            session.stop()

    def check_files(self, name: Name, files: TableFiles, pos: Position | None) -> None:
        """Raises CatalogError unless ``name`` can be a table of files.

        Tables of files belong to the session; Spark chooses the folders of its own tables. ``pos``
        is the place of the format."""
        what = f"table {'.'.join(name)}"
        if not self._in_memory(name) and (len(name) > 1 or self._is_sparks(name)):
            raise CatalogError(
                f"{what} is Spark's, and a table with a path is one of this session",
                hint="name it without a database, and as no table of Spark is named",
            )
        try:
            table_format(files.format, what)
        except CatalogError as error:
            error.position = pos
            raise

    def _is_sparks(self, name: Name) -> bool:
        return self.local.find(name) is None and self.find(name) is not None

    def new_files(
        self, name: Name, rows: Schema, files: TableFiles, key: tuple[str, ...] = ()
    ) -> Sink:
        """The sink of a new table of files; the first commit creates the table."""
        return self.local.new_files(name, rows, files, key)

    def create_files(
        self, name: Name, files: TableFiles, key: tuple[str, ...] = (), *, replace: bool
    ) -> None:
        """Creates a table over the files of a folder."""
        options = dict(files.options)
        path = options.pop("path")
        self.local.create_table(
            name,
            schema=files.schema,
            path=path,
            format=files.format,
            options=options,
            key=key,
            replace=replace,
        )

    def create_table(
        self,
        name: Name,
        schema: Schema,
        key: tuple[str, ...] = (),
        layout: TableLayout = PLAIN,
        *,
        format: str | None,
    ) -> None:
        """Creates an empty table, in memory or in Spark. ``format`` is Spark's word after USING."""
        self.check_format(name, format)
        sink = self.new_table(name, schema, schema, key, layout)
        sink.begin()
        sink.commit()

    def new_table(
        self,
        name: Name,
        rows: Schema,
        schema: Schema,
        key: tuple[str, ...] = (),
        layout: TableLayout = PLAIN,
    ) -> Sink:
        """The sink for ``rows`` of a new table with columns ``schema``, in memory or in Spark; the
        first commit creates the table."""
        if not key and not layout.partitions:
            return self.sink(name, rows, create=True)
        if self._in_memory(name):
            return self.local.new_table(name, rows, schema, key)
        from cql.catalog.spark.catalog import SparkCatalog

        spark = self.spark
        assert isinstance(spark, SparkCatalog)
        return spark.new_table(name, rows, schema, key, layout)


def _starter(spark: Any) -> Callable[[], Catalog] | None:
    if spark is False:
        return None

    def start() -> Catalog:
        from cql.catalog.spark.catalog import SparkCatalog

        catalog: Catalog = SparkCatalog(spark)
        return catalog

    return start
