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
from cql.base.model import Schema
from cql.base.recursion import deep_stack
from cql.base.types import DataType
from cql.base.window import Window
from cql.errors import Position
from cql.executor.codegen.expressions.scope import Called, DictionaryTable, ErrorSite, HostSite
from cql.planner.nodes.expr import Column, Literal
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


# The parts of a type, a column and a place in the text that Python compares without a call.
_OF_TYPE = attrgetter("kind._value_", "precision", "scale", "contains_null")
_OF_FIELD = attrgetter("name", "nullable", "comment", "of")
_OF_COLUMN = attrgetter("index", "name", "nullable")
_OF_POSITION = attrgetter("line", "column", "length")
_NOWHERE = (None,)
#: Types whose equal values do not differ in anything.
_PLAIN = frozenset((str, bytes, bool, int, type(None), frozenset, Window))


def _append_content(value: Any, key: list[object]) -> None:
    """Appends the whole content of a value to ``key``. (Equal plan nodes can differ: equality
    ignores positions in the text and the sign of a zero.)"""
    kind = type(value)
    if kind is tuple:
        key.append(len(value))
        parts = value
    elif kind is Schema:  # most values of a part are those of columns
        key.append(len(value))
        for f in value.fields:
            key += _OF_FIELD(f)
            key.append(_content_of(f.type))
        return
    else:
        shape = _SHAPES.get(kind) or _shape(kind)
        key.append(kind)
        parts = shape.parts(value)
        if shape.has_inputs:  # writers read nothing else of the inputs
            parts += tuple([p for child in value.inputs for p in (child.schema, child.progressing)])
    for part in parts:
        kind = type(part)
        if kind in _PLAIN:
            key.append(part)
        elif kind is DataType:
            key.append(_content_of(part))
        elif kind is Column:
            key.append(kind)
            key += _OF_COLUMN(part)
            key.append(_content_of(part.type))
            key += _NOWHERE if part.pos is None else _OF_POSITION(part.pos)
        elif kind is Position:
            key += _OF_POSITION(part)
        elif kind is float:
            key.append(part.hex())
        else:
            _append_content(part, key)


#: The content of types by the ids of the types, which it keeps in use.
_CONTENTS: dict[int, tuple[DataType, tuple[object, ...]]] = {}
_MOST_CONTENTS = 1 << 10


def _content_of(value: DataType) -> tuple[object, ...]:
    """The content of a type. Most types are constants of ``cql.base.types``."""
    known = _CONTENTS.get(id(value))
    if known is not None:
        return known[1]
    element = None if value.element is None else _content_of(value.element)
    parts = tuple([(name, _content_of(of)) for name, of in value.fields])
    content = (*_OF_TYPE(value), element, parts)
    if len(_CONTENTS) >= _MOST_CONTENTS:
        _CONTENTS.clear()
    _CONTENTS[id(value)] = value, content
    return content


class _Shape(NamedTuple):
    """How to get the content of a class's values, and whether these are plan nodes."""

    parts: Callable[[Any], tuple[Any, ...]]
    has_inputs: bool


_SHAPES: dict[type, _Shape] = {}


def _shape(kind: type) -> _Shape:
    if issubclass(kind, Enum):
        made = _Shape(lambda value: (value.name,), False)
    elif not is_dataclass(kind) or kind.__eq__ is object.__eq__:
        raise _OfUserError
    else:
        node = issubclass(kind, Physical)
        beside = ("why", "input", "inputs", "left", "right", "table", "query") if node else ()
        names = tuple(f.name for f in fields(kind) if f.name not in beside)
        made = _Shape(_getter(names), node)
    _SHAPES[kind] = made
    return made


def _getter(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """A function that gets the attributes called ``names`` of a value."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple([getattr(value, name) for name in names])
