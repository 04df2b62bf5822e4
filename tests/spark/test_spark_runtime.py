"""Queries on Spark without a shuffle: the rows, their order and ledgers of a local run."""

from __future__ import annotations

import collections
import itertools
import re
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cql.catalog.spark.session import spark_call
from cql.errors import CatalogError, NotSupportedError, RunError
from cql.spark.run import parts
from tests.support.runtimes import share
from tests.support.task_tables import (
    KINDS,
    SCHEMA,
    SECOND,
    Tables,
    answer,
    disordered,
    stored,
    very_late,
)

WINDOWS = {
    "tumbling": "SELECT k, count(*) AS n, sum(v) AS s, window_end FROM {s}"
    " [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY k",
    "sliding": "SELECT k, max(v) AS m, w, window_start FROM {s}"
    " [RANGE 5 MINUTES SLIDE 1 MINUTE] WHERE v < 80 GROUP BY k, w",
    "uneven": "SELECT count(DISTINCT k) AS n, avg(v) AS a, window_end FROM {s}"
    " [RANGE 100 SECONDS SLIDE 40 SECONDS OFFSET 7 SECONDS]",
    "hopping over gaps": "SELECT k, min(w) AS m, window_end FROM {s}"
    " [RANGE 10 SECONDS SLIDE 45 SECONDS] GROUP BY k",
    "cumulating": "SELECT k, count(*) AS n, window_end FROM {s}"
    " [RANGE 4 MINUTES CUMULATE 1 MINUTE] GROUP BY k",
    "top of each window": "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start,"
    " window_end ORDER BY n DESC, k) AS r FROM (SELECT k, count(*) AS n, window_start, window_end"
    " FROM {s} [RANGE 2 MINUTES SLIDE 1 MINUTE] GROUP BY k)) WHERE r <= 3",
    "windows of windows": "SELECT max_by(k, n) AS k, max(n) AS n, count(*) AS c, window_end FROM"
    " (SELECT k, count(*) AS n, window_time FROM {s} [RANGE 5 MINUTES SLIDE 1 MINUTE] GROUP BY k)"
    " [RANGE 2 MINUTES SLIDE 2 MINUTES WA window_time]",
    "above": "SELECT upper(w) AS u, n + 1 AS n, window_end FROM (SELECT w, count(*) AS n,"
    " window_end FROM {s} [RANGE 3 MINUTES SLIDE 1 MINUTE] GROUP BY w HAVING count(*) > 2)",
    "spelled as in Flink": "SELECT k, window_start, window_end, count(*) AS n FROM"
    " TABLE(TUMBLE(TABLE {s}, DESCRIPTOR(ts), INTERVAL '2' MINUTES))"
    " GROUP BY k, window_start, window_end",
    "first and last": "SELECT k, first(v) AS f, last(v) AS l, array_agg(v) AS vs, window_end"
    " FROM {s} [RANGE 2 MINUTES SLIDE 1 MINUTE] GROUP BY k",
}
ROWS = {
    "filter": "SELECT ts, k + 1 AS k, w FROM {s} WHERE v % 7 = 3",
    "all": "SELECT * FROM {s}",
}


@pytest.fixture(scope="module")
def tables(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tables]:
    made = Tables(spark, tmp_path_factory.mktemp("tables"))
    made.session.set("tasks_by", "time")
    yield made
    made.session.close()


def in_windows(rows: pa.Table) -> list[str]:
    """The rows, those of one window sorted."""
    ends = [c for c in rows.column_names if c in ("window_end", "window_start")]
    keyed = [(row[ends[0]] if ends else 0, repr(row)) for row in rows.to_pylist()]
    return [
        text
        for _, window in itertools.groupby(keyed, key=lambda pair: pair[0])
        for text in (sorted(t for _, t in window) if ends else [t for _, t in window])
    ]


def check(
    tables: Tables, kind: str, text: str, tasks: tuple[int, ...], *, in_order: bool = True
) -> None:
    text = text.format(s=tables.stream(kind))
    rows, late = answer(tables.session, text, "depth_first")
    assert rows.num_rows > 0
    for count in tasks:
        made, ledger = answer(tables.session, text, "spark", count)
        assert ledger == late
        assert made.equals(rows) if in_order else in_windows(made) == in_windows(rows)


