"""When auto gives a query to Spark's executors. The lines of EXPLAIN equal the reviewed golden file
``choose_spark.txt``; the planner's data are given, and no Spark runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from cql.base.model import Field, Schema
from cql.base.settings import Settings
from cql.base.types import BIGINT, STRING, TIMESTAMP
from cql.dialect import parse_one
from cql.planner.bind.context import Context
from cql.planner.bind.statement import bind
from cql.planner.explain.tree import tree
from cql.planner.lower import plan as lowering
from cql.planner.nodes import statements as st
from cql.planner.nodes.catalog import Cluster, Progress, Statistics, StreamSpec
from cql.planner.nodes.physical import PhysicalPlan
from cql.planner.optimize import rules
from cql.planner.placement.break_even import (
    RESULT,
    START,
    break_even,
    in_process,
    in_tasks,
    readings_by_time,
)
from cql.planner.placement.cost import Cost
from cql.spark.job.job import TaskRelation
from tests.support import goldens

HOUR = 3_600_000_000
SCHEMA = Schema(
    (Field("ts", TIMESTAMP), Field("k", BIGINT), Field("v", BIGINT), Field("w", STRING))
)
MANY, SMALL = 2_000_000_000, 1000
#: A month of rows in order of time, with row groups of half an hour.
IN_ORDER = {"ts": (720 * HOUR, HOUR // 2)}
STATISTICS = {
    "clicks": Statistics(rows=MANY, extents=IN_ORDER),
    "few": Statistics(rows=70_000_000, extents=IN_ORDER),
    "sampled": Statistics(estimated_rows=MANY + 1, extents=IN_ORDER),
    "disordered": Statistics(rows=MANY, extents={"ts": (720 * HOUR, 700 * HOUR)}),
    "untold": Statistics(rows=MANY),
    "view": Statistics(),
    "endless": Statistics(),
    "memory": Statistics(rows=MANY),
    "stored": Statistics(rows=MANY),
    "names": Statistics(rows=SMALL),
}
TABLES = ("stored", "names", "view", "memory")
CLUSTER = Cluster(16, frozenset((name,) for name in STATISTICS if name != "memory"))
TUMBLING = (
    "SELECT k, count(*) AS n, sum(v) AS s, window_end FROM {}"
    " [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY k"
)
QUERIES: Mapping[str, tuple[str, dict[str, Any]]] = {
    "by time": (TUMBLING.format("clicks"), {}),
    "fewer rows": (TUMBLING.format("few"), {}),
    "by a sample": (TUMBLING.format("sampled"), {}),
    "workers": (TUMBLING.format("clicks"), {"workers": 2}),
    "one task": (TUMBLING.format("clicks"), {"partitions": 1}),
    "files in no order of time": (TUMBLING.format("disordered"), {}),
    "footers without times": (TUMBLING.format("untold"), {}),
    "overlapping": (TUMBLING.format("clicks").replace("RANGE 1 MINUTE", "RANGE 1 HOUR"), {}),
    "overlapping a little": (
        TUMBLING.format("clicks").replace("RANGE 1 MINUTE", "RANGE 5 MINUTES"),
        {},
    ),
    "one group": ("SELECT count(*) AS n FROM clicks [RANGE 1 DAY SLIDE 1 DAY]", {}),
    "by rows": ("SELECT ts, k FROM clicks WHERE v > 7", {}),
    "all rows": ("SELECT * FROM stored", {}),
    "by key, of a table": ("SELECT k, median(v) AS n FROM stored GROUP BY k", {}),
    "by key, light": ("SELECT k, count(*) AS n FROM stored GROUP BY k", {}),
    "by key, of a stream": (
        "SELECT k, count(*) AS n FROM clicks GROUP BY k, session_window(ts, '5 seconds')",
        {},
    ),
    "looked up": (
        "SELECT k, count(*) AS n, window_end FROM (SELECT c.ts, c.k FROM clicks AS c"
        " JOIN names AS a ON a.k = c.k) [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY k",
        {},
    ),
    "rows unknown": ("SELECT k, median(v) AS n FROM view GROUP BY k", {}),
    "here": ("SELECT k, median(v) AS n FROM memory GROUP BY k", {}),
    "partly here": (
        "SELECT s.k, m.v FROM stored AS s JOIN memory AS m ON m.k = s.k AND m.v = s.v",
        {},
    ),
    "whole": ("SELECT k FROM stored ORDER BY k LIMIT 3", {}),
    "endless": (TUMBLING.format("endless"), {}),
    "changes": (TUMBLING.format("clicks") + " EMIT CHANGES", {}),
}


class Relations:
    """Relations without data."""

    def find(self, name: tuple[str, ...]) -> TaskRelation | None:
        statistics = STATISTICS.get(name[0])
        if statistics is None:
            return None
        stream = None if name[0] in TABLES else StreamSpec((Progress("ts", 1_000_000),))
        kind, bounded = "table" if stream is None else "stream", name[0] != "endless"
        return TaskRelation(name, kind, SCHEMA, stream, bounded, statistics, {})

    def names(self) -> list[tuple[str, ...]]:
        return [(name,) for name in STATISTICS]


def plan(text: str, cluster: Cluster | None, **settings: Any) -> PhysicalPlan:
    chosen = Settings.of(**settings)
    bound = bind(parse_one(text), Relations(), Context(settings=chosen))
    assert isinstance(bound, st.Query)
    logical = rules.optimize(bound.plan, join_order=chosen.join_order)
    emit = bound.emit_changes
    return lowering.plan(logical, chosen, emit_changes=emit, cores=2, cluster=cluster)


def test_explain(rewrite: bool) -> None:
    lines = []
    for name, (text, settings) in QUERIES.items():
        shown = tree(plan(text, CLUSTER, **settings))
        (line,) = (line for line in shown.splitlines() if line.startswith("runtime: "))
        lines.append(f"{name}: {line.removeprefix('runtime: ')}")
    goldens.agree("choose_spark.txt", "\n".join(lines) + "\n", rewrite=rewrite)


@pytest.mark.parametrize("name", QUERIES)
def test_without_a_cluster_nothing_changes(name: str) -> None:
    text, settings = QUERIES[name]
    alone = plan(text, None, **settings)
    with_others = plan(text, replace(CLUSTER, tables=frozenset()), **settings)
    assert (alone.runtime.name, alone.runtime.why) == (
        with_others.runtime.name,
        with_others.runtime.why,
    )
    assert alone.runtime.name != "spark"
    assert "Spark" not in alone.runtime.why
    with_cluster = plan(text, CLUSTER, **settings)
    assert with_cluster.root == alone.root
    if with_cluster.runtime.name != "spark":
        assert with_cluster.runtime.why.startswith(alone.runtime.why)


def test_other_settings_stand() -> None:
    for runtime in ("depth_first", "ordered", "fifo"):
        made = plan(TUMBLING.format("clicks"), CLUSTER, runtime=runtime)
        assert made.runtime == plan(TUMBLING.format("clicks"), None, runtime=runtime).runtime
        assert made.runtime.name == runtime


def time_here(rows: int, here: float) -> float:
    return rows * here / 1e9


def time_there(rows: int, task: float, result: float, cores: int) -> float:
    """A task has two million rows, if there are so many."""
    of_a_core = max(rows / cores, 2_000_000)
    return START + (of_a_core * task + rows * RESULT * result) / 1e9


@pytest.mark.parametrize(
    ("here", "task", "result", "cores"),
    [
        (70.0, 170.0, 0.0, 16),
        (70.0, 170.0, 0.1, 64),
        (400.0, 1100.0, 0.1, 4),
        (40.0, 41.0, 0.0, 2),
        (900.0, 2000.0, 0.0, 500),
    ],
)
def test_both_sides(here: float, task: float, result: float, cores: int) -> None:
    least = break_even(here, task, result, cores)
    assert least is not None
    more, fewer = least + 1, int(least * 0.99)
    assert time_there(more, task, result, cores) < time_here(more, here)
    assert time_there(fewer, task, result, cores) > time_here(fewer, here)


def test_never() -> None:
    assert break_even(70.0, 170.0, 0.0, 2) is None  # the executors have fewer cores than it takes
    assert break_even(70.0, 170.0, 1.0, 10**6) is None  # the results alone take longer
    assert break_even(70.0, 70.0, 0.0, 1) is None


def test_more_cores_need_fewer_rows() -> None:
    found = [break_even(70.0, 170.0, 0.01, cores) for cores in range(1, 200)]
    first = next(n for n, least in enumerate(found) if least is not None)
    known = [least for least in found[first:] if least is not None]
    assert len(known) == len(found) - first
    assert known == sorted(known, reverse=True)
    assert known[0] > 2 * known[50]
    assert known[-2] == known[-1]  # with many cores, the time of one task is left
    dearer = [break_even(70.0, task, 0.01, 16) for task in range(100, 1000, 50)]
    counted = [float("inf") if least is None else least for least in dearer]
    assert counted == sorted(counted)


def test_costs_of_tasks() -> None:
    found = Cost(1000, 20.0, 1.0, 1.0, 1.0)
    once = in_tasks(found, 3.0, 1.0, 0.0)
    assert once > in_process(20.0, 3.0) > in_process(20.0, 1.0) > in_process(10.0, 1.0)
    assert in_tasks(found, 3.0, 2.0, 0.0) == 2 * once
    assert in_tasks(found, 3.0, 1.0, 7.0) == once + 7


def test_readings() -> None:
    ordered = [readings_by_time(tasks, 0, (1000, 10)) for tasks in (1, 50, 100, 200)]
    assert ordered == [1.0, 1.5, 2.0, 3.0]
    assert readings_by_time(50, 0, (1000, 1000)) == 50  # each task reads all row groups
    assert readings_by_time(10, 200, (1000, 0)) == 3.0  # each range of 100 reads 200 before it
    assert readings_by_time(10, 0, (0, 0)) == 1.0
