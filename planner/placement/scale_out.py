"""Placements: how the tasks of a cluster can share the work of a plan, and why.

A placement is a function of the plan alone; no cluster is asked. Each task runs the same plan over
a part of the rows, and the parts of the result, one behind the other, are the result. That holds
because a row brings the watermark that it has in the whole input.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from cql.base.types import BOOLEAN
from cql.base.window import Window, WindowKind, WindowOperator
from cql.errors import NotSupportedError, Position
from cql.planner.nodes.expr import Call, Column, Literal, conjunction
from cql.planner.nodes.physical import (
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
    NewestExec,
    NumberExec,
    OnTimeExec,
    OopJoinExec,
    Physical,
    PhysicalPlan,
    ProjectExec,
    PunctuatedSortExec,
    RuntimeChoice,
    SlackExec,
    SortExec,
    SourceExec,
    StreamExec,
    SubqueryJoinExec,
    TableJoinExec,
    UnionExec,
    UnnestExec,
    WidAggregateExec,
    WindowJoinExec,
    sources,
    walk,
)
from cql.planner.nodes.physical.numbers import NodeNumbers
from cql.planner.nodes.watermarks import NO_BOUND
from cql.planner.placement.broadcast import looks_up, shared, tables
from cql.planner.placement.by_key import columns_of, in_any_order, names_of
from cql.planner.placement.two_levels import TwoLevels, two_levels


@dataclass(frozen=True, slots=True)
class ByRows:
    """Each task takes consecutive rows of one input: the plan keeps no state."""


@dataclass(frozen=True, slots=True)
class ByTime:
    """Each task computes the windows that end in a range of time, or the pairs of a join whose rows
    of one input lie in it. Ranges end at ``offset`` plus a multiple of ``step``. ``reach``: of each
    source, how far before and behind its range a task reads (units of the event time). ``alone``:
    operators leave out every late row, so that a task needs no late rows of other ranges."""

    step: int
    offset: int
    reach: tuple[tuple[int, int], ...]
    alone: bool = False


@dataclass(frozen=True, slots=True)
class ByKey:
    """Each task takes the rows with some values of a key, which the rows are shuffled by.
    ``columns``: of each source, the indices of the key's columns in the schema of its relation."""

    columns: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class InLevels:
    """The first tasks take rows in any order of time and aggregate them in part, the second ones
    merge the parts of the windows that end in a range of time; ``step`` and ``offset`` as in
    ByTime."""

    step: int
    offset: int


@dataclass(frozen=True, slots=True)
class Whole:
    """One process computes the whole plan. ``why`` is the reason, ``pos`` its place in the text,
    ``hint`` what could be done."""

    why: str
    pos: Position | None = None
    hint: str | None = None


#: Operators that rows pass one by one.
PASSING = (SourceExec, FilterExec, ProjectExec, UnionExec, UnnestExec, TableJoinExec, LookupExec)
STATELESS = (*PASSING, OnTimeExec)
JOINS = (OopJoinExec, AsofJoinExec, TableJoinExec, LookupExec, SubqueryJoinExec, WindowJoinExec)

#: The runtime of plans that tasks of Spark share.
RUNTIME = "spark"

Placement: TypeAlias = ByRows | ByTime | ByKey | InLevels | Whole


def placement(plan: PhysicalPlan, by: str = "auto") -> Placement:
    """The placement of a plan over bounded inputs. ``by``: "time", "key" or "two_levels" takes this
    way or none, "auto" prefers the way that shuffles no rows."""
    refused = _refused(plan)
    if refused is not None:
        return refused
    placed = _placed(plan)
    if by == "two_levels" and not isinstance(placed, ByRows):
        found = levels_of(plan)
        if found is None or not isinstance(placed, ByTime):
            return Whole("the query has no aggregate over windows of time that has two levels")
        return InLevels(placed.step, placed.offset)
    if by == "key" and not isinstance(placed, ByRows):
        placed = Whole("SET tasks_by = 'key'")
    twice = isinstance(placed, ByTime) and any(map(any, placed.reach))
    if plan.keep_bad_rows and twice:
        placed = Whole(_READ_TWICE)
    if isinstance(placed, Whole) and by != "time":
        columns = columns_of(plan.root)
        if columns:
            return ByKey(columns)
        if by == "key":
            return Whole("no column is a key of all its operators")
    return placed


_READ_TWICE = "several tasks read a row, and ON BAD ROW KEEP counts it once"


