"""Our side: a query over Arrow tables in memory, from its text to a whole Arrow result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import cql
from benchmarks.workloads import Column


class Ours:
    """Our engine as a contender. ``streams`` are Arrow tables in order of their column ``ts``. With
    ``workers`` above 1 the query runs under ``runtime``. Each run parses, binds, plans and compiles
    (or finds cached kernels); no result is kept."""

    def __init__(
        self, query: str, workers: int = 1, runtime: str = "ordered", **streams: Any
    ) -> None:
        self.session = cql.connect(spark=False)
        self.session.set("workers", workers)
        if workers > 1:
            self.session.set("runtime", runtime)
        for name, table in streams.items():
            self.session.create_stream(name, table, ordered_by="ts")
        self._query = query
        self._latest: Any = None

    def run(self) -> Any:
        self._latest = self.session.sql(self._query)
        return self._latest.to_arrow()

    def notes(self, _: Any) -> Mapping[str, float]:
        """The state at the end of the run, in MB of 10^6 bytes."""
        state = sum(entry.get("state_bytes", 0) for entry in self._latest.metrics())
        return {"state MB": state / 1e6} if state else {}


def integers(column: Any) -> Column:
    """An Arrow column of integers or timestamps as int64."""
    return np.asarray(column.cast("int64").to_numpy())
