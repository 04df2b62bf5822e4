"""What Flink declares in CREATE TABLE and this dialect elsewhere: told with the user's own names.

A table holds rows. A source with its watermarks is a stream, and a query computes columns::

    CREATE TABLE orders (raw STRING, ts AS to_timestamp(raw)) WITH ('connector' = 'filesystem', …)

is ``CREATE STREAM orders_source (raw STRING) WITH (…)`` and a view ``orders`` over it.
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
    """``node`` stands in a CREATE that does not take it."""

    node: exp.Expr
    message: str
    hint: str


def computed_column(name: exp.Identifier, expression: exp.Expr) -> exp.ColumnDef:
    """``name AS expression`` in a list of columns."""
    kind = exp.ComputedColumnConstraint(this=expression)
    return exp.ColumnDef(this=name, constraints=[exp.ColumnConstraint(kind=kind)])


def misplaced(kind: str, args: Mapping[str, Any]) -> Misplaced | None:
    """The first part of CREATE ``kind`` (TABLE or STREAM) that it does not take, if any; ``args``
    are those of the statement's node."""
    columns: Sequence[exp.Expr] = args.get("expressions") or ()
    computed = {c.name.lower(): c for c in columns if _expression(c) is not None}
    for column in computed.values():
        call = _expression(column)
        if isinstance(call, exp.Anonymous) and call.name.upper() == "PROCTIME":
            message = f"{column.name} is processing time, and windows go by event time here"
            return Misplaced(column, message, f"leave {column.name} out")
    found, message = next(iter(computed.values()), None), ""
    if found is not None:
        message = f"column {found.name} is computed, and CREATE {kind} takes stored columns"
    elif kind == "TABLE":
        found = next((c for c in columns if isinstance(c, nodes.Watermark)), None)
        message = "a table has no watermark: CREATE STREAM declares a source"
        if found is None:
            options = args.get("with_options") or ()
            found = next((o for o in options if o.key_name.lower() == "connector"), None)
            message = "a table has no connector: CREATE STREAM declares a source"
    if found is None:
        return None
    source = kind == "STREAM" or any(isinstance(c, nodes.Watermark) for c in columns)
    source = source or any(
        o.key_name.lower() == "connector" for o in args.get("with_options") or ()
    )
    made = nodes.CreateStream if source else nodes.CreateTable
    return Misplaced(found, message, f"write {_rewritten(made, args, columns, computed)}")


def _expression(column: exp.Expr) -> exp.Expr | None:
    """What computes a column, None of a stored one."""
    for constraint in column.args.get("constraints") or ():
        if isinstance(constraint.args["kind"], exp.ComputedColumnConstraint):
            found: exp.Expr = constraint.args["kind"].this
            return found
    return None


def _rewritten(
    made: type[nodes.CreateStream | nodes.CreateTable],
    args: Mapping[str, Any],
    columns: Sequence[exp.Expr],
    computed: Mapping[str, exp.Expr],
) -> str:
    table: exp.Table = args["this"]
    kept = [c for c in columns if c not in computed.values()]
    lost = [c for c in kept if isinstance(c, nodes.Watermark) and c.this.name.lower() in computed]
    kept = [c for c in kept if c not in lost]
    stream = made(**{k: v for k, v in args.items() if k not in ("this", "query")})
    stream.set("this", table.copy())
    stream.set("expressions", [c.copy() for c in kept])
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
    if not computed:
        return _text(stream)
    stream.this.this.set("this", f"{table.name}_source")
    items = [f"{_text(_expression(c))} AS {_text(c.this)}" for c in computed.values()]
    view = f"CREATE VIEW {_text(table)} AS SELECT *, {', '.join(items)} FROM {_text(stream.this)}"
    behind = "".join(
        f" ({c.this.name} is no column of the source: it takes no WATERMARK)" for c in lost
    )
    return f"{_text(stream)}; {view}{behind}"


def _text(node: exp.Expr | None) -> str:
    if node is None:
        return ""
    return CqlGenerator(comments=False, normalize_functions=False).generate(node, copy=False)
