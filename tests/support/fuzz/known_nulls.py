"""Statistics of random tables that do not depend on their rows, so that kernels are shared."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from unittest import mock

from cql.catalog.sources import TableSource
from cql.planner.nodes.catalog import Statistics


@contextlib.contextmanager
def known_nulls(columns: frozenset[str]) -> Iterator[None]:
    """In this context, the statistics of tables report a NULL in each column except
    ``columns``."""
    real = TableSource.statistics

    def statistics(self: TableSource) -> Statistics:
        nulls = {f.name: int(f.name not in columns) for f in self.schema}
        return replace(real(self), nulls=nulls)

    with mock.patch.object(TableSource, "statistics", statistics):
        yield
