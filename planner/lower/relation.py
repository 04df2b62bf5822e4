"""Relations as physical operators over changelogs.

A change is a row with the instant ``_time`` and a ``_weight``: the number of copies of the row that
enter (or, below zero, leave). Filters, projections and unions process changes like other rows;
operators that need a whole relation consume and emit changes instant by instant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from cql.base.types import BIGINT, DataType, Kind
from cql.base.window import MAX_EVENT_TIME, WindowKind
from cql.errors import NotSupportedError, PlanError
from cql.planner.functions import coercion
from cql.planner.lower.joins.relation_join import (
    each_pair_once,
    mark_join,
    relation_join,
)
from cql.planner.lower.net_changes import as_stream
from cql.planner.lower.ordering import late_rows
from cql.planner.nodes.expr import Call, Cast, Column, Expr, Literal
from cql.planner.nodes.logical import (
    TIME,
    WEIGHT,
    Aggregate,
    AggregateCall,
    Filter,
    Join,
    Limit,
    Logical,
    Project,
    RelationToStream,
    RowNumber,
    Scan,
    SetOperation,
    Sort,
    SortKey,
    SubqueryJoin,
    Union,
    Windowed,
)
from cql.planner.nodes.physical import (
    ArrivalExec,
    ChangeAggregateExec,
    FilterExec,
    LookupExec,
    OnTimeExec,
    Physical,
    ProjectExec,
    RelationExec,
    RowNumberExec,
    SetOperationExec,
    SubqueryJoinExec,
    TopExec,
    UnionExec,
    read_ahead,
)
from cql.planner.optimize.changelog import as_side, clock, sees_relation

Lower: TypeAlias = Callable[[Logical], Physical]

_WHY_WINDOW = {
    WindowKind.RANGE: "a row leaves when RANGE has passed",
    WindowKind.NOW: "a row leaves at the next instant",
    WindowKind.UNBOUNDED: "no row ever leaves",
    WindowKind.ROWS: "a row leaves when ROWS later ones have come, in event time",
}
_WHY_UPSERT = "a changelog: the last row of each key, in event time; a delete takes it out"
_WHY_RETRACT = "a changelog: each row enters or takes one like it out, in event time"


def stream_of(node: RelationToStream, lower: Lower) -> Physical:
    """ISTREAM, DSTREAM or RSTREAM."""
    why = {
        "ISTREAM": "of each instant the rows that are new, net of those that leave",
        "DSTREAM": "of each instant the rows that leave, net of those that are new",
        "RSTREAM": "the whole relation at each instant at which it changes",
    }[node.kind.upper()]
    return as_stream(changes(node.input, node.time, lower), node.kind.lower(), why)


def on_time(node: Windowed, lower: Lower) -> Physical:
    """A window at the top of a query without an operator that needs a relation: each row once."""
    child = lower(node.input)
    if node.window.wa is None or node.window.wa not in child.progressing:
        return child
    child = late_rows(child, node)
    return OnTimeExec(child, node.window.wa, "each row once: nothing above asks what leaves")


def changes(node: Logical, time: DataType | None, lower: Lower) -> Physical:
    """``node`` as a changelog: its columns, then ``_time`` and ``_weight``. ``lower`` makes the
    operators of streams."""
    time = time or BIGINT
    match node:
        case Windowed():
            return _windowed(node, lower)
        case Filter() if isinstance(node.input, RowNumber) and node.input.window is None:
            limit = most_rows(node.condition, len(node.input.schema) - 1)
            return FilterExec(_row_number(node.input, time, lower, limit), node.condition)
        case RowNumber() if node.window is None:
            return _row_number(node, time, lower, None)
        case Filter() if sees_relation(node):
            return FilterExec(changes(node.input, time, lower), node.condition)
        case Project() if sees_relation(node):
            below = changes(node.input, time, lower)
            return ProjectExec(
                below, (*node.exprs, *_of_change(below)), (*node.names, TIME, WEIGHT)
            )
        case Union():
            parts = tuple(changes(i, time, lower) for i in node.inputs)
            why = "changes of all inputs, as they come"
            return UnionExec(parts, (*node.schema.names, TIME, WEIGHT), why)
        case Aggregate() if node.window is None:
            return _aggregate(node, time, lower)
        case SetOperation():
            return _set_operation(node, time, lower)
        case Join():
            return _join(node, time, lower)
        case SubqueryJoin():
            return _subquery_join(node, changes(node.input, time, lower), time, lower)
        case Sort():
            return _top(node, node.keys, time, lower)
        case Limit() if sees_relation(node.input):
            return _top(node, (), time, lower)
    return _whole(node, time, lower)


def _of_change(below: Physical) -> tuple[Expr, Expr]:
    fields = below.schema.fields
    made = [
        Column(k, fields[k].name, fields[k].type, False) for k in (len(fields) - 2, len(fields) - 1)
    ]
    return made[0], made[1]


def _windowed(node: Windowed, lower: Lower) -> Physical:
    child, window = lower(node.input), node.window
    assert window.wa is not None
    if window.wa not in child.progressing:
        raise PlanError(
            "the window attribute has no watermark in this plan: no instant would ever be over",
            position=node.pos,
            hint="declare ORDERED BY or WATERMARK on every input of the query, and say in its joins"
            " how far apart rows may lie",
        )
    if window.kind is WindowKind.EARLY:
        assert window.end is not None
        why = "a late row enters at its own watermark: no instant that is over changes"
        return ArrivalExec(child, window.wa, window.end, why)
    child = late_rows(child, node)
    kept = OnTimeExec(child, window.wa, "late rows are left out: their instant may be over")
    why = _WHY_WINDOW[window.kind]
    if window.change is not None:
        why = _WHY_RETRACT if window.rows is None else _WHY_UPSERT
    return RelationExec(kept, window, why)


def _whole(node: Logical, time: DataType, lower: Lower) -> Physical:
    """A table: all rows enter at the beginning. ``changelog.as_relation`` has put streams under
    windows before."""
    return _from_the_beginning(lower(node), time, node)


def _from_the_beginning(child: Physical, time: DataType, node: Logical) -> Physical:
    if not child.bounded:
        raise PlanError(
            "an unbounded input without a watermark is no relation: no instant would ever be over",
            position=getattr(node, "pos", None),
            hint="declare ORDERED BY or WATERMARK on every input of the query",
        )
    columns = tuple(Column(k, f.name, f.type, f.nullable) for k, f in enumerate(child.schema))
    change = (Literal(_beginning(time), time), Literal(1, BIGINT))
    return ProjectExec(
        child, (*columns, *change), (*child.schema.names, TIME, WEIGHT), "a table: it never changes"
    )


def _beginning(time: DataType) -> int:
    """An instant before all those of streams; for times and dates the first calendar day."""
    if time.is_timestamp:
        return -719_162 * 86_400_000_000
    return -719_162 if time.kind is Kind.DATE else -MAX_EVENT_TIME


def _with_entry(node: Physical) -> Physical | None:
    """``node`` with one more column before ``_time``: the event time of the row. The row entered at
    that time, except for late rows in early results. None where rows do not come from windows
    through filters, projections and unions."""
    if isinstance(node, RelationExec | ArrivalExec):
        wa = node.wa if isinstance(node, ArrivalExec) else node.window.wa
        assert wa is not None
        field = node.schema[wa]
        time = Column(wa, field.name, field.type, False)
        columns = [Column(k, f.name, f.type, f.nullable) for k, f in enumerate(node.schema)]
        entry = coercion.cast(time, node.schema[-2].type, None)
        names = (*node.schema.names[:-2], "entered", TIME, WEIGHT)
        return ProjectExec(node, (*columns[:-2], entry, *columns[-2:]), names)
    if not isinstance(node, FilterExec | ProjectExec | UnionExec):
        return None
    found = [_with_entry(child) for child in node.inputs]
    parts = tuple(part for part in found if part is not None)
    if len(parts) < len(found):
        return None
    if isinstance(node, UnionExec):
        return UnionExec(parts, (*node.names[:-2], "entered", TIME, WEIGHT), node.why)
    (below,) = parts
    if isinstance(node, FilterExec):
        return FilterExec(below, node.condition)
    at = len(below.schema) - 3
    entry = Column(at, "entered", below.schema[at].type, False)
    exprs = (*node.exprs[:-2], entry, *_of_change(below))
    names = (*node.names[:-2], "entered", TIME, WEIGHT)
    return ProjectExec(below, exprs, names, node.why)


def _aggregate(node: Aggregate, time: DataType, lower: Lower) -> Physical:
    """Keys and arguments are computed below, so that the aggregate reads columns only."""
    below = changes(node.input, time, lower)
    exprs: list[Expr] = list(node.keys)

    def column(expr: Expr) -> Column:
        if expr not in exprs[len(node.keys) :]:
            exprs.append(expr)
        at = exprs.index(expr, len(node.keys))
        return Column(at, f"c{at}", expr.type, expr.nullable)

    calls = []
    for call in node.calls:
        where = None if call.where is None else column(call.where)
        calls.append(replace(call, args=tuple(column(a) for a in call.args), where=where))
    names = (*(f"c{k}" for k in range(len(exprs))), TIME, WEIGHT)
    inner: Physical = ProjectExec(
        below, (*exprs, *_of_change(below)), names, "computes keys and arguments"
    )
    keys = len(node.keys)
    method, why = _method(inner, keys, calls)
    entered = None
    if any(c.by_time for c in calls) and _needs_entry(method, inner, keys):
        with_entry = _with_entry(inner)
        if with_entry is not None:
            inner, entered = with_entry, len(exprs)
    end = inner.early_end
    ends = end if end is not None and end < keys else None
    begins = _beginning(inner.schema[-2].type)
    return ChangeAggregateExec(
        inner, keys, tuple(calls), node.names, method, ends, why, entered, begins
    )


def _needs_entry(method: str, below: Physical, keys: int) -> bool:
    """Whether rows of a group leave in another order than they came, or come in another order than
    their times."""
    if method == "append_only":
        return below.early_end is not None  # early results: a late row may come
    return method != "two_stacks" and not below.first_in_first_out(frozenset(range(keys)))


def _method(below: Physical, keys: int, calls: Sequence[AggregateCall]) -> tuple[str, str]:
    if not calls:
        return "weights", "distinct: a row is there while its weight is above zero"
    beside = [call for call in calls if call.beside]
    calls = [call for call in calls if not call.beside]
    method, why = _method_of_states(below, keys, calls)
    if beside:
        kept = "their values are kept in order, beside"
        if not calls:
            return method, f"{kept}: what comes and what leaves"
        why = f"{why}; of {', '.join(dict.fromkeys(_shown(c) for c in beside))} {kept}"
    return method, why


def _shown(call: AggregateCall) -> str:
    return f"{call.fn}(DISTINCT …)" if call.distinct else call.fn


def _method_of_states(
    below: Physical, keys: int, calls: Sequence[AggregateCall]
) -> tuple[str, str]:
    """The method for calls that keep a state per group, computed from the rows."""
    if below.never_shrinks:
        return "append_only", "rows only come: each is added to the state of its group"
    if all(_can_retract(call) for call in calls):
        return "retract", "a row that leaves is taken out of the state of its group"
    for call in calls:
        if call.function is not None and call.function.merge is None:
            raise _needs_parts(call, calls)
    if below.first_in_first_out(frozenset(range(keys))):
        return "two_stacks", "rows leave in the order in which they came: two stacks per group"
    return "rescan", "rows leave in any order: a group that lost one is aggregated anew"


def _can_retract(call: AggregateCall) -> bool:
    if call.function is not None:
        return call.function.retract is not None
    return call.can_subtract


def _needs_parts(call: AggregateCall, calls: Sequence[AggregateCall]) -> PlanError:
    """The error for a user-defined aggregate without merge."""
    assert call.function is not None
    other = next((c.fn for c in calls if not _can_retract(c)), call.fn)
    if other != call.fn:
        return PlanError(
            f"{call.fn} has no merge, and needs it beside {other} over a relation whose rows leave",
            position=call.pos,
            hint="declare merge(a, b): the state of two parts of a group together",
        )
    return PlanError(
        f"{call.fn} has neither retract nor merge, and rows leave this relation",
        position=call.pos,
        hint="declare retract(state, …): the state without a row; or use a window with SLIDE",
    )


def _set_operation(node: SetOperation, time: DataType, lower: Lower) -> Physical:
    sides = []
    for side, part in enumerate((node.left, node.right)):
        below = changes(part, time, lower)
        columns = [
            Column(k, f.name, f.type, f.nullable) for k, f in enumerate(below.schema.fields[:-2])
        ]
        exprs = (*columns, Literal(side, BIGINT), *_of_change(below))
        names = (*node.schema.names, "side", TIME, WEIGHT)
        sides.append(ProjectExec(below, exprs, names, "says which side"))
    union = UnionExec(tuple(sides), sides[0].names, "changes of both sides, as they come")
    why = "by the weights of each row on both sides"
    return SetOperationExec(union, node.kind, node.distinct, why)


def _join(node: Join, time: DataType, lower: Lower) -> Physical:
    """A table is read before the rows that join it."""
    sides = [as_side(node.left), as_side(node.right)]
    constant = [side.is_constant for side in sides]
    left, right = (changes(side, time, lower) for side in sides)
    if constant == [True, False]:
        left = read_ahead(left)
    if constant == [False, True]:
        right = read_ahead(right)
    return relation_join(node, left, right, [left.never_shrinks, right.never_shrinks])


def pairs(node: Join, lower: Lower) -> Physical:
    """A join as the stream of its pairs, each once, computed from the join's changelog."""
    return each_pair_once(node, _join(node, clock(node) or BIGINT, lower))


