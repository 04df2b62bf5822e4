"""A run on Spark executors: one job of tasks, whose results come back in their order."""

from __future__ import annotations

import contextlib
import json
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from cql import errors
from cql.catalog.spark.catalog import SparkSource
from cql.catalog.spark.frame import BatchFrame
from cql.catalog.spark.session import spark_call
from cql.catalog.spark.tables.files import Files
from cql.errors import CatalogError, CqlError, NotSupportedError, Position, RunError
from cql.executor.kernels.morsel_layout import INFINITY
from cql.executor.ledgers import bad_rows, late_rows
from cql.executor.ledgers.bad_rows import LEDGER_ROWS
from cql.executor.ledgers.late_rows import Late, suggested_slack
from cql.executor.run.run_report import Progress, Timing, has_timestamps
from cql.planner.nodes.physical import PhysicalPlan, SourceExec, sources
from cql.planner.placement.broadcast import tables
from cql.planner.placement.by_key import columns_of
from cql.planner.placement.scale_out import ByKey, ByTime, placement
from cql.spark.figures import stage_text, summed
from cql.spark.frames import FrameInput, frame_input
from cql.spark.looked_up import rows_of
from cql.spark.package import ship
from cql.spark.parts import (
    TASK_ROWS,
    Input,
    Reading,
    by_key,
    by_rows,
    by_time,
    input_of,
    readings_of_a_row,
)
from cql.spark.sent import ERROR, ROWS, Sent, unpacked
from cql.spark.shuffle import run_part, split_rows
from cql.spark.task_rows import Pieces
from cql.spark.worker import run_tasks

if TYPE_CHECKING:
    from cql.planner.nodes.statements import Name
    from cql.spark.job import Job

#: Tasks by time that read each row so many times cost more than a shuffle of all rows.
WORTH_SHUFFLING = 3.0
#: Tasks of one wave, for each core of the executors: the driver holds the results of one wave.
WAVE = 4


