"""The hash of a plan's operators, equal in all processes that planned the same.

A process that plans a text anew proves by the hash that its plan is the one that it was sent for.
The hash depends on what decides the result: operators, expressions, the names and types of columns,
and the declarations of streams. It does not depend on reasons, places in the text, the runtime, or
where the data of a relation lies.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import cache
from typing import Any, TypeVar

from cql.base.recursion import deep_stack
from cql.base.types import DataType
from cql.planner.functions.user_aggregates import UserAggregate
from cql.planner.functions.user_functions import UserFunction
from cql.planner.nodes.catalog import Relation
from cql.planner.nodes.physical import Physical, SourceExec

T = TypeVar("T")

#: A field with the reason for a choice, which the hash leaves out.
REASON = "why"


@deep_stack()
def plan_hash(root: Physical) -> str:
    """The hash of ``root`` and all operators below, in hexadecimal digits."""
    return _Hasher().of(root).hex()


class _Hasher:
    """Computes each object's digest once, although a plan may contain the object many times."""

    def __init__(self) -> None:
        #: by id, the object (which keeps the id in use) and its digest
        self._known: dict[int, tuple[Any, bytes]] = {}

    def of(self, value: Any) -> bytes:
        known = self._known.get(id(value))
        if known is None:
            digest = hashlib.sha256()
            for part in self._parts(value):
                digest.update(len(part).to_bytes(8, "little") + part)
            self._known[id(value)] = known = value, digest.digest()
        return known[1]

    def _parts(self, value: Any) -> Iterator[bytes]:
        """The parts of ``value``, which begin with its type: 1, True and 1.0 differ."""
        yield type(value).__name__.encode()
        match value:
            case None:
                pass
            case Enum():
                yield value.name.encode()
            case bool() | int():
                yield str(int(value)).encode()
            case float():
                yield value.hex().encode()
            case str():
                yield value.encode("utf-8", "surrogatepass")
            case bytes():
                yield value
            case tuple():
                yield from map(self.of, value)
            case frozenset():
                yield from sorted(map(self.of, value))
            case Mapping():
                yield from sorted(self.of(item) for item in value.items())
            case UserFunction() | UserAggregate():
                yield from map(self.of, (value.usage, value.sees_null))
            case _ if dataclasses.is_dataclass(value):
                yield from self._fields(value)
            case _:
                raise TypeError(f"a plan holds no {type(value).__name__}")

    def _fields(self, node: T) -> Iterator[bytes]:
        kind: type = type(node)
        for name in _compared(kind):
            value = getattr(node, name)
            if name == "relation" and isinstance(node, SourceExec):
                value = _declaration(value)
            yield name.encode()
            yield self.of(value)


def _declaration(relation: Relation) -> tuple[object, ...]:
    return relation.name, relation.bounded, relation.schema, relation.stream


@cache
def _compared(kind: type) -> tuple[str, ...]:
    """The fields that decide whether two nodes are equal, but for the reason. Of a type, all: equal
    types may print differently in a result."""
    fields = dataclasses.fields(kind)
    return tuple(f.name for f in fields if (f.compare or kind is DataType) and f.name != REASON)
