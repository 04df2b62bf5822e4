"""Bounds on the distances of the times of one row, derived from the bands of its joins."""

from __future__ import annotations

from typing import assert_never

from cql.planner.nodes.expr import Column
from cql.planner.nodes.physical import (
    ArrivalExec,
    AsofJoinExec,
    BandExec,
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
from cql.planner.nodes.watermarks import NO_BOUND


def followers(node: OopJoinExec) -> tuple[tuple[int, int, int], ...]:
    """The value of ``node.follows``: (column, port, how far it lies below the port's time)."""
    if node.band is None:
        return ()
    times = node.band.left, len(node.left.schema) + node.band.right
    return tuple(
        (column, port, far)
        for port, time in enumerate(times)
        if not node.loose(port)
        for column, far in _of_side(node, port, time).items()
        if column != time
    )


def below(node: Physical, column: int) -> dict[int, int]:
    """Columns of ``node``, each with the most by which it lies below ``column`` in any row."""
    match node:
        case FilterExec() | LimitExec() | OnTimeExec() | LateRowsExec():
            return below(node.input, column)
        case ProjectExec():
            shown = node.exprs[column]
            found = below(node.input, shown.index) if isinstance(shown, Column) else {}
            places = [e.index if isinstance(e, Column) else None for e in node.exprs]
        case OopJoinExec(band=BandExec()):
            found = _of_pair(node, node.columns[column])
            places = [*node.columns]
        case SourceExec() | ValuesExec() | BucketExec() | UnionExec() | MergeUnionExec():
            return {column: 0}
        case PunctuatedSortExec() | SlackExec() | WidAggregateExec() | SortExec() | NumberExec():
            return {column: 0}
        case KeyWindowsExec() | DupelimExec() | ArrivalExec() | RelationExec() | SubqueryJoinExec():
            return {column: 0}
        case LookupExec() | OopJoinExec() | TableJoinExec() | UnnestExec() | RelationJoinExec():
            return {column: 0}
        case AsofJoinExec() | WindowJoinExec() | ChangeAggregateExec() | SetOperationExec():
            return {column: 0}
        case TopExec() | RowNumberExec() | StreamExec():
            return {column: 0}
        case _:
            assert_never(node)
    return {column: 0} | {k: found[c] for k, c in enumerate(places) if c is not None and c in found}


def _of_pair(node: OopJoinExec, column: int) -> dict[int, int]:
    """``below`` for the columns of both inputs of a join."""
    assert node.band is not None
    times = node.band.left, len(node.left.schema) + node.band.right
    port = int(column >= len(node.left.schema))
    if column >= node.later or node.loose(port):
        return {}
    found = _of_side(node, port, column)
    # low <= right - left <= high
    reach = node.band.high if port else -node.band.low
    if node.kind == "inner" and times[port] in found and abs(reach) < NO_BOUND:
        far = found[times[port]] + reach
        found |= {c: far + d for c, d in _of_side(node, 1 - port, times[1 - port]).items()}
    return found


def _of_side(node: OopJoinExec, port: int, column: int) -> dict[int, int]:
    first = len(node.left.schema) if port else 0
    side = node.right if port else node.left
    return {first + c: far for c, far in below(side, column - first).items()}
