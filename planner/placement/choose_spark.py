"""Whether the runtime auto gives a query to the executors of Spark, and the reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from cql.planner.nodes.catalog import Cluster
from cql.planner.nodes.physical import (
    PhysicalPlan,
    RuntimeChoice,
    SourceExec,
    WidAggregateExec,
    sources,
    walk,
)
from cql.planner.placement.break_even import (
    PARTS,
    SHUFFLE,
    TASK_ROWS,
    break_even,
    in_process,
    in_tasks,
    readings_by_time,
)
from cql.planner.placement.broadcast import BROADCAST_ROWS, tables
from cql.planner.placement.choose_runtime import of_many_rows
from cql.planner.placement.cost import cost, rounded
from cql.planner.placement.scale_out import (
    RUNTIME,
    ByKey,
    ByRows,
    ByTime,
    InLevels,
    Whole,
    described,
    keeps_order,
    placement,
)


def choose_spark(
    plan: PhysicalPlan, settings: Mapping[str, Any], cluster: Cluster, cores: int
) -> RuntimeChoice:
    """The runtime of a plan under the runtime auto, with the executors of ``cluster``. The plan has
    the runtime that auto takes in this process, on ``cores`` cores."""
    found = sources(plan.root)
    if not any(source.relation.name in cluster.tables for source in found):
        return plan.runtime
    placed = placement(plan, settings["tasks_by"])
    if isinstance(placed, Whole):
        return not_on_spark(plan.runtime, placed.why)
    if why := _refused(plan, placed, settings, cluster):
        return not_on_spark(plan.runtime, why)
    measured = cost([plan.root], read_statistics=True)
    assert measured.rows is not None
    tasks = int(settings["partitions"])
    columns = _mean(found, [len(source.columns) for source in found])
    least = break_even(
        in_process(of_many_rows(plan.root, measured, settings, cores), columns),
        in_tasks(
            measured,
            columns,
            _readings(plan, placed, tasks),
            SHUFFLE
            if isinstance(placed, ByKey)
            else PARTS
            if isinstance(placed, InLevels)
            else 0.0,
        ),
        0.0 if _is_one_group(plan) else measured.results,
        min(cluster.cores, tasks or cluster.cores),
    )
    executors = f"{cluster.cores:,} core{'' if cluster.cores == 1 else 's'}"
    if least is None:
        return not_on_spark(plan.runtime, f"its {executors} would not be sooner")
    sooner = f"sooner from about {rounded(least):,} rows on"
    if measured.rows < least:
        why = f"{plan.runtime.why}; Spark's {executors} would be {sooner}"
        return replace(plan.runtime, why=why)
    why = f"{described(plan, placed)}; {measured.rows_text}, Spark's {executors} are {sooner}"
    return RuntimeChoice(RUNTIME, why)


def not_on_spark(runtime: RuntimeChoice, why: str) -> RuntimeChoice:
    """The runtime in this process, with the reason against Spark's executors."""
    return replace(runtime, why=f"{runtime.why}; not on Spark: {why}")


def _refused(
    plan: PhysicalPlan,
    placed: ByRows | ByTime | ByKey | InLevels,
    settings: Mapping[str, Any],
    cluster: Cluster,
) -> str | None:
    """A reason against tasks other than their time."""
    found, whole = sources(plan.root), tables(plan.root)
    if settings["workers"]:
        return f"SET workers = {settings['workers']}"
    if any(s.relation.stream for s in found) and not keeps_order(plan, placed):
        return "the order of the rows would change"
    for source in found:
        rows = source.relation.statistics.expected_rows
        if source not in whole and source.relation.name not in cluster.tables:
            return f"{source.name} is no table of Spark's catalog"
        if rows is None:
            return f"the number of rows of {source.name} is not known"
        if source in whole and rows > BROADCAST_ROWS:
            return f"rows are looked up in {source.name}, which has more than {BROADCAST_ROWS:,}"
        if isinstance(placed, ByTime) and source not in whole and _extent(source) is None:
            return f"the footers of {source.name} do not tell the times of its rows"
        if any(
            o.name == source.name and o.relation.stream != source.relation.stream for o in found
        ):
            return f"{source.name} is read with two watermarks"
    return None


def _is_one_group(plan: PhysicalPlan) -> bool:
    """Whether each window has one row at most."""
    return any(isinstance(n, WidAggregateExec) and not n.keys for n in walk(plan.root))


def _extent(source: SourceExec) -> tuple[int, int] | None:
    """The extent of the time of a source that has one."""
    extents = source.relation.statistics.extents
    return next((extents.get(p.column) for _, p in source.progress), None)


def _readings(
    plan: PhysicalPlan, placed: ByRows | ByTime | ByKey | InLevels, partitions: int
) -> float:
    """How often tasks read a row, on average. Each task reads all rows that others are looked up
    in. ``partitions``: the number of tasks, 0 by the number of rows."""
    found, whole = sources(plan.root), tables(plan.root)
    tasks = partitions or sum(_rows(s) for s in found if s not in whole) / TASK_ROWS
    readings = [tasks if source in whole else 1.0 for source in found]
    if isinstance(placed, ByTime):
        for n, reach in enumerate(placed.reach):
            if found[n] not in whole and (extent := _extent(found[n])) is not None:
                readings[n] = readings_by_time(tasks, sum(reach), extent)
    return _mean(found, readings)


def _mean(found: Sequence[SourceExec], values: Sequence[float]) -> float:
    """The mean of a value of the sources, by their numbers of rows."""
    rows = [_rows(source) for source in found]
    total = sum(value * n for value, n in zip(values, rows, strict=True))
    return total / max(sum(rows), 1)


def _rows(source: SourceExec) -> int:
    return source.relation.statistics.expected_rows or 0
