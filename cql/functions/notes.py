"""EXPLAIN's lines about users' functions: how the plan calls each, and why one is not compiled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cql.base.uninterruptible import load_module
from cql.planner.functions.user.aggregates import UserAggregate
from cql.planner.functions.user.operators import UserOperator
from cql.planner.nodes.expr import Call, walk
from cql.planner.nodes.held import expressions_in
from cql.planner.nodes.logical import AggregateCall
from cql.planner.nodes.physical import Physical, ProcessExec
from cql.planner.nodes.physical import walk as walk_plan


def notes(root: Physical) -> tuple[str, ...]:
    """Lines for each user's function that the plan calls, and for each way to compute it."""
    lines = [line for call in _calls(root) for line in _lines(call)]
    lines += [f"operator {own.name}: in Python, once per row" for own in _operators(root)]
    return tuple(dict.fromkeys(lines))


def calls_users(root: Physical) -> bool:
    """Whether the plan calls a user's function."""
    return any(True for _ in _calls(root)) or any(True for _ in _operators(root))


def _operators(root: Physical) -> Iterator[UserOperator]:
    return (node.function for node in walk_plan(root) if isinstance(node, ProcessExec))


def _calls(root: Physical) -> Iterator[Call | AggregateCall]:
    for held in expressions_in(root):
        if isinstance(held, AggregateCall):
            if held.function is not None:
                yield held
        else:
            calls = (e for e in walk(held) if isinstance(e, Call))
            yield from (c for c in calls if c.function is not None)


def _lines(call: Call | AggregateCall) -> Iterator[str]:
    if isinstance(call, Call):
        yield _line(call)
    elif call.function is not None:
        yield from _of_aggregate(call.function)


def _of_aggregate(own: UserAggregate) -> Iterator[str]:
    """The aggregate's lines: one line if all of its functions are compiled."""
    whys = {method: _why_in_python(method) for method in own.methods}
    if not any(whys.values()):
        yield f"aggregate {own.name}: compiled, called from the kernel"
        return
    for method, why in whys.items():
        how = "compiled, called from the kernel"
        yield f"aggregate {method.name}: {how if why is None else f'in Python: {why}'}"


def _line(call: Call) -> str:
    from cql.executor.codegen.expressions.text import table_of

    function = call.function
    assert function is not None
    why = _why_in_python(function)
    if why is None:
        return f"function {function.name}: compiled, called from the kernel"
    if not function.has_text:
        how = "once per row that gets there"
    elif table_of(call) is not None:
        how = "once per distinct text"
    else:
        how = "once per distinct row of a morsel"
    return f"function {function.name}: in Python, {how}: {why}"


def _why_in_python(function: Any) -> str | None:
    """The reason why the function is not compiled; None for a compiled function."""
    why: str | None = load_module("cql.executor.udf.compile").why_in_python(function)
    return why
