"""Numbers the rows that windows of ROWS with SLIDE count.

The order of the numbers does not depend on operators, runtimes or morsels: it is the order of
arrival, the order of ORDER BY or, for a join of streams, the order of the pairs' times.

A join operator finds its pairs in any order. The plan therefore sorts the pairs by their time (the
later time of a pair's members, as in an in-order join, in-order paper §2), or by ORDER BY; all
other columns break ties. Rows that are equal in all columns are interchangeable.
"""

from __future__ import annotations

from sqlglot import exp

from cql.dialect.nodes import StreamWindow
from cql.planner.bind.context import Binder
from cql.planner.bind.emit import time_of
from cql.planner.bind.relations.window import Lookup, key_windows
from cql.planner.bind.scope import column_of
from cql.planner.nodes.expr import Column
from cql.planner.nodes.logical import (
    Filter,
    Join,
    Limit,
    Logical,
    Number,
    Project,
    Scan,
    Sort,
    SortKey,
    SubqueryJoin,
    Union,
    Unnest,
    Values,
    Watermark,
)
from cql.planner.nodes.rewrite import replace
from cql.planner.optimize.changelog import is_append_only

CLAUSE = "a window of ROWS with SLIDE"


def numbered(binder: Binder, plan: Logical, node: StreamWindow, find: Lookup) -> Number:
    """``plan`` with the number of each row, or of each window of its key, as its last column.
    Raises BindError if the rows have no order."""
    ordered = _in_order(binder, plan, node)
    return Number(ordered, binder.pos(node), key_windows(binder, node, find))


def _in_order(binder: Binder, plan: Logical, node: exp.Expr) -> Logical:
    if _comes_in_order(plan):
        return plan
    match plan:
        case Sort() if plan.window_end is None:
            return plan if _comes_in_order(plan.input) else _distinguished(plan)
        case Filter() | Project() if not _is_joined(plan):
            return replace(plan, input=_in_order(binder, plan.input, node))
        case Join(kind="inner" | "cross", condition=None):
            raise binder.error(
                f"{CLAUSE} counts rows before WHERE, and here those are all pairs of rows",
                node,
                hint="join by ON, or in a subquery: FROM (SELECT … FROM a, b WHERE …) AS j […]",
            )
        case _ if _is_joined(plan) and is_append_only(plan):
            time = time_of(plan)
            if time is not None:
                key = SortKey(time, False, True)
                sort = Sort(plan, (key,), None, 0, None, binder.pos(node), CLAUSE)
                return _distinguished(sort)
            raise binder.error(
                f"{CLAUSE} counts rows in their order, and the rows of this join have none: no time"
                " of theirs has a watermark",
                node,
                hint="end a subquery with ORDER BY; or declare ORDERED BY or WATERMARK on the"
                " inputs of the join, and select their times",
            )
        case _:
            raise binder.error(
                f"{CLAUSE} counts rows in their order, and the rows of this query have none",
                node,
                hint="end the subquery with ORDER BY ts, a time with a watermark",
            )


def _comes_in_order(plan: Logical) -> bool:
    """Whether the rows of ``plan`` are in the order of arrival, or of a replay."""
    match plan:
        case Scan() | Values():
            return True
        case Filter() | Limit() | Project() | Unnest() | Watermark():
            return _comes_in_order(plan.input)
        case SubqueryJoin():
            return plan.query.is_constant and _comes_in_order(plan.input)
        case Union():
            return all(isinstance(i, Scan) for i in plan.inputs)
        case Join(kind="semi" | "anti"):  # passes each row of the stream at most once, in order
            return plan.looks_up and _comes_in_order(plan.left)
    return False


def _is_joined(plan: Logical) -> bool:
    """Whether ``plan`` is a join under nothing but filters and projections."""
    while isinstance(plan, Filter | Project):
        plan = plan.input
    return isinstance(plan, Join)


def _distinguished(sort: Sort) -> Sort:
    """``sort`` with all other columns as further keys, so that only equal rows tie."""
    known = {key.expr.index for key in sort.keys if isinstance(key.expr, Column)}
    others = (column_of(sort, k) for k in range(len(sort.schema)) if k not in known)
    more = tuple(SortKey(column, False, True) for column in others)
    return replace(sort, keys=(*sort.keys, *more))
