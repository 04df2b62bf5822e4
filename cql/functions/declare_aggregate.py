"""Declaring aggregate functions in Python: ``cql.aggregate``.

    @cql.aggregate
    class harmonic_mean:
        def init():
            return 0, 0.0

        def update(state, x: float):
            n, total = state
            return n + 1, total + 1 / x

        def merge(a, b):
            return a[0] + b[0], a[1] + b[1]

        def final(state) -> float:
            n, total = state
            return n / total if n else None

The class is only a namespace of functions. The engine makes no instance, so no function takes
``self``. The state is a tuple of integers, floats and booleans, with the types of ``init()``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from cql.base import types as t
from cql.base.foreign import object_text
from cql.base.reentrancy import OneAtATime
from cql.base.types import DataType
from cql.errors import BindError
from cql.functions.checks import (
    Type,
    annotated,
    check_null_handling,
    check_spelling,
    checked_name,
    data_type,
    signature,
)

if TYPE_CHECKING:
    from cql.planner.functions.user.aggregates import UserAggregate, UserMethod
    from cql.planner.nodes.expr import Value

_NEEDED = ("init", "update", "final")
_ROLES = (*_NEEDED, "merge", "retract")
_USAGE = "a class with init(), update(state, x, …), final(state), merge(a, b), retract(state, x, …)"


def aggregate(
    returns: Type | None = None,
    *,
    args: Sequence[Type] | None = None,
    name: str | None = None,
    null_handling: str = "default",
    parallel: bool | None = None,
) -> Any:
    """Declares a class of Python functions as an SQL aggregate.

    ``init()`` gives the state without rows, ``update(state, x, …)`` the state after one more row,
    ``final(state)`` the result (None is NULL). ``merge(a, b)`` gives the state of two parts of a
    group; panes, two-stacks and sessions need it. ``retract(state, x, …)`` undoes an update;
    relations whose rows leave need it. Rows arrive in any order.

    For types and names see ``cql.function``; missing types come from the annotations of ``update``
    and ``final``. ``null_handling``: "default" leaves out rows with a NULL argument; "call" passes
    None. ``parallel=False`` forbids concurrent calls. Raises BindError for an invalid
    declaration."""
    if is_definition(returns):
        return declare_aggregate(returns, name, args, None, null_handling, parallel)

    def decorate(made: Any) -> UserAggregate:
        return declare_aggregate(made, name, args, returns, null_handling, parallel)

    return decorate


def is_definition(made: object) -> bool:
    """Whether ``made`` is an aggregate, declared or not."""
    from cql.planner.functions.user.aggregates import UserAggregate

    return type(made) is UserAggregate or (
        issubclass(type(made), type) and any(hasattr(made, role) for role in ("update", "final"))
    )


def declare_aggregate(
    made: Any,
    name: str | None,
    args: Sequence[Type] | None,
    returns: Type | None,
    null_handling: str,
    parallel: bool | None,
) -> UserAggregate:
    """The declaration of the class ``made``; see ``aggregate``."""
    from cql.planner.functions.user.aggregates import UserAggregate, UserMethod

    if isinstance(made, UserAggregate):
        made = made.definition
    if not inspect.isclass(made):
        raise BindError(f"an aggregate is a class, not {made!r:.60}", hint=_USAGE)
    label = checked_name(name if name is not None else made.__name__)
    check_null_handling(null_handling)
    functions = {role: _function(label, made, role) for role in _ROLES}
    for role in _NEEDED:
        if functions[role] is None:
            raise BindError(f"{label} has no {role}", hint=_USAGE)
    state, start = _state(label, functions["init"])
    names, kinds = _arguments(label, functions["update"], args)
    result = _result(label, functions["final"], returns)
    for kind in (*kinds, result):
        if kind.is_text or kind in (t.NULL,):
            raise BindError(
                f"{label}: an aggregate takes and gives numbers, booleans and times, no {kind}",
                hint="hand over a number that says what matters of it: length(x), hash(x), a CASE",
            )
    sees_null, lock = null_handling == "call", OneAtATime() if parallel is False else None

    def method(role: str, shape: Any, results: tuple[DataType, ...], *, row: bool) -> Any:
        function = functions[role]
        if function is None:
            return None
        if role != "update":
            _check_count(f"{label}.{role}", function, len(shape))
        tuple_ = role != "final"
        nulls = row and sees_null
        return UserMethod(f"{label}.{role}", function, shape, results, tuple_, nulls, lock=lock)

    update: UserMethod = method("update", (state, *kinds), state, row=True)
    final: UserMethod = method("final", (state,), (result,), row=False)
    doc = (inspect.getdoc(made) or "").strip().partition("\n")[0]
    declared = UserAggregate(
        label,
        tuple(zip(names, kinds, strict=True)),
        result,
        state,
        start,
        update,
        method("merge", (state, state), state, row=False),
        method("retract", (state, *kinds), state, row=True),
        final,
        sees_null,
        doc or "An aggregate of yours.",
        made,
    )
    check_spelling(label, len(names))
    return declared


def _function(label: str, made: type, role: str) -> Callable[..., Any] | None:
    """The function called ``role`` in the class, unbound."""
    found = inspect.getattr_static(made, role, None)
    if found is None:
        return None
    if isinstance(found, staticmethod):
        found = found.__func__
    if isinstance(found, classmethod) or not callable(found):
        raise BindError(f"{label}.{role} is no function", hint=_USAGE)
    if inspect.iscoroutinefunction(found) or inspect.isgeneratorfunction(found):
        raise BindError(f"{label}.{role} gives no value: it is a coroutine or a generator")
    first = next(iter(inspect.signature(found).parameters), None)
    if first == "self":
        raise BindError(f"{label}.{role} takes self, and there is none", hint=f"write {_USAGE}")
    function: Callable[..., Any] = found
    return function


def _state(
    label: str, init: Callable[..., Any] | None
) -> tuple[tuple[DataType, ...], tuple[Value, ...]]:
    """The types and values of the initial state, in storage form."""
    from cql.planner.functions.user.aggregates import parts
    from cql.planner.functions.user.functions import called
    from cql.planner.interpret.error import EvaluationError
    from cql.planner.interpret.python_values import from_python

    assert init is not None
    _check_count(f"{label}.init", init, 0)
    try:
        made = called(f"{label}.init", init)
        state = parts(made)
        if not isinstance(made, tuple) or not state:
            raise BindError(
                f"{label}.init returned {object_text(made)}, not a tuple",
                hint="a state is a tuple of integers, floats and booleans: return 0, 0.0",
            )
        kinds = tuple(_kind(label, value) for value in state)
        what = f"{label}.init returned a state with"
        return kinds, tuple(from_python(v, k, what) for v, k in zip(state, kinds, strict=True))
    except EvaluationError as error:
        raise BindError(error.message) from None


def _kind(label: str, value: object) -> DataType:
    if isinstance(value, bool):
        return t.BOOLEAN
    if isinstance(value, int):
        return t.BIGINT
    if isinstance(value, float):
        return t.DOUBLE
    raise BindError(
        f"{label}.init returned a state with {object_text(value)}",
        hint="a state is a tuple of integers, floats and booleans: return 0, 0.0",
    )


def _arguments(
    label: str, update: Callable[..., Any] | None, args: Sequence[Type] | None
) -> tuple[list[str], list[DataType]]:
    """The names and types of the arguments that SQL passes: all of ``update`` but the state."""

    assert update is not None
    count = None if args is None else len(args) + 1
    names, annotations = signature(f"{label}.update", update, count)
    if not names:
        raise BindError(f"{label}.update takes no state", hint=_USAGE)
    names = names[1:]
    if args is not None:
        return names, [data_type(a, f"argument {k} of {label}") for k, a in enumerate(args, 1)]
    return names, [annotated(label, f"argument {n}", annotations.get(n)) for n in names]


def _result(label: str, final: Callable[..., Any] | None, returns: Type | None) -> DataType:

    assert final is not None
    if returns is not None:
        return data_type(returns, f"the result of {label}")
    _, annotations = signature(f"{label}.final", final, 1)
    return annotated(label, "the result", annotations.get("return"))


def _check_count(label: str, function: Callable[..., Any], count: int) -> None:
    """Raises BindError unless ``function`` can be called with ``count`` arguments."""
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError as error:
        raise BindError(
            f"{label} cannot be called with {count} argument{'' if count == 1 else 's'}: {error}",
            hint=_USAGE,
        ) from None
