"""What a refresh computes: tasks over the row groups that new rows can change, and the bound of
time before which all rows are final."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from cql.catalog.memory.row_watermarks import RowWatermarks
from cql.catalog.spark.tables.files import Files
from cql.executor.kernels.morsel_layout import NEVER
from cql.executor.morsel.row_watermarks import WatermarkPass
from cql.executor.protocols import Source
from cql.planner.nodes.physical import SourceExec
from cql.planner.nodes.statements import Name
from cql.planner.placement.scale_out import ByRows, ByTime
from cql.spark.job import Job
from cql.spark.parts import Input, input_of
from cql.spark.task import run_of
from cql.spark.task_rows import BEFORE, NUMBER, Part, PartSource
from cql.views.plan import ViewPlan
from cql.views.state import New

Task: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Tasks:
    """``final`` gives rows that stay, ``opened`` those that the next refresh replaces; None: there
    are none. ``closed`` is the new bound (``State.closed``). ``read`` of ``groups`` row groups are
    read."""

    final: Task | None
    opened: Task | None
    closed: int | None
    read: int
    groups: int


def tasks_of(
    made: ViewPlan, files: Mapping[Name, Files], new: New, closed: int | None = None
) -> Tasks:
    """The tasks for the rows of the files ``new``; ``closed`` is the bound of the last refresh,
    None if all files are new."""
    inputs, reach = _inputs(made, files)
    owned = {
        one.name: {k for k, g in enumerate(one.groups) if g.file in new[one.name]}
        for one in inputs.values()
    }
    final: Task | None
    opened: Task | None
    if isinstance(made.placed, ByRows):
        final = {"low": None, "high": None, "parts": _parts(inputs.values(), owned)}
        opened, bound = None, None
    else:
        assert isinstance(made.placed, ByTime)
        bound = _bound(made, inputs, made.placed, closed)
        final = None
        if bound is not None and bound != closed:
            final = _task(made.placed, inputs, reach, _before(inputs, owned, bound), closed, bound)
            owned = {n: k - _before(inputs, owned, bound)[n] for n, k in owned.items()}
        opened = _task(made.placed, inputs, reach, owned, bound, None)
    parts = [part for task in (final, opened) if task is not None for part in task["parts"]]
    # The first row number in the table tells row groups apart.
    read = {(name, group[2]) for name, part in parts for group, _, _ in part["groups"]}
    groups = sum(len(one.groups) for one in inputs.values())
    return Tasks(final, opened, bound, len(read), groups)


def rows_of(job: Job, task: Task) -> Iterator[pa.RecordBatch]:
    """Runs a task in this process."""
    parts: dict[Name, Source] = {}
    for name, described in task["parts"]:
        relation = job.relations[name]
        assert relation is not None
        part = PartSource(relation, Part.from_json(described))
        columns = {} if part.time is None else {part.time: BEFORE}
        what = f"stream {'.'.join(name)}"
        parts[name] = RowWatermarks(part, columns, what=what, numbers=NUMBER)
    run = run_of(job, parts, task["low"], task["high"])
    yield from run.batches()


def _inputs(
    made: ViewPlan, files: Mapping[Name, Files]
) -> tuple[dict[Name, Input], dict[Name, tuple[int, int]]]:
    """The inputs by name, and how far each is read around a range, for all its uses."""
    first: dict[Name, SourceExec] = {}
    reach: dict[Name, tuple[int, int]] = {}
    each = made.placed.reach if isinstance(made.placed, ByTime) else ()
    for k, source in enumerate(made.sources):
        name = made.name_of(source)
        known = first.setdefault(name, source)
        if source.progress and not known.progress:
            first[name] = source
        before, behind = reach.get(name, (0, 0))
        more = each[k] if each else (0, 0)
        reach[name] = max(before, more[0]), max(behind, more[1])
    return {n: input_of(n, source, files[n]) for n, source in first.items()}, reach


def _bound(
    made: ViewPlan, inputs: Mapping[Name, Input], placed: ByTime, closed: int | None
) -> int | None:
    """The last aligned end of a range before which no row can come any more: later rows are late
    for it."""
    reached: list[int] = []
    for source, (_, behind) in zip(made.sources, placed.reach, strict=True):
        mark = _watermark(inputs[made.name_of(source)], source)
        if mark == NEVER:
            return closed
        reached.append(mark - behind)
    bound = (min(reached) - placed.offset) // placed.step * placed.step + placed.offset
    return bound if closed is None else max(bound, closed)


def _watermark(one: Input, source: SourceExec) -> int:
    """The watermark behind all rows of an input."""
    if not source.progress:
        return NEVER
    ((_, progress),) = source.progress
    watermarks = WatermarkPass(one.relation, progress)
    if one.end:
        watermarks.state = list(one.end)
    return int(watermarks.take(np.zeros(1, np.int64), None)[0])


def _before(
    inputs: Mapping[Name, Input], owned: Mapping[Name, set[int]], bound: int
) -> dict[Name, set[int]]:
    """Of the row groups, those with a row before ``bound``, or with rows without a time."""
    return {
        name: {k for k in groups if (low := inputs[name].groups[k].low) is None or low < bound}
        for name, groups in owned.items()
    }


def _task(
    placed: ByTime,
    inputs: Mapping[Name, Input],
    reach: Mapping[Name, tuple[int, int]],
    owned: Mapping[Name, set[int]],
    low: int | None,
    high: int | None,
) -> Task:
    """The task of one range. It also reads the row groups of other tasks that reach there."""
    parts = []
    for one in inputs.values():
        before, behind = reach[one.name]
        least = None if low is None else low - before
        most = None if high is None else high + behind
        picked = [
            (k, k in owned[one.name])
            for k, group in enumerate(one.groups)
            if k in owned[one.name]
            or (
                group.low is not None
                and group.high is not None
                and (least is None or group.high >= least)
                and (most is None or group.low < most)
            )
        ]
        alone = (low, high) if placed.alone else None
        parts.append([one.name, one.part(picked, least, most, alone)])
    return {"low": low, "high": high, "parts": parts}


def _parts(inputs: Iterable[Input], owned: Mapping[Name, set[int]]) -> list[Any]:
    return [[one.name, one.part([(k, True) for k in sorted(owned[one.name])])] for one in inputs]
