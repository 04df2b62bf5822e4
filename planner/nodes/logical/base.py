"""What each node of a logical plan states about itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from cql.base.model import Schema
from cql.errors import Position
from cql.planner.nodes.expr import Expr
from cql.planner.nodes.rewrite import replace

if TYPE_CHECKING:
    from cql.planner.nodes.logical import Logical


class LogicalNode(ABC):
    """A step of what a query means, as immutable data. All members but ``map_inputs`` are abstract:
    no answer is true of every node."""

    __slots__ = ()

    @property
    @abstractmethod
    def schema(self) -> Schema:
        """The columns of the output."""

    @property
    @abstractmethod
    def inputs(self) -> tuple[Logical, ...]:
        """The nodes whose rows the node reads."""

    @abstractmethod
    def with_inputs(self, new: tuple[Logical, ...]) -> Self:
        """The node over ``new`` inputs, which are as many as ``inputs``."""

    @property
    @abstractmethod
    def expressions(self) -> tuple[Expr, ...]:
        """The expressions over the columns of the input."""

    @property
    @abstractmethod
    def pos(self) -> Position | None:
        """The place of the clause in the text; None: unknown."""

    def map_inputs(self, fn: Callable[[Logical], Logical]) -> Self:
        """The node with ``fn`` applied to each of its inputs."""
        return self.with_inputs(tuple([fn(child) for child in self.inputs]))


class NoInput(LogicalNode):
    """A node that reads no other node."""

    __slots__ = ()

    @property
    def inputs(self) -> tuple[Logical, ...]:
        return ()

    def with_inputs(self, new: tuple[Logical, ...]) -> Self:
        assert not new
        return self


@dataclass(frozen=True, slots=True)
class OneInput(LogicalNode):
    """A node with the one input ``input``."""

    input: Logical

    @property
    def inputs(self) -> tuple[Logical, ...]:
        return (self.input,)

    def with_inputs(self, new: tuple[Logical, ...]) -> Self:
        (child,) = new
        return replace(self, input=child)


class SameColumns(OneInput):
    """A node whose output has the columns of its input."""

    __slots__ = ()

    @property
    def schema(self) -> Schema:
        return self.input.schema


@dataclass(frozen=True, slots=True)
class TwoInputs(LogicalNode):
    """A node with the inputs ``left`` and ``right``."""

    left: Logical
    right: Logical

    @property
    def inputs(self) -> tuple[Logical, ...]:
        return (self.left, self.right)

    def with_inputs(self, new: tuple[Logical, ...]) -> Self:
        left, right = new
        return replace(self, left=left, right=right)