def looked_up(node: SubqueryJoin, lower: Lower) -> Physical:
    """A stream whose rows look up a subquery that never changes: the result is still a stream.

    Raises NotSupportedError for EXISTS with more than equalities."""
    if node.condition is not None:
        raise NotSupportedError(
            "EXISTS (subquery) over a table, with more than equalities, is not supported as a"
            " value by this version",
            position=node.pos,
            hint="WHERE EXISTS (…) and WHERE NOT EXISTS (…) run",
        )
    query = read_ahead(_from_ever(changes(node.query, BIGINT, lower)))
    sides = _sides(
        node, lower(node.input), (Literal(0, BIGINT),), query, _of_change(query)[1:], (WEIGHT,)
    )
    why = "tables answer: they are read before the first row"
    return LookupExec(*sides, node.kind, len(node.keys), node.schema.fields[-1], why, node.pos)


def _subquery_join(node: SubqueryJoin, left: Physical, time: DataType, lower: Lower) -> Physical:
    constant = node.query.is_constant
    if not constant and left.never_shrinks and not left.bounded:
        raise _kept_for_ever(node)
    right = _from_ever(changes(node.query, time, lower))
    if node.condition is not None:
        return mark_join(node, left, right, grows=right.never_shrinks)
    more = ("side", TIME, WEIGHT)
    one, other = (Literal(0, BIGINT), *_of_change(left)), (Literal(1, BIGINT), *_of_change(right))
    sides = _sides(node, left, one, right, other, more)
    names = sides[0].names
    union = UnionExec(sides, names, "changes of both sides, as they come")
    why = (
        "a table answers: complete before the first row"
        if constant
        else "rows whose answer changes leave, and come again with the new one"
    )
    fields = (*node.input.schema.fields, node.schema.fields[-1])
    return SubqueryJoinExec(union, node.kind, len(node.keys), fields, constant, why, node.pos)


