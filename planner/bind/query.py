"""Whole queries: SELECT, set operations and WITH."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sqlglot import exp

from cql.dialect import nodes
from cql.planner.bind.assemble import PER_WINDOW
from cql.planner.bind.context import Binder, Bound, Env
from cql.planner.bind.emit import check_changes, emits_changes, held, waits_for_close
from cql.planner.bind.expressions.expression import ExprBinder
from cql.planner.bind.scope import Scope, ScopeColumn
from cql.planner.bind.select import bind_select, count_of, order_item, to_stream
from cql.planner.bind.union import union, unite
from cql.planner.bind.values import bind_values
from cql.planner.functions import registry
from cql.planner.nodes.expr import Column, Expr
from cql.planner.nodes.logical import Limit, SetOperation, Sort, SortKey, Union
from cql.planner.optimize.changelog import as_relation, clock

#: Clauses of a whole statement; a query inside another query cannot have these clauses.
OUTERMOST = {
    nodes.EMIT: "EMIT",
    nodes.ON_BAD_ROW: "ON BAD ROW",
    nodes.LATE_OUTPUT: "LATE OUTPUT",
    "hint": "a hint",
}


def bind_query(binder: Binder, node: exp.Expr, env: Env) -> Bound:
    """Binds a query inside a statement or another query."""
    emit = node.args.get(nodes.EMIT)
    for key, clause in OUTERMOST.items():
        allowed = waits_for_close(node.args.get(key)) or (key == "hint" and node is binder.hinted)
        allowed = allowed or (key == nodes.EMIT and id(node) in binder.views)
        if node.args.get(key) is not None and not allowed:
            raise binder.unsupported(
                f"{clause} inside another query", node.args[key], "write it in the outermost one"
            )
    bound = bind_outermost(binder, node, env)
    if waits_for_close(emit):
        bound = replace(bound, plan=held(binder, bound.plan, emit))
    elif emits_changes(emit):
        check_changes(binder, bound.plan, emit)
        binder.emitting.append(binder.pos(emit))
    return bound


def bind_outermost(binder: Binder, node: exp.Expr, env: Env) -> Bound:
    """Binds a query whose statement-wide clauses (``OUTERMOST``) the caller reads."""
    if node.args.get("with_") is None:
        return _body(binder, node, env)
    env = _with_ctes(binder, node, env)
    bound = _body(binder, node, env)
    for cte in reversed(node.args["with_"].expressions):
        # Binds the unused queries of WITH as well, so that their errors show.
        query, _, around = env.ctes[cte.alias]
        if id(query) not in binder.used:
            binder.query(query, around)
    return bound


def _body(binder: Binder, node: exp.Expr, env: Env) -> Bound:
    match node:
        case exp.Select():
            return bind_select(binder, node, env)
        case exp.SetOperation():
            refuse_clauses(binder, node)
            return _set_operation(binder, node, env)
        case exp.Values():
            refuse_clauses(binder, node)
            return _ordered(binder, node, bind_values(binder, node, env), env)
        case exp.Subquery():
            refuse_clauses(binder, node)
            return _ordered(binder, node, bind_query(binder, node.this, env), env)
    raise binder.unsupported(f"{type(node).__name__.upper()} as a query", node)


_WHOLE_QUERY_CLAUSES = ("where", "group", "having", "qualify", "windows", "match", "join_window")


def refuse_clauses(binder: Binder, node: exp.Expr) -> None:
    """Refuses clauses other than ORDER BY and LIMIT behind a query in parentheses: they need a
    SELECT around the query."""
    for key in _WHOLE_QUERY_CLAUSES:
        found = node.args.get(key)
        if found:
            at = found[0] if isinstance(found, list) else found
            raise binder.unsupported(
                f"{key.replace('_', ' ').upper()} behind a query in parentheses",
                at,
                "SELECT * FROM (…) AS q and the clause behind it",
            )


def _with_ctes(binder: Binder, node: exp.Expr, env: Env) -> Env:
    """``env`` with the names of WITH; each query of WITH sees the names before its own."""
    clause = node.args["with_"]
    if clause.args.get("recursive"):
        raise binder.unsupported("WITH RECURSIVE", clause)
    seen: set[str] = set()
    for cte in clause.expressions:
        name = cte.alias
        if name.lower() in seen:
            raise binder.error(f"WITH names {name} twice", cte)
        seen.add(name.lower())
        columns = cte.args["alias"].args.get("columns") or ()
        known = {k: v for k, v in env.ctes.items() if k.lower() != name.lower()}
        known[name] = (cte.this, tuple(c.name for c in columns), env.alone())
        env = replace(env, ctes=known)
    return env


def _set_operation(binder: Binder, node: exp.SetOperation, env: Env) -> Bound:
    members = [bind_query(binder, member, env) for member in _members(node)]
    names = [_ordinal(k) for k in range(len(members))]
    if isinstance(node, exp.Union):
        bound = union(binder, members, names, node)
    else:
        bound = _difference(binder, node, members, names)
    bound = _ordered(binder, node, bound, env)
    operator = node.args.get(nodes.R2S)
    return to_stream(binder, bound, operator) if operator else bound


def _difference(
    binder: Binder, node: exp.SetOperation, members: Sequence[Bound], names: Sequence[str]
) -> Bound:
    """EXCEPT or INTERSECT: of bags with ALL and between two FROM names (STREAM's syntax), else of
    sets."""
    kind = "except" if isinstance(node, exp.Except) else "intersect"
    both = unite(binder, [Bound(m.shown()) for m in members], names, node).plan
    assert isinstance(both, Union)
    left, right = (as_relation(i) for i in both.inputs)
    made = SetOperation(left, right, kind, bool(node.args.get("distinct")), binder.pos(node))
    try:
        clock(made)
    except ValueError as error:
        raise binder.error(
            f"the sides of {kind.upper()} count time differently: {error}", node
        ) from None
    return Bound(made)


def _ordinal(k: int) -> str:
    return (
        ("the first query", "the second query", "the third query")[k]
        if k < 3
        else (f"query {k + 1}")
    )


def _members(node: exp.SetOperation) -> Iterator[exp.Expr]:
    """The operands: a chain of equal unions (``A UNION ALL B UNION ALL C``) is one union of three,
    EXCEPT and INTERSECT have two operands."""
    left = node.this
    same = isinstance(node, exp.Union) and type(left) is type(node)
    plain = same and not any(
        left.args.get(k) for k in ("order", "limit", "offset", "with_", nodes.R2S)
    )
    if plain and bool(left.args.get("distinct")) == bool(node.args.get("distinct")):
        yield from _members(left)
    else:
        yield left
    yield node.expression


def _ordered(binder: Binder, node: exp.Expr, bound: Bound, env: Env) -> Bound:
    """ORDER BY, LIMIT and OFFSET over the output of a whole query."""
    order, limit = node.args.get("order"), node.args.get("limit")
    offset = node.args.get("offset")
    if limit is not None and limit.args.get(nodes.PER_WINDOW):
        raise binder.error(
            "LIMIT … PER WINDOW stands in the SELECT that groups by a window",
            limit.expression,
            PER_WINDOW,
        )
    first = next((clause for clause in (order, limit, offset) if clause is not None), None)
    if first is None:
        return bound
    columns = tuple(
        ScopeColumn(None, f.name, Column(k, f.name, f.type, f.nullable))
        for k, f in enumerate(bound.plan.schema.fields[: bound.width])
    )
    scope = Scope(binder, (), columns, env.alone())
    keys = []
    for ordered in order.expressions if order is not None else ():
        item = order_item(ordered, _key(binder, ordered.this, scope, bound))
        keys.append(SortKey(item.expr, item.descending, item.nulls_first))
    most, skipped = count_of(binder, limit, "LIMIT"), count_of(binder, offset, "OFFSET") or 0
    if not keys:
        return replace(bound, plan=Limit(bound.plan, most, skipped, binder.pos(first)))
    plan = Sort(bound.plan, tuple(keys), most, skipped, None, binder.pos(first))
    return replace(bound, plan=plan)


def _key(binder: Binder, node: exp.Expr, scope: Scope, bound: Bound) -> Expr:
    if isinstance(node, exp.Literal) and not node.is_string and node.name.isdecimal():
        at = int(node.name)
        if not 1 <= at <= bound.width:
            raise binder.error(f"ORDER BY {at}: the query has {bound.width} columns", node)
        return scope.columns[at - 1].expr
    expr = ExprBinder(binder, scope, None, "ORDER BY").bind(node)
    return registry.fold(expr)
