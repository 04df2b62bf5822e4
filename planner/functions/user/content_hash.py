"""The hash of what a user's function does, equal in all processes that declare the same function.

The hash depends on the declaration, on the code, and on what the code refers to: constants,
functions and classes. Modules and builtins count by name. It differs between versions of Python,
whose code differs.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from cql.planner.functions.user.aggregates import UserAggregate
from cql.planner.functions.user.functions import UserFunction
from cql.planner.functions.user.operators import UserOperator


def content_hash(function: UserFunction | UserAggregate | UserOperator) -> str:
    """The hash of a scalar function, an aggregate or an operator, in hexadecimal digits; without
    its time limit."""
    if isinstance(function, UserFunction):
        parts: tuple[object, ...] = (function.parallel, function.function)
    elif isinstance(function, UserOperator):
        parts = (function.state_text, function.function, function.finish)
    else:
        methods = tuple((m.name, m.gives_tuple, m.function) for m in function.methods)
        parts = (function.parallel, function.start, methods)
    digest = hashlib.sha256()
    for part in (function.usage, repr(function.sees_null), *_Content().of(parts)):
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "little") + encoded)
    return digest.hexdigest()


class _Content:
    """Spells what objects do as words; a function or class that is met again, as its number."""

    def __init__(self) -> None:
        self._met: list[object] = []

    def of(self, value: object) -> Iterator[str]:
        yield type(value).__name__
        match value:
            case bool() | int() | float() | complex() | str() | bytes() | None:
                yield repr(value)
            case tuple() | list():
                yield str(len(value))
                for part in value:
                    yield from self.of(part)
            case frozenset() | set():
                yield from sorted(" ".join(self.of(part)) for part in value)
            case Mapping():
                for key, part in value.items():
                    yield from (*self.of(key), *self.of(part))
            case functools.partial():
                yield from self.of((value.func, value.args, value.keywords))
            case MethodType():
                yield from self.of((value.__func__, type(value.__self__)))
                yield from self.of(getattr(value.__self__, "__dict__", {}))
            case FunctionType() | type():
                yield from self._once(value)
            case ModuleType():
                yield value.__name__
            case np.ndarray() | np.generic() if not value.dtype.hasobject:
                values = hashlib.sha256(value.tobytes()).hexdigest()
                yield f"{value.dtype.str} {value.shape} {values}"
            case _:
                kind = type(value)
                yield f"{kind.__module__}.{kind.__qualname__} {getattr(value, '__qualname__', '')}"

    def _once(self, value: FunctionType | type) -> Iterator[str]:
        met = next((k for k, known in enumerate(self._met) if known is value), None)
        if met is not None:
            yield f"#{met}"
            return
        self._met.append(value)
        if isinstance(value, FunctionType):
            yield from self._function(value)
        elif value.__module__ == "builtins":
            yield value.__qualname__
        else:
            yield value.__qualname__
            yield from self.of(value.__bases__)
            for name in sorted(vars(value)):
                if not name.startswith("__") or name in ("__call__", "__init__"):
                    yield name
                    yield from self.of(_bare(vars(value)[name]))

    def _function(self, function: FunctionType) -> Iterator[str]:
        yield from self._code(function.__code__)
        yield from self.of((function.__defaults__, function.__kwdefaults__))
        for cell in function.__closure__ or ():
            yield from self.of(cell.cell_contents)
        for name in _names(function.__code__):
            if name in function.__globals__:
                yield name
                yield from self.of(function.__globals__[name])

    def _code(self, code: CodeType) -> Iterator[str]:
        yield code.co_code.hex()
        counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        yield from self.of((code.co_names, code.co_varnames, code.co_freevars, counts))
        yield code.co_exceptiontable.hex()
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                yield from self._code(constant)
            else:
                yield from self.of(constant)


def _names(code: CodeType) -> Iterator[str]:
    """The global names that ``code`` and the functions in it may read, each once."""
    found = dict.fromkeys(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= dict.fromkeys(_names(constant))
    yield from found


def _bare(member: Any) -> Any:
    """A member of a class without ``staticmethod`` or ``classmethod`` around it."""
    return member.__func__ if isinstance(member, staticmethod | classmethod) else member
