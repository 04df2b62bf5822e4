"""What a session sees: its own catalog first, then the Spark catalog if it was asked for.

The Spark catalog comes as a function, called at the first name that is not found here: until then
no JVM runs.
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
    """``spark`` is None when Spark was not asked for: then nothing ever looks there.

    A new stream is local, unless it is declared over a table that only Spark has: then Spark keeps
    its definition, for every session that shares its catalog. A table that an INSERT creates is
    Spark's when Spark was asked for, else it is in memory."""

    def __init__(
        self, spark: Callable[[], Catalog] | None = None, *, clock: Clock | None = None
    ) -> None:
        self.local = LocalCatalog(clock=clock, lookup=self.find)
        self._start = spark
        self._spark: Catalog | None = None
        self._lock = threading.Lock()

    @property
    def spark(self) -> Catalog | None:
        """The Spark catalog, started now if it is not; None if Spark was not asked for."""
        with self._lock:
            if self._spark is None and self._start is not None:
                self._spark = self._start()
            return self._spark

    @property
    def spark_started(self) -> bool:
        return self._spark is not None

    @property
    def spark_runs(self) -> bool:
        """Whether asking Spark starts no JVM."""
        return self.spark_started

    def find(self, name: Name) -> Relation | None:
        found = self.local.find(name)
        if found is None and self._start is not None:
            spark = self.spark
            return None if spark is None else spark.find(name)
        return found

    def names(self) -> Sequence[Name]:
        """Those of Spark only where it runs already."""
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
        if self.local.find(name) is not None:  # of another kind: not Spark's business
            return False
        spark = self.spark
        return spark is not None and spark.drop(name, kind)

    def sink(self, name: Name, schema: Schema, *, create: bool) -> Sink:
        if self._start is None or self.local.find(name) is not None:
            return self.local.sink(name, schema, create=create)
        spark = self.spark
        assert spark is not None
        return spark.sink(name, schema, create=create)
