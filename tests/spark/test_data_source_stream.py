"""``spark.readStream.format("cql")``: streaming queries of Spark, their checkpoints and crashes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.errors.exceptions.captured import StreamingQueryException

from cql.session.session import Session
from tests.support.spark_streams import closed_rows
from tests.support.view_tables import GROWING, TUMBLING, Base, rows_of


def stream(spark: Any, text: str, **options: Any) -> Any:
    return spark.readStream.format("cql").option("query", text).options(**options).load()


def test_checkpoints_and_crashes(
    spark: Any, session: Session, base: Callable[..., Base], tmp_path: Path
) -> None:
    """A batch that crashed before its commit comes again with the same rows, although its tables
    have more files by then."""
    one = base()
    text = one.text(TUMBLING)
    session.set("partitions", 2)
    try:
        session.register_in_spark([one.stream])
    finally:
        session.set("partitions", 0)
    kept: dict[int, list[str]] = {}
    crashed: list[list[str]] = []
    most = 0

    def keep(batch: Any, number: int) -> None:
        nonlocal most
        rows = [repr(row) for row in batch.toArrow().to_pylist()]
        most = max(most, batch.rdd.getNumPartitions())
        if number == 2 and not crashed:
            crashed.append(rows)
            raise RuntimeError("a crash before the commit")
        kept[number] = rows

    def run() -> None:
        writer = stream(spark, text, maxFilesPerTrigger=2).writeStream.foreachBatch(keep)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()

    one.add(one.rows(300, behind=90), files=3)
    run()
    assert sorted(kept) == [0, 1]
    one.add(one.rows(200, behind=90), files=2)
    with pytest.raises(StreamingQueryException, match="a crash before the commit"):
        run()
    one.add(one.rows(200, behind=90))
    run()
    assert sorted(kept) == [0, 1, 2, 3]
    assert kept[2] == crashed[0]
    rows = sorted(row for batch in kept.values() for row in batch)
    assert rows == closed_rows(session, text, [one], lambda row: row["window_end"])
    assert most > 1
    offsets = (tmp_path / "checkpoint" / "offsets" / "3").read_text("utf-8").splitlines()[-1]
    assert '"files": 6' in offsets
    assert len(offsets) < 400


def test_files_that_come_and_go(spark: Any, session: Session, base: Callable[..., Base]) -> None:
    one = base()
    text = one.text(GROWING["filter"])
    session.register_in_spark([one.stream])
    gone = one.add(one.rows(100), name="m")
    running = stream(spark, text).writeStream.format("memory").queryName("came").start()
    for name in ("k", "z"):
        running.processAllAvailable()
        found = sorted(map(repr, spark.table("came").toArrow().to_pylist()))
        assert found == rows_of(session, text)
        one.add(one.rows(100), files=2, name=name)
    gone.unlink()
    with pytest.raises(StreamingQueryException, match=f"file {gone} of .* was removed, and the"):
        running.processAllAvailable()
    spark.catalog.dropTempView("came")


def test_what_is_refused(
    spark: Any, session: Session, base: Callable[..., Base], tmp_path: Path
) -> None:
    one = base()
    session.register_in_spark([one.stream])
    text = one.text("SELECT k, count(*) AS n FROM {s} [SESSION 30 SECONDS] GROUP BY k")
    started = stream(spark, text).writeStream.format("noop").start()
    with pytest.raises(StreamingQueryException, match="sessions have no bounds") as caught:
        started.awaitTermination()
    lines = str(caught.value).split("\n")
    (caret,) = [n for n, line in enumerate(lines) if line.strip() == "^"]
    assert lines[caret - 1][lines[caret].index("^") :].startswith("[SESSION 30 SECONDS]")
    filtered = one.text(GROWING["filter"])
    started = stream(spark, filtered, fileOrder="name").writeStream.format("noop").start()
    with pytest.raises(StreamingQueryException, match="fileOrder is path or arrival, not name"):
        started.awaitTermination()
    batch = spark.read.format("cql").option("query", filtered).option("maxFilesPerTrigger", 1)
    with pytest.raises(AnalysisException, match="has no option maxfilespertrigger"):
        batch.load().count()
    written = stream(spark, filtered).writeStream.format("cql")
    started = written.option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(StreamingQueryException, match=r"writeStream\.format\('cql'\) is not supp"):
        started.awaitTermination()
