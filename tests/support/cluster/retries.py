"""The driver of ``test_retries``: tasks whose first attempt dies or is slow, on a cluster.

    python -m tests.support.cluster.retries FOLDER MASTER

Prints a line of JSON for each run: its name, what is wrong (empty: nothing), and whether a second
attempt of the disturbed task began. Spark's log of events lies in FOLDER/events."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyspark

from cql.session.session import Session
from tests.support.cluster.start import session
from tests.support.task_tables import Tables

SETTINGS = {
    "spark.speculation": "true",
    "spark.speculation.interval": "20ms",
    "spark.speculation.quantile": "0.2",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.minTaskRuntime": "20ms",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.rolling.enabled": "false",
    "spark.eventLog.compress": "false",
}
#: The first attempt of the disturbed task dies, waits until a second one has begun and races it, or
#: waits until Spark kills it.
DIE, RACE, SLOW, CALM = "die", "race", "slow", "calm"
TASKS, DISTURBED = 4, 1
#: What functions in tasks know: the folder of the flags of a run, and what disturbs it.
FLAGS, KIND = "", CALM

BY = {
    "rows": "SELECT ts, k, hurt(v) AS v FROM {s} WHERE v < 80 ON BAD ROW KEEP",
    "time": "SELECT k, count(*) AS n, sum(hurt(v)) AS s, window_end FROM {s}"
    " [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY k ON BAD ROW KEEP",
    "key": "SELECT k, count(*) AS n, sum(hurt(v)) AS s, window_start FROM {s}"
    " [SESSION 20 SECONDS] GROUP BY k ON BAD ROW KEEP",
    "frame": "SELECT k, count(*) AS n, sum(v) AS s, window_start FROM frame"
    " [SESSION 20 SECONDS] GROUP BY k",
}


def is_first(name: str) -> bool:
    """Whether no other attempt has set the flag."""
    try:
        os.close(os.open(f"{FLAGS}/{name}", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def disturb() -> None:
    """In the disturbed task of each stage: dies or waits in the first attempt."""
    context = pyspark.TaskContext.get()
    if context is None or context.partitionId() != DISTURBED or KIND == CALM:
        return
    stage = context.stageId()
    if context.attemptNumber() > 0:
        is_first(f"second {stage}")
    elif is_first(f"first {stage}"):
        if KIND == DIE:
            os.kill(os.getpid(), signal.SIGKILL)
        for _ in range(6000):
            if KIND == RACE and os.path.exists(f"{FLAGS}/second {stage}"):
                return
            time.sleep(0.01)


def hurt(v: int) -> int:
    disturb()
    if v == 13:
        raise ValueError("a bad number")
    return v + 1


def rows_of(parts: Iterable[int]) -> Iterator[tuple[datetime, int, int]]:
    """Rows of a partition of the frame; the times of two partitions overlap."""
    start = datetime(2024, 1, 1, tzinfo=UTC)
    for part in parts:
        disturb()
        for n in range(500):
            yield start + timedelta(seconds=3 * (part * 400 + n)), n * 7 % 5, n


class Runs:
    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        tables = Tables(spark, folder)
        self.session: Session = tables.session
        self.stream = tables.stream("many late")
        self.session.set("partitions", TASKS)

    def disturbed(self, kind: str, name: str) -> None:
        """What follows is disturbed so, with flags of its own."""
        global FLAGS, KIND
        FLAGS, KIND = str(self.folder / name), kind
        (self.folder / name).mkdir()
        self.session.function(hurt)
        parts = self.spark.sparkContext.parallelize(range(4), 4)
        frame = self.spark.createDataFrame(
            parts.mapPartitions(rows_of), "ts timestamp, k bigint, v bigint"
        )
        self.session.create_stream("frame", frame, ordered_by="ts", slack="1 minute", replace=True)

    def answer(self, by: str, runtime: str, through: str) -> dict[str, Any]:
        """The rows, ledgers and counts of a run whose result comes ``through`` here, a frame of
        Spark or a table."""
        self.session.set("runtime", runtime)
        self.session.set("tasks_by", "key" if by in ("key", "frame") else "time")
        query = self.session.sql(BY[by].format(s=self.stream))
        if through == "here":
            rows = query.to_arrow()
        elif through == "frame":
            rows = query.to_spark().toArrow()
        else:
            self.spark.sql("DROP TABLE IF EXISTS default.written")
            query.writeTo("default.written").using("parquet").create()
            rows = self.spark.table("default.written").toArrow()
        late = [e for e in query.late().to_pylist() if e["kind"] in ("rows", "pairs", "left out")]
        progress = query.progress()
        return {
            "rows": sorted(map(repr, rows.to_pylist())),
            "late": late,
            "bad": sorted(map(repr, query.bad_rows().to_pylist())),
            "counts": [progress.rows_in, progress.rows_out, progress.late, progress.bad],
            "metrics": [
                {n: v for n, v in e.items() if n not in ("nanoseconds", "peak_bytes")}
                for e in query._run.metrics()
            ],
        }

    def wrong(self, by: str, kind: str, through: str) -> list[Any]:
        name = f"{by} {kind} {through}"
        self.disturbed(CALM, f"{name} calm")
        here = self.answer(by, "depth_first", "here")
        calm = self.answer(by, "spark", through)
        self.disturbed(kind, name)
        found = self.answer(by, "spark", through)
        differs = [n for n in ("rows", "late", "bad") if found[n] != here[n]]
        differs += [f"{n} of a calm run" for n in found if found[n] != calm[n]]
        shown = [f"{n}: {str(found[n.split()[0]])[:300]}" for n in differs]
        return [name, shown, any((self.folder / name).glob("second *"))]


def main(folder: Path, master: str) -> None:
    (folder / "events").mkdir()
    settings = {"spark.master": master, "spark.eventLog.dir": (folder / "events").as_uri()}
    spark = session(folder, {**SETTINGS, **settings})
    (folder / "tables").mkdir()
    runs = Runs(spark, folder / "tables")
    for n, by in enumerate(BY):  # each with each kind and each way out
        for k, kind in enumerate((DIE, RACE, SLOW)):
            through = ("here", "frame", "table")[(n + k) % 3]
            print(json.dumps(runs.wrong(by, kind, through)), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
