"""The tasks of a plan as an RDD of Spark: what they read, and how they share it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from cql.catalog.spark.catalog import SparkSource
from cql.catalog.spark.frame import BatchFrame
from cql.errors import NotSupportedError
from cql.planner.nodes.physical import PhysicalPlan, SourceExec
from cql.planner.nodes.statements import Name
from cql.planner.placement.by_key import columns_of
from cql.planner.placement.scale_out import (
    ByKey,
    ByRows,
    ByTime,
    InLevels,
    levels_of,
    placement,
)
from cql.spark.job.job import Job
from cql.spark.job.package import ship
from cql.spark.run.frames import FrameInput, frame_input
from cql.spark.run.levels import WORTH_PARTS, rows_of_a_part
from cql.spark.run.looked_up import rows_of
from cql.spark.run.parts import Input, Reading, by_key, cuts, readings_of_a_row
from cql.spark.run.task_plan import TaskPlan, shared_rows, task_count
from cql.spark.task.levels import aggregate_rows, merge_parts
from cql.spark.task.rows import Pieces
from cql.spark.task.shuffle import run_part, split_rows
from cql.spark.task.worker import run_tasks

#: Tasks by time that read each row so many times cost more than a shuffle of all rows.
WORTH_SHUFFLING = 3.0
#: The views and DataFrames that a query reads, by their names in the text.
Frames: TypeAlias = Mapping[Name, tuple[SourceExec, Any]]


class TaskRdd:
    """The RDD of what the tasks of a plan send, in ``tasks`` tasks (0: by the number of rows), or
    in the ``given`` tasks without a shuffle. ``in_order``: tasks by time stay so, however often
    they read a row, because a shuffle changes the order of the results.

    ``splitting`` and ``running`` are the numbers of tasks before a shuffle, and of those that run
    the query; ``in_levels``: the first ones aggregate rows in part, the second ones merge parts.
    ``groups_read`` counts for each input the row groups that the tasks read."""

    def __init__(
        self,
        plan: PhysicalPlan,
        job: Job,
        tasks: int,
        given: Sequence[Mapping[str, Any]] | None = None,
        *,
        in_order: bool = False,
    ) -> None:
        self.shared = TaskPlan(plan, job)
        self.inputs: list[Input] = []
        self.frames: list[FrameInput] = []
        self.groups_read: dict[Name, int] = {}
        self.session: Any = None
        self.splitting = self.running = 0
        self.in_levels = False
        self._job, self._tasks, self._given = job, tasks, given
        self._in_order = in_order
        self._looked_up: dict[Name, Pieces] = {}

    def make(self, on_notice: Callable[[str], None], *, timed: bool) -> Any:
        """Lists what the query reads, and returns the RDD; None without rows. ``timed``: the tasks
        measure the time of the operators. Raises NotSupportedError for a source that tasks cannot
        share."""
        by = self._job.settings.get("tasks_by", "auto")
        root = self.shared.plan.root
        placed = placement(self.shared.plan, by)
        columns = columns_of(root) if by == "auto" and not self._in_order else ()
        frames = self._listed(on_notice)
        if frames and not isinstance(placed, ByKey):
            if not columns:
                raise _no_files(next(iter(frames.values()))[0])
            placed = ByKey(columns)
        ship(self.session.sparkContext)
        if self._given is not None:
            return self._without_shuffle(self._given, timed=timed)
        if isinstance(placed, ByKey):
            return self._by_key(placed.columns, frames, timed=timed)
        if isinstance(placed, InLevels):
            return self._in_levels(placed, timed=timed)
        assert isinstance(placed, ByRows | ByTime)
        tasks = self.shared.tasks(self.inputs, placed, self._tasks)
        if isinstance(placed, ByRows):
            return self._without_shuffle(tasks, timed=timed)
        again = readings_of_a_row(self.inputs, tasks)
        if by == "auto" and again > WORTH_SHUFFLING:
            levels = self._worth_levels(placed, known_key=bool(columns))
            if levels or columns:
                how = (
                    "aggregated in part, and their parts shuffled" if levels else "shuffled by key"
                )
                on_notice(
                    f"the files are in no order of time: tasks by time would read each row"
                    f" {again:.1f} times, so the rows are {how} (SET tasks_by = 'time' reads them"
                    " so often)"
                )
                if levels:
                    return self._in_levels(placed, timed=timed)
                return self._by_key(columns, {}, timed=timed)
        return self._without_shuffle(tasks, timed=timed)

    def _worth_levels(self, placed: ByTime, *, known_key: bool) -> bool:
        """Whether tasks in two levels beat those by time and, if there is a key, those by key."""
        if placed.alone or levels_of(self.shared.plan) is None:
            return False
        (one,) = self.inputs
        share = -(-one.rows // self._count)
        return not known_key or rows_of_a_part(self._job, one, share) >= WORTH_PARTS

    def _listed(self, on_notice: Callable[[str], None]) -> Frames:
        """Lists the row groups of the tables; returns the views and DataFrames."""
        frames: dict[Name, tuple[SourceExec, Any]] = {}
        for source in self.shared.first_uses():
            name, found = self.shared.named(source), source.relation.source()
            files = found.relation.files() if isinstance(found, SparkSource) else None
            if isinstance(found, SparkSource):
                self.session = found.relation.catalog.session()
            if files is not None and files.format == "parquet":
                self.inputs.append(self.shared.input_of(source, files, on_notice))
            elif source in self.shared.broadcast:
                self._looked_up[name] = rows_of(source, self.shared.columns(name))
            elif isinstance(found, SparkSource) and files is None:
                frames[name] = source, found.relation.frame()
            elif isinstance(found, BatchFrame):
                frames[name] = source, found.frame
                self.session = found.frame.sparkSession
            else:
                raise _no_files(source)
        return frames

    @property
    def rows(self) -> int:
        """The rows of all inputs, each once."""
        return sum(one.rows for one in self.inputs) + sum(one.rows for one in self.frames)

    @property
    def _count(self) -> int:
        """The number of tasks that run the query."""
        rows = shared_rows(self.inputs) + sum(frame.rows for frame in self.frames)
        return self._tasks or task_count(rows)

    def _without_shuffle(self, tasks: Sequence[Mapping[str, Any]], *, timed: bool) -> Any:
        if not tasks:
            return None
        for task in tasks:
            self._note(task["parts"])
        sent, context = list(map(json.dumps, tasks)), self.session.sparkContext
        self.running = len(sent)
        looked_up = context.broadcast(self._looked_up)
        return context.parallelize(sent, len(sent)).mapPartitions(
            partial(run_tasks, self._job.to_json(), looked_up, timed)
        )

    def _by_key(self, columns: tuple[tuple[int, ...], ...], frames: Frames, *, timed: bool) -> Any:
        """Tasks that split the rows and, behind a shuffle, tasks that run the query."""
        readings, context = self.shared.readings(columns), self.session.sparkContext
        self.frames += [frame_input(n, *found, readings[n]) for n, found in frames.items()]
        first = list(by_key(self.inputs, readings, self._count))
        for task in first:
            self._note([(task["name"], task["part"])])
        job, sent = self._job.to_json(), list(map(json.dumps, first))
        split = [frame.split(job, self._count) for frame in self.frames if frame.rows]
        if sent:
            read = context.parallelize(sent, len(sent))
            split.append(read.mapPartitions(partial(split_rows, job, self._count)))
        if not split:
            return None
        self.running = self._count
        self.splitting = sum(one.getNumPartitions() for one in split)
        times = {name: reading.time for name, reading in readings.items()}
        whole = json.dumps([[one.name, one.whole()] for one in self.inputs if one.broadcast])
        looked_up = context.broadcast(self._looked_up)
        return (
            context.union(split)
            .partitionBy(self._count, int)
            .mapPartitions(partial(run_part, job, times, whole, looked_up, timed))
        )

    def _in_levels(self, placed: InLevels | ByTime, *, timed: bool) -> Any:
        """Tasks that aggregate rows in part and, behind a shuffle, tasks that merge the parts."""
        (source,), context = self.shared.sources, self.session.sparkContext
        reading = Reading((), None, (), 1)
        first = list(by_key(self.inputs, {self.shared.named(source): reading}, self._count))
        if not first:
            return None
        for task in first:
            self._note([(task["name"], task["part"])])
        job, ends = self._job.to_json(), cuts(self.inputs, placed, self._count)
        self.running, self.splitting, self.in_levels = len(ends) + 1, len(first), True
        return (
            context.parallelize(list(map(json.dumps, first)), len(first))
            .mapPartitions(partial(aggregate_rows, job, ends))
            .partitionBy(self.running, int)
            .mapPartitions(partial(merge_parts, job, ends, timed))
        )

    def _note(self, parts: Iterable[tuple[Name, Mapping[str, Any]]]) -> None:
        """Counts the row groups that a task reads."""
        for name, part in parts:
            self.groups_read[name] = self.groups_read.get(name, 0) + len(part["groups"])


def _no_files(source: SourceExec) -> NotSupportedError:
    return NotSupportedError(
        f"runtime = 'spark' is not supported for {source.name}: it is no table of Parquet"
        " files in Spark's catalog, nor a view or DataFrame whose rows have a key",
        position=source.pos,
        hint="SET runtime = 'auto' runs the query here",
    )
