"""Drops ORDER BY of an inner query whose reader does not depend on the order of rows: the clause
would change nothing, but rows would wait for it."""

from __future__ import annotations

from cql.base.window import WindowKind
from cql.planner.functions import registry
from cql.planner.nodes.expr import Column
from cql.planner.nodes.logical import (
    NUMBERED,
    Aggregate,
    Bucket,
    Filter,
    Join,
    Logical,
    Project,
    RelationToStream,
    RowNumber,
    SetOperation,
    Sort,
    SubqueryJoin,
    Union,
    Unnest,
    Windowed,
)
from cql.planner.nodes.rewrite import replace
from cql.planner.optimize.changelog import is_relation


def drop_inner_orders(plan: Logical) -> Logical:
    """``SELECT * FROM (SELECT * FROM s ORDER BY b) ORDER BY a`` → without ``ORDER BY b``. Applies
    below every operator that ignores the order of its input: joins, unions, windows of time."""
    plan = plan.map_inputs(drop_inner_orders)
    match plan:
        case Join() | SetOperation() | Union() | RelationToStream() | Bucket():
            return plan.map_inputs(_unordered)
        case SubqueryJoin():
            return replace(plan, query=_unordered(plan.query))
        case Sort() if plan.keys and plan.window_end is None:
            return replace(plan, input=_unordered(plan.input))
        case RowNumber() if plan.window is None:
            return replace(plan, input=_unordered(plan.input))
        case Windowed() if plan.window.kind is not WindowKind.ROWS:
            return replace(plan, input=_unordered(plan.input))
        case Aggregate() if _by_time(plan):
            return replace(plan, input=_unordered(plan.input))
    return plan


def _by_time(node: Aggregate) -> bool:
    """Whether ``node`` takes rows in the order of their times, not of their arrival."""
    if node.window is None:
        return is_relation(node.input)
    return node.input.schema[node.window.wa or 0].name not in NUMBERED


def _unordered(node: Logical) -> Logical:
    match node:
        case Filter() | Project() | Unnest():
            return replace(node, input=_unordered(node.input))
        case Sort() if _only_orders(node):
            return _unordered(node.input)
    return node


def _only_orders(node: Sort) -> bool:
    """Whether ``node`` drops no row (one past LIMIT, a late one, a bad one) and holds none until
    the watermark has passed it (EMIT ON WINDOW CLOSE)."""
    if node.holds or node.limit is not None or node.offset or node.window_end is not None:
        return False
    if any(registry.can_fail(key.expr) for key in node.keys):
        return False
    first = node.keys[0].expr
    timed = isinstance(first, Column) and first.index in node.input.progressing
    return not timed or _on_time(node.input)


def _on_time(node: Logical) -> bool:
    """Whether windows or joins of streams below drop late rows and rows without a time."""
    match node:
        case Filter() | Project() | Sort():
            return _on_time(node.input)
        case Windowed():
            return True
        case Join():
            return not node.looks_up
    return False
