"""Subqueries of expressions, with keys over the outer row (the row of the enclosing query).

A condition ``inner = outer`` (or ``inner <=> outer``) at the top of an EXISTS becomes a key; other
conditions that read the outer row are evaluated over pairs of rows. No other clause of the subquery
may read the outer row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from sqlglot import exp

from cql.base.types import BIGINT
from cql.planner.bind.context import Binder, Bound
from cql.planner.bind.expressions.correlated import grouped
from cql.planner.bind.scope import OUTER, Subquery, around, column_of
from cql.planner.functions import coercion, registry
from cql.planner.nodes.expr import (
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
    Filter,
    Logical,
    Project,
)
from cql.planner.optimize.changelog import as_relation
from cql.planner.optimize.join_condition import Pair, compares_equal, null_safe_pairs


def scalar(binder: Binder, bound: Bound, node: exp.Expr) -> Subquery:
    """``(SELECT max(v) FROM s [RANGE 1 HOUR])``: NULL if the subquery has no row. A subquery that
    reads the outer row must be an aggregate (see ``correlated``). Raises BindError unless the
    subquery has one column."""
    if bound.width != 1:
        raise binder.error(f"a subquery as a value needs one column, not {bound.width}", node)
    plan, what = bound.shown(), "a scalar subquery"
    if _first_outer(plan) is not None:
        uncorrelated = partial(_uncorrelated, binder, what=what, node=node)
        return grouped(binder, plan, node, uncorrelated, _equalities)
    return Subquery(as_relation(plan), "scalar")


def is_in(binder: Binder, value: Expr, bound: Bound, node: exp.Expr) -> Subquery:
    """``value IN (SELECT …)``: NULL if no element is equal and some comparison is NULL. Raises
    BindError unless the subquery has one column."""
    if bound.width != 1:
        raise binder.error(f"IN (subquery) needs one column, not {bound.width}", node, None)
    plan = as_relation(_uncorrelated(binder, bound.shown(), "IN (subquery)", node))
    f = plan.schema[0]
    both = [value, Column(0, f.name, f.type, f.nullable, binder.pos(node))]
    key, column = coercion.unify(both, binder.pos(node), "IN (subquery)")
    if not isinstance(column, Column):
        plan = Project(plan, (column,), (f.name,))
    return Subquery(plan, "in", (key,))


def is_in_related(
    binder: Binder, value: Expr, bound: Bound, node: exp.Expr
) -> tuple[Subquery, Subquery | None] | None:
    """``value IN (SELECT r.v FROM r WHERE r.k = s.k)``, a subquery that reads the outer row in its
    WHERE. Returns two EXISTS: whether an element equals the value, and whether some comparison is
    NULL (None: no side can be NULL). Returns None if the subquery does not read the outer row, or
    reads it outside WHERE."""
    plan = bound.shown()
    if bound.width != 1 or not (isinstance(plan, Project) and isinstance(plan.input, Filter)):
        return None
    if _first_outer(plan) is None or not _is_inner(plan.exprs[0]):
        return None
    parts, inner, pos = conjuncts(plan.input.condition), plan.input.input, binder.pos(node)
    x, wanted = coercion.unify([plan.exprs[0], around(value)], pos, "IN (subquery)")
    there = registry.raw_comparison("eq")((x, wanted), pos)  # Spark pads no CHAR here
    unknown = [registry.resolve("is_null", [e], pos) for e in (x, wanted) if e.nullable]
    found = _related(binder, inner, [*parts, there], "IN (subquery)", node)
    if not unknown:
        return found, None
    nothing = unknown[0] if len(unknown) == 1 else registry.resolve("or", unknown, pos)
    return found, _related(binder, inner, [*parts, nothing], "IN (subquery)", node)


def exists(binder: Binder, bound: Bound, node: exp.Expr) -> Subquery:
    """``EXISTS (SELECT * FROM r WHERE r.k = s.k AND r.v > s.v AND …)``; ignores the select list."""
    plan = bound.shown()
    while isinstance(plan, Project) or (isinstance(plan, Aggregate) and _is_distinct(plan)):
        plan = plan.input
    parts: list[Expr] = []
    if isinstance(plan, Filter):
        parts, plan = conjuncts(plan.condition), plan.input
    return _related(binder, plan, parts, "EXISTS", node)


def _related(
    binder: Binder, plan: Logical, parts: Sequence[Expr], what: str, node: exp.Expr
) -> Subquery:
    """An EXISTS: whether all conditions ``parts`` hold for some row of ``plan``."""
    inner: list[Expr] = []
    outer: list[Expr] = []
    kept: list[Expr] = []
    related: list[Expr] = []
    for part in parts:
        pairs = _equalities(part)
        if pairs:
            inner += [inside for inside, _ in pairs]
            outer += [outside for _, outside in pairs]
        elif _is_inner(part):
            kept.append(part)
        else:
            related.append(part)
    plan = as_relation(_uncorrelated(binder, plan, what, node))
    if kept:
        plan = Filter(plan, conjunction(kept), binder.pos(node))
    read = sorted(c for c in columns_of(*related) if c < OUTER)
    given = [*inner, *(column_of(plan, c) for c in read)] or [Literal(1, BIGINT)]
    places = {c: len(inner) + k for k, c in enumerate(read)}
    names = tuple(f"key_{k}" for k in range(len(given)))
    condition = _moved(conjunction(related), places) if related else None
    query = Project(plan, tuple(given), names, binder.pos(node))
    return Subquery(query, "exists", tuple(outer), condition)


def _moved(expr: Expr, places: Mapping[int, int]) -> Expr:
    if isinstance(expr, Column):
        return replace(expr, index=places.get(expr.index, expr.index))
    return rebuild(expr, lambda e: _moved(e, places))


def _is_distinct(node: Aggregate) -> bool:
    """Whether ``node`` is a SELECT DISTINCT, which has a row exactly if its input has one."""
    return node.window is None and not node.calls and bool(node.keys)


def _equalities(part: Expr) -> list[Pair]:
    """``inner = outer`` or ``inner <=> outer`` as pairs (inner, outer), each side over the columns
    of its own row. The sides of a pair must be equal, and NULL equals nothing. Empty for any other
    condition."""
    compared = compares_equal(part)
    if compared is None:
        return []
    a, b, null_safe = compared
    for inside, outside in ((a, b), (b, a)):
        read = columns_of(outside)
        if read and all(c >= OUTER for c in read) and _is_inner(inside):
            pair = inside, _outward(outside)
            return null_safe_pairs(pair) if null_safe else [pair]
    return []


def _is_inner(expr: Expr) -> bool:
    return all(c < OUTER for c in columns_of(expr))


def _outward(expr: Expr) -> Expr:
    if isinstance(expr, Column):
        return Column(expr.index - OUTER, expr.name, expr.type, expr.nullable, expr.pos)
    return rebuild(expr, _outward)


def _uncorrelated(binder: Binder, plan: Logical, what: str, node: exp.Expr) -> Logical:
    """``plan``. Raises NotSupportedError if ``plan`` reads the outer row."""
    used = _first_outer(plan)
    if used is None:
        return plan
    error = binder.unsupported(
        f"the column {used.name} of the query around it, in {what},",
        node,
        "compare with it in the WHERE of the subquery itself, not in a query inside of that",
    )
    error.position = used.pos or error.position
    raise error


def _first_outer(plan: Logical) -> Column | None:
    for expr in plan.expressions:
        found = _outer_column(expr)
        if found is not None:
            return found
    for child in plan.inputs:
        found = _first_outer(child)
        if found is not None:
            return found
    return None


def _outer_column(expr: Expr) -> Column | None:
    return next((e for e in walk(expr) if isinstance(e, Column) and e.index >= OUTER), None)
