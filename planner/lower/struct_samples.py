"""Samples that are structs, where an operator works on numbers: each field becomes a column, and
the columns become structs again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from cql.base.model import Field
from cql.base.types import INT, DataType, Kind
from cql.planner.functions import signals
from cql.planner.nodes.expr import Call, Column, Expr, Literal
from cql.planner.nodes.physical import Physical, ProjectExec
from cql.planner.nodes.physical.columns import column_at


def has_structs(fields: Sequence[Field]) -> bool:
    """Whether a column has structs, or segments of them."""
    return any(f.type.struct_fields for f in fields)


def fields_of(fields: Sequence[Field]) -> tuple[Field, ...]:
    """The columns of ``taken_apart``, of rows."""
    found = list[Field]()
    for f in fields:
        parts = [Field(f"{f.name}.{name}", kind, f.nullable) for name, kind in f.type.fields]
        found += fields_of(parts) if parts else [f]
    return tuple(found)


def taken_apart(child: Physical) -> Physical:
    """``child`` with a column for each field of its structs, at any depth."""
    parts = [p for k in range(len(child.schema)) for p in _parts(column_at(child.schema, k), "")]
    names = tuple(name for name, _ in parts)
    return ProjectExec(child, tuple(e for _, e in parts), names, "the fields of structs")


def put_together(child: Physical, fields: Sequence[Field]) -> Physical:
    """The columns of ``taken_apart`` as those of ``fields`` again."""
    columns: Iterator[Expr] = iter([column_at(child.schema, k) for k in range(len(child.schema))])
    made = tuple(_whole(f.type, columns) for f in fields)
    return ProjectExec(child, made, tuple(f.name for f in fields), "the fields as structs")


def _parts(expr: Expr, name: str) -> list[tuple[str, Expr]]:
    """The fields of ``expr`` that are no structs, with their names."""
    name = expr.name if isinstance(expr, Column) else name
    fields = expr.type.struct_fields
    if not fields:
        return [(name, expr)]
    found = list[tuple[str, Expr]]()
    for k, (field, kind) in enumerate(fields):
        part: Expr = Call("field", (expr, Literal(k, INT)), kind, True, None)
        if signals.is_segment(expr):
            part = signals.field(expr, k, None)
        found += _parts(part, f"{name}.{field}")
    return found


def _whole(kind: DataType, columns: Iterator[Expr]) -> Expr:
    fields = kind.struct_fields
    if not fields:
        return next(columns)
    if kind.kind is Kind.SIGNAL:
        parts = [_whole(replace(kind, element=of), columns) for _, of in fields]
        return signals.of_structs([name for name, _ in fields], parts, None)
    values = tuple(_whole(of, columns) for _, of in fields)
    return Call("named_struct", values, kind, False, None)
