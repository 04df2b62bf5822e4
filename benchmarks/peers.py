"""Other engines, if installed (the extra ``bench``). Each reads data from memory in its preferred
layout, and returns an Arrow table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any, TypeAlias

Runs: TypeAlias = "Mapping[str, Callable[[], Any]]"

DUCKDB_THREADS = 2


def duckdb_runs(query: str, **tables: Any) -> Runs:
    """Runs of ``query``, with ``{name}`` for each table: over DuckDB's own tables, and over
    Arrow."""
    if find_spec("duckdb") is None:
        return {}
    import duckdb

    connection = duckdb.connect(config={"threads": DUCKDB_THREADS})
    for name, table in tables.items():
        connection.register(f"arrow_{name}", table)
        connection.execute(f"CREATE TABLE own_{name} AS SELECT * FROM arrow_{name}")

    def over(prefix: str) -> Callable[[], Any]:
        text = query.format(**{name: f"{prefix}_{name}" for name in tables})
        # A relation, not a cursor: a cursor's Arrow table is a copy of its rows.
        return lambda: connection.sql(text).to_arrow_table()

    return {
        f"duckdb, own table, {DUCKDB_THREADS} threads": over("own"),
        f"duckdb, arrow table, {DUCKDB_THREADS} threads": over("arrow"),
    }


def polars_runs(make: Callable[..., Any], *tables: Any) -> Runs:
    """Runs of ``make(polars, *frames)``, which returns a frame; polars uses its whole thread
    pool."""
    if find_spec("polars") is None:
        return {}
    import polars

    frames = [polars.from_arrow(table) for table in tables]
    threads = polars.thread_pool_size()
    return {f"polars, {threads} threads": lambda: make(polars, *frames).to_arrow()}
