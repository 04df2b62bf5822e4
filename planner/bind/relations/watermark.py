"""Binds the clauses of CREATE STREAM that declare watermarks: ORDERED BY, WATERMARK, PUNCTUATE ON
and BY, MAX ADVANCE, IDLE AFTER and HEARTBEAT."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from sqlglot import exp

from cql.base import types as t
from cql.base.model import Field, Schema
from cql.base.types import Kind
from cql.dialect import nodes, to_sql
from cql.errors import BindError
from cql.planner.bind.context import Binder
from cql.planner.bind.relations import window
from cql.planner.nodes.catalog import Heartbeat, Progress, TimeUnit
from cql.planner.nodes.progress import is_value

#: Finds the column that a clause names; None if the statement lists no columns.
Find: TypeAlias = Callable[[Binder, exp.Expr, Schema | None], Field | None]


@dataclass(slots=True)
class _Declared:
    """The declarations of ORDERED BY, WATERMARK and PUNCTUATE ON for one column."""

    field: Field
    node: exp.Expr
    unit: TimeUnit | None = None
    slack: exp.Expr | None = None
    clause: str = "WITHIN"
    text: str = ""
    by_rows: bool = True
    marked_by: str | None = None
    every: exp.Expr | None = None


def progress(
    binder: Binder, node: nodes.CreateStream, schema: Schema | None, find: Find
) -> tuple[Progress, ...]:
    """The progressing columns, in the order of their declarations."""
    declared: dict[str, _Declared] = {}
    inside = [c for c in node.expressions if isinstance(c, nodes.Watermark)]
    for clause in (
        *(node.args.get("ordered_by") or ()),
        *inside,
        *(node.args.get("watermark") or ()),
    ):
        made = _declared(binder, clause, schema, find)
        key = made.field.name.lower()
        declared[key] = _merged(binder, declared[key], made) if key in declared else made
    for clause in node.args.get("punctuate") or ():
        if not clause.args.get("by"):
            _punctuated(binder, clause, schema, find, declared)
    found = [_progress_of(binder, d) for d in declared.values()]
    most = node.args.get("max_advance")
    if most is not None:
        found = _measured(binder, most, most.this, "MAX ADVANCE", declared, found)
    by = _by(node)
    if by is not None and by.args.get("within") is not None:
        found = _measured(binder, by, by.args["within"], "WITHIN", declared, found)
    return tuple(found)


def _punctuated(
    binder: Binder,
    clause: nodes.Punctuate,
    schema: Schema | None,
    find: Find,
    declared: dict[str, _Declared],
) -> None:
    """PUNCTUATE ON column [WHEN marker] [EVERY d]: the source itself sends punctuation on the
    column. If no other clause orders the column, only this punctuation raises its watermark."""
    field = find(binder, clause.this, schema) or Field(clause.this.name, t.TIMESTAMP)
    marker, every = clause.args.get("when"), clause.args.get("every")
    known = declared.get(field.name.lower())
    if known is None:
        if every is not None and marker is None:
            raise binder.error(
                f"EVERY says how far apart punctuation on {field.name} lies, and nothing makes any",
                every,
                hint=f"add ORDERED BY {field.name}, or PUNCTUATE ON {field.name} WHEN marker",
            )
        known = _Declared(field, clause.this, by_rows=False)
    if marker is not None:
        found = find(binder, marker, schema)
        if found is not None and found.type.kind is not Kind.BOOLEAN:
            raise binder.error(
                f"{found.name} is a {found.type}; rows are marked by a boolean",
                marker,
                hint="a row in which it is true is punctuation, and no row of the stream",
            )
        known.marked_by = found.name if found is not None else marker.name
    if every is not None:
        known.every = every
    known.text = f"{known.text} {to_sql(clause)}".strip()
    declared[field.name.lower()] = known


def _measured(
    binder: Binder,
    clause: exp.Expr,
    length: exp.Expr,
    what: str,
    declared: dict[str, _Declared],
    found: list[Progress],
) -> list[Progress]:
    """``found`` with MAX ADVANCE, or WITHIN of PUNCTUATE BY, set for each column that the unit of
    ``length`` fits. Raises BindError if it fits no column."""
    if not found:
        raise binder.error(
            f"{'PUNCTUATE BY' if what == 'WITHIN' else what} needs a column with a watermark",
            clause,
            hint="add ORDERED BY column, or leave it out",
        )
    made: list[Progress] = []
    refused = None
    for one, declaration in zip(found, declared.values(), strict=True):
        try:
            most = window.slack(binder, declaration.field, declaration.unit, length, what)
        except BindError as error:
            refused = refused or error
            made.append(one)
            continue
        if most == 0 and what == "MAX ADVANCE":
            raise binder.error("MAX ADVANCE must be above zero", clause)
        if what == "WITHIN":
            made.append(replace(one, max_skew=most))
        else:
            made.append(replace(one, max_advance=most))
    if refused is not None and all(new is old for new, old in zip(made, found, strict=True)):
        raise refused
    return made


def _by(node: nodes.CreateStream) -> nodes.Punctuate | None:
    """The clause PUNCTUATE BY."""
    return next((p for p in node.args.get("punctuate") or () if p.args.get("by")), None)


def punctuated_by(
    binder: Binder, node: nodes.CreateStream, schema: Schema | None, find: Find
) -> str | None:
    """The column of PUNCTUATE BY: each value of the column has its own watermark."""
    clause = _by(node)
    if clause is None:
        return None
    again = [p for p in node.args["punctuate"] if p.args.get("by")][1:]
    if again:
        raise binder.error(
            "PUNCTUATE BY stands twice", again[0], hint="it takes one column: leave one out"
        )
    columns = progress(binder, node, schema, find)
    if not columns:
        raise binder.error(
            "PUNCTUATE BY needs a column with a watermark",
            clause,
            hint="add ORDERED BY column, or PUNCTUATE ON column",
        )
    field = find(binder, clause.this, schema)
    name = clause.this.name if field is None else field.name
    if field is not None and not is_value(field.type):
        raise binder.error(
            f"{name} is a {field.type}; a watermark for each of its values is not supported",
            clause.this,
            hint="a text, an integer, a date, a timestamp, a boolean or a decimal can be",
        )
    if any(p.column.lower() == name.lower() for p in columns):
        raise binder.error(
            f"{name} has a watermark: PUNCTUATE BY takes a column of groups", clause.this
        )
    return name


def idle_after(binder: Binder, clause: nodes.IdleAfter | None) -> int | None:
    """The microseconds of IDLE AFTER, or None."""
    return None if clause is None else _elapsed(binder, clause.this, "IDLE AFTER")


def elapsed(
    binder: Binder, length: exp.Expr | None, what: str, *, zero: bool = False
) -> int | None:
    """The microseconds of the clause ``what`` of a statement, or None."""
    return None if length is None else _elapsed(binder, length, what, zero=zero)


def heartbeat(
    binder: Binder, node: nodes.CreateStream, schema: Schema | None, find: Find
) -> Heartbeat | None:
    """HEARTBEAT EVERY d SLACK s. Raises BindError unless a timestamp progresses, because a clock
    measures only timestamps."""
    clause = node.args.get("heartbeat")
    if clause is None:
        return None
    columns = progress(binder, node, schema, find)
    fields = [schema[at] for p in columns if schema and (at := schema.find(p.column)) is not None]
    if not columns or (schema is not None and not any(f.type.is_timestamp for f in fields)):
        what = f"; {fields[0].name} is a {fields[0].type}" if fields else ""
        raise binder.error(
            f"HEARTBEAT needs a timestamp with a watermark{what}",
            clause,
            hint="a clock cannot tell how far other columns are: leave it out",
        )
    every = _elapsed(binder, clause.args["every"], "EVERY")
    slack = _elapsed(binder, clause.args["slack"], "SLACK", zero=True)
    return Heartbeat(every, slack)


def _elapsed(binder: Binder, node: exp.Expr, what: str, *, zero: bool = False) -> int:
    """A duration of the clock in microseconds, above zero (``zero``: or zero)."""
    length = window.amount(binder, None, node)
    if not length.timed:
        raise binder.error(
            f"{what} is measured by the clock: {length.text} has no unit",
            node,
            hint=f"{what} {length.text} SECONDS",
        )
    if length.value.denominator != 1:
        raise binder.error(f"{what} is not a whole number of microseconds", node)
    if length.value < 0 or (length.value == 0 and not zero):
        raise binder.error(f"{what} must be above zero", node)
    return int(length.value)


def _declared(binder: Binder, clause: exp.Expr, schema: Schema | None, find: Find) -> _Declared:
    column = clause.this
    # Without a column list the type is unknown here: a duration suggests a timestamp.
    unit = clause.args.get("unit")
    assumed = Field(column.name, t.BIGINT if unit else t.TIMESTAMP)
    field = find(binder, column, schema) or assumed
    made = _Declared(field, column, text=to_sql(clause))
    if isinstance(clause, nodes.OrderedBy):
        made.unit = TimeUnit(f"{unit.lower()}s") if unit else None
        made.slack = clause.args.get("within")
    elif clause.args.get("expression") is not None:
        raise binder.error(
            f"WATERMARK FOR {column.name} takes {column.name} or {column.name} - INTERVAL …",
            clause.args["expression"],
            hint=f"for example WATERMARK FOR {column.name} AS {column.name} - INTERVAL '5' SECOND",
        )
    else:
        made.slack, made.clause = clause.args["delay"], "WATERMARK"
    return made


def _merged(binder: Binder, one: _Declared, other: _Declared) -> _Declared:
    if one.slack is not None and other.slack is not None:
        raise binder.error(f"the slack of {one.field.name} is declared twice", other.node)
    unit = one.unit or other.unit
    declaration = one if one.slack is not None else other
    # A declared unit implies an integer column, even while the schema is unknown.
    field = one.field if one.unit else other.field
    return replace(
        declaration, field=field, unit=unit, node=one.node, text=f"{one.text} {other.text}"
    )


def _progress_of(binder: Binder, declared: _Declared) -> Progress:
    field = declared.field
    if not field.type.can_progress:
        article = "an" if str(field.type)[0] in "aeiou" else "a"
        raise binder.error(
            f"{field.name} is {article} {field.type} and cannot order a stream",
            declared.node,
            hint="a timestamp, a date or an integer can",
        )
    if declared.unit is not None and not field.type.is_integer:
        raise binder.error(
            f"IN {declared.unit.value.upper()} is for integers; {field.name} is a {field.type}",
            declared.node,
        )
    slack = 0
    if declared.slack is not None:
        slack = window.slack(binder, field, declared.unit, declared.slack, declared.clause)
    every = None
    if declared.every is not None:
        every = window.slack(binder, field, declared.unit, declared.every, "EVERY") or None
    return Progress(
        field.name,
        slack,
        declared.unit,
        declared.text,
        declared.by_rows,
        declared.marked_by,
        every,
    )
