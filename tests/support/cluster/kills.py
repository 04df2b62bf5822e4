"""The driver of ``test_kills``: writes the answer of a query into tables, from tasks on a cluster.

    python -m tests.support.cluster.kills FOLDER DATA

Takes lines from its input: ``insert``, ``create`` (by Spark's own writer) or ``read``, each with
the name of a table, or ``here`` for a run in this process. Prints a line of JSON when a job begins,
and one with the rows of the table, or the result, behind each line of its input."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import cql
from cql.session.session import Session
from tests.support.cluster.start import session
from tests.support.task_tables import SECOND

ROWS, FILES, TASKS = 1_200_000, 12, 12
QUERY = """SELECT k, count(*) AS n, sum(v) AS s, window_end FROM rows
    [RANGE 1 MINUTE SLIDE 10 SECONDS] GROUP BY k"""
COLUMNS = "k BIGINT, n BIGINT, s BIGINT, window_end TIMESTAMP"
#: Executors that were killed often are not shunned, and start again.
SETTINGS = {
    "spark.task.maxFailures": "20",
    "spark.excludeOnFailure.enabled": "false",
    "spark.deploy.maxExecutorRetries": "-1",
}


def written(folder: Path) -> None:
    """The files that the query reads: a third of the rows is late."""
    rng, share = np.random.default_rng(3), ROWS // FILES
    (folder / "rows").mkdir()
    for n in range(FILES):
        times = np.arange(n * share, (n + 1) * share) * 3000
        times -= rng.integers(0, 3 * SECOND, share)
        part = {
            "ts": pa.array(times, pa.timestamp("us", tz="UTC")),
            "k": rng.integers(0, 500, share),
            "v": rng.integers(0, 1000, share),
        }
        pq.write_table(pa.table(part), folder / "rows" / f"{n:02}.parquet", row_group_size=20_000)


def declared(spark: Any, folder: Path) -> Session:
    """A session with the stream of the rows."""
    spark.catalog.createTable("source_rows", path=str(folder / "rows"), source="parquet")
    made = cql.connect(spark=spark)
    made.create_stream("rows", "source_rows", ordered_by="ts", slack="2 seconds", replace=True)
    return made


def answer(rows: pa.Table) -> list[int]:
    """The number of rows, and sums of their columns."""
    ends = rows["window_end"].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    mixed = pc.multiply(pc.bit_wise_xor(ends, rows["s"]), pc.add(rows["k"], 1))
    return [rows.num_rows, *(pc.sum(c).as_py() or 0 for c in (rows["k"], rows["n"], mixed))]


def main(folder: Path, data: Path) -> None:
    spark = session(folder, SETTINGS, data / "warehouse")
    engine = declared(spark, data)
    engine.set("partitions", TASKS)
    for line in sys.stdin:
        what, name = line.split()
        if what == "here":
            engine.set("runtime", "depth_first")
            print(json.dumps(answer(engine.sql(QUERY).to_arrow())), flush=True)
            continue
        if what != "create":
            place = (data / "tables" / name).as_uri()
            spark.sql(
                f"CREATE TABLE IF NOT EXISTS {name} ({COLUMNS}) USING parquet LOCATION '{place}'"
            )
        if what != "read":
            engine.set("runtime", "spark")
            print(json.dumps("begins"), flush=True)
        if what == "insert":
            engine.sql(f"INSERT INTO {name} {QUERY}")
        elif what == "create":
            engine.sql(QUERY).writeTo(name).using("parquet").create()
        print(json.dumps(answer(spark.table(name).toArrow())), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
