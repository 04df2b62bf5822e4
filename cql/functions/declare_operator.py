"""Declaring operators in Python: ``cql.operator``.

    @cql.operator({"start": "timestamp", "louder": "double"}, state={"mean": "float64"})
    def jumps(state, row, emit, factor: float):
        level = np.abs(row.ch0).mean()
        if level > factor * state.mean:
            emit(row.window_start, level / state.mean)
        state.mean += 0.1 * (level - state.mean)

    SELECT * FROM jumps(TABLE audio [ROWS 4096 SLIDE 4096], 3.0)

The state is an object with the declared numbers and arrays as its attributes, all zero at first.
The row is a named tuple. ``emit`` takes the values of one row of the result.
"""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from cql.base import types as t
from cql.base.foreign import object_text
from cql.base.types import DataType
from cql.errors import BindError
from cql.functions.checks import (
    Type,
    annotated,
    check_spelling,
    checked_name,
    data_type,
    signature,
)

if TYPE_CHECKING:
    from cql.planner.functions.user.operators import StateField, UserOperator

#: The type of a number or array of the state: ``"float64"``, ``("float64", 16)``.
State: TypeAlias = "str | type | tuple[Any, ...]"
_USAGE = '@session.operator({"peak": "double"}, state={"seen": "int64", "last": ("float64", 16)})'
_SHAPE = "a number of the state is int64 or float64, an array is (float64, 16)"
#: What the function gets in front of its constants.
_FIRST = ("state", "row", "emit")
#: The most bytes of one array.
_MOST = 1 << 40


def operator(
    returns: Mapping[str, Type],
    *,
    state: Mapping[str, State] | None = None,
    args: Sequence[Type] | None = None,
    name: str | None = None,
    finish: Callable[..., None] | None = None,
) -> Callable[[Any], UserOperator]:
    """Declares a Python function as an operator over the rows of a stream; the decorated name stays
    callable.

    The engine calls ``function(state, row, emit, …)`` for each row in turn. ``row`` is a named
    tuple of the columns; a segment of a signal is a read-only numpy array, which shares the samples
    and may not be kept (``copy()`` it). ``emit(value, …)`` or ``emit(name=value, …)`` adds a row to
    the result; a value that is missing is NULL.

    ``returns`` has the SQL types of the result's columns; ``"signal<double>"`` is a segment that
    begins when the row's first one does. ``state`` has the numpy types of the
    state's numbers (``"int64"``) and arrays (``("float64", 16)``, ``("int32", (4, 16))``): these
    are what checkpoints save, and the function keeps nothing elsewhere. ``args`` has the types of
    the constants behind the table, which otherwise come from the annotations.

    ``finish``: at the end of a finite input, the engine calls ``finish(state, emit, …)`` once for
    each key that has a state. Raises BindError for an invalid declaration."""
    if not isinstance(returns, Mapping):
        raise BindError(
            f"an operator says what it returns, and {object_text(returns)} is no mapping of names"
            " to types",
            hint=f"as in {_USAGE}",
        )

    def decorate(made: Any) -> UserOperator:
        return declare_operator(made, name, returns, state or {}, args, finish)

    return decorate


def declare_operator(
    made: Any,
    name: str | None,
    returns: Mapping[str, Type],
    state: Mapping[str, State],
    args: Sequence[Type] | None,
    finish: Callable[..., Any] | None = None,
) -> UserOperator:
    """The declaration of the function ``made``; see ``operator``."""
    from cql.planner.functions.user.operators import UserOperator

    if not callable(made) or inspect.isclass(made):
        raise BindError(f"an operator is a function, not {object_text(made)}", hint=_USAGE)
    called = checked_name(name if name is not None else getattr(made, "__name__", ""))
    _check_plain(called, made)
    names, annotations = signature(called, made, None if args is None else 3 + len(args))
    if len(names) < len(_FIRST):
        raise BindError(
            f"{called} takes {len(names)} argument{'' if len(names) == 1 else 's'}, and an operator"
            " is called with three: the state, a row, and emit",
            hint=f"def {called}(state, row, emit): …",
        )
    behind = names[len(_FIRST) :]
    if args is None:
        kinds = [annotated(called, f"argument {n}", annotations.get(n)) for n in behind]
    else:
        kinds = [data_type(a, f"argument {k} of {called}") for k, a in enumerate(args, 2)]
    check_spelling(called, len(names))
    columns = _returned(called, returns)
    if finish is not None:
        _check_finish(called, finish, behind)
        _check_rows_of_the_end(called, columns)
    return UserOperator(
        called,
        made,
        tuple(zip(behind, kinds, strict=True)),
        columns,
        tuple(_field(called, key, given) for key, given in state.items()),
        (inspect.getdoc(made) or "").strip().partition("\n")[0] or "An operator of yours.",
        finish=finish,
    )


