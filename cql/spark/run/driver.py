"""A run on Spark executors: one job of tasks, whose results come back in their order."""

from __future__ import annotations

import contextlib
import json
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from cql import errors
from cql.catalog.spark.session import spark_call
from cql.errors import CatalogError, CqlError, NotSupportedError, Position, RunError
from cql.executor.kernels.morsel_layout import INFINITY
from cql.executor.ledgers import bad_rows, late_rows
from cql.executor.ledgers.bad_rows import LEDGER_ROWS
from cql.executor.ledgers.late_rows import Late, suggested_slack
from cql.executor.run.run_report import Progress, Timing, has_timestamps
from cql.planner.nodes.physical import PhysicalPlan
from cql.spark.run.figures import stage_text, summed
from cql.spark.run.rdd import TaskRdd
from cql.spark.task.sent import ERROR, ROWS, Sent, unpacked

if TYPE_CHECKING:
    from cql.planner.nodes.statements import Name
    from cql.spark.job.job import Job

#: Tasks of one wave, for each core of the executors: the driver holds the results of one wave.
WAVE = 4


class SparkRun:
    """One run of a plan on Spark, in ``tasks`` tasks (0: by the number of rows), or in ``given``
    ones without a shuffle. ``in_order`` as for ``TaskRdd``."""

    def __init__(
        self,
        plan: PhysicalPlan,
        job: Job,
        tasks: int = 0,
        given: Sequence[Mapping[str, Any]] | None = None,
        *,
        in_order: bool = False,
    ) -> None:
        self.on_notice: Callable[[str], None] = lambda message: None
        self.on_late: Callable[[pa.RecordBatch], None] = lambda batch: None
        self.timed = False
        self._tasks = TaskRdd(plan, job, tasks, given, in_order=in_order)
        self._shared = self._tasks.shared
        self._reports: list[dict[str, Any]] = []
        self._group = f"cql-{uuid.uuid4()}"
        self._control = _Control()
        self._stopped = False
        self._ended = 0
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
        made = self._tasks.make(self.on_notice, timed=self.timed)
        if made is None:
            return
        wave = WAVE * self._tasks.session.sparkContext.defaultParallelism
        for begin in range(0, made.getNumPartitions(), wave):
            if self._stopped:
                return
            end = min(begin + wave, made.getNumPartitions())
            found = self._run_wave(made, range(begin, end))
            self._ended = end + self._tasks.splitting
            for sent in found:
                yield from self._received(*sent)

    def _run_wave(self, tasks: Any, partitions: range) -> list[Sent]:
        """What some partitions of the RDD ``tasks`` send. Their shuffle, if any, is Spark's: it
        runs once."""
        found: list[Sent] = []
        session = self._tasks.session
        context = session.sparkContext
        try:
            with spark_call(session, "running tasks"), _group_of_jobs(context, self._group):
                found = context.runJob(tasks, iter, partitions)
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
            raise error_of(json.loads(sent))
        else:
            report = json.loads(sent)
            self._reports.append(report)
            for notice in report["notices"]:
                self.on_notice(notice)

    def request_stop(self) -> None:
        self._stopped = True
        self._cancel()

    def _cancel(self) -> None:
        """Cancels the tasks that run, unless Spark itself has ended."""
        if self._tasks.session is not None and self._finished is None:
            with contextlib.suppress(Exception):
                self._tasks.session.sparkContext.cancelJobGroup(self._group)

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
        total = (
            sum([*(i.rows for i in self._tasks.inputs), *(f.rows for f in self._tasks.frames)])
            or None
        )
        efforts = self._efforts()
        readers = self._splits() if self._tasks.in_levels else efforts
        rows_in, rows_out = (
            int(sum(e["rows_in"] for e in readers)),
            int(sum(e["rows_out"] for e in efforts)),
        )
        bad = sum(report["bad"] for report in self._all_reports())
        tasks = (self._ended + self._of_this_wave(), self._tasks.splitting + self._tasks.running)
        return Progress(rows_in, rows_out, late, bad, None, total, elapsed, tasks)

    def _of_this_wave(self) -> int:
        """The tasks of the running job that have ended."""
        if self._finished is not None or self._tasks.session is None:
            return 0
        with contextlib.suppress(Exception):  # Spark may end at any time
            tracker = self._tasks.session.sparkContext.statusTracker()
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
                "row_groups_read": self._tasks.groups_read.get(one.name, 0),
            }
            for one in self._tasks.inputs
        ]
        inputs += [{"operator": of.relation_name, "rows_in": of.rows} for of in self._tasks.frames]
        return inputs + summed(
            [report["metrics"] for report in self._all_reports()], len(self._shared.sources)
        )

    def late(self) -> pa.Table:
        return late_rows.table(self._late(), timed=has_timestamps(self._shared.sources))

    def _late(self) -> list[Late]:
        """The ledgers of the tasks, summed."""
        found: list[Late] = []
        seen: dict[Name, Iterator[int]] = {}
        for source in self._shared.sources:
            name = self._shared.named(source)
            use = next(seen.setdefault(name, count()))
            for _, progress in source.progress:
                found.append(self._of_input(source.name, name, use, progress.slack))
        operators: dict[tuple[str, str], int] = {}
        for report in self._all_reports():
            for place, kind, rows in report["left_out"]:
                operators[place, kind] = operators.get((place, kind), 0) + rows
        return [*found, *(Late(place, kind, n) for (place, kind), n in operators.items())]

    def _of_input(self, place: str, name: Name, use: int, slack: int) -> Late:
        counts = [
            opened[use]
            for report in self._all_reports()
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
        found = [row for report in self._all_reports() for row in report["bad_rows"]]
        found.sort(key=lambda row: (row["source"] or "", row["offset"] or 0))
        return pa.Table.from_pylist(found[:LEDGER_ROWS], schema=bad_rows.SCHEMA)

    def timing(self) -> Timing | None:
        return None

    def held_back(self) -> str | None:
        return None

    def sharing(self) -> str | None:
        """What the tasks took, in a line for each of their stages."""
        first, second = "split the rows by key", "ran the query"
        if self._tasks.in_levels:
            first, second = "aggregated the rows in part", "merged the parts"
        stages = ((first, self._splits()), (second, self._efforts()))
        return "\n".join(stage_text(what, efforts) for what, efforts in stages if efforts)

    def _all_reports(self) -> list[dict[str, Any]]:
        """The reports of the tasks that have ended."""
        return self._reports

    def _splits(self) -> list[dict[str, float]]:
        return [effort for report in self._all_reports() for effort in report["splits"]]

    def _efforts(self) -> list[dict[str, float]]:
        return [report["effort"] for report in self._all_reports()]

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
        raise RunError(
            "a query on Spark cannot be paused",
            hint="stop() ends it; SET runtime = 'depth_first' runs it here",
        )

    resume = pause

    def share(self, workers: int) -> None:
        raise RunError("Spark gives a query its cores", hint="spark.cores.max sets their number")


def error_of(data: Mapping[str, Any]) -> CqlError:
    """The error that a task sent."""
    kind = getattr(errors, data["kind"], CqlError)
    place = data["position"]
    made: CqlError = kind(
        data["message"],
        position=None if place is None else Position(**place),
        hint=data["hint"],
    )
    return made
