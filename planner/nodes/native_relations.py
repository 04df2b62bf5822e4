"""Which operators over relations run in native code."""

from __future__ import annotations

from typing import assert_never

from cql.base.window import WindowKind
from cql.planner.nodes.expr import Column
from cql.planner.nodes.physical import (
    ArrivalExec,
    AsofJoinExec,
    BucketExec,
    ChangeAggregateExec,
    DupelimExec,
    FilterExec,
    KeyWindowsExec,
    LateRowsExec,
    LimitExec,
    LookupExec,
    MergeUnionExec,
    NumberExec,
    OnTimeExec,
    OopJoinExec,
    Physical,
    ProjectExec,
    PunctuatedSortExec,
    RelationExec,
    RelationJoinExec,
    RowNumberExec,
    SetOperationExec,
    SlackExec,
    SortExec,
    SourceExec,
    StreamExec,
    SubqueryJoinExec,
    TableJoinExec,
    TopExec,
    UnionExec,
    UnnestExec,
    ValuesExec,
    WidAggregateExec,
    WindowJoinExec,
)


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
        case SourceExec() | ValuesExec() | FilterExec() | ProjectExec() | BucketExec():
            return False
        case UnionExec() | MergeUnionExec() | PunctuatedSortExec() | LimitExec() | SlackExec():
            return False
        case WidAggregateExec() | SortExec() | NumberExec() | KeyWindowsExec() | LateRowsExec():
            return False
        case OnTimeExec() | DupelimExec() | ArrivalExec() | SubqueryJoinExec() | LookupExec():
            return False
        case OopJoinExec() | TableJoinExec() | UnnestExec() | AsofJoinExec() | WindowJoinExec():
            return False
        case _:
            assert_never(node)


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
        case SourceExec() | ValuesExec() | BucketExec() | UnionExec() | MergeUnionExec():
            return False
        case PunctuatedSortExec() | LimitExec() | SlackExec() | WidAggregateExec() | SortExec():
            return False
        case NumberExec() | KeyWindowsExec() | LateRowsExec() | OnTimeExec() | DupelimExec():
            return False
        case ArrivalExec() | SubqueryJoinExec() | LookupExec() | OopJoinExec() | TableJoinExec():
            return False
        case UnnestExec() | RelationJoinExec() | AsofJoinExec() | WindowJoinExec():
            return False
        case ChangeAggregateExec() | SetOperationExec() | TopExec() | RowNumberExec():
            return False
        case StreamExec():
            return False
        case _:
            assert_never(node)