class SparkRun:
    """One run of a plan on Spark, in ``tasks`` tasks (0: by the number of rows)."""

    def __init__(self, plan: PhysicalPlan, job: Job, tasks: int = 0) -> None:
        self.on_notice: Callable[[str], None] = lambda message: None
        self.on_late: Callable[[pa.RecordBatch], None] = lambda batch: None
        self.timed = False
        self._plan, self._job, self._tasks = plan, job, tasks
        self._sources, self._broadcast = sources(plan.root), tables(plan.root)
        self._reports: list[dict[str, Any]] = []
        self._inputs: list[Input] = []
        self._frames: list[FrameInput] = []
        self._looked_up: dict[Name, Pieces] = {}
        self._groups_read: dict[Name, int] = {}
        self._session: Any = None
        self._group = f"cql-{uuid.uuid4()}"
        self._control = _Control()
        self._stopped = False
        self._ended = self._splitting = self._running = 0
        self._started: float | None = None
        self._finished: float | None = None

    # ----------------------------------------------------------------- the run

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yields the results in the order of the tasks. Closing the iterator cancels the rest."""
        self._started = time.monotonic()
        try:
            yield from self._results()
        finally:
            self._finished = time.monotonic()

    def _results(self) -> Iterator[pa.RecordBatch]:
        tasks = self._described()
        if tasks is None:
            return
        wave = WAVE * self._session.sparkContext.defaultParallelism
        for begin in range(0, tasks.getNumPartitions(), wave):
            if self._stopped:
                return
            found = self._run_wave(tasks, begin, wave)
            self._ended = min(begin + wave, tasks.getNumPartitions()) + self._splitting
            for sent in found:
                yield from self._received(*sent)

    def _run_wave(self, tasks: Any, begin: int, wave: int) -> list[Sent]:
        """What some partitions of the RDD ``tasks`` send. Their shuffle, if any, is Spark's: it
        runs once."""
        found: list[Sent] = []
        context = self._session.sparkContext
        end = min(begin + wave, tasks.getNumPartitions())
        try:
            with spark_call(self._session, "running tasks"), _group_of_jobs(context, self._group):
                found = context.runJob(tasks, iter, range(begin, end))
        except BaseException as error:
            self._cancel()
            if (lacking := _lacking(error)) is not None:
                raise lacking from error
            if not (self._stopped and isinstance(error, CatalogError)):
                raise
        return found

    def _received(self, kind: str, sent: bytes) -> Iterator[pa.RecordBatch]:
        if kind == ROWS:
            yield from unpacked(sent)
        elif kind == ERROR:
            raise _error(json.loads(sent))
        else:
            report = json.loads(sent)
            self._reports.append(report)
            for notice in report["notices"]:
                self.on_notice(notice)

    def _described(self) -> Any:
        """The tasks as an RDD of what they send; None without rows."""
        by = self._job.settings.get("tasks_by", "auto")
        placed = placement(self._plan, by)
        columns = columns_of(self._plan.root) if by == "auto" else ()
        frames = self._listed()
        if frames and not isinstance(placed, ByKey):
            if not columns:
                raise self._no_files(next(iter(frames.values()))[0])
            placed = ByKey(columns)
        ship(self._session.sparkContext)
        if isinstance(placed, ByKey):
            return self._by_key(placed.columns, frames)
        if not isinstance(placed, ByTime):
            return self._tasks_of(list(by_rows(self._inputs, self._count)))
        tasks = list(by_time(self._inputs, self._reach(placed), placed, self._count))
        again = readings_of_a_row(self._inputs, tasks)
        if columns and again > WORTH_SHUFFLING:
            self.on_notice(
                f"the files are in no order of time: tasks by time would read each row"
                f" {again:.1f} times, so the rows are shuffled by key (SET tasks_by = 'time' reads"
                " them so often)"
            )
            return self._by_key(columns, frames)
        return self._tasks_of(tasks)

    def _listed(self) -> dict[Name, tuple[SourceExec, Any]]:
        """Lists the row groups of the tables; returns the views and DataFrames."""
        frames: dict[Name, tuple[SourceExec, Any]] = {}
        for source in self._first_uses():
            name, found = self._named(source), source.relation.source()
            files = found.relation.files() if isinstance(found, SparkSource) else None
            if isinstance(found, SparkSource):
                self._session = found.relation.catalog.session()
            if files is not None and files.format == "parquet":
                self._inputs.append(self._input(name, source, files))
            elif source in self._broadcast:
                self._looked_up[name] = rows_of(source, self._columns(name))
            elif isinstance(found, SparkSource) and files is None:
                frames[name] = source, found.relation.frame()
            elif isinstance(found, BatchFrame):
                frames[name] = source, found.frame
                self._session = found.frame.sparkSession
            else:
                raise self._no_files(source)
        return frames

    @property
    def _rows(self) -> int:
        tables = sum(one.rows for one in self._inputs if not one.broadcast)
        return tables + sum(frame.rows for frame in self._frames)

    @property
    def _count(self) -> int:
        """The number of tasks."""
        return self._tasks or max(1, -(-self._rows // TASK_ROWS))

    def _tasks_of(self, tasks: Sequence[Mapping[str, Any]]) -> Any:
        if not tasks:
            return None
        for task in tasks:
            self._note(task["parts"])
        sent, context = list(map(json.dumps, tasks)), self._session.sparkContext
        self._running = len(sent)
        return context.parallelize(sent, len(sent)).mapPartitions(
            partial(run_tasks, self._job.to_json(), context.broadcast(self._looked_up), self.timed)
        )

    def _by_key(
        self,
        columns: tuple[tuple[int, ...], ...],
        frames: Mapping[Name, tuple[SourceExec, Any]],
    ) -> Any:
        """Tasks that split the rows and, behind a shuffle, tasks that run the query."""
        readings, context = self._readings(columns), self._session.sparkContext
        self._frames += [frame_input(n, *found, readings[n]) for n, found in frames.items()]
        first = list(by_key(self._inputs, readings, self._count))
        for task in first:
            self._note([(task["name"], task["part"])])
        job, sent = self._job.to_json(), list(map(json.dumps, first))
        split = [frame.split(job, self._count) for frame in self._frames if frame.rows]
        if sent:
            read = context.parallelize(sent, len(sent))
            split.append(read.mapPartitions(partial(split_rows, job, self._count)))
        if not split:
            return None
        self._running = self._count
        self._splitting = sum(one.getNumPartitions() for one in split)
        times = {name: reading.time for name, reading in readings.items()}
        whole = json.dumps([[one.name, one.whole()] for one in self._inputs if one.broadcast])
        return (
            context.union(split)
            .partitionBy(self._count, int)
            .mapPartitions(
                partial(run_part, job, times, whole, context.broadcast(self._looked_up), self.timed)
            )
        )

    def _note(self, parts: Iterable[tuple[Name, Mapping[str, Any]]]) -> None:
        """Counts the row groups that a task reads."""
        for name, part in parts:
            self._groups_read[name] = self._groups_read.get(name, 0) + len(part["groups"])

    def _readings(self, columns: tuple[tuple[int, ...], ...]) -> dict[Name, Reading]:
        """How each shuffled input is read, for all its uses."""
        made: dict[Name, Reading] = {}
        for source, key in zip(self._sources, columns, strict=True):
            if not key:
                continue
            name, fields = self._named(source), source.relation.schema
            keys = tuple(fields[c].name for c in key)
            time = next((p.column for _, p in source.progress), None)
            known = made.get(name, Reading((), None, (), 0))
            made[name] = Reading(
                tuple(dict.fromkeys((*self._columns(name), *keys))),
                known.time or time,
                keys,
                known.uses + 1,
            )
        return made

    def _reach(self, placed: ByTime) -> dict[Name, tuple[int, int]]:
        """How far each input is read around a range, for all its uses."""
        made: dict[Name, tuple[int, int]] = {}
        for source, (before, behind) in zip(self._sources, placed.reach, strict=True):
            known = made.get(self._named(source), (0, 0))
            made[self._named(source)] = max(known[0], before), max(known[1], behind)
        return made

    def _first_uses(self) -> list[SourceExec]:
        """The sources, of those with the same name the first one, or the first one that reads the
        time."""
        found: dict[Name, SourceExec] = {}
        for source in self._sources:
            name = self._named(source)
            first = found.setdefault(name, source)
            if source.progress and not first.progress:
                found[name] = source
            if first.relation.stream != source.relation.stream:
                raise NotSupportedError(
                    f"runtime = 'spark': a query that reads {source.name} with two watermarks is"
                    " not supported",
                    position=source.pos,
                    hint="SET runtime = 'auto'",
                )
        return list(found.values())

    def _named(self, source: SourceExec) -> Name:
        """The name of the source in the text."""
        wanted = source.relation.name
        return next(n for n, r in self._job.relations.items() if r is not None and r.name == wanted)

    def _columns(self, name: Name) -> list[str]:
        """The columns of an input that the query reads, over all its uses."""
        uses = [source for source in self._sources if self._named(source) == name]
        return list(dict.fromkeys(u.relation.schema[c].name for u in uses for c in u.columns))

    def _input(self, name: Name, source: SourceExec, files: Files) -> Input:
        """Lists the row groups of a table of Parquet files."""
        made = replace(input_of(name, source, files), broadcast=source in self._broadcast)
        if made.scanned > 1:  # the first row group has none before it
            self.on_notice(
                f"the footers of {source.name} do not tell the watermarks behind"
                f" {made.scanned:,} of its {len(made.groups):,} row groups: their times are read"
                " beforehand"
            )
        return made

    def _no_files(self, source: SourceExec) -> NotSupportedError:
        return NotSupportedError(
            f"runtime = 'spark' is not supported for {source.name}: it is no table of Parquet"
            " files in Spark's catalog, nor a view or DataFrame whose rows have a key",
            position=source.pos,
            hint="SET runtime = 'auto' runs the query here",
        )

    def request_stop(self) -> None:
        self._stopped = True
        self._cancel()

    def _cancel(self) -> None:
        """Cancels the tasks that run, unless Spark itself has ended."""
        if self._session is not None and self._finished is None:
            with contextlib.suppress(Exception):
                self._session.sparkContext.cancelJobGroup(self._group)

    # ----------------------------------------------------------------- reports

    @property
    def control(self) -> _Control:
        return self._control

    @property
    def last_instant(self) -> int | None:
        return INFINITY

    def progress(self) -> Progress:
        """A snapshot; callable from any thread while the query runs."""
        begun, ended = self._started, self._finished
        elapsed = 0.0 if begun is None else (ended or time.monotonic()) - begun
        late = sum(entry.count for entry in self._late() if entry.kind == "rows")
        total = sum([*(i.rows for i in self._inputs), *(f.rows for f in self._frames)]) or None
        efforts = self._efforts()
        rows_in, rows_out = (int(sum(e[n] for e in efforts)) for n in ("rows_in", "rows_out"))
        bad = sum(report["bad"] for report in self._reports)
        tasks = (self._ended + self._of_this_wave(), self._splitting + self._running)
        return Progress(rows_in, rows_out, late, bad, None, total, elapsed, tasks)

    def _of_this_wave(self) -> int:
        """The tasks of the running job that have ended."""
        if self._finished is not None or self._session is None:
            return 0
        with contextlib.suppress(Exception):  # Spark may end at any time
            tracker = self._session.sparkContext.statusTracker()
            job = tracker.getJobInfo(max(tracker.getJobIdsForGroup(self._group)))
            if job.status == "RUNNING":
                found = map(tracker.getStageInfo, job.stageIds)
                return sum(stage.numCompletedTasks for stage in found if stage is not None)
        return 0

    def metrics(self) -> list[dict[str, Any]]:
        """For each input its rows and row groups, and how many row groups the tasks read: some are
        read by several tasks. Then for each operator the metrics of all tasks."""
        inputs: list[dict[str, Any]] = [
            {
                "operator": one.relation_name,
                "rows_in": one.rows,
                "row_groups": len(one.groups),
                "row_groups_read": self._groups_read.get(one.name, 0),
            }
            for one in self._inputs
        ]
        inputs += [{"operator": of.relation_name, "rows_in": of.rows} for of in self._frames]
        return inputs + summed([report["metrics"] for report in self._reports], len(self._sources))

    def late(self) -> pa.Table:
        return late_rows.table(self._late(), timed=has_timestamps(self._sources))

    def _late(self) -> list[Late]:
        """The ledgers of the tasks, summed."""
        found: list[Late] = []
        seen: dict[Name, Iterator[int]] = {}
        for source in self._sources:
            name = self._named(source)
            use = next(seen.setdefault(name, count()))
            for _, progress in source.progress:
                found.append(self._of_input(source.name, name, use, progress.slack))
        operators: dict[tuple[str, str], int] = {}
        for report in self._reports:
            for place, kind, rows in report["left_out"]:
                operators[place, kind] = operators.get((place, kind), 0) + rows
        return [*found, *(Late(place, kind, n) for (place, kind), n in operators.items())]

    def _of_input(self, place: str, name: Name, use: int, slack: int) -> Late:
        counts = [
            opened[use]
            for report in self._reports
            for held, opened in report["inputs"]
            if tuple(held) == name
        ]
        rows = sum(c[0] for c in counts)
        late, most = sum(c[1] for c in counts), max((c[2] for c in counts), default=0)
        behind = np.array([c[3] for c in counts], np.int64)
        suggested = suggested_slack(behind.sum(axis=0), rows, slack, most) if late else None
        return Late(place, "rows", late, most, suggested)

    def bad_rows(self) -> pa.Table:
        """The ledgers of the tasks, in the order of the rows."""
        found = [row for report in self._reports for row in report["bad_rows"]]
        found.sort(key=lambda row: (row["source"] or "", row["offset"] or 0))
        return pa.Table.from_pylist(found[:LEDGER_ROWS], schema=bad_rows.SCHEMA)

    def timing(self) -> Timing | None:
        return None

    def held_back(self) -> str | None:
        return None

    def sharing(self) -> str | None:
        """What the tasks took, in a line for each of their stages."""
        splits = [effort for report in self._reports for effort in report["splits"]]
        stages = (("split the rows by key", splits), ("ran the query", self._efforts()))
        return "\n".join(stage_text(what, efforts) for what, efforts in stages if efforts)

    def _efforts(self) -> list[dict[str, float]]:
        return [report["effort"] for report in self._reports]

    def kernel_sources(self) -> Mapping[str, str]:
        raise NotSupportedError(
            "EXPLAIN KERNEL is not supported under runtime = 'spark'",
            hint="SET runtime = 'depth_first' shows the kernels that its tasks run",
        )


def _lacking(error: BaseException) -> CatalogError | None:
    """An error that names the library that Spark's workers cannot import; None for other errors."""
    found = re.search(r"ModuleNotFoundError: No module named '([\w.]+)'", str(error.__cause__))
    if found is None:
        return None
    return CatalogError(
        f"the Python of Spark's executors has no module {found[1]}",
        hint="install cql-streams for it (PYSPARK_PYTHON), or ship an environment that has it"
        " (spark.archives)",
    )