def _placed(plan: PhysicalPlan) -> Placement:
    if _first_other(plan.root, STATELESS) is None:
        return ByRows()
    node = passed(plan.root)
    sort = node if isinstance(node, SortExec) and node.window_end is not None else None
    if sort is not None:
        node = passed(sort.input)
    if isinstance(node, WidAggregateExec) and node.window is not None:
        if sort is not None and not sort.is_total and not _keeps_order(node):
            return Whole("rows that are equal in ORDER BY leave in the order of all rows")
        return _windows(node, node.window)
    if isinstance(node, OopJoinExec) and node is passed(plan.root):
        return _pairs(node)
    return _whole_for(node)


def levels_of(plan: PhysicalPlan) -> TwoLevels | None:
    """The two levels of a plan, None if it has none."""
    if plan.keep_bad_rows or tables(plan.root) or not isinstance(_placed(plan), ByTime):
        return None
    return two_levels(plan.root, _aggregate(plan.root))


def _aggregate(root: Physical) -> Physical:
    """The operator below the order of the windows' rows."""
    node = passed(root)
    if isinstance(node, SortExec) and node.window_end is not None:
        node = passed(node.input)
    return node


def passed(node: Physical) -> Physical:
    """``node``, or the operator below its filters and projections."""
    while isinstance(node, FilterExec | ProjectExec):
        node = node.input
    return node


def chosen(plan: PhysicalPlan, by: str) -> RuntimeChoice:
    """The choice of the runtime spark; ``by`` as in ``placement``. Raises NotSupportedError for a
    plan that tasks cannot share."""
    placed = placement(plan, by)
    if isinstance(placed, Whole):
        raise NotSupportedError(
            f"runtime = 'spark' is not supported for this query: {placed.why}",
            position=placed.pos,
            hint=placed.hint or "SET runtime = 'auto' runs the query here",
        )
    return RuntimeChoice(RUNTIME, f"SET runtime = '{RUNTIME}': {described(plan, placed)}")


def described(plan: PhysicalPlan, placed: ByRows | ByTime | ByKey | InLevels) -> str:
    """The placement in words, for EXPLAIN."""
    if isinstance(placed, ByTime):
        return "tasks by time, each with the " + (
            "pairs of its range" if placed.alone else "windows that end in its range"
        )
    if isinstance(placed, InLevels):
        return "tasks in two levels: partial aggregates of row groups, merged by time"
    if isinstance(placed, ByKey):
        key = ", ".join(names_of(sources(plan.root), placed.columns))
        return f"tasks by key {key}: rows are shuffled by its values"
    return "tasks by rows: no operator keeps a state"


def keeps_order(plan: PhysicalPlan, placed: Placement) -> bool:
    """Whether tasks give the rows in the order of a run in one process. The rows of several inputs
    come in turns there, which depend on all rows."""
    if isinstance(placed, ByKey) or any(
        isinstance(n, UnionExec | OopJoinExec) for n in walk(plan.root)
    ):
        return False
    return all(_keeps_order(n) for n in walk(plan.root) if isinstance(n, WidAggregateExec))


def _refused(plan: PhysicalPlan) -> Whole | None:
    """A reason against any placement that lies in the inputs or in the whole query."""
    found = sources(plan.root)
    for source in found:
        spec, name = source.relation.stream, source.name
        if source.query is not None:
            return Whole(f"{name} is a query with a queue behind it", source.pos)
        if not source.relation.bounded:
            return Whole(f"{name} has no end", source.pos)
        if source.updates is not None and source.updates.windows is not None:
            return Whole(f"{name} is an update stream", source.pos)
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
    broadcast = tables(plan.root)
    if broadcast and plan.keep_bad_rows:
        return Whole(_READ_TWICE)
    names = {s.relation.name for s in found if s not in broadcast}
    for source in broadcast:
        if source.relation.name in names or source.progress:
            return Whole(
                f"rows are looked up in {source.name}, a part of which is late", source.pos
            )
    if plan.changelog:
        return Whole("the result is a relation that changes")
    return None


