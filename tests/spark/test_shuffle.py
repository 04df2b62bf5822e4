"""Tasks by key on Spark: the rows and the ledgers of a run in this process."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cql.errors import NotSupportedError
from cql.spark.task.shuffle import mix
from tests.support.runtimes import share
from tests.support.task_tables import KINDS, Tables, answer, disordered, stored

ONE = {
    "tumbling": "SELECT k, count(*) AS n, sum(v) AS s, window_end FROM {s}"
    " [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY k",
    "sliding by words": "SELECT k, max(v) AS m, w, window_start FROM {s}"
    " [RANGE 5 MINUTES SLIDE 1 MINUTE] WHERE v < 80 GROUP BY k, w",
    "sessions": "SELECT k, count(*) AS n, first(v) AS f, window_start, window_end FROM {s}"
    " [SESSION 20 SECONDS] GROUP BY k",
    "days of a zone": "SELECT w, k, count(*) AS n, window_end FROM {s}"
    " [RANGE 1 DAY SLIDE 1 DAY TIME ZONE 'America/New_York'] GROUP BY w, k",
    "windows of windows": "SELECT k, max(n) AS n, window_end FROM (SELECT k, w, count(*) AS n,"
    " window_time FROM {s} [RANGE 2 MINUTES SLIDE 1 MINUTE] GROUP BY k, w)"
    " [RANGE 3 MINUTES SLIDE 1 MINUTE WA window_time] GROUP BY k",
    "windows of rows": "SELECT k, array_agg(v) AS vs FROM {s} [PARTITION BY k ROWS 5 SLIDE 3]"
    " GROUP BY k",
    "without a window": "SELECT w, k % 2 = 0 AS even, count(*) AS n, avg(v) AS a FROM {s}"
    " GROUP BY w, k % 2 = 0",
    "distinct": "SELECT DISTINCT k, v FROM {s}",
    "the same table twice": "SELECT a.k, a.v, b.v AS other FROM {s} AS a JOIN {s} AS b"
    " ON a.k = b.k AND a.w = b.w AND b.v - a.v = 40",
    "nearest row before": "SELECT a.k, a.ts, b.v FROM {s} AS a LEFT ASOF JOIN"
    " (SELECT * FROM {s} WHERE v > 50) AS b ON a.k = b.k AND a.ts >= b.ts",
}
TWO = {
    "pairs without times": "SELECT a.k, a.v, b.w FROM {s} AS a JOIN {t} AS b ON a.k = b.k AND"
    " a.v = b.v",
    "full join": "SELECT a.k, b.k AS l, a.ts, b.ts AS u FROM {s} AS a FULL JOIN {t} AS b ON"
    " a.k = b.k AND a.w = b.w AND b.ts BETWEEN a.ts - INTERVAL 3 SECONDS AND a.ts",
    "union": "SELECT k, count(*) AS n, window_end FROM (SELECT k, ts FROM {s} UNION ALL"
    " SELECT v AS k, ts FROM {t}) [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY k",
    "windows above a join": "SELECT k, count(*) AS n, window_end FROM (SELECT a.k, a.ts FROM {s}"
    " AS a JOIN {t} AS b ON a.k = b.k AND b.ts BETWEEN a.ts - INTERVAL 5 SECONDS AND a.ts)"
    " [RANGE 1 MINUTE SLIDE 1 MINUTE WA ts] GROUP BY k",
}


@pytest.fixture(scope="module")
def tables(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tables]:
    made = Tables(spark, tmp_path_factory.mktemp("shuffled"))
    made.session.set("tasks_by", "key")
    yield made
    made.session.close()


def check(tables: Tables, text: str, tasks: tuple[int, ...]) -> None:
    rows, late = answer(tables.session, text, "depth_first")
    assert rows.num_rows > 0
    for count in tasks:
        made, ledger = answer(tables.session, text, "spark", count)
        assert ledger == late
        assert in_any_order(made) == in_any_order(rows)


def in_any_order(rows: pa.Table) -> list[str]:
    return sorted(map(repr, rows.to_pylist()))


@pytest.mark.sampled
@pytest.mark.parametrize("name", ONE)
def test_one_table(tables: Tables, name: str, full: bool) -> None:
    for kind in KINDS if full else ("many late",):
        check(tables, ONE[name].format(s=tables.stream(kind)), (1, 2, 5, 16) if full else (5,))


@pytest.mark.sampled
@pytest.mark.parametrize("name", TWO)
def test_two_tables(tables: Tables, name: str, seed: int, full: bool) -> None:
    pairs = (("few late", "ordered"), ("many late", "far ahead"))
    for kinds in share(pairs, list(TWO).index(name), 1, seed, full=full):
        s, t = map(tables.stream, kinds)
        check(tables, TWO[name].format(s=s, t=t), (1, 2, 5, 16) if full else (3,))


def hashes(values: pa.Array[Any]) -> list[int]:
    made = np.ones(len(values), np.int64)
    mix(values, made)
    return made.tolist()


WORDS = ["a", "", None, "longer than 8"]
EQUAL = [
    (pa.array([1, -7, None], pa.int8()), pa.array([1, -7, None], pa.int64())),
    (pa.array([0.0, None, float("nan")]), pa.array([-0.0, None, -float("nan")])),
    (pa.array([0.5, 2.0], pa.float32()), pa.array([0.5, 2.0], pa.float64())),
    (
        pa.array(["a", "", None, "longer than 8"]),
        pa.array(["a", "", None, "longer than 8"]).cast(pa.large_string()),
    ),
    (pa.array(["x", "b", "é"]).slice(1), pa.array(["b", "é"])),
    (pa.array([b"\0\0", b"\0"]), pa.array([b"\0\0", b"\0"])),
    (pa.array([Decimal("1.50"), None]), pa.array([Decimal("1.50"), None], pa.decimal128(30, 2))),
    (pa.array([True, None, False]), pa.array([False, True, None, False]).slice(1)),
    (pa.array([5, None], pa.date32()), pa.array([7, 5, None], pa.date32()).slice(1)),
]


@pytest.mark.parametrize(("left", "right"), EQUAL, ids=lambda array: str(array.type))
def test_equal_keys_have_one_hash(left: pa.Array[Any], right: pa.Array[Any]) -> None:
    made = hashes(left)
    assert made == hashes(right)
    assert len(set(made)) == len(made)


KEYS = {
    "boolean": ("boolean", pa.array([True, False, None, True] * 20)),
    "tinyint": ("tinyint", pa.array([1, -1, None, 127] * 20, pa.int8())),
    "double": ("double", pa.array([0.0, -0.0, None, float("nan")] * 20)),
    "float": ("float", pa.array([0.5, 1.5, None, 2.5] * 20, pa.float32())),
    "date": ("date", pa.array([1, -400, None, 20_000] * 20, pa.date32())),
    "decimal": (
        "decimal(12,3)",
        pa.array(
            [Decimal("1.500"), Decimal("-7.001"), None] * 20 + [Decimal("0.000")] * 20,
            pa.decimal128(12, 3),
        ),
    ),
    "binary": ("binary", pa.array([b"", b"\0", None, b"\0\0"] * 20)),
    "timestamp": ("timestamp", pa.array([0, 1, None, -(10**12)] * 20, pa.timestamp("us", "UTC"))),
    "timestamp_ntz": ("timestamp_ntz", pa.array([0, 1, None, -(10**12)] * 20, pa.timestamp("us"))),
    "string": ("string", pa.array(["", "é", None, "a longer text"] * 20)),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", KEYS)
def test_keys_of_each_type(spark: Any, tables: Tables, tmp_path: Path, name: str) -> None:
    declared, keys = KEYS[name]
    held = pa.table({"k": keys, "v": np.arange(len(keys))})
    pq.write_table(held, tmp_path / "part-0.parquet", row_group_size=17)
    table = f"default.keys_{name}"
    spark.sql(
        f"CREATE TABLE {table} (k {declared}, v bigint) USING parquet"
        f" LOCATION '{tmp_path.as_uri()}'"
    )
    check(tables, f"SELECT k, count(*) AS n, sum(v) AS s FROM {table} GROUP BY k", (1, 4))
    check(tables, f"SELECT a.k, b.v FROM {table} AS a JOIN {table} AS b ON a.k = b.k", (3,))


def test_columns_in_another_case(tables: Tables) -> None:
    tables.session.sql(
        f"CREATE STREAM default.loud (TS TIMESTAMP, K BIGINT, V BIGINT) FROM TABLE"
        f" {tables.table('few late')} ORDERED BY Ts WITHIN 2 SECONDS"
    )
    check(tables, "SELECT k, sum(v) AS s FROM default.loud [SESSION 20 SECONDS] GROUP BY k", (3,))
    check(
        tables,
        "SELECT a.k FROM default.loud AS a JOIN default.loud AS b ON a.k = b.k AND"
        " a.v - b.v = 30 AND a.ts BETWEEN b.ts AND b.ts + INTERVAL 9 SECONDS",
        (3,),
    )


def test_keys_of_char_are_compared_without_padding(
    spark: Any, tables: Tables, tmp_path: Path
) -> None:
    spark.sql("CREATE TABLE default.padded (k CHAR(5), v bigint) USING parquet")
    with pytest.raises(NotSupportedError, match="no column is a key"):
        answer(tables.session, "SELECT k, count(*) FROM default.padded GROUP BY k", "spark")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT count(*) AS n FROM {s} GROUP BY upper(w)", "no column is a key"),
        ("SELECT k, count(*) AS n FROM {s} GROUP BY k ORDER BY n", "no column is a key"),
        ("SELECT a.v FROM {s} AS a JOIN {s} AS b ON a.k = b.v", "no column is a key"),
        ("SELECT DISTINCT k FROM {s} LIMIT 3", "no column is a key"),
    ],
)
def test_plans_without_a_key(tables: Tables, text: str, reason: str) -> None:
    with pytest.raises(NotSupportedError, match=reason):
        answer(tables.session, text.format(s=tables.stream("ordered")), "spark")


def test_sessions_are_not_shared_by_time(tables: Tables) -> None:
    text = ONE["sessions"].format(s=tables.stream("ordered"))
    tables.session.set("tasks_by", "time")
    try:
        with pytest.raises(NotSupportedError, match="sessions have no bounds"):
            answer(tables.session, text, "spark")
    finally:
        tables.session.set("tasks_by", "key")


def test_files_in_no_order_of_time_are_shuffled(spark: Any, tables: Tables, tmp_path: Path) -> None:
    rows = disordered("shuffled", 3000, slack=2000.0)
    order = np.random.default_rng(7).permutation(rows.num_rows)
    table = stored(spark, tmp_path / "mixed", rows.take(pa.array(order)), 200)
    tables.session.sql(
        f"CREATE STREAM default.mixed FROM TABLE {table}"
        " WATERMARK FOR ts AS ts - INTERVAL 9000 SECONDS"
    )
    text = ONE["tumbling"].format(s="default.mixed").replace("sum(v)", "first(v)")  # has no parts
    notices: list[str] = []
    tables.session.set("tasks_by", "auto")
    tables.session.on_notice = notices.append
    try:
        check(tables, text, (6,))
    finally:
        tables.session.set("tasks_by", "key")
        tables.session.on_notice = lambda text: None
    assert any("the rows are shuffled by key" in text for text in notices)


def test_explain_names_the_key(tables: Tables) -> None:
    text = ONE["sessions"].format(s=tables.stream("ordered"))
    tables.session.set("runtime", "spark")
    tables.session.set("tasks_by", "auto")
    tables.session.set("partitions", 4)
    query = tables.session.sql(text)
    explained, analyzed = query.explain(), query.explain("analyze")
    tables.session.set("tasks_by", "key")
    assert "tasks by key k: rows are shuffled by its values" in explained
    assert "4 tasks on Spark split the rows by key: 3,000 rows in, 3,000 out" in analyzed
    assert "on Spark ran the query: 3,000 rows in" in analyzed
    assert query.progress().tasks == (8, 8)


def test_bad_rows_have_their_place_in_the_table(tables: Tables) -> None:
    text = (
        f"SELECT k, sum(100 / v) AS s FROM {tables.stream('few late')} GROUP BY k ON BAD ROW KEEP"
    )
    ledgers = []
    for runtime in ("depth_first", "spark"):
        tables.session.set("runtime", runtime)
        query = tables.session.sql(text)
        query.to_arrow()
        ledgers.append(query.bad_rows().to_pylist())
    assert ledgers[0]
    assert sorted(r["offset"] for r in ledgers[1]) == sorted(r["offset"] for r in ledgers[0])


def test_keys_that_folders_hold(spark: Any, tables: Tables) -> None:
    """Columns of partitions."""
    spark.sql(
        "CREATE TABLE default.in_folders USING parquet PARTITIONED BY (day, kind) AS SELECT"
        f" *, to_date(ts) AS day, w AS kind FROM {tables.table('few late')}"
    )
    check(tables, "SELECT kind, count(*) AS n FROM default.in_folders GROUP BY kind", (1, 3))
    text = "SELECT day, kind, array_agg(v) AS vs FROM default.in_folders GROUP BY day, kind"
    check(tables, text, (4,))
