"""Correlated scalar aggregates: ``(SELECT max(v) FROM r WHERE r.k = s.k AND r.t < s.t)``, one value
for each outer row (row of the enclosing query).

If only equalities correlate the subquery, its rows are grouped by the compared columns, and each
outer row finds its group. Otherwise the distinct values of the outer rows are joined with the
subquery's rows, and the pairs are grouped by these values: the decorrelation of Neumann and Kemper,
"Unnesting Arbitrary Queries" (BTW 2015, section 3). An outer row without a group gets the aggregate
of no rows: 0 for counts, NULL for the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from sqlglot import exp

from cql.base.types import BIGINT, BOOLEAN
from cql.errors import Position
from cql.planner.bind.context import Binder
from cql.planner.bind.scope import OUTER, Extra, Grouped, Subquery, column_of
from cql.planner.functions import registry
from cql.planner.nodes.expr import (
    Call,
    Case,
    Column,
    Expr,
    Literal,
    columns_of,
    conjunction,
    conjuncts,
    rebuild,
    walk,
)
from cql.planner.nodes.logical import (
    Aggregate,
    AggregateCall,
    Filter,
    Join,
    Limit,
    Logical,
    Project,
    Sort,
)
from cql.planner.nodes.rewrite import replace
from cql.planner.optimize.changelog import as_relation

#: Returns the plan, or raises NotSupportedError if the plan reads the outer row.
Uncorrelated = Callable[[Logical], Logical]
#: The equalities of a condition: pairs (inner, outer), each side over the columns of its own row.
Equalities = Callable[[Expr], Sequence[tuple[Expr, Expr]]]


def grouped(
    binder: Binder,
    plan: Logical,
    node: exp.Expr,
    uncorrelated: Uncorrelated,
    equalities: Equalities,
) -> Subquery:
    """The correlated scalar subquery of ``plan`` as a ``Subquery`` of kind grouped. Raises
    NotSupportedError unless the subquery is an aggregate of all rows that pass its WHERE."""
    value, aggregate = _aggregate_of(binder, plan, node)
    below, parts = aggregate.input, list[Expr]()
    if isinstance(below, Filter):
        parts, below = conjuncts(below.condition), below.input
    below = as_relation(uncorrelated(below))
    inner: list[Expr] = []
    outer: list[Expr] = []
    kept: list[Expr] = []
    related: list[Expr] = []
    for part in parts:
        if pairs := equalities(part):
            inner += [inside for inside, _ in pairs]
            outer += [around for _, around in pairs]
        else:
            (related if reads_around(part) else kept).append(part)
    if kept:
        below = Filter(below, conjunction(kept), binder.pos(node))
    made = Grouped(aggregate.calls, aggregate.names, tuple(inner), value)
    condition = conjunction(related) if related else None
    return Subquery(below, "grouped", tuple(outer), condition, made)


def _aggregate_of(binder: Binder, plan: Logical, node: exp.Expr) -> tuple[Expr, Aggregate]:
    """The subquery's value, over the results of its aggregate, and the aggregate."""
    value: Expr = column_of(plan, 0)
    having: list[Expr] = []
    while not isinstance(plan, Aggregate):
        match plan:
            case Project():
                value, *having = (_through(e, plan.exprs) for e in (value, *having))
            case Filter():
                having += conjuncts(plan.condition)
            case Sort() | Limit():
                raise _refused(binder, "with ORDER BY or LIMIT", node, "leave them out")
            case _:
                raise _refused(binder, "that is no aggregate", node, "write max(…), or first(…)")
        plan = plan.input
    if plan.window is not None:
        hint = "group by the window in a subquery in FROM, and aggregate that: (SELECT max(n) FROM"
        raise _refused(binder, "over a window with SLIDE", node, f"{hint} (SELECT …) WHERE …)")
    if plan.keys:
        raise _refused(
            binder, "with GROUP BY or DISTINCT", node, "compare the key in its WHERE instead"
        )
    for call in plan.calls:
        if not (call.nullable or call.fn in _COUNTS) or call.function is not None:
            raise _refused(binder, f"with {call.fn}()", node, "of no rows it would not be NULL")
    if having:
        value = Case(((conjunction(having), value),), None, value.type, True, value.pos)
    return value, plan


#: Aggregates that are 0 where there are no rows.
_COUNTS = frozenset(("count", "count_if"))


def _refused(binder: Binder, what: str, node: exp.Expr, hint: str) -> Exception:
    return binder.unsupported(f"a correlated scalar subquery {what}", node, hint)


def _through(expr: Expr, exprs: Sequence[Expr]) -> Expr:
    """``expr``, which reads the columns ``exprs`` of a projection, over the projection's input."""
    if isinstance(expr, Column):
        return expr if expr.index >= OUTER else exprs[expr.index]
    return rebuild(expr, lambda e: _through(e, exprs))


def reads_around(*exprs: Expr) -> bool:
    """Whether an expression reads the outer row."""
    return any(c >= OUTER for c in columns_of(*exprs))


def columns_around(subquery: Subquery) -> dict[int, Column]:
    """The columns of the outer row that a subquery reads besides its keys, by their indices in the
    subquery's virtual row. Each column has the index that it has in the outer row itself."""
    exprs = [] if subquery.condition is None else [subquery.condition]
    if subquery.grouped is not None:
        exprs += [subquery.grouped.value, *_inputs_of(subquery.grouped.calls)]
    return {c.index: replace(c, index=c.index - OUTER) for c in _columns_around(exprs)}


