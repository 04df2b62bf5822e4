"""Plans the queries of streams that are queries with an update queue behind them."""

from __future__ import annotations

from collections.abc import Callable, Collection

from cql.errors import PlanError
from cql.planner.nodes.logical import DerivedStream, Logical
from cql.planner.nodes.physical import Physical, PhysicalPlan, SourceExec
from cql.planner.nodes.rewrite import replace

#: Plans a query whose consumer reads the punctuation on the given columns of the output.
Plan = Callable[[Logical, Collection[int]], PhysicalPlan]


def with_queries(node: Physical, plan: Plan) -> Physical:
    """``node``, in which each source that is a query has the plan of the query.

    Raises PlanError for a query without the watermark that its stream has, and as ``plan`` does."""
    if isinstance(node, SourceExec):
        if not isinstance(node.relation, DerivedStream):
            return node
        return replace(node, query=_planned(node, node.relation, plan))
    return node.with_inputs(tuple(with_queries(child, plan) for child in node.inputs))


def _planned(node: SourceExec, stream: DerivedStream, plan: Plan) -> PhysicalPlan:
    places = (stream.schema.find(p.column) for p in stream.stream.progress)
    times = [at for at in places if at is not None]
    made = plan(stream.query, times)
    if times and times[0] not in made.root.progressing:
        raise PlanError(
            f"{stream.schema[times[0]].name} of stream {node.name} has no watermark in the plan of"
            " its query",
            position=node.pos,
            hint="SET join_operator = 'oop_join' has one on the times of a join",
        )
    return made
