"""A run on Spark executors: one job of tasks, whose results come back in their order."""

from __future__ import annotations

import contextlib
import json
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from cql import errors
from cql.catalog.spark.catalog import SparkSource
from cql.catalog.spark.session import spark_call
from cql.errors import CatalogError, CqlError, NotSupportedError, Position, RunError
from cql.executor.kernels.morsel_layout import INFINITY
from cql.executor.ledgers import bad_rows, late_rows
from cql.executor.ledgers.bad_rows import LEDGER_ROWS
from cql.executor.ledgers.late_rows import Late, suggested_slack
from cql.executor.run.run_report import Progress, Timing, has_timestamps
from cql.planner.nodes.physical import PhysicalPlan, SourceExec, sources
from cql.planner.placement.scale_out import ByTime, placement
from cql.spark.package import ship
from cql.spark.parts import TASK_ROWS, Input, by_rows, by_time, input_of
from cql.spark.worker import ERROR, ROWS, run_tasks, unpacked

if TYPE_CHECKING:
    from cql.planner.nodes.statements import Name
    from cql.spark.job import Job

#: Tasks of one wave, for each core of the executors: the driver holds the results of one wave.
WAVE = 4


class SparkRun:
    """One run of a plan on Spark, in ``tasks`` tasks (0: by the number of rows), or in the tasks
    ``given``."""

    def __init__(
        self,
        plan: PhysicalPlan,
        job: Job,
        tasks: int = 0,
        given: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        self.on_notice: Callable[[str], None] = lambda message: None
        self.on_late: Callable[[pa.RecordBatch], None] = lambda batch: None
        self.timed = False
        self._plan, self._job, self._tasks, self._given = plan, job, tasks, given
        self._sources = sources(plan.root)
        self._reports: list[dict[str, Any]] = []
        self._inputs: list[Input] = []
        self._groups_read: dict[Name, int] = {}
        self._session: Any = None
        self._group = f"cql-{uuid.uuid4()}"
        self._control = _Control()
        self._stopped = False
        self._rows_out = 0
        self._started: float | None = None
        self._finished: float | None = None

    # ----------------------------------------------------------------- the run

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yields the results in the order of the tasks. Closing the iterator cancels the rest."""
        self._started = time.monotonic()
        try:
            yield from self._results(self._described())
        finally:
            self._finished = time.monotonic()

    def _results(self, tasks: Sequence[str]) -> Iterator[pa.RecordBatch]:
        context = self._session.sparkContext
        ship(context)
        wave = WAVE * context.defaultParallelism
        job = self._job.to_json()
        for begin in range(0, len(tasks), wave):
            if self._stopped:
                return
            for sent in self._run_wave(context, job, tasks[begin : begin + wave]):
                yield from self._received(*sent)

    def _run_wave(
        self, context: Any, job: str, tasks: Sequence[str]
    ) -> Iterator[tuple[str, bytes]]:
        found: list[tuple[str, bytes]] = []
        try:
            with spark_call(self._session, "running tasks"), _group_of_jobs(context, self._group):
                made = context.parallelize(tasks, len(tasks)).mapPartitions(partial(run_tasks, job))
                found = made.collect()
        except BaseException as error:
            self._cancel()
            if (lacking := _lacking(error)) is not None:
                raise lacking from error
            if not (self._stopped and isinstance(error, CatalogError)):
                raise
        yield from found

    def _received(self, kind: str, sent: bytes) -> Iterator[pa.RecordBatch]:
        if kind == ROWS:
            for batch in unpacked(sent):
                self._rows_out += batch.num_rows
                yield batch
        elif kind == ERROR:
            raise _error(json.loads(sent))
        else:
            report = json.loads(sent)
            self._reports.append(report)
            for notice in report["notices"]:
                self.on_notice(notice)

    def _described(self) -> list[str]:
        """The tasks as JSON."""
        placed = placement(self._plan)
        self._inputs = [self._input(source, self._named(source)) for source in self._first_uses()]
        rows = sum(one.rows for one in self._inputs)
        tasks = self._tasks or max(1, -(-rows // TASK_ROWS))
        made: Iterable[Mapping[str, Any]]
        if self._given is not None:
            made = self._given
        elif isinstance(placed, ByTime):
            made = by_time(self._inputs, self._reach(placed), placed, tasks)
        else:
            made = by_rows(self._inputs, tasks)
        described = []
        for task in made:
            described.append(json.dumps(task))
            for name, part in task["parts"]:
                read = self._groups_read.get(name, 0)
                self._groups_read[name] = read + len(part["groups"])
        return described

    def _reach(self, placed: ByTime) -> dict[Name, tuple[int, int]]:
        """How far each input is read around a range, for all its uses."""
        made: dict[Name, tuple[int, int]] = {}
        for source, (before, behind) in zip(self._sources, placed.reach, strict=True):
            known = made.get(self._named(source), (0, 0))
            made[self._named(source)] = max(known[0], before), max(known[1], behind)
        return made

    def _first_uses(self) -> list[SourceExec]:
        """The sources, of those with the same name the first one."""
        found: dict[Name, SourceExec] = {}
        for source in self._sources:
            name = self._named(source)
            first = found.setdefault(name, source)
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

    def _input(self, source: SourceExec, name: Name) -> Input:
        """Lists the row groups of a table of Parquet files."""
        found = source.relation.source()
        files = found.relation.files() if isinstance(found, SparkSource) else None
        if not isinstance(found, SparkSource) or files is None or files.format != "parquet":
            raise NotSupportedError(
                f"runtime = 'spark' is not supported for {source.name}: it is no table of Parquet"
                " files in Spark's catalog",
                position=source.pos,
                hint="SET runtime = 'auto' runs the query here",
            )
        self._session = found.relation.catalog.session()
        made = input_of(name, source, files)
        if made.scanned > 1:  # the first row group has none before it
            self.on_notice(
                f"the footers of {source.name} do not tell the watermarks behind"
                f" {made.scanned:,} of its {len(made.groups):,} row groups: their times are read"
                " beforehand"
            )
        return made

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
        total = sum(one.rows for one in self._inputs) if self._inputs else None
        rows_in = sum(report["rows_in"] for report in self._reports)
        bad = sum(report["bad"] for report in self._reports)
        return Progress(rows_in, self._rows_out, late, bad, None, total, elapsed)

    def metrics(self) -> list[dict[str, Any]]:
        """For each input its rows and row groups, and how many row groups the tasks read: some are
        read by several tasks."""
        return [
            {
                "operator": source.name,
                "rows_in": one.rows,
                "row_groups": len(one.groups),
                "row_groups_read": self._groups_read.get(one.name, 0),
            }
            for source, one in zip(self._first_uses(), self._inputs, strict=False)
        ]

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
            for place, kind, rows in report["operators"]:
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
        return f"{len(self._reports):,} tasks on Spark"

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
