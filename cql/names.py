"""Which names of a session are Spark's.

A session with the user's own SparkSession looks there for every name that it does not know itself.
Without one, only a name with a database (``default.flights``) starts Spark, so that a mistyped name
is an error at once and not after a JVM has come up; and a table made without one is in memory.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cql.catalog.catalogs import Catalogs
from cql.errors import CatalogError
from cql.model import Schema
from cql.planner.catalog import Relation, StreamDefinition

if TYPE_CHECKING:
    from cql.executor.protocols import Sink
    from cql.planner.catalog import Catalog

Name = tuple[str, ...]


#: Open sessions on the one local Spark that a process has.
_sharing: weakref.WeakSet[SessionCatalog] = weakref.WeakSet()


class SessionCatalog(Catalogs):
    """``spark`` is a SparkSession, None (a local one, started when needed) or False (none)."""

    def __init__(self, spark: Any = None) -> None:
        super().__init__(_starter(spark))
        if spark is None:
            _sharing.add(self)
        self._with_database = spark is None or spark is False
        #: Called before a local Spark is started: that takes seconds, and somebody waits.
        self.on_start: Callable[[], None] = lambda: None

    @property
    def spark(self) -> Catalog | None:
        if self in _sharing and not self.spark_started:
            self.on_start()
        return super().spark

    @property
    def spark_runs(self) -> bool:
        return not self._with_database or self.spark_started

    def _is_short(self, name: Name) -> bool:
        """A name for which no Spark is started."""
        return self._with_database and len(name) == 1

    def find(self, name: Name) -> Relation | None:
        if self._is_short(name) and not self.spark_started:
            return self.local.find(name)
        return super().find(name)

    def create_stream(self, name: Name, definition: StreamDefinition, *, replace: bool) -> None:
        table = definition.table
        if table is not None and self._is_short(table) and not self.spark_started:
            self.local.create_stream(name, definition, replace=replace)
        else:
            super().create_stream(name, definition, replace=replace)

    def drop(self, name: Name, kind: str) -> bool:
        if self._is_short(name) and not self.spark_started:
            return self.local.drop(name, kind)
        return super().drop(name, kind)

    def sink(self, name: Name, schema: Schema, *, create: bool) -> Sink:
        if self._is_short(name) and (create or self.find(name) is None):
            return self.local.sink(name, schema, create=create)
        return super().sink(name, schema, create=create)

    def _in_memory(self, name: Name) -> bool:
        return self._start is None or self._is_short(name)

    def check_format(self, name: Name, format: str | None) -> None:
        """CatalogError unless a new table can be made with USING ``format``."""
        if format is not None and (self._in_memory(name) or format.lower() != "parquet"):
            raise CatalogError(
                f"table {'.'.join(name)} cannot be made with USING {format}",
                hint="leave it out: Spark's tables are parquet, the session's own in memory",
            )

    def close(self) -> None:
        """Ends the local Spark with the last session that uses it."""
        if self not in _sharing:
            return
        _sharing.discard(self)
        if self.spark_started and not any(other.spark_started for other in _sharing):
            from cql.catalog import spark_session

            spark_session.stop()

    def create_table(self, name: Name, schema: Schema, *, format: str | None) -> None:
        """An empty table: in memory, or Spark's. ``format`` is Spark's word behind USING."""
        self.check_format(name, format)
        sink = self.sink(name, schema, create=True)
        sink.begin()
        sink.commit()


def _starter(spark: Any) -> Callable[[], Catalog] | None:
    if spark is False:
        return None

    def start() -> Catalog:
        from cql.catalog.spark import SparkCatalog

        catalog: Catalog = SparkCatalog(spark)
        return catalog

    return start
