"""The part of a job that one task does: it plans the text anew, and runs the plan over its rows."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from cql.base.settings import Settings
from cql.base.uninterruptible import load_module
from cql.dialect import parse_one
from cql.errors import CqlError, PlanError
from cql.planner.bind.context import Context
from cql.planner.bind.statement import bind
from cql.planner.nodes import statements as st
from cql.planner.nodes.plan_hash import plan_hash
from cql.planner.nodes.statements import Name
from cql.planner.placement.scale_out import restricted
from cql.query.prepared import Origin, prepare
from cql.query.query import PreparedQuery, Query
from cql.query.run import Run
from cql.spark.job.job import Job, TaskRelation

if TYPE_CHECKING:
    from cql.executor.protocols import Source
    from cql.planner.nodes.physical import PhysicalPlan

P = ParamSpec("P")
T = TypeVar("T")

#: The runtime of a task: Spark gives each task one core.
RUNTIME = "depth_first"


@dataclass(frozen=True, slots=True)
class TaskCatalog:
    """The relations of a job."""

    relations: Mapping[Name, TaskRelation | None]

    def find(self, name: Name) -> TaskRelation | None:
        return self.relations.get(name)

    def names(self) -> Sequence[Name]:
        return list(self.relations)


@lru_cache(maxsize=8)
def job_from(text: str) -> Job:
    """``Job.from_json``; a process keeps the last jobs."""
    return Job.from_json(text)


def in_worker(
    task: Callable[Concatenate[str, P], Iterator[T]],
) -> Callable[Concatenate[str, P], Iterator[T]]:
    """What a Python worker of Spark runs as a task of a job, whose text is the first argument.

    Spark's daemon collects garbage after each task, which takes 0.15 s with all that the library
    has loaded. So what is loaded behind the first task of a job is left out of collections."""

    @wraps(task)
    def made(job: str, /, *args: P.args, **more: P.kwargs) -> Iterator[T]:
        yield from task(job, *args, **more)
        _keep_loaded(job)

    return made


@lru_cache(maxsize=64)
def _keep_loaded(job: str) -> None:
    gc.collect()
    gc.freeze()


def query_of(job: Job, sources: Mapping[Name, Source]) -> Query:
    """The query of ``job`` over the rows of this task, by the names of the relations in the text.

    Raises PlanError if this process plans the text in another way than the sender did."""
    return Query(_prepared(job, sources))


def run_of(job: Job, sources: Mapping[Name, Source], low: int | None, high: int | None) -> Run:
    """A run over the rows of this task, with the windows that end above ``low`` and not above
    ``high`` (``placement.scale_out.restricted``); without both, with all rows.

    Raises PlanError as ``query_of`` does."""
    plan = _prepared(job, sources).plan
    if low is not None or high is not None:
        plan = replace(plan, root=restricted(plan.root, low, high))
    return run_plan(job, plan)


def plan_of(job: Job) -> PhysicalPlan:
    """The plan of ``job``, without rows. Raises PlanError as ``query_of`` does."""
    return _prepared(job, {}).plan


def run_plan(job: Job, plan: PhysicalPlan) -> Run:
    """A run of a plan that was made from that of ``job``."""
    return _run(plan, _settings(job), lambda: job)


def _prepared(job: Job, sources: Mapping[Name, Source]) -> PreparedQuery:
    relations = {
        name: r if r is None or name not in sources else replace(r, data=sources[name])
        for name, r in job.relations.items()
    }
    settings = _settings(job)
    context = Context(
        job.parameters, job.constants, job.views, job.streams, settings, job.functions
    )
    catalog = TaskCatalog(relations)
    try:
        bound = _query_in(bind(parse_one(job.text), catalog, context))
        bound = replace(bound, hints=())  # they hold for the plan of the sender, who checked them
        prepared = prepare(bound, Origin(job.text, job.text, context), None, _run)
    except CqlError as error:
        raise error.with_text(job.text) from error.__cause__
    if plan_hash(prepared.plan.root) != job.plan:
        raise PlanError(
            "this process plans the query in another way than the process that sent it",
            hint="run the statement again if a table has changed since; else please report it",
        )
    return prepared


def _settings(job: Job) -> Settings:
    return Settings.of(**{**job.settings, "runtime": RUNTIME})


def _query_in(bound: st.Statement) -> st.Query:
    """The query whose rows the statement shows or stores."""
    match bound:
        case st.Query():
            return bound
        case st.Insert():
            return bound.query
        case st.CreateTable() if bound.query is not None:
            return bound.query
        case st.Explain() if bound.statement is not None:
            return _query_in(bound.statement)
    raise PlanError("the text of a job is a SELECT or an INSERT")


def _run(plan: PhysicalPlan, settings: Settings, job: Callable[[], Job]) -> Run:
    load_module("cql.executor.run.execution")
    from cql.executor.run.execution import Execution

    return Execution(plan, settings).queries[0]
