"""Walks over plans, and what they find."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, assert_never

from cql.planner.nodes.physical.in_order_join import WindowJoinExec
from cql.planner.nodes.physical.joins import AsofJoinExec, LookupExec, OopJoinExec, TableJoinExec
from cql.planner.nodes.physical.numbers import NodeNumbers
from cql.planner.nodes.physical.order import MergeUnionExec, PunctuatedSortExec, SortExec, UnionExec
from cql.planner.nodes.physical.relations import (
    ArrivalExec,
    ChangeAggregateExec,
    RelationExec,
    RelationJoinExec,
    RowNumberExec,
    SetOperationExec,
    StreamExec,
    SubqueryJoinExec,
    TopExec,
)
from cql.planner.nodes.physical.sources import SourceExec, ValuesExec
from cql.planner.nodes.physical.steps import (
    BucketExec,
    DupelimExec,
    FilterExec,
    LateRowsExec,
    LimitExec,
    NumberExec,
    OnTimeExec,
    ProjectExec,
    SlackExec,
    UnnestExec,
)
from cql.planner.nodes.physical.windows import KeyWindowsExec, WidAggregateExec
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
    return tuple(n for n in NodeNumbers(*roots) if isinstance(n, SourceExec))


def waits(*roots: Physical) -> bool:
    """Whether rows of one input wait for rows of another input (in a join)."""
    return any(n.rows_wait for root in roots for n in walk(root))


def goes_by_arrival(*roots: Physical) -> bool:
    """Whether some watermark is deduced from the order of arrival (SlackExec)."""
    return any(isinstance(n, SlackExec) for root in roots for n in walk(root))


def windowed(node: Physical) -> bool:
    """Whether some operator may leave out late rows."""
    return any(map(_leaves_out_late_rows, walk(node)))


def _leaves_out_late_rows(node: Physical) -> bool:
    match node:
        case BucketExec() | OnTimeExec() | ArrivalExec() | MergeUnionExec() | PunctuatedSortExec():
            return True
        case WidAggregateExec():
            return node.window is not None
        case SourceExec() | ValuesExec() | FilterExec() | ProjectExec() | NumberExec():
            return False
        case UnnestExec() | LimitExec() | LateRowsExec() | SlackExec() | DupelimExec():
            return False
        case UnionExec() | SortExec() | KeyWindowsExec() | RelationExec():
            return False
        case ChangeAggregateExec() | SetOperationExec() | TopExec() | RowNumberExec():
            return False
        case StreamExec() | SubqueryJoinExec() | RelationJoinExec() | LookupExec():
            return False
        case OopJoinExec() | TableJoinExec() | AsofJoinExec() | WindowJoinExec():
            return False
        case _:
            assert_never(node)


def live(*roots: Physical) -> bool:
    """Whether some input is unbounded: the query waits for its rows, even if a LIMIT ends the
    query."""
    return not all(s.relation.bounded for s in sources(*roots))


def read_ahead(node: Physical) -> Physical:
    """``node`` with its sources marked to be read before the sources of the plan that looks rows up
    in ``node``."""
    if isinstance(node, SourceExec | ValuesExec):
        return replace(node, ahead=node.ahead + 1)
    return node.with_inputs(tuple(map(read_ahead, node.inputs)))
