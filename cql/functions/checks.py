"""Checks the declaration of a function: its name, its types, its NULL handling."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from types import UnionType
from typing import Any, TypeAlias

from cql.base import types as t
from cql.base.types import DataType, Kind, signal
from cql.errors import BindError, CqlError

#: A type: an SQL type's name, a Python type, or a DataType.
Type: TypeAlias = "str | type | DataType"

_PYTHON_TYPES: dict[str, DataType] = {
    "bool": t.BOOLEAN,
    "int": t.BIGINT,
    "float": t.DOUBLE,
    "str": t.STRING,
    "bytes": t.BINARY,
    "date": t.DATE,
    "datetime": t.TIMESTAMP,
    "timedelta": t.INTERVAL,
    "bool_": t.BOOLEAN,
    "int8": t.TINYINT,
    "int16": t.SMALLINT,
    "int32": t.INT,
    "int64": t.BIGINT,
    "float32": t.FLOAT,
    "float64": t.DOUBLE,
}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: The text of a type, with that of its samples.
_SEGMENTS = re.compile(r"\s*signal\s*<(.*)>\s*", re.IGNORECASE)
USAGE = 'as in @cql.function("double", args=["bigint", "double"])'


_HELP_NULL = "'default': a NULL argument gives NULL without a call; 'call' hands None over"


def check_null_handling(given: str) -> None:
    if given not in ("default", "call"):
        raise BindError(f"null_handling is 'default' or 'call', not {given!r:.40}", hint=_HELP_NULL)


def checked_name(name: str) -> str:
    """Returns ``name`` if it is valid for a function; raises BindError otherwise."""
    from cql.planner.bind.expressions.expression import is_reserved
    from cql.planner.functions.aggregates import is_aggregate
    from cql.planner.functions.registry import is_taken

    if _NAME.fullmatch(name) is None:
        shown = "a lambda" if name == "<lambda>" else f"{name[:60]!r}"
        raise BindError(f"{shown} is no name of a function", hint="give it one: name='my_function'")
    if is_taken(name) or is_aggregate(name) or is_reserved(name):
        raise BindError(
            f"{name} is a function of the engine", hint=f"choose another: name='my_{name.lower()}'"
        )
    return name


def check_spelling(name: str, count: int) -> None:
    """Refuses a name that the grammar does not parse as a call of a function (mostly keywords)."""
    from sqlglot import exp

    from cql.dialect import parse_one

    inner = ", ".join(f"a{k}" for k in range(count))
    try:
        (found,) = parse_one(f"SELECT {name}({inner})").expressions
        plain = isinstance(found, exp.Anonymous) and found.name.lower() == name.lower()
    except CqlError:
        plain = False
    if not plain:
        raise BindError(
            f"{name} is a word of the language", hint=f"choose another: name='my_{name.lower()}'"
        )


def signature(
    name: str, made: Callable[..., Any], count: int | None
) -> tuple[list[str], Mapping[str, Any]]:
    """The names of the parameters that SQL passes, and the annotations; ``count`` is the number of
    given types."""
    try:
        parameters = list(inspect.signature(made).parameters.values())
    except Exception:  # some C functions have no signature, and users' objects may raise
        parameters = []
        if count is None:
            raise BindError(
                f"the arguments of {name} are not known", hint=f"give their types, {USAGE}"
            ) from None
        return [f"a{k}" for k in range(1, count + 1)], {}
    plain = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    rest = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    needed = [p for p in plain if p.default is p.empty]
    if count is None:
        if rest:
            raise BindError(f"{name} takes any number of arguments", hint=f"give types, {USAGE}")
        taken = [p for p in plain if p.default is p.empty or p.annotation is not p.empty]
        count = len(taken)
    names = [p.name for p in plain[:count]]
    names += [f"a{k}" for k in range(len(names) + 1, count + 1)]
    keyword = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    if keyword:
        raise BindError(f"{name} needs {keyword[0]} by keyword; SQL passes arguments by position")
    if count < len(needed) or (count > len(plain) and not rest):
        raise BindError(
            f"{name} takes {len(plain)} argument{'' if len(plain) == 1 else 's'},"
            f" and {count} type{' is' if count == 1 else 's are'} given"
        )
    return names, _annotations(made)


def _annotations(made: Callable[..., Any]) -> Mapping[str, Any]:
    plain: Any = made if inspect.isroutine(made) else type(made).__call__
    try:
        return typing.get_type_hints(plain)
    except Exception:  # evaluating an annotation such as "decimal(10,2)" may raise anything
        return dict(getattr(plain, "__annotations__", {}))


def annotated(name: str, what: str, annotation: Any) -> DataType:
    if annotation is None:
        raise BindError(f"the type of {what} of {name} is not known", hint=f"give types, {USAGE}")
    if typing.get_origin(annotation) in (typing.Union, UnionType):
        inner = [a for a in typing.get_args(annotation) if a is not type(None)]
        annotation = inner[0] if len(inner) == 1 else annotation
    if isinstance(annotation, str):  # under ``from __future__ import annotations``
        annotation = annotation.strip("'\"")
        word = annotation.removesuffix("| None").strip().rpartition(".")[2]
        if word in _PYTHON_TYPES:
            return _PYTHON_TYPES[word]
    return data_type(annotation, f"{what} of {name}")


def data_type(given: Any, what: str, *, arrays: bool = False) -> DataType:
    """The type that a user gives; the error calls its owner ``what``. ``arrays``: it may be an
    array of single values, or segments of a signal."""
    if isinstance(given, DataType):
        return _single(given, what, arrays=arrays)
    if given is Decimal:
        raise BindError(f"the type of {what} needs its digits", hint='write "decimal(18,2)"')
    if isinstance(given, type):
        known = given.__module__ in ("builtins", "datetime", "numpy")
        if known and given.__name__ in _PYTHON_TYPES:
            return _PYTHON_TYPES[given.__name__]
    elif isinstance(given, str):
        segments = _SEGMENTS.fullmatch(given) if arrays else None
        if segments is not None:
            return _segments(segments[1], what)
        return _single(_sql_type(given, what), what, arrays=arrays)
    raise BindError(
        f"the type of {what} is no type of a column: {given!r:.60}",
        hint='an SQL type as text ("bigint", "decimal(10,2)"), or bool, int, float, str, bytes,'
        " date, datetime, timedelta",
    )


def _single(kind: DataType, what: str, *, arrays: bool) -> DataType:
    element = kind.element
    if arrays and kind.kind is Kind.ARRAY and element is not None and not element.is_nested:
        return replace(kind, contains_null=True)
    if kind.is_nested and arrays:
        raise BindError(
            f"{what} is {kind}, and operators of users return single values and arrays of them",
            hint="return the fields of a struct as columns",
        )
    if kind.is_nested:
        raise BindError(
            f"{what} is {kind}, and functions of users take and return single values",
            hint="pass an element (a[0]), a field (s.name) or a text (array_join(a, ','))",
        )
    return kind


def _segments(sample: str, what: str) -> DataType:
    kind = _sql_type(sample, what)
    if kind.is_nested or not kind.is_sample:
        raise BindError(
            f"{what} is a signal of {kind}, and samples are numbers",
            hint="return a segment for each field: struct(a, b) in SQL makes one of them"
            if kind.is_nested
            else "the samples are tinyint, smallint, int, bigint, float or double",
        )
    return signal(kind)


def _sql_type(text: str, what: str) -> DataType:
    from cql.dialect import parse_one
    from cql.planner.bind.expressions import literals

    try:
        (cast,) = parse_one(f"SELECT CAST(a AS {text})").expressions
        return literals.data_type(cast.args["to"], None)
    except (CqlError, KeyError, ValueError):
        raise BindError(
            f"{text[:60]!r} is no type (of {what})",
            hint="boolean, tinyint, smallint, int, bigint, float, double, decimal(p,s), date,"
            " timestamp, timestamp_ntz, interval, string or binary",
        ) from None
