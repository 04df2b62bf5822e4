"""Results of queries as DataFrames of Spark, which their tasks compute."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import cql
from cql.errors import PlanError, RunError
from tests.support.task_tables import Tables

QUERIES = {
    "by rows": "SELECT ts, k, w FROM {s} WHERE v > 40",
    "by time": "SELECT k, count(*) AS n, avg(v) AS a, window_end FROM {s}"
    " [RANGE 5 MINUTES SLIDE 1 MINUTE] GROUP BY k",
    "by key": "SELECT k, w, count(*) AS n, window_start FROM {s} [SESSION 20 SECONDS]"
    " GROUP BY k, w",
    "here": "SELECT count(*) AS n, window_end FROM {s} [SESSION 1 SECOND]",
    "a relation": "SELECT k, max(v) AS m FROM {s} [RANGE 1 MINUTE] GROUP BY k",
}


@pytest.fixture(scope="module")
def tables(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tables]:
    made = Tables(spark, tmp_path_factory.mktemp("framed"))
    made.session.set("partitions", 3)
    yield made
    made.session.close()


def rows_of(frame: Any) -> list[str]:
    return sorted(map(repr, frame.toArrow().to_pylist()))


@pytest.mark.sampled
@pytest.mark.parametrize("name", QUERIES)
def test_frames_have_the_rows_and_the_figures_of_the_query(tables: Tables, name: str) -> None:
    text = QUERIES[name].format(s=tables.stream("many late"))
    query = tables.session.sql(text)
    rows = sorted(map(repr, query.to_arrow().to_pylist()))
    late = query.late().to_pylist()
    frame = query.to_spark()
    for _ in range(2):
        assert rows_of(frame) == rows
        assert [entry["count"] for entry in query.late().to_pylist()] == [
            entry["count"] for entry in late
        ]
    assert frame.columns == [c for c in query.columns if c not in ("_time", "_weight")]


def test_spark_joins_and_filters_a_frame(spark: Any, tables: Tables) -> None:
    text = QUERIES["by time"].format(s=tables.stream("few late"))
    query = tables.session.sql(text)
    query.toSpark().createOrReplaceTempView("results")
    found = spark.sql("SELECT k, sum(n) AS n FROM results WHERE k < 4 GROUP BY k").toArrow()
    rows = query.to_arrow()
    expected = rows.filter(pa.compute.field("k") < 4).group_by("k").aggregate([("n", "sum")])
    assert sorted(found.to_pydict()["n"]) == sorted(expected.to_pydict()["n_sum"])


def test_tasks_write_into_a_table(spark: Any, tables: Tables) -> None:
    query = tables.session.sql(QUERIES["by key"].format(s=tables.stream("few late")))
    query.writeTo("default.written").using("parquet").create()
    query.to_spark().write.mode("append").saveAsTable("default.written")
    assert spark.table("default.written").count() == 2 * query.to_arrow().num_rows
    assert query.columns == spark.table("default.written").columns


def test_types(spark: Any, tables: Tables) -> None:
    spark.sql(
        "CREATE TABLE default.kinds USING parquet AS SELECT true AS a, 1Y AS b, 2S AS c, 3 AS d,"
        " 4L AS e, CAST(1.5 AS float) AS f, 2.5D AS g, 1.25 AS h, DATE '2024-02-29' AS i,"
        " TIMESTAMP '2024-02-29 01:02:03.456' AS j, TIMESTAMP_NTZ '2024-02-29 01:02:03' AS k,"
        " 'é' AS l, X'00ff' AS m UNION ALL SELECT null, null, null, null, null, null, null, null,"
        " null, null, null, null, null"
    )
    query = tables.session.sql("SELECT * FROM default.kinds")
    frame = query.to_spark()
    assert frame.dtypes == spark.table("default.kinds").dtypes
    assert rows_of(frame) == rows_of(spark.table("default.kinds"))


def test_an_empty_table(spark: Any, tables: Tables) -> None:
    spark.sql("CREATE TABLE default.void (k bigint, v string) USING parquet")
    frame = tables.session.sql("SELECT v, k + 1 AS k FROM default.void").to_spark()
    assert frame.dtypes == [("v", "string"), ("k", "bigint")]
    assert frame.count() == 0


def test_local_rows(spark: Any) -> None:
    with cql.connect(spark) as session:
        session.register_table("here", pa.table({"k": [1, 2, 2]}))
        frame = session.sql("SELECT k, count(*) AS n FROM here GROUP BY k").to_spark()
        assert rows_of(frame) == ["{'k': 1, 'n': 1}", "{'k': 2, 'n': 2}"]


def test_errors_of_tasks_have_their_place(tables: Tables) -> None:
    frame = tables.session.sql(
        f"SELECT 1 / (v - v) AS x FROM {tables.stream('ordered')}"
    ).to_spark()
    with pytest.raises(Exception, match=r"(?s)division by zero.*SELECT 1 / \(v - v\).*\^"):
        frame.count()


def test_what_has_no_rows_for_a_frame(tables: Tables) -> None:
    session = tables.session
    session.sql("CREATE STREAM endless (k BIGINT)")
    with pytest.raises(PlanError, match="does not end by itself"):
        session.sql("SELECT k FROM endless").to_spark()
    session.register_table("rows_here", pa.table({"k": [1]}))
    session.sql("CREATE TABLE into_here (k BIGINT)")
    with pytest.raises(RunError, match="an INSERT has no rows"):
        session.sql("INSERT INTO into_here SELECT k FROM rows_here").to_spark()
