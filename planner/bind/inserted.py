"""The rows that an INSERT stores: the columns of its query as those of the target, and the values
of the columns that it leaves out."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from cql.base.model import Field, Schema
from cql.base.types import DataType, Kind, list_of
from cql.errors import BindError
from cql.planner.bind.context import Binder, find_column
from cql.planner.bind.expressions.expression import is_default
from cql.planner.functions import registry
from cql.planner.functions.coercion import common_type, parts_of
from cql.planner.interpret.error import EvaluationError
from cql.planner.interpret.python_values import from_python
from cql.planner.nodes.catalog import Relation
from cql.planner.nodes.expr import Column, Expr, Literal
from cql.planner.nodes.logical import Logical, Project


def stored(
    binder: Binder, plan: Logical, fields: Schema, at: exp.Expr, kind: str = "table"
) -> Logical:
    """``plan`` with the names and types of ``fields``, matched by position: the columns of a table
    or stream (``kind``) that the plan's rows fill. ANSI store assignment applies: numbers may
    narrow, and a value that does not fit fails at run time."""
    if len(plan.schema) != len(fields):
        width = len(plan.schema)
        raise binder.error(
            f"the query has {width} column{'' if width == 1 else 's'}, and the {kind} takes"
            f" {len(fields)}",
            at,
            hint="the columns to fill: " + ", ".join(fields.names),
        )
    exprs = tuple(_assigned(binder, plan, k, f, at) for k, f in enumerate(fields))
    if exprs == tuple(_plain(plan, k) for k in range(len(fields))) and (
        fields.names == plan.schema.names
    ):
        return plan
    return Project(plan, exprs, fields.names, binder.pos(at))


def _plain(plan: Logical, at: int) -> Column:
    f = plan.schema[at]
    return Column(at, f.name, f.type, f.nullable)


def _narrows(source: DataType, to: DataType) -> bool:
    """Whether both are numbers, or arrays or structs of numbers and equal types."""
    if source.is_nested:
        pairs = parts_of(source, to)
        return pairs is not None and all(x == y or _narrows(x, y) for x, y in pairs)
    return source.is_numeric and to.is_numeric


def _assigned(binder: Binder, plan: Logical, at: int, field: Field, node: exp.Expr) -> Expr:
    column = _plain(plan, at)
    if column.type.kind is Kind.SIGNAL:
        kinds = list_of(column.type), field.type
        if common_type(kinds) == field.type:
            return column  # rows have segments as lists, and the table widens their samples
    narrows = _narrows(column.type, field.type)
    try:
        place = binder.pos(_item(node, at))
        return registry.cast(column, field.type, place, implicit=not narrows)
    except BindError as error:
        raise binder.error(
            f"column {field.name} has type {field.type}, and the query gives {column.type}"
            f" ({column.name})",
            _item(node, at),
            hint=f"CAST({column.name} AS {field.type})" if error.hint else None,
        ) from None


def _item(query: exp.Expr, at: int) -> exp.Expr:
    """The select list's element of column ``at``, or ``query`` if the element is unknown."""
    items = query.expressions if isinstance(query, exp.Select) else []
    starred = any(item.is_star for item in items)
    return query if starred or at >= len(items) else items[at]


def filled(binder: Binder, relation: Relation, named: Sequence[exp.Expr], at: exp.Expr) -> Schema:
    """The columns of ``relation`` that an INSERT fills."""
    target: Schema = getattr(relation, "stored", relation.schema)
    spec = relation.stream
    if spec is not None and spec.changelog is not None and spec.changelog.column is None:
        raise binder.error(
            f"{'.'.join(relation.name)} takes Debezium envelopes, and INSERT has none",
            at,
            hint="session.push takes envelopes; CHANGELOG BY op a column of operation codes",
        )
    for column, why in relation.unsupported.items() if not named else ():
        raise binder.error(
            f"column {column} of {'.'.join(relation.name)} cannot be written: {why}",
            at,
            hint=f"name the columns to fill: INSERT INTO t ({', '.join(target.names)})",
        )
    if not named:
        return target
    fields: list[Field] = []
    for node in named:
        field = find_column(binder, node, target)
        assert field is not None
        if field in fields:
            raise binder.error(f"column {field.name} is filled twice", node)
        fields.append(field)
    missing = [
        f.name
        for f in target
        if not f.nullable and f not in fields and not relation.has_default(f.name)
    ]
    if missing:
        raise binder.error(f"column {missing[0]} takes no NULL and is not filled", named[0])
    return Schema(tuple(fields))


def note_defaults(binder: Binder, relation: Relation, fields: Schema, query: exp.Expr) -> None:
    """Stores the value of each DEFAULT in an INSERT in ``binder.defaults``. DEFAULT may stand in a
    row of VALUES or, as in Spark, in the select list."""
    rows: list[list[exp.Expr]] = []
    if isinstance(query, exp.Values):
        rows = [list(r.expressions) if isinstance(r, exp.Tuple) else [r] for r in query.expressions]
    elif isinstance(query, exp.Select):
        rows = [list(query.expressions)]
    known: dict[str, Literal] = {}
    for row in rows:
        for item, field in zip(row, fields, strict=False):
            word = item.unnest()
            if not is_default(word):
                continue
            if field.name not in known:
                known[field.name] = _default(binder, relation, field, word)
            binder.defaults[id(word)] = known[field.name]


def _default(binder: Binder, relation: Relation, field: Field, node: exp.Expr) -> Literal:
    try:
        value = from_python(relation.default(field.name), field.type, f"DEFAULT of {field.name} is")
    except EvaluationError as error:
        raise binder.error(
            error.message, node, hint="leave the column out of the INSERT: that stores its DEFAULT"
        ) from error
    return Literal(value, field.type, binder.pos(node))