@pytest.mark.parametrize("kind", KINDS)
def test_tables_of_all_kinds(tables: Tables, kind: str, seed: int, full: bool) -> None:
    tasks = share((1, 2, 5, 16), list(KINDS).index(kind), 2, seed, full=full)
    check(tables, kind, WINDOWS["tumbling"], tuple(tasks))


@pytest.mark.sampled
@pytest.mark.parametrize("name", WINDOWS)
def test_windows_by_time(tables: Tables, name: str, full: bool) -> None:
    for kind in KINDS if full else ("very late",):
        check(tables, kind, WINDOWS[name], (1, 2, 5, 16) if full else (5,))


@pytest.mark.parametrize("name", ROWS)
def test_rows(tables: Tables, name: str) -> None:
    check(tables, "few late", ROWS[name], (1, 5))


@pytest.mark.sampled
@pytest.mark.parametrize(
    "operator", ["wid", "panes", "two_stacks", "subtract", "two_level", "buffered", "adaptive"]
)
def test_window_operators(tables: Tables, operator: str, full: bool) -> None:
    hint = "adaptive_windows(on)" if operator == "adaptive" else f"window_operator({operator})"
    text = (
        f"SELECT /*+ {hint} */ k, sum(v) AS s, window_end"
        " FROM {s} [RANGE 5 MINUTES SLIDE 1 MINUTE] GROUP BY k"
    )
    # These take groups as panes left them, or as earlier windows made them change.
    in_order = operator not in ("two_stacks", "subtract", "adaptive")
    for kind in KINDS if full else ("very late",):
        check(tables, kind, text, (2, 5, 16) if full else (7,), in_order=in_order)


