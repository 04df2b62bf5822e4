"""Spark's tables beyond columns and files: caches, defaults, what others do to them."""

from __future__ import annotations

from typing import Any

import pytest

import cql

pytestmark = pytest.mark.spark


def one(spark: Any, text: str) -> Any:
    return spark.sql(text).collect()[0][0]


def test_every_insert_shows_in_what_spark_has_cached(spark: Any) -> None:
    spark.sql("CREATE TABLE cached (v INT, p INT) USING parquet PARTITIONED BY (p)")
    spark.sql("INSERT INTO cached VALUES (1, 1)")
    spark.sql("CREATE VIEW cached_view AS SELECT v * 10 AS w FROM cached")
    spark.sql("CREATE TEMP VIEW cached_temp AS SELECT w + 1 AS w FROM cached_view")
    for name in ("cached", "cached_view", "cached_temp"):
        spark.sql(f"CACHE TABLE {name}")
    session = cql.connect(spark)
    for v, p in ((2, 1), (3, 2), (4, 3)):
        session.sql(f"INSERT INTO cached VALUES ({v}, {p})")
        total = sum(range(v + 1))
        assert one(spark, "SELECT sum(v) FROM cached") == total
        assert one(spark, "SELECT sum(w) FROM cached_view") == total * 10
        assert one(spark, "SELECT sum(w) FROM cached_temp") == total * 10 + v
        assert spark.catalog.isCached("cached")
        assert spark.catalog.isCached("cached_view")
    for name in ("cached_view", "cached_temp"):
        spark.sql(f"DROP VIEW {name}")
    spark.sql("DROP TABLE cached")
