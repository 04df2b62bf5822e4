"""REFRESH of CREATE STREAM: how often an application wants updates of which keys.

The stream keeps the text of the conditions. Where a query reads the stream, they are bound over the
update key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from cql.base.model import Schema
from cql.dialect import nodes, parse_one, to_sql
from cql.errors import PlanError
from cql.planner.bind.context import Binder, Env
from cql.planner.bind.expressions.expression import ExprBinder
from cql.planner.bind.relations import watermark
from cql.planner.bind.scope import Scope, ScopeColumn
from cql.planner.functions import registry
from cql.planner.nodes.catalog import Refresh
from cql.planner.nodes.expr import Column, Expr
from cql.planner.nodes.logical import RefreshItem, Scan


def declared(
    binder: Binder,
    node: nodes.CreateStream,
    schema: Schema | None,
    update_key: Sequence[str] | None,
) -> tuple[Refresh, ...]:
    """The items of REFRESH, checked. ``schema``: the columns of the stream; None: they are not
    known yet."""
    clause = node.args.get("refresh")
    if clause is None:
        return ()
    _check_queue(binder, node, clause)
    if update_key is None:
        raise binder.error(
            "REFRESH says how often a key is refreshed, and the stream has no update key",
            clause,
            hint="add UPDATE KEY (column, …)",
        )
    made = []
    for item in clause.expressions:
        every = watermark.elapsed(binder, item.args["every"], "EVERY")
        assert every is not None
        condition = item.this
        if condition is not None:
            for parameter in condition.find_all(exp.Placeholder):
                raise binder.error(
                    "REFRESH keeps the text of its conditions, and a parameter has its value only"
                    " here",
                    parameter,
                    hint="write the value",
                )
            if schema is not None:
                _bound(binder, condition, schema, update_key)
        made.append(Refresh(None if condition is None else to_sql(condition), every))
    return tuple(made)


def _check_queue(binder: Binder, node: nodes.CreateStream, clause: exp.Expr) -> None:
    """Raises for clauses beside REFRESH with which rows cannot be left out, or not row by row."""
    queue = node.args.get("queue")
    what = None
    if node.args.get("changelog") is not None:
        what = "REFRESH leaves rows out, and a changelog needs all of its rows"
    elif queue is not None and queue.this in ("APPEND", "ADAPTIVE"):
        what = f"REFRESH leaves rows out, and {to_sql(queue)} keeps them"
    elif queue is None and node.args.get("staleness") is not None:
        what = "REFRESH leaves rows out, and STALENESS UNDER means QUEUE ADAPTIVE, which keeps them"
    if what is not None:
        raise binder.error(what, clause, hint="QUEUE IN-PLACE, FIFO and LINECUTTING go with it")
    windows = node.args.get("windows")
    if windows is not None:
        raise binder.unsupported(f"REFRESH with {to_sql(windows)}", clause, "leave one of them out")


def with_refresh(binder: Binder, scan: Scan, node: exp.Expr) -> Scan:
    """``scan`` with the bound items of REFRESH of its stream."""
    spec = scan.relation.stream
    if spec is None or not spec.refresh:
        return scan
    made = []
    with binder.in_place("stream", scan.relation.name, node):
        for item in spec.refresh:
            condition = None
            if item.condition is not None:
                select = parse_one(f"SELECT {item.condition}")
                assert isinstance(select, exp.Select)
                written, key = select.expressions[0], spec.update_key or ()
                condition = _bound(binder, written, scan.relation.schema, key)
            made.append(RefreshItem(condition, item.every))
    return replace(scan, refresh=tuple(made))


def _bound(binder: Binder, node: exp.Expr, schema: Schema, update_key: Sequence[str]) -> Expr:
    """A condition over the columns of the update key, by their places in it.

    Raises PlanError for another column of the stream."""
    key = [name.lower() for name in update_key]
    for column in node.find_all(exp.Column):
        name = column.name.lower()
        if name not in key and schema.find(name) is not None:
            raise PlanError(
                f"{column.name} is no column of the update key, and REFRESH chooses keys",
                position=binder.pos(column),
                hint=f"the update key has {', '.join(update_key)}",
            )
    fields = [schema[at] for name in update_key if (at := schema.find(name)) is not None]
    columns = (Column(k, f.name, f.type, f.nullable) for k, f in enumerate(fields))
    scope = Scope(binder, (), tuple(ScopeColumn(None, c.name, c) for c in columns), Env())
    return registry.fold(ExprBinder(binder, scope, None, "REFRESH").condition(node))
