"""From logical to physical nodes: one operator per node, each with the reason for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cql.base.window import Window, WindowKind
from cql.errors import NotSupportedError, PlanError
from cql.planner.lower import choose, ordering
from cql.planner.lower.dupelim import dupelim
from cql.planner.lower.joins.in_order_join import in_time_order, window_join_of
from cql.planner.lower.joins.oop_join import join_of, projected, with_end
from cql.planner.lower.joins.pair_columns import with_columns
from cql.planner.lower.joins.relation_join import holds_rows
from cql.planner.lower.refuse import NUMBERED_ROWS, refusal
from cql.planner.lower.relation import (
    looked_up,
    most_rows,
    on_time,
    pairs,
    stream_of,
)
from cql.planner.lower.running import process, running
from cql.planner.lower.signals import gaps, rewindow, samples, sync
from cql.planner.lower.updates.queue import newest, update_queue, why_queue
from cql.planner.lower.updates.windows import over_windows
from cql.planner.nodes.catalog import TimeUnit
from cql.planner.nodes.expr import Cast, Column, Expr
from cql.planner.nodes.logical import (
    ASOF,
    NUMBERED,
    Aggregate,
    Bucket,
    Concat,
    Fill,
    Filter,
    Gaps,
    Join,
    Limit,
    Logical,
    Newest,
    Number,
    Process,
    Project,
    RelationToStream,
    Rewindow,
    RowNumber,
    Running,
    Scan,
    SetOperation,
    Sort,
    SortKey,
    SubqueryJoin,
    Sync,
    Union,
    Unnest,
    Unsupported,
    Values,
    Watermark,
    Windowed,
    Zip,
    is_inner,
)
from cql.planner.nodes.physical import (
    BucketExec,
    DupelimExec,
    FilterExec,
    KeyWindowsExec,
    NumberExec,
    OnTimeExec,
    Physical,
    ProjectExec,
    SortExec,
    SourceExec,
    UnionExec,
    UnnestExec,
    ValuesExec,
    WidAggregateExec,
    WindowJoinExec,
    sources,
    walk,
)
from cql.planner.nodes.show import show
from cql.planner.optimize.changelog import is_relation
from cql.planner.placement import partitioning

#: The beginning of the reason for groups that joint punctuation closes.
JOINT = "joint punctuation on"


def lower(node: Logical, settings: Mapping[str, Any]) -> Physical:
    """The operators of a stream or table; the relations in it are lowered by
    ``planner.lower.relation``."""
    match node:
        case Scan():
            parts = (choose.why_source(node), why_queue(node, settings))
            why, updates = "; ".join(filter(None, parts)), update_queue(node, settings)
            return SourceExec(
                node.relation, node.columns, why, node.pos, alias=node.alias, updates=updates
            )
        case Values():
            return ValuesExec(node.schema, node.rows)
        case Filter() if isinstance(node.input, RowNumber):
            limit = most_rows(node.condition, len(node.input.schema) - 1)
            return FilterExec(_row_number(node.input, settings, limit), node.condition)
        case Filter():
            return FilterExec(lower(node.input, settings), node.condition)
        case Project():
            return projected(lower(node.input, settings), node.exprs, node.names)
        case Union():
            children = tuple(lower(i, settings) for i in node.inputs)
            return UnionExec(children, node.schema.names)
        case Newest():
            return newest(node, settings, lambda below: lower(below, settings))
        case Aggregate():
            return _aggregate(node, settings)
        case Bucket():
            return BucketExec(
                lower(node.input, settings), node.window, "tags each row with its windows"
            )
        case Unnest():
            return _unnest(node, lower(node.input, settings))
        case Watermark():
            return ordering.declared(lower(node.input, settings), node)
        case Running():
            return running(node, lower(node.input, settings))
        case Process():
            return process(node, lower(node.input, settings))
        case Rewindow():
            return rewindow(node, lambda below: lower(below, settings), settings)
        case Gaps():
            return gaps(node, lambda below: lower(below, settings))
        case Concat() | Fill() | Zip():
            return samples(node, lambda below: lower(below, settings))
        case Sync():
            return sync(node, lambda below: lower(below, settings), settings)
        case Number() if node.windows is not None:
            why = "the rows of a window leave when its last one has come (out-of-order paper A.2.2)"
            return KeyWindowsExec(lower(node.input, settings), node.windows, why)
        case Number():
            why = "windows of rows count the stream as it came"
            return NumberExec(lower(node.input, settings), why)
        case Sort():
            return _sort(node, settings)
        case Limit():
            return ordering.with_limit(lower(node.input, settings), node.limit, node.offset)
        case RowNumber():
            return _row_number(node, settings)
        case Windowed():
            return on_time(node, lambda n: lower(n, settings))
        case SubqueryJoin():
            return looked_up(node, lambda n: lower(n, settings))
        case RelationToStream():
            return stream_of(node, lambda n: lower(n, settings))
        case Join() if node.looks_up or node.kind in ASOF:
            return join_of(node, lambda n: lower(n, settings), settings)
        case Join() if holds_rows(node) or (is_relation(node) and not is_inner(node)):
            return pairs(node, lambda n: lower(n, settings))
        case Join() if settings["join_operator"] in ("auto", "oop_join"):
            return join_of(node, lambda n: lower(n, settings), settings)
        case Join():
            return window_join_of(node, lambda n: lower(n, settings), settings)
        case SetOperation() | Unsupported():
            raise AssertionError("refused above, or a relation")


def _unnest(node: Unnest, child: Physical) -> Physical:
    shown, names = range(len(child.schema)), node.schema.names
    child, (array,) = with_columns(child, [node.array])
    columns = (*shown, len(child.schema))
    kind = "left" if node.outer else "inner"
    return UnnestExec(
        child,
        array,
        kind,
        columns,
        names,
        "rows pass as they come, each with the elements that it has",
    )


def _aggregate(node: Aggregate, settings: Mapping[str, Any]) -> Physical:
    updates = over_windows(node, settings)
    if updates is not None:
        return updates
    child = lower(node.input, settings)
    if node.window is None:
        distinct = dupelim(node, child, settings)
        if distinct is not None:
            return distinct
        times = node.closing_pair
        if times is not None:
            return _closed_by_pair(node, child, times, settings)
        closing = node.closing_key
        if closing is not None and closing[1] in child.progressing:
            return _closed_by_key(node, child, *closing, settings)
        if not child.bounded:
            raise _never_ends(node, child)
    elif node.window.wa not in child.progressing:
        raise PlanError(
            "the window attribute has no watermark in this plan: no window would ever close",
            position=node.pos,
            hint="SET join_operator = 'oop_join' has a watermark on the least of two times"
            if any(isinstance(n, WindowJoinExec) for n in walk(child))
            else "declare ORDERED BY or WATERMARK on every input of the query",
        )
    elif node.input.schema[node.window.wa].name not in NUMBERED:
        unit = node.input.progressing[node.window.wa].unit
        child = ordering.before_window(child, node.window.wa, unit, settings, node.pos)
        child = ordering.late_rows(child, node)
    aggregate = WidAggregateExec(
        child, node.window, node.keys, node.calls, node.names, partitioning=node.partitioning
    )
    return choose.aggregate(aggregate, settings)


def _never_ends(node: Aggregate, child: Physical) -> PlanError:
    endless = [s.relation for s in sources(child) if not s.relation.bounded]
    names = ", ".join(".".join(r.name) for r in endless)
    what = "DISTINCT" if node.distinct else "an aggregate"
    hint = "add a window: FROM s [RANGE 10 MINUTES SLIDE 1 MINUTE]"
    live = [p.column for r in endless if r.stream is not None for p in r.stream.progress]
    if live:
        timed = endless[0].schema.find(live[0])
        is_timestamp = timed is not None and endless[0].schema[timed].type.is_timestamp
        rising = f"date_trunc('minute', {live[0]})" if is_timestamp else live[0]
        hint += f"; {'select' if node.distinct else 'group by'} what rises with time: {rising}"
    return PlanError(
        f"{what} without a window over unbounded input ({names}) never ends",
        position=node.pos,
        hint=f"{hint}; or take the changes: EMIT CHANGES",
    )


def _closed_by_pair(
    node: Aggregate, child: Physical, times: tuple[int, int], settings: Mapping[str, Any]
) -> Physical:
    """An aggregate whose keys hold a time of each input of a join. Joint punctuation closes a group
    when both inputs have passed both times. Individual punctuation closes a group when no pair with
    the first time can come any more."""
    made = with_end(child, times, "greatest")
    if made is None or settings["join_punctuation"] == "individual":
        live = [t for t in times if t in child.progressing]
        if not live:
            raise PlanError(
                "neither time of the join has a watermark: no group would ever be complete",
                position=node.pos,
                hint="declare ORDERED BY or WATERMARK on both inputs of the join",
            )
        at = [isinstance(e, Column) and e.index == live[0] for e in node.keys].index(True)
        return _closed_by_key(node, child, at, live[0], settings)
    child, later = made
    names = [child.schema[t].name for t in times]
    why = (
        f"{JOINT} {' and '.join(names)} closes groups, however wide the band"
        " (out-of-order paper §7)"
    )
    window = Window(WindowKind.SLIDING, later, 1, 1)
    grouped = WidAggregateExec(
        child,
        window,
        node.keys,
        node.calls,
        node.names,
        why=why,
        partitioning=node.partitioning,
    )
    columns = [Column(k, f.name, f.type, f.nullable) for k, f in enumerate(grouped.schema)]
    width = len(node.names)
    return ProjectExec(grouped, tuple(columns[:width]), node.names)


def _closed_by_key(
    node: Aggregate, child: Physical, at: int, column: int, settings: Mapping[str, Any]
) -> Physical:
    """An aggregate whose groups punctuation closes: each is a window of one unit of a key that
    rises with a progressing column. The output value of the key is the beginning of the window."""
    unit = node.input.progressing[column].unit
    child = ordering.before_window(child, column, unit, settings, node.pos)
    key, keys = node.keys[at], node.keys
    wa = key.index if isinstance(key, Column) else len(child.schema)
    name = child.schema[column].name
    rises = "" if isinstance(key, Column) else f"{show(key)} rises with {name}: "
    why = f"{rises}punctuation on {name} closes groups, which leave then (out-of-order paper §5.2)"
    if not isinstance(key, Column):
        columns = [Column(k, f.name, f.type, f.nullable) for k, f in enumerate(child.schema)]
        names = (*child.schema.names, node.names[at])
        child = ProjectExec(child, (*columns, key), names, "computes the key that closes groups")
    window = Window(WindowKind.SLIDING, wa, 1, 1)
    others = (*keys[:at], *keys[at + 1 :])
    names = (*node.names[:at], *node.names[at + 1 :])
    split = partitioning.without(node.partitioning, at)
    made = WidAggregateExec(child, window, others, node.calls, names, why=why, partitioning=split)
    fields = [Column(k, f.name, f.type, f.nullable) for k, f in enumerate(made.schema)]
    begin: Expr = fields.pop(len(others) + len(node.calls))
    if begin.type != key.type:
        begin = Cast(begin, key.type, False)
    exprs = (*fields[:at], begin, *fields[at : len(others) + len(node.calls)])
    return ProjectExec(made, exprs, node.names)


def _sort(node: Sort, settings: Mapping[str, Any]) -> Physical:
    """Sort keys that are expressions become columns below the sort and are dropped above it."""
    width, names = len(node.input.schema), node.input.schema.names
    child, keys = _sorted_by_join(node, settings) or (lower(node.input, settings), node.keys)
    if node.window_end is not None and node.window_end not in child.window_columns:
        raise PlanError(
            "ORDER BY cannot tell when a window of its input is complete", position=node.pos
        )
    child, keys = _with_keys(child, keys)
    made = _ordered(node, child, keys, settings)
    if len(child.schema) == width:
        return made
    return ProjectExec(made, _columns(made)[:width], names, "drops the sort keys")


def _sorted_by_join(
    node: Sort, settings: Mapping[str, Any]
) -> tuple[Physical, tuple[SortKey, ...]] | None:
    """The input and the sort keys over it, if it is a join that can emit rows in their order."""
    if node.window_end is not None or node.holds or settings["join_operator"] == "oop_join":
        return None
    found = in_time_order(node.input, lambda n: lower(n, settings), settings)
    if found is None or node.keys[0].descending:
        return None
    keys = tuple(replace(key, expr=found.place(key.expr)) for key in node.keys)
    first = keys[0].expr
    if isinstance(first, Column) and found.plan.joined_in_order(first.index):
        return found.plan, keys
    return None


def _row_number(node: RowNumber, settings: Mapping[str, Any], limit: int | None = None) -> Physical:
    """A sort that numbers the rows of each window; the plan above needs only those up to
    ``limit``."""
    child = lower(node.input, settings)
    assert node.window is not None  # else it is a relation
    if node.window not in child.window_columns or not child.in_windows:
        raise refusal("OVER without a window below", node.pos, NUMBERED_ROWS)
    if _holds_rows(child):
        why = f"rows that come after their {child.schema[node.window].name} are left out"
        child = OnTimeExec(child, node.window, why)
    width = len(child.schema)
    child, keys = _with_keys(child, node.keys)
    others = tuple(c for c in node.partition if c != node.window)
    name = child.schema[node.window].name
    why = f"rows are numbered when punctuation on {name} has passed their window"
    made = SortExec(child, keys, limit, 0, node.window, why, others, node.name)
    if len(child.schema) == width:
        return made
    columns = _columns(made)
    names = node.schema.names
    return ProjectExec(made, (*columns[:width], columns[-1]), names, "drops the sort keys")


def _holds_rows(node: Physical) -> bool:
    """Whether some rows are input rows, of window functions or Dupelim, which may come late."""
    return not isinstance(node, WidAggregateExec) and (
        isinstance(node, BucketExec | DupelimExec) or any(_holds_rows(i) for i in node.inputs)
    )


def _is_distinct(node: Physical) -> bool:
    """Whether rows of Dupelim, which has dropped late rows, pass filters and projections only."""
    while isinstance(node, FilterExec | ProjectExec):
        node = node.input
    return isinstance(node, DupelimExec)


def _columns(node: Physical) -> tuple[Column, ...]:
    return tuple(Column(i, f.name, f.type, f.nullable) for i, f in enumerate(node.schema))


def _with_keys(
    child: Physical, wanted: tuple[SortKey, ...]
) -> tuple[Physical, tuple[SortKey, ...]]:
    """``child`` with the sort keys as columns; expressions become columns behind its own."""
    width = len(child.schema)
    exprs: list[Expr] = [Column(i, f.name, f.type, f.nullable) for i, f in enumerate(child.schema)]
    keys: list[SortKey] = []
    for key in wanted:
        if isinstance(key.expr, Column):
            keys.append(key)
            continue
        column = Column(len(exprs), f"sort_key_{len(exprs)}", key.expr.type, key.expr.nullable)
        exprs.append(key.expr)
        keys.append(replace(key, expr=column))
    if len(exprs) > width:
        names = (*child.schema.names, *(f"sort_key_{i}" for i in range(width, len(exprs))))
        child = projected(child, exprs, names)
        if isinstance(child, ProjectExec):
            child = replace(child, why="computes the sort keys")
    return child, tuple(keys)


def _ordered(
    node: Sort, child: Physical, keys: tuple[SortKey, ...], settings: Mapping[str, Any]
) -> Physical:
    if node.window_end is None:
        released = ordering.sort(child, keys)
        if released is not None:
            closed = released.order in child.window_columns and not _holds_rows(child)
            if not closed and not _is_distinct(child):  # else the slack is applied below already
                unit = _unit(node, keys[0])
                below = ordering.with_slack(child, released.order, unit, settings, node.pos)
                released = replace(released, input=below)
            return ordering.with_limit(released, node.limit, node.offset)
    if node.holds and not child.bounded:
        raise NotSupportedError(
            f"{node.clause} over a join without a time whose watermark is the later of its members'"
            " is not supported",
            position=node.pos,
            hint="join two streams within a distance of time (a.ts BETWEEN b.ts - INTERVAL 1 MINUTE"
            " AND b.ts + INTERVAL 1 MINUTE), or leave the clause out",
        )
    if node.window_end is None and not child.bounded:
        within = "within a window: … [RANGE r SLIDE s] … GROUP BY … ORDER BY …"
        if is_relation(node.input):
            within = "what the window holds at each instant: … EMIT CHANGES"
        raise PlanError(
            "ORDER BY over unbounded input has no end to wait for",
            position=node.pos,
            hint=f"order by a time with a watermark first (… ORDER BY ts, …), or {within}",
        )
    why = (
        "rows of a window leave in order when punctuation closes it"
        if node.window_end is not None
        else "bounded input: rows leave in order at its end"
    )
    return SortExec(child, keys, node.limit, node.offset, node.window_end, why)


def _unit(node: Sort, key: SortKey) -> TimeUnit | None:
    """The time unit of a sort key that is a progressing column of the input; else None."""
    live = node.input.progressing
    found = isinstance(key.expr, Column) and key.expr.index in live
    return live[key.expr.index].unit if found and isinstance(key.expr, Column) else None