def _kept_for_ever(node: SubqueryJoin) -> PlanError:
    outer, within = (_called(n) for n in (node.input, node.query))
    hint = f"give the input a window: FROM {outer} [NOW] asks once, when a row comes"
    if node.kind == "exists":
        hint = (
            f"where the times lie near each other, a join says it: FROM {outer} LEFT SEMI JOIN"
            f" {within} ON …, with what WHERE asks of both (LEFT ANTI JOIN: NOT EXISTS); or {hint}"
        )
    return PlanError(
        "rows of this query would be kept for ever: what the subquery says of them may change",
        position=node.pos,
        hint=hint,
    )


def _called(node: Logical) -> str:
    """The first stream below, as FROM names it."""
    while below := node.inputs:
        node = below[0]
    if not isinstance(node, Scan):
        return "s"
    name = node.relation.name[-1]
    return name if node.alias in ("", name) else f"{name} {node.alias}"


def _sides(
    node: SubqueryJoin,
    left: Physical,
    of_left: tuple[Expr, ...],
    right: Physical,
    of_right: tuple[Expr, ...],
    names: tuple[str, ...],
) -> tuple[ProjectExec, ProjectExec]:
    """The left rows and the subquery's rows in one schema: the columns of the left, the keys (or
    the value of a scalar subquery), then ``of_left`` or ``of_right`` under ``names``."""
    fields = node.input.schema.fields
    columns = [Column(k, f.name, f.type, f.nullable) for k, f in enumerate(fields)]
    requested = len(node.keys) or int(node.kind == "scalar")
    held = [Column(k, f.name, f.type, f.nullable) for k, f in enumerate(right.schema)][:requested]
    names = (*node.input.schema.names, *(f"key_{k}" for k in range(requested)), *names)
    keys: list[Expr] = list(node.keys) or [Literal(None, c.type) for c in held]
    nothing = (Literal(None, f.type) for f in fields)
    return (
        ProjectExec(left, (*columns, *keys, *of_left), names, "computes the keys"),
        ProjectExec(right, (*nothing, *held, *of_right), names, "what the subquery holds"),
    )


