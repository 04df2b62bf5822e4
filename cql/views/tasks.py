"""What a refresh computes: tasks over the row groups that new rows can change, and the bound of
time before which all rows are final."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from cql.catalog.spark.tables.files import Files
from cql.executor.kernels.morsel_layout import NEVER
from cql.planner.nodes.statements import Name
from cql.planner.placement.break_even import TASK_ROWS
from cql.planner.placement.scale_out import RUNTIME, ByRows, ByTime
from cql.spark.run.driver import SparkRun
from cql.spark.run.parts import Input, by_ranges, cuts
from cql.spark.run.task_plan import TaskPlan
from cql.spark.task.worker import open_task
from cql.views.plan import ViewPlan
from cql.views.state import New

Task: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Tasks:
    """``final`` give rows that stay, ``opened`` those that the next refresh replaces. ``closed`` is
    the new bound (``State.closed``). ``read`` of ``groups`` row groups are read."""

    final: Sequence[Task]
    opened: Sequence[Task]
    closed: int | None
    read: int
    groups: int


def tasks_of(made: ViewPlan, files: Mapping[Name, Files], new: New, closed: int | None) -> Tasks:
    """The tasks for the rows of the files ``new``. ``closed`` is the bound of the last refresh;
    None if all files are new."""
    shared = TaskPlan(made.plan, made.prepared.job())
    inputs = {
        (name := shared.named(source)): shared.input_of(source, files[name], _unsaid)
        for source in shared.first_uses()
    }
    owned = {
        one.name: {k for k, g in enumerate(one.groups) if g.file in new[one.name]}
        for one in inputs.values()
    }
    if isinstance(made.placed, ByRows):
        final, opened, bound = _by_rows(inputs, owned, made.tasks), list[Task](), None
    else:
        assert isinstance(made.placed, ByTime)
        bound = _bound(made, inputs, made.placed, closed)
        reach = shared.reach(made.placed)
        final, opened = _by_time(made.placed, inputs, reach, owned, (closed, bound), made.tasks)
    parts = [part for task in (*final, *opened) for part in task["parts"]]
    # The first row number in the table tells row groups apart.
    read = {(name, group[2]) for name, part in parts for group, _, _ in part["groups"]}
    groups = sum(len(one.groups) for one in inputs.values())
    return Tasks(final, opened, bound, len(read), groups)


def _unsaid(notice: str) -> None:
    """EXPLAIN REFRESH shows what is read."""


def _by_rows(
    inputs: Mapping[Name, Input], owned: Mapping[Name, set[int]], count: int
) -> list[Task]:
    """Each task takes some row groups of the inputs."""
    every = [(name, k) for name, groups in owned.items() for k in sorted(groups)]
    rows = [inputs[name].groups[k].rows for name, k in every]
    count = min(count or -(-sum(rows) // TASK_ROWS), len(every))
    made: list[Task] = []
    for share in np.array_split(np.arange(len(every)), max(count, 1)):
        picked: dict[Name, list[tuple[int, bool]]] = {name: [] for name in inputs}
        for at in share:
            name, k = every[at]
            picked[name].append((k, True))
        parts = [[name, one.part(picked[name])] for name, one in inputs.items()]
        made.append({"low": None, "high": None, "parts": parts})
    return made


def _by_time(
    placed: ByTime,
    inputs: Mapping[Name, Input],
    reach: Mapping[Name, tuple[int, int]],
    owned: Mapping[Name, set[int]],
    closed: tuple[int | None, int | None],
    count: int,
) -> tuple[list[Task], list[Task]]:
    """The tasks of the ranges between the old and the new bound, and of those behind."""
    low, bound = closed
    inner = cuts(_behind(inputs, low), placed, count or _count(inputs, low))
    later = [*inner, *(() if bound is None else (bound,))]
    ends = sorted({end for end in later if low is None or end > low})
    made = list(by_ranges(list(inputs.values()), reach, placed, [low, *ends, None], owned))
    final = 0 if bound is None else sum(end <= bound for end in ends)
    return made[:final], made[final:]


def _behind(inputs: Mapping[Name, Input], low: int | None) -> list[Input]:
    """The inputs with those row groups alone that reach ``low``."""
    if low is None:
        return list(inputs.values())
    return [
        one.only([k for k, g in enumerate(one.groups) if g.high is not None and g.high >= low])
        for one in inputs.values()
    ]


def _count(inputs: Mapping[Name, Input], low: int | None) -> int:
    return -(-sum(one.rows for one in _behind(inputs, low)) // TASK_ROWS)


def rows_of(made: ViewPlan, tasks: Sequence[Task]) -> Iterator[pa.RecordBatch]:
    """Runs tasks where the runtime of the plan wants them, one behind the other."""
    job = made.prepared.job()
    if made.plan.runtime.name == RUNTIME:
        if tasks:
            yield from SparkRun(made.plan, job, given=tasks).batches()
        return
    for task in tasks:
        run, _ = open_task(job, {}, task)
        yield from run.batches()


def _bound(
    made: ViewPlan, inputs: Mapping[Name, Input], placed: ByTime, closed: int | None
) -> int | None:
    """The last aligned end of a range before which no row can come any more: later rows are late
    for it."""
    reached: list[int] = []
    for source, (_, behind) in zip(made.sources, placed.reach, strict=True):
        mark = inputs[made.name_of(source)].watermarks[-1]
        if mark == NEVER:
            return closed
        reached.append(mark - behind)
    bound = (min(reached) - placed.offset) // placed.step * placed.step + placed.offset
    return bound if closed is None else max(bound, closed)
