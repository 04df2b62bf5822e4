"""Placements: how the tasks of a cluster can share the work of a plan, and why.

A placement is a function of the plan alone; no cluster is asked. Each task runs the same plan over
a part of the rows, and the parts of the result, in the order of the tasks, are the result. That
holds because a row brings the watermark that it has in the whole input.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from cql.base.types import BOOLEAN
from cql.base.window import Window, WindowKind
from cql.errors import NotSupportedError, Position
from cql.planner.nodes.expr import Call, Column, Literal, conjunction
from cql.planner.nodes.physical import (
    BucketExec,
    DupelimExec,
    FilterExec,
    KeyWindowsExec,
    LateRowsExec,
    LimitExec,
    MergeUnionExec,
    NumberExec,
    OnTimeExec,
    Physical,
    PhysicalPlan,
    ProjectExec,
    PunctuatedSortExec,
    RuntimeChoice,
    SlackExec,
    SortExec,
    SourceExec,
    StreamExec,
    UnionExec,
    WidAggregateExec,
    inputs,
    sources,
    with_input,
)
from cql.planner.nodes.physical_in_order_join import WindowJoinExec
from cql.planner.nodes.physical_join import (
    AsofJoinExec,
    LookupExec,
    OopJoinExec,
    SubqueryJoinExec,
    TableJoinExec,
    UnnestExec,
)


@dataclass(frozen=True, slots=True)
class ByRows:
    """Each task takes consecutive rows: the plan keeps no state."""


@dataclass(frozen=True, slots=True)
class ByTime:
    """Each task computes the windows that end in a range of time. Ranges end at ``offset`` plus a
    multiple of ``step``; a task reads rows from ``overlap`` before its range on (units of the event
    time)."""

    step: int
    offset: int
    overlap: int


@dataclass(frozen=True, slots=True)
class Whole:
    """One process computes the whole plan. ``why`` is the reason, ``pos`` its place in the text,
    ``hint`` what could be done."""

    why: str
    pos: Position | None = None
    hint: str | None = None


JOINS = (OopJoinExec, AsofJoinExec, TableJoinExec, LookupExec, SubqueryJoinExec, WindowJoinExec)

#: The runtime of plans that tasks of Spark share.
RUNTIME = "spark"

Placement: TypeAlias = ByRows | ByTime | Whole


def placement(plan: PhysicalPlan) -> Placement:
    """The placement of a plan over bounded inputs."""
    unknown = _refused(plan)
    if unknown is not None:
        return unknown
    node = plan.root
    while isinstance(node, FilterExec | ProjectExec):
        node = node.input
    if isinstance(node, SortExec) and node.window_end is not None:
        node = node.input
        while isinstance(node, FilterExec | ProjectExec):
            node = node.input
    if _passes(plan.root):
        return ByRows()
    if isinstance(node, WidAggregateExec) and node.window is not None:
        return _by_time(node, node.window)
    return _whole_for(node)


def chosen(plan: PhysicalPlan) -> RuntimeChoice:
    """The choice of the runtime spark. Raises NotSupportedError for a plan that tasks cannot
    share."""
    placed = placement(plan)
    if isinstance(placed, Whole):
        raise NotSupportedError(
            f"runtime = 'spark' is not supported for this query: {placed.why}",
            position=placed.pos,
            hint=placed.hint or "SET runtime = 'auto' runs the query here",
        )
    if isinstance(placed, ByTime):
        how = "tasks by time, each with the windows that end in its range"
    else:
        how = "tasks by rows: no operator keeps a state"
    return RuntimeChoice(RUNTIME, f"SET runtime = '{RUNTIME}': {how}")


def _refused(plan: PhysicalPlan) -> Whole | None:
    """A reason against any placement that lies in the inputs or in the whole query."""
    found = sources(plan.root)
    for source in found:
        spec, name = source.relation.stream, source.name
        if not source.relation.bounded:
            return Whole(f"{name} has no end", source.pos)
        if spec is None:
            continue
        if spec.by is not None:
            return Whole(f"{name} has PUNCTUATE BY", source.pos)
        if len(spec.progress) > 1:
            return Whole(f"{name} has several watermarks", source.pos)
        if any(p.marked_by is not None or not p.by_rows for p in spec.progress):
            return Whole(f"{name} has punctuation between its rows", source.pos)
    if not found:
        return Whole("the query reads no table")
    if plan.changelog:
        return Whole("the result is a relation that changes")
    if plan.keep_bad_rows:
        return Whole(
            "the ledger of bad rows numbers the rows of the whole input",
            hint="ON BAD ROW FAIL",
        )
    return None


def _passes(node: Physical) -> bool:
    """Whether rows pass through ``node`` one by one."""
    if isinstance(node, SourceExec):
        return True
    return isinstance(node, FilterExec | ProjectExec) and _passes(node.input)


def _by_time(node: WidAggregateExec, window: Window) -> Placement:
    below = node.input
    stack = [below]
    while stack:
        found = stack.pop()
        if not isinstance(found, SourceExec | FilterExec | ProjectExec | UnionExec):
            return _whole_for(found)
        stack += inputs(found)
    if window.kind not in (WindowKind.SLIDING, WindowKind.CUMULATE):
        return Whole("sessions have no bounds that are known beforehand")
    if window.zone is not None:
        return Whole(f"windows are days of {window.zone}")
    if node.by is not None:
        return Whole("a value of a column has its own watermark")
    assert window.range is not None
    assert window.slide is not None
    if any(not s.progress for s in sources(below)) or window.wa is None:
        return Whole("an input has no watermark")
    if not all(_is_time(below, window.wa)):
        return Whole("the window's time is computed, and files state no bounds of it")
    if window.kind is WindowKind.CUMULATE:  # windows that begin together lie in one range
        return ByTime(window.range, window.offset, 0)
    overlap = max(window.range - window.slide, 0)
    return ByTime(window.slide, window.offset + window.range, overlap)


def _is_time(node: Physical, column: int) -> list[bool]:
    """For each source below, whether ``column`` is the source's time, as it is."""
    match node:
        case SourceExec():
            return [column in {c for c, _ in node.progress}]
        case ProjectExec():
            expr = node.exprs[column]
            if not isinstance(expr, Column):
                return [False]
            return _is_time(node.input, expr.index)
        case UnionExec():
            return [is_time for below in node.inputs for is_time in _is_time(below, column)]
        case FilterExec():
            return _is_time(node.input, column)
    return [False]