def _from_ever(node: Physical) -> Physical:
    """``node`` of a subquery, which has an answer before its own input has any row: aggregates
    without keys have their row (count 0) from the beginning."""
    if not node.keeps_instants:
        return node
    node = node.with_inputs(tuple(map(_from_ever, node.inputs)))
    if not isinstance(node, ChangeAggregateExec):
        return node
    return replace(node, since=None if node.keys else node.beginning)


def _top(node: Sort | Limit, wanted: Sequence[SortKey], time: DataType, lower: Lower) -> Physical:
    """Sort keys become columns, as in a Sort. Without LIMIT and OFFSET a relation has no order."""
    below = changes(node.input, time, lower)
    if node.limit is None and not node.offset:
        return below
    width = len(below.schema) - 2
    below, keys = _with_keys(below, wanted)
    why = "a row that enters the first ones makes another leave them"
    top = TopExec(below, keys, node.limit, node.offset, why)
    return _without_keys(top, width, len(below.schema) - 2)


def _row_number(node: RowNumber, time: DataType, lower: Lower, limit: int | None) -> Physical:
    """Sort keys become columns, as in a Sort."""
    below = changes(node.input, time, lower)
    width = len(below.schema) - 2
    below, keys = _with_keys(below, node.keys)
    forgets = limit is not None and below.never_shrinks
    why = f"rows up to number {limit}: what stands behind is not told"
    if forgets:
        why = f"rows up to number {limit}: none ever leaves, so that those behind are forgotten"
    if limit is None:
        why = "a row that comes or leaves numbers all that stand behind it anew"
    made = RowNumberExec(below, node.partition, keys, limit, forgets, node.name, why)
    return _without_keys(made, width, len(below.schema) - 2)