def _windows(node: WidAggregateExec, window: Window) -> Placement:
    if window.kind not in (WindowKind.SLIDING, WindowKind.CUMULATE):
        return Whole("sessions have no bounds that are known beforehand")
    if window.zone is not None:
        return Whole(f"windows are days of {window.zone}")
    if node.by is not None:
        return Whole("a value of a column has its own watermark")
    assert window.wa is not None
    assert window.range is not None
    assert window.slide is not None
    below = passed(node.input)
    if isinstance(below, WidAggregateExec) and below.window is not None:
        return _windows_of_windows(node, window, below)
    stateful = _first_other(node.input, PASSING)
    if stateful is not None:
        return _whole_for(stateful)
    if not all(_is_time(node.input, window.wa)):
        return Whole("the window's time is no stored time with a watermark")
    if not in_any_order(node) and _has_union(node):
        return Whole("an aggregate depends on the order in which the rows of a union come")
    count = len(sources(node))
    if window.kind is WindowKind.CUMULATE:  # windows that begin together lie in one range
        return ByTime(window.range, window.offset, ((0, 0),) * count)
    overlap = max(window.range - window.slide, 0)
    return ByTime(window.slide, window.offset + window.range, ((overlap, 0),) * count)


def by_watermark(plan: PhysicalPlan, placed: ByTime) -> ByTime:
    """The placement for tasks whose ranges end with the watermark: cumulating windows leave before
    the last one of those that begin with them."""
    lowest = [
        n for n in walk(plan.root) if isinstance(n, WidAggregateExec) and n.window is not None
    ]
    window = lowest[0].window if len(lowest) == 1 else None
    if window is None or window.kind is not WindowKind.CUMULATE:
        return placed
    assert window.range is not None
    assert window.slide is not None
    before = window.range - window.slide
    return replace(placed, step=window.slide, reach=((before, 0),) * len(placed.reach))


def _windows_of_windows(
    node: WidAggregateExec, window: Window, below: WidAggregateExec
) -> Placement:
    """Windows over the results of windows: those that do not overlap hold the results that end in
    their own time."""
    assert below.window is not None
    assert window.slide is not None
    placed = _windows(below, below.window)
    if not isinstance(placed, ByTime):
        return placed
    if window.range != window.slide or window.kind is not WindowKind.SLIDING:
        return Whole("windows that overlap hold results of windows of other ranges")
    if _column_of(node.input, window.wa) != len(below.schema) - 1:
        return Whole("the time of the outer window is not the window_time of the inner one")
    offset = window.offset + window.slide
    if window.slide % placed.step or (offset - placed.offset) % placed.step:
        return Whole("the outer windows do not end with inner ones")
    if not in_any_order(node) and not _keeps_order(below):
        return Whole("an aggregate depends on the order in which the groups of a window leave")
    return ByTime(window.slide, offset, placed.reach)


def _keeps_order(node: WidAggregateExec) -> bool:
    """Whether the groups of a window leave a task in the order in which they leave a run over all
    rows. Some operators take them as earlier windows left them, and the rows of several inputs come
    in turns that depend on all rows."""
    by_history = node.operator in (WindowOperator.TWO_STACKS, WindowOperator.SUBTRACT)
    return not (by_history or node.adaptive or _has_union(node))


def _has_union(node: Physical) -> bool:
    return any(isinstance(found, UnionExec) for found in walk(node))


def _column_of(node: Physical, column: int | None) -> int | None:
    """The column below filters and projections that ``column`` is, None for a computed one."""
    while column is not None and isinstance(node, FilterExec | ProjectExec):
        if isinstance(node, ProjectExec):
            expr = node.exprs[column]
            column = expr.index if isinstance(expr, Column) else None
        node = node.input
    return column


def _pairs(node: OopJoinExec) -> Placement:
    """A join by the time of the input whose rows leave without partners, else by that of the left
    input."""
    band = node.band
    stateful = _first_other(node.left, STATELESS) or _first_other(node.right, STATELESS)
    if stateful is not None:
        return _whole_for(stateful)
    if node.kind == "full":
        return Whole("a FULL JOIN has rows without partners on both sides", node.pos)
    if band is None or NO_BOUND in (abs(band.low), abs(band.high)):
        return Whole("the join has no time bound on both sides", node.pos)
    times = [*_is_time(node.left, band.left), *_is_time(node.right, band.right)]
    if not all(times) or node.left.schema[band.left].type != node.right.schema[band.right].type:
        return Whole("a time of the join is no stored time with a watermark", node.pos)
    near, far = ((0, 0), (max(-band.low, 0), max(band.high, 0)))
    if owner(node) == 1:
        near, far = ((max(band.high, 0), max(-band.low, 0)), (0, 0))
    found = NodeNumbers(*sources(node))
    reach = [(0, 0)] * len(found)
    for side, (before, behind) in ((node.left, near), (node.right, far)):
        for source in sources(side):
            known = reach[found[source]]
            reach[found[source]] = max(known[0], before), max(known[1], behind)
    return ByTime(1, 0, tuple(reach), alone=True)


