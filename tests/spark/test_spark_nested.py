"""Arrays and structs of Spark's tables: read, computed by tasks, written, and as DataFrames."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cql
from cql.errors import CqlError

COUNT = 900
#: The rows, made by Spark.
MADE = f"""
    SELECT timestamp_micros(id * 1000000) AS ts, id % 5 AS k,
        IF(id % 7 = 0, NULL, array(CAST(id % 3 AS INT), NULL, 9)) AS items,
        IF(id % 11 = 0, NULL, named_struct('name', IF(id % 3 = 0, NULL, CAST(id % 4 AS STRING)),
            'tags', array(CAST(id % 2 AS STRING)))) AS user
    FROM range({COUNT})"""
QUERIES = {
    "rows": "SELECT ts, items, user FROM s WHERE k > 2",
    "parts": "SELECT ts, items[0] AS i, s.user.name, user.tags[0] AS t FROM s"
    " WHERE size(items) > 1",
    "groups": "SELECT items, user.tags AS tags, count(*) AS n, first(user) AS u, window_end"
    " FROM s [RANGE 5 MINUTES SLIDE 1 MINUTE] GROUP BY items, user.tags",
    "elements": "SELECT i, count(*) AS n, window_end FROM (SELECT ts, i FROM s, UNNEST(items) AS u"
    " (i)) [RANGE 5 MINUTES SLIDE 5 MINUTES] GROUP BY i",
}


@pytest.fixture(scope="module")
def session(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[cql.Session]:
    spark.sql(f"CREATE TABLE default.nested USING parquet AS {MADE}")
    with cql.connect(spark=spark) as made:
        made.set("partitions", 3)
        made.sql("CREATE STREAM s FROM TABLE default.nested ORDERED BY ts WITHIN 0 SECONDS")
        yield made
    spark.sql("DROP TABLE default.nested")


def told(session: cql.Session, text: str) -> list[str]:
    return sorted(map(repr, session.sql(text).to_arrow().to_pylist()))


def test_types_and_rows_are_those_of_spark(spark: Any, session: cql.Session) -> None:
    kinds = {r["column"]: r["type"] for r in session.sql("DESCRIBE s").to_arrow().to_pylist()}
    assert kinds["items"] == "array<int>"
    assert kinds["user"] == "struct<name:string,tags:array<string>>"
    for text in ("SELECT items, user FROM {}", "SELECT k, get(items, 0) AS i, user.name FROM {}"):
        theirs = spark.sql(text.format("default.nested")).toArrow().to_pylist()
        assert told(session, text.format("s")) == sorted(map(repr, theirs))


@pytest.mark.sampled
@pytest.mark.parametrize("name", QUERIES)
def test_tasks_give_the_same_rows(session: cql.Session, name: str) -> None:
    here = told(session, QUERIES[name])
    assert len(here) > 5
    session.set("runtime", "spark")
    try:
        assert told(session, QUERIES[name]) == here
        assert (
            sorted(map(repr, session.sql(QUERIES[name]).to_spark().toArrow().to_pylist())) == here
        )
    finally:
        session.sql("RESET runtime")


def test_tables_are_written(spark: Any, session: cql.Session) -> None:
    session.sql("CREATE TABLE default.made USING parquet AS SELECT ts, items, user FROM s")
    try:
        written = "SELECT * FROM default.made"
        theirs = sorted(map(repr, spark.sql(written).toArrow().to_pylist()))
        assert theirs == told(session, "SELECT ts, items, user FROM s")
        assert spark.table("default.made").schema["user"].dataType.simpleString() == (
            "struct<name:string,tags:array<string>>"
        )
        session.sql("INSERT INTO default.made SELECT NULL, array(1, NULL), NULL")
        (added,) = spark.sql(f"{written} WHERE ts IS NULL").collect()
        assert list(added["items"]) == [1, None]
        assert added["user"] is None
    finally:
        spark.sql("DROP TABLE default.made")


def test_a_column_without_null_in_its_arrays(
    spark: Any, session: cql.Session, tmp_path: Path
) -> None:
    frame = spark.sql("SELECT array(1) AS v")
    assert not frame.schema["v"].dataType.containsNull
    frame.write.parquet(str(tmp_path / "v"))
    session.create_stream("v", frame, replace=True)
    assert told(session, "SELECT v, e FROM v, UNNEST(v) AS u (e)") == ["{'v': [1], 'e': 1}"]
    with pytest.raises(CqlError, match="have no order"):
        session.sql("SELECT v FROM v ORDER BY v")
