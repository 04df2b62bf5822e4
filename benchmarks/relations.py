"""Queries over relations, and joins and aggregates with state by key: a million rows of a thousand
keys, in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import peers
from benchmarks.harness import Benchmark, Contender, Limit, Ratio
from benchmarks.ours import Ours, integers
from benchmarks.workloads import T0, Answer, checksum

ROWS, KEYS = 1_000_000, 1_000
#: A row comes every hundred microseconds, so that a second has ten rows of each key.
APART = 100
TWO = "ours, 2 workers"
_DUCKDB = f"duckdb, own table, {peers.DUCKDB_THREADS} threads"


@dataclass(frozen=True, slots=True)
class Work:
    """``duckdb``: the same over tables at rest, if DuckDB has it. ``rate``: the least rate of one
    thread, in rows/s; ``goal``: the least ratio to DuckDB. ``tables`` are read. ``answer`` are the
    columns that are compared."""

    query: str
    answer: tuple[str, ...]
    duckdb: str | None = None
    rate: float | None = None
    goal: float | None = None
    tables: tuple[str, ...] = ("s",)


_BEHIND = "ON a.k = b.k AND a.ts >= b.ts"
WORK: Mapping[str, Work] = {
    "asof": Work(
        f"SELECT a.k, a.v, b.v AS w FROM s AS a ASOF JOIN t AS b {_BEHIND}",
        ("k", "v", "w"),
        f"SELECT a.k, a.v, b.v AS w FROM {{s}} AS a ASOF JOIN {{t}} AS b {_BEHIND}",
        goal=1.5,
        tables=("s", "t"),
    ),
    "row-number": Work(
        "SELECT k, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts) AS n FROM s)"
        " WHERE n = 1",
        ("k", "v"),
        "SELECT k, v FROM {s} QUALIFY row_number() OVER (PARTITION BY k ORDER BY ts) = 1",
        rate=20e6,
    ),
    "numbers": Work(
        "SELECT k, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC) AS n"
        " FROM s [RANGE 1 SECOND]) WHERE n <= 3",
        ("k", "v"),
        rate=0.7e6,
    ),
    "top": Work(
        "SELECT ISTREAM(k, v) FROM s [RANGE 1 SECOND] ORDER BY v DESC LIMIT 10",
        ("k", "v"),
        rate=1e6,
    ),
    "range": Work(
        "SELECT ISTREAM(k, count(*) AS n) FROM s [RANGE 1 SECOND] GROUP BY k",
        ("k", "n"),
        rate=12e6,
    ),
    "rows": Work(
        "SELECT ISTREAM(k, sum(v) AS n) FROM s [PARTITION BY k ROWS 10] GROUP BY k",
        ("k", "n"),
        rate=10e6,
    ),
    "join": Work(
        "SELECT ISTREAM(count(*) AS n) FROM s [RANGE 100 MILLISECONDS] AS a"
        " JOIN t [RANGE 100 MILLISECONDS] AS b ON a.k = b.k",
        ("n",),
        rate=4e6,
        tables=("s", "t"),
    ),
    "changes": Work(
        "SELECT k, count(*) AS n FROM s [RANGE 1 SECOND SLIDE 1 SECOND] GROUP BY k EMIT CHANGES",
        ("k", "n"),
        rate=20e6,
    ),
    "sessions": Work(
        "SELECT k, count(*) AS n FROM s [SESSION 200 MILLISECONDS] GROUP BY k",
        ("k", "n"),
        rate=20e6,
    ),
    "median": Work(
        "SELECT k, CAST(1000 * median(v) AS BIGINT) AS m FROM s [RANGE 1 SECOND SLIDE 1 SECOND]"
        " GROUP BY k",
        ("k", "m"),
        "SELECT k, CAST(1000 * median(v) AS BIGINT) AS m FROM {s}"
        " GROUP BY k, time_bucket(INTERVAL 1 SECOND, ts)",
        goal=1.0,
    ),
    "lookup": Work(
        "SELECT s.k, s.v, c.w FROM s JOIN c ON s.k = c.k",
        ("k", "v", "w"),
        "SELECT s.k, s.v, c.w FROM {s} AS s JOIN {c} AS c ON s.k = c.k",
        goal=1.5,
        tables=("s", "c"),
    ),
}


@cache
def _stream(name: str, rows: int) -> pa.Table:
    rng = np.random.default_rng(ord(name))
    return pa.table(
        {
            "ts": pa.array(T0 + np.arange(rows) * APART, pa.timestamp("us", tz="UTC")),
            "k": rng.integers(0, KEYS, rows),
            "v": rng.integers(0, 1 << 20, rows),
        }
    )


def _tables(names: tuple[str, ...], rows: int) -> dict[str, pa.Table]:
    keys = np.arange(KEYS)
    return {
        n: pa.table({"k": keys, "w": 7 * keys}) if n == "c" else _stream(n, rows) for n in names
    }


class _Joined(Ours):
    """Table ``c`` has no time."""

    def __init__(self, query: str, workers: int, tables: Mapping[str, pa.Table]) -> None:
        super().__init__(query, workers, **{n: t for n, t in tables.items() if n != "c"})
        if "c" in tables:
            self.session.create_stream("c", tables["c"])


def relations(name: str, rows: int | None = None, folder: Path | None = None) -> Benchmark:
    """``folder`` is unused: the rows are generated."""
    work, rows = WORK[name], rows or ROWS
    tables = _tables(work.tables, rows)
    read = sum(len(t) for n, t in tables.items() if n != "c")
    one, two = (_Joined(work.query, workers, tables) for workers in (1, 2))
    runs = {} if work.duckdb is None else peers.duckdb_runs(work.duckdb, **tables)
    answer = partial(_answer, work.answer)
    return Benchmark(
        f"relations-{name}",
        f"{work.query}: {rows:,} rows a stream, {KEYS:,} keys",
        read,
        answer(one.run()),
        [
            Contender("ours", one.run, answer, pinned=True),
            Contender(TWO, two.run, answer),
            *(Contender(n, run, answer) for n, run in runs.items()),
        ],
        [
            *(Ratio("ours", n, work.goal if n == _DUCKDB else None) for n in runs),
            Ratio(TWO, "ours"),
        ],
        [] if work.rate is None else [Limit("ours", read / work.rate)],
        threads=2,
    )


def _answer(columns: tuple[str, ...], table: Any) -> Answer:
    return checksum(*(integers(table.column(c)) for c in columns))
