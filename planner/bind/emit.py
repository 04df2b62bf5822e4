"""EMIT ON WINDOW CLOSE: a row leaves when the watermark has passed its time.

Windows, sessions and groups that punctuation closes need no change: their rows leave then anyway. A
DISTINCT becomes a grouping, so that its rows leave when their groups close. Filters, projections,
joins, unions and window functions pass rows on as they arrive; the plan holds these rows in a sort
by their time, which punctuation releases (out-of-order paper §5.5). The time of a row is the event
time of its stream, for a join the latest time of its members, and for a window function the end of
the window.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeGuard

from sqlglot import exp

from cql.dialect import nodes
from cql.planner.bind.context import Binder
from cql.planner.nodes.expr import Call, Column, Expr
from cql.planner.nodes.logical import (
    WINDOW_COLUMNS,
    Aggregate,
    Bucket,
    Filter,
    Join,
    Limit,
    Logical,
    Number,
    Project,
    RelationToStream,
    RowNumber,
    SetOperation,
    Sort,
    SortKey,
    SubqueryJoin,
    Union,
    Unnest,
    Values,
    Watermark,
    Windowed,
)
from cql.planner.optimize.changelog import changes, only_complete

CLAUSE = "EMIT ON WINDOW CLOSE"


def waits_for_close(emit: exp.Expr | None) -> TypeGuard[nodes.Emit]:
    """Whether a query's EMIT clause is ON WINDOW CLOSE."""
    return isinstance(emit, nodes.Emit) and str(emit.this) == "ON WINDOW CLOSE"


def emits_changes(emit: exp.Expr | None) -> TypeGuard[nodes.Emit]:
    """Whether a query's EMIT clause is CHANGES."""
    return isinstance(emit, nodes.Emit) and str(emit.this) == "CHANGES"


def check_changes(binder: Binder, plan: Logical, emit: exp.Expr) -> None:
    """Raises NotSupportedError for EMIT CHANGES of an operator whose rows leave only when they are
    complete."""
    whole = only_complete(plan)
    if whole is not None:
        hint = "leave it out: each window gives its rows once, when it closes"
        raise binder.unsupported(f"EMIT CHANGES of {whole}", emit, hint)


def held(binder: Binder, plan: Logical, emit: exp.Expr) -> Logical:
    """``plan`` changed so that each row leaves when the watermark has passed its time. Raises
    BindError if no column progresses."""
    if changes(plan):
        return plan
    plan = _grouped(plan)
    if _closes(plan):
        return plan
    if isinstance(plan, Project | Limit):
        return replace(plan, input=held(binder, plan.input, emit))
    if isinstance(plan, Union) and not plan.progressing:
        return replace(plan, inputs=tuple(held(binder, i, emit) for i in plan.inputs))
    time = time_of(plan)
    if time is None:
        raise binder.error(
            f"{CLAUSE} waits until event time has passed a row, and no time has a watermark here",
            emit,
            hint="declare ORDERED BY or WATERMARK on the streams of the query, or leave it out",
        )
    return Sort(plan, (SortKey(time, False, True),), None, 0, None, binder.pos(emit), CLAUSE)


def _grouped(plan: Logical) -> Logical:
    """``plan`` with each DISTINCT turned into a grouping, whose rows leave when a group closes."""
    match plan:
        case Aggregate():
            return replace(plan, distinct=False)
        case Filter() | Project() | Unnest() | Windowed() | SubqueryJoin() | Number() | Watermark():
            return replace(plan, input=_grouped(plan.input))
        case Join():
            return replace(plan, left=_grouped(plan.left), right=_grouped(plan.right))
        case Union():
            return replace(plan, inputs=tuple(map(_grouped, plan.inputs)))
    return plan


def _closes(plan: Logical) -> bool:
    """Whether the rows of ``plan`` leave only when the watermark has passed their time."""
    match plan:
        case Aggregate() | RowNumber() | SetOperation() | RelationToStream() | Sort() | Values():
            return True
        case Filter() | Project() | Unnest() | Windowed() | SubqueryJoin() | Number() | Watermark():
            return _closes(plan.input)
        case Limit():
            return _closes(plan.input)
        case Join():
            return _closes(plan.left) and (plan.looks_up or _closes(plan.right))
        case Union():
            return all(_closes(i) for i in plan.inputs)
    return False


def time_of(plan: Logical) -> Expr | None:
    """The time of a row of ``plan``; None if no column progresses."""
    fields = plan.schema.fields
    live = plan.progressing
    times = [Column(k, fields[k].name, fields[k].type, fields[k].nullable) for k in live]
    if not times:
        return None
    below = plan
    while isinstance(below, Filter | SubqueryJoin | Unnest):
        below = below.input
    if isinstance(below, Bucket):
        end = len(below.input.schema) + WINDOW_COLUMNS.index("window_end")
        return next((t for t in times if t.index == end), times[0])
    members = [t for c in below.times or () for t in times if t.index == c]
    if len(members) > 1 and len({m.type for m in members}) == 1:
        return Call("greatest", tuple(members), members[0].type, any(m.nullable for m in members))
    return times[0]
