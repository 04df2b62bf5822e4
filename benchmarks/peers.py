"""Other engines, where they are installed (the extra ``bench``). Each reads data that lies in
memory in the layout it likes best, and gives an Arrow table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any, TypeAlias

Runs: TypeAlias = "Mapping[str, Callable[[], Any]]"

DUCKDB_THREADS = 2


def duckdb_runs(query: str, table: Any) -> Runs:
    """``query`` with ``{}`` for the table: over a table of DuckDB's own, and over Arrow."""
    if find_spec("duckdb") is None:
        return {}
    import duckdb

    connection = duckdb.connect(config={"threads": DUCKDB_THREADS})
    connection.register("arrow_table", table)
    connection.execute("CREATE TABLE own_table AS SELECT * FROM arrow_table")

    def over(name: str) -> Callable[[], Any]:
        text = query.format(name)
        # A relation, not a cursor: a cursor's Arrow table is a copy of its rows.
        return lambda: connection.sql(text).to_arrow_table()

    return {
        f"duckdb, own table, {DUCKDB_THREADS} threads": over("own_table"),
        f"duckdb, arrow table, {DUCKDB_THREADS} threads": over("arrow_table"),
    }


def polars_runs(make: Callable[[Any, Any], Any], table: Any) -> Runs:
    """``make(polars, frame)`` gives a frame; all threads of polars' pool."""
    if find_spec("polars") is None:
        return {}
    import polars

    frame = polars.from_arrow(table)
    threads = polars.thread_pool_size()
    return {f"polars, {threads} threads": lambda: make(polars, frame).to_arrow()}
