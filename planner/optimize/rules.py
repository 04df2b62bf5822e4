"""Rewrites of the logical plan: a tuple of pure functions, applied in order.

No rule changes a result or the set of bad rows: an expression that can fail is neither moved below
a filter that stood under it, nor kept from a row on which it would have failed. (A filter below a
window does change the window's count of late rows.) Clauses that cannot run (Unsupported) keep
their inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias, assert_never

from cql.base.recursion import deep_stack
from cql.base.types import BOOLEAN
from cql.base.window import WindowKind
from cql.planner.bind.scope import column_of
from cql.planner.functions import registry
from cql.planner.nodes.expr import (
    Call,
    Case,
    Cast,
    Column,
    Expr,
    Literal,
    columns_of,
    conjunction,
    conjuncts,
    rebuild,
    substitute,
)
from cql.planner.nodes.expr_size import Sizes
from cql.planner.nodes.logical import (
    ASOF,
    Aggregate,
    AggregateCall,
    Bucket,
    Filter,
    Join,
    Logical,
    Newest,
    Project,
    RowNumber,
    Running,
    Scan,
    Sort,
    SubqueryJoin,
    Union,
    Unnest,
    Windowed,
    is_inner,
)
from cql.planner.nodes.rewrite import replace
from cql.planner.optimize.inner_orders import drop_inner_orders
from cql.planner.optimize.join_condition import Sides, differences, is_timed
from cql.planner.optimize.join_order import order_joins
from cql.planner.optimize.pruning import prune_columns

Rule: TypeAlias = Callable[[Logical], Logical]


#: By kind of join, the inputs (left: 0, right: 1) whose rows the join preserves: it emits each row,
#: or drops a row only because of its partners. (Inner joins take filters into their condition.)
_PRESERVED = {"right": (1,), **dict.fromkeys(("left", "semi", "anti", *ASOF), (0,))}
#: Most nodes and greatest depth to which rules let an expression grow.
_NODES, _DEPTH = 1_000, 200


def optimize(plan: Logical, *, join_order: str = "auto") -> Logical:
    """``plan`` after all rules; ``join_order`` is the setting of that name."""
    ordered = (order_joins, merge_projections, drop_identities) if join_order == "auto" else ()
    with deep_stack():
        for rule in (drop_inner_orders, *RULES, *ordered):
            plan = rule(plan)
    return plan


# ------------------------------------------------------------------ constants


def fold_constants(plan: Logical) -> Logical:
    """``WHERE a > 1 + 1 AND TRUE`` → ``WHERE a > 2``; drops a filter that keeps every row."""
    plan = plan.map_inputs(fold_constants)
    match plan:
        case Filter():
            condition = registry.fold(plan.condition)
            if isinstance(condition, Literal) and condition.value is True:
                return plan.input
            return replace(plan, condition=condition)
        case Project():
            return replace(plan, exprs=tuple(registry.fold(e) for e in plan.exprs))
        case Aggregate():
            return replace(
                plan,
                keys=tuple(registry.fold(k) for k in plan.keys),
                calls=tuple(_folded(c) for c in plan.calls),
            )
        case Unnest():
            return replace(plan, array=registry.fold(plan.array))
        case Running():
            calls = (replace(c, value=registry.fold(c.value)) for c in plan.calls)
            return replace(plan, calls=tuple(calls))
        case Sort() | RowNumber():
            keys = tuple(replace(k, expr=registry.fold(k.expr)) for k in plan.keys)
            return replace(plan, keys=keys)
        case SubqueryJoin() if plan.condition is not None:
            return replace(plan, condition=registry.fold(plan.condition))
        case Join() if plan.condition is not None:
            condition = registry.fold(plan.condition)
            always = isinstance(condition, Literal) and condition.value is True
            return replace(plan, condition=None if always else condition)
    return plan


def _folded(call: AggregateCall) -> AggregateCall:
    where = None if call.where is None else registry.fold(call.where)
    if isinstance(where, Literal) and where.value is True:
        where = None
    return replace(call, args=tuple(registry.fold(a) for a in call.args), where=where)


# ------------------------------------------------------------------ filters


def _separable(first: Sequence[Expr], then: Sequence[Expr]) -> bool:
    """Whether ``first AND then`` fails on the same rows as a filter ``then`` over a filter
    ``first``: AND evaluates its right side also if the left side is NULL."""
    return not any(e.nullable for e in first) or _cannot_fail(then)


def merge_filters(plan: Logical) -> Logical:
    """``SELECT * FROM (SELECT * FROM s WHERE a > 1) WHERE b > 2`` → ``WHERE a > 1 AND b > 2``."""
    return _merged(plan.map_inputs(merge_filters))


def _merged(plan: Logical) -> Logical:
    while isinstance(plan, Filter) and isinstance(plan.input, Filter):
        inner = plan.input
        if not _separable([inner.condition], [plan.condition]):
            break
        plan = replace(inner, condition=conjunction([inner.condition, plan.condition]))
    return plan


def push_filters(plan: Logical) -> Logical:
    """Moves filters towards the sources, conjunct by conjunct::

    SELECT * FROM (SELECT a + 0.5e0 AS b FROM s UNION ALL SELECT b FROM r) WHERE b > 1
    → SELECT a + 0.5e0 AS b FROM s WHERE a + 0.5e0 > 1 UNION ALL SELECT b FROM r WHERE b > 1
    """
    plan = _merged(plan)
    if isinstance(plan, Join) and is_inner(plan) and plan.condition is not None:
        plan = _each_on_its_side(plan, conjuncts(plan.condition))
    if not isinstance(plan, Filter):
        return plan.map_inputs(push_filters)
    kept: list[Expr] = []
    moved: list[Expr] = []
    for part in conjuncts(plan.condition):
        guarded = kept and not (_cannot_fail(kept) and _is_safe(part, plan.input))
        if not guarded and _passes(plan.input, part):
            moved.append(part)
        else:
            kept.append(part)
    # a band of two times is never NULL, because rows without a time are bad
    known = [part for part in moved if not _is_band(part, plan.input)]
    if not moved or not _separable(known, kept):
        return plan.map_inputs(push_filters)
    below = push_filters(_below(plan.input, conjunction(moved), plan))
    return replace(plan, input=below, condition=conjunction(kept)) if kept else below


def _small(exprs: Iterable[Expr]) -> bool:
    sizes = Sizes()
    return all(sizes.fits(e, _NODES, _DEPTH) for e in exprs)


def _is_safe(part: Expr, node: Logical) -> bool:
    """Whether ``part``, moved into ``node``, fails on no row."""
    return _cannot_fail([part]) or _is_band(part, node)


def _cannot_fail(exprs: Iterable[Expr]) -> bool:
    return not any(registry.can_fail(e) for e in exprs)


def _passes(node: Logical, part: Expr) -> bool:
    """Whether ``part``, a filter right above ``node``, may stand right below it."""
    match node:
        case Project():
            return _cannot_fail(node.exprs) and _small([substitute(part, node.exprs)])
        case Union():
            # Over plain inputs the filter stays: one kernel above the union filters all rows.
            return not all(isinstance(i, Scan) for i in node.inputs)
        case Newest():  # older rows of a key leave with the newest one, or stay with it
            used = columns_of(part)
            return bool(used) and used <= set(node.key) and _cannot_fail([part])
        case Aggregate():
            return _passes_aggregate(node, part)
        case Bucket():
            below = columns_of(part) <= set(range(len(node.input.schema)))
            return below and _cannot_fail([part]) and _no_null_time(node)
        case Windowed():
            by_time = node.window.kind is not WindowKind.ROWS
            kept = _no_null_time(node) or _keeps_without(part, node.window.wa or 0)
            return by_time and _cannot_fail([part]) and kept
        case Unnest():
            below = columns_of(part) <= set(range(len(node.input.schema)))
            return below and _cannot_fail([part, node.array])
        case SubqueryJoin():
            below = columns_of(part) <= set(range(len(node.input.schema)))
            conditions = () if node.condition is None else (node.condition,)
            return below and _cannot_fail([part, *node.keys, *conditions])
        case Join():  # an inner join has one condition, in which equal keys come first
            if is_inner(node):
                return bool(columns_of(part))
            return _on_preserved_side(node, part) is not None
        case Sort():
            whole = node.limit is None and node.offset == 0
            return whole and _cannot_fail([part]) and not _refuses_null_time(node)
    return False


def _passes_aggregate(node: Aggregate, part: Expr) -> bool:
    """Only a condition on keys passes: an aggregate without keys has a row even without input."""
    used = columns_of(part)
    if not used or not used <= set(range(len(node.keys))):
        return False
    inside = (e for call in node.calls for e in (*call.args, call.where) if e is not None)
    return _cannot_fail([part, *node.keys, *inside]) and _no_null_time(node)


def _no_null_time(node: Aggregate | Bucket | Windowed) -> bool:
    """Whether no event time is NULL. A row without one is bad, and no filter may drop it first."""
    if isinstance(node, Aggregate) and (closing := node.closing_key) is not None:
        return not node.keys[closing[0]].nullable
    return node.window is None or not node.input.schema[node.window.wa or 0].nullable


def _keeps_without(part: Expr, time: int) -> bool:
    """Whether the filter keeps all rows whose column ``time`` is NULL."""
    match part:
        case Call(fn="or", args=(Call(fn="is_null", args=(Column(index=c),)), *_)):
            return c == time
        case Column() | Literal() | Call() | Case() | Cast():
            return False
        case _:
            assert_never(part)


def _each_on_its_side(node: Join, parts: Sequence[Expr]) -> Join:
    """An inner join with the conditions ``parts``. A condition on one side stands below that side,
    where it can."""
    below: tuple[list[Expr], list[Expr]] = ([], [])
    both: list[Expr] = []
    for part in parts:
        port = _side_of(node, part)
        moved = None if port is None else _on_side(node, port, part)
        if port is None or moved is None:
            both.append(part)
        else:
            below[port].append(moved)
    condition = conjunction(both) if both else None
    return replace(_with_filters(node, *below), condition=condition)


def _with_filters(node: Join, left: Sequence[Expr], right: Sequence[Expr]) -> Join:
    """``node`` with filters below it, each over the columns of its side."""
    return replace(
        node,
        left=Filter(node.left, conjunction(left), left[0].pos) if left else node.left,
        right=Filter(node.right, conjunction(right), right[0].pos) if right else node.right,
    )


def _side_of(node: Join, part: Expr) -> int | None:
    """0 if ``part`` reads the left of a join alone, 1 the right alone, None otherwise."""
    return Sides(len(node.left.schema), (), ()).of(part)


def _on_side(node: Join, port: int, part: Expr) -> Expr | None:
    """``part``, which reads one side of a join alone, as a filter below it. None if it has to stay:
    it can fail, and would also fail on a row without a partner; or the side has several times, and
    it is not known which of them rows must have. (A band of a join below cannot fail: the join
    compares it without computing it.)"""
    side = (node.left, node.right)[port]
    moved = substitute(part, _behind(len(node.left.schema), side)) if port else part
    lacking = [] if node.looks_up else _lacking(side)  # a lookup takes rows without a time
    if lacking and len(side.progressing) > 1:
        return None
    return _or_without_time(moved, side, lacking) if _is_safe(moved, side) else None


def _on_preserved_side(node: Join, part: Expr) -> Expr | None:
    """``part``, a filter right above an outer, semi or anti join, as a filter below it; None if it
    must stay above."""
    port = _preserved(node, part)
    return None if port is None else _on_side(node, port, part)


def _preserved(node: Join, part: Expr) -> int | None:
    """The side of an outer, semi or anti join that ``part`` reads alone, if the join preserves that
    side and no condition of the join can fail, so that no row is bad. Only for streams with a band
    between their times: each row that comes to a relation makes an instant, also a row that a
    filter above drops."""
    port = _side_of(node, part)
    if port is None or port not in _PRESERVED.get(node.kind, ()) or _has_windows(node):
        return None
    conditions = [] if node.condition is None else conjuncts(node.condition)
    near = [e for e in conditions if _compares_times(e, node)]
    return port if near and all(e in near or _cannot_fail([e]) for e in conditions) else None


def _has_windows(node: Logical) -> bool:
    return isinstance(node, Windowed) or any(map(_has_windows, node.inputs))


def _is_band(part: Expr, node: Logical) -> bool:
    """Whether ``part`` bounds the distance of two times of the inputs of an inner join, and may
    stand in that join."""
    if not isinstance(node, Join):
        return False
    if is_inner(node) and _compares_times(part, node):
        return True
    port = _side_of(node, part) if is_inner(node) else _preserved(node, part)
    if port is None:
        return False
    own = Sides(len(node.left.schema), (), ()).own(part)
    return _is_band(own, (node.left, node.right)[port])


def _compares_times(part: Expr, node: Join) -> bool:
    """Whether ``part`` bounds the distance of two times, one of each input."""
    live = (tuple(n.progressing) for n in (node.left, node.right))
    sides = Sides(len(node.left.schema), *live)
    return any(is_timed(band, sides) for band in differences(part, sides))


def _lacking(side: Logical) -> list[int]:
    """The times of an input of a join that may be NULL. A row without one is bad. (Rows of joins of
    streams have theirs; a lookup passes any row.)"""
    if isinstance(side, Join):
        return _lacking(side.left) if side.looks_up and side.right.is_table else []
    return [c for c in side.progressing if side.schema[c].nullable]


def _or_without_time(part: Expr, node: Logical, lacking: Sequence[int]) -> Expr:
    """A filter that keeps the bad rows that have no time: the operator that refuses them stands
    above it."""
    for c in lacking:
        none = Call("is_null", (column_of(node, c),), BOOLEAN, False, part.pos)
        part = Call("or", (none, part), BOOLEAN, part.nullable, part.pos)
    return part


def _behind(width: int, node: Logical) -> tuple[Expr, ...]:
    """The columns of ``node``, behind ``width`` placeholders for the columns of the left."""
    own = tuple(column_of(node, k) for k in range(len(node.schema)))
    return (*(own[:1] * width), *own)


def _refuses_null_time(node: Sort) -> bool:
    """Whether ``node`` sorts by a progressing time that may be NULL: a row without one is bad."""
    first = node.keys[0].expr if node.keys and node.window_end is None else None
    timed = isinstance(first, Column) and first.index in node.input.progressing
    return timed and first is not None and first.nullable


def _below(node: Logical, condition: Expr, filter_: Filter) -> Logical:
    """``node`` with the filter under it."""
    match node:
        case Project():
            moved = substitute(condition, node.exprs)
            return replace(node, input=replace(filter_, input=node.input, condition=moved))
        case Union():
            inputs = tuple(replace(filter_, input=i, condition=condition) for i in node.inputs)
            return replace(node, inputs=inputs)
        case Aggregate():
            moved = substitute(condition, node.keys)
            return replace(node, input=replace(filter_, input=node.input, condition=moved))
        case Bucket() | Newest() | Windowed() | Sort() | SubqueryJoin() | Unnest():
            return replace(node, input=replace(filter_, input=node.input, condition=condition))
        case Join() if is_inner(node):
            own = [] if node.condition is None else conjuncts(node.condition)
            return replace(node, condition=conjunction([*own, *conjuncts(condition)]))
        case Join():
            found = (_on_preserved_side(node, part) for part in conjuncts(condition))
            parts = [part for part in found if part is not None]
            return _with_filters(node, *(([], parts) if node.kind == "right" else (parts, [])))
        case _:
            raise AssertionError(node)


# ------------------------------------------------------------------ projections


def merge_projections(plan: Logical) -> Logical:
    """``SELECT b + 1 FROM (SELECT a * 2 AS b, c FROM s)`` → ``SELECT a * 2 + 1 FROM s``.

    Not where an expression would then be computed twice, or one that can fail not on every row."""
    plan = plan.map_inputs(merge_projections)
    while isinstance(plan, Project) and isinstance(plan.input, Project):
        inner = plan.input
        if not all(_mergeable(e, k, plan.exprs) for k, e in enumerate(inner.exprs)):
            break
        exprs = tuple(substitute(e, inner.exprs) for e in plan.exprs)
        if not _small(exprs):
            break
        plan = replace(plan, input=inner.input, exprs=exprs)
    return plan


def _mergeable(inner: Expr, index: int, outer: Sequence[Expr]) -> bool:
    if isinstance(inner, Column | Literal):
        return True
    uses = sum(_uses(e, index) for e in outer)
    if not registry.can_fail(inner):
        return uses <= 1
    return uses == 1 and any(_always_computes(e, index) for e in outer)


def _uses(expr: Expr, index: int) -> int:
    if isinstance(expr, Column):
        return int(expr.index == index)
    found = 0

    def visit(child: Expr) -> Expr:
        nonlocal found
        found += _uses(child, index)
        return child

    rebuild(expr, visit)
    return found


def _always_computes(expr: Expr, index: int) -> bool:
    """Whether every row that computes ``expr`` computes the column ``index`` in it."""
    match expr:
        case Column():
            return expr.index == index
        case Literal():
            return False
        case Case():
            return _always_computes(expr.branches[0][0], index)
        case Call(fn="and" | "or" | "coalesce" | "in_list"):
            return _always_computes(expr.args[0], index)
        case Call():
            return any(_always_computes(a, index) for a in expr.args)
        case Cast():
            return _always_computes(expr.arg, index)
        case _:
            assert_never(expr)


def drop_identities(plan: Logical) -> Logical:
    """Drops a Project that passes its whole input on under the same names."""
    plan = plan.map_inputs(drop_identities)
    if isinstance(plan, Project) and plan.names == plan.input.schema.names:
        same = tuple(column_of(plan.input, k) for k in range(len(plan.names)))
        if plan.exprs == same:
            return plan.input
    return plan


def forget_unknown(plan: Logical) -> Logical:
    """A filter keeps rows for which its condition is true; FALSE and NULL are alike. ``WHERE CASE
    WHEN a THEN TRUE WHEN b THEN NULL ELSE FALSE END`` (IN) → ``WHERE a``, its NOT → ``WHERE NOT a
    AND NOT b``, where ``a`` and ``b`` are results of subqueries."""
    plan = plan.map_inputs(forget_unknown)
    if not isinstance(plan, Filter):
        return plan
    parts = [kept for part in conjuncts(plan.condition) for kept in _true_where(part)]
    return replace(plan, condition=conjunction(parts))


def _true_where(part: Expr) -> list[Expr]:
    match part:
        case Case(
            branches=((Column() as yes, Literal(value=True)), (Column(), Literal(value=None))),
            otherwise=Literal(value=False),
        ):
            return [yes]
        case Call(fn="not", args=(Case() as inner,)) if _true_where(inner) != [inner]:
            return [
                Call("not", (answer,), BOOLEAN, answer.nullable) for answer, _ in inner.branches
            ]
        case Column() | Literal() | Call() | Case() | Cast():
            return [part]
        case _:
            assert_never(part)


def look_up_tables(plan: Logical) -> Logical:
    """``WHERE EXISTS (SELECT 1 FROM t WHERE t.low < s.v AND s.v < t.high)`` over a table → ``s SEMI
    JOIN t ON …``: rows of the stream pass as they come. ``NOT EXISTS`` → ``ANTI JOIN``."""
    plan = plan.map_inputs(look_up_tables)
    if not (isinstance(plan, Filter) and isinstance(plan.input, SubqueryJoin)):
        return plan
    subquery, mark = plan.input, len(plan.input.input.schema)
    if subquery.condition is None or not subquery.query.is_table:
        return plan
    parts = conjuncts(plan.condition)
    answers = [part for part in parts if mark in columns_of(part)]
    kind = _join_kind(answers[0], mark) if len(answers) == 1 else None
    if kind is None:
        return plan
    equal = [
        Call("eq", (key, replace(column_of(subquery.query, k), index=mark + k)), BOOLEAN, True)
        for k, key in enumerate(subquery.keys)
    ]
    condition = conjunction([*equal, subquery.condition])
    join = Join(subquery.input, subquery.query, kind, condition, subquery.pos)
    columns = tuple(column_of(subquery.input, k) for k in range(mark))
    answer = Literal(kind == "semi", BOOLEAN)
    made = Project(join, (*columns, answer), subquery.schema.names, subquery.pos)
    others = [part for part in parts if part not in answers]
    return replace(plan, input=made, condition=conjunction(others)) if others else made


def _join_kind(part: Expr, mark: int) -> str | None:
    match part:
        case Column(index=at) if at == mark:
            return "semi"
        case Call(fn="not", args=(Column(index=at),)) if at == mark:
            return "anti"
        case Column() | Literal() | Call() | Case() | Cast():
            return None
        case _:
            assert_never(part)


RULES: tuple[Rule, ...] = (
    fold_constants,
    merge_filters,
    forget_unknown,
    push_filters,
    look_up_tables,
    merge_projections,
    merge_filters,
    prune_columns,
    merge_projections,
    drop_identities,
)