def _columns_around(exprs: Sequence[Expr]) -> list[Column]:
    found = (e for expr in exprs for e in walk(expr))
    return [e for e in found if isinstance(e, Column) and e.index >= OUTER]


def _inputs_of(calls: Sequence[AggregateCall]) -> list[Expr]:
    wheres = [c.where for c in calls if c.where is not None]
    return [*(a for c in calls for a in c.args), *wheres]


def joined(
    plan: Logical, base: Logical, extra: Extra, keys: Sequence[Expr], around: Mapping[int, Expr]
) -> Logical:
    """``plan`` with the value of a subquery as its last column. The subquery reads ``keys`` and
    ``around`` (expressions over ``plan``). ``base`` has the same rows as ``plan``, or more, and a
    prefix of its columns; if ``base`` has all columns that the subquery reads, the subquery takes
    their distinct values from ``base``."""
    subquery, pos = extra.subquery, extra.pos
    assert subquery is not None
    assert subquery.grouped is not None
    by, calls = subquery.grouped.keys, subquery.grouped.calls
    inputs = [*_inputs_of(calls), *([] if subquery.condition is None else [subquery.condition])]
    wanted, groups, equal = tuple(keys), subquery.query, "eq"
    if reads_around(*inputs) or not groups.is_constant:
        plan, base = as_relation(plan), as_relation(base)
    if reads_around(*inputs):
        read = sorted({e.index for e in _columns_around(inputs)})
        wanted = tuple(dict.fromkeys([*keys, *(around[c] for c in read)]))
        whole = columns_of(*wanted) <= set(range(len(base.schema)))
        values = _each_once(base if whole else plan, wanted, pos)
        places = {c: column_of(values, wanted.index(around[c])) for c in read}
        given = [column_of(values, wanted.index(key)) for key in keys]
        groups, calls = _related(values, subquery, given, places, pos)
        by, equal = tuple(column_of(values, k) for k in range(len(wanted))), "null_safe_eq"
    names = (*(f"key_{k}" for k in range(len(by))), *subquery.grouped.names)
    made = Aggregate(groups, None, by, calls, names, pos)
    width = len(plan.schema)
    on = [
        Call(equal, (e, _behind(column_of(made, k), width)), BOOLEAN, equal == "eq", pos)
        for k, e in enumerate(wanted)
    ]
    beside = Join(plan, made, "left" if on else "cross", conjunction(on) if on else None, pos)
    first = width + len(by)
    results = [column_of(beside, first + k) for k in range(len(calls))]
    value = _of_no_rows_too(subquery.grouped.value, calls, results, around)
    columns = [column_of(plan, k) for k in range(width)]
    return Project(beside, (*columns, value), (*plan.schema.names, extra.name), pos)


def _each_once(plan: Logical, exprs: Sequence[Expr], pos: Position | None) -> Logical:
    """The distinct values of ``exprs`` over ``plan``."""
    names = tuple(f"around_{k}" for k in range(len(exprs)))
    values = Project(plan, tuple(exprs), names, pos)
    return Aggregate(
        values, None, tuple(map(partial(column_of, values), range(len(names)))), (), names, pos
    )


def _related(
    values: Logical,
    subquery: Subquery,
    given: Sequence[Expr],
    places: Mapping[int, Expr],
    pos: Position | None,
) -> tuple[Logical, tuple[AggregateCall, ...]]:
    """The join of ``values`` with the subquery's rows that match, and the aggregate's calls over
    the pairs. ``given`` are the expressions over ``values`` that equal the keys; ``places`` maps
    columns of the outer row to columns of ``values``."""
    assert subquery.grouped is not None
    width = len(values.schema)

    def over_both(expr: Expr) -> Expr:
        if isinstance(expr, Column):
            return places[expr.index] if expr.index >= OUTER else _behind(expr, width)
        return rebuild(expr, over_both)

    pairs = zip(given, subquery.grouped.keys, strict=True)
    parts: list[Expr] = [Call("eq", (e, over_both(key)), BOOLEAN, True, pos) for e, key in pairs]
    if subquery.condition is not None:
        parts.append(over_both(subquery.condition))
    kind = "inner" if parts else "cross"
    calls = tuple(
        replace(
            call,
            args=tuple(over_both(a) for a in call.args),
            where=None if call.where is None else over_both(call.where),
        )
        for call in subquery.grouped.calls
    )
    condition = conjunction(parts) if parts else None
    return Join(values, subquery.query, kind, condition, pos), calls


def _behind(column: Column, width: int) -> Column:
    return replace(column, index=width + column.index)


def _of_no_rows_too(
    value: Expr,
    calls: Sequence[AggregateCall],
    results: Sequence[Column],
    around: Mapping[int, Expr],
) -> Expr:
    """The subquery's value over an outer row and the ``results`` of its group. A row without a
    group has NULL results; counts become 0 there."""

    def over_row(expr: Expr) -> Expr:
        if not isinstance(expr, Column):
            return rebuild(expr, over_row)
        if expr.index >= OUTER:
            return around[expr.index]
        found = results[expr.index]
        if calls[expr.index].fn not in _COUNTS:
            return found
        return registry.resolve("coalesce", [found, Literal(0, BIGINT)], expr.pos)

    return over_row(value)
