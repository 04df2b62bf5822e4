"""Refuses Flink's clauses of CREATE TABLE that belong to other statements of this dialect.

The hint shows the right statement with the user's own names. A table holds stored rows. A source
with watermarks is a stream, and a stream may have computed columns. For a table, a view over the
table computes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from cql.dialect import nodes
from cql.dialect.generator import CqlGenerator

#: Flink's connectors whose rows come from files.
_FILES = ("filesystem", "file")


@dataclass(frozen=True, slots=True)
class Misplaced:
    """``node`` is in a CREATE statement that does not take such a node."""

    node: exp.Expr
    message: str
    hint: str


def computed_column(name: exp.Identifier, expression: exp.Expr) -> exp.ColumnDef:
    """``name AS expression`` in a list of columns."""
    kind = exp.ComputedColumnConstraint(this=expression)
    return exp.ColumnDef(this=name, constraints=[exp.ColumnConstraint(kind=kind)])


def misplaced(kind: str, args: Mapping[str, Any]) -> Misplaced | None:
    """The first invalid part of CREATE ``kind`` (TABLE or STREAM), or None; ``args`` are the
    arguments of the statement's node."""
    columns: Sequence[exp.Expr] = args.get("expressions") or ()
    computed = {c.name.lower(): c for c in columns if expression_of(c) is not None}
    for column in computed.values():
        call = expression_of(column)
        if isinstance(call, exp.Anonymous) and call.name.upper() == "PROCTIME":
            message = f"{column.name} is processing time, and windows go by event time here"
            return Misplaced(column, message, f"leave {column.name} out")
    if kind == "STREAM":
        return None
    found, message = next(iter(computed.values()), None), ""
    if found is not None:
        message = f"column {found.name} is computed, and CREATE TABLE takes stored columns"
    else:
        found = next((c for c in columns if isinstance(c, nodes.Watermark)), None)
        message = "a table has no watermark: CREATE STREAM declares a source"
        if found is None:
            options = args.get("with_options") or ()
            found = next((o for o in options if o.key_name.lower() == "connector"), None)
            message = "a table has no connector: CREATE STREAM declares a source"
    if found is None:
        return None
    source = any(isinstance(c, nodes.Watermark) for c in columns)
    source = source or any(
        o.key_name.lower() == "connector" for o in args.get("with_options") or ()
    )
    text = _as_stream(args) if source else _as_view(args, computed)
    return Misplaced(found, message, f"write {text}")


def expression_of(column: exp.Expr) -> exp.Expr | None:
    """The expression of a computed column; None for a stored column."""
    for constraint in column.args.get("constraints") or ():
        if isinstance(constraint.args["kind"], exp.ComputedColumnConstraint):
            found: exp.Expr = constraint.args["kind"].this
            return found
    return None


def _as_stream(args: Mapping[str, Any]) -> str:
    stream = _without_computed(nodes.CreateStream, args, {})
    given = [o for o in args.get("with_options") or () if o.key_name.lower() != "connector"]
    connector = {o.value.lower() for o in args.get("with_options") or () if o not in given}
    known = any(o.key_name.lower() == "format" for o in given)
    if connector and (not known or not connector <= set(_FILES)):
        stream.set("with_options", None)
        path = nodes.Option(this=exp.Literal.string("path"), expression=exp.Literal.string("…"))
        stream.set("format", exp.to_identifier("csv"))
        stream.set("options", [path])
    elif given:
        stream.set("with_options", [o.copy() for o in given])
    return _text(stream)


def _as_view(args: Mapping[str, Any], computed: Mapping[str, exp.Expr]) -> str:
    """The text of a table with the stored columns, and of a view over it with the computed ones."""
    name: exp.Table = args["this"]
    table = _without_computed(nodes.CreateTable, args, computed)
    table.this.this.set("this", f"{name.name}_source")
    items = [f"{_text(expression_of(c))} AS {_text(c.this)}" for c in computed.values()]
    view = f"CREATE VIEW {_text(name)} AS SELECT *, {', '.join(items)} FROM {_text(table.this)}"
    return f"{_text(table)}; {view}"


def _without_computed(
    made: type[nodes.CreateStream | nodes.CreateTable],
    args: Mapping[str, Any],
    computed: Mapping[str, exp.Expr],
) -> nodes.CreateStream | nodes.CreateTable:
    columns: Sequence[exp.Expr] = args.get("expressions") or ()
    others = ("this", "query", *(() if made is nodes.CreateTable else ("partitioned_by",)))
    statement = made(**{k: v for k, v in args.items() if k not in others})
    statement.set("this", args["this"].copy())
    statement.set("expressions", [c.copy() for c in columns if c not in computed.values()])
    return statement


def _text(node: exp.Expr | None) -> str:
    if node is None:
        return ""
    return CqlGenerator(comments=False, normalize_functions=False).generate(node, copy=False)
