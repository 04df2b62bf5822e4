"""Signals from Spark's tables, whose rows are blocks of samples, and into them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cql
from cql.session.session import CqlWarning

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
            session.sql(f"CREATE STREAM default.kept FROM TABLE default.sounds {clauses}")
            query = "SELECT window_start, hann(ch0) AS ch0 FROM default.kept [ROWS 256 SLIDE 128]"
            session.sql(f"CREATE MATERIALIZED VIEW default.parts AS {query}")
            session.sql("CREATE MATERIALIZED VIEW default.flat AS SELECT start, ch0 AS x"
                        " FROM default.kept WHERE ch0 > 9")  # fmt: skip
            more = MADE.replace(f"range({BLOCKS})", f"range(0, {2 * BLOCKS}, 1, 1)")
            spark.sql(f"INSERT OVERWRITE default.sounds {more}")
            for view in ("parts", "flat"):
                with pytest.warns(CqlWarning, match="was computed anew: "):
                    session.sql(f"REFRESH MATERIALIZED VIEW default.{view}")
            rows = spark.sql("SELECT ch0 FROM default.parts ORDER BY window_start").collect()
            assert [r.ch0 for r in rows] == session.sql(query).to_arrow()["ch0"].to_pylist()
            assert len(rows) == (2 * len(WAVE) - 128) // 128
            flat = [r.x for r in spark.sql("SELECT x FROM default.flat ORDER BY start").collect()]
            whole = np.arange(2 * len(WAVE)) * 7 % 31
            assert flat == whole[whole > 9].tolist()
            assert spark.table("default.parts").dtypes[1] == ("ch0", "array<double>")
    finally:
        spark.sql("DROP TABLE IF EXISTS default.parts")
        spark.sql("DROP TABLE IF EXISTS default.flat")
        spark.sql("DROP TABLE IF EXISTS default.kept")
        spark.sql("DROP TABLE IF EXISTS default.cut")
        spark.sql("DROP TABLE default.sounds")
