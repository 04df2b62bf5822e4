"""Subqueries of expressions: what they are asked, as keys over the row around them.

A condition ``inner = outer`` at the top of an EXISTS becomes a key; nothing else of the row around
may be used inside.
"""

from __future__ import annotations

from sqlglot import exp

from cql.planner import coercion
from cql.planner.context import Binder, Bound
from cql.planner.expr import Call, Column, Expr, Literal, columns_of, rebuild, walk
from cql.planner.logical import (
    Aggregate,
    Filter,
    Logical,
    Project,
    expressions,
    inputs,
)
from cql.planner.relations import as_relation
from cql.planner.rules import conjunction, conjuncts
from cql.planner.scope import OUTER, Asked
from cql.types import BIGINT


def scalar(binder: Binder, bound: Bound, node: exp.Expr) -> Asked:
    """``(SELECT max(v) FROM s [RANGE 1 HOUR])``: NULL where it has no row."""
    if bound.width != 1:
        raise binder.error(f"a subquery as a value needs one column, not {bound.width}", node)
    plan = _apart(binder, as_relation(bound.shown()), "a scalar subquery", node)
    return Asked(plan, "scalar")


def is_in(binder: Binder, value: Expr, bound: Bound, node: exp.Expr) -> Asked:
    """``value IN (SELECT …)``: NULL where only a NULL could be the same."""
    if bound.width != 1:
        raise binder.error(f"IN (subquery) needs one column, not {bound.width}", node, None)
    plan = as_relation(bound.shown())
    f = plan.schema[0]
    both = [value, Column(0, f.name, f.type, f.nullable, binder.pos(node))]
    key, column = coercion.unify(both, binder.pos(node), "IN (subquery)")
    plan = _apart(binder, plan, "IN (subquery)", node)
    if not isinstance(column, Column):
        plan = Project(plan, (column,), (f.name,))
    return Asked(plan, "in", (key,))


def exists(binder: Binder, bound: Bound, node: exp.Expr) -> Asked:
    """``EXISTS (SELECT * FROM r WHERE r.k = s.k AND …)``; the select list does not matter."""
    plan = bound.shown()
    while isinstance(plan, Project) or (isinstance(plan, Aggregate) and _is_distinct(plan)):
        plan = plan.input
    inner: list[Expr] = []
    outer: list[Expr] = []
    kept: list[Expr] = []
    if isinstance(plan, Filter):
        for part in conjuncts(plan.condition):
            pair = _equality(part)
            if pair is None:
                kept.append(part)
            else:
                inner.append(pair[0])
                outer.append(pair[1])
        plan = plan.input
    plan = as_relation(plan)
    if kept:
        plan = Filter(plan, conjunction(kept), binder.pos(node))
    plan = _apart(binder, plan, "EXISTS", node)
    given = tuple(inner) or (Literal(1, BIGINT),)
    names = tuple(f"key_{k}" for k in range(len(given)))
    return Asked(Project(plan, given, names, binder.pos(node)), "exists", tuple(outer))


def _is_distinct(node: Aggregate) -> bool:
    """SELECT DISTINCT: as many rows as its input has, or fewer, but some if that has some."""
    return node.window is None and not node.calls and bool(node.keys)


def _equality(part: Expr) -> tuple[Expr, Expr] | None:
    """``inner = outer`` as (inner, outer in terms of its own row)."""
    if not (isinstance(part, Call) and part.fn == "eq"):
        return None
    a, b = part.args
    for inside, around in ((a, b), (b, a)):
        outside = columns_of(around)
        if outside and all(c >= OUTER for c in outside) and _is_inner(inside):
            return inside, _outward(around)
    return None


def _is_inner(expr: Expr) -> bool:
    return all(c < OUTER for c in columns_of(expr))


def _outward(expr: Expr) -> Expr:
    if isinstance(expr, Column):
        return Column(expr.index - OUTER, expr.name, expr.type, expr.nullable, expr.pos)
    return rebuild(expr, _outward)


def _apart(binder: Binder, plan: Logical, what: str, node: exp.Expr) -> Logical:
    """``plan``, which must not use the row around it."""
    used = _first_outer(plan)
    if used is None:
        return plan
    error = binder.unsupported(
        f"the column {used.name} of the query around it, in {what},",
        node,
        "EXISTS (… WHERE inner = outer AND …) may compare with it",
    )
    error.position = used.pos or error.position
    raise error


def _first_outer(plan: Logical) -> Column | None:
    for expr in expressions(plan):
        found = _outer_column(expr)
        if found is not None:
            return found
    for child in inputs(plan):
        found = _first_outer(child)
        if found is not None:
            return found
    return None


def _outer_column(expr: Expr) -> Column | None:
    return next((e for e in walk(expr) if isinstance(e, Column) and e.index >= OUTER), None)
