"""The queries over real flights (``queries/flights``) against DuckDB: all that left New York in
2013, whose scheduled times are out of order by the real delays, none of them late."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import cql
from cql.catalog import demo

QUERIES = Path(__file__).resolve().parent.parent / "queries" / "flights"
#: In the order in which flights left, scheduled times fall by at most 1301 + 43 minutes.
SLACK = timedelta(hours=23)
HOUR = "time_bucket(INTERVAL 1 HOUR, sched)"


@pytest.fixture(scope="module")
def departures() -> pa.Table:
    """``row`` is the place in the order of arrival."""
    table = demo.flights().select(["sched", "tailnum", "origin", "dest"])
    return table.append_column("row", pa.array(range(len(table)), pa.int64()))


def ours(
    name: str, table: pa.Table, stream: str = "departures", time: str = "sched", **settings: Any
) -> list[tuple[Any, ...]]:
    """The answer of a query file, its rows sorted; nothing may be late."""
    with cql.connect(spark=False, **settings) as session:
        session.create_stream(stream, table, ordered_by=time, slack=SLACK)
        query = session.sql((QUERIES / f"{name}.cql").read_text(encoding="utf-8"))
        answer = query.to_arrow()
        assert all(entry["count"] == 0 for entry in query.late().to_pylist())
    return plain(answer)


def theirs(sql: str, departures: pa.Table) -> list[tuple[Any, ...]]:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("departures", departures)
    return plain(connection.sql(sql).to_arrow_table())


def plain(table: pa.Table) -> list[tuple[Any, ...]]:
    """Rows in an order of their own; times in microseconds. Columns go by their place."""
    columns = [(c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c) for c in table.columns]
    rows = zip(*(c.to_pylist() for c in columns), strict=True)
    return sorted(rows, key=lambda row: tuple((v is None, v) for v in row))


SESSIONS = """
    WITH gaps AS (SELECT tailnum, sched,
                         sched - lag(sched) OVER (PARTITION BY tailnum ORDER BY sched) AS gap
                  FROM departures),
         numbered AS (SELECT *, count(*) FILTER (gap > INTERVAL 6 HOURS)
                                OVER (PARTITION BY tailnum ORDER BY sched
                                      RANGE UNBOUNDED PRECEDING) AS number
                      FROM gaps)
    SELECT tailnum, count(*), min(sched), max(sched), min(sched), max(sched) + INTERVAL 6 HOURS
    FROM numbered GROUP BY tailnum, number"""


@pytest.mark.parametrize("morsel_rows", [1_000, 65_536])
def test_sessions_of_aircraft(departures: pa.Table, morsel_rows: int) -> None:
    """Flights of one aircraft exactly six hours apart, which there are, are one session."""
    exact = SESSIONS.partition("numbered")[0].strip().removesuffix(",")
    apart = theirs(f"{exact} SELECT count(*) FROM gaps WHERE gap = INTERVAL 6 HOURS", departures)
    assert apart[0][0] > 0
    expected = theirs(SESSIONS, departures)
    assert len(expected) > 250_000
    assert sum(row[1] for row in expected) == len(departures)
    assert ours("aircraft_sessions", departures, morsel_rows=morsel_rows) == expected


def test_busiest_route_of_each_hour(departures: pa.Table) -> None:
    expected = theirs(
        f"""SELECT origin, dest, count(*) AS n, {HOUR} + INTERVAL 1 HOUR
            FROM departures GROUP BY origin, dest, {HOUR}
            QUALIFY row_number() OVER (PARTITION BY {HOUR} ORDER BY n DESC, origin, dest) = 1""",
        departures,
    )
    assert len(expected) == 6_936
    assert ours("busiest_route", departures) == expected


def test_busiest_route_as_windows_of_windows(departures: pa.Table) -> None:
    """Of several routes the one that left first in that hour, as results follow their groups."""
    expected = theirs(
        f"""SELECT concat(origin, '-', dest), count(*) AS n,
                   count(*) OVER (PARTITION BY {HOUR}), {HOUR} + INTERVAL 1 HOUR
            FROM departures GROUP BY origin, dest, {HOUR}
            QUALIFY row_number() OVER (PARTITION BY {HOUR} ORDER BY n DESC, min(row)) = 1""",
        departures,
    )
    assert ours("busiest_route_of_windows", departures) == expected


@pytest.mark.parametrize(
    ("name", "stream", "time", "value"),
    [
        ("local_days", "departures", "sched", "max(dep_delay)"),
        ("local_days_of_weather", "observations", "time", "min(temp)"),
    ],
)
def test_local_days_across_changes_of_the_clock(
    name: str, stream: str, time: str, value: str
) -> None:
    """Days in New York: that of 10 March 2013 has 23 hours, that of 3 November 25."""
    table = {"departures": demo.flights, "observations": demo.weather}[stream]()
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'America/New_York'")
    connection.register(stream, table)
    day = f"date_trunc('day', {time})"
    expected = plain(
        connection.sql(
            f"""SELECT origin, count(*), {value}, {day}, {day} + INTERVAL 1 DAY
                FROM {stream} GROUP BY origin, {day}"""
        ).to_arrow_table()
    )
    lengths = {(end - start) // 3_600_000_000 for *_, start, end in expected}
    assert lengths == {23, 24, 25}
    assert ours(name, table, stream=stream, time=time) == expected