def renamed(made: UserOperator, name: str) -> UserOperator:
    """The same operator under another name."""
    return replace(made, name=checked_name(name))


def _check_plain(called: str, made: Any) -> None:
    """Raises BindError for a function that does not end before its first result."""
    if inspect.iscoroutinefunction(made) or inspect.isgeneratorfunction(made):
        raise BindError(
            f"{called} is a coroutine or a generator, and an operator is neither",
            hint="emit(value, …) adds a row to the result",
        )


def _check_finish(called: str, finish: Any, constants: Sequence[str]) -> None:
    """Raises BindError for what cannot be called at the end of the input."""
    name, usage = f"{called}.finish", f"def finish({', '.join(['state', 'emit', *constants])}): …"
    if not callable(finish) or inspect.isclass(finish):
        raise BindError(f"{name} is a function, not {object_text(finish)}", hint=usage)
    _check_plain(name, finish)
    try:
        inspect.signature(finish).bind(*range(2 + len(constants)))
    except TypeError:
        raise BindError(
            f"{name} is called with the state, emit, and the constants of {called}", hint=usage
        ) from None
    except ValueError:  # some C functions have no signature
        return


def _check_rows_of_the_end(called: str, columns: Sequence[tuple[str, DataType]]) -> None:
    """Raises BindError if the rows of the end would have segments."""
    for name, kind in columns:
        if kind.kind is t.Kind.SIGNAL:
            raise BindError(
                f"{called}.finish cannot emit {name}, a {kind}: behind the last row nothing says"
                " when a segment begins",
                hint="return an array, or leave finish out",
            )


def _returned(called: str, returns: Mapping[str, Type]) -> tuple[tuple[str, DataType], ...]:
    """The columns of the result."""
    if not returns:
        raise BindError(f"{called} returns no column", hint=f"as in {_USAGE}")
    found = dict[str, tuple[str, DataType]]()
    for name, given in returns.items():
        _check_word(called, name, "a column")
        kind = data_type(given, f"the column {name} of {called}", arrays=True)
        if kind == t.NULL:
            raise BindError(f"{called}: void is no type of a column")
        if name.lower() in found:
            raise BindError(f"{called} returns two columns {name}")
        found[name.lower()] = name, kind
    return tuple(found.values())


def _field(called: str, name: str, given: State) -> StateField:
    """A number or an array of the state."""
    import numpy as np

    from cql.planner.functions.user.operators import StateField

    _check_word(called, name, "a part of the state")
    if name == "clear":
        raise BindError(
            f"clear is no name of a part of the state of {called}: state.clear() forgets the state"
        )
    kind, shape = given if isinstance(given, tuple) and len(given) == 2 else (given, ())
    sizes = shape if isinstance(shape, tuple) else (shape,)
    try:
        dtype = np.dtype(kind)
        whole = all(isinstance(n, int) and n > 0 for n in sizes)
    except TypeError:
        whole = False
    if not whole or dtype.kind not in "biufc" or isinstance(kind, np.ndarray):
        raise BindError(
            f"the state {name} of {called} is no number and no array of numbers: {given!r:.60}",
            hint=_SHAPE,
        )
    field = StateField(name, dtype.name, sizes)
    if field.size * dtype.itemsize > _MOST:
        raise BindError(f"the state {name} of {called} takes more than a terabyte")
    return field


def _check_word(called: str, name: object, what: str) -> None:
    """Raises BindError for what cannot be the name of an attribute or of an argument."""
    if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
        raise BindError(f"{name!r:.60} is no name of {what} of {called}", hint=f"as in {_USAGE}")
    if name.startswith("_"):
        raise BindError(f"{name} is no name of {what} of {called}: it begins with _")
