"""The catalogs of a session: its own catalog first, then the Spark catalog if it was requested.

The Spark catalog comes as a function, which is called at the first name that the session's own
catalog does not have: no JVM runs before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from cql.base.model import Schema
from cql.catalog.local import LocalCatalog, Name
from cql.catalog.memory.clock import Clock
from cql.executor.protocols import Sink
from cql.planner.nodes.catalog import Catalog, Relation, StreamDefinition


class Catalogs:
    """``spark`` is None if Spark was not requested: then no name is looked up there.

    A new stream is local, unless it is declared over a table that only Spark has: then Spark keeps
    its definition, for every session that shares its catalog. A table that an INSERT creates is
    Spark's if Spark was requested, else it is in memory."""

    def __init__(
        self, spark: Callable[[], Catalog] | None = None, *, clock: Clock | None = None
    ) -> None:
        self.local = LocalCatalog(clock=clock, lookup=self.find)
        self._start = spark
        self._spark: Catalog | None = None
        self._lock = threading.Lock()

    @property
    def spark(self) -> Catalog | None:
        """The Spark catalog, started on first use; None if Spark was not requested."""
        with self._lock:
            if self._spark is None and self._start is not None:
                self._spark = self._start()
            return self._spark

    @property
    def spark_started(self) -> bool:
        return self._spark is not None

    @property
    def spark_runs(self) -> bool:
        """Whether a request to Spark starts no JVM."""
        return self.spark_started

    def find(self, name: Name) -> Relation | None:
        found = self.local.find(name)
        if found is None and self._start is not None:
            spark = self.spark
            return None if spark is None else spark.find(name)
        return found

    def names(self) -> Sequence[Name]:
        """The local names, and those of Spark if it runs already."""
        started = self.spark if self.spark_runs else self._spark
        return [*self.local.names(), *(() if started is None else started.names())]

    def create_stream(self, name: Name, definition: StreamDefinition, *, replace: bool) -> None:
        table = definition.table
        if table is not None and self._start is not None and self.local.find(table) is None:
            spark = self.spark
            assert spark is not None
            spark.create_stream(name, definition, replace=replace)
        else:
            self.local.create_stream(name, definition, replace=replace)

    def drop(self, name: Name, kind: str) -> bool:
        if self.local.drop(name, kind):
            return True
        if self.local.find(name) is not None:  # of another kind: it hides Spark's name
            return False
        spark = self.spark
        return spark is not None and spark.drop(name, kind)

    def sink(self, name: Name, schema: Schema, *, create: bool) -> Sink:
        if self._start is None or self.local.find(name) is not None:
            return self.local.sink(name, schema, create=create)
        spark = self.spark
        assert spark is not None
        return spark.sink(name, schema, create=create)
