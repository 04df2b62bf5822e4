"""Cache of written kernels, which all queries share.

A writer reads its part of a plan, the schemas of the inputs, and which input columns progress.
Parts of plans that agree in all of this share the kernel that was written for the first of them;
they must agree in the bits of constants, too, and in positions, which errors point to. A kernel
that calls users' functions is written each time, so that the functions do not outlive their
session.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import wraps
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from cql.base.lru import LruCache
from cql.base.model import Field, Schema
from cql.base.recursion import deep_stack
from cql.base.types import DataType
from cql.base.window import Window
from cql.errors import Position
from cql.executor.codegen.expressions.scope import Called, DictionaryTable, ErrorSite, HostSite
from cql.planner.nodes.expr import Literal
from cql.planner.nodes.physical import Physical

Part = TypeVar("Part")
Code = TypeVar("Code")


@dataclass(frozen=True, slots=True)
class Kernel:
    """A written kernel, and what the running operator must provide for it. ``slots``: the indexes
    of the descriptor's words by name. Queries share a kernel, so it never changes."""

    text: str
    slots: Mapping[str, int]
    constants: tuple[tuple[int, Literal | int], ...]  # (slot, value)
    window_constants: tuple[tuple[int, int], ...]
    tables: tuple[DictionaryTable, ...]
    hosts: tuple[HostSite, ...]
    sites: tuple[ErrorSite, ...]
    counters: tuple[str, ...]
    zones: tuple[tuple[str, int], ...]  # see cql.base.zones.days_of
    functions: tuple[Called, ...]
    #: (slot, keys): the sorted words of the keys stand from the slot on, then the keys' numbers
    #: (``Scope.sorted_words``).
    sorted: tuple[tuple[int, tuple[Literal, ...]], ...]
    parts: int  # functions ``part0``, … of the module; their addresses are words, too
    uses_rank: bool


def _weight(key: tuple[object, ...]) -> int:
    """The weight of a key: its values, where a text counts as its characters."""
    return sum(len(value) if isinstance(value, str | bytes) else 1 for value in key)


#: The results of writers, by the writer and its part of a plan: some hundred kernels.
WRITTEN: LruCache[tuple[object, ...], Any] = LruCache(1 << 17, _weight)


def once(write: Callable[[Part], Code]) -> Callable[[Part], Code]:
    """``write``, with a cache: a part of a plan that equals an earlier one gets its result."""

    @wraps(write)
    @deep_stack()
    def shared(part: Part) -> Code:
        key: list[object] = [write]
        try:
            _append_content(part, key)
        except _OfUserError:
            return write(part)
        made: Code = WRITTEN.get(tuple(key), lambda: write(part))
        return made

    return shared


class _OfUserError(Exception):
    """A value is no plain data, such as a user's function."""


_OF_FIELD = attrgetter(*(f.name for f in fields(Field)))
#: Types whose equal values do not differ in anything.
_PLAIN = frozenset((str, bytes, bool, int, type(None), frozenset, Position, Window))


def _append_content(value: Any, key: list[object]) -> None:
    """Appends the whole content of a value to ``key``. (Equal plan nodes can differ: equality
    ignores positions in the text and the sign of a zero.)"""
    kind = type(value)
    if kind in _PLAIN:
        key.append(value)
    elif kind is DataType:
        key += value, value.contains_null
    elif kind is tuple:
        key.append(len(value))
        for part in value:
            _append_content(part, key)
    elif kind is float:
        key.append(value.hex())
    elif kind is Schema:  # most values of a part are those of columns
        key.append(len(value))
        for f in value:
            key += _OF_FIELD(f)
            key.append(f.type.contains_null)
    else:
        shape = _SHAPES.get(kind) or _shape(kind)
        key.append(kind)
        for name in shape.names:
            _append_content(getattr(value, name), key)
        if shape.has_inputs:  # writers read nothing else of the inputs
            for child in value.inputs:
                _append_content(child.schema, key)
                _append_content(child.progressing, key)


class _Shape(NamedTuple):
    """The attributes that hold the content of a class's values, and whether these are plan
    nodes."""

    names: tuple[str, ...]
    has_inputs: bool


_SHAPES: dict[type, _Shape] = {}


def _shape(kind: type) -> _Shape:
    if issubclass(kind, Enum):
        made = _Shape(("name",), False)
    elif not is_dataclass(kind) or kind.__eq__ is object.__eq__:
        raise _OfUserError
    else:
        node = issubclass(kind, Physical)
        beside = ("why", "input", "inputs", "left", "right", "table", "query") if node else ()
        made = _Shape(tuple(f.name for f in fields(kind) if f.name not in beside), node)
    _SHAPES[kind] = made
    return made