BAND = "b.ts BETWEEN a.ts - INTERVAL 20 SECONDS AND a.ts + INTERVAL 5 SECONDS"
JOINS = {
    "inner": f"SELECT a.ts, a.v, b.v AS w FROM {{s}} AS a JOIN {{r}} AS b ON a.k = b.k AND {BAND}",
    "left": f"SELECT a.ts, a.v, b.v AS w FROM {{s}} AS a LEFT JOIN {{r}} AS b ON a.k = b.k"
    f" AND b.v < 20 AND {BAND}",
    "right": f"SELECT a.v, b.ts, b.v AS w FROM {{s}} AS a RIGHT JOIN {{r}} AS b ON a.k = b.k"
    f" AND a.v < 20 AND {BAND}",
    "semi": f"SELECT a.ts, a.v FROM {{s}} AS a LEFT SEMI JOIN {{r}} AS b ON a.k = b.k"
    f" AND b.v < 9 AND {BAND}",
    "anti": f"SELECT a.ts, a.v FROM {{s}} AS a LEFT ANTI JOIN {{r}} AS b ON a.k = b.k"
    f" AND b.v < 20 AND {BAND}",
    "with itself": f"SELECT a.ts, a.v, b.v AS w FROM {{s}} AS a JOIN {{s}} AS b ON a.k = b.k"
    f" AND {BAND} WHERE a.v < b.v",
    "filtered": "SELECT a.ts, a.v + b.v AS w FROM (SELECT * FROM {s} WHERE v > 30) AS a JOIN"
    f" (SELECT * FROM {{r}} WHERE v < 60) AS b ON a.k = b.k AND {BAND} WHERE a.v + b.v > 70",
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", JOINS)
def test_joins_by_time(tables: Tables, name: str, full: bool) -> None:
    text = JOINS[name].format(s=tables.stream("very late"), r=tables.stream("many late"))
    rows, late = answer(tables.session, text, "depth_first")
    assert rows.num_rows > 0
    for count in (1, 2, 5, 16) if full else (5,):
        made, ledger = answer(tables.session, text, "spark", count)
        assert ledger == late
        assert sorted(map(repr, made.to_pylist())) == sorted(map(repr, rows.to_pylist()))


def test_unions(tables: Tables) -> None:
    both = "(SELECT ts, k, v FROM {s} UNION ALL SELECT ts, k, v FROM " + tables.stream("many late")
    text = (
        f"SELECT k, count(*) AS n, window_end FROM {both}) [RANGE 2 MINUTES SLIDE 1 MINUTE WA ts]"
    )
    check(tables, "very late", text + " WHERE v < 70 GROUP BY k", (1, 4, 16), in_order=False)


@pytest.mark.parametrize(("length", "tasks"), [(10, 5), (60, 2)])
def test_row_groups_are_read_about_once(
    spark: Any, tables: Tables, tmp_path: Path, length: int, tasks: int
) -> None:
    """80 row groups of 6 seconds each. Two tasks read those of the ``length - 10`` seconds before
    the end of a range, whose rows are in windows of both; those that come until the watermark, 2
    seconds behind, has passed the end; and the one that holds the first of these seconds."""
    rng, rows = np.random.default_rng(1), 40_000
    late = rng.random(rows) < 0.24
    back = np.where(late, rng.integers(3000, 30_000, rows), rng.integers(0, 2000, rows))
    times = pa.array(1000 * (12 * np.arange(rows) - back)).cast(SCHEMA.field("ts").type)
    table = disordered("amplified", rows, slack=1.0).set_column(0, SCHEMA.field("ts"), times)
    name = stored(spark, tmp_path / f"amplified_{length}", table, 500, files=4)
    tables.session.sql(
        f"CREATE OR REPLACE STREAM default.amplified FROM TABLE {name}"
        " WATERMARK FOR ts AS ts - INTERVAL 2 SECONDS"
    )
    text = (
        "SELECT k, count(*) AS n, window_end FROM default.amplified"
        f" [RANGE {length} SECONDS SLIDE 10 SECONDS] GROUP BY k"
    )
    expected = answer(tables.session, text, "depth_first")
    assert expected[1][0]["count"] > 0.2 * rows
    tables.session.set("runtime", "spark")
    tables.session.set("partitions", tasks)
    query = tables.session.sql(text)
    assert query.to_arrow().equals(expected[0])
    figures = query.metrics()[0]
    assert figures["row_groups"] == 80
    again = figures["row_groups_read"] - 80
    assert again <= (tasks - 1) * (1 + -(-(length - 10 + 2) // 6))
    assert again <= 0.2 * 80


@pytest.mark.parametrize(
    ("kind", "sql", "clause", "window"),
    [
        (pa.int64(), "bigint", "ORDERED BY ts WITHIN 3", "[RANGE 100 SLIDE 20]"),
        (pa.int32(), "int", "ORDERED BY ts IN SECONDS WITHIN 3 SECONDS", "[RANGE 60 SLIDE 60]"),
        (pa.date32(), "date", "ORDERED BY ts WITHIN 2 DAYS", "[RANGE 14 DAYS SLIDE 7 DAYS]"),
        (pa.timestamp("us"), "timestamp_ntz", "ORDERED BY ts WITHIN 3 SECONDS", None),
        (pa.timestamp("ms", "UTC"), "timestamp", "ORDERED BY ts WITHIN 3 SECONDS", None),
        (pa.timestamp("ns", "UTC"), "timestamp", "ORDERED BY ts WITHIN 3 SECONDS", None),
    ],
    ids=str,
)
def test_times_of_all_types(
    spark: Any, tables: Tables, tmp_path: Path, kind: Any, sql: str, clause: str, window: str | None
) -> None:
    rng = np.random.default_rng(5)
    start = 2**60 + 1 if kind == pa.int64() else 1000  # a double has no place for the former
    now = start + np.arange(900) // 3 - rng.integers(0, 6, 900)
    scale = {"us": SECOND, "ms": 1000, "ns": 1000 * SECOND}.get(getattr(kind, "unit", ""), 1)
    numbers = pa.array(now * (scale if window is None else 1))
    times = numbers.cast(pa.int32()).cast(kind) if kind == pa.date32() else numbers.cast(kind)
    name = "t_" + re.sub(r"\W+", "_", str(kind))
    (tmp_path / "rows").mkdir()
    for n in range(3):
        part = pa.table({"ts": times, "k": pa.array(now % 5)}).slice(300 * n, 300)
        pq.write_table(part, tmp_path / "rows" / f"{n}.parquet", row_group_size=70)
    where = (tmp_path / "rows").as_uri()
    spark.sql(f"CREATE TABLE default.{name} (ts {sql}, k bigint) USING parquet LOCATION '{where}'")
    tables.session.sql(f"CREATE STREAM default.s{name} FROM TABLE default.{name} {clause}")
    window = window or "[RANGE 100 SECONDS SLIDE 20 SECONDS]"
    text = f"SELECT k, count(*) AS n, window_end FROM default.s{name} {window} GROUP BY k"
    rows, late = answer(tables.session, text, "depth_first")
    assert rows.num_rows > 10
    assert answer(tables.session, text, "spark", 4) == (rows, late)


def test_a_plain_table(tables: Tables) -> None:
    text = f"SELECT ts, v FROM {tables.table('few late')} WHERE v < 50"
    assert answer(tables.session, text, "spark", 3) == answer(tables.session, text, "depth_first")


def test_an_empty_table(spark: Any, tables: Tables) -> None:
    session = tables.session
    spark.sql("CREATE TABLE default.nothing (ts timestamp, k bigint, v bigint) USING parquet")
    session.sql("CREATE OR REPLACE STREAM default.silent FROM TABLE default.nothing ORDERED BY ts")
    for text in (
        "SELECT k FROM default.silent",
        "SELECT k, count(*) AS n, window_end FROM default.silent [RANGE 1 MINUTE SLIDE 1 MINUTE]"
        " GROUP BY k",
        "SELECT a.k FROM default.silent AS a JOIN default.silent AS b ON a.ts = b.ts",
    ):
        rows, late = answer(session, text, "depth_first")
        made, ledger = answer(session, text, "spark", 4)
        assert (made.num_rows, made.schema, ledger) == (0, rows.schema, late)


def test_a_partitioned_table(spark: Any, tables: Tables) -> None:
    """The column of a partition comes from the folder's name; files are read in its order."""
    session = tables.session
    stream = tables.stream("ordered")
    spark.sql(
        "CREATE TABLE default.by_day (ts timestamp, v bigint, k bigint) USING parquet"
        " PARTITIONED BY (k)"
    )
    session.set("runtime", "auto")
    session.sql(f"INSERT INTO default.by_day SELECT ts, v, k FROM {stream}")
    session.sql(
        "CREATE OR REPLACE STREAM default.days FROM TABLE default.by_day"
        " WATERMARK FOR ts AS ts - INTERVAL 1 HOURS"
    )
    text = (
        "SELECT k, count(*) AS n, window_end FROM default.days [RANGE 2 MINUTES SLIDE 1 MINUTE]"
        " GROUP BY k"
    )
    rows, late = answer(session, text, "depth_first")
    made, ledger = answer(session, text, "spark", 4)
    assert (rows.num_rows > 0, late) == (True, ledger)
    assert made.equals(rows)


@pytest.fixture(scope="module")
def timeless(spark: Any, tables: Tables, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A stream in which some rows have no time."""
    some = very_late("null", 300, slack=1.0, groups=50, behind=120)
    times = some["ts"].to_pylist()
    for row in (3, 49, 50, 217, 218):
        times[row] = None
    table = some.set_column(0, "ts", pa.array(times, SCHEMA.field("ts").type))
    name = stored(spark, tmp_path_factory.mktemp("timeless") / "timeless", table, 50)
    tables.session.sql(
        f"CREATE OR REPLACE STREAM default.timeless FROM TABLE {name}"
        " WATERMARK FOR ts AS ts - INTERVAL 1 SECONDS"
    )
    return "default.timeless"


@pytest.mark.sampled
@pytest.mark.parametrize(
    "text",
    [
        WINDOWS["tumbling"],
        "SELECT k, 100 / (v - 50) AS q FROM {s}",
        "SELECT k, sum(100 / (v - 50)) AS q, window_end FROM {s} [RANGE 1 MINUTE SLIDE 1 MINUTE]"
        " GROUP BY k",
    ],
)
def test_bad_rows(tables: Tables, timeless: str, text: str) -> None:
    session, text = tables.session, text.format(s=timeless)
    reported = []
    for runtime in ("depth_first", "spark"):
        with pytest.raises(RunError) as caught:
            answer(session, text, runtime, 4)
        reported.append((caught.value.position, caught.value.message, caught.value.hint))
    assert reported[0] == reported[1]
    assert "in the row at offset" in reported[0][1]
    kept = []
    for runtime in ("depth_first", "spark"):
        session.set("runtime", runtime)
        session.set("partitions", 4)
        query = session.sql(f"{text} ON BAD ROW KEEP")
        rows = query.to_arrow()
        ledger = sorted(query.bad_rows().to_pylist(), key=lambda row: row["offset"])
        late = [e["count"] for e in query.late().to_pylist() if e["kind"] in ("rows", "pairs")]
        kept.append((rows, ledger, query.progress().bad, late))
    assert kept[0] == kept[1]
    assert kept[0][2] == len(kept[0][1]) > 1


def test_a_query_with_all_that_travels(tables: Tables) -> None:
    session = tables.session
    session.function(scaled)
    session.sql("CREATE OR REPLACE CONSTANT most = 70")
    session.sql(f"CREATE OR REPLACE VIEW few AS SELECT * FROM {tables.stream('few late')}")
    text = (
        "SELECT k, sum(scaled(v)) AS s, window_end FROM few [RANGE 1 MINUTE SLIDE 1 MINUTE]"
        " WHERE v < most GROUP BY k"
    )
    check(tables, "few late", text, (4,))


def scaled(x: int) -> int:
    return x * 3 + 1


def test_an_insert(tables: Tables) -> None:
    session = tables.session
    stream = tables.stream("few late")
    session.set("runtime", "spark")
    session.set("partitions", 4)
    session.sql("DROP TABLE IF EXISTS default.counted")
    session.sql(f"CREATE TABLE default.counted AS {WINDOWS['tumbling'].format(s=stream)}")
    session.set("runtime", "auto")
    made = session.sql("SELECT * FROM default.counted").to_arrow()
    expected, _ = answer(session, WINDOWS["tumbling"].format(s=stream), "depth_first")
    assert made.num_rows == expected.num_rows
    assert sorted(map(repr, made.to_pylist())) == sorted(map(repr, expected.to_pylist()))


def test_an_error_has_its_place_in_the_text(tables: Tables) -> None:
    text = f"SELECT k,\n  100 / (v - 50) AS q\nFROM {tables.stream('ordered')}"
    found = []
    for runtime in ("depth_first", "spark"):
        with pytest.raises(RunError) as caught:
            answer(tables.session, text, runtime, 3)
        found.append((caught.value.position, caught.value.hint))
    assert found[0] == found[1]
    assert found[0][0] is not None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("SELECT k, count(*) AS n FROM {s} [SESSION 1 MINUTE] GROUP BY k", "sessions have no"),
        ("SELECT count(*) AS n FROM {s}", "an aggregate without a window needs all rows"),
        ("SELECT ISTREAM k FROM {s} [RANGE 1 MINUTE]", "a relation needs all rows"),
        ("SELECT k FROM {s} LIMIT 3", "LIMIT needs all rows"),
        (
            "SELECT max(v) AS m FROM {s} [RANGE 2 MINUTES SLIDE 1 MINUTE] ON BAD ROW KEEP",
            "several tasks read a row",
        ),
        ("SELECT a.k FROM {s} AS a JOIN {s} AS b ON a.k = b.k AND a.ts <= b.ts", "no time bound"),
        ("SELECT a.k FROM {s} AS a FULL JOIN {s} AS b ON a.k = b.k AND a.ts = b.ts", "a FULL JOIN"),
        ("SELECT a.k FROM {s} AS a ASOF JOIN {s} AS b ON a.k = b.k AND a.ts >= b.ts", "a join"),
        (
            "SELECT last(k) AS k, window_end FROM (SELECT ts, k FROM {s} UNION ALL"
            " SELECT ts, k FROM {s}) [RANGE 1 MINUTE SLIDE 1 MINUTE WA ts]",
            "the order in which the rows of a union come",
        ),
        (
            "SELECT /*+ window_operator(two_stacks) */ * FROM (SELECT *, ROW_NUMBER() OVER"
            " (PARTITION BY window_start, window_end ORDER BY n) AS r FROM (SELECT k, max(v) AS n,"
            " window_start, window_end FROM {s} [RANGE 2 MINUTES SLIDE 1 MINUTE] GROUP BY k))"
            " WHERE r < 3",
            "equal in ORDER BY",
        ),
        (
            "SELECT max(n) AS n, window_end FROM (SELECT count(*) AS n, window_time FROM {s} [RANGE"
            " 60 SECONDS SLIDE 60 SECONDS]) [RANGE 90 SECONDS SLIDE 90 SECONDS WA window_time]",
            "do not end with inner ones",
        ),
        ("SELECT 1 AS x", "reads no table"),
    ],
)
def test_other_queries_are_refused(tables: Tables, text: str, why: str) -> None:
    session = tables.session
    session.set("runtime", "spark")
    with pytest.raises(NotSupportedError, match=why) as caught:
        session.sql(text.format(s=tables.stream("ordered")))
    assert caught.value.hint


def test_other_data_is_refused(tables: Tables) -> None:
    session = tables.session
    session.register_table("here", pa.table({"k": [1, 2]}), replace=True)
    session.set("runtime", "spark")
    with pytest.raises(NotSupportedError, match="it is no table of Parquet files"):
        session.sql("SELECT k FROM here").to_arrow()
    with pytest.raises(NotSupportedError, match="queries that start together"):
        session.query_set("SELECT k FROM here; SELECT k + 1 AS k FROM here")


def test_explain(tables: Tables) -> None:
    session = tables.session
    session.set("runtime", "spark")
    text = WINDOWS["sliding"].format(s=tables.stream("few late"))
    query = session.sql(text)
    assert "runtime: spark (SET runtime = 'spark': tasks by time," in query.explain()
    assert query.to_arrow().num_rows > 0
    session.set("partitions", 4)
    query = session.sql(text)
    analyzed = query.explain("analyze")
    assert "aggregate#0" in analyzed
    assert re.search(r"4 tasks on Spark ran the query: 4,\d+ rows in, [\d,]+ out", analyzed)
    assert query.progress().tasks == (4, 4)
    assert query.metrics()[-1]["nanoseconds"] > 0
    with pytest.raises(NotSupportedError, match="EXPLAIN KERNEL"):
        query.explain("kernel")


def test_executors_without_our_libraries(
    spark: Any, tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys._base_executable} -S "$@"\n', "utf-8")
    bare.chmod(0o755)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(bare))
    with pytest.raises(CatalogError, match=r"the Python of Spark's executors has no module \w+"):
        answer(tables.session, ROWS["all"].format(s=tables.stream("one group")), "spark")


def test_an_exception_of_a_worker_is_shown(spark: Any) -> None:
    broken = spark.sparkContext.parallelize([0], 1).map(lambda x: 1 // x)
    raised = pytest.raises(CatalogError, match="a Python worker raised ZeroDivisionError: integer")
    with raised, spark_call(spark, "running tasks"):
        broken.collect()


def slow(x: int) -> int:
    time.sleep(0.01)
    return x


def test_stop_cancels_the_tasks(spark: Any, tables: Tables) -> None:
    """4,000 rows take 20 seconds on two cores."""
    session = tables.session
    session.register_function("slow", slow)
    session.set("runtime", "spark")
    session.set("partitions", 16)
    query = session.sql(f"SELECT slow(v) AS v FROM {tables.stream('few late')}")
    reading = threading.Thread(target=lambda: collections.deque(query, maxlen=0))
    tracker = spark.sparkContext.statusTracker()
    reading.start()
    while not tracker.getActiveJobsIds():
        reading.join(0.05)
        assert reading.is_alive()
    ended = query.progress().tasks
    assert ended is not None
    assert ended[1] == 16
    query.stop()
    reading.join(60)
    assert not reading.is_alive()
    assert query.status == "stopped"
    assert not tracker.getActiveJobsIds()


def test_statistics_that_lie(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    groups_of = parts.groups_of

    def lying(*args: Any) -> list[Any]:
        return [replace(g, high=(g.high or 0) - 1) for g in groups_of(*args)]

    monkeypatch.setattr(parts, "groups_of", lying)
    text = WINDOWS["tumbling"].format(s=tables.stream("few late"))
    with pytest.raises(CatalogError, match=r"the statistics in the footer of .* do not hold"):
        answer(tables.session, text, "spark", 2)
