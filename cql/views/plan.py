"""The plan of a materialized view, and how a refresh of it can go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cql.base.model import Schema, of_table
from cql.base.settings import Settings
from cql.catalog.signals.sample_blocks import as_samples
from cql.dialect import parse_one
from cql.errors import BindError, NotSupportedError
from cql.planner.bind.statement import bind
from cql.planner.nodes import statements as st
from cql.planner.nodes.catalog import Relation, Statistics
from cql.planner.nodes.plan_hash import plan_hash
from cql.planner.nodes.statements import Name
from cql.planner.placement.scale_out import RUNTIME, placement
from cql.query.prepared import Origin, RunPlan, prepare
from cql.session.hints import hinted
from cql.spark.job.job import TaskRelation
from cql.spark.run.growing import GrowingPlan

if TYPE_CHECKING:
    from cql.catalog.spark.catalog import SparkCatalog, SparkRelation
    from cql.views.definition import Definition


class Bases:
    """The relations that a definition names, as a catalog; with statistics only if ``measured``."""

    def __init__(self, definition: Definition, spark: SparkCatalog, *, measured: bool) -> None:
        self._names, self._spark, self._measured = definition.names, spark, measured
        self.found: dict[Name, SparkRelation] = {}

    def find(self, name: Name) -> Relation | None:
        full = self._names.get(name)
        if full is None:
            return None
        if name not in self.found:
            relation = self._spark.stored(full)
            if relation is None:
                raise BindError(
                    f"there is no table or stream {'.'.join(full)} any more",
                    hint="make it again, or DROP MATERIALIZED VIEW",
                )
            self.found[name] = replace(relation, name=name)
        found = self.found[name]
        return as_samples(found if self._measured else _unmeasured(found))

    def names(self) -> list[Name]:
        return list(self._names)


def _unmeasured(base: SparkRelation) -> TaskRelation:
    """The relation without statistics, so that a plan stays the same while its table grows."""
    return TaskRelation(
        base.name,
        base.kind,
        base.schema,
        base.stream,
        base.bounded,
        Statistics(),
        base.unsupported,
        data=base.source(),
    )


@dataclass(frozen=True, slots=True)
class ViewPlan(GrowingPlan):
    """The plan of a view's query. ``bases`` are the relations that it reads, by their names in the
    text."""

    bases: Mapping[Name, SparkRelation]

    @property
    def rows(self) -> Schema:
        """The columns of the view's table."""
        return of_table(self.prepared.schema)

    @property
    def hash(self) -> str:
        return plan_hash(self.plan.root)


def view_plan(
    definition: Definition, spark: SparkCatalog, settings: Settings, run_plan: RunPlan
) -> ViewPlan:
    """Binds and plans a definition anew. Raises NotSupportedError for a result that no table can
    hold."""
    made = _planned(definition, spark, settings, run_plan, measured=False)
    if made.whole is not None:
        made = _planned(definition, spark, settings, run_plan, measured=True)
    return made


def _planned(
    definition: Definition,
    spark: SparkCatalog,
    settings: Settings,
    run_plan: RunPlan,
    *,
    measured: bool,
) -> ViewPlan:
    tree = parse_one(definition.text)
    context = definition.context(settings)
    context.settings = hinted(tree, context.settings)
    bases = Bases(definition, spark, measured=measured)
    bound = bind(tree, bases, context)
    assert isinstance(bound, st.Query)
    origin = Origin(definition.text, definition.text, context)
    prepared = prepare(bound, origin, None, run_plan)
    if prepared.changelog or bound.emit_changes is not None:
        raise NotSupportedError(
            "a materialized view of a relation that changes is not supported",
            position=bound.pos,
            hint="a window with SLIDE, or ISTREAM(SELECT …), gives rows that stay",
        )
    tasks = settings.partitions if prepared.plan.runtime.name == RUNTIME else 1
    return ViewPlan(prepared, placement(prepared.plan, "time"), tasks, bases.found)
