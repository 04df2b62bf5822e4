"""Queries in two stages with an update queue between them: trades, and what they give in Python."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from cql.session.session import Session

Row = tuple[Any, ...]

TRADES = "CREATE OR REPLACE STREAM trades (ts BIGINT, symbol STRING, price INT) ORDERED BY ts"
#: The first stage: windows of 4 every 2.
MEANS = (
    "SELECT symbol, sum(price) AS total, count(*) AS n, window_end"
    " FROM trades [RANGE 4 SLIDE 2] GROUP BY symbol"
)
SECOND = "SELECT symbol, total, upper(symbol) AS loud, window_end FROM means"
SYMBOLS = ("IBM", "GM", "SUN", None)


def streams_at_work() -> list[threading.Thread]:
    """The threads in which queries of streams run."""
    return [t for t in threading.enumerate() if t.name.startswith("cql ") and t.name[4:5] != "q"]


def settled() -> None:
    """Waits until the queries of all streams have processed all rows of streams that have ended."""
    for thread in streams_at_work():
        thread.join()


def declared(session: Session, clauses: str = "UPDATE KEY (symbol)", query: str = MEANS) -> None:
    session.sql(f"CREATE OR REPLACE STREAM means {clauses} AS {query}")


def rows_of(batches: Iterable[pa.RecordBatch]) -> list[Row]:
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def means(rows: Iterable[Row], size: int = 4, slide: int = 2) -> list[Row]:
    """The rows of the first stage, by end of window."""
    groups: defaultdict[tuple[int, str | None], list[int]] = defaultdict(list)
    for ts, symbol, price in rows:
        for start in range(ts // slide * slide, ts - size, -slide):
            groups[start + size, symbol].append(price)
    ordered = sorted(groups.items(), key=lambda item: (item[0][0], str(item[0][1])))
    return [(symbol, sum(v), len(v), end) for (end, symbol), v in ordered]


def loud(found: Iterable[Row]) -> list[Row]:
    """The rows of the second stage."""
    return [(s, total, s if s is None else s.upper(), end) for s, total, _, end in found]


def newest(found: Iterable[Row]) -> dict[Any, Row]:
    """The row of each symbol with the latest end of window, the last column."""
    return {row[0]: row for row in sorted(found, key=lambda row: row[-1])}


def trades(n: int, seed: int = 0, first: int = 100) -> list[Row]:
    choice = random.Random(seed)
    times = sorted(first + choice.randrange(3 * n) for _ in range(n))
    return [(t, choice.choice(SYMBOLS), choice.randrange(100)) for t in times]


def behind(session: Session, query: str, rows: Sequence[Row]) -> tuple[list[Row], Any]:
    """What ``query`` gives if its first stage has processed all ``rows`` before it takes one more
    row than that of a first trade, and the query."""
    asked: Any = session.sql(query)
    session.push("trades", [(0, "first", 1), (50, "first", 1), (60, "first", 1)])
    read = iter(asked)
    found = [next(read)]
    session.push("trades", rows)
    session.end("trades")
    settled()
    found += read
    return rows_of(found), asked


def told_of(asked: Any, operator: str) -> Mapping[str, Any]:
    (entry,) = (m for m in asked.metrics() if m["operator"] == operator)
    return entry


def all_accounted_for(entry: Mapping[str, Any]) -> bool:
    gone = entry["rows_out"] + entry["superseded"] + entry["shed"] + entry["held"]
    return bool(entry["rows_in"] == gone)
