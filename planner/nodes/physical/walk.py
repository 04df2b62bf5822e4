"""Walks over plans, and what they find."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cql.planner.nodes.physical.base import sources_below
from cql.planner.nodes.physical.late import (
    LateRowsExec,
    SlackExec,
)
from cql.planner.nodes.physical.plan import PhysicalPlan
from cql.planner.nodes.physical.relations import RelationExec
from cql.planner.nodes.physical.sources import SourceExec, ValuesExec
from cql.planner.nodes.rewrite import replace

if TYPE_CHECKING:
    from cql.planner.nodes.physical import Physical


def walk(node: Physical) -> Iterator[Physical]:
    """``node`` and all operators below, left to right, each before its inputs."""
    waiting = [node]
    while waiting:
        found = waiting.pop()
        yield found
        waiting += reversed(found.inputs)


def relations(node: Physical) -> tuple[RelationExec, ...]:
    """The windows below ``node`` that turn streams into relations."""
    if isinstance(node, RelationExec):
        return (node,)
    return tuple(found for below in node.inputs for found in relations(below))


def late_rows(node: Physical) -> LateRowsExec | None:
    """The operator from which LATE OUTPUT gets its rows, or None."""
    return next((n for n in walk(node) if isinstance(n, LateRowsExec)), None)


def sources(*roots: Physical) -> tuple[SourceExec, ...]:
    """All sources, left to right, each once; the executor's input ports have this order."""
    return sources_below(roots)


def queries(*roots: Physical) -> tuple[PhysicalPlan, ...]:
    """The plans of the streams among the sources that are queries (``SourceExec.query``)."""
    return tuple(s.query for s in sources(*roots) if s.query is not None)


def with_queries(plan: PhysicalPlan) -> tuple[PhysicalPlan, ...]:
    """``plan``, and those of the streams in it that are queries."""
    return (plan, *(found for below in queries(plan.root) for found in with_queries(below)))


def waits(*roots: Physical) -> bool:
    """Whether rows of one input wait for rows of another input (in a join)."""
    return any(n.rows_wait for root in roots for n in walk(root))


def goes_by_arrival(*roots: Physical) -> bool:
    """Whether some watermark is deduced from the order of arrival (SlackExec)."""
    return any(isinstance(n, SlackExec) for root in roots for n in walk(root))


def windowed(node: Physical) -> bool:
    """Whether some operator may leave out late rows."""
    return any(found.leaves_out_late_rows for found in walk(node)) or any(
        windowed(plan.root) for plan in queries(node)
    )


def live(*roots: Physical) -> bool:
    """Whether some input is unbounded: the query waits for its rows, even if a LIMIT ends the
    query."""
    return not all(s.relation.bounded for s in sources(*roots)) or any(
        live(plan.root) for plan in queries(*roots)
    )


def read_ahead(node: Physical) -> Physical:
    """``node`` with its sources marked to be read before the sources of the plan that looks rows up
    in ``node``."""
    if isinstance(node, SourceExec | ValuesExec):
        return replace(node, ahead=node.ahead + 1)
    return node.with_inputs(tuple(map(read_ahead, node.inputs)))
