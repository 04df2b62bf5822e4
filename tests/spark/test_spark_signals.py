"""Signals from Spark's tables, whose rows are blocks of samples, and into them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cql

RATE, BLOCK, BLOCKS = 100, 150, 20
MADE = f"""
    SELECT timestamp_micros(id * {BLOCK * 1_000_000 // RATE}) AS start, transform(
        sequence(0, {BLOCK - 1}), x -> CAST((id * {BLOCK} + x) * 7 % 31 AS SMALLINT)) AS ch0
    FROM range({BLOCKS})"""
WAVE = (np.arange(BLOCK * BLOCKS) * 7 % 31).astype(np.int16)


@pytest.mark.slow
def test_a_signal_of_a_spark_table_and_back(spark: Any) -> None:
    spark.sql(f"CREATE TABLE default.sounds USING parquet AS {MADE}")
    try:
        with cql.connect(spark=spark) as session:
            clauses = f"ORDERED BY start RATE {RATE} HZ"
            session.sql(f"CREATE STREAM heard FROM TABLE default.sounds {clauses}")
            found = session.sql("SELECT stddev(ch0) AS s FROM heard [ROWS 400 SLIDE 200]")
            windows = np.lib.stride_tricks.sliding_window_view(WAVE, 400)[::200]
            np.testing.assert_allclose(
                found.to_arrow()["s"].to_numpy(), windows.std(axis=1, ddof=1), rtol=1e-12
            )
            session.sql("""
                CREATE TABLE default.cut AS
                SELECT window_start AS start, ch0, rms(ch0) AS level
                FROM heard [ROWS 256 SLIDE 256 WITH RESTS]
            """)
            rows = spark.sql("SELECT start, ch0 FROM default.cut ORDER BY start").collect()
            assert spark.table("default.cut").dtypes[1] == ("ch0", "array<smallint>")
            assert [r.ch0 for r in rows] == [
                WAVE[k : k + 256].tolist() for k in range(0, len(WAVE), 256)
            ]
            session.sql(f"CREATE STREAM again FROM TABLE default.cut {clauses}")
            again = session.sql("SELECT start, ch0 FROM again").to_arrow()
            assert again.equals(session.sql("SELECT start, ch0 FROM heard").to_arrow())
            session.sql(
                "INSERT INTO default.cut SELECT window_start, ch0, 1.0 FROM heard"
                " [ROWS 3000 SLIDE 3000]"
            )
            assert spark.sql("SELECT sum(size(ch0)) FROM default.cut").first()[0] == 2 * len(WAVE)
    finally:
        spark.sql("DROP TABLE IF EXISTS default.cut")
        spark.sql("DROP TABLE default.sounds")
