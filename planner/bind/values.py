"""``VALUES (1, 'a'), (2, 'b')``: constant rows in the query's text."""

from __future__ import annotations

from sqlglot import exp

from cql.base.model import Field, Schema
from cql.planner.bind.context import Binder, Bound, Env
from cql.planner.bind.expressions.expression import ExprBinder
from cql.planner.bind.scope import Scope
from cql.planner.functions import registry
from cql.planner.interpret.error import EvaluationError
from cql.planner.interpret.interpreter import evaluate
from cql.planner.nodes.expr import Expr, Literal
from cql.planner.nodes.logical import Values

#: The most rows of VALUES; more rows belong into a table.
MOST_ROWS = 10_000


def bind_values(binder: Binder, node: exp.Values, env: Env) -> Bound:
    """The rows, each column cast to the common type of its values; the columns are col1, col2, …"""
    rows = node.expressions
    if len(rows) > MOST_ROWS:
        raise binder.error(
            f"VALUES has {len(rows):,} rows, more than {MOST_ROWS:,}",
            rows[MOST_ROWS],
            hint="read them from a file or an Arrow table: CREATE STREAM … USING csv",
        )
    scope = ExprBinder(binder, Scope(binder, (), (), env.alone()), None, "VALUES")
    width = len(_items(rows[0]))
    if width == 0:
        raise binder.error("a row of VALUES needs a value", node)
    bound: list[list[Expr]] = [[] for _ in range(width)]
    for row in rows:
        items = _items(row)
        if len(items) != width:
            count = f"{len(items)} value{'' if len(items) == 1 else 's'}"
            raise binder.error(f"this row has {count}, the first has {width}", row)
        for column, item in zip(bound, items, strict=True):
            column.append(scope.bind(item))
    columns = [
        [_constant(binder, value, row) for value, row in zip(values, rows, strict=True)]
        for values in (
            registry.unify(column, binder.pos(node), f"column {k + 1} of VALUES")
            for k, column in enumerate(bound)
        )
    ]
    fields = (
        Field(f"col{k + 1}", values[0].type, any(v.nullable for v in values))
        for k, values in enumerate(columns)
    )
    return Bound(Values(Schema(tuple(fields)), tuple(zip(*columns, strict=True)), binder.pos(node)))


def _items(row: exp.Expr) -> list[exp.Expr]:
    return list(row.expressions) if isinstance(row, exp.Tuple) else [row]


def _constant(binder: Binder, expr: Expr, row: exp.Expr) -> Literal:
    try:
        return Literal(evaluate(expr, ()), expr.type, expr.pos)
    except EvaluationError as error:
        raise binder.error(error.message, row) from error