#: The properties of a thread that ``setJobGroup`` sets.
_OF_GROUP = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")


@contextlib.contextmanager
def _group_of_jobs(context: Any, group: str) -> Iterator[None]:
    """In the ``with`` block, the jobs of this thread belong to ``group``."""
    before = [context.getLocalProperty(name) for name in _OF_GROUP]
    context.setJobGroup(group, "cql: tasks of a query", interruptOnCancel=True)
    try:
        yield
    finally:
        for name, value in zip(_OF_GROUP, before, strict=True):
            context.setLocalProperty(name, value)


class _Control:
    """Tasks of Spark are not paused, and Spark gives them their cores."""

    is_paused = False
    workers = 0

    def pause(self) -> None:
        raise RunError("a query on Spark cannot be paused", hint="stop() ends it")

    def resume(self) -> None:
        raise RunError("a query on Spark cannot be paused", hint="stop() ends it")

    def share(self, workers: int) -> None:
        raise RunError("Spark gives a query its cores", hint="spark.cores.max sets their number")


def _error(data: Mapping[str, Any]) -> CqlError:
    kind = getattr(errors, data["kind"], CqlError)
    place = data["position"]
    made: CqlError = kind(
        data["message"],
        position=None if place is None else Position(**place),
        hint=data["hint"],
    )
    return made
