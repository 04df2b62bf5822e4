"""Tasks by key over views and DataFrames, which Spark computes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from cql.errors import CatalogError, NotSupportedError
from tests.support.runtimes import share
from tests.support.task_tables import Tables, answer

QUERIES = {
    "windows": "SELECT k, count(*) AS n, sum(v) AS s, window_end FROM {s}"
    " [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY k",
    "sessions": "SELECT k, w, count(*) AS n, first(v) AS f, window_start FROM {s}"
    " [SESSION 20 SECONDS] GROUP BY k, w",
    "rows": "SELECT ts, k, v FROM {s} WHERE v > 30",
    "without times": "SELECT w, count(*) AS n FROM {s} GROUP BY w",
}


@pytest.fixture(scope="module")
def tables(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tables]:
    made = Tables(spark, tmp_path_factory.mktemp("viewed"))
    yield made
    made.session.close()


@pytest.fixture(scope="module")
def view(spark: Any, tables: Tables) -> str:
    """A stream over a view, whose columns Spark computes; one has a name that needs quoting."""
    spark.sql(
        "CREATE VIEW default.viewed AS SELECT ts + INTERVAL 1 HOUR AS ts, k, v * 2 AS v, w,"
        f" v AS `a b``c` FROM {tables.table('many late')} WHERE v <> 3"
    )
    tables.session.sql(
        "CREATE STREAM default.of_view FROM TABLE default.viewed"
        " WATERMARK FOR ts AS ts - INTERVAL 30 SECONDS"
    )
    return "default.of_view"


def check(tables: Tables, text: str) -> None:
    rows, late = answer(tables.session, text, "depth_first")
    assert rows.num_rows > 0
    for count in (1, 4):
        made, ledger = answer(tables.session, text, "spark", count)
        assert ledger == late
        assert sorted(map(repr, made.to_pylist())) == sorted(map(repr, rows.to_pylist()))


@pytest.mark.sampled
@pytest.mark.parametrize("name", QUERIES)
def test_a_view(tables: Tables, view: str, name: str) -> None:
    check(tables, QUERIES[name].format(s=view))


def test_a_view_joined_with_a_table_of_files(tables: Tables, view: str) -> None:
    check(
        tables,
        f"SELECT a.k, a.`a b``c` AS c, b.v FROM {view} AS a JOIN {tables.stream('few late')} AS b"
        " ON a.k = b.k AND b.ts BETWEEN a.ts - INTERVAL 70 MINUTES AND a.ts - INTERVAL 50 MINUTES",
    )


def test_a_data_frame(spark: Any, tables: Tables, seed: int, full: bool) -> None:
    frame = spark.table(tables.table("few late")).where("k < 7").repartition(3, "k")
    tables.session.create_stream(
        "framed", frame.sortWithinPartitions("ts"), ordered_by="ts", slack="1 hour"
    )
    for name in share(list(QUERIES), 0, 2, seed, full=full):
        check(tables, QUERIES[name].format(s="framed"))


def test_an_empty_view(spark: Any, tables: Tables) -> None:
    spark.sql(f"CREATE VIEW default.hollow AS SELECT * FROM {tables.table('ordered')} WHERE v < 0")
    made, _ = answer(tables.session, "SELECT k, sum(v) FROM default.hollow GROUP BY k", "spark", 3)
    assert made.num_rows == 0


def test_advances_that_need_confirmation(tables: Tables, view: str) -> None:
    tables.session.sql(
        "CREATE OR REPLACE STREAM default.wary FROM TABLE default.viewed"
        " ORDERED BY ts WITHIN 30 SECONDS MAX ADVANCE 20 SECONDS"
    )
    check(tables, QUERIES["windows"].format(s="default.wary"))


def some(rows: Iterator[Any]) -> Iterator[Any]:
    return (row for row in rows if random.SystemRandom().random() < 0.5)


def tuple_of(row: Any) -> tuple[int, int]:
    return row.id, row.id % 7


def test_rows_that_change_between_two_readings(spark: Any, tables: Tables) -> None:
    pairs = spark.range(5000).rdd.map(tuple_of).mapPartitions(some)
    frame = spark.createDataFrame(pairs, "id long, k long")
    tables.session.create_stream("changing", frame, ordered_by="id")
    with pytest.raises(CatalogError, match="gave other rows when Spark computed it a second time"):
        answer(tables.session, "SELECT k, count(*) FROM changing GROUP BY k", "spark", 3)


def test_rows_without_a_key_are_refused(tables: Tables, view: str) -> None:
    text = f"SELECT max(v) AS m, window_end FROM {view} [RANGE 9 SECONDS SLIDE 9 SECONDS]"
    with pytest.raises(NotSupportedError, match="nor a view or DataFrame whose rows have a key"):
        answer(tables.session, text, "spark")
