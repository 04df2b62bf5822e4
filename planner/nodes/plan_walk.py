"""The walk over what a plan holds, which hashes and writes plans."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import Enum
from typing import Any, Generic, TypeAlias, TypeVar

from cql.planner.functions.user.aggregates import UserAggregate
from cql.planner.functions.user.functions import UserFunction
from cql.planner.functions.user.operators import UserOperator
from cql.planner.nodes.catalog import Relation
from cql.planner.nodes.physical import SourceExec

T = TypeVar("T")

Scalar: TypeAlias = bool | int | float | str | bytes | Enum | None
Function: TypeAlias = UserFunction | UserAggregate | UserOperator


class PlanWalk(ABC, Generic[T]):
    """Makes a T of a plan, bottom-up. Visits each object once, although a plan may contain the
    object many times."""

    def __init__(self) -> None:
        #: by id, the object (which keeps the id in use) and what was made of it
        self._known: dict[int, tuple[Any, T]] = {}

    def of(self, value: Any) -> T:
        """What is made of ``value``. Raises TypeError for an object that no plan holds."""
        known = self._known.get(id(value))
        if known is None:
            known = self._known[id(value)] = value, self._made(value)
        return known[1]

    def _made(self, value: Any) -> T:
        match value:
            case None | Enum() | bool() | int() | float() | str() | bytes():
                return self.scalar(value)
            case tuple():
                return self.items(value, [self.of(part) for part in value])
            case frozenset():
                return self.items(value, [self.of(part) for part in value])
            case UserFunction() | UserAggregate() | UserOperator():
                return self.function(value)
            case _ if dataclasses.is_dataclass(value):
                parts = [(name, self._field(value, name)) for name in self.fields(type(value))]
                return self.record(value, parts)
            case _:
                raise TypeError(f"a plan holds no {type(value).__name__}")

    def _field(self, node: Any, name: str) -> T:
        value = getattr(node, name)
        if name == "relation" and isinstance(node, SourceExec):
            return self.relation(value)
        return self.of(value)

    @abstractmethod
    def fields(self, kind: type) -> Sequence[str]:
        """The fields of a dataclass to visit."""

    @abstractmethod
    def scalar(self, value: Scalar) -> T: ...

    @abstractmethod
    def items(self, value: tuple[Any, ...] | frozenset[Any], parts: Sequence[T]) -> T:
        """Of a tuple or a set, given what is made of its items."""

    @abstractmethod
    def function(self, value: Function) -> T: ...

    @abstractmethod
    def relation(self, value: Relation) -> T: ...

    @abstractmethod
    def record(self, value: Any, parts: Sequence[tuple[str, T]]) -> T:
        """Of a node, an expression, a type or a part of these, given what is made of its fields."""
