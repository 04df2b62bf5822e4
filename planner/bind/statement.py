"""``bind``: a parsed statement, with every name and type resolved against the catalog.

>>> tree = parse_one("SELECT count(*) FROM s [RANGE 1 MINUTE, SLIDE 1 MINUTE]")
>>> statement = bind(tree, catalog, Context())

A bound statement holds no sqlglot object, except the trees of views, which are bound again
wherever a query uses the view.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from cql.base.model import Schema
from cql.base.recursion import deep_stack
from cql.base.types import BIGINT
from cql.dialect import nodes
from cql.errors import PlanError, Position
from cql.planner.bind import ddl, inserted
from cql.planner.bind.context import Binder, Context, Env, Notice
from cql.planner.bind.emit import check_changes, emits_changes, held, waits_for_close
from cql.planner.bind.late_output import late_output, late_target
from cql.planner.bind.query import bind_outermost, bind_query
from cql.planner.bind.relations import watermark
from cql.planner.bind.relations.from_clause import name_of, unknown_relation
from cql.planner.nodes.catalog import Relations
from cql.planner.nodes.logical import TIME, WEIGHT, Logical
from cql.planner.nodes.statements import (
    Describe,
    Drop,
    Explain,
    Hint,
    Insert,
    Name,
    Query,
    RefreshView,
    Reset,
    Set,
    Show,
    Statement,
    StopQuery,
    Use,
)
from cql.planner.optimize.changelog import (
    as_it_comes,
    as_relation,
    changes,
    clock,
    only_complete,
)

__all__ = ["Context", "Notice", "bind"]


def bind(tree: exp.Expr, catalog: Relations, context: Context) -> Statement:
    """Binds ``tree`` (a result of ``cql.dialect.parse``).

    Raises BindError for wrong names and types, NotSupportedError for clauses without a logical
    plan, both with position and hint, and PlanError for a statement that is too large. A clause
    that binds and that this version cannot run becomes a node of the plan, which the planner
    refuses. Appends notices to ``context.warnings``."""
    binder = Binder(catalog, context, bind_query)
    with deep_stack():
        try:
            return _statement(binder, tree)
        except RecursionError:
            raise PlanError(
                "the statement nests too deeply once its views are expanded",
                position=binder.pos(tree),
                hint="store an intermediate result in a table",
            ) from None


def _statement(binder: Binder, node: exp.Expr) -> Statement:
    pos = binder.pos(node)
    match node:
        case exp.Query() | exp.Values():
            return _query(binder, node)
        case nodes.InsertInto():
            return _insert(binder, node)
        case nodes.CreateStream():
            return ddl.create_stream(binder, node)
        case nodes.CreateView():
            return ddl.create_view(binder, node)
        case nodes.CreateMaterializedView():
            query = _query(binder, node.args["query"], name_of(node.this))
            return ddl.create_materialized_view(binder, node, query)
        case nodes.RefreshView():
            every = watermark.elapsed(binder, node.args.get("every"), "EVERY")
            full = bool(node.args.get("full"))
            return RefreshView(name_of(node.this), full, binder.pos(node.this), every)
        case nodes.CreateTable():
            inner = node.args.get("query")
            filling = _query(binder, inner, name_of(node.this)) if inner else None
            return ddl.create_table(binder, node, filling)
        case nodes.CreateConstant():
            return ddl.create_constant(binder, node)
        case nodes.DropObject():
            kind = str(node.args["kind"]).lower()
            place = binder.pos(node.this)
            return Drop(kind, name_of(node.this), bool(node.args.get("exists")), place)
        case nodes.SetSetting():
            return _set(binder, node)
        case nodes.ResetSetting():
            named = node.this
            return Reset(named.name if named else None, binder.pos(named) if named else pos)
        case nodes.Explain():
            mode = str(node.args.get("mode") or "PHYSICAL").lower()
            if isinstance(node.this, exp.Identifier):
                return Explain(mode, None, binder.pos(node.this), node.this.name)
            return Explain(mode, _statement(binder, node.this), pos)
        case nodes.ShowObjects():
            like = node.args.get("like")
            place = node.args.get("place")
            where = name_of(place) if place is not None else None
            pattern = like.name if like is not None else None
            named = node.args.get("query")
            if named is not None:
                return Show(str(node.this).lower(), None, binder.pos(named), query=named.name)
            return Show(str(node.this).lower(), pattern, pos, where)
        case nodes.UseDatabase():
            return Use(name_of(node.this), binder.pos(node.this))
        case nodes.DescribeObject():
            materialized = bool(node.args.get("materialized"))
            return Describe(name_of(node.this), binder.pos(node.this), materialized)
        case nodes.StopQuery():
            return StopQuery(node.this.name, binder.pos(node.this))
    raise binder.unsupported(f"{type(node).__name__.upper()} as a statement", node)


def _query(binder: Binder, node: exp.Expr, into: Name | None = None) -> Query:
    """Binds a query with its statement-wide clauses; its rows go into the table ``into``."""
    binder.hinted = nodes.first_select(node)
    bound = bind_outermost(binder, node, Env())
    emit = node.args.get(nodes.EMIT)
    if waits_for_close(emit):
        bound = replace(bound, plan=held(binder, bound.plan, emit))
    plan = bound.shown()
    bad = node.args.get(nodes.ON_BAD_ROW)
    if binder.divided is not None and _in_spark_spelling(node):
        binder.warn(
            "an integer divided by an integer is an integer here, unlike in Spark", binder.divided
        )
    early: list[Position | None] = []
    if emits_changes(emit):
        check_changes(binder, plan, emit)
        early = [binder.pos(emit)]
    elif emit is None and into is None and only_complete(plan) is None:
        early = binder.emitting[:1]
    if early:
        plan = as_it_comes(plan)
    elif changes(plan):
        plan = as_relation(plan)
    late = node.args.get(nodes.LATE_OUTPUT)
    if late is not None:
        plan = late_output(binder, plan, late)
    return Query(
        plan,
        _hints(binder),
        None if bad is None else bad.this == "KEEP",
        early[0] if early else None,
        binder.pos(node),
        None if late is None else late_target(binder, late, into),
    )


def _in_spark_spelling(node: exp.Expr) -> bool:
    """Whether the query uses syntax of Spark alone: ``window(…)``, ``WATERMARK … DELAY OF``."""
    for part in node.walk():
        if isinstance(part, nodes.FromWatermark):
            return True
        if isinstance(part, nodes.GroupWindow) and part.window_kind.endswith("WINDOW"):
            return True
    return False


def _hints(binder: Binder) -> tuple[Hint, ...]:
    clause = None if binder.hinted is None else binder.hinted.args.get("hint")
    return tuple(
        Hint(str(h.this), tuple(v.name for v in h.expressions), binder.pos(h))
        for h in (clause.expressions if clause is not None else ())
    )


def _insert(binder: Binder, node: nodes.InsertInto) -> Insert:
    name, query_node = name_of(node.this), node.args["query"]
    if binder.context.named(name) is not None:
        raise binder.error(
            f"{'.'.join(name)} is a query; rows go into a table", node.this, "CREATE TABLE … AS"
        )
    target = binder.find(name)
    if target is None:
        error = unknown_relation(binder, node.this, ())
        meant = f"{error.hint} " if (error.hint or "").startswith("did you mean") else ""
        error.hint = f"{meant}CREATE TABLE {'.'.join(name)} AS SELECT … makes it"
        raise error
    fields = inserted.filled(binder, target, node.expressions, node.this)
    inserted.note_defaults(binder, target, fields, query_node)
    query = _query(binder, query_node, name)
    plan = query.plan
    if fields.names[:2] == (TIME, WEIGHT) and (query.emit_changes or changes(plan)):
        _check_change(binder, plan, fields, query_node)
        filled = Schema(fields.fields[2:])
    else:
        filled = fields
    plan = inserted.stored(binder, plan, filled, query_node, target.kind)
    return Insert(name, fields.names, replace(query, plan=plan), binder.pos(node.this))


def _check_change(binder: Binder, plan: Logical, fields: Schema, at: exp.Expr) -> None:
    """Raises BindError unless the first two columns of a table of changes have the types of the
    changes' instant and weight."""
    for field, type_ in zip(fields, (clock(plan) or BIGINT, BIGINT), strict=False):
        if field.type != type_:
            raise binder.error(
                f"column {field.name} has type {field.type}, and that of the query's changes is"
                f" {type_}",
                at,
            )


def _set(binder: Binder, node: nodes.SetSetting) -> Set:
    value = node.args.get("expression")
    if isinstance(value, exp.Null):
        raise binder.error("a setting takes no NULL", value, hint=f"RESET {node.name}")
    place = binder.pos(node.this)
    if value is None:
        return Set(node.name, None, place)
    return Set(node.name, ddl.constant_value(binder, value), place, binder.pos(value))
