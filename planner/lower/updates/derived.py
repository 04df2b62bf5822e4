"""Plans the queries of streams that are queries with an update queue behind them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from cql.errors import PlanError
from cql.planner.lower.updates.queue import ANY_ROWS
from cql.planner.nodes.logical import DerivedStream, Logical
from cql.planner.nodes.physical import (
    FilterExec,
    OnTimeExec,
    Physical,
    PhysicalPlan,
    ProjectExec,
    SourceExec,
    WidAggregateExec,
)
from cql.planner.nodes.rewrite import replace


class PlansQuery(Protocol):
    def __call__(
        self, query: Logical, *, follows: Collection[int], on_time: int | None
    ) -> PhysicalPlan:
        """The plan of a query whose consumer reads the punctuation on the columns ``follows``, and
        no rows that are late by the column ``on_time``."""
        ...


def with_queries(node: Physical, plan: PlansQuery, *, asked: bool = False) -> Physical:
    """``node``, in which each source that is a query has the plan of the query. ``asked``: whether
    an operator above must know which rows are late. These stay in the first stage then, since
    between two punctuations the second one could not know them.

    Raises PlanError for a query without the watermark that its stream has, and as ``plan`` does."""
    if isinstance(node, SourceExec):
        if not isinstance(node.relation, DerivedStream):
            return node
        return replace(node, query=_planned(node, node.relation, plan, asked))
    asked = asked or not isinstance(node, ANY_ROWS)
    return node.with_inputs(tuple(with_queries(child, plan, asked=asked) for child in node.inputs))


def _planned(
    node: SourceExec, stream: DerivedStream, plan: PlansQuery, asked: bool
) -> PhysicalPlan:
    places = (stream.schema.find(p.column) for p in stream.stream.progress)
    times = [at for at in places if at is not None]
    made = plan(stream.query, follows=times, on_time=times[0] if times and asked else None)
    if times and times[0] not in made.root.progressing:
        raise PlanError(
            f"{stream.schema[times[0]].name} of stream {node.name} has no watermark in the plan of"
            " its query",
            position=node.pos,
            hint="SET join_operator = 'oop_join' has one on the times of a join",
        )
    return made


def without_late_rows(root: Physical, time: int) -> Physical:
    """``root`` without the rows that are late by the column ``time``."""
    below = root
    while isinstance(below, FilterExec | ProjectExec):
        below = below.input
    if isinstance(below, WidAggregateExec) or time not in root.progressing:
        return root  # the rows of windows leave when these end
    return OnTimeExec(root, time, "late rows are left out: the reader must know them")
