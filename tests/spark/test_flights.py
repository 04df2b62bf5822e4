"""The queries over real flights (``queries/flights``) against DuckDB: all flights that left New
York in 2013. Their delays put the scheduled times out of order, but no row is late."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import cql
from cql.catalog import demo
from tests.support.paths import QUERIES

FOLDER = QUERIES / "flights"
#: In order of departure, scheduled times go back by at most 1301 + 43 minutes.
SLACK = timedelta(hours=23)
HOUR = "time_bucket(INTERVAL 1 HOUR, sched)"


@pytest.fixture(scope="module")
def departures() -> pa.Table:
    """``row`` is the row's number in order of arrival."""
    table = demo.flights().select(["sched", "tailnum", "origin", "dest"])
    return table.append_column("row", pa.array(range(len(table)), pa.int64()))


def ours(
    name: str, table: pa.Table, stream: str = "departures", time: str = "sched", **settings: Any
) -> list[tuple[Any, ...]]:
    """The rows of a query file's answer, sorted; no row may be late."""
    with cql.connect(spark=False, **settings) as session:
        session.create_stream(stream, table, ordered_by=time, slack=SLACK)
        query = session.sql((FOLDER / f"{name}.cql").read_text(encoding="utf-8"))
        answer = query.to_arrow()
        assert all(entry["count"] == 0 for entry in query.late().to_pylist())
    return plain(answer)


def theirs(sql: str, departures: pa.Table) -> list[tuple[Any, ...]]:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("departures", departures)
    return plain(connection.sql(sql).to_arrow_table())


def plain(table: pa.Table) -> list[tuple[Any, ...]]:
    """The rows of ``table``, sorted; times are in microseconds, columns go by position."""
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


@pytest.mark.slow
@pytest.mark.parametrize("morsel_rows", [1_000, 65_536])
def test_sessions_of_aircraft(departures: pa.Table, morsel_rows: int) -> None:
    """Flights of one aircraft exactly six hours apart, which the data has, are one session."""
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
    """Among routes of equal counts, the route whose flight left first in that hour wins, because
    results keep the order of their groups."""
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
    """Days in New York: 10 March 2013 has 23 hours, 3 November 25."""
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


# Joins --------------------------------------------------------------------------------------------

FLIGHTS = ["sched", "tailnum", "carrier", "origin", "dest", "dep_delay", "arr_delay"]
#: The data has several flights of one aircraft at one time; the last to arrive counts.
BEFORE = """
    SELECT f.tailnum, f.sched, f.dest, f.dep_delay, p.sched, p.dest, p.arr_delay
    FROM departures AS f ASOF LEFT JOIN (
        SELECT * FROM departures
        QUALIFY row_number() OVER (PARTITION BY tailnum, sched ORDER BY row DESC) = 1
    ) AS p ON f.tailnum = p.tailnum AND f.sched > p.sched"""
JOINS = {
    "weather_of_flights": """
        SELECT f.sched, f.origin, f.dest, f.dep_delay, w.time, w.temp, w.visib
        FROM departures AS f JOIN observations AS w
        ON f.origin = w.origin AND f.sched >= w.time AND f.sched < w.time + INTERVAL 1 HOUR""",
    "chained_delays": f"""
        SELECT tailnum, sched, dest, dep_delay, CASE WHEN near THEN before END,
               CASE WHEN near THEN back_from END, CASE WHEN near THEN came_late END
        FROM (SELECT *, sched - before <= INTERVAL 1 DAY AS near
              FROM ({BEFORE}) AS b (tailnum, sched, dest, dep_delay, before, back_from,
                                    came_late))""",
    "airlines_by_day": """
        SELECT name, count(*), max(dep_delay), time_bucket(INTERVAL 1 DAY, sched) + INTERVAL 1 DAY
        FROM departures LEFT JOIN airlines USING (carrier)
        GROUP BY name, time_bucket(INTERVAL 1 DAY, sched)""",
}


@pytest.fixture(scope="module")
def tables() -> dict[str, pa.Table]:
    flights = demo.flights().select(FLIGHTS)
    return {
        "departures": flights.append_column("row", pa.array(range(len(flights)), pa.int64())),
        "observations": demo.weather().select(["time", "origin", "temp", "visib"]),
        "airlines": demo.airlines(),
    }


@pytest.fixture(scope="module")
def joined(tables: dict[str, pa.Table]) -> dict[str, list[tuple[Any, ...]]]:
    """DuckDB's answer to each query."""
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for name, table in tables.items():
        connection.register(name, table)
    return {name: plain(connection.sql(sql).to_arrow_table()) for name, sql in JOINS.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", JOINS)
def test_joins_of_flights(
    name: str, tables: dict[str, pa.Table], joined: dict[str, list[tuple[Any, ...]]]
) -> None:
    with cql.connect(spark=False) as session:
        session.create_stream("departures", tables["departures"], "sched", slack=SLACK)
        session.create_stream("observations", tables["observations"], "time")
        session.create_stream("airlines", tables["airlines"])
        query = session.sql((FOLDER / f"{name}.cql").read_text(encoding="utf-8"))
        answer = plain(query.to_arrow())
        assert all(entry["count"] == 0 for entry in query.late().to_pylist())
    assert len(answer) > 4_000
    assert answer == joined[name]


@pytest.mark.slow
@pytest.mark.spark
def test_joins_of_spark_tables(
    spark: Any, tables: dict[str, pa.Table], joined: dict[str, list[tuple[Any, ...]]]
) -> None:
    """The queries read Spark tables and write Spark tables."""
    with cql.connect(spark=spark) as session:
        for name in ("departures", "observations"):
            session.create_stream(name, tables[name])
            session.sql(f"CREATE TABLE default.nyc_{name} AS SELECT * FROM {name}")
    with cql.connect(spark=spark) as session:
        session.sql(
            "CREATE STREAM departures FROM TABLE default.nyc_departures"
            " ORDERED BY sched WITHIN 23 HOURS;"
            "CREATE STREAM observations FROM TABLE default.nyc_observations ORDERED BY time"
        )
        for name in ("weather_of_flights", "chained_delays"):
            text = (FOLDER / f"{name}.cql").read_text(encoding="utf-8")
            session.sql(f"CREATE TABLE default.{name} AS {text[text.index('SELECT') :]}")
            found = session.sql(f"SELECT * FROM default.{name}").to_arrow()
            assert plain(found) == joined[name]
            session.sql(f"DROP TABLE default.{name}")
        for stream in ("departures", "observations"):
            session.sql(f"DROP STREAM {stream}; DROP TABLE default.nyc_{stream}")