def _with_keys(below: Physical, wanted: Sequence[SortKey]) -> tuple[Physical, tuple[SortKey, ...]]:
    """``below`` with the sort keys as columns; expressions become columns behind its own."""
    width = len(below.schema) - 2
    exprs: list[Expr] = [
        Column(k, f.name, f.type, f.nullable) for k, f in enumerate(below.schema.fields[:-2])
    ]
    keys: list[SortKey] = []
    for key in wanted:
        if not isinstance(key.expr, Column):
            at = Column(len(exprs), "sort_key", key.expr.type, key.expr.nullable)
            exprs.append(key.expr)
            key = replace(key, expr=at)
        keys.append(key)
    if len(exprs) > width:
        names = [*below.schema.names[:-2], *(f"sort_key_{k}" for k in range(width, len(exprs)))]
        below = ProjectExec(
            below, (*exprs, *_of_change(below)), (*names, TIME, WEIGHT), "computes the sort keys"
        )
    return below, tuple(keys)


def _without_keys(made: Physical, width: int, stop: int) -> Physical:
    """``made`` without its columns from ``width`` to ``stop``, which are sort keys."""
    kept = [k for k in range(len(made.schema)) if not width <= k < stop]
    if len(kept) == len(made.schema):
        return made
    fields = made.schema.fields
    exprs = tuple(Column(k, fields[k].name, fields[k].type, fields[k].nullable) for k in kept)
    return ProjectExec(made, exprs, tuple(c.name for c in exprs), "drops the sort keys")


def most_rows(condition: Expr, column: int) -> int | None:
    """The largest row number that can pass the filter, if a part of ``condition`` bounds it."""
    if isinstance(condition, Call) and condition.fn == "and":
        found = [most_rows(arg, column) for arg in condition.args]
        return min((n for n in found if n is not None), default=None)
    if not isinstance(condition, Call) or len(condition.args) != 2:
        return None
    a, b = condition.args
    fn = condition.fn
    if isinstance(a, Literal):
        a, b, fn = b, a, {"ge": "le", "gt": "lt"}.get(fn, fn)
    if not (isinstance(b, Literal) and b.type.is_integer and isinstance(b.value, int)):
        return None
    if isinstance(a, Cast) and a.type == BIGINT:
        a = a.arg
    if not (isinstance(a, Column) and a.index == column) or fn not in ("le", "lt", "eq"):
        return None
    return max(0, b.value - (fn == "lt"))