def _whole_for(node: Physical) -> Whole:
    if isinstance(node, WidAggregateExec):
        what = "an aggregate without a window" if node.window is None else "a second aggregate"
    elif isinstance(node, JOINS):
        what = "a join"
    else:
        what = _CLAUSES.get(type(node), type(node).__name__.removesuffix("Exec"))
    return Whole(f"{what} needs all rows", getattr(node, "pos", None))


_CLAUSES = {
    LimitExec: "LIMIT",
    LateRowsExec: "LATE OUTPUT",
    SortExec: "ORDER BY",
    PunctuatedSortExec: "ORDER BY",
    DupelimExec: "DISTINCT",
    NumberExec: "a window of rows",
    KeyWindowsExec: "a window of rows",
    MergeUnionExec: "a union in order",
    SlackExec: "a watermark from the order of arrival",
    UnnestExec: "UNNEST",
    BucketExec: "a window without an aggregate",
    UnionExec: "a union without a window",
    StreamExec: "a relation",
    OnTimeExec: "a relation",
}


def restricted(root: Physical, low: int | None, high: int | None) -> Physical:
    """The plan of one task of ``ByTime``: the windows that end above ``low`` and not above
    ``high`` (None: no bound)."""
    if not isinstance(root, WidAggregateExec):
        return with_input(root, tuple(restricted(child, low, high) for child in inputs(root)))
    window, made = root.window, root
    assert window is not None
    if low is not None and window.kind is WindowKind.SLIDING and window.overlap > 1:
        made = replace(root, window=replace(window, since=low))
    end = len(root.schema) - 2
    field = root.schema[end]
    column = Column(end, field.name, field.type, False)
    parts = [
        Call(fn, (column, Literal(bound, field.type)), BOOLEAN, False)
        for fn, bound in (("gt", low), ("le", high))
        if bound is not None
    ]
    return FilterExec(made, conjunction(parts)) if parts else made
