"""Tasks in two levels on Spark: the rows, their order and the ledgers of a run in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cql.errors import NotSupportedError, RunError
from tests.support.runtimes import share
from tests.support.task_tables import KINDS, Tables, answer

CALLS = (
    *("count(*) AS n", "count(w) AS c", "sum(v) AS s"),
    *("avg(v) AS a", "min(w) AS l", "max(v) AS m"),
)
ALL = ", ".join(CALLS)
SHAPES = {
    "tumbling": "SELECT k, {c}, window_end FROM {s} [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY k",
    "sliding": "SELECT w, k, {c}, window_start FROM {s} [RANGE 5 MINUTES SLIDE 1 MINUTE]"
    " WHERE v < 80 GROUP BY w, k HAVING count(*) > 1",
    "uneven": "SELECT /*+ window_operator(wid) */ k, {c}, window_end FROM {s}"
    " [RANGE 50 SECONDS SLIDE 20 SECONDS] GROUP BY k",
    "gaps": "SELECT k, {c}, window_end FROM {s} [RANGE 7 SECONDS SLIDE 20 SECONDS] GROUP BY k",
    "cumulating": "SELECT w, count(*) FILTER (WHERE v > 50) AS n, bool_and(v < 97) AS b,"
    " sum(v) FILTER (WHERE v > 98) AS s, window_start, window_end"
    " FROM {s} [RANGE 3 MINUTES CUMULATE 30 SECONDS] GROUP BY w",
    "without keys": "SELECT sum(CAST(v AS INT)) AS s, sum(CAST(v AS DECIMAL(5, 2))) AS d,"
    " count_if(v > 3) AS n, window_end FROM {s} [RANGE 1 MINUTE SLIDE 10 SECONDS]",
    "computed keys": "SELECT v % 3 AS r, w = 'a' AS is_a, max(w) AS m, count(*) AS n, window_time"
    " FROM (SELECT ts, v + 1 AS v, w FROM {s} WHERE w IS NOT NULL OR v > 7)"
    " [RANGE 1 MINUTE SLIDE 1 MINUTE OFFSET 10 SECONDS] GROUP BY v % 3, w = 'a'",
    "ranked": "SELECT * FROM (SELECT k, n, window_end, row_number() OVER (PARTITION BY window_end"
    " ORDER BY n DESC, k) AS place FROM (SELECT k, count(*) AS n, window_end FROM {s}"
    " [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY k)) WHERE place <= 3",
}


@pytest.fixture(scope="module")
def tables(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tables]:
    made = Tables(spark, tmp_path_factory.mktemp("levels"))
    made.session.set("tasks_by", "two_levels")
    yield made
    made.session.close()


@pytest.mark.sampled
@pytest.mark.parametrize("name", SHAPES)
def test_shapes(tables: Tables, name: str, seed: int, full: bool) -> None:
    """By default, a shape has one kind of table, and half of the aggregates but for the first."""
    case = list(SHAPES).index(name)
    calls = ", ".join(share(CALLS, case, 3, seed, full=full)) if case else ALL
    for kind in share(list(KINDS), case, 1, seed, full=full):
        text = SHAPES[name].format(s=tables.stream(kind), c=calls)
        rows, late = answer(tables.session, text, "depth_first")
        assert rows.num_rows > 0
        for count in (1, 2, 5, 16) if full else (5,):
            made, ledger = answer(tables.session, text, "spark", count)
            assert ledger == late
            if name != "sliding":
                assert made == rows
            else:  # the operator over panes takes the groups of a window as these left them
                assert made.column("window_start") == rows.column("window_start")
                assert sorted(map(repr, made.to_pylist())) == sorted(map(repr, rows.to_pylist()))


def table_of(spark: Any, folder: Path, rows: pa.Table, groups: int = 100) -> str:
    """A table of Spark over one file."""
    folder.mkdir(exist_ok=True)
    pq.write_table(rows, folder / "t.parquet", row_group_size=groups)
    name = f"default.levels_{folder.parent.name}_{folder.name}".replace("-", "_")
    spark.catalog.createTable(name, path=str(folder), source="parquet")
    return name


def test_times_of_other_types_and_null_keys(
    spark: Any, tables: Tables, tmp_path: Path, full: bool
) -> None:
    """By default, one type has all aggregates."""
    session, rng = tables.session, np.random.default_rng(3)
    days = np.sort(rng.integers(0, 400, 900)) - rng.integers(0, 30, 900)
    rows = pa.table(
        {
            "d": pa.array(days.astype(np.int32)).cast(pa.date32()),
            "i": pa.array(days.astype(np.int32)),
            "b": pa.array(days - (1 << 40)),
            "f": pa.array([None, -0.0, 0.0, float("nan"), 2.5, None] * 150, pa.float32()),
            "x": pa.array(rng.integers(-(2**53), 2**53, 900)),
        }
    )
    name = table_of(spark, tmp_path / "types", rows)
    for time, slack, window in (
        ("d", "3 days", "RANGE 20 DAYS SLIDE 10 DAYS"),
        ("i", 3, "RANGE 20 SLIDE 20"),
        ("b", 3, "RANGE 7 SLIDE 3"),
    ):
        session.create_stream(f"by_{time}", name, ordered_by=time, slack=slack)
        calls = "count(*) AS n"
        if full or time == "d":
            calls += ", sum(x) AS s, sum(i) AS t, avg(i) AS a, max(f) AS m"
        text = (
            f"SELECT /*+ window_operator(wid) */ f, {calls}, window_end"
            f" FROM by_{time} [{window}] GROUP BY f"
        )
        here, late = answer(session, text, "depth_first")
        made, ledger = answer(session, text, "spark", 4)
        assert repr(made.to_pylist()) == repr(here.to_pylist())
        assert [entry["count"] for entry in ledger] == [entry["count"] for entry in late]


def test_sums_beyond_64_bits(spark: Any, tables: Tables, tmp_path: Path) -> None:
    """The sums of parts need more bits than the sum of all; a sum that needs them is an error."""
    most = 2**63 - 1
    values = [most] * 300 + [-most] * 299 + [-5]
    rows = pa.table({"i": pa.array([7] * 600), "x": pa.array(values)})
    session = tables.session
    name = table_of(spark, tmp_path / "sums", rows)
    session.create_stream("huge", name, ordered_by="i")
    text = "SELECT sum(x) AS s, window_end FROM huge [RANGE 10 SLIDE 10]"
    for runtime in ("depth_first", "spark"):
        assert answer(session, text, runtime, 6)[0].to_pylist() == [
            {"s": most - 5, "window_end": 10}
        ]
        with pytest.raises(RunError, match="overflow"):
            answer(session, text + " WHERE x > 0", runtime, 6)


def test_null_times(spark: Any, tables: Tables, tmp_path: Path) -> None:
    rows = pa.table({"i": pa.array([1, 2, None, 4]), "v": pa.array([1, 2, 3, 4])})
    session = tables.session
    name = table_of(spark, tmp_path / "null", rows)
    session.create_stream("some", name, ordered_by="i")
    text = "SELECT count(*) AS n, window_end FROM some [RANGE 2 SLIDE 2]"
    with pytest.raises(RunError, match="the event time i is NULL or out of range"):
        answer(session, text, "spark", 2)
    kept = text + " WHERE i IS NOT NULL"
    assert answer(session, kept, "spark", 2) == answer(session, kept, "depth_first")


def test_files_in_no_order(spark: Any, tables: Tables, tmp_path: Path) -> None:
    """Tasks by time would read all rows: few groups are aggregated in part, many are shuffled."""
    session, rng = tables.session, np.random.default_rng(5)
    rows = pa.table({"i": rng.integers(0, 100, 4000), "k": rng.integers(0, 9, 4000)})
    rows = rows.append_column("u", pa.array(rng.integers(0, 10**6, 4000)))
    session.create_stream(
        "unordered", table_of(spark, tmp_path / "unordered", rows), ordered_by="i", slack=100
    )
    heard: list[str] = []
    session.on_notice = heard.append
    session.set("tasks_by", "auto")
    text = "SELECT {k}, count(*) AS n, window_end FROM unordered [RANGE 10 SLIDE 10] GROUP BY {k}"
    for key in ("k", "u", "u % 4"):
        here, _ = answer(session, text.format(k=key), "depth_first")
        made, _ = answer(session, text.format(k=key), "spark", 8)
        assert sorted(map(repr, made.to_pylist())) == sorted(map(repr, here.to_pylist()))
    assert ["shuffled by key" in notice for notice in heard] == [False, True]  # said once each
    session.on_notice = lambda notice: None
    session.set("tasks_by", "two_levels")


def test_figures_and_refusals(tables: Tables) -> None:
    session = tables.session
    session.set("runtime", "spark")
    text = SHAPES["tumbling"].format(s=tables.stream("few late"), c=ALL)
    shown = str(session.sql("EXPLAIN ANALYZE " + text))
    assert "on Spark aggregated the rows in part: 4,000 rows in" in shown
    assert "on Spark merged the parts" in shown
    assert "runtime: spark (SET runtime = 'spark': tasks in two levels" in shown
    for wrong in (
        text.replace("count(w)", "count(DISTINCT w)"),
        text.replace("avg(v)", "stddev(v)"),
        text.replace("RANGE 1 MINUTE SLIDE 1 MINUTE", "SESSION 1 MINUTE"),
    ):
        with pytest.raises(NotSupportedError, match="no aggregate over windows of time"):
            session.sql(wrong)
