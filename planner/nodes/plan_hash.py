"""The hash of a plan's operators, equal in all processes that planned the same.

A process that plans a text anew proves by the hash that its plan is the one that it was sent for.
The hash depends on what decides the result: operators, expressions, the names and types of columns,
and the declarations of streams. It does not depend on reasons, places in the text, the runtime, or
where the data of a relation lies.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from enum import Enum
from functools import cache
from typing import Any

from cql.base.recursion import deep_stack
from cql.base.types import DataType
from cql.planner.functions.user.operators import UserOperator
from cql.planner.nodes.catalog import Relation
from cql.planner.nodes.physical import Physical
from cql.planner.nodes.plan_walk import Function, PlanWalk, Scalar

#: A field with the reason for a choice, which the hash leaves out.
REASON = "why"


@deep_stack()
def plan_hash(root: Physical) -> str:
    """The hash of ``root`` and all operators below, in hexadecimal digits."""
    return _Hasher().of(root).hex()


class _Hasher(PlanWalk[bytes]):
    """Digests; those of two objects differ if their types differ: 1, True and 1.0 differ."""

    def fields(self, kind: type) -> Sequence[str]:
        return _compared(kind)

    def scalar(self, value: Scalar) -> bytes:
        match value:
            case None:
                return _digest(value)
            case Enum():
                return _digest(value, value.name.encode())
            case bool() | int():
                return _digest(value, str(int(value)).encode())
            case float():
                return _digest(value, value.hex().encode())
            case str():
                return _digest(value, value.encode("utf-8", "surrogatepass"))
            case bytes():
                return _digest(value, value)

    def items(self, value: tuple[Any, ...] | frozenset[Any], parts: Sequence[bytes]) -> bytes:
        return _digest(value, *(parts if isinstance(value, tuple) else sorted(parts)))

    def function(self, value: Function) -> bytes:
        own = list[bytes]()
        if isinstance(value, UserOperator):
            own = [self.of(value.state_text), self.of(value.finish is not None)]
        return _digest(value, self.of(value.usage), self.of(value.sees_null), *own)

    def relation(self, value: Relation) -> bytes:
        return self.of((value.name, value.bounded, value.schema, value.stream))

    def record(self, value: Any, parts: Sequence[tuple[str, bytes]]) -> bytes:
        return _digest(value, *(part for name, made in parts for part in (name.encode(), made)))


def _digest(value: object, *parts: bytes) -> bytes:
    """The digest of the type of ``value`` and of ``parts``."""
    digest = hashlib.sha256()
    for part in (type(value).__name__.encode(), *parts):
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.digest()


@cache
def _compared(kind: type) -> tuple[str, ...]:
    """The fields that decide whether two nodes are equal, but for the reason. Of a type, all: equal
    types may print differently in a result."""
    fields = dataclasses.fields(kind)
    return tuple(f.name for f in fields if (f.compare or kind is DataType) and f.name != REASON)
