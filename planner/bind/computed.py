"""Computed columns of CREATE STREAM: ``ts AS to_timestamp(raw, 'dd/MM/yyyy')`` beside stored ones.

The stream keeps the text of the expressions. Wherever a query reads the stream, a Project right
above the source computes the columns. If a computed time is declared to progress, its watermark
follows the rows in their order of arrival.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from sqlglot import exp

from cql.base.model import Field, Schema, of_samples
from cql.dialect import nodes, parse_one, to_sql
from cql.dialect.sources import expression_of
from cql.planner.bind.context import Binder, Env
from cql.planner.bind.expressions.expression import ExprBinder
from cql.planner.bind.scope import Scope, ScopeColumn, column_of
from cql.planner.functions import registry
from cql.planner.nodes.catalog import Computed, Progress, Relation
from cql.planner.nodes.expr import Column, Expr
from cql.planner.nodes.logical import Logical, Project, Scan

_T = TypeVar("_T")
#: Clauses about the source's rows, before the stream's columns are computed.
_OF_SOURCE = {"punctuate": "PUNCTUATE", "idle_after": "IDLE AFTER", "heartbeat": "HEARTBEAT"}


def declared(
    binder: Binder, node: nodes.CreateStream, stored: Schema | None
) -> tuple[tuple[Computed, ...], Schema | None]:
    """The computed columns of CREATE STREAM, checked, and the schema with these columns.
    ``stored`` is the source's schema; None: the statement lists no stored columns. Over the blocks
    of a signal the values are those of each sample. Raises
    BindError for a computed column without stored columns, or with the name of a stored one."""
    parts = [c for c in node.expressions if isinstance(c, exp.ColumnDef)]
    found = [(k, part, e) for k, part in enumerate(parts) if (e := expression_of(part)) is not None]
    if not found:
        return (), stored
    if stored is None:
        _, part, _ = found[0]
        raise binder.error(
            f"{part.name} is computed of columns that are not listed",
            part,
            hint=f"list those of the source as well: (raw STRING, {part.name} AS …)",
        )
    names = [part.name for _, part, _ in found]
    taken = [n for n in names if stored.find(n) is not None]
    if taken:
        part = next(part for _, part, _ in found if part.name == taken[0])
        raise binder.error(f"the source has a column {taken[0]} itself", part, "name it otherwise")
    only = len(found) == len(parts)
    read = stored if node.args.get("rate") is None else of_samples(stored)
    made: list[Computed] = []
    fields: list[Field] = []
    for k, part, expression in found:
        value = _value(binder, expression, read, names, part.name)
        made.append(Computed(part.name, to_sql(expression), None if only else k))
        fields.append(Field(part.name, value.type, value.nullable))
    return tuple(made), Schema(tuple(_in_declared_order(stored.fields, made, fields)))


def _in_declared_order(
    stored: Sequence[_T], computed: Sequence[Computed], values: Sequence[_T]
) -> list[_T]:
    """The ``stored`` and computed ``values``, in the order in which the columns are declared."""
    whole = list(stored)
    for column, value in zip(computed, values, strict=True):
        whole.insert(len(whole) if column.at is None else column.at, value)
    return whole


def _value(
    binder: Binder, node: exp.Expr, stored: Schema, computed: Sequence[str], name: str
) -> Expr:
    """The expression of the computed column ``name``, bound over the stored columns. Raises
    BindError if the expression reads a computed column."""
    for column in node.find_all(exp.Column):
        if len(column.parts) == 1 and any(column.name.lower() == n.lower() for n in computed):
            what, hint = f"{column.name}, which is computed, too", "write its expression instead"
            if column.name.lower() == name.lower():
                what, hint = "itself", "name stored columns"
            raise binder.error(f"{name} is computed of {what}", column, hint)
    columns = (Column(k, f.name, f.type, f.nullable) for k, f in enumerate(stored))
    scope = Scope(binder, (), tuple(ScopeColumn(None, c.name, c) for c in columns), Env())
    return registry.fold(ExprBinder(binder, scope, None, f"the computed column {name}").bind(node))


def refuse_computed(binder: Binder, node: exp.Expr, computed: Sequence[Computed]) -> None:
    """Raises BindError where a clause about the source's rows names a computed column."""
    if isinstance(node.parent, nodes.OrderedBy | nodes.Watermark):
        return
    if any(c.name.lower() == node.name.lower() for c in computed):
        raise binder.error(
            f"{node.name} is computed, and this clause takes a stored column",
            node,
            hint="ORDERED BY and WATERMARK take computed ones",
        )


def separate(
    binder: Binder,
    node: nodes.CreateStream,
    progress: Sequence[Progress],
    computed: Sequence[Computed],
) -> tuple[tuple[Progress, ...], Progress | None]:
    """The progress of the stored columns, or (then without any of these) of one computed column.
    Raises NotSupportedError for a second progressing time beside a computed one, and for clauses
    about the source's rows beside it."""
    names = {c.name.lower() for c in computed}
    own = [p for p in progress if p.column.lower() in names]
    if not own:
        return tuple(progress), None
    if len(progress) > 1:
        raise binder.unsupported(
            f"a second time with a watermark beside {own[0].column}, which is computed,",
            _another(node, own[0]),
            f"keep {own[0].declared}",
        )
    for key, clause in _OF_SOURCE.items():
        found = node.args.get(key)
        if found:
            raise binder.unsupported(
                f"{clause} where {own[0].column}, the time with the watermark, is computed",
                found[0] if isinstance(found, list) else found,
                "leave it out, or store the time",
            )
    return (), own[0]


def _another(node: nodes.CreateStream, progress: Progress) -> exp.Expr:
    """The first clause about a column other than that of ``progress``."""
    keys = ("ordered_by", "watermark", "punctuate")
    inside = [c for c in node.expressions if isinstance(c, nodes.Watermark)]
    clauses = [*inside, *(c for key in keys for c in node.args.get(key) or ())]
    others = (c for c in clauses if c.this.name.lower() != progress.column.lower())
    return next(others, node)


def is_computed(node: exp.Expr, relation: Relation) -> bool:
    """Whether ``node`` names a computed column of ``relation``."""
    computed = () if relation.stream is None else relation.stream.computed
    return any(c.name.lower() == node.name.lower() for c in computed)


def computed_above(binder: Binder, scan: Scan, below: Logical, node: exp.Expr) -> Project:
    """``below``, the rows of ``scan``, under a Project that adds the stream's computed columns."""
    spec = scan.relation.stream
    assert spec is not None
    stored, names = below.schema, [c.name for c in spec.computed]
    values: list[Expr] = []
    with binder.in_place("stream", scan.relation.name, node):
        for column in spec.computed:
            select = parse_one(f"SELECT {column.text}")
            assert isinstance(select, exp.Select)
            values.append(_value(binder, select.expressions[0], stored, names, column.name))
    own: list[Expr] = [column_of(below, k) for k in range(len(stored))]
    exprs = _in_declared_order(own, spec.computed, values)
    return Project(
        below,
        tuple(exprs),
        tuple(_in_declared_order(stored.names, spec.computed, names)),
        binder.pos(node),
    )
