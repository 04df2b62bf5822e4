"""EXPLAIN's lines about the functions of a user: how each is called, and why not compiled."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from cql.planner.expr import Call, Case, Cast, Column, Literal, walk
from cql.planner.logical import AggregateCall, SortKey
from cql.planner.physical import Physical, inputs


def notes(root: Physical) -> tuple[str, ...]:
    """A line for each function of the user's that the plan calls, and each way to compute it."""
    return tuple(dict.fromkeys(_line(call) for call in _calls(root)))


def _calls(node: Physical) -> Iterator[Call]:
    for field in dataclasses.fields(node):
        yield from _in(getattr(node, field.name))
    for child in inputs(node):
        yield from _calls(child)


def _in(value: Any) -> Iterator[Call]:
    match value:
        case Column() | Literal() | Call() | Case() | Cast():
            calls = (e for e in walk(value) if isinstance(e, Call))
            yield from (c for c in calls if c.function is not None)
        case AggregateCall():
            yield from _in((*value.args, value.where))
        case SortKey():
            yield from _in(value.expr)
        case tuple():
            for part in value:
                yield from _in(part)


def _line(call: Call) -> str:
    from cql.executor.expression_text import table_of
    from cql.executor.user_code import why_in_python

    function = call.function
    assert function is not None
    why = why_in_python(function)
    if why is None:
        return f"function {function.name}: compiled, called from the kernel"
    if not function.has_text:
        how = "once per row that gets there"
    elif table_of(call) is not None:
        how = "once per distinct text"
    else:
        how = "once per distinct row of a morsel"
    return f"function {function.name}: in Python, {how}: {why}"
