"""Q4 from a Spark table into a Spark table, beside Spark Structured Streaming.

Both read one table of parquet files and write one; both run with the JVM warm, with Java's default
compiler and collector (the lean ones that we would start with ourselves slow Spark down). Spark
gets the whole table as one batch, which is its fastest, and holds no slack. Its append mode keeps
the last window back, so its answer is that of the closed windows.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import cql
from benchmarks import machine
from benchmarks.harness import Benchmark, Contender, Limit, Ratio
from benchmarks.q4 import QUERY, counts
from benchmarks.workloads import FULL, packets, parquet_parts

JAVA = "-XX:TieredStopAtLevel=4 -XX:-UseSerialGC -XX:+UseG1GC"
SETTINGS = {"spark.driver.memory": "4g", "spark.driver.extraJavaOptions": JAVA}
COLUMNS = "window_start TIMESTAMP, srcIP INT, destIP INT, packets BIGINT"
PEAK = "peak Python MB"


def q4_spark(rows: int | None = None, folder: Path | None = None, spark: Any = None) -> Benchmark:
    """``spark`` is a session to run in; by default one is started here and stopped at the end."""
    from cql.catalog import spark_session

    size = rows or FULL
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as other:
        # Elsewhere, so that the data never counts as memory of this process.
        files, answers = other.submit(parquet_parts, packets, size, folder).result()
    scratch = Path(tempfile.mkdtemp(prefix="cql-benchmark-"))
    own = spark is None
    spark = spark_session.start(SETTINGS, scratch / "warehouse") if own else spark
    # Tables of their own names: a session that was given may hold others.
    spark.catalog.createTable("bench_packets", path=str(files), source="parquet")
    ours, theirs = _Ours(spark), _Streaming(spark, scratch)

    def close() -> None:
        for side in (ours, theirs):
            side.drop()
        spark.catalog.dropTable("bench_packets")
        if own:
            spark_session.stop()
        shutil.rmtree(scratch, ignore_errors=True)

    return Benchmark(
        "q4-spark",
        f"Q4 from a Spark table into a Spark table: {size:,} packets, warm JVM",
        size,
        answers["counts"],
        [
            Contender("ours", ours.run, ours.answer, ours.prepare, notes=ours.notes),
            Contender(
                "spark structured streaming",
                theirs.run,
                theirs.answer,
                theirs.prepare,
                expected=answers["closed"],
            ),
        ],
        [Ratio("ours", "spark structured streaming", 10)],
        [Limit("ours", 1000, PEAK)],
        bandwidth=False,
        close=close,
    )


class _Side:
    """Each run writes into a new and empty table, made before the clock starts."""

    def __init__(self, spark: Any, prefix: str) -> None:
        self._spark = spark
        self._names: Callable[[], str] = map(f"{prefix}_{{}}".format, itertools.count()).__next__
        self._target: str | None = None

    def answer(self, _: Any) -> Any:
        return counts(self._spark.table(self._target).toArrow())

    def drop(self) -> None:
        if self._target is not None:
            self._spark.catalog.dropTable(self._target)
            self._target = None


class _Ours(_Side):
    def __init__(self, spark: Any) -> None:
        super().__init__(spark, "bench_ours")
        self._session = cql.connect(spark=spark)
        self._session.create_stream("m", "bench_packets", ordered_by="ts", replace=True)

    def prepare(self) -> None:
        self.drop()
        self._target = self._names()
        self._session.sql(f"CREATE TABLE {self._target} ({COLUMNS})")
        machine.forget_peak()

    def run(self) -> Any:
        return self._session.sql(f"INSERT INTO {self._target} {QUERY}")

    def notes(self, _: Any) -> Mapping[str, float]:
        return {PEAK: machine.peak_mb()}

    def drop(self) -> None:
        if self._target is not None:
            self._session.sql(f"DROP TABLE {self._target}")
            self._target = None


class _Streaming(_Side):
    def __init__(self, spark: Any, scratch: Path) -> None:
        super().__init__(spark, "bench_streaming")
        self._scratch = scratch

    def prepare(self) -> None:
        self.drop()
        self._target = self._names()

    def run(self) -> None:
        from pyspark.sql import functions as f

        assert self._target is not None
        counted = (
            self._spark.readStream.table("bench_packets")
            .withWatermark("ts", "0 seconds")
            .groupBy(f.window("ts", "10 seconds"), "srcIP", "destIP")
            .agg(f.count("*").alias("packets"))
            .select(f.col("window.start").alias("window_start"), "srcIP", "destIP", "packets")
        )
        query = (
            counted.writeStream.outputMode("append")
            .option("checkpointLocation", str(self._scratch / f"checkpoint-{self._target}"))
            .trigger(availableNow=True)
            .toTable(self._target, format="parquet")
        )
        query.awaitTermination()
