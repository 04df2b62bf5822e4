"""A query text inside Spark SQL: its plan, its tasks, and the rows of a task.

Spark plans a read in one Python process and runs its tasks in others. None of them has a Spark
session, so each takes what it needs from a registration or from a job.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from cql.base.settings import Settings, find_setting
from cql.catalog.spark.tables.files import Files
from cql.catalog.spark.tables.row_groups import files_from_json, files_to_json
from cql.dialect import parse_one, position_of
from cql.errors import CqlError, NotSupportedError, PlanError
from cql.planner.bind.context import Context
from cql.planner.bind.statement import bind
from cql.planner.nodes import statements as st
from cql.planner.nodes.physical import SourceExec, sources
from cql.planner.placement.scale_out import ByRows, ByTime, placement
from cql.query.prepared import Origin, prepare
from cql.query.run import Run
from cql.session.hints import HINT, hinted
from cql.spark.job.job import Job
from cql.spark.sql.registration import RegisteredCatalog, Registration, changed_since
from cql.spark.task.task import RUNTIME, in_worker, job_from, query_of
from cql.spark.task.whole_tables import FilesSource

if TYPE_CHECKING:
    from cql.planner.nodes.physical import PhysicalPlan

#: Hints about the tasks of a text, which say nothing about a plan here.
_OF_TASKS = ("partitions", "runtime")
#: Tells of what a task leaves out. Spark collects the logs of its Python workers.
LOG = logging.getLogger("cql")


class PlannedText:
    """The plan of a text. ``registered`` is a registration as JSON text. ``schema`` has the columns
    of the result. Without ``measured``, the plan does not depend on what the tables hold.

    Raises the errors of the dialect, with their place in the text; PlanError for a text that is no
    SELECT."""

    def __init__(self, registered: str, text: str, *, measured: bool = True) -> None:
        self._catalog = RegisteredCatalog(_registration(registered), measured)
        self._settings = Settings.of(**self._catalog.registration.declared.settings)
        try:
            self._bound, context = self._bind(text)
            self._prepared = prepare(self._bound, Origin(text, text, context), None, _no_run)
            self._check_sources()
        except CqlError as error:
            raise error.with_text(text) from error.__cause__
        schema = self._prepared.schema.to_arrow()
        self.schema: pa.Schema = pa.schema(list(schema)[2:]) if self._changes else schema

    @property
    def job(self) -> str:
        """The query for the processes that run its tasks, as JSON text."""
        return self._prepared.job().to_json()

    def tasks(self, *, whole: bool = False) -> list[str]:
        """The tasks as JSON texts: the parts of the rows that tasks can share, or one task with the
        whole plan (``whole``: always)."""
        job = self._prepared.job()
        tasks = [] if whole else self._shared(job)
        if not tasks:  # also over a table without rows
            tables = [
                [name, files_to_json(files)]
                for name in job.relations
                if (files := self._catalog.files(name)) is not None
            ]
            tasks = [{"tables": tables, "changes": self._changes}]
        tasks[0] = {**tasks[0], "seen": self._catalog.seen()}
        return list(map(json.dumps, tasks))

    def _shared(self, job: Job) -> list[Mapping[str, Any]]:
        """The tasks that share the plan without a shuffle; none if tasks cannot share it so."""
        from cql.spark.run.task_plan import TaskPlan

        plan = self._prepared.plan
        placed = placement(plan, "time")
        if not isinstance(placed, ByRows | ByTime) or not self._is_parquet(plan):
            return []
        shared = TaskPlan(plan, job)
        inputs = [
            shared.input_of(source, self._files(source), LOG.info) for source in shared.first_uses()
        ]
        return shared.tasks(inputs, placed, self._settings.partitions)

    @property
    def _changes(self) -> bool:
        """Whether the result is a changing relation: then its rows are those at the end."""
        return self._prepared.changelog

    def _bind(self, text: str) -> tuple[st.Query, Context]:
        tree = parse_one(text)
        if not isinstance(tree, exp.Query | exp.Values):
            raise PlanError(
                "Spark SQL reads the rows of a SELECT, and this is another statement",
                position=position_of(tree),
                hint="run it in the session with session.sql, then register the session again",
            )
        declared = self._catalog.registration.declared
        if HINT in text:
            self._settings = hinted(tree, self._settings)
        context = Context(
            {},
            declared.constants,
            declared.views,
            declared.streams,
            self._settings.with_("runtime", RUNTIME),
            declared.functions,
        )
        bound = bind(tree, self._catalog, context)
        assert isinstance(bound, st.Query)
        if bound.late_output is not None:
            raise NotSupportedError(
                "LATE OUTPUT is not supported inside Spark SQL, which only reads",
                position=bound.late_output.pos,
                hint="run the query in the session: session.sql(…)",
            )
        for notice in context.warnings:
            LOG.info(notice.message)
        hints = tuple(h for h in bound.hints if find_setting(h.name, h.pos).name not in _OF_TASKS)
        return replace(bound, hints=hints), context

    def _check_sources(self) -> None:
        for source in sources(self._prepared.plan.root):
            if self._catalog.files(source.relation.name) is None:
                no_end = not source.relation.bounded
                why = "has no end" if no_end else "is no table of Parquet or ORC files of Spark"
                raise NotSupportedError(
                    f"{source.name} cannot be read inside Spark SQL: it {why}",
                    position=source.pos,
                    hint="store its rows in a table of Spark, and register the session again",
                )

    def _is_parquet(self, plan: PhysicalPlan) -> bool:
        """Whether all sources are Parquet files, and those of one name have one watermark."""
        declared: dict[tuple[str, ...], object] = {}
        return all(
            self._files(source).format == "parquet"
            and declared.setdefault(source.relation.name, source.relation.stream)
            == source.relation.stream
            for source in sources(plan.root)
        )

    def _files(self, source: SourceExec) -> Files:
        files = self._catalog.files(source.relation.name)
        assert files is not None
        return files


@lru_cache(maxsize=4)
def _registration(text: str) -> Registration:
    return Registration.from_json(text)


def _no_run(plan: PhysicalPlan, settings: Settings, job: object) -> Run:
    raise PlanError("a text inside Spark SQL runs in tasks")


@in_worker
def rows(job: str, task: str) -> Iterator[pa.RecordBatch]:
    """The rows of a task, which ``PlannedText.tasks`` described. Logs how many rows the task left
    out. The first task logs whether a table has other files than at the time of the plan."""
    from cql.spark.task.worker import open_task

    found, described = job_from(job), json.loads(task)
    try:
        for table in changed_since(described.get("seen", ())):
            LOG.warning("cql: table %s has changed since Spark planned this read of it", table)
        if "tables" in described:
            yield from _whole(found, described["tables"], changes=described["changes"])
        else:
            run, _ = open_task(found, {}, described)
            yield from run.batches()
            _log(run.late(), run.progress().bad)
    except CqlError as error:
        raise error.with_text(found.text) from error.__cause__


def _whole(job: Job, tables: list[Any], *, changes: bool) -> Iterator[pa.RecordBatch]:
    held: dict[tuple[str, ...], FilesSource] = {}
    for name, files in tables:
        relation = job.relations[tuple(name)]
        assert relation is not None
        held[tuple(name)] = FilesSource(relation.schema, files_from_json(files))
    query = query_of(job, held)
    yield from query.to_arrow().to_batches() if changes else query.batches()
    _log(query.late(), query.progress().bad)


def _log(late: pa.Table, bad: int) -> None:
    """Logs what the results do not have: rows that came too late, and rows that could not be
    computed."""
    for entry in late.to_pylist():
        what = _LEFT_OUT.get(entry["kind"])
        if what is not None and entry["count"]:
            LOG.warning("cql: %s left out %s %s", entry["place"], f"{entry['count']:,}", what)
    if bad:
        LOG.warning("cql: left out %s bad rows", f"{bad:,}")


#: The kinds of the ledger that are missing in results.
_LEFT_OUT: Mapping[str, str] = {
    "pairs": "pairs of a late row and a window",
    "left out": "late rows",
}
