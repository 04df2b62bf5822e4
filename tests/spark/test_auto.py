"""The runtime auto over tables of Spark: what the planner knows of them, and where it runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pyspark
import pytest

import cql
from cql.catalog.spark import session as spark_session
from cql.planner.nodes.catalog import Statistics
from tests.support.paths import ROOT
from tests.support.task_tables import disordered, stored

ROWS = 14_000


def statistics(session: cql.Session, name: str) -> Statistics:
    found = session._catalog.find(tuple(name.split(".")))
    assert found is not None
    return found.statistics


def test_tables_of_few_and_of_many_files(spark: Any, tmp_path: Path) -> None:
    """The statistics of 64 files are exact, those of 70 are an estimate, which nothing shows as a
    count of rows. On ``local[2]``, auto runs both tables here."""
    rows = disordered("files", ROWS, slack=3.0)
    assert spark_session.tasks_at_once(spark) == len(os.sched_getaffinity(0))
    assert spark_session.is_local(spark)
    with cql.connect(spark) as session:
        names = {n: stored(spark, tmp_path / f"of_{n}", rows, 1000, files=n) for n in (64, 70)}
        few, many = (statistics(session, names[n]) for n in (64, 70))
        assert (few.rows, few.estimated_rows, few.expected_rows) == (ROWS, None, ROWS)
        assert many.rows is None
        assert many.estimated_rows == many.expected_rows
        assert many.expected_rows == pytest.approx(ROWS, rel=0.1)
        assert few.nulls["w"] == rows["w"].null_count > many.nulls["w"] > 0

        whole, group = few.extents["ts"]
        times = rows["ts"].cast("int64").to_numpy()
        assert whole == times.max() - times.min()
        lengths = [
            held.statistics.max.timestamp() - held.statistics.min.timestamp()
            for file in sorted((tmp_path / "of_64").glob("*.parquet"))
            for footer in [pq.read_metadata(file)]
            for held in (footer.row_group(n).column(0) for n in range(footer.num_row_groups))
        ]
        assert group == pytest.approx(sum(lengths) / len(lengths) * 1e6, abs=1)
        assert many.extents["ts"] == pytest.approx(few.extents["ts"], rel=0.2)
        assert set(few.extents) == {"ts", "k", "v"}

        shown = session.sql("SHOW TABLES").to_arrow().to_pylist()
        counts = {row["table"].rpartition(".")[2]: row["rows"] for row in shown}
        assert {counts[name.rpartition(".")[2]] for name in names.values()} == {ROWS, None}
        for name in names.values():
            query = session.sql(f"SELECT k, count(*) AS n FROM {name} GROUP BY k")
            assert sum(query.to_arrow()["n"].to_pylist()) == ROWS
            assert query.progress().total_rows == (ROWS if name == names[64] else None)
            assert "Spark" not in query.explain()
            assert query._plan.runtime.name != "spark"


SCRIPT = """
import sys
from pathlib import Path

import cql
from cql.catalog.spark import session as spark_session
from cql.planner.placement import break_even
from tests.support.task_tables import disordered, stored

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    wanted = {"spark.master": "local-cluster[2,1,1024]", "spark.executor.memory": "1g"}
    spark = spark_session.start(wanted, warehouse=folder / "warehouse")
    rows = disordered("cluster", 40_000, slack=3.0)
    table = stored(spark, folder / "rows", rows, 1000)
    session = cql.connect(spark)
    session.sql(
        f"CREATE STREAM default.clicks FROM TABLE {table}"
        " WATERMARK FOR ts AS ts - INTERVAL 2 SECONDS"
    )
    heavy = " + ".join(f"sin(v + {k})" for k in range(9))
    text = f"SELECT count(*) AS n, max({heavy}) AS s, window_end FROM default.clicks"
    text += " [RANGE 1 MINUTE SLIDE 1 MINUTE]"

    here = session.sql(text)
    assert here._plan.runtime.name == "depth_first", here.explain()
    assert "; Spark's 2 cores would be sooner from about" in here.explain(), here.explain()
    expected, late = here.to_arrow(), here.late()

    break_even.START, break_even.TASK, break_even.TASK_ROWS = 0.0, 0.0, 1
    session.set("partitions", 4)
    there = session.sql(text)
    print(there.explain().splitlines()[-2])
    assert there._plan.runtime.name == "spark"
    assert there.to_arrow().equals(expected)
    assert there.late().column("count")[0] == late.column("count")[0]
    assert "on Spark ran the query" in there.explain("analyze")
    assert "def " in there.explain("kernel")
    assert there.explain("kernel") == here.explain("kernel")
    session.set("workers", 1)
    assert session.sql(text)._plan.runtime.name == "depth_first"
    session.set("workers", 0)
    hidden = (lambda offset: lambda x: x + offset)(3)
    session.register_function("hidden", hidden, args=["bigint"], returns="bigint")
    refused = session.sql(text.replace("count(*)", "sum(hidden(v))"))
    assert refused._plan.runtime.name != "spark"
    assert "; not on Spark: " in refused.explain()
    print(refused.explain().splitlines()[-2])
    refused.to_arrow()
    session.close()
    spark_session.stop()
    print("done")
"""


@pytest.mark.slow
def test_on_a_cluster(tmp_path: Path, full: bool) -> None:
    """Two executors with a core each, in processes of their own. With the figures as they are, auto
    runs a small table here; without the costs of a start, on the executors, with the same rows."""
    if not full:
        pytest.skip("starts a cluster; --full")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, "utf-8")
    home = tmp_path / "spark"  # the executors write their work below it
    home.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        if entry.name != "work":
            (home / entry.name).symlink_to(entry)
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    places = {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        env={**os.environ, **places},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-5000:]
    assert "runtime: spark (tasks by time, " in done.stdout
    assert done.stdout.endswith("done\n")
