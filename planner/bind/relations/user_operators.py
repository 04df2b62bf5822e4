"""Operators of the user in FROM: ``leak_detect(TABLE pipes, 3.0) AS leaks``."""

from __future__ import annotations

from collections.abc import Collection

from cql.dialect.nodes import TableFunction
from cql.errors import did_you_mean
from cql.planner.bind.context import Binder, Bound, Env
from cql.planner.bind.expressions.expression import ExprBinder
from cql.planner.bind.relations.running import unordered
from cql.planner.bind.scope import Scope
from cql.planner.functions.user.operators import UserOperator
from cql.planner.nodes.logical import Process


def processed(binder: Binder, below: Bound, node: TableFunction, env: Env) -> Bound:
    """The rows that the operator ``node`` emits for those of ``below``: the columns with a
    watermark, and behind them what the operator returns.

    Raises BindError for an unknown operator or wrong arguments, NotSupportedError for rows that
    have no defined order."""
    function = _operator(binder, node)
    plan, width = below.plan, len(below.plan.schema)
    over = unordered(plan)
    if over is not None:
        raise binder.unsupported(
            f"the operator {function.name} over {over}",
            node,
            "it runs over the rows of one stream, or of windows with SLIDE, in the order in which"
            " they come; FROM (SELECT … ORDER BY …) puts those of a table in order",
        )
    bind = ExprBinder(binder, Scope(binder, (), (), env), None, f"the arguments of {function.name}")
    arguments = function.resolve([bind.bind(a) for a in node.expressions], binder.pos(node))
    live = sorted(plan.progressing)
    shown = [c for c in live if c < below.width]
    hidden = [c for c in live if c >= below.width]
    _check_names(binder, node, function, {plan.schema[c].name.lower() for c in live})
    columns = (*shown, *range(width, width + len(function.returns)), *hidden)
    given = tuple(range(below.width))
    names = plan.schema.names[: below.width]
    made = Process(plan, function, arguments, given, names, columns, binder.pos(node))
    return Bound(made, len(hidden))


def _operator(binder: Binder, node: TableFunction) -> UserOperator:
    name = node.this.name
    found = binder.context.operator(name)
    if found is not None:
        return found
    own = binder.context.functions
    if name.lower() in own:
        raise binder.error(
            f"{name} is a function of values, and no operator over a table",
            node,
            hint="SELECT it of the rows; @session.operator declares an operator",
        )
    if name.lower() == "gaps":
        raise binder.error("GAPS takes the name of a signal", node, hint="FROM GAPS(audio) AS g")
    known = [f.name for f in own.values() if isinstance(f, UserOperator)]
    raise binder.error(
        f"unknown operator {name}",
        node,
        hint=did_you_mean(name, known, what="there are")
        or "@session.operator declares one in Python",
    )


def _check_names(
    binder: Binder, node: TableFunction, function: UserOperator, times: Collection[str]
) -> None:
    """Raises BindError if the operator returns a column with the name of a time."""
    for name, _ in function.returns:
        if name.lower() in times:
            raise binder.error(
                f"{function.name} returns {name}, and a column with a watermark has that name: it"
                " is in the result",
                node,
                hint="rename one of them",
            )
