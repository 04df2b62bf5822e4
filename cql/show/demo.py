"""The main job of the Spark tutorial: flights and weather, from Spark tables into Spark tables.

Loads both tables into Spark and declares them as streams, ordered by the flights' departure. Runs a
sliding window and a filter into Spark tables, shows plan, results and ledgers, and reads a result
back with plain Spark SQL.
"""

from __future__ import annotations

import sys
import time
from typing import Any

DECLARE = """\
CREATE OR REPLACE STREAM departures FROM TABLE default.flights
    ORDERED BY sched WITHIN 4 HOURS;
CREATE OR REPLACE STREAM observations FROM TABLE default.weather
    ORDERED BY time"""

TABLES = """\
CREATE TABLE default.delays (origin STRING, flights BIGINT, left_gate BIGINT,
    mean_delay DOUBLE, worst BIGINT, window_end TIMESTAMP);
CREATE TABLE default.storms (time TIMESTAMP, origin STRING, wind_speed DOUBLE,
    visibility DOUBLE)"""

DELAYS = """\
INSERT INTO default.delays
SELECT origin, count(*) AS flights, count(dep) AS left_gate,
       round(avg(dep_delay), 1) AS mean_delay, max(dep_delay) AS worst, window_end
FROM departures [RANGE 1 HOUR SLIDE 10 MINUTES WA sched]
GROUP BY origin"""

STORMS = """\
INSERT INTO default.storms
SELECT time, origin, wind_speed, visib AS visibility
FROM observations
WHERE wind_speed > 25 AND visib < 10"""

WORST = """\
SELECT date_format(window_end, 'yyyy-MM-dd HH:mm') AS until, origin, flights, mean_delay
FROM default.delays WHERE flights >= 15
ORDER BY mean_delay DESC LIMIT 3"""


def main() -> None:
    """Runs the job and prints each step; each call recreates the tables."""
    import cql
    from cql.catalog import demo
    from cql.catalog.spark import session as spark_session
    from cql.executor.jit.warm_up import is_warm, warm
    from cql.show import render

    console = render.console_for(sys.stdout)
    if not is_warm():
        console.print("compiling the kernel library, once on this machine …", style="dim")
        with console.status("") as status:
            warm(status.update)
    console.print("starting Spark …", style="dim")
    spark = spark_session.start()
    with cql.connect(spark) as session:
        load(session, {"flights": demo.flights(), "weather": demo.weather()})
        console.print(DECLARE, style="dim", highlight=False)
        session.sql(DECLARE)
        session.sql(TABLES)
        for statement in (DELAYS, STORMS):
            console.print()
            console.print(statement, style="dim", highlight=False)
            session.sql("EXPLAIN " + statement).show()
            started = time.perf_counter()
            query: Any = session.sql(statement)
            took = time.perf_counter() - started
            seen, wrote = query.progress().rows_in, query.progress().rows_out
            console.print(f"{seen:,} rows in, {wrote:,} rows out, {took:.2f} s")
            console.print("late:")
            render.print_rows(query.late(), console)
            console.print(f"bad rows: {query.bad_rows().num_rows}")
        console.print()
        console.print(WORST, style="dim", highlight=False)
        rows = spark.sql(WORST).collect()
        for row in rows:
            console.print(f"{row.until}  {row.origin}  {row.flights} flights  {row.mean_delay} min")
        total = spark.sql("SELECT count(*) AS n FROM default.storms").collect()[0].n
        console.print(f"{total:,} stormy hours in default.storms")


def load(session: Any, tables: dict[str, Any]) -> None:
    """Writes each Arrow table into the Spark table ``default.<name>``, replacing its rows."""
    for name in (*tables, "delays", "storms"):
        session.sql(f"DROP TABLE IF EXISTS default.{name}")
    for name, rows in tables.items():
        session.create_stream(f"{name}_rows", rows, replace=True)
        session.sql(f"CREATE TABLE default.{name} AS SELECT * FROM {name}_rows")


if __name__ == "__main__":
    main()
