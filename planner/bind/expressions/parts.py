"""Binds parts of arrays and structs, and ``struct(…)``."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from cql.planner.bind.context import Binder
from cql.planner.functions import nested
from cql.planner.nodes.expr import Expr

Bind = Callable[[exp.Expr], Expr]


def field(binder: Binder, node: exp.Dot, bind: Bind) -> Expr:
    """``value.name``, where ``value`` is no name."""
    if not isinstance(node.expression, exp.Identifier):
        raise binder.unsupported(f"{type(node.expression).__name__.lower()} behind a dot", node)
    return nested.field(bind(node.this), node.expression.name, binder.pos(node))


def item(binder: Binder, node: exp.Bracket, bind: Bind) -> Expr:
    """``array[0]``, or ``struct['field']``."""
    if len(node.expressions) != 1 or isinstance(node.expressions[0], exp.Slice):
        hint = "slice(array, start, length) is"
        raise binder.unsupported("several elements in […]", node, hint)
    return nested.item(bind(node.this), bind(node.expressions[0]), binder.pos(node))


def struct(binder: Binder, node: exp.Struct, bind: Bind) -> Expr:
    """``struct(a, b AS c)``: a field is called as its column, or col1, col2, … by its place."""
    names, values = [], []
    for place, part in enumerate(node.expressions, 1):
        name, value = f"col{place}", part
        if isinstance(part, exp.PropertyEQ):
            name, value = part.this.name, part.expression
        elif isinstance(part, exp.Alias):
            name, value = part.alias, part.this
        elif isinstance(part, exp.Column):
            name = part.name
        names.append(name)
        values.append(bind(value))
    return nested.make_struct(names, values, binder.pos(node))