def owner(node: OopJoinExec) -> int:
    """The input whose rows decide which task computes a pair: 0 for the left, 1 for the right."""
    return int(node.kind == "right")


def _first_other(node: Physical, kinds: tuple[type, ...]) -> Physical | None:
    """The first operator of ``node`` that is none of ``kinds``, not within broadcast tables."""
    return next(
        (
            found
            for found in shared(node)
            if not isinstance(found, kinds)
            or (isinstance(found, TableJoinExec) and not looks_up(found))
        ),
        None,
    )


def _is_time(node: Physical, column: int) -> list[bool]:
    """For each source below, whether ``column`` is the source's time, as it is."""
    if isinstance(node, SourceExec):
        return [column in {c for c, _ in node.progress}]
    found = node.carried_from(column)
    if found is None:
        return [False]
    return [is_time for port, below in found for is_time in _is_time(node.inputs[port], below)]


def _whole_for(node: Physical) -> Whole:
    if isinstance(node, WidAggregateExec):
        what = "an aggregate without a window" if node.window is None else "a second aggregate"
    elif isinstance(node, JOINS):
        what = "a join"
    else:
        what = _CLAUSES.get(type(node), node.title)
    return Whole(f"{what} needs all rows", getattr(node, "pos", None))


_CLAUSES = {
    LimitExec: "LIMIT",
    LateRowsExec: "LATE OUTPUT",
    SortExec: "ORDER BY",
    PunctuatedSortExec: "ORDER BY",
    DupelimExec: "DISTINCT",
    NewestExec: "UNION ALL of update streams",
    NumberExec: "a window of rows",
    KeyWindowsExec: "a window of rows",
    MergeUnionExec: "a union in order",
    SlackExec: "a watermark from the order of arrival",
    BucketExec: "a window without an aggregate",
    StreamExec: "a relation",
    ChangeAggregateExec: "a relation",
    OnTimeExec: "a relation",
}


def restricted(root: Physical, low: int | None, high: int | None) -> Physical:
    """The plan of one task of ``ByTime`` (None: no bound): the windows that end above ``low`` and
    not above ``high``, or the pairs with a row from ``low`` on and below ``high``."""
    match root:
        case WidAggregateExec():
            return _restricted_windows(root, low, high)
        case OopJoinExec(band=BandExec() as band):
            side = owner(root)
            column = (band.left, band.right)[side]
            made = [root.left, root.right]
            made[side] = _rows_within(made[side], column, low, high)
            return root.with_inputs((made[0], made[1]))
    return root.with_inputs(tuple(restricted(child, low, high) for child in root.inputs))


def _restricted_windows(node: WidAggregateExec, low: int | None, high: int | None) -> Physical:
    window = node.window
    assert window is not None
    if isinstance(passed(node.input), WidAggregateExec):
        node = replace(node, input=restricted(node.input, low, high))
    if low is not None and (window.kind is WindowKind.CUMULATE or window.overlap > 1):
        node = replace(node, window=replace(window, since=low))
    end = len(node.schema) - 2
    return _within(node, end, ("gt", low), ("le", high))


def _rows_within(node: Physical, column: int, low: int | None, high: int | None) -> Physical:
    """The rows of ``node`` with a time from ``low`` on and below ``high``. The operator that leaves
    out the late rows of a join (``lower.joins.pair_columns``) tests the others: a late row counts
    by its row watermark (``task.time_range``)."""
    match node:
        case ProjectExec():
            expr = node.exprs[column]
            assert isinstance(expr, Column)
            return replace(node, input=_rows_within(node.input, expr.index, low, high))
        case FilterExec():
            return replace(node, input=_rows_within(node.input, column, low, high))
        case UnnestExec() | TableJoinExec():
            return replace(node, input=_rows_within(node.input, node.columns[column], low, high))
        case LookupExec():
            return replace(node, input=_rows_within(node.input, column, low, high))
    assert isinstance(node, OnTimeExec)
    return replace(node, within=(column, low, high))


def _within(node: Physical, column: int, *bounds: tuple[str, int | None]) -> Physical:
    """The rows of ``node`` for which the comparisons of ``column`` hold; None: no bound."""
    field = node.schema[column]
    time = Column(column, field.name, field.type, False)
    parts = [
        Call(fn, (time, Literal(bound, field.type)), BOOLEAN, False)
        for fn, bound in bounds
        if bound is not None
    ]
    return FilterExec(node, conjunction(parts)) if parts else node
