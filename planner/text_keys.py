"""GROUP BY the text of a time: ``date_format(ts, 'yyyy-MM-dd')`` says as much as
``date_trunc('day', ts)``, which rises with ``ts``, and text does not.

So where the groups of an aggregate would stay open, and one of its keys has a text of its own for
each value of a time that rises, this time is a further key. It divides no group, punctuation that
passes it closes them (out-of-order paper §5.2), and nothing above the aggregate sees it.
"""

from __future__ import annotations

from cql.planner.datetime_patterns import unit_of
from cql.planner.expr import Call, Cast, Column, Expr, Literal, columns_of, substitute
from cql.planner.functions import monotone
from cql.planner.logical import Aggregate, Filter, Logical, Project
from cql.planner.properties import closing_key, closing_pair, progressing
from cql.planner.trees import replace
from cql.types import STRING, TIMESTAMP

#: The key, and the columns below that bring it.
_NAME = "_closing"


def closed_by_text(node: Aggregate) -> Logical:
    """``node``, with such a key where it needs one: under a Project that leaves it out."""
    if node.window is not None or closing_key(node) is not None or closing_pair(node) is not None:
        return node
    for key in node.keys:
        found = _beside(node.input, key)
        if found is None:
            continue
        child, time = found
        at = len(node.keys)
        names = (*node.names[:at], _NAME, *node.names[at:])
        made = replace(node, input=child, keys=(*node.keys, time), names=names)
        if closing_key(made) is None:
            continue
        fields = enumerate(made.schema)
        exprs = [Column(k, f.name, f.type, f.nullable) for k, f in fields if k != at]
        return Project(made, tuple(exprs), node.names, node.pos)
    return node


def _beside(node: Logical, key: Expr) -> tuple[Logical, Expr] | None:
    """A time over ``node`` that rises and has the text ``key``, which is an expression over
    ``node`` as well; ``node`` may get another column for it, behind its own."""
    time = _time_of(key)
    if time is not None and any(monotone(time, c) for c in progressing(node)):
        return node, time
    match node:
        case Project():
            found = _beside(node.input, substitute(key, node.exprs))
            if found is None:
                return None
            child, time = found
            exprs, names = (*node.exprs, time), (*node.names, _NAME)
            return replace(node, input=child, exprs=exprs, names=names), _last(node, time)
        case Filter():
            found = _beside(node.input, key)
            if found is None:
                return None
            child, time = found
            return replace(node, input=child), time
        case _:
            return None


def _last(node: Logical, time: Expr) -> Column:
    return Column(len(node.schema), _NAME, time.type, time.nullable)


def _time_of(key: Expr) -> Expr | None:
    """What ``key`` is the text of, each value having one of its own."""
    match key:
        case Cast(arg=arg) if key.type == STRING and arg.type.can_progress and columns_of(arg):
            return arg
        case Call(fn="date_format", args=(time, Literal(value=str(pattern)))):
            unit = unit_of(pattern)
            if unit is None:
                return None
            return Call("date_trunc", (Literal(unit, STRING), time), TIMESTAMP, time.nullable)
        case _:
            return None
