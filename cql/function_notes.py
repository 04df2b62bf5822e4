"""EXPLAIN's lines about the functions of a user: how each is called, and why not compiled."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from cql.planner.expr import Call, Case, Cast, Column, Literal, walk
from cql.planner.logical import AggregateCall, SortKey
from cql.planner.physical import Physical, inputs
from cql.planner.user_functions import UserFunction


def notes(root: Physical) -> tuple[str, ...]:
    """A line for each function of the user's that the plan calls."""
    return tuple(_line(function) for function in dict.fromkeys(_functions(root)))


def _functions(node: Physical) -> Iterator[UserFunction]:
    for field in dataclasses.fields(node):
        yield from _in(getattr(node, field.name))
    for child in inputs(node):
        yield from _functions(child)


def _in(value: Any) -> Iterator[UserFunction]:
    match value:
        case Column() | Literal() | Call() | Case() | Cast():
            calls = (e for e in walk(value) if isinstance(e, Call))
            yield from (c.function for c in calls if c.function is not None)
        case AggregateCall():
            yield from _in((*value.args, value.where))
        case SortKey():
            yield from _in(value.expr)
        case tuple():
            for part in value:
                yield from _in(part)


def _line(function: UserFunction) -> str:
    from cql.executor.user_code import why_in_python

    why = why_in_python(function)
    if why is None:
        return f"function {function.name}: compiled, called from the kernel"
    if not function.has_text:
        how = "once per row that gets there"
    elif [kind.is_text for kind in function.types] == [True] and not function.sees_null:
        how = "once per distinct text"
    else:
        how = "once per distinct row of a morsel"
    return f"function {function.name}: in Python, {how}: {why}"
