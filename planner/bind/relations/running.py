"""Running functions above the rows of a SELECT, which need a defined order."""

from __future__ import annotations

from cql.errors import NotSupportedError, Position
from cql.planner.bind.relations.signals import has_plain_times
from cql.planner.functions.running import refused
from cql.planner.nodes.expr import columns_of
from cql.planner.nodes.logical import (
    Aggregate,
    Bucket,
    Concat,
    Fill,
    Filter,
    Gaps,
    Join,
    Limit,
    Logical,
    Number,
    Process,
    Project,
    Rewindow,
    Running,
    RunningCall,
    Scan,
    Sort,
    SubqueryJoin,
    Sync,
    Unnest,
    Values,
    Watermark,
    Zip,
    samples_of,
)
from cql.planner.nodes.rewrite import replace
from cql.planner.optimize.changelog import is_of_updates, is_relation


def with_running(plan: Logical, call: RunningCall, name: str, pos: Position | None) -> Running:
    """``plan`` with the values of ``call`` as its last column; calls over the same rows share a
    node. Raises NotSupportedError if the rows have no defined order."""
    if isinstance(plan, Running):
        width = len(plan.input.schema)
        if all(c < width for c in columns_of(call.value)):
            return replace(plan, calls=(*plan.calls, call), names=(*plan.names, name))
    else:
        over = unordered(plan)
        if over is not None:
            raise _refusal(call.fn, over, pos)
    samples = samples_of(plan)
    timed = samples is not None and has_plain_times(samples)
    time = samples.time if samples is not None and timed else None
    return Running(plan, (call,), (name,), time, pos)


def _refusal(fn: str, over: str, pos: Position | None) -> NotSupportedError:
    error = refused(fn, f"over {over}", pos)
    error.hint = (
        "it runs over the rows of one stream, or of windows with SLIDE, in the order in which they"
        " come"
    )
    return error


def unordered(plan: Logical) -> str | None:
    """What ``plan`` is whose rows come in no defined order; None if they come in one."""
    if is_of_updates(plan):
        return "an update stream, whose rows replace older ones,"
    if is_relation(plan):
        return "a relation, whose rows also leave,"
    match plan:
        case Scan():
            return (
                None if plan.relation.stream is not None else "a table, whose rows have no order,"
            )
        case Values() | Sort():
            return None
        case Aggregate() if plan.window is not None and not plan.keys:
            return None
        case Aggregate() if plan.window is None and plan.closing_key is None:
            return "groups of the whole input"
        case Aggregate() if plan.window is None and len(plan.keys) == 1:
            return None
        case SubqueryJoin() | Filter() | Project() | Limit() | Unnest() | Bucket():
            return unordered(plan.input)
        case Watermark() | Number() | Rewindow() | Running() | Aggregate() | Gaps() | Process():
            return unordered(plan.input)
        case Concat() | Fill():
            return unordered(plan.input)
        case Zip():
            return None
        case Sync():
            return unordered(plan.left)
        case Join() if plan.looks_up:
            beside = plan.left.is_table and not plan.right.is_table
            return unordered(plan.right if beside else plan.left)
    return (
        f"{_CLAUSES.get(type(plan).__name__, 'this query')}, whose rows come in no defined order,"
    )


_CLAUSES = {
    "Join": "a join",
    "Union": "a union",
    "SetOperation": "EXCEPT or INTERSECT",
    "RelationToStream": "ISTREAM, DSTREAM or RSTREAM",
    "RowNumber": "ROW_NUMBER",
    "Windowed": "a window without SLIDE",
}
