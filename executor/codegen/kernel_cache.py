"""Kernels as they were written, once for all queries that want the same.

A writer sees its part of a plan, and of the inputs their schemas and what progresses in them. Parts
that agree in all of this share what was written for the first of them: positions, which errors
point to, and the bits of constants included. What calls functions of users is written each time,
lest they outlive their session.
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
from cql.planner.lower.watermark import progressing
from cql.planner.nodes.expr import Literal
from cql.planner.nodes.physical import Physical, inputs

Part = TypeVar("Part")
Code = TypeVar("Code")


@dataclass(frozen=True, slots=True)
class Kernel:
    """A written kernel, and what the running operator must provide for it: ``slots`` are the words
    of its descriptor by name. Queries share it: nothing changes it."""

    text: str
    slots: Mapping[str, int]
    constants: tuple[tuple[int, Literal | int], ...]  # each behind the slot that it goes to
    window_constants: tuple[tuple[int, int], ...]
    tables: tuple[DictionaryTable, ...]
    hosts: tuple[HostSite, ...]
    sites: tuple[ErrorSite, ...]
    counters: tuple[str, ...]
    zones: tuple[tuple[str, int], ...]  # see cql.base.zones.days_of
    functions: tuple[Called, ...]
    #: Keys in order behind a slot, and behind them which one each is (``Scope.sorted_words``).
    sorted: tuple[tuple[int, tuple[Literal, ...]], ...]
    parts: int  # functions ``part0`` … of its module, whose addresses are words, too
    uses_rank: bool


def _weight(key: tuple[object, ...]) -> int:
    """Of a part of a plan: how many values and characters it is made of."""
    return sum(len(value) if isinstance(value, str | bytes) else 1 for value in key)


#: What writers returned, by the writer and its part of a plan: some hundred kernels.
WRITTEN: LruCache[tuple[object, ...], Any] = LruCache(1 << 17, _weight)


def once(write: Callable[[Part], Code]) -> Callable[[Part], Code]:
    """``write``, which has been done already for a part of a plan that equals another one."""

    @wraps(write)
    @deep_stack()
    def shared(part: Part) -> Code:
        key: list[object] = [write]
        try:
            _tell(part, key)
        except _OfUserError:
            return write(part)
        made: Code = WRITTEN.get(tuple(key), lambda: write(part))
        return made

    return shared


class _OfUserError(Exception):
    """Something that is no plain data."""


_OF_FIELD = attrgetter(*(f.name for f in fields(Field)))
#: Values of these say by equality all that they are.
_PLAIN = frozenset((str, bytes, bool, int, type(None), frozenset, DataType, Position, Window))


def _tell(value: Any, key: list[object]) -> None:
    """Adds all that a value is. (Nodes of plans can be equal and differ: equality asks neither
    where they stand in the text nor for the sign of a zero.)"""
    kind = type(value)
    if kind in _PLAIN:
        key.append(value)
    elif kind is tuple:
        key.append(len(value))
        for part in value:
            _tell(part, key)
    elif kind is float:
        key.append(value.hex())
    elif kind is Schema:  # most of all values are its columns'
        key.append(len(value))
        for f in value:
            key += _OF_FIELD(f)
    else:
        shape = _SHAPES.get(kind) or _shape(kind)
        key.append(kind)
        for name in shape.names:
            _tell(getattr(value, name), key)
        if shape.has_inputs:  # writers see no more of them
            for child in inputs(value):
                _tell(child.schema, key)
                _tell(progressing(child), key)


class _Shape(NamedTuple):
    """The attributes that values of a class are made of, and whether they are nodes of a plan."""

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
