"""Which operators over relations run in native code."""

from __future__ import annotations

from cql.base.window import WindowKind
from cql.planner.nodes.expr import Column
from cql.planner.nodes.physical import (
    ChangeAggregateExec,
    FilterExec,
    Physical,
    ProjectExec,
    RelationExec,
    RowNumberExec,
    SetOperationExec,
    StreamExec,
    TopExec,
)
from cql.planner.nodes.physical_join import RelationJoinExec


def runs_natively(node: Physical) -> bool:
    """Whether an operator over a relation runs without Python."""
    match node:
        case RelationExec() | RelationJoinExec() | SetOperationExec():
            return True
        case TopExec() | RowNumberExec() | StreamExec():
            return True
        case ChangeAggregateExec(method=method, calls=calls):
            plain = all(call.function is None and call.beside is None for call in calls)
            return method == "weights" or plain
        case _:
            return False


def keeps_one_row(node: RowNumberExec) -> bool:
    """Whether the first or the latest row of each partition suffices, in the order of the instants
    at which rows enter, and no row leaves."""
    if node.limit != 1 or not node.forgets or len(node.keys) != 1 or not node.partition:
        return False
    (key,) = node.keys
    return isinstance(key.expr, Column) and _is_instant(node.input, key.expr.index)


def _is_instant(node: Physical, column: int) -> bool:
    """Whether a column has the instant at which a row entered the relation."""
    match node:
        case FilterExec():
            return _is_instant(node.input, column)
        case ProjectExec():
            expr = node.exprs[column]
            return isinstance(expr, Column) and _is_instant(node.input, expr.index)
        case RelationExec(window=window):
            return window.kind is WindowKind.UNBOUNDED and window.wa == column
        case _:
            return False
