"""Prepares queries: optimizes and plans bound queries. All refusals of the planner arise here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from cql.base.model import Schema, of_table
from cql.base.settings import Settings
from cql.errors import CqlError, NotSupportedError, Position
from cql.executor.run.worker_scaling import cores
from cql.query.query import PreparedQuery, Target
from cql.query.run import Run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame as SparkDataFrame

    from cql.base.types import DataType
    from cql.executor.protocols import Sink
    from cql.planner.bind.context import Context
    from cql.planner.nodes import statements as st
    from cql.planner.nodes.catalog import Cluster
    from cql.planner.nodes.physical import PhysicalPlan
    from cql.session.names import SessionCatalog
    from cql.spark.job.job import Job

Name: TypeAlias = tuple[str, ...]
RunPlan: TypeAlias = "Callable[[PhysicalPlan, Settings, Callable[[], Job]], Run]"
FramePlan: TypeAlias = "Callable[[PhysicalPlan, Job], tuple[Run, SparkDataFrame]]"


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a statement: its text, the whole text, where it begins in the whole text, and
    the names with which it was bound.

    ``member``: the query belongs to a query set."""

    text: str
    source: str
    context: Context
    start: int = 0
    member: bool = False

    @property
    def settings(self) -> Settings:
        return self.context.settings


def prepare(
    bound: st.Query,
    origin: Origin,
    catalog: SessionCatalog | None,
    run_plan: RunPlan,
    *,
    inserts: bool = False,
    frame_plan: FramePlan | None = None,
) -> PreparedQuery:
    """Optimizes and plans a bound query. ``inserts``: the rows go into a table. ``catalog`` None:
    late rows are counted, and LATE OUTPUT has no table here. ``frame_plan`` makes a DataFrame of
    Spark (``PreparedQuery.frame``).

    Raises the planner's refusals; PlanError for a hint that the plan cannot obey."""
    from cql.planner.lower import plan as lowering
    from cql.planner.nodes import physical
    from cql.planner.optimize import rules
    from cql.planner.placement.choose_spark import not_on_spark
    from cql.planner.placement.scale_out import RUNTIME
    from cql.query.explanation import explanation
    from cql.session.applied import OF_ALL, RULES, Planned, not_applied

    logical = rules.optimize(bound.plan, join_order=origin.settings.join_order)

    def planned_for(cluster: Cluster | None) -> physical.PhysicalPlan:
        return lowering.plan(
            logical,
            origin.settings,
            keep_bad_rows=bound.keep_bad_rows,
            emit_changes=bound.emit_changes,
            cores=cores(),
            cluster=cluster,
        )

    def job() -> Job:
        from cql.planner.nodes.plan_hash import plan_hash
        from cql.spark.job.job import in_place, job_of

        text = in_place(origin.source, origin.start, origin.start + len(origin.text))
        return job_of(text, origin.context, plan_hash(plan.root), inserts=inserts)

    cluster = None
    if catalog is not None and origin.settings.runtime == "auto" and not origin.member:
        cluster = catalog.cluster(origin.context.relations.values())
    plan = planned_for(cluster)
    chose_spark = cluster is not None and plan.runtime.name == RUNTIME
    if chose_spark and origin.context.functions:
        try:
            job().to_json()
        except NotSupportedError as error:  # a function cannot travel
            plan, chose_spark = planned_for(None), False
            plan = replace(plan, runtime=not_on_spark(plan.runtime, error.message))

    live, kept = physical.live(plan.root), None
    late, rows = bound.late_output, physical.late_rows(plan.root)
    planned = Planned(
        (logical,),
        (plan,),
        origin.settings,
        reports_bad_rows=bound.keep_bad_rows is not None,
        publishes=live and (inserts or late is not None),
    )
    own = [name for name in RULES if not (origin.member and name in OF_ALL)]
    plan = replace(plan, notes=not_applied(planned, own, bound.hints))
    if late is not None and rows is not None and catalog is not None:
        epoch = origin.settings.epoch_ms / 1000 if live else None
        kept = target(catalog, late.name, rows.schema, epoch, late.pos)

    def run() -> Run:
        return run_plan(plan, origin.settings, job)

    def explain(mode: str, latest: Run | None) -> str:
        if mode == "kernel" and chose_spark:  # the kernels of tasks are those of a run here
            here = planned_for(None)
            latest = run_plan(here, origin.settings, job)
        return explanation(mode, logical, plan, latest, run)

    key = bound.plan.answer_key
    return PreparedQuery(
        text=origin.text,
        source=origin.source,
        plan=plan,
        schema=plan.root.schema,
        bounded=plan.root.bounded,
        windowed=physical.windowed(plan.root),
        run=run,
        job=job,
        explain=explain,
        event_time_type=_event_time_type(plan),
        changelog=plan.changelog and not plan.emits_changes,
        answer_key=None if key is None else tuple(k + 2 * plan.changelog for k in key),
        order=plan.order,
        late=kept,
        live=live,
        frame=None if frame_plan is None else lambda: frame_plan(plan, job()),
    )


def target(
    catalog: SessionCatalog,
    name: Name,
    schema: Schema,
    epoch: float | None,
    pos: Position | None,
    *,
    create: bool | None = None,
    made: st.Insert | None = None,
    applies: tuple[str, ...] = (),
) -> Target:
    """The target for rows of ``schema``. ``applies``: see Target; the rows then begin with the two
    columns of a change.

    ``create`` None makes the table if it does not exist; ``made`` declares the new table. With
    ``epoch``, a new table exists from the start of the run, before its first row."""

    def sink() -> Sink:
        try:
            new = catalog.find(name) is None if create is None else create
            rows = of_table(Schema(schema.fields[2:]) if applies else schema)
            if made is not None and made.files is not None:
                found = catalog.new_files(name, rows, made.files, made.key)
            elif made is not None and (made.key or made.layout.partitions):
                schema_ = made.schema or rows
                found = catalog.new_table(name, rows, schema_, made.key, made.layout)
            else:
                found = catalog.sink(name, rows, create=new)
            if new and epoch is not None:
                found.begin()
                found.commit()
            return found
        except CqlError as error:
            error.position = error.position or pos
            raise

    new = create is None and catalog.find(name) is None
    return Target(".".join(name), sink, epoch, new, applies)


def _event_time_type(plan: PhysicalPlan) -> DataType | None:
    from cql.planner.nodes.physical import sources

    for source in sources(plan.root):
        spec = source.relation.stream
        for progress in spec.progress if spec is not None else ():
            index = source.relation.schema.find(progress.column)
            if index is not None:
                return source.relation.schema[index].type
    return None
