"""Queries in tasks on Spark's executors, beside Spark's own operators and a run in this process.

The tables are Parquet files of 250,000 rows a row group, with times up to two seconds out of order;
no row is late. Spark's operators write into its sink ``noop``; our results come back to the driver.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import cql
from benchmarks.harness import Benchmark, Contender, Ratio
from benchmarks.ours import integers
from benchmarks.spark_tables import SETTINGS
from benchmarks.workloads import T0, Answer, checksum

ROWS, KEYS = 8_000_000, 65_536
#: Rounds that do not count: the JVM compiles the code of both sides ever better through so many.
WARM = 10
TASKS, HERE, SPARK = "tasks on Spark", "ours, in this process", "Spark's operators"
#: Microseconds between two rows, and the most that a row is out of order.
STEP, DISORDER = 60, 2_000_000


@dataclass(frozen=True, slots=True)
class Work:
    """``goal`` is the least speed beside Spark's operators; ``share`` the part of the rows that
    each table has; ``native`` the same over DataFrames of the tables; ``by`` is ``tasks_by``;
    ``rows`` and ``keys`` the size of the tables; ``warm`` the rounds before those that count."""

    query: str
    native: Callable[..., Any]
    goal: float
    tables: int = 1
    share: int = 1
    by: str = "time"
    rows: int = ROWS
    keys: int = KEYS
    warm: int = WARM


def _counted(window: str, *lengths: str) -> Callable[[Any], Any]:
    def native(frame: Any) -> Any:
        from pyspark.sql import functions as f

        grouped = frame.groupBy(getattr(f, window)("ts", *lengths), "k")
        counted = grouped.agg(f.count("*").alias("n"), f.sum("v").alias("s"))
        return counted.select("k", "n", "s", f.col(f"{window}.end").alias("window_end"))

    return native


def _joined(left: Any, right: Any) -> Any:
    from pyspark.sql import functions as f

    a, b = left.alias("a"), right.alias("b")
    second = f.expr("INTERVAL 1 SECOND")
    near = f.col("b.ts").between(f.col("a.ts") - second, f.col("a.ts") + second)
    return a.join(b, (f.col("a.k") == f.col("b.k")) & near).select("a.k", "a.v", "b.v", "a.ts")


COUNT = "SELECT k, count(*) AS n, sum(v) AS s, window_end FROM bench_t0 [RANGE {}] GROUP BY k"
WORK: Mapping[str, Work] = {
    "tumbling": Work(
        COUNT.format("1 MINUTE SLIDE 1 MINUTE"), _counted("window", "1 minute"), 1 / 0.35
    ),
    "sliding": Work(
        COUNT.format("5 MINUTES SLIDE 1 MINUTE"), _counted("window", "5 minutes", "1 minute"), 5
    ),
    "levels": Work(
        COUNT.format("1 MINUTE SLIDE 1 MINUTE"),
        _counted("window", "1 minute"),
        1 / 0.45,
        by="two_levels",
    ),
    "by-key": Work(
        COUNT.format("1 MINUTE SLIDE 1 MINUTE"), _counted("window", "1 minute"), 1 / 1.2, by="key"
    ),
    "sessions": Work(
        "SELECT k, count(*) AS n, sum(v) AS s, session_window.end AS window_end FROM bench_t0"
        " GROUP BY k, session_window(ts, '5 seconds')",
        _counted("session_window", "5 seconds"),
        2,
        by="key",
    ),
    "join": Work(
        "SELECT a.k, a.v, b.v AS w, a.ts FROM bench_t0 AS a JOIN bench_t1 AS b ON a.k = b.k"
        " AND b.ts BETWEEN a.ts - INTERVAL 1 SECOND AND a.ts + INTERVAL 1 SECOND",
        _joined,
        2,
        tables=2,
        share=4,
    ),
}
#: More rows than fit in memory.
LARGE: Mapping[str, Work] = {
    "large": replace(WORK["tumbling"], goal=1, rows=500_000_000, keys=1024, warm=1)
}


def tasks(
    name: str, rows: int | None = None, folder: Path | None = None, spark: Any = None
) -> Benchmark:
    """``spark`` is the session to use; by default one is started here and stopped at the end."""
    from cql.catalog.spark import session

    work = {**WORK, **LARGE}[name]
    size = (rows or work.rows) // work.share
    scratch = Path(tempfile.mkdtemp(prefix="cql-benchmark-", dir=folder))
    own = spark is None
    spark = session.start(SETTINGS, scratch / "warehouse") if own else spark
    ours = cql.connect(spark=spark)
    for k in range(work.tables):
        files = _written(scratch / f"t{k}", size, work.keys, seed=k)
        spark.catalog.createTable(f"bench_rows{k}", path=str(files), source="parquet")
        ours.create_stream(f"bench_t{k}", f"bench_rows{k}", ordered_by="ts", slack="2 seconds")

    def close() -> None:
        ours.close()
        for k in range(work.tables):
            spark.catalog.dropTable(f"bench_rows{k}")
        if own:
            session.stop()
        shutil.rmtree(scratch, ignore_errors=True)

    def run(runtime: str) -> Any:
        ours.set("runtime", runtime)
        ours.set("tasks_by", work.by)
        return ours.sql(work.query).to_arrow()

    def native() -> Any:
        frame = work.native(*(spark.table(f"bench_rows{k}") for k in range(work.tables)))
        frame.write.format("noop").mode("overwrite").save()
        return frame

    expected = _answer(run("depth_first"))
    return Benchmark(
        f"tasks-{name}",
        f"{work.query}: {size:,} rows a table, {work.keys:,} keys, warm JVM",
        size * work.tables,
        expected,
        [
            Contender(TASKS, partial(run, "spark"), _answer),
            Contender(SPARK, native, lambda frame: _answer(frame.toArrow())),
            Contender(HERE, partial(run, "depth_first"), _answer),
        ],
        [Ratio(TASKS, SPARK, work.goal), Ratio(TASKS, HERE)],
        bandwidth=False,
        warm=work.warm,
        close=close,
    )


def _answer(made: Any) -> Answer:
    return checksum(*(integers(made.column(i)) for i in range(4)))


def _written(folder: Path, rows: int, keys: int, seed: int) -> Path:
    """Eight files, or more of twenty million rows."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(seed)
    folder.mkdir()
    share = min(-(-rows // 8), 20_000_000)
    for k, begin in enumerate(range(0, rows, share)):
        many = min(share, rows - begin)
        times = T0 + np.arange(begin, begin + many, dtype=np.int64) * STEP
        part = pa.table(
            {
                "ts": pa.array(
                    times - rng.integers(0, DISORDER, many), pa.timestamp("us", tz="UTC")
                ),
                "k": rng.integers(0, keys, many),
                "v": rng.integers(0, 1000, many),
            }
        )
        pq.write_table(part, folder / f"part-{k:05d}.parquet", row_group_size=250_000)
    return folder
