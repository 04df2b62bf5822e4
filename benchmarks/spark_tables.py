"""Q4, Q7 and Q9 from Spark tables into a Spark table, compared with Spark Structured Streaming.

Both engines read tables of parquet files and write one. Both run with a warm JVM and Java's default
compiler and collector (our own lean options would slow Spark down). Spark gets the whole table as
one batch, its fastest mode. Its append mode withholds the last windows, so its answer covers only
the closed windows.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import cql
from benchmarks import machine, q4, q7, sliding
from benchmarks.harness import Benchmark, Contender, Limit, Ratio
from benchmarks.ours import Ours, integers
from benchmarks.workloads import (
    FULL,
    FULL_SIDE,
    LATE,
    SECOND,
    Answer,
    Workload,
    checksum,
    flows,
    links,
    load,
    packets,
    parquet_parts,
)

JAVA = "-XX:TieredStopAtLevel=4 -XX:-UseSerialGC -XX:+UseG1GC"
SETTINGS = {"spark.driver.memory": "4g", "spark.driver.extraJavaOptions": JAVA}
PEAK = "peak Python MB"
OURS, SPARK = "ours", "spark structured streaming"
IN_MEMORY = "ours, from memory to Arrow"


@dataclass(frozen=True, slots=True)
class Work:
    """A query over the rows of ``make``, which may come ``slack`` seconds late. ``streaming`` is
    the same query over Spark streams with watermarks. ``columns`` are the columns of the result;
    the first ``compared`` of them are compared. ``answer`` covers all windows. ``sides``: the
    streams, and the prefixes of their columns."""

    name: str
    title: str
    make: Callable[[int], Workload]
    query: str
    columns: str
    compared: int
    answer: str
    streaming: Callable[..., Any]
    slack: int = 0
    sides: Mapping[str, str] = field(default_factory=lambda: {"m": ""})

    def of_table(self, made: Any) -> Answer:
        return checksum(*(integers(made.column(i)) for i in range(self.compared)))


def _counted(stream: Any) -> Any:
    from pyspark.sql import functions as f

    return (
        stream.groupBy(f.window("ts", "10 seconds"), "srcIP", "destIP")
        .agg(f.count("*").alias("packets"))
        .select(f.col("window.start").alias("window_start"), "srcIP", "destIP", "packets")
    )


def _slid(stream: Any) -> Any:
    from pyspark.sql import functions as f

    measures = [
        f.count("*").alias("packets"),
        f.sum("len").alias("total"),
        f.min("len").alias("least"),
        f.max("len").alias("most"),
        f.avg("len").alias("mean"),
    ]
    grouped = stream.groupBy(f.window("ts", "5 minutes", "1 minute"), "srcIP").agg(*measures)
    names = ("srcIP", "packets", "total", "least", "most", "mean")
    return grouped.select(f.col("window.start").alias("window_start"), *names)


def _matched(left: Any, right: Any) -> Any:
    from pyspark.sql import functions as f

    second = f.expr("INTERVAL 1 SECOND")
    here, there = left.alias("m1"), right.alias("m2")
    condition = f.col("m1.ts").between(f.col("m2.ts") - second, f.col("m2.ts") + second)
    for one, other in q7.KEYS.items():
        condition &= f.col(f"m1.{one}") == f.col(f"m2.{other}")
    return (
        here.join(there, condition)
        .groupBy(f.window("m1.ts", "10 seconds"))
        .agg(f.count("*").alias("n"))
        .select(f.col("window.start").alias("window_start"), "n")
    )


Q4 = Work(
    "q4-spark",
    "Q4 from a Spark table into a Spark table",
    packets,
    q4.QUERY,
    "window_start TIMESTAMP, srcIP INT, destIP INT, packets BIGINT",
    4,
    "counts",
    _counted,
)
#: The three links in one table, in order of arrival. avg, a double, is not compared.
Q9 = Work(
    "q9-spark",
    "5 minutes by 1, count, sum, min, max and avg by 1,000 addresses, Spark tables",
    links,
    sliding.GROUPS.replace("A UNION B UNION C AS m", "m"),
    "window_start TIMESTAMP, srcIP INT, packets BIGINT, total BIGINT, least INT, most INT,"
    " mean DOUBLE",
    6,
    "groups",
    _slid,
    LATE // SECOND,
)


Q7 = Work(
    "q7-spark",
    "Q7 from two Spark tables into a Spark table",
    flows,
    q7.QUERY,
    "window_start TIMESTAMP, n BIGINT",
    2,
    "matches",
    _matched,
    sides=q7.SIDES,
)


def q4_spark(rows: int | None = None, folder: Path | None = None, spark: Any = None) -> Benchmark:
    """``spark`` is the session to use; by default one is started here and stopped at the end."""
    limits = [Limit(OURS, 1000, PEAK)]
    return _beside_spark(Q4, rows, folder, spark, {}, [Ratio(OURS, SPARK, 10)], limits)


def q9_spark(rows: int | None = None, folder: Path | None = None, spark: Any = None) -> Benchmark:
    """Also from memory to Arrow, on one thread, as the benchmark ``q9``."""
    memory = sliding.Links(sliding.GROUPS, load(links, rows or FULL, folder))
    own = Contender(IN_MEMORY, memory.run, Q9.of_table, notes=memory.notes, pinned=True)
    ratios = [Ratio(IN_MEMORY, SPARK, 30), Ratio(OURS, SPARK)]
    return _beside_spark(Q9, rows, folder, spark, {IN_MEMORY: own}, ratios, [])


def q7_spark(rows: int | None = None, folder: Path | None = None, spark: Any = None) -> Benchmark:
    """Also from memory to Arrow, on one thread, as the benchmark ``q7``."""
    size = rows or FULL_SIDE
    memory = Ours(q7.QUERY, **q7.streams(load(flows, size, folder)))
    own = Contender(IN_MEMORY, memory.run, q7.matches, notes=memory.notes, pinned=True)
    ratios = [Ratio(IN_MEMORY, SPARK, 50), Ratio(OURS, SPARK)]
    return _beside_spark(Q7, size, folder, spark, {IN_MEMORY: own}, ratios, [])


def _beside_spark(
    work: Work,
    rows: int | None,
    folder: Path | None,
    spark: Any,
    more: Mapping[str, Contender],
    ratios: list[Ratio],
    limits: list[Limit],
) -> Benchmark:
    from cql.catalog.spark import session

    size = rows or FULL
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as other:
        # Another process makes the data, so that it never counts as memory of this one.
        tables = {}
        for stream, side in work.sides.items():
            made = other.submit(parquet_parts, work.make, size, folder, side=side)
            tables[stream], answers = made.result()
    scratch = Path(tempfile.mkdtemp(prefix="cql-benchmark-"))
    own = spark is None
    spark = session.start(SETTINGS, scratch / "warehouse") if own else spark
    for stream, files in tables.items():
        spark.catalog.createTable(_source(stream), path=str(files), source="parquet")
    ours, theirs = _Ours(spark, work), _Streaming(spark, work, scratch)

    def close() -> None:
        for side in (ours, theirs):
            side.drop()
        for stream in tables:
            spark.catalog.dropTable(_source(stream))
        if own:
            session.stop()
        shutil.rmtree(scratch, ignore_errors=True)

    return Benchmark(
        work.name,
        f"{work.title}: {size:,} packets{' each way' * (len(tables) > 1)}, warm JVM",
        size * len(tables),
        answers[work.answer],
        [
            Contender(OURS, ours.run, ours.answer, ours.prepare, notes=ours.notes),
            *more.values(),
            Contender(SPARK, theirs.run, theirs.answer, theirs.prepare, expected=answers["closed"]),
        ],
        ratios,
        limits,
        bandwidth=False,
        close=close,
    )


def _source(stream: str) -> str:
    """A unique name, because a given session may hold other tables."""
    return f"bench_source_{stream}"


class _Side:
    """One engine; each run writes into a new empty table, made before the clock starts."""

    def __init__(self, spark: Any, work: Work, prefix: str) -> None:
        self._spark = spark
        self._work = work
        self._names: Callable[[], str] = map(f"{prefix}_{{}}".format, itertools.count()).__next__
        self._target: str | None = None

    def answer(self, _: Any) -> Answer:
        return self._work.of_table(self._spark.table(self._target).toArrow())

    def drop(self) -> None:
        if self._target is not None:
            self._spark.catalog.dropTable(self._target)
            self._target = None


class _Ours(_Side):
    def __init__(self, spark: Any, work: Work) -> None:
        super().__init__(spark, work, "bench_ours")
        self._session = cql.connect(spark=spark)
        slack = f"{work.slack} seconds" if work.slack else None
        for stream in work.sides:
            self._session.create_stream(
                stream, _source(stream), ordered_by="ts", slack=slack, replace=True
            )

    def prepare(self) -> None:
        self.drop()
        self._target = self._names()
        self._session.sql(f"CREATE TABLE {self._target} ({self._work.columns})")
        machine.forget_peak()

    def run(self) -> Any:
        return self._session.sql(f"INSERT INTO {self._target} {self._work.query}")

    def notes(self, _: Any) -> Mapping[str, float]:
        return {PEAK: machine.peak_mb()}

    def drop(self) -> None:
        if self._target is not None:
            self._session.sql(f"DROP TABLE {self._target}")
            self._target = None


class _Streaming(_Side):
    def __init__(self, spark: Any, work: Work, scratch: Path) -> None:
        super().__init__(spark, work, "bench_streaming")
        self._scratch = scratch

    def prepare(self) -> None:
        self.drop()
        self._target = self._names()

    def run(self) -> None:
        assert self._target is not None
        streams = [
            self._spark.readStream.table(_source(stream)).withWatermark(
                "ts", f"{self._work.slack} seconds"
            )
            for stream in self._work.sides
        ]
        query = (
            self._work.streaming(*streams)
            .writeStream.outputMode("append")
            .option("checkpointLocation", str(self._scratch / f"checkpoint-{self._target}"))
            .trigger(availableNow=True)
            .toTable(self._target, format="parquet")
        )
        query.awaitTermination()
