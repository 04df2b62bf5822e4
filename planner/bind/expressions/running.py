"""Calls of running functions in a select list: ``sta_lta(z, 50, 1000)``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from cql.base.types import DOUBLE, array
from cql.planner.bind.expressions.calls import function_arguments, function_name, printed
from cql.planner.bind.scope import OUTER, Extra
from cql.planner.functions import running
from cql.planner.functions.coercion import cast
from cql.planner.nodes.expr import Call, Expr, columns_of

if TYPE_CHECKING:
    from cql.planner.bind.expressions.expression import ExprBinder


def bound(binder: ExprBinder, node: exp.Func) -> Expr:
    """The column of a running function. Raises NotSupportedError outside of a select list."""
    name, pos, row = function_name(node), binder.binder.pos(node), binder.row
    args = [_argument(binder, a) for a in function_arguments(node)]
    if running.is_of_segment(name, args):
        return running.of_segment(name, args, pos)
    if binder.clause != "SELECT" or row is None:
        raise running.refused(name, f"in {binder.clause}", pos)
    call, type_ = running.resolve(name, args, pos)
    if any(c >= OUTER for c in columns_of(call.value)):
        raise running.refused(name, "of a column of the row around its query", pos)
    extra = Extra(f"the running function {name}", printed(node), type_, running=call, pos=pos)
    return row.add_running(extra)


def _argument(binder: ExprBinder, node: exp.Expr) -> Expr:
    """An argument. The elements of an array are doubles at once: their common type may be a decimal
    that does not have their digits."""
    if not isinstance(node, exp.Array):
        return binder.bind(node)
    elements = (binder.bind(e) for e in node.expressions)
    doubles = tuple(cast(e, DOUBLE, e.pos, implicit=True) for e in elements)
    return Call("array", doubles, array(DOUBLE), False, binder.binder.pos(node))
