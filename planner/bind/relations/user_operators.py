"""Operators of the user in FROM: ``leak_detect(TABLE pipes, 3.0) AS leaks``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from cql.base.types import Kind
from cql.dialect.nodes import TableFunction
from cql.errors import did_you_mean
from cql.planner.bind.context import Binder, Bound, Env
from cql.planner.bind.expressions.expression import ExprBinder
from cql.planner.bind.relations.running import unordered
from cql.planner.bind.scope import Scope
from cql.planner.functions.user.operators import UserOperator
from cql.planner.nodes.logical import Logical, Process
from cql.planner.nodes.logical.running import first_segment


def processed(
    binder: Binder,
    below: Bound,
    node: TableFunction,
    keys: Sequence[tuple[exp.Expr, int]],
    env: Env,
) -> Bound:
    """The rows that the operator ``node`` emits for those of ``below``: the columns ``keys`` of
    PARTITION BY, the columns with a watermark, and behind them what the operator returns.

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
    by = _partition(binder, below, function, keys)
    live = [c for c in sorted(plan.progressing) if c not in by]
    shown = [*by, *(c for c in live if c < below.width)]
    hidden = [c for c in live if c >= below.width]
    taken = dict.fromkeys((plan.schema[c].name.lower() for c in by), "a column of PARTITION BY")
    taken |= {plan.schema[c].name.lower(): "a column with a watermark" for c in live}
    _check_names(binder, node, function, taken)
    columns = (*shown, *range(width, width + len(function.returns)), *hidden)
    given = tuple(range(below.width))
    _check_segments(binder, node, function, plan, given)
    names = plan.schema.names[: below.width]
    made = Process(plan, function, arguments, given, names, columns, by, binder.pos(node))
    return Bound(made, len(hidden))


def _partition(
    binder: Binder, below: Bound, function: UserOperator, keys: Sequence[tuple[exp.Expr, int]]
) -> tuple[int, ...]:
    """The columns of PARTITION BY, each once. Raises BindError for a column that the table does not
    show, NotSupportedError for segments of a signal, and for a watermark that the rows of the end,
    with values of old rows, would break."""
    for name, place in keys:
        if place >= below.width:
            raise binder.error(
                f"{name.name} is no column that the table shows",
                name,
                hint="TABLE (SELECT …) can give it a name",
            )
        if below.plan.schema[place].type.kind is Kind.SIGNAL:
            raise binder.unsupported(
                f"PARTITION BY {name.name}, a segment of a signal,", name, "name a single value"
            )
        if function.finish is not None and place in below.plan.progressing:
            raise binder.unsupported(
                f"PARTITION BY {name.name}, a column with a watermark, for an operator that has a"
                " finish function,",
                name,
                "the rows of the end have the greatest value of such a column; leave it out",
            )
    return tuple(dict.fromkeys(place for _, place in keys))


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


def _check_segments(
    binder: Binder,
    node: TableFunction,
    function: UserOperator,
    plan: Logical,
    given: tuple[int, ...],
) -> None:
    """Raises BindError if the operator returns segments, and the rows have none that say when they
    are."""
    for name, kind in function.returns:
        if kind.kind is Kind.SIGNAL and first_segment(plan.schema, given) is None:
            raise binder.error(
                f"{function.name} returns {name}, a {kind}, and the rows of its table have no"
                " segment that says when it begins",
                node,
                f"FROM {function.name}(TABLE audio [ROWS 4096 SLIDE 4096])",
            )


def _check_names(
    binder: Binder, node: TableFunction, function: UserOperator, taken: Mapping[str, str]
) -> None:
    """Raises BindError if the operator returns a column with a name that is ``taken``; the value
    says by what."""
    for name, _ in function.returns:
        what = taken.get(name.lower())
        if what is not None:
            raise binder.error(
                f"{function.name} returns {name}, and {what} has that name: it is in the result",
                node,
                hint="rename one of them",
            )
